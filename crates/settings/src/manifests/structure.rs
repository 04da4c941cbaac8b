//! Checks an object against a schema, and finds its unknown fields.

use std::collections::HashSet;

use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::LocationSegment;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::field::{below, entry, steps};
use super::fields::unknown;
use crate::config::nearest;

/// Field and message of a violation.
pub type Misfit = (String, String);

/// A compiled schema.
pub struct Structure {
    /// The schema as it was given.
    pub schema: Value,
    validator: Validator,
}

/// The schema cannot be compiled. This is a bug, which a test finds.
#[derive(Debug, thiserror::Error)]
#[error("not a schema: {0}")]
pub struct NotASchema(String);

impl Structure {
    /// Compiles a schema.
    pub fn new(schema: Value) -> Result<Self, NotASchema> {
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        let validator = options.build(&schema).map_err(|e| NotASchema(e.to_string()))?;
        Ok(Self { schema, validator })
    }

    /// Returns an object as the API server handles it: fields that are null count as absent.
    #[must_use]
    pub fn without_nulls(&self, object: &Value) -> Value {
        let mut object = object.clone();
        drop_nulls(&mut object, &self.schema);
        object
    }

    /// Returns all violations of an object: unknown fields in `written`, schema violations in `object` (the parsed form), and duplicate
    /// entries of lists. Schema violations are reported once for each field, and not for an unknown field.
    #[must_use]
    pub fn misfits(&self, written: &Value, object: &Value) -> Vec<Misfit> {
        let mut all = unknown(written, &self.schema);
        let mut told: HashSet<_> = all.iter().map(|(field, _)| field.clone()).collect();
        for (field, message) in self.validator.iter_errors(object).map(|error| structural(&error)) {
            // A value of the wrong type violates more than one rule. Only the first violation is reported.
            if told.insert(field.clone()) {
                all.push((field, message));
            }
        }
        find_duplicates(object, &self.schema, "", &mut all);
        all
    }
}

fn drop_nulls(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            let below = |name: &str| {
                schema.get("properties").and_then(|p| p.get(name)).or_else(|| schema.get("additionalProperties"))
            };
            // A field with an enum cannot be null. It is kept, so that it is reported as a violation.
            fields.retain(|name, value| !value.is_null() || below(name).is_some_and(|schema| schema.get("enum").is_some()));
            for (name, value) in fields {
                drop_nulls(value, below(name).unwrap_or(&Value::Null));
            }
        }
        Value::Array(items) => {
            for item in items {
                drop_nulls(item, schema.get("items").unwrap_or(&Value::Null));
            }
        }
        _ => {}
    }
}

/// Returns field and message of a schema violation.
fn structural(error: &ValidationError<'_>) -> (String, String) {
    let path = error.instance_path().segments().fold(String::new(), |path, segment| match segment {
        LocationSegment::Property(name) => below(&path, &name),
        LocationSegment::Index(index) => entry(&path, index),
    });
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            (below(&path, property.as_str().unwrap_or_default()), "is missing: set it".to_owned())
        }
        ValidationErrorKind::Enum { options } if !is_long(error.instance()) => (path, one_of(error.instance(), options)),
        _ if error.instance().is_object()
            || error.instance().is_array()
            || is_long(error.instance())
            || may_be_secret(&path) =>
        {
            let message = error.masked_with("this").to_string();
            (path, message)
        }
        _ => (path, error.to_string()),
    }
}

/// Whether a value is too long to be quoted. A message must be readable, and a body may have 64 KiB.
fn is_long(value: &Value) -> bool {
    const QUOTED: usize = 80;
    value.as_str().is_some_and(|text| text.len() > QUOTED)
}

/// Whether the field can contain credentials. Then errors do not quote its value.
fn may_be_secret(field: &str) -> bool {
    steps(field).any(|step| ["url", "headers", "headersFrom", "parameters", "body", "auth", "signing"].contains(&step))
}

fn one_of(given: &Value, options: &Value) -> String {
    let names: Vec<&str> = options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match given.as_str().and_then(|given| nearest(given, names.iter().copied())) {
        Some(nearest) => format!("{given} is not a valid value; did you mean {nearest}?"),
        None => format!("{given} is not one of {}", names.join(", ")),
    }
}

/// Finds duplicate entries of lists that the API server treats as maps or sets. Duplicate entries of a map have the same keys.
fn find_duplicates(value: &Value, schema: &Value, path: &str, found: &mut Vec<Misfit>) {
    match value {
        Value::Object(fields) => {
            let known = schema.get("properties").and_then(Value::as_object);
            for (name, value) in fields {
                if let Some(schema) = known.and_then(|k| k.get(name)) {
                    find_duplicates(value, schema, &below(path, name), found);
                }
            }
        }
        Value::Array(items) => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let is_set = schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("set");
            let mut seen = HashSet::new();
            for (index, item) in items.iter().enumerate() {
                let field = entry(path, index);
                if let Some(keys) = keys {
                    let key: Vec<_> = keys.iter().filter_map(Value::as_str).map(|k| (k, item.get(k))).collect();
                    if !seen.insert(format!("{key:?}")) {
                        let key: Vec<_> = key.iter().filter_map(|(k, v)| Some(format!("{k} {}", (*v)?))).collect();
                        let message = format!("duplicate entry ({}); remove one", key.join(", "));
                        found.push((field.clone(), message));
                    }
                }
                if is_set && !seen.insert(item.to_string()) {
                    found.push((field.clone(), "duplicate entry; remove one".to_owned()));
                }
                find_duplicates(item, schema.get("items").unwrap_or(&Value::Null), &field, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_has_no_duplicates() {
        let names = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
        let structure = Structure::new(json!({"type": "object", "properties": {"names": names}})).unwrap();
        let said = |names: Value| structure.misfits(&json!({"names": names}), &json!({"names": names}));
        assert!(said(json!(["a", "b"])).is_empty());
        assert_eq!(said(json!(["a", "b", "a"])), [("names[2]".to_owned(), "duplicate entry; remove one".to_owned())]);
    }

    #[test]
    fn a_message_quotes_short_values_only() {
        let schema = json!({"type": "object", "properties": {
            "inline": {"type": "object"},
            "name": {"type": "string", "maxLength": 63},
            "type": {"type": "string", "enum": ["Deployed"]},
            "auth": {"type": "object", "properties": {"token": {"type": "object"}}},
            "headersFrom": {"type": "object"},
            "signing": {"type": "object"},
        }});
        let structure = Structure::new(schema).unwrap();
        let said = |object: Value| structure.misfits(&object, &object);
        assert_eq!(said(json!({"inline": "text"}))[0].1, "\"text\" is not of type \"object\"");
        let long = "x".repeat(65_536);
        for (field, expected) in [
            ("inline", "this is not of type \"object\""),
            ("name", "this is longer than 63 characters"),
            ("type", "this is not one of \"Deployed\""),
        ] {
            assert_eq!(said(json!({field: long})), [(field.to_owned(), expected.to_owned())]);
        }
        // A user who writes a credential itself instead of a reference must not find it in a log.
        let secret = "s3cr3t";
        for object in [
            json!({"auth": {"token": secret}}),
            json!({"auth": secret}),
            json!({"headersFrom": secret}),
            json!({"signing": secret}),
        ] {
            assert_eq!(said(object.clone())[0].1, "this is not of type \"object\"", "{object}");
        }
    }
}
