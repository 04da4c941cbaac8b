//! Which fields a template uses that need more than a recorded transition. These are `test`, by which its receiver distinguishes a test from the
//! truth, and the fields that a forge is asked for.
//!
//! In: a program, and the parameters that it can read. Out: whether any branch uses such a field, also by way of a parameter.

use super::eval::{Arm, Expr, Node, Program};
use crate::render::data::parameters::Parameters;
use relaybook_api::values::looked_up::LookUps;

/// The field that says whether it is a test.
const TEST: &str = "test";
/// The field about the commit, and its fields that only the forge knows.
const GIT: (&str, [&str; 3]) = ("git", ["author", "message", "time"]);
/// The field about the pull request, which only the forge knows.
const PULL_REQUEST: &str = "pullRequest";
/// The field with the parameters.
const PARAMETERS: &str = "parameters";

/// Whether a path is a field that is looked for.
type Is = fn(&[String]) -> bool;

/// Whether a program uses the field `test`, or a parameter that uses it. All data as one object do not count: they contain the field, but
/// the receiver need not read it.
pub(crate) fn reads_test(program: &Program, parameters: &Parameters) -> bool {
    in_nodes(&program.nodes, parameters, |path| matches!(path, [only] if only == TEST))
}

/// What a program uses that a forge must be asked for, itself or by way of a parameter. All data as one object do not count, so a template that
/// sends all data asks nobody.
pub(crate) fn look_ups(program: &Program, parameters: &Parameters) -> LookUps {
    let of_commit: Is = |path| matches!(path, [first, name] if first == GIT.0 && GIT.1.contains(&name.as_str()));
    let of_pull_request: Is = |path| matches!(path, [first, ..] if first == PULL_REQUEST);
    LookUps {
        commit: in_nodes(&program.nodes, parameters, of_commit),
        pull_request: in_nodes(&program.nodes, parameters, of_pull_request),
    }
}

/// Whether a template that is not the body depends on what a forge says. `asked`: what the body asks for. Then all data contain the answer, and so does
/// the object about the commit.
pub(crate) fn depends_on_forge(program: &Program, parameters: &Parameters, asked: LookUps) -> bool {
    let whole: Is = |path| path.is_empty() || matches!(path, [only] if only == GIT.0);
    !look_ups(program, parameters).is_none() || (!asked.is_none() && in_nodes(&program.nodes, parameters, whole))
}

fn in_nodes(nodes: &[Node], parameters: &Parameters, is: Is) -> bool {
    nodes.iter().any(|node| match node {
        Node::Text(_) => false,
        Node::Value { expr, .. } => in_expr(expr, parameters, is),
        Node::Choice { arms, otherwise } => {
            let in_arm = |arm: &Arm| in_expr(&arm.condition, parameters, is) || in_nodes(&arm.body, parameters, is);
            arms.iter().any(in_arm) || in_nodes(otherwise, parameters, is)
        }
        Node::Each { map, body, otherwise, .. } => {
            in_expr(map, parameters, is) || in_nodes(body, parameters, is) || in_nodes(otherwise, parameters, is)
        }
    })
}

fn in_expr(expr: &Expr, parameters: &Parameters, is: Is) -> bool {
    match expr {
        Expr::Literal(_) | Expr::Entry(..) => false,
        Expr::Path(path) => match path.as_slice() {
            path if is(path) => true,
            [only] if only == PARAMETERS => parameters.set().any(|name| in_parameter(name, parameters, is)),
            [first, name] if first == PARAMETERS => in_parameter(name, parameters, is),
            _ => false,
        },
        Expr::Call(_, args) => args.iter().any(|arg| in_expr(arg, parameters, is)),
    }
}

