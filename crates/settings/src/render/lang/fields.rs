//! The fields of a parameter: one `name: value` a line.
//!
//! In: the program of a parameter. Out: the names with their values, for `each`. The names are literal, so data can neither add nor rename a
//! field: a line break in a value is a space. A value is what the rest of its line renders to. A field whose value is empty or cannot be
//! rendered is left out, so it prevents no message. Only the limits of the whole request apply to fields, too.

use std::collections::BTreeSet;
use std::slice;

use serde_json::Value;

use super::eval::{Expr, Node, Program, STEP, run};
use crate::render::data::parameters::Visibility;
use crate::render::{MAX_SOURCE, Position, RenderError, Values};

/// The names of fields with their values.
pub(crate) type Fields = Vec<(String, Value)>;

/// Maximum number of fields of a parameter.
const MOST: usize = 10;
/// Maximum number of characters of a name.
const LONGEST_NAME: usize = 60;
/// The end of a name.
const END_OF_NAME: &str = ": ";

/// One line of a parameter.
#[derive(Default)]
struct Line<'p> {
    /// The literal text before the end of the name.
    name: String,
    /// What follows. `None`: the name has not ended.
    value: Option<Vec<Part<'p>>>,
    /// Whether a tag is where the name must be.
    is_computed: bool,
}

/// A part of a value.
enum Part<'p> {
    Literal(&'p str),
    Computed(&'p Node),
}

impl<'p> Line<'p> {
    fn literal(&mut self, text: &'p str) {
        match (&mut self.value, text.split_once(END_OF_NAME)) {
            (Some(value), _) => value.push(Part::Literal(text)),
            (None, Some((name, rest))) => {
                self.name.push_str(name);
                self.value = Some(vec![Part::Literal(rest)]);
            }
            (None, None) => self.name.push_str(text),
        }
    }

    fn computed(&mut self, node: &'p Node) {
        match &mut self.value {
            Some(value) => value.push(Part::Computed(node)),
            None => self.is_computed = true,
        }
    }

    fn is_blank(&self) -> bool {
        !self.is_computed && self.value.is_none() && self.name.trim().is_empty()
    }

    /// Returns what is wrong with the line, apart from its value.
    fn problem(&self) -> Option<&'static str> {
        let name = self.name.trim();
        if self.is_computed || self.value.is_none() {
            Some("has no literal name; begin each line with a name, a colon and a space, as in `Team: payments`")
        } else if name.is_empty() || name.chars().nth(LONGEST_NAME).is_some() || name.contains(char::is_control) {
            Some("needs a name of 1 to 60 characters, without control characters")
        } else {
            None
        }
    }
}

/// Returns the name of the parameter at this path.
pub(super) fn parameter(path: &[String]) -> Option<&str> {
    match path {
        [first, name] if first == "parameters" => Some(name),
        _ => None,
    }
}

/// Checks that a parameter consists of fields.
pub(crate) fn check(program: &Program) -> Result<(), RenderError> {
    lines(&program.nodes).map(drop)
}

/// Returns the names of the parameters that a program lists in any branch.
pub(crate) fn listed(program: &Program) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    listed_in(&program.nodes, &mut names);
    names
}

fn listed_in(nodes: &[Node], names: &mut BTreeSet<String>) {
    for node in nodes {
        match node {
            Node::Text(_) | Node::Value { .. } => {}
            Node::Choice { arms, otherwise } => {
                for arm in arms {
                    listed_in(&arm.body, names);
                }
                listed_in(otherwise, names);
            }
            Node::Each { map, body, otherwise, .. } => {
                if let Expr::Path(path) = map {
                    names.extend(parameter(path).map(str::to_owned));
                }
                listed_in(body, names);
                listed_in(otherwise, names);
            }
        }
    }
}

/// Returns the fields of a parameter with these values. Whether the names are valid does not depend on the values. All values together have
/// the size of a parameter.
pub(crate) fn fields(program: &Program, values: &Values) -> Result<Fields, RenderError> {
    let literal = program.nodes.iter().map(|node| if let Node::Text(text) = node { text.len() } else { 0 });
    spend(literal.sum(), values)?;
    let (mut all, mut room) = (Vec::new(), MAX_SOURCE);
    for Line { name, value, .. } in lines(&program.nodes)? {
        spend(STEP, values)?;
        let text = match rendered(value.unwrap_or_default(), values, room) {
            Err(error) if error.is_of_limit() => return Err(error),
            text => text.unwrap_or_default(),
        };
        room = room.saturating_sub(text.len());
        if !text.is_empty() {
            all.push((name.trim().to_owned(), Value::String(text)));
        }
    }
    Ok(all)
}

