//! Other parts of a pipeline's status: which clusters are reachable, which changes the log had no space for, and what a merged change keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::values::refs::ClusterRef;

/// The reachability of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The cluster.
    pub cluster_ref: ClusterRef,
    /// Whether the API server of the cluster answers. `false` after it has not answered for the grace period.
    pub reachable: bool,
    /// Since when `reachable` has this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Time>,
    /// Serial of the log when this cluster was first seen, or 0 if the log had no changes yet.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
}

/// Changes that were dropped from the log before every notification had read them, because the status had no space for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dropped {
    /// The highest serial of the dropped changes. A notification whose cursor was below it may have missed some of them.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// How many changes were dropped since the pipeline was created.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub count: i64,
}

/// When the state before the first of several merged changes ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// When status or revision first changed. Absent if they did not change, or only at the time of the merged change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub status: Option<Time>,
    /// When drift first appeared or disappeared. Absent if it did not change, or only at the time of the merged change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub drift: Option<Time>,
}

impl Left {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