fn in_parameter(name: &str, parameters: &Parameters, is: Is) -> bool {
    // A parameter cannot read other parameters.
    parameters.find(name).is_some_and(|(_, program)| in_nodes(&program.nodes, &Parameters::default(), is))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{Body, Hidden, UrlTemplate, Visibility};

    #[test]
    fn the_field_is_found_in_each_branch_and_in_parameters() {
        let all = [("mark", Some("{{#if test}}TEST {{/if}}")), ("own", Some("{{json parameters}}")), ("room", Some("test"))];
        let parameters = Parameters::compile(all).unwrap();
        let without = Parameters::compile([("own", Some("{{json parameters}}")), ("room", Some("test"))]).unwrap();
        for (source, is_read) in [
            ("{{test}}", true),
            ("{{#if test}}a{{/if}}", true),
            ("{{#if drifted}}a{{else if (and coalesced (not test))}}b{{/if}}", true),
            ("{{#if drifted}}a{{else}}{{#each pipeline.labels}}{{@root.test}}{{/each}}{{/if}}", true),
            ("{{#each pipeline.labels}}a{{else}}{{test}}{{/each}}", true),
            ("{{#with target}}{{upper (json ../test)}}{{/with}}", true),
            ("{{json @root}}", false),
            ("{{parameters.mark}}", true),
            ("{{json parameters}}", true),
            ("{{#each parameters}}{{this}}{{/each}}", true),
            ("{{parameters.own}}{{parameters.room}}", false),
            ("{{default pipeline.labels.test \"test\"}}", false),
            ("{{default (lookup pipeline.labels \"test\") \"-\"}}", false),
            ("test {{json target}}", false),
            ("", false),
        ] {
            let body = Body::compile("text/plain", source, &parameters).unwrap_or_else(|e| panic!("{source}: {e}"));
            assert_eq!(body.reads_test(&parameters), is_read, "{source}");
            let url = format!("https://example.com/?a={}", source.replace("test {{", "test{{"));
            assert_eq!(UrlTemplate::compile(&url, &parameters).unwrap().reads_test(&parameters), is_read, "{source}");
            if source.contains("parameters") && !source.contains("mark") {
                let body = Body::compile("text/plain", source, &without).unwrap();
                assert!(!body.reads_test(&without), "{source}");
            }
        }
        // What is hidden from the author of a template is not in its map of parameters.
        let hidden = Hidden::from([("mark".to_owned(), "the global configuration".to_owned())]);
        let parameters = parameters.with_hidden([hidden, Hidden::new()]);
        for (visibility, is_read) in [(Visibility::Pipeline, false), (Visibility::LayerNamespace, true)] {
            let body = Body::compile("text/plain", "{{json parameters}}", &parameters.seen_with(visibility)).unwrap();
            assert_eq!(body.reads_test(&parameters), is_read, "{visibility:?}");
        }
    }

    #[test]
    fn the_fields_that_a_forge_is_asked_for_are_found_by_name() {
        let all =
            [("by", Some("{{git.author}}")), ("fields", Some("Pull request: {{pullRequest.title}}")), ("own", Some("x"))];
        let parameters = Parameters::compile(all).unwrap();
        for (source, commit, pull_request) in [
            ("{{git.author}}", true, false),
            ("{{#if git.message}}a{{/if}}", true, false),
            ("{{#with git}}{{time}}{{/with}}", true, false),
            ("{{default git.time \"-\"}}", true, false),
            ("{{pullRequest.number}}", false, true),
            ("{{json pullRequest}}", false, true),
            ("{{#with pullRequest}}{{title}}{{/with}}{{git.author}}", true, true),
            ("{{parameters.by}}", true, false),
            ("{{#each parameters.fields}}{{@key}}={{this}}{{/each}}", false, true),
            ("{{json parameters}}", true, true),
            ("{{json @root}}{{json git}}{{git.sha}}{{git.url}}{{parameters.own}}{{message}}{{time}}", false, false),
        ] {
            let body = Body::compile("text/plain", source, &parameters).unwrap_or_else(|e| panic!("{source}: {e}"));
            assert_eq!(body.look_ups(&parameters), LookUps { commit, pull_request }, "{source}");
        }
    }
}
