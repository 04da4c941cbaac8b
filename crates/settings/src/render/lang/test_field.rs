//! Whether a template uses the field `test`, so that its receiver can distinguish a test from the truth.
//!
//! In: a program, and the parameters that it can read. Out: whether any branch uses the field, also by way of a parameter.

use super::eval::{Arm, Expr, Node, Program};
use crate::render::data::parameters::Parameters;

/// The field.
const TEST: &str = "test";
/// The field with the parameters.
const PARAMETERS: &str = "parameters";

/// Whether a program uses the field `test`, or a parameter that uses it. All data as one object do not count: they contain the field, but
/// the receiver need not read it.
pub(crate) fn reads_test(program: &Program, parameters: &Parameters) -> bool {
    in_nodes(&program.nodes, parameters)
}

fn in_nodes(nodes: &[Node], parameters: &Parameters) -> bool {
    nodes.iter().any(|node| match node {
        Node::Text(_) => false,
        Node::Value { expr, .. } => in_expr(expr, parameters),
        Node::Choice { arms, otherwise } => {
            let in_arm = |arm: &Arm| in_expr(&arm.condition, parameters) || in_nodes(&arm.body, parameters);
            arms.iter().any(in_arm) || in_nodes(otherwise, parameters)
        }
        Node::Each { map, body, otherwise, .. } => {
            in_expr(map, parameters) || in_nodes(body, parameters) || in_nodes(otherwise, parameters)
        }
    })
}

fn in_expr(expr: &Expr, parameters: &Parameters) -> bool {
    match expr {
        Expr::Literal(_) | Expr::Entry(..) => false,
        Expr::Path(path) => match path.as_slice() {
            [only] if only == TEST => true,
            [only] if only == PARAMETERS => parameters.set().any(|name| in_parameter(name, parameters)),
            [first, name] if first == PARAMETERS => in_parameter(name, parameters),
            _ => false,
        },
        Expr::Call(_, args) => args.iter().any(|arg| in_expr(arg, parameters)),
    }
}

fn in_parameter(name: &str, parameters: &Parameters) -> bool {
    // A parameter cannot read other parameters.
    parameters.find(name).is_some_and(|(_, program)| reads_test(program, &Parameters::default()))
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
}
