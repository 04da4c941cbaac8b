//! The content of the ConfigMaps in files.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::ResourceExt as _;

use crate::config::Text;
use relaybook_api::values::refs::ConfigMapKey;

/// The ConfigMaps of some files, by namespace and name.
#[derive(Debug, Default)]
pub struct ConfigMaps(BTreeMap<(String, String), ConfigMap>);

impl ConfigMaps {
    /// Adds a ConfigMap. If it has no namespace, it is in `namespace`.
    pub fn insert(&mut self, object: ConfigMap, namespace: &str) {
        let namespace = object.namespace().unwrap_or_else(|| namespace.to_owned());
        self.0.insert((namespace, object.name_any()), object);
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn text(&self, key: &ConfigMapKey) -> Text {
        let Some(object) = self.0.get(&(key.namespace.clone(), key.name.clone())) else {
            return Text::NoConfigMap;
        };
        let text = object.data.as_ref().and_then(|data| data.get(&key.key));
        text.map_or(Text::NoKey, |text| Text::Found(Arc::from(text.as_str())))
    }
}
