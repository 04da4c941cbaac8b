//! The tables of all fields, generated from the schema of the global configuration and from the rules in the schema of a Notification.
//!
//! `make reference` writes the tables into the page. Otherwise a test compares them with the page.

use std::fmt::Write as _;

use kube_core::CustomResourceExt as _;
use serde_json::{Value, json};

use super::compare;
use crate::config::layers::Layer;
use relaybook_api::Notification;
use relaybook_api::global::schema;

const PAGE: &str = include_str!("../../../../../docs/reference/global-configuration.md");
/// Descriptions of fields for which the schema has only the description of their type.
const WORDS: [(&str, &str); 3] = [
    ("endpoint.method", "HTTP method; default `POST`, or that of the built-in template."),
    ("delivery.ordering", "The lane in which deliveries are sent in order: one target, or the whole pipeline."),
    (
        "template.builtin",
        "A template that comes with Relaybook ([receivers](../receivers/README.md)); it also gives method, headers, header and scheme of a \
         token, and the path if the URL has none.",
    ),
];
/// Maximum number of values that are listed. If there are more, the table contains only their number.
const NAMED: usize = 12;

/// One field.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    /// Path with dots, as in messages. A list has the suffix `[]`.
    pub(super) path: String,
    /// The allowed values.
    pub(super) what: String,
    /// Description of the field.
    pub(super) meaning: String,
}

/// Describes the allowed values of a field.
fn what(schema: &Value) -> String {
    let number = |key: &str| schema.get(key).and_then(Value::as_u64);
    let many = |least: Option<u64>, most: Option<u64>, unit: &str| match (least, most) {
        (None | Some(0), Some(most)) => format!(", at most {most}{unit}"),
        (Some(least), Some(most)) => format!(", {least} to {most}{unit}"),
        (Some(least), None) => format!(", at least {least}{unit}"),
        (None, None) => String::new(),
    };
    let values: Vec<_> = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !values.is_empty() {
        let all = values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
        return if values.len() <= NAMED { all } else { format!("one of {} names", values.len()) };
    }
    match schema["type"].as_str().unwrap_or_default() {
        "string" => {
            let pattern = schema["pattern"].as_str().map(|p| format!(", `{}`", p.replace('|', "\\|")));
            let length = many(number("minLength"), number("maxLength"), " characters");
            format!("text{length}{}", pattern.unwrap_or_default())
        }
        "integer" => format!("number{}", many(number("minimum"), number("maximum"), "")),
        "boolean" => "`true`, `false`".to_owned(),
        "array" => {
            let each = what(&schema["items"]);
            let each = if each == "object" { String::new() } else { format!("; each: {each}") };
            format!("list{}{each}", many(number("minItems"), number("maxItems"), ""))
        }
        "object" if schema.get("additionalProperties").is_some() => {
            format!("by name{}; each: {}", many(None, number("maxProperties"), ""), what(&schema["additionalProperties"]))
        }
        _ => "object".to_owned(),
    }
}

/// Adds the row of a field, and the rows of all fields in it. `rules` is the schema of the same field with validation rules, if there is
/// one.
fn walk(schema: &Value, rules: &Value, path: &str, rows: &mut Vec<Row>) {
    let said = rules["x-kubernetes-validations"].as_array().into_iter().flatten();
    let said = said.filter_map(|rule| rule["message"].as_str()).map(|message| format!("; {message}"));
    let described = schema["description"].as_str().unwrap_or_default().split("\n\n").next().unwrap_or_default();
    let known = WORDS.iter().find(|(of, _)| path == *of || path.ends_with(&format!(".{of}")));
    let meaning = known.map_or(described, |(_, words)| words);
    rows.push(Row {
        path: path.to_owned(),
        what: format!("{}{}", what(schema), said.collect::<String>()),
        meaning: meaning.replace('\n', " ").replace('|', "\\|"),
    });
    // The documentation of Kubernetes describes label selectors.
    if !path.ends_with("pipelineSelector") {
        within(schema, rules, path, rows);
    }
}

