//! Pure: what the API server stores of what a client sends.
//!
//! In: objects as JSON. Out: an object with the fields that only the API server sets: version, uid, generation and times.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::apply::Owners;
use super::kind::Kind;

/// Metadata that no client can change.
pub(super) const KEPT: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];
/// Metadata that is not stored if it is empty.
const OMITTED: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// An object that is stored. It is never changed.
#[derive(Debug, PartialEq)]
pub struct Object {
    /// Its content, with its version.
    pub value: Value,
    /// The same as text.
    pub(super) text: Bytes,
    /// Its version.
    pub version: u64,
    /// Which field managers have set which fields, if it was ever applied.
    pub(super) owners: Owners,
}

impl Object {
    pub(super) fn new(mut value: Value, owners: Owners, version: u64) -> Self {
        value["metadata"]["resourceVersion"] = json!(version.to_string());
        Self { text: text(&value), value, version, owners }
    }

    /// Returns its text, or that of its metadata.
    pub(super) fn shown(&self, is_metadata: bool) -> Bytes {
        if is_metadata { text(&partial(&self.value)) } else { self.text.clone() }
    }
}

/// Returns the text of a value.
pub(super) fn text(value: &Value) -> Bytes {
    // `Value` has string keys only, so this cannot fail.
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}

/// Returns the metadata of an object, as an object.
pub(super) fn partial(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}

/// Returns a text of the metadata. Empty: it is absent.
pub(super) fn meta<'a>(value: &'a Value, field: &str) -> &'a str {
    value["metadata"][field].as_str().unwrap_or_default()
}

/// Returns the names of the finalizers.
pub(super) fn finalizers(value: &Value) -> impl Iterator<Item = &Value> {
    value["metadata"]["finalizers"].as_array().into_iter().flatten()
}

/// Whether the object is deleted, and a finalizer keeps it.
pub(super) fn is_terminating(value: &Value) -> bool {
    !meta(value, "deletionTimestamp").is_empty()
}

/// Returns a time as objects contain it.
pub(super) fn time(now: Timestamp) -> Value {
    json!(Timestamp::from_second(now.as_second()).unwrap_or(now).to_string())
}

/// Returns a new object.
pub(super) fn created(kind: &Kind, mut value: Value, namespace: &str, uid: &str, now: Timestamp) -> Value {
    if kind.has_status {
        remove(&mut value, "status");
    }
    let metadata = &mut value["metadata"];
    for field in KEPT.iter().filter(|field| **field != "name").chain(&["managedFields"]) {
        remove(metadata, field);
    }
    metadata["uid"] = json!(uid);
    metadata["creationTimestamp"] = time(now);
    if kind.is_namespaced {
        metadata["namespace"] = json!(namespace);
    }
    if kind.has_generation {
        metadata["generation"] = json!(1);
    }
    omit(metadata);
    value
}

/// Returns what is stored after a write of `new`, before the version is set.
pub(super) fn changed(kind: &Kind, old: &Value, mut new: Value, is_status: bool) -> Value {
    if is_status {
        let mut next = old.clone();
        put(&mut next, "status", new.get("status"));
        return next;
    }
    if kind.has_status {
        put(&mut new, "status", old.get("status"));
    }
    for field in ["apiVersion", "kind"] {
        put(&mut new, field, old.get(field));
    }
    let metadata = &mut new["metadata"];
    for field in KEPT {
        put(metadata, field, old["metadata"].get(field));
    }
    remove(metadata, "managedFields");
    omit(metadata);
    let is_other = |name: &&String| *name != "metadata" && new.get(*name) != old.get(*name);
    let fields = |value: &Value| value.as_object().map_or(0, Map::len);
    let is_spec_changed = fields(&new) != fields(old) || new.as_object().is_some_and(|new| new.keys().any(|n| is_other(&n)));
    if kind.has_generation && is_spec_changed {
        next_generation(&mut new);
    }
    new
}

/// Returns the object as one that is deleted, and that its finalizers keep.
pub(super) fn terminating(old: &Value, now: Timestamp) -> Value {
    let mut next = old.clone();
    next["metadata"]["deletionTimestamp"] = time(now);
    next["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    if next["metadata"].get("generation").is_some() {
        next_generation(&mut next);
    }
    next
}

