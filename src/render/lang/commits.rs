//! Whether a template requires a commit (it calls the helper `commit` for every transition, and only on revisions) or the repository of a
//! generated target.
//!
//! In: a program. Out: whether it needs one of them. Branches do not count, because they do not always run.

use super::eval::{Expr, Node, Program};
use crate::api::values::commit::commit;
use crate::render::data::parameters::Parameters;
use crate::render::helpers::Function;

/// How to get a revision that contains a commit.
pub const COMMIT_REMEDY: &str = "follow an object whose revision contains a commit, such as a Kustomization or an Application with a Git source, or set appRef.revisionPath to a field with a commit";

/// The fields that contain revisions.
const REVISIONS: [&str; 3] = ["revision", "runningRevision", "previousRevision"];

/// Whether the helper `commit` finds a commit in a revision.
#[must_use]
pub fn names_commit(revision: &str) -> bool {
    commit(revision).is_some()
}

/// Whether a program fails for every revision that contains no commit.
pub(in crate::render) fn needs_commit(program: &Program, parameters: &Parameters) -> bool {
    program.nodes.iter().any(|node| matches!(node, Node::Value { expr, .. } if needs(expr, parameters)))
}

fn needs(expr: &Expr, parameters: &Parameters) -> bool {
    match expr {
        Expr::Literal(_) | Expr::Entry(..) => false,
        Expr::Path(path) => match path.as_slice() {
            [first, name] if first == "parameters" => {
                parameters.find(name).is_some_and(|(_, program)| needs_commit(program, parameters))
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

/// Whether a program reads `target.source`, which only targets of Fleet have.
pub(in crate::render) fn needs_source(program: &Program, parameters: &Parameters) -> bool {
    program.nodes.iter().any(|node| matches!(node, Node::Value { expr, .. } if reads_source(expr, parameters)))
}

fn reads_source(expr: &Expr, parameters: &Parameters) -> bool {
    match expr {
        // The last three have another value if it is empty.
        Expr::Literal(_) | Expr::Entry(..) | Expr::Call(Function::And | Function::Or | Function::Default, _) => false,
        Expr::Path(path) => match path.as_slice() {
            [first, name] if first == "parameters" => {
                parameters.find(name).is_some_and(|(_, program)| needs_source(program, parameters))
            }
            [first, second, _] => first == "target" && second == "source",
            _ => false,
        },
        Expr::Call(_, args) => args.iter().any(|arg| reads_source(arg, parameters)),
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
    fn what_is_looked_for_in_every_case_is_needed() {
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
        let parameters = Parameters::compile([("owner", Some("{{target.source.owner}}")), ("own", Some("acme"))]).unwrap();
        for (source, needed) in [
            ("{{target.source.owner}}", true),
            ("{{parameters.owner}}", true),
            ("{{upper target.source.project}}", true),
            ("{{default target.source.owner \"acme\"}}", false),
            ("{{#if target.source.owner}}{{target.source.owner}}{{/if}}", false),
            ("{{target.app.name}}{{parameters.own}}", false),
        ] {
            let url = UrlTemplate::compile(&format!("https://example.com/?a={source}"), &parameters).unwrap();
            assert_eq!(url.needs_source(&parameters), needed, "{source}");
        }
        assert!(names_commit(&format!("main@sha1:{}", "a".repeat(40))) && !names_commit("6.5.0"));
    }
}