/// Adds the rows of all fields in an object. For a list, these are the fields of each entry.
pub(super) fn within(schema: &Value, rules: &Value, path: &str, rows: &mut Vec<Row>) {
    let is_list = schema["type"] == "array";
    let (inner, rules) = if is_list { (&schema["items"], &rules["items"]) } else { (schema, rules) };
    for (name, field) in inner["properties"].as_object().into_iter().flatten() {
        let dot = if is_list { "[]." } else { "." };
        let path = format!("{path}{dot}{name}");
        walk(field, &rules["properties"][name], path.trim_start_matches('.'), rows);
    }
}

/// Returns the rows of the fields below a pointer into the schema of the global configuration.
fn rows(pointer: &str, rules: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    within(schema().pointer(pointer).unwrap(), rules, "", &mut rows);
    rows
}

/// Returns the schema of a Notification's spec.
fn of_notification() -> Value {
    let definition = serde_json::to_value(Notification::crd()).unwrap();
    definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap().clone()
}

/// Returns the default of a field. It is empty if the field has no default.
fn default(path: &str) -> String {
    let value = Value::Object(Layer::built_in().value);
    let found = value.pointer(&format!("/{}", path.replace('.', "/"))).filter(|value| !value.is_object());
    let text = found.map(|value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned));
    text.map_or_else(String::new, |text| format!("`{text}`"))
}

/// A field that only layers of the global configuration have.
const SHARES: &str = "template.shareParameters";
const CLUSTER_WIDE: &str = "/properties/notifications/items";

fn tables() -> String {
    let mut text =
        String::from("## Fields of the global configuration\n| field | allowed values | meaning |\n|---|---|---|\n");
    let mut layer = rows("/properties/defaults", &of_notification());
    layer.retain(|row| row.path != SHARES);
    let is_of_layer = |path: &str| layer.iter().any(|row| row.path == path);
    let mut of_config = Vec::new();
    for (name, field) in schema()["properties"].as_object().unwrap() {
        let mut all = Vec::new();
        walk(field, &json!(null), name, &mut all);
        let inner = |row: &Row| row.path.split_once(['.', '[']).map(|(_, rest)| rest.trim_start_matches("].").to_owned());
        of_config.extend(all.into_iter().filter(|row| inner(row).is_none_or(|path| !is_of_layer(&path))));
    }
    for Row { path, what, meaning } in of_config {
        writeln!(text, "| `{path}` | {what} | {meaning} |").unwrap();
    }
    text.push_str("\nBeside these, `defaults` and each of `notifications` have the fields of a layer.\n");
    text.push_str("\n## Fields of a layer\n| field | allowed values | default | meaning |\n|---|---|---|---|\n");
    for Row { path, what, meaning } in layer {
        writeln!(text, "| `{path}` | {what} | {} | {meaning} |", default(&path)).unwrap();
    }
    text
}

#[test]
fn the_tables_of_fields_are_those_of_the_schema() {
    compare("docs/reference/global-configuration.md", PAGE, &[tables()]);
}

/// All layers have the same fields. So one table describes the fields of all four places.
#[test]
fn all_kinds_of_layers_have_the_same_fields() {
    let paths = |rows: Vec<Row>| rows.into_iter().map(|row| row.path).collect::<Vec<_>>();
    let mut layer = paths(rows("/properties/defaults", &json!(null)));
    layer.retain(|path| path != SHARES);
    let mut cluster_wide = paths(rows(CLUSTER_WIDE, &json!(null)));
    cluster_wide.retain(|path| !["name", "namespaces", "pipelineSelector", "remove", SHARES].contains(&path.as_str()));
    assert_eq!(cluster_wide, layer);
    let mut notification = Vec::new();
    within(&of_notification(), &json!(null), "", &mut notification);
    let mut notification = paths(notification);
    notification.retain(|path| !["pipelineSelector", "pipelineNamespaces"].contains(&path.as_str()));
    assert_eq!(notification, layer);
    assert!(layer.len() > 40, "{}", layer.len());
}