fn next_generation(value: &mut Value) {
    let generation = &mut value["metadata"]["generation"];
    *generation = json!(generation.as_i64().unwrap_or_default() + 1);
}

fn remove(value: &mut Value, field: &str) {
    if let Value::Object(fields) = value {
        fields.remove(field);
    }
}

fn put(value: &mut Value, field: &str, content: Option<&Value>) {
    match content {
        Some(content) => value[field] = content.clone(),
        None => remove(value, field),
    }
}

fn omit(metadata: &mut Value) {
    let is_empty = |value: &Value| {
        let is_empty_map = value.as_object().is_some_and(Map::is_empty);
        value.is_null() || is_empty_map || value.as_array().is_some_and(Vec::is_empty)
    };
    for field in OMITTED {
        if metadata.get(field).is_some_and(is_empty) {
            remove(metadata, field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing() -> Value {
        json!({"apiVersion": "g/v1", "kind": "Thing", "spec": {"a": 1}, "status": {"b": 1}, "metadata": {
            "name": "n", "namespace": "s", "uid": "u", "resourceVersion": "7", "creationTimestamp": "c", "generation": 3}})
    }

    #[test]
    fn a_write_changes_only_its_part_and_the_generation_counts_changes_of_the_spec() {
        let with_status = Kind { has_status: true, has_generation: true, ..Kind::default() };
        let without = Kind { has_generation: true, ..Kind::default() };
        let plain = Kind::default();
        // The kind, whether the status is written, what is written at which path; then spec, status, label and generation afterwards.
        let table = [
            (&with_status, false, "/spec/a", json!(2), (json!(2), json!(1), Value::Null, 4)),
            (&with_status, false, "/status/b", json!(2), (json!(1), json!(1), Value::Null, 3)),
            (&with_status, false, "/metadata/labels", json!({"l": "x"}), (json!(1), json!(1), json!("x"), 3)),
            (&with_status, false, "/metadata/labels", json!({}), (json!(1), json!(1), Value::Null, 3)),
            (&with_status, true, "/spec/a", json!(2), (json!(1), json!(1), Value::Null, 3)),
            (&with_status, true, "/status/b", json!(2), (json!(1), json!(2), Value::Null, 3)),
            (&with_status, true, "/metadata/labels", json!({"l": "x"}), (json!(1), json!(1), Value::Null, 3)),
            (&without, false, "/status/b", json!(2), (json!(1), json!(2), Value::Null, 4)),
            (&without, false, "/metadata/uid", json!("v"), (json!(1), json!(1), Value::Null, 3)),
            (&plain, false, "/spec/a", json!(2), (json!(2), json!(1), Value::Null, 3)),
        ];
        for (kind, is_status, path, value, expected) in table {
            let mut new = thing();
            let (parent, name) = path.rsplit_once('/').unwrap();
            new.pointer_mut(parent).unwrap()[name] = value;
            let next = changed(kind, &thing(), new, is_status);
            let metadata = &next["metadata"];
            let label = metadata.pointer("/labels/l").cloned().unwrap_or_default();
            let found =
                (next["spec"]["a"].clone(), next["status"]["b"].clone(), label, metadata["generation"].as_i64().unwrap());
            assert_eq!(found, expected, "{path}");
            assert_eq!(
                (&metadata["uid"], metadata.get("labels").is_some_and(|l| l == &json!({}))),
                (&json!("u"), false),
                "{path}"
            );
        }
    }

    #[test]
    fn a_new_object_has_no_status_and_no_metadata_that_only_the_api_server_sets() {
        let kind = Kind { has_status: true, has_generation: true, is_namespaced: true, ..Kind::default() };
        let new = created(&kind, thing(), "t", "v", Timestamp::from_second(9).unwrap());
        let metadata =
            json!({"name": "n", "namespace": "t", "uid": "v", "creationTimestamp": "1970-01-01T00:00:09Z", "generation": 1});
        assert_eq!(new, json!({"apiVersion": "g/v1", "kind": "Thing", "spec": {"a": 1}, "metadata": metadata}));
        let gone = terminating(&new, Timestamp::from_second(10).unwrap());
        assert_eq!((is_terminating(&gone), &gone["metadata"]["generation"]), (true, &json!(2)));
    }
}
