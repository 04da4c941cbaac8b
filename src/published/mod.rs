//! The configuration by which the running controllers judge, published for people and their tools.
//!
//! In: how a controller was started, and its Lease. Out: one ConfigMap in its own namespace ([`NAME`], labelled [`LABEL`]), written
//! by the leader when it says something else ([`keep()`]), and read by the command line ([`find()`]). It holds nothing secret: no
//! proxy, no header, no credential.
//!
//! Each controller publishes what it acts by itself, under a key and with a field manager of its own: [`Dispatch`] and
//! [`Pipeline`]. So two processes with different flags do not overwrite each other.

mod choose;
mod find;
mod keep;

use serde::{Deserialize, Serialize};

pub use choose::{Installation, Unknown};
pub use find::find;
pub use keep::{Entry, keep};

/// The name of the ConfigMap.
pub const NAME: &str = "pennant-info";
/// Its label, by which it is found in any namespace; the value is `true`.
pub const LABEL: &str = "pennant.dev/info";

/// What the dispatcher acts by. A field that a later version adds is optional, so that an older one can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispatch {
    /// The version of the program.
    pub version: String,
    /// The namespaces that it watches, sorted; none: all.
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
}

/// What the pipeline controller acts by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pipeline {
    /// The version of the program.
    pub version: String,
    /// The namespaces that it watches, sorted; none: all.
    pub watch_namespaces: Vec<String>,
    /// The name of the local cluster in the names of targets.
    pub cluster_name: String,
    /// Whether targets outside the pipeline's namespace are refused.
    pub no_cross_namespace_refs: bool,
    /// Whether kubeconfigs of remote clusters without verified TLS are accepted.
    pub allow_insecure_clusters: bool,
}

impl Dispatch {
    /// The key of the ConfigMap.
    pub const KEY: &str = "dispatch.yaml";
}

impl Pipeline {
    /// The key of the ConfigMap.
    pub const KEY: &str = "pipeline.yaml";
}
