//! An object of a watch or a list as raw text. It is parsed only when needed, and parsing can fail.
//!
//! kube's `DeserializeGuard` also tolerates an object that does not parse. But it copies a tree of each object, and reads
//! `managedFields`, which are half of an object with a status. This code reads the text once, without the parts that are not needed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use relaybook_api::{
    Delivery, DeliverySpec, Notification, NotificationSpec, Pipeline, PipelineSet, PipelineSetSpec, PipelineSpec, Promotion,
    PromotionSpec,
};

/// Field of the metadata that no component reads.
const UNREAD: &str = "managedFields";
/// Field of the metadata that changes with each write, even if nothing else does.
const VERSION: &str = "resourceVersion";

/// An object as text. It can be deserialized from JSON text only.
#[derive(Clone, Debug)]
pub struct Lean {
    /// Name, namespace, uid and version.
    pub metadata: ObjectMeta,
    /// The whole object as JSON, without its version and without the fields that no component reads.
    pub text: Box<str>,
}

impl Lean {
    /// Parses `text`, which is the text of this object or a variant of it, and adds the version.
    pub fn parse<K: Resource + DeserializeOwned>(&self, text: &str) -> serde_json::Result<K> {
        let mut object: K = serde_json::from_str(text)?;
        object.meta_mut().resource_version.clone_from(&self.metadata.resource_version);
        Ok(object)
    }
}

/// A watched kind for which a deletion can be reported even if the object cannot be parsed.
pub trait Deleted: Resource<DynamicType = ()> + DeserializeOwned {
    /// Returns a deleted object of which only the metadata is known.
    fn deleted(metadata: ObjectMeta) -> Self;
}

impl Deleted for Pipeline {
    fn deleted(metadata: ObjectMeta) -> Self {
        Self { metadata, spec: PipelineSpec::default(), status: None }
    }
}

impl Deleted for Notification {
    fn deleted(metadata: ObjectMeta) -> Self {
        Self { metadata, spec: NotificationSpec::default(), status: None }
    }
}

impl Deleted for Promotion {
    fn deleted(metadata: ObjectMeta) -> Self {
        Self { metadata, spec: PromotionSpec::default(), status: None }
    }
}

impl Deleted for PipelineSet {
    fn deleted(metadata: ObjectMeta) -> Self {
        Self { metadata, spec: PipelineSetSpec::default(), status: None }
    }
}

impl Deleted for Delivery {
    fn deleted(metadata: ObjectMeta) -> Self {
        Self { metadata, spec: DeliverySpec::default(), status: None }
    }
}

impl Deleted for ConfigMap {
    fn deleted(metadata: ObjectMeta) -> Self {
        Self { metadata, ..Self::default() }
    }
}

impl Deleted for Secret {
    fn deleted(metadata: ObjectMeta) -> Self {
        Self { metadata, ..Self::default() }
    }
}

/// An object that may fail to parse.
#[derive(Clone, Debug)]
pub struct Guarded<K> {
    pub(crate) lean: Lean,
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource + DeserializeOwned> Guarded<K> {
    /// Parses the object.
    ///
    /// # Errors
    ///
    /// If the object cannot be parsed.
    pub fn open(&self) -> serde_json::Result<K> {
        self.lean.parse(&self.lean.text)
    }
}

impl<'de, K> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { lean: Lean::deserialize(deserializer)?, kind: PhantomData })
    }
}

impl<'de> Deserialize<'de> for Lean {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not borrowed: the deserializer may read from a buffer, from which nothing can be borrowed.
        let whole = Box::<RawValue>::deserialize(deserializer)?;
        let Parts { metadata, rest } = serde_json::from_str(whole.get()).map_err(de::Error::custom)?;
        let read = |name: &str| metadata.get(name).map(|raw| serde_json::from_str::<Option<String>>(raw.get()));
        let read = |name| read(name).transpose().map(Option::flatten).map_err(de::Error::custom);
        let place = ObjectMeta {
            name: read("name")?,
            namespace: read("namespace")?,
            uid: read("uid")?,
            resource_version: read(VERSION)?,
            ..ObjectMeta::default()
        };
        let mut text = String::with_capacity(whole.get().len());
        text.push_str("{\"metadata\":{");
        put(&mut text, metadata.iter().filter(|(name, _)| ![UNREAD, VERSION].contains(&name.as_str())));
        text.push_str(if rest.is_empty() { "}" } else { "}," });
        put(&mut text, rest.iter());
        text.push('}');
        Ok(Self { metadata: place, text: text.into() })
    }
}

