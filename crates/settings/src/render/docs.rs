//! Tests that the tables of `docs/templates.md` and `docs/template-gallery.md` are correct. Each row is rendered.

use std::collections::BTreeSet;

use serde_json::Value;

use super::data::schema::{DataSchema, ROOT};
use super::helpers::Function;
use super::{Body, Data, Parameters, RenderError};
use relaybook_api::TransitionType;
use relaybook_api::values::looked_up::LookedUp;

const PAGES: [&str; 2] =
    [include_str!("../../../../docs/templates.md"), include_str!("../../../../docs/template-gallery.md")];

/// Returns the rows of all tables with these column names. Code has no backquotes.
fn rows<const N: usize>(columns: [&str; N]) -> Vec<[String; N]> {
    let cells = |line: &str| {
        let inner = line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        <[String; N]>::try_from(inner.collect::<Vec<_>>()).ok()
    };
    let mut rows = Vec::new();
    let mut lines = PAGES.into_iter().flat_map(str::lines);
    while let Some(line) = lines.next() {
        if cells(line).is_some_and(|header| header == columns) {
            rows.extend(
                lines.by_ref().skip(1).take_while(|line| line.starts_with('|')).map(|line| cells(line).expect(line)),
            );
        }
    }
    assert!(!rows.is_empty(), "no table has the columns {columns:?}");
    rows
}

fn render(content_type: &str, source: &str) -> Result<String, RenderError> {
    let parameters = Parameters::default().with_remembered(BTreeSet::default());
    let data = Data::sample(TransitionType::Deployed).with_looked_up(&LookedUp::sample());
    Body::compile(content_type, source, &parameters)?.render(&data.values())
}

fn leaves(shape: &DataSchema, path: &str, found: &mut Vec<String>) {
    match shape {
        DataSchema::Object(fields) | DataSchema::Open(fields) => {
            for (name, shape) in *fields {
                leaves(shape, format!("{path}.{name}").trim_start_matches('.'), found);
            }
        }
        DataSchema::Leaf | DataSchema::Map => found.push(path.to_owned()),
    }
}

#[test]
fn the_fields_are_listed_with_their_samples() {
    let mut fields = Vec::new();
    leaves(&ROOT, "", &mut fields);
    let rows = rows(["field", "meaning", "sample"]);
    assert_eq!(rows.iter().map(|[field, ..]| field.clone()).collect::<Vec<_>>(), fields);
    for [field, _, sample] in rows {
        let json = render("text/plain", &format!("{{{{json {field}}}}}")).unwrap();
        let shown = serde_json::from_str::<Value>(&json).unwrap().as_str().map_or(json.clone(), str::to_owned);
        assert_eq!(shown, sample, "{field}");
    }
}

#[test]
fn the_examples_render_as_they_say() {
    for [template, result, _] in rows(["template", "result", "what it does"]) {
        assert_eq!(render("text/plain", &template).unwrap(), result, "{template}");
    }
    for [content_type, template, result] in rows(["content type", "template", "result"]) {
        assert_eq!(render(&content_type, &template).unwrap(), result, "{template}");
    }
}

#[test]
fn the_pitfalls_fail_as_they_say() {
    for [content_type, template, error] in rows(["content type", "template", "error"]) {
        let message = render(&content_type, &template).unwrap_err().to_string();
        assert!(message.contains(&error), "{template}: {message}");
    }
}

#[test]
fn every_helper_has_an_example() {
    let examples: String = rows(["template", "result", "what it does"]).into_iter().map(|[template, ..]| template).collect();
    for name in Function::names() {
        assert!(examples.contains(&format!("{name} ")), "{name}");
    }
}
