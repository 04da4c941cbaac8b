//! Fields that a schema does not contain.

use serde_json::Value;

use super::field::{below, entry};
use crate::config::nearest;

/// Returns the fields that the schema does not contain. Each has a message with the most similar name, or with all valid names. The API
/// server rejects or drops such fields.
#[must_use]
pub fn unknown(value: &Value, schema: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(value, schema, "", &mut found);
    found
}

fn walk(value: &Value, schema: &Value, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            let known = schema.get("properties").and_then(Value::as_object);
            let any = schema.get("additionalProperties").filter(|any| any.is_object());
            for (name, value) in fields {
                let field = below(path, name);
                match (known.and_then(|k| k.get(name)).or(any), known) {
                    (Some(schema), _) => walk(value, schema, &field, found),
                    (None, Some(known)) => found.push((field, meant(name, known.keys()))),
                    // The API server knows the fields of `metadata`, although the schema of a CRD does not list them.
                    (None, None) if is_empty_object(schema) && path != "metadata" => {
                        found.push((field, "unknown field; the object has no fields".to_owned()));
                    }
                    (None, None) => {}
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return };
            for (index, item) in items.iter().enumerate() {
                walk(item, schema, &entry(path, index), found);
            }
        }
        _ => {}
    }
}

/// Whether a schema describes an object without fields.
fn is_empty_object(schema: &Value) -> bool {
    schema["type"] == "object"
        && schema.get("additionalProperties").is_none()
        && schema["x-kubernetes-preserve-unknown-fields"] != true
}

fn meant<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<_> = known.map(String::as_str).collect();
    match nearest(name, names.iter().copied()) {
        Some(nearest) => format!("unknown field; did you mean {nearest}?"),
        None => format!("unknown field; the fields are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_found_at_every_level() {
        let text = json!({"type": "string"});
        let schema = json!({"properties": {
            "url": text, "labels": {"additionalProperties": text}, "list": {"items": {"properties": {"name": text}}}, "any": {},
        }});
        let value =
            json!({"ulr": "", "labels": {"a": "b"}, "list": [{"name": ""}, {"nam": "", "other": ""}], "any": {"x": 1}});
        assert_eq!(
            unknown(&value, &schema),
            [
                ("list[1].nam".to_owned(), "unknown field; did you mean name?".to_owned()),
                ("list[1].other".to_owned(), "unknown field; the fields are name".to_owned()),
                ("ulr".to_owned(), "unknown field; did you mean url?".to_owned()),
            ]
        );
    }
}
