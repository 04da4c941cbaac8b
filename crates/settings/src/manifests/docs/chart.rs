//! The chart's `values.schema.json` contains the schema of the global configuration, so that Helm checks `config.content`.
//!
//! `make chart` writes the schema into the file. Otherwise a test compares it with the file.

use serde_json::{Map, Value, json};

use crate::manifests::global;
use relaybook_api::global::schema;

const FILE: &str = include_str!("../../../../../charts/relaybook/values.schema.json");
const BEGIN: &str = "    \"globalConfiguration\": ";
const END: &str = "\n    },\n";
/// Maximum number of characters of a line.
const LINE: usize = 140;

/// Converts a schema to JSON Schema draft 7, which has neither `nullable` nor the extensions of Kubernetes. Fields that are not in the
/// schema are rejected, as Relaybook rejects them.
fn plain(schema: &Value) -> Value {
    let mut all = Map::new();
    let nullable = schema["nullable"] == true;
    for (key, value) in schema.as_object().unwrap() {
        match key.as_str() {
            "description" | "default" | "title" | "format" | "nullable" => {}
            extension if extension.starts_with("x-kubernetes-") => {
                assert!(extension.contains("-list-") || extension.contains("-map-"), "{extension} is not translated");
            }
            "type" if nullable => drop(all.insert(key.clone(), json!([value, "null"]))),
            "properties" => {
                let fields = value.as_object().unwrap().iter().map(|(name, field)| (name.clone(), plain(field)));
                all.insert(key.clone(), fields.collect::<Map<_, _>>().into());
                all.insert("additionalProperties".to_owned(), false.into());
            }
            "items" => drop(all.insert(key.clone(), plain(value))),
            "additionalProperties" if value.is_object() => drop(all.insert(key.clone(), plain(value))),
            "type" | "enum" | "required" | "pattern" | "minimum" | "maximum" | "minLength" | "maxLength" | "minItems"
            | "maxItems" | "minProperties" | "maxProperties" => drop(all.insert(key.clone(), value.clone())),
            other => panic!("{other} is not translated"),
        }
    }
    all.into()
}

/// Formats JSON for people. An object that fits on one line is written on one line.
fn text(value: &Value, indent: usize) -> String {
    let line = match value {
        Value::Object(all) => {
            let all = all.iter().map(|(name, value)| format!("{}: {}", json!(name), text(value, 0)));
            format!("{{{}}}", all.collect::<Vec<_>>().join(", "))
        }
        Value::Array(all) => format!("[{}]", all.iter().map(|value| text(value, 0)).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    };
    let Value::Object(all) = value else { return line };
    if indent == 0 || (indent + line.len() <= LINE && !line.contains("properties")) {
        return line;
    }
    let (outer, inner) = (" ".repeat(indent), " ".repeat(indent + 2));
    let all = all.iter().map(|(name, value)| format!("{inner}{}: {}", json!(name), text(value, indent + 2)));
    format!("{{\n{}\n{outer}}}", all.collect::<Vec<_>>().join(",\n"))
}

#[test]
fn helm_values_schema_contains_the_schema_of_the_global_configuration() {
    let (before, rest) = FILE.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let expected = format!("{before}{BEGIN}{},\n{after}", text(&plain(&schema()), 4));
    if std::env::var_os("RELAYBOOK_REFERENCE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/relaybook/values.schema.json"), expected).unwrap();
    } else {
        assert!(FILE == expected, "charts/relaybook/values.schema.json is out of date; run make chart and commit it");
    }
}

/// The schema rejects nothing that Relaybook accepts. For these examples, both have the same result.
#[test]
fn the_schema_for_helm_is_as_strict_as_the_program() {
    let helm = jsonschema::validator_for(&plain(&schema())).unwrap();
    for (content, fits) in [
        (json!({}), true),
        (json!({"defaults": {"delivery": {"retry": {"maxAge": "12h"}}}}), true),
        (json!({"defaults": null}), true),
        (json!({"foo": "bar"}), false),
        (json!({"defaults": {"endpont": {}}}), false),
        (json!({"defaults": {"endpoint": {"headers": {"X-Any": "1"}}}}), true),
        (json!({"defaults": {"endpoint": {"headers": {"X-Any": 1}}}}), false),
        (json!({"notifications": [{"name": "a", "triggers": [{"type": "Deployd"}]}]}), false),
        (json!({"notifications": [{"triggers": []}]}), false),
    ] {
        assert_eq!(helm.is_valid(&content), fits, "{content}");
        assert_eq!(global::parse(&content.to_string(), "own").is_ok(), fits, "{content}");
    }
}
