//! Whether a template requires a commit (it calls the helper `commit` for every transition, and only on revisions) or the Git repository of a
//! target.
//!
//! In: a program. Out: whether it needs one of them. A branch counts only if all branches beside it need the same, because it does not
//! always run.

use std::collections::BTreeSet;

use super::eval::{Expr, Node, Program};
use crate::render::data::parameters::Parameters;
use crate::render::helpers::Function;
use relaybook_api::values::commit::{NoCommit, commit};

/// How to get a revision that contains a commit.
pub const COMMIT_REMEDY: &str = "follow an object whose revision contains one commit, such as a Kustomization or an Application with one Git source, or set appRef.revisionPath to a field with a commit";

/// The fields that contain revisions.
const REVISIONS: [&str; 3] = ["revision", "runningRevision", "previousRevision"];

/// Whether the helper `commit` finds a commit in a revision.
#[must_use]
pub fn names_commit(revision: &str) -> bool {
    commit(revision).is_some()
}

/// What a template found instead of a commit.
pub(crate) const fn lacking(why: NoCommit) -> &'static str {
    match why {
        NoCommit::Unknown => "found an empty text instead of a commit hash",
        NoCommit::NoHash => "found no commit hash",
        NoCommit::Several => "found several commit hashes",
    }
}

/// Returns the problem of a template that found no commit in the value of an expression. An unknown revision requires no other object.
pub(crate) fn explained(why: NoCommit, expression: &str) -> String {
    let problem = lacking(why);
    match why {
        NoCommit::Unknown => format!("{problem} in `{expression}`, because the revision is not known"),
        NoCommit::NoHash | NoCommit::Several => format!("{problem} in `{expression}`; {COMMIT_REMEDY}"),
    }
}

/// Whether a program fails for every revision that contains no commit.
pub(crate) fn needs_commit(program: &Program, parameters: &Parameters) -> bool {
    need_commit(&program.nodes, parameters)
}

fn need_commit(nodes: &[Node], parameters: &Parameters) -> bool {
    nodes.iter().any(|node| match node {
        Node::Value { expr, .. } => needs(expr, parameters),
        Node::Choice { arms, otherwise } => {
            need_commit(otherwise, parameters) && arms.iter().all(|arm| need_commit(&arm.body, parameters))
        }
        Node::Text(_) | Node::Each { .. } => false,
    })
}

fn needs(expr: &Expr, parameters: &Parameters) -> bool {
    match expr {
        Expr::Literal(_) | Expr::Entry(..) => false,
        Expr::Path(path) => match path.as_slice() {
            [first, name] if first == "parameters" => {
                // A field that has no commit is left out.
                !parameters.has_fields(name)
                    && parameters.find(name).is_some_and(|(_, program)| needs_commit(program, parameters))
            }
            _ => false,
        },
        Expr::Call(Function::Commit, args) => args.iter().all(is_revision),
        // Arguments after the first one are not always evaluated.
        Expr::Call(Function::And | Function::Or | Function::Default, args) => {
            args.first().is_some_and(|first| needs(first, parameters))
        }
        Expr::Call(_, args) => args.iter().any(|arg| needs(arg, parameters)),
    }
}

/// Returns how a program reads `target.source`, which only targets with a known Git repository have: the parameters that read it, or none if the program
/// itself does. `None`: it does not read it.
pub(crate) fn needs_source(program: &Program, parameters: &Parameters) -> Option<Vec<String>> {
    let mut names = BTreeSet::new();
    let mut reads = false;
    for node in &program.nodes {
        if let Node::Value { expr, .. } = node {
            reads |= reads_source(expr, parameters, &mut names);
        }
    }
    reads.then(|| names.into_iter().collect())
}

fn reads_source(expr: &Expr, parameters: &Parameters, names: &mut BTreeSet<String>) -> bool {
    match expr {
        // The last three have another value if it is empty.
        Expr::Literal(_) | Expr::Entry(..) | Expr::Call(Function::And | Function::Or | Function::Default, _) => false,
        Expr::Path(path) => match path.as_slice() {
            [first, name] if first == "parameters" => {
                let reads = parameters.find(name).is_some_and(|(_, program)| needs_source(program, parameters).is_some());
                reads && {
                    names.insert(name.clone());
                    true
                }
            }
            [first, second, _] => first == "target" && second == "source",
            _ => false,
        },
        Expr::Call(_, args) => args.iter().filter(|arg| reads_source(arg, parameters, names)).count() > 0,
    }
}