/// The fields of an object and those of its metadata, as raw JSON.
struct Parts<'a> {
    metadata: BTreeMap<String, &'a RawValue>,
    rest: BTreeMap<String, &'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Parts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Parts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with metadata")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut metadata, mut rest) = (None, BTreeMap::new());
                while let Some(name) = map.next_key::<String>()? {
                    if name == "metadata" {
                        metadata = Some(map.next_value()?);
                    } else {
                        rest.insert(name, map.next_value()?);
                    }
                }
                let metadata = metadata.ok_or_else(|| de::Error::missing_field("metadata"))?;
                Ok(Parts { metadata, rest })
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// Writes fields without the surrounding braces.
fn put<'a>(text: &mut String, fields: impl Iterator<Item = (&'a String, &'a &'a RawValue)>) {
    for (n, (name, value)) in fields.enumerate() {
        if n > 0 {
            text.push(',');
        }
        text.push_str(&serde_json::Value::from(name.as_str()).to_string());
        text.push(':');
        text.push_str(value.get());
    }
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
        &self.lean.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.lean.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::core::WatchEvent;
    use kube::core::object::ObjectList;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> serde_json::Result<Guarded<ConfigMap>> {
        serde_json::from_str(text)
    }

    #[test]
    fn an_object_is_parsed_completely_except_for_managed_fields() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a\"b": "ü\n\u{1F600}", "managedFields": "kept"},
            "metadata": {"name": "n", "namespace": "s", "labels": {"managedFields": "x"}, "resourceVersion": "7",
                "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:data": {"f:a": {}}}}], "annotations": {"é": "\\"}}});
        let mut wanted: ConfigMap = serde_json::from_value(object.clone()).unwrap();
        wanted.metadata.managed_fields = None;
        assert_eq!(read(&object.to_string()).unwrap().open().unwrap(), wanted);
        assert_eq!(read(r#"{"metadata": {}}"#).unwrap().open().unwrap(), ConfigMap::default());
        // A field name with an escape sequence is the same name.
        let escaped = r#"{"metadata": {"n\u0061me": "n", "managedFields": []}, "d\u0061ta": {"a": "b"}}"#;
        let object = read(escaped).unwrap().open().unwrap();
        assert_eq!((object.metadata.name.as_deref(), object.metadata.managed_fields), (Some("n"), None));
        assert_eq!(object.data.unwrap()["a"], "b");
    }

    #[test]
    fn an_unparsable_object_keeps_its_name_and_one_without_metadata_is_an_error() {
        let bad = read(r#"{"metadata": {"name": "n", "namespace": "s"}, "data": 5}"#).unwrap();
        assert_eq!((bad.meta().name.as_deref(), bad.meta().namespace.as_deref()), (Some("n"), Some("s")));
        assert!(bad.open().unwrap_err().to_string().contains("invalid type"));
        for text in
            ["5", "null", "[]", "{}", r#"{"metadata": 5}"#, r#"{"metadata": {"name": 5}}"#, r#"{"data": 5}"#, "{", ""]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn objects_in_lists_and_events_are_parsed_one_by_one() {
        let list = r#"{"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"},
            "items": [{"metadata": {"name": "a", "resourceVersion": "5"}}, {"metadata": {"name": "b"}, "data": 5}]}"#;
        let list: ObjectList<Guarded<ConfigMap>> = serde_json::from_str(list).unwrap();
        let told: Vec<_> = list.items.iter().map(|one| (one.meta().name.as_deref(), one.open().is_ok())).collect();
        assert_eq!(told, [(Some("a"), true), (Some("b"), false)]);
        let version = |object: &ObjectMeta| object.resource_version.clone();
        assert_eq!(version(list.items[0].meta()).as_deref(), Some("5"));
        assert_eq!(version(&list.items[0].open().unwrap().metadata).as_deref(), Some("5"));
        let event = r#"{"type": "ADDED", "object": {"metadata": {"name": "a", "managedFields": []}}}"#;
        let WatchEvent::Added(one) = serde_json::from_str::<WatchEvent<Guarded<ConfigMap>>>(event).unwrap() else {
            panic!("another event")
        };
        assert_eq!(one.meta().name.as_deref(), Some("a"));
    }
}
