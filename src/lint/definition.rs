//! What the API server asks of an object: the schema, the fields that it knows, and its rules.

use std::collections::HashSet;

use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::LocationSegment;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::{LintError, Said, Source, metadata, rules};
use crate::config::nearest;
use crate::manifests::field::{below, entry, is_within};
use crate::manifests::{Document, schema, unknown};

/// The kinds that people write.
pub(super) struct Definitions(Vec<Definition>);

/// What the API server asks of one kind.
pub(super) struct Definition {
    kind: &'static str,
    schema: Value,
    structure: Validator,
}

impl Definitions {
    pub(super) fn new() -> Result<Self, LintError> {
        ["Pipeline", "Notification"].map(Definition::new).into_iter().collect::<Result<_, _>>().map(Self)
    }

    /// That of a kind.
    pub(super) fn of(&self, kind: &str) -> Option<&Definition> {
        self.0.iter().find(|definition| definition.kind == kind)
    }
}

impl Definition {
    fn new(kind: &'static str) -> Result<Self, LintError> {
        let error = |problem: String| LintError { kind: kind.to_owned(), problem };
        let schema = schema(kind).ok_or_else(|| error("there is none".to_owned()))?;
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        let structure = options.build(&schema).map_err(|e| error(e.to_string()))?;
        Ok(Self { kind, schema, structure })
    }

    /// The object as the API server looks at it: without a status, which a create does not take, and without the fields that are
    /// null, which it takes for fields that are not there.
    pub(super) fn as_taken(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Value::Object(fields) = &mut object {
            fields.remove("status");
        }
        drop_nulls(&mut object, &self.schema);
        object
    }

    /// What is wrong with a document; `object` is how it is taken.
    pub(super) fn check(&self, document: &Document, object: &Value) -> Vec<Said> {
        let mut said = metadata::check(object);
        let unknown = unknown(&document.value, &self.schema);
        said.extend(unknown.into_iter().map(|(field, message)| (field, message, Source::Schema)));
        for (field, message) in self.structure.iter_errors(object).map(|error| structural(&error)) {
            // What is of the wrong type is of many wrong things.
            if !said.iter().any(|(before, ..)| *before == field) {
                said.push((field, message, Source::Schema));
            }
        }
        twice(object, &self.schema, "", &mut said);
        let broken = rules::check(&self.schema, object).into_iter().filter_map(|(field, verdict)| match verdict {
            rules::Verdict::Holds => None,
            rules::Verdict::Broken(message) => Some((field, message, Source::Rule)),
            // A rule goes by the types of the schema; where they are not kept, that has been said.
            rules::Verdict::Unclear(_) if said.iter().any(|(at, ..)| is_within(at, &field)) => None,
            rules::Verdict::Unclear(why) => Some((field, format!("a rule cannot be tried: {why}"), Source::Rule)),
        });
        let broken: Vec<_> = broken.collect();
        said.extend(broken);
        said
    }
}

fn drop_nulls(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            let below = |name: &str| {
                schema.get("properties").and_then(|p| p.get(name)).or_else(|| schema.get("additionalProperties"))
            };
            // Where only certain values may stand, null is not among them.
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

/// Field and message of what the schema refuses.
fn structural(error: &ValidationError<'_>) -> (String, String) {
    let path = error.instance_path().segments().fold(String::new(), |path, segment| match segment {
        LocationSegment::Property(name) => below(&path, &name),
        LocationSegment::Index(index) => entry(&path, index),
    });
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            (below(&path, property.as_str().unwrap_or_default()), "is missing: set it".to_owned())
        }
        ValidationErrorKind::Enum { options } => (path, one_of(error.instance(), options)),
        _ if error.instance().is_object() || error.instance().is_array() => (path, error.masked_with("this").to_string()),
        _ => (path, error.to_string()),
    }
}

fn one_of(given: &Value, options: &Value) -> String {
    let names: Vec<&str> = options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match given.as_str().and_then(|given| nearest(given, names.iter().copied())) {
        Some(nearest) => format!("{given} is not known; did you mean {nearest}?"),
        None => format!("{given} is not one of {}", names.join(", ")),
    }
}

/// Entries of lists that the API server takes for maps, with the same keys.
fn twice(value: &Value, schema: &Value, path: &str, said: &mut Vec<Said>) {
    match value {
        Value::Object(fields) => {
            let known = schema.get("properties").and_then(Value::as_object);
            for (name, value) in fields {
                if let Some(schema) = known.and_then(|k| k.get(name)) {
                    twice(value, schema, &below(path, name), said);
                }
            }
        }
        Value::Array(items) => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let mut seen = HashSet::new();
            for (index, item) in items.iter().enumerate() {
                let field = entry(path, index);
                if let Some(keys) = keys {
                    let key: Vec<_> = keys.iter().filter_map(Value::as_str).map(|k| (k, item.get(k))).collect();
                    if !seen.insert(format!("{key:?}")) {
                        let key: Vec<_> = key.iter().filter_map(|(k, v)| Some(format!("{k} {}", (*v)?))).collect();
                        let message = format!("stands there twice ({}); leave one out", key.join(", "));
                        said.push((field.clone(), message, Source::Schema));
                    }
                }
                twice(item, schema.get("items").unwrap_or(&Value::Null), &field, said);
            }
        }
        _ => {}
    }
}
