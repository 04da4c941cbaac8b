//! Manifests in files: what is of use here, held against the definitions of its kind.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::{CustomResourceExt as _, Resource as _, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::PreviewError;
use crate::api::Notification;
use crate::api::refs::ConfigMapKey;
use crate::config::{Text, nearest};

/// The Notifications of some files, and the ConfigMaps beside them.
#[derive(Debug, Default)]
pub struct Manifests {
    /// In the order of the files.
    pub notifications: Vec<Notification>,
    config_maps: BTreeMap<(String, String), ConfigMap>,
}

impl Manifests {
    /// Adds the documents of a file; objects of other kinds are passed over. What has no namespace is in `namespace`.
    pub fn add(&mut self, file: &str, text: &str, namespace: &str) -> Result<(), PreviewError> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text)
            .map_err(|e| PreviewError::Yaml { file: file.to_owned(), problem: one_line(&e.to_string()) })?;
        for document in documents {
            self.object(file, document, namespace)?;
        }
        Ok(())
    }

    fn object(&mut self, file: &str, document: Value, namespace: &str) -> Result<(), PreviewError> {
        let word = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
        match (word("apiVersion"), word("kind")) {
            ("v1", "List") => {
                for item in document.get("items").and_then(Value::as_array).cloned().unwrap_or_default() {
                    self.object(file, item, namespace)?;
                }
            }
            ("v1", "ConfigMap") => {
                let object: ConfigMap = parse(file, document, namespace)?;
                self.config_maps.insert((object.namespace().unwrap_or_default(), object.name_any()), object);
            }
            (version, "Notification") if version == Notification::api_version(&()) => {
                known_fields(file, &document)?;
                self.notifications.push(parse(file, document, namespace)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// The one of this name, or all.
    pub fn named(&self, name: Option<&str>) -> Result<Vec<&Notification>, PreviewError> {
        let wanted = |n: &&Notification| name.is_none_or(|name| n.name_any() == name);
        let found: Vec<_> = self.notifications.iter().filter(wanted).collect();
        if found.is_empty() {
            return Err(PreviewError::NoNotification(name.map_or_else(String::new, |name| format!(" {name}"))));
        }
        Ok(found)
    }

    /// What the ConfigMaps hold that these refer to, as far as they are here.
    #[must_use]
    pub fn texts(&self, notifications: &[Notification]) -> HashMap<ConfigMapKey, Text> {
        let keys = notifications.iter().flat_map(crate::config::config_maps);
        keys.map(|key| (key.clone(), self.text(&key))).collect()
    }

    fn text(&self, key: &ConfigMapKey) -> Text {
        let Some(object) = self.config_maps.get(&(key.namespace.clone(), key.name.clone())) else {
            return Text::NoConfigMap;
        };
        let text = object.data.as_ref().and_then(|data| data.get(&key.key));
        text.map_or(Text::NoKey, |text| Text::Found(Arc::from(text.as_str())))
    }
}

fn parse<K>(file: &str, document: Value, namespace: &str) -> Result<K, PreviewError>
where
    K: DeserializeOwned + kube::Resource,
{
    let object = described(&document);
    let mut parsed: K = serde_path_to_error::deserialize(document).map_err(|e| PreviewError::Object {
        file: file.to_owned(),
        object,
        field: e.path().to_string(),
        problem: one_line(&e.inner().to_string()),
    })?;
    parsed.meta_mut().namespace.get_or_insert_with(|| namespace.to_owned());
    Ok(parsed)
}

fn described(document: &Value) -> String {
    let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
    let name = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("without a name");
    format!("{kind} {name}")
}

/// The API server refuses fields that it does not know, or drops them; here they are refused too.
fn known_fields(file: &str, document: &Value) -> Result<(), PreviewError> {
    let crd = Notification::crd();
    let schema = crd.spec.versions.first().and_then(|v| v.schema.as_ref()?.open_api_v3_schema.as_ref());
    let spec = schema.and_then(|s| s.properties.as_ref()?.get("spec"));
    let (Some(schema), Some(value)) = (spec, document.get("spec")) else { return Ok(()) };
    match unknown(value, schema, "spec") {
        None => Ok(()),
        Some((field, problem)) => {
            Err(PreviewError::Object { file: file.to_owned(), object: described(document), field, problem })
        }
    }
}

/// The first field that the schema does not know, and what was most likely meant.
fn unknown(value: &Value, schema: &JSONSchemaProps, path: &str) -> Option<(String, String)> {
    match value {
        Value::Object(fields) => {
            let any = match &schema.additional_properties {
                Some(JSONSchemaPropsOrBool::Schema(any)) => Some(&**any),
                _ => None,
            };
            let known = schema.properties.as_ref();
            fields.iter().find_map(|(name, value)| {
                let below = format!("{path}.{name}");
                match known.and_then(|k| k.get(name)).or(any) {
                    Some(schema) => unknown(value, schema, &below),
                    None => known.map(|known| (below, meant(name, known.keys()))),
                }
            })
        }
        Value::Array(items) => {
            let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items else { return None };
            items.iter().enumerate().find_map(|(index, item)| unknown(item, schema, &format!("{path}[{index}]")))
        }
        _ => None,
    }
}

fn meant<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<_> = known.map(String::as_str).collect();
    match nearest(name, names.iter().copied()) {
        Some(nearest) => format!("there is no such field; did you mean {nearest}?"),
        None => format!("there is no such field; there are {}", names.join(", ")),
    }
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: texts}
data: {body: '{}'}
---
apiVersion: pennant.dev/v1alpha1
kind: Notification
metadata: {name: deploys, namespace: team-a}
spec: {triggers: [{type: Deployed}]}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
";

    #[test]
    fn objects_are_found_in_their_namespaces() {
        let mut manifests = Manifests::default();
        manifests.add("a.yaml", GOOD, "team-b").unwrap();
        manifests.add("b.yaml", "# nothing\n", "team-b").unwrap();
        assert_eq!(manifests.named(None).unwrap().len(), 1);
        assert!(manifests.named(Some("other")).unwrap_err().to_string().contains("Notification other"));
        let key = |namespace: &str, name: &str, key: &str| ConfigMapKey {
            namespace: namespace.into(),
            name: name.into(),
            key: key.into(),
        };
        assert_eq!(manifests.text(&key("team-b", "texts", "body")), Text::Found("{}".into()));
        assert_eq!(manifests.text(&key("team-b", "texts", "other")), Text::NoKey);
        assert_eq!(manifests.text(&key("team-a", "texts", "body")), Text::NoConfigMap);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file_and_field() {
        let with = |spec: &str| {
            format!("{{apiVersion: pennant.dev/v1alpha1, kind: Notification, metadata: {{name: deploys}}, spec: {spec}}}")
        };
        for (text, words) in [
            ("a: [".to_owned(), &["n.yaml", "not YAML", "line"][..]),
            (with("{endpoint: {ulr: x}}"), &["n.yaml: Notification deploys: spec.endpoint.ulr", "did you mean url"]),
            (with("{triggers: [{type: Deployed, foo: 1}]}"), &["spec.triggers[0].foo", "there are"]),
            (with("{triggers: [{type: Deploy}]}"), &["spec.triggers[0].type", "Deployed"]),
            (with("{endpoint: {headers: {X-A: 1}}}"), &["spec.endpoint.headers", "string"]),
            (with("{template: {builtin: slak}}"), &["spec.template.builtin", "slack"]),
        ] {
            let message = Manifests::default().add("n.yaml", &text, "ns").unwrap_err().to_string();
            assert!(words.iter().all(|word| message.contains(word)) && !message.contains('\n'), "{message}");
        }
    }
}