fn is_revision(expr: &Expr) -> bool {
    match expr {
        Expr::Path(path) => matches!(path.as_slice(), [only] if REVISIONS.contains(&only.as_str())),
        Expr::Call(Function::Default, args) => args.iter().all(is_revision),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{Body, HeaderTemplate, UrlTemplate};

    #[test]
    fn a_field_needs_no_commit() {
        let parameters = Parameters::compile([("fields", Some("Commit: {{commit revision}}"))]).unwrap();
        let source = "{{parameters.fields}}{{#each parameters.fields}}{{this}}{{/each}}";
        let body = Body::compile("text/plain", source, &parameters).unwrap();
        assert!(body.needs_commit(&parameters));
        assert!(!body.needs_commit(&parameters.with_fields(body.listed()).unwrap()));
    }

    #[test]
    fn a_template_needs_a_commit_if_every_branch_uses_one() {
        let parameters =
            Parameters::compile([("sha", Some("{{commit revision}}")), ("own", Some("{{commit environment}}"))]).unwrap();
        for (source, needed) in [
            ("{{commit revision}}", true),
            ("a {{commit (default revision previousRevision)}} b", true),
            ("{{upper (truncate (commit runningRevision) 7)}}", true),
            ("{{default (commit revision) \"-\"}}", true),
            ("{{parameters.sha}}", true),
            ("{{#with target}}{{commit ../revision}}{{/with}}", true),
            ("{{default environment (commit revision)}}", false),
            ("{{#if (eq target.app.kind \"Kustomization\")}}{{commit revision}}{{/if}}", false),
            ("{{#if drifted}}{{commit previousRevision}}{{else}}{{commit revision}}{{/if}}", true),
            ("{{#if drifted}}{{commit previousRevision}}{{else if coalesced}}-{{else}}{{commit revision}}{{/if}}", false),
            ("{{#unless drifted}}{{commit revision}}{{else}}{{parameters.sha}}{{/unless}}", true),
            ("{{commit (default revision pipeline.name)}}", false),
            ("{{commit pipeline.name}}", false),
            ("{{short revision}}", false),
            ("{{parameters.own}}", false),
            ("", false),
        ] {
            let body = Body::compile("text/plain", source, &parameters).unwrap();
            assert_eq!(body.needs_commit(&parameters), needed, "{source}");
            assert_eq!(HeaderTemplate::compile("X-A", source, &parameters).unwrap().needs_commit(&parameters), needed);
            let source = source.replace("a {{", "a{{").replace("}} b", "}}b");
            let url = UrlTemplate::compile(&format!("https://example.com/?a={source}"), &parameters).unwrap();
            assert_eq!(url.needs_commit(&parameters), needed, "{source}");
        }
        let parameters = Parameters::compile([
            ("owner", Some("{{target.source.owner}}")),
            ("project", Some("{{lower target.source.project}}")),
            ("own", Some("acme")),
        ])
        .unwrap();
        for (source, needed) in [
            ("{{target.source.owner}}", Some(&[][..])),
            ("{{parameters.owner}}", Some(&["owner"])),
            ("{{parameters.own}}/{{parameters.owner}}/{{parameters.project}}", Some(&["owner", "project"])),
            ("{{upper target.source.project}}", Some(&[])),
            ("{{default target.source.owner \"acme\"}}", None),
            ("{{#if target.source.owner}}{{target.source.owner}}{{/if}}", None),
            ("{{target.app.name}}{{parameters.own}}", None),
        ] {
            let url = UrlTemplate::compile(&format!("https://example.com/?a={source}"), &parameters).unwrap();
            let needed = needed.map(|names: &[&str]| names.iter().copied().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(url.needs_source(&parameters), needed, "{source}");
        }
        assert!(names_commit(&format!("main@sha1:{}", "a".repeat(40))) && !names_commit("6.5.0"));
    }
}
