//! An application object as raw text. It is parsed only when needed, and as far as possible.
//!
//! In: objects in lists and events of a watch. Out: their names, and one at a time the parsed object. No object, whatever it contains,
//! prevents the others of its kind from being read. Only the text of one page of a list is kept in memory.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicObject, DynamicResourceScope};
use serde::Deserialize;

use relaybook_runtime::watch::Lean;

/// Maximum depth of an object that is parsed. The API server accepts about 10,000 levels. A recursive parser must stop long before that:
/// `serde_json` stops at 128.
const DEEPEST: usize = 120;

/// An object as text, without the fields that no component reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Raw(Lean);

impl Raw {
    /// Returns the object, or `None` if it cannot be parsed. Parts that are nested too deeply are `null`.
    pub fn parse(&self) -> Option<DynamicObject> {
        let Self(lean) = self;
        parse(lean, &lean.text).or_else(|| parse(lean, &shallow(&lean.text)))
    }
}

fn parse(lean: &Lean, text: &str) -> Option<DynamicObject> {
    lean.parse(text).ok()
}

/// Returns the same JSON with `null` in place of the parts that are nested too deeply.
fn shallow(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let (mut depth, mut from) = (0_usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                if depth == DEEPEST {
                    kept.push_str(&text[from..at]);
                    kept.push_str("null");
                }
                depth += 1;
            }
            b'}' | b']' if !quoted => {
                depth = depth.saturating_sub(1);
                if depth == DEEPEST {
                    from = at + 1;
                }
            }
            _ => {}
        }
    }
    kept.push_str(&text[from..]);
    kept
}

impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(dt)
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(dt)
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(dt)
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::core::WatchEvent;
    use kube::core::object::ObjectList;
    use serde_json::{Value, json};

    use super::*;

    /// Returns this number of nested objects, with a bracket and a quote in each name.
    fn nested(levels: usize) -> String {
        format!("{}1{}", r#"{"a]\"{": [2], "b": "#.repeat(levels), "}".repeat(levels))
    }

    fn read(text: &str) -> Raw {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn too_deeply_nested_values_become_null_and_the_rest_is_parsed() {
        for levels in [1, 117, 118, 126, 200, 10_000] {
            let text = format!(
                r#"{{"metadata": {{"name": "n", "namespace": "s", "generation": 3, "managedFields": [{{}}]}},
                "spec": {{"values": {}, "version": "ü\\"}}, "status": {{"observedGeneration": 3}}}}"#,
                nested(levels)
            );
            let raw = read(&text);
            assert_eq!((raw.meta().name.as_deref(), raw.meta().namespace.as_deref()), (Some("n"), Some("s")));
            let object = raw.parse().unwrap();
            assert_eq!((object.metadata.generation, object.metadata.managed_fields), (Some(3), None), "{levels}");
            assert_eq!(object.data.pointer("/status/observedGeneration"), Some(&json!(3)), "{levels}");
            assert_eq!(object.data.pointer("/spec/version"), Some(&json!("ü\\")), "{levels}");
            let depth = |mut value: &Value| {
                let mut depth = 0;
                while let Some(next) = value.get("b") {
                    (depth, value) = (depth + 1, next);
                }
                (depth, value.clone())
            };
            let whole = levels < 127 - 2;
            let expected = if whole { (levels, json!(1)) } else { (DEEPEST - 2, Value::Null) };
            assert_eq!(depth(&object.data["spec"]["values"]), expected, "{levels}");
        }
    }

    #[test]
    fn an_object_that_does_not_parse_still_has_its_name() {
        let list = r#"{"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "7"}, "items": [
            {"metadata": {"name": "a", "resourceVersion": "5"}}, {"metadata": {"name": "b", "labels": 5}}]}"#;
        let list: ObjectList<Raw> = serde_json::from_str(list).unwrap();
        let told: Vec<_> = list.items.iter().map(|raw| (raw.meta().name.as_deref(), raw.parse().is_some())).collect();
        assert_eq!(told, [(Some("a"), true), (Some("b"), false)]);
        assert_eq!(list.items[0].meta().resource_version.as_deref(), Some("5"));
        let event = r#"{"type": "ADDED", "object": {"metadata": {"name": "a", "labels": 5}}}"#;
        let event: WatchEvent<Raw> = serde_json::from_str(event).unwrap();
        assert!(matches!(event, WatchEvent::Added(raw) if raw.meta().name.as_deref() == Some("a")));
        for text in ["5", "null", r#"{"metadata": 5}"#, r#"{"data": 5}"#] {
            assert!(serde_json::from_str::<Raw>(text).is_err(), "{text}");
        }
    }
}
