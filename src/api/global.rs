//! The global configuration: what one ConfigMap says for a whole cluster, under its key [`KEY`].
//!
//! It is no resource of its own: a platform team writes it with the rest of an installation, and one object is replaced whole.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use serde::{Deserialize, Serialize};

use super::notification::{NotificationLayer, Settings};

/// The key of the ConfigMap that holds it.
pub const KEY: &str = "config.yaml";

/// The whole of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalConfig {
    /// What lies beneath every notification. By itself it sends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Settings>,
    /// Cluster-wide notifications, each for every Pipeline that matches; beneath Notifications of the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub notifications: Vec<GlobalNotification>,
}

/// A cluster-wide notification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalNotification {
    /// Globs on the namespace of the Pipeline (`*`, `?`); absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9*?-]+$")))]
    pub namespaces: Option<Vec<String>>,
    /// Labels of the Pipelines that it is for; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_selector: Option<LabelSelector>,
    /// Its name, and what it says.
    #[serde(flatten)]
    pub layer: NotificationLayer,
}

/// Its schema, of the form that definitions of resources have.
#[must_use]
pub fn schema() -> serde_json::Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let settings = settings.with_transform(AddNullable::default()).with_transform(StructuralSchemaRewriter);
    let settings = settings.with_transform(OptionalEnum).with_transform(OptionalIntOrString);
    let mut schema: serde_json::Value = settings.into_generator().into_root_schema_for::<GlobalConfig>().into();
    let templates = ["/properties/defaults", "/properties/notifications/items"];
    for at in templates.map(|layer| format!("{layer}/properties/template/properties")) {
        if let Some(serde_json::Value::Object(fields)) = schema.pointer_mut(&at) {
            fields.insert("shareParameters".to_owned(), share_parameters());
        }
    }
    schema
}

/// A field that only layers of this configuration have.
fn share_parameters() -> serde_json::Value {
    let description = "`true`: templates that teams write over this may name its parameters. Default `false`: they are seen only by \
                       templates of the global configuration.";
    serde_json::json!({"type": "boolean", "nullable": true, "description": description})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_global_configuration_shares_parameters() {
        let schema = schema().to_string();
        assert_eq!(schema.matches("shareParameters").count(), 2);
        let notification = serde_json::to_string(&<super::super::Notification as kube::CustomResourceExt>::crd()).unwrap();
        assert!(!notification.contains("shareParameters"));
    }
}
