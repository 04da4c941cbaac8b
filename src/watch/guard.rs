//! An object of a watch or a list that may not parse, without the part that nobody here reads.
//!
//! kube's `DeserializeGuard` does the same by way of a tree that it copies, and reads who set which field (`managedFields`), which is
//! half of what an object with a status holds. With hundreds of pipelines that was a third of what it takes to look at each again. Here
//! the text is kept for a moment, what is not wanted is passed over in it, and the rest is parsed once.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Of metadata: not read by anyone here.
const UNREAD: &str = "managedFields";

/// An object, or what is known of one that does not parse. It comes from JSON text alone, for it is kept as text first.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Unparsed>);

/// An object that does not parse.
#[derive(Clone, Debug)]
pub struct Unparsed {
    /// Why.
    pub error: String,
    /// Which one it is.
    pub metadata: ObjectMeta,
}

/// What every object has.
#[derive(Deserialize)]
struct Named {
    metadata: ObjectMeta,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = Box::<RawValue>::deserialize(deserializer)?;
        let read = lean(whole.get());
        serde_json::from_str::<K>(&read).map(Ok).map(Self).or_else(|error| {
            let Named { metadata } = serde_json::from_str(&read).map_err(serde::de::Error::custom)?;
            Ok(Self(Err(Unparsed { error: error.to_string(), metadata })))
        })
    }
}

/// The object without what is not read. What is not an object with metadata is left for the parser to complain of.
pub(crate) fn lean(whole: &str) -> Cow<'_, str> {
    with_fields(whole, |name, value| {
        let kept = |name: &str, value| (name != UNREAD).then_some(Cow::Borrowed(value));
        Some(if name == "metadata" { with_fields(value, kept) } else { value.into() })
    })
}

/// An object with each field as `keep` has it, or without.
fn with_fields<'a>(object: &'a str, keep: impl Fn(&str, &'a str) -> Option<Cow<'a, str>>) -> Cow<'a, str> {
    // Escapes in names are those of somebody else's object: it is parsed as it is.
    let Ok(fields) = serde_json::from_str::<BTreeMap<&str, &RawValue>>(object) else { return object.into() };
    let mut text = String::with_capacity(object.len());
    for (name, value) in fields {
        let Some(value) = keep(name, value.get()) else { continue };
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push('"');
        text.push_str(name);
        text.push_str("\":");
        text.push_str(&value);
    }
    text.push_str(if text.is_empty() { "{}" } else { "}" });
    text.into()
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unparsed| &unparsed.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unparsed| &mut unparsed.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::WatchEvent;
    use kube::core::object::ObjectList;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Guarded<ConfigMap>, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn an_object_is_as_it_was_but_for_what_nobody_reads() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a\"b": "ü\n\u{1F600}", "managedFields": "kept"},
            "metadata": {"name": "n", "namespace": "s", "labels": {"managedFields": "x"}, "resourceVersion": "7",
                "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:data": {"f:a": {}}}}], "annotations": {"é": "\\"}}});
        let mut wanted: ConfigMap = serde_json::from_value(object.clone()).unwrap();
        wanted.metadata.managed_fields = None;
        assert_eq!(read(&object.to_string()).unwrap().0.unwrap(), wanted);
        for text in ["{}", r#"{"metadata": {}}"#] {
            assert_eq!(read(text).unwrap().0.unwrap(), ConfigMap::default(), "{text}");
        }
        // A name with an escape is the same name.
        let escaped = r#"{"metadata": {"n\u0061me": "n", "managedFields": []}}"#;
        assert_eq!(read(escaped).unwrap().meta().name.as_deref(), Some("n"));
    }

    #[test]
    fn one_that_does_not_parse_has_its_name_and_what_is_no_object_is_an_error() {
        let bad = read(r#"{"metadata": {"name": "n", "namespace": "s"}, "data": 5}"#).unwrap();
        assert_eq!((bad.meta().name.as_deref(), bad.meta().namespace.as_deref()), (Some("n"), Some("s")));
        assert!(bad.0.unwrap_err().error.contains("invalid type"));
        for text in ["5", "null", "[]", r#"{"metadata": 5}"#, r#"{"data": 5}"#, "{", ""] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn in_lists_and_events() {
        let list = r#"{"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"},
            "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}, "data": 5}]}"#;
        let list: ObjectList<Guarded<ConfigMap>> = serde_json::from_str(list).unwrap();
        let names: Vec<_> = list.items.iter().map(|one| (one.meta().name.clone().unwrap(), one.0.is_ok())).collect();
        assert_eq!(names, [("a".to_owned(), true), ("b".to_owned(), false)]);
        let event = r#"{"type": "ADDED", "object": {"metadata": {"name": "a", "managedFields": []}}}"#;
        let WatchEvent::Added(one) = serde_json::from_str::<WatchEvent<Guarded<ConfigMap>>>(event).unwrap() else {
            panic!("another event")
        };
        assert_eq!(one.meta().name.as_deref(), Some("a"));
    }
}
