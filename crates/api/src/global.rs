//! The global configuration: settings for a whole cluster in one ConfigMap, under its key [`KEY`].
//!
//! It is not a custom resource, because a platform team writes it together with the rest of an installation and replaces it as a
//! whole.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use serde::{Deserialize, Serialize};

use super::notification::{NotificationLayer, Settings};
use super::promotion::{ForgeType, SecretCa};
use super::values::refs::SecretRef;

/// The key of the ConfigMap that contains the configuration.
pub const KEY: &str = "config.yaml";

/// The global configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalConfig {
    /// The layer below every notification. It does not define a notification of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Settings>,
    /// Cluster-wide notifications. Each applies to every Pipeline that matches, and is a layer below Notifications of the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub notifications: Vec<GlobalNotification>,
    /// Forges at hosts of your own, for links to commits, and forges at which commits are looked up. For links, `github.com`, `gitlab.com`,
    /// `bitbucket.org` and `codeberg.org` are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["host"]))]
    pub forges: Vec<ForgeHost>,
    /// Templates of https URLs, which templates of notifications read as `links.NAME`. A name has letters and digits. A URL that cannot be
    /// rendered is empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8), schema_with = "link_templates")]
    pub links: BTreeMap<String, String>,
}

/// Returns the schema of the templates of links.
fn link_templates(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 1024},
    })
}

/// A forge at a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForgeHost {
    /// The host in the addresses of repositories, with its port if that is not 443. Its pages have the same host, and https.
    #[schemars(length(min = 1, max = 259), regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$"))]
    pub host: String,
    /// The kind of forge. `bitbucket-server` has no links.
    #[serde(rename = "type")]
    pub type_: ForgeType,
    /// How commits and their pull requests are looked up for messages. If absent, the forge gets no requests. Only `gitea`, `github` and `gitlab`.
    #[serde(default, rename = "lookUp", skip_serializing_if = "Option::is_none")]
    pub look_up: Option<ForgeLookUp>,
}

/// How commits and their pull requests are looked up at a forge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForgeLookUp {
    /// A Secret in the namespace of the global configuration. Key `token`: an access token that can read. For GitHub, also the keys of a GitHub
    /// App.
    pub secret_ref: SecretRef,
    /// Globs of the repositories about which the forge is asked, as `OWNER/NAME`. `*` matches no slash, `**` matches all groups of GitLab.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    pub repositories: Vec<String>,
    /// Base of the API. By default, it is derived from the host. `http` needs `--allow-http`, or a cluster-local `.svc` name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 10, max = 1024), regex(pattern = r"^https?://[^\s@?#]+$"))]
    pub api_url: Option<String>,
    /// The CA certificates to trust instead of those of the system, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_from: Option<SecretCa>,
}

/// A cluster-wide notification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalNotification {
    /// Globs for the namespace of the Pipeline (`*`, `?`). If absent, all namespaces match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9*?-]+$")))]
    pub namespaces: Option<Vec<String>>,
    /// Labels of the Pipelines that the notification applies to. If absent, all Pipelines match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_selector: Option<LabelSelector>,
    /// The name of the notification, and its settings.
    #[serde(flatten)]
    pub layer: NotificationLayer,
}

/// Returns the schema of the global configuration, in the form that CRDs have.
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

/// Returns the schema of a field that only layers of the global configuration have.
fn share_parameters() -> serde_json::Value {
    let description = "`true`: templates in layers of teams can use the parameters. Default `false`: only templates of the global \
                       configuration can use them.";
    serde_json::json!({"type": "boolean", "nullable": true, "description": description})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_global_configuration_shares_parameters() {
        let schema = schema().to_string();
        assert_eq!(schema.matches("shareParameters").count(), 2);
        let notification =
            serde_json::to_string(&<super::super::Notification as kube_core::CustomResourceExt>::crd()).unwrap();
        assert!(!notification.contains("shareParameters"));
    }
}