/// Returns fields as a text.
pub(crate) fn text(fields: &[(String, Value)]) -> String {
    let line = |(name, value): &(String, Value)| format!("{name}{END_OF_NAME}{}", value.as_str().unwrap_or_default());
    fields.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn spend(units: usize, values: &Values) -> Result<(), RenderError> {
    values.spend(units, Position::START).map_err(|error| error.changeable_if(values.changeable() > 0))
}

/// Renders a value, on one line.
fn rendered(parts: Vec<Part<'_>>, values: &Values, room: usize) -> Result<String, RenderError> {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Literal(literal) => text.push_str(literal),
            Part::Computed(node) => {
                let computed = run(slice::from_ref(node), values, Visibility::All, MAX_SOURCE)?;
                text.push_str(&computed.text);
            }
        }
        if text.len() > room {
            return Err(RenderError::OutputTooLong(MAX_SOURCE).changeable_if(values.changeable() > 0));
        }
    }
    spend(text.len(), values)?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns the lines that are not empty, if all of them are fields.
fn lines(nodes: &[Node]) -> Result<Vec<Line<'_>>, RenderError> {
    let (mut all, mut line) = (Vec::new(), Line::default());
    for node in nodes {
        match node {
            Node::Text(text) => {
                for (index, part) in text.split('\n').enumerate() {
                    if index > 0 {
                        all.push(std::mem::take(&mut line));
                    }
                    line.literal(part);
                }
            }
            computed => line.computed(computed),
        }
    }
    all.push(line);
    all.retain(|line| !line.is_blank());
    let refused = |index: usize, problem| Err(RenderError::Field { number: index + 1, problem });
    if all.len() > MOST {
        return refused(MOST, "is one too many; at most 10 are allowed");
    }
    for (index, line) in all.iter().enumerate() {
        if let Some(problem) = line.problem() {
            return refused(index, problem);
        }
        if all[..index].iter().any(|other| other.name.trim() == line.name.trim()) {
            return refused(index, "has the name of another field; use each name once");
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{Body, Data, Parameters};
    use relaybook_api::TransitionType;

    const EACH: &str =
        "{{#each parameters.fields}}{{@index}} {{@key}}={{this}}{{#unless @last}}, {{/unless}}{{else}}none{{/each}}";

    fn each(fields: &str, message: &str) -> Result<String, RenderError> {
        let parameters = Parameters::compile([("fields", Some(fields))]).unwrap();
        let data = Data { message: message.to_owned(), ..Data::sample(TransitionType::Failed) };
        Body::compile("text/plain", EACH, &parameters).unwrap().render(&Values::new(&data, &parameters)?)
    }

    #[test]
    fn each_line_is_a_field() {
        for (fields, message, expected) in [
            ("", "", "none"),
            ("\n \n", "", "none"),
            ("Team: payments", "", "0 Team=payments"),
            ("B: 1\r\n\n A : 2 \n", "", "0 B=1, 1 A=2"),
            ("In: {{environment}}/{{upper status}}", "", "0 In=prod/FAILED"),
            ("Link: https://a.example/?q={{pipeline.name}}: x", "", "0 Link=https://a.example/?q=podinfo: x"),
            ("a:b: c", "", "0 a:b=c"),
            ("Said: {{message}}\nTeam: a", "one\nTeam: b\r\n two", "0 Said=one Team: b two, 1 Team=a"),
            ("Said: {{message}}\nTeam: a", " \n", "0 Team=a"),
            ("Said: {{message}}", "", "none"),
            ("Drift: {{#if drifted}}yes{{else}}\nno\n{{/if}}", "", "0 Drift=no"),
            ("Commit: {{commit environment}}\nTeam: a", "", "0 Team=a"),
            ("Labels: {{#each pipeline.labels}}{{this}}{{/each}}", "", "none"),
            ("Braces: \\{{status}} {{status}}", "", "0 Braces={{status}} Failed"),
        ] {
            assert_eq!(each(fields, message).unwrap(), expected, "{fields:?}, {message:?}");
        }
    }

    /// An error of the lines does not depend on data, so it is found when the Notification is applied.
    #[test]
    fn a_line_that_is_no_field_is_refused() {
        let long = format!("{}: a", "x".repeat(61));
        let many = (0..11).map(|n| format!("f{n}: a\n")).collect::<Vec<_>>().concat();
        for (fields, number, word) in [
            ("payments", 1, "no literal name"),
            ("Team:payments", 1, "no literal name"),
            ("Team: a\n\n{{environment}}: b", 2, "no literal name"),
            ("{{#if drifted}}Team: a{{/if}}", 1, "no literal name"),
            ("Team: a\n: b", 2, "1 to 60"),
            (&long, 1, "1 to 60"),
            ("a\u{7}: b", 1, "1 to 60"),
            ("Team: a\nTeam : b", 2, "another field"),
            (&many, 11, "at most 10"),
        ] {
            for message in ["", "one\ntwo"] {
                let error = each(fields, message).unwrap_err();
                let said = error.to_string();
                assert!(
                    said.starts_with(&format!("parameter `fields`: field {number} ")) && said.contains(word),
                    "{fields:?}: {said}"
                );
                assert!(!error.is_final(), "{fields:?}");
            }
        }
    }

    /// An exhausted budget prevents the message. Otherwise, what another template of the request costs would decide which fields are shown.
    #[test]
    fn a_limit_of_the_request_leaves_out_no_field() {
        let long = "{{message}}{{message}}{{message}}{{message}}{{message}}{{message}}{{message}}";
        let costly = "(replace (replace (replace message \"x\" \"xx\") \"x\" \"xx\") \"x\" \"xx\")";
        for (fields, size, expected) in [
            (format!("A: {long}"), 9000, "A=x"),
            (format!("A: {long}"), 9999, "longer than 65536"),
            (format!("A: {long}\nB: {{{{message}}}}"), 9000, "longer than 65536"),
            (format!("A: x{{{{truncate {costly} 1}}}}"), 8000, "A=x"),
            (
                (0..9).map(|n| format!("f{n}: {{{{truncate {costly} 1}}}}{{{{truncate {costly} 1}}}}{{{{truncate {costly} 1}}}}{{{{truncate {costly} 1}}}}\n")).collect::<Vec<_>>().concat(),
                8000,
                "too much work",
            ),
        ] {
            let found = each(&fields, &"x".repeat(size)).unwrap_or_else(|error| error.to_string());
            assert!(found.contains(expected), "{size}, {expected}: {}", found.chars().take(200).collect::<String>());
        }
    }

    /// A parameter that a template lists has as text only what is shown, also in a copy of a built-in template.
    #[test]
    fn the_text_of_fields_has_the_same_lines() {
        let source = "{{#if parameters.fields}}[{{parameters.fields}}]{{/if}}{{#each parameters.fields}}{{@key}}{{/each}}";
        for (fields, expected) in [
            ("B: {{status}}\n\nA :  1 \nC: {{commit environment}}\nD: {{message}}", "[B: Failed\nA: 1]BA"),
            ("C: {{commit environment}}", ""),
            ("", ""),
        ] {
            let parameters = Parameters::compile([("fields", Some(fields))]).unwrap();
            let data = Data { message: String::new(), ..Data::sample(TransitionType::Failed) };
            let body = Body::compile("text/plain", source, &parameters).unwrap();
            let parameters = parameters.with_fields(body.listed()).unwrap();
            assert_eq!(body.render(&Values::new(&data, &parameters).unwrap()).unwrap(), expected, "{fields}");
        }
        let wrong = Parameters::compile([("fields", Some("a"))]).unwrap().with_fields(["fields".to_owned()].into());
        assert!(matches!(wrong, Err((name, RenderError::Field { number: 1, .. })) if name == "fields"));
    }

    #[test]
    fn values_are_escaped_for_their_place() {
        let parameters = Parameters::compile([("fields", Some("A \"b\": {{message}}"))]).unwrap();
        let data = Data { message: "\"<x>\"".to_owned(), ..Data::sample(TransitionType::Failed) };
        let values = Values::new(&data, &parameters).unwrap();
        let body = |content_type, source| Body::compile(content_type, source, &parameters).unwrap().render(&values).unwrap();
        let json = body("application/json", r#"{ {{#each parameters.fields}}"{{@key}}": "{{this}}"{{/each}} }"#);
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), serde_json::json!({"A \"b\"": "\"<x>\""}));
        assert_eq!(body("text/html", "{{#each parameters.fields}}{{this}}{{/each}}"), "&quot;&lt;x&gt;&quot;");
    }
}
