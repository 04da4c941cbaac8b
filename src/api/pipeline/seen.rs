//! What else the status of a pipeline says: which clusters can be reached, and what its log had no room for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Time;
use crate::api::values::refs::ClusterRef;

/// One cluster as far as it can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Which cluster.
    pub cluster_ref: ClusterRef,
    /// Whether its API server answers. One that has not answered for the grace period does not.
    pub reachable: bool,
    /// Since when it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Time>,
    /// The log's serial when this cluster was first seen, 0 if nothing was in the log yet.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
}

/// Changes that were dropped from the log because the status has no room for them, though not every notification had read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dropped {
    /// The highest serial among them. A cursor below it may have missed some.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// How many there were since the pipeline was created.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub count: i64,
}
