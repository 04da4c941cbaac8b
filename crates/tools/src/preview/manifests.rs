//! Manifests in files: the Notifications and ConfigMaps. Notifications are checked against their CRD.

use kube::{Resource as _, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use relaybook_text::first_line;

use super::PreviewError;
use relaybook_api::Notification;
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_settings::config::Text;
use relaybook_settings::manifests::{Broken, ConfigMaps, Document, read, schema, unknown};

/// The Notifications and ConfigMaps of some files.
#[derive(Debug, Default)]
pub struct Manifests {
    /// The Notifications, in the order of the files.
    pub notifications: Vec<Notification>,
    config_maps: ConfigMaps,
}

impl Manifests {
    /// Adds the documents of a file, and ignores objects of other kinds. Objects without a namespace are in `namespace`.
    pub fn add(&mut self, file: &str, text: &str, namespace: &str) -> Result<(), PreviewError> {
        for document in read(text) {
            let broken = |broken: Broken| PreviewError::Yaml { file: file.to_owned(), problem: broken.problem };
            self.object(file, &document.map_err(broken)?, namespace)?;
        }
        Ok(())
    }

    fn object(&mut self, file: &str, document: &Document, namespace: &str) -> Result<(), PreviewError> {
        match (document.api_version(), document.kind()) {
            ("v1", "ConfigMap") => self.config_maps.insert(parse(file, document)?, namespace),
            (version, "Notification") if version == Notification::api_version(&()) => {
                known_fields(file, document)?;
                let mut notification: Notification = parse(file, document)?;
                notification.metadata.namespace.get_or_insert_with(|| namespace.to_owned());
                self.notifications.push(notification);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the Notifications with this name, or all Notifications. Fails if there is none.
    pub fn named(&self, name: Option<&str>) -> Result<Vec<&Notification>, PreviewError> {
        let wanted = |n: &&Notification| name.is_none_or(|name| n.name_any() == name);
        let found: Vec<_> = self.notifications.iter().filter(wanted).collect();
        if found.is_empty() {
            return Err(PreviewError::NoNotification(name.map_or_else(String::new, |name| format!(" {name}"))));
        }
        Ok(found)
    }

    /// Returns the value of a key of a ConfigMap in the files.
    #[must_use]
    pub fn text(&self, key: &ConfigMapKey) -> Text {
        self.config_maps.text(key)
    }
}

fn parse<K: DeserializeOwned>(file: &str, document: &Document) -> Result<K, PreviewError> {
    serde_path_to_error::deserialize(&document.value).map_err(|e| PreviewError::Object {
        file: file.to_owned(),
        object: described(document),
        field: e.path().to_string(),
        problem: first_line(&e.inner().to_string()),
    })
}

fn described(document: &Document) -> String {
    let name = if document.name().is_empty() { "without a name" } else { document.name() };
    format!("{} {name}", document.kind())
}

/// Rejects unknown fields, because the API server rejects or drops them.
fn known_fields(file: &str, document: &Document) -> Result<(), PreviewError> {
    let schema = schema(document.kind()).unwrap_or(Value::Null);
    match unknown(&document.value, &schema).into_iter().next() {
        None => Ok(()),
        Some((field, problem)) => {
            Err(PreviewError::Object { file: file.to_owned(), object: described(document), field, problem })
        }
    }
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
apiVersion: relaybook.dev/v1alpha1
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
    fn a_problem_is_reported_with_its_file_and_field() {
        let with = |spec: &str| {
            format!("{{apiVersion: relaybook.dev/v1alpha1, kind: Notification, metadata: {{name: deploys}}, spec: {spec}}}")
        };
        for (text, words) in [
            ("a: [".to_owned(), &["n.yaml", "not YAML", "line"][..]),
            (with("{endpoint: {ulr: x}}"), &["n.yaml: Notification deploys: spec.endpoint.ulr", "did you mean url"]),
            (with("{triggers: [{type: Deployed, colour: 1}]}"), &["spec.triggers[0].colour", "the fields are"]),
            (with("{triggers: [{type: Deploy}]}"), &["spec.triggers[0].type", "Deployed"]),
            (with("{endpoint: {headers: {X-A: 1}}}"), &["spec.endpoint.headers", "string"]),
            (with("{template: {builtin: slak}}"), &["spec.template.builtin", "slack"]),
        ] {
            let message = Manifests::default().add("n.yaml", &text, "ns").unwrap_err().to_string();
            assert!(words.iter().all(|word| message.contains(word)) && !message.contains('\n'), "{message}");
        }
    }
}
