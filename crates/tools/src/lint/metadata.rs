//! Checks names, labels, annotations and finalizers, which the API server checks in addition to the schema
//! (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>,
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>).

use serde_json::Value;

use super::{FieldProblem, Source};
use relaybook_api::values::names::{is_label, is_subdomain};
use relaybook_settings::manifests::field::{below, entry};

/// Returns the problems of the metadata.
pub(super) fn check(object: &Value) -> Vec<FieldProblem> {
    let metadata = &object["metadata"];
    let mut problems = Vec::new();
    let mut report = |field: String, message: &str| problems.push((field, message.to_owned(), Source::Schema));
    match &metadata["name"] {
        Value::String(name) if is_subdomain(name) => {}
        Value::String(_) => report(
            "metadata.name".to_owned(),
            "must be lower-case letters, digits, dashes and dots, and begin and end with a letter or a digit",
        ),
        Value::Null => report("metadata.name".to_owned(), "is missing: set it"),
        _ => {}
    }
    if metadata["namespace"].as_str().is_some_and(|name| !is_label(name)) {
        report(
            "metadata.namespace".to_owned(),
            "must be at most 63 lower-case letters, digits and dashes, and begin and end with a letter or a digit",
        );
    }
    for (index, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        if finalizer.as_str().is_some_and(|finalizer| !is_key(finalizer)) {
            report(entry("metadata.finalizers", index), "must be a name such as example.com/hold");
        }
    }
    for (map, values) in [("labels", true), ("annotations", false)] {
        let path = below("metadata", map);
        for (key, value) in metadata[map].as_object().into_iter().flatten() {
            // The keys of annotations can have capital letters before the slash.
            let key_fits = if values { is_key(key) } else { is_key(&key.to_lowercase()) };
            if !key_fits {
                report(
                    below(&path, key),
                    "the key must be a name such as team or example.com/team, at most 63 characters after the slash",
                );
            }
            if values && value.as_str().is_some_and(|value| !value.is_empty() && !is_name(value)) {
                let message = "the value must be at most 63 letters, digits, dashes, underscores and dots, and begin and end with a \
                               letter or a digit";
                report(below(&path, key), message);
            }
        }
    }
    problems
}

/// Whether the text is valid as the value of a label, or as the last part of its key.
fn is_name(text: &str) -> bool {
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= 63 && text.chars().all(inner) && end(text.chars().next()) && end(text.chars().next_back())
}

fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_names_and_labels_are_reported_with_their_field() {
        let long = "a".repeat(64);
        for (metadata, field) in [
            (json!({"name": "web-1.example"}), None),
            (json!({"name": long}), None), // the rule about its length is in the schema
            (json!({}), Some("metadata.name")),
            (json!({"name": ""}), Some("metadata.name")),
            (json!({"name": "Web"}), Some("metadata.name")),
            (json!({"name": "web-"}), Some("metadata.name")),
            (json!({"name": "a..b"}), Some("metadata.name")),
            (json!({"name": "a".repeat(254)}), Some("metadata.name")),
            (json!({"name": "a", "namespace": "team-a"}), None),
            (json!({"name": "a", "namespace": "a.b"}), Some("metadata.namespace")),
            (json!({"name": "a", "labels": {"a": "", "example.com/team": "A_b.c"}}), None),
            (json!({"name": "a", "labels": {"a": "b c"}}), Some("metadata.labels.a")),
            (json!({"name": "a", "labels": {"a": long}}), Some("metadata.labels.a")),
            (json!({"name": "a", "labels": {"A.com/x": "b"}}), Some("metadata.labels[A.com/x]")),
            (json!({"name": "a", "labels": {"a/b/c": "b"}}), Some("metadata.labels[a/b/c]")),
            (json!({"name": "a", "annotations": {"A.com/x": "any thing"}}), None),
            (json!({"name": "a", "finalizers": ["example.com/a", ""]}), Some("metadata.finalizers[1]")),
            (json!({"name": "a", "annotations": {"a b": ""}}), Some("metadata.annotations[a b]")),
        ] {
            let problems = check(&json!({"metadata": metadata}));
            let fields: Vec<_> = problems.iter().map(|(field, ..)| field.as_str()).collect();
            assert_eq!(fields, field.into_iter().collect::<Vec<_>>(), "{metadata}");
        }
    }
}
