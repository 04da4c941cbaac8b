//! The generated tables of `docs/api.md` (transition types and other named values) and of `docs/reference/` (every field of each kind),
//! from the types in `crates/api/src`.
//!
//! `make reference` writes the tables into the pages. Otherwise a test compares them with the pages.

use std::fmt::Write as _;

use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use super::compare;
use super::fields::{Row, within};
use relaybook_api::delivery::{Outcome, SubjectKind};
use relaybook_api::notification::Ordering;
use relaybook_api::pipeline::Status;
use relaybook_api::promotion::Phase;
use relaybook_api::{TransitionType, crds};

const PAGE: &str = include_str!("../../../../../docs/api.md");
/// The pages that list the fields of a kind.
const REFERENCE: [(&str, &str, &str); 5] = [
    ("Pipeline", "docs/reference/pipeline.md", include_str!("../../../../../docs/reference/pipeline.md")),
    ("Notification", "docs/reference/notification.md", include_str!("../../../../../docs/reference/notification.md")),
    ("Delivery", "docs/reference/delivery.md", include_str!("../../../../../docs/reference/delivery.md")),
    ("Promotion", "docs/reference/promotion.md", include_str!("../../../../../docs/reference/promotion.md")),
    ("PipelineSet", "docs/reference/pipelineset.md", include_str!("../../../../../docs/reference/pipelineset.md")),
];
/// The fields of a layer that a Notification does not have.
const OWN: [&str; 2] = ["name", "remove"];

/// Returns the values of an enum, each with its doc comment.
fn values<T: JsonSchema>() -> Vec<(String, String)> {
    let schema = schema_for!(T).to_value();
    let variant = |of: &Value| {
        let text = |key: &str| of[key].as_str().unwrap_or_else(|| panic!("no {key}: {of}")).replace('\n', " ");
        (text("const"), text("description"))
    };
    schema["oneOf"].as_array().expect("an enum whose variants are described").iter().map(variant).collect()
}

fn transitions() -> String {
    let meanings = values::<TransitionType>();
    assert_eq!(meanings.len(), TransitionType::ALL.len());
    let mut text = String::from("| type | about | when |\n|---|---|---|\n");
    for type_ in TransitionType::ALL {
        let (_, meaning) = meanings.iter().find(|(name, _)| name == type_.as_str()).unwrap();
        writeln!(text, "| `{}` | {:?} | {meaning} |", type_.as_str(), type_.subject()).unwrap();
    }
    text
}

/// Returns the schema of a part of a kind. `part` is `spec` or `status`.
fn schema(kind: &str, part: &str) -> Value {
    let all = crds();
    let crd = all.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = json!(crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema);
    schema["properties"][part].clone()
}

/// Whether a path is in a layer, and the reference of the Notification describes its field.
fn is_of_notification(path: &str) -> bool {
    path.rsplit_once("notifications[].").is_some_and(|(_, field)| !OWN.contains(&field))
}

/// Whether a field is required in the object that contains it.
fn required(schema: &Value, path: &str) -> bool {
    let (object, name) = path.rsplit_once('.').unwrap_or(("", path));
    let steps = object.split('.').filter(|step| !step.is_empty());
    let object = steps.fold(schema, |at, step| {
        let field = &at["properties"][step.trim_end_matches("[]")];
        if step.ends_with("[]") { &field["items"] } else { field }
    });
    object["required"].as_array().is_some_and(|names| names.iter().any(|required| required == name))
}

fn fields(kind: &str) -> String {
    let mut text = String::new();
    for part in ["spec", "status"] {
        let schema = schema(kind, part);
        let mut rows = Vec::new();
        within(&schema, &schema, "", &mut rows);
        if part == "spec" {
            rows.retain(|row| !is_of_notification(&row.path));
        }
        let gap = if text.is_empty() { "" } else { "\n" };
        writeln!(text, "{gap}## `{part}`\n| field | allowed values | meaning |\n|---|---|---|").unwrap();
        for Row { path, what, meaning } in rows {
            let required = if part == "spec" && required(&schema, &path) { "required; " } else { "" };
            writeln!(text, "| `{part}.{path}` | {required}{what} | {meaning} |").unwrap();
        }
    }
    text
}

fn named_values() -> String {
    let mut text = String::from("| value | meaning |\n|---|---|\n");
    let all = [
        ("status", values::<Status>()),
        ("outcome", values::<Outcome>()),
        ("subject.kind", values::<SubjectKind>()),
        ("ordering", values::<Ordering>()),
        ("phase", values::<Phase>()),
    ];
    for (field, values) in all {
        for (value, meaning) in values {
            writeln!(text, "| `{field}: {value}` | {meaning} |").unwrap();
        }
    }
    text
}

#[test]
fn the_tables_of_the_api_are_those_of_the_types() {
    compare("docs/api.md", PAGE, &[transitions(), named_values()]);
    for (kind, page, text) in REFERENCE {
        compare(page, text, &[fields(kind)]);
    }
}

#[test]
fn every_field_is_listed_with_a_meaning() {
    let text = REFERENCE.map(|(kind, ..)| fields(kind)).concat();
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() > 200, "{}", rows.len());
    for row in rows {
        let meaning = row.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default().trim();
        assert!(!meaning.is_empty(), "no meaning: {row}");
    }
    for field in ["spec.environments[].targets[].clusterRef.name", "spec.triggers[].for", "status.redelivered.time"] {
        assert!(text.contains(&format!("| `{field}` |")), "{field}");
    }
    assert!(text.contains("| `spec.appRef.kind` | required; "), "{text}");
}
