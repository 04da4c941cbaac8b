//! The configuration of the running controllers, in a ConfigMap for users and the command line.
//!
//! In: the settings with which a controller was started, and its Lease. Out: one ConfigMap in its namespace ([`NAME`], with the label
//! [`LABEL`]). The leader writes it when its content differs ([`publish_while_leader()`]), and the command line reads it ([`find()`],
//! [`pipelines()`], [`versions()`]).
//! It contains no secrets: no proxy, no headers, no credentials.
//!
//! Each controller publishes its own settings ([`Dispatch`], [`Pipeline`]), with its own key and field manager. So two processes with
//! different flags do not overwrite each other.

mod choose;
mod find;
mod keep;
mod versions;

use relaybook_api::group;
use serde::{Deserialize, Serialize};

pub use choose::{Installation, LookupError};
pub use find::{all, find, pipelines, versions};
pub use keep::{Entry, publish_while_leader};
pub use versions::Versions;

/// The name of the ConfigMap.
pub const NAME: &str = "relaybook-info";
/// The label of the ConfigMap, by which it is found in all namespaces. Its value is `true`.
pub const LABEL: &str = concat!(group!(), "/info");

/// The settings of the dispatcher. Fields that a later version adds are optional, so that it can read the text of an older version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispatch {
    /// The version of the program.
    pub version: String,
    /// The watched namespaces, sorted. If empty, all namespaces are watched.
    pub watch_namespaces: Vec<String>,
    /// The name of the local cluster in the names of targets.
    pub cluster_name: String,
    /// The name of the ConfigMap with the global configuration, in the same namespace.
    pub config_map: String,
    /// Whether `http` is allowed to any host.
    pub allow_http: bool,
    /// Ranges of addresses that are allowed although they are refused by default.
    pub allow_destinations: Vec<String>,
    /// Ranges of addresses that are refused.
    pub deny_destinations: Vec<String>,
    /// The URL under which users reach the audit page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_url: Option<String>,
}

/// The settings of the pipeline controller. Fields that a later version adds are optional, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pipeline {
    /// The version of the program.
    pub version: String,
    /// The watched namespaces, sorted. If empty, all namespaces are watched.
    pub watch_namespaces: Vec<String>,
    /// The name of the local cluster in the names of targets.
    pub cluster_name: String,
    /// Whether targets outside the pipeline's namespace are refused.
    pub no_cross_namespace_refs: bool,
    /// Whether kubeconfigs of remote clusters without verified TLS are accepted.
    pub allow_insecure_clusters: bool,
    /// The kinds of which every object has a pipeline, as `--follow` names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follow: Vec<String>,
}

impl Dispatch {
    /// The key of the ConfigMap.
    pub const KEY: &str = "dispatch.yaml";
}

impl Pipeline {
    /// The key of the ConfigMap.
    pub const KEY: &str = "pipeline.yaml";
}
