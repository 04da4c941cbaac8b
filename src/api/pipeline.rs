//! `Pipeline`: an application's way through environments, and the change log of what happened on it.
//!
//! Two writers share the status. The pipeline controller writes all but `dispatched`, the dispatcher only that.

pub(super) mod dispatched;
pub(super) mod seen;
pub mod target;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;
use super::conditions::Condition;
use super::notification::NotificationLayer;
use super::values::refs::{AppRef, ClusterAppRef, ClusterRef, PartialAppRef};
pub use dispatched::{Armed, Cursor, Dispatched, InTrouble, LastSent};
pub use seen::{ClusterStatus, Dropped};

/// At most so many targets in one pipeline; more make it `Ready=False`, `TooManyTargets`.
pub const MAX_TARGETS: usize = 256;

/// The targets of one application, ordered by environment.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "pennant.dev",
    version = "v1alpha1",
    kind = "Pipeline",
    namespaced,
    status = "PipelineStatus",
    shortname = "pnpl",
    category = "pennant",
    derive = "PartialEq",
    printcolumn = r#"{"name":"App","type":"string","jsonPath":".spec.appRef.name"}"#,
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.appRef.kind"}"#,
    printcolumn = r#"{"name":"Targets","type":"string","jsonPath":".status.readyTargets"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".status.revision"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Last Sent","type":"date","jsonPath":".status.dispatched.lastSentTime"}"#,
    printcolumn = r#"{"name":"Sent By","type":"string","jsonPath":".status.dispatched.lastSentBy"}"#,
    printcolumn = r#"{"name":"Targets Sent","type":"string","priority":1,"jsonPath":".status.dispatched.lastSentSummary"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PipelineSpec {
    /// The application object, by default the same in every target.
    pub app_ref: AppRef,
    /// The environments, in the order in which a revision passes through them.
    #[schemars(length(min = 1, max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub environments: Vec<Environment>,
    /// What is different for this pipeline from the notifications of its namespace, and notifications of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub notifications: Vec<NotificationLayer>,
}

/// One environment of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// Name, unique within the pipeline; a DNS label.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Where the application runs in this environment; at least one.
    #[schemars(length(min = 1, max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub targets: Vec<Target>,
    /// What is different for this environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub notifications: Vec<NotificationLayer>,
}

/// One namespace in which the application object lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The namespace.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// The cluster; absent: the one that Pennant runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// Overrides fields of the pipeline's `appRef`, so that one namespace can hold many applications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_ref: Option<PartialAppRef>,
    /// What is different for this target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub notifications: Vec<NotificationLayer>,
}

/// What the controllers know of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineStatus {
    /// The generation of the spec that `environments` was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the spec is understood, and every target's application object exists and is observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The environments in spec order, with what is observed at each target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<EnvironmentStatus>,
    /// How many targets of all are ready, as `3/4`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ready_targets: String,
    /// The revision that runs in the last environment; several are joined by `,`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The last state of the whole pipeline that counted: `Current` when every environment is, at one revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// The clusters of the targets, but for the one that Pennant runs in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterStatus>,
    /// What happened, for whoever has not taken it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<ChangeLog>,
    /// What the log had no room for; absent if nothing was ever dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Dropped>,
    /// How far the dispatcher has come. The dispatcher's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched: Option<Dispatched>,
}

/// One environment as observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentStatus {
    /// Name, as in the spec.
    pub name: String,
    /// Its targets, in spec order.
    #[serde(default)]
    pub targets: Vec<TargetStatus>,
    /// The last state of the whole environment that counted: `Current` when every target is, at one revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
}

/// kstatus of an application object
/// (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Status {
    /// It runs what it should.
    Current,
    /// It is on its way.
    InProgress,
    /// It tried and did not get there.
    Failed,
    /// There is no such object.
    NotFound,
    /// It is being deleted.
    Terminating,
    /// It could not be observed.
    #[default]
    Unknown,
}

/// One target as observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// The application object that this is about.
    pub cluster_app_ref: ClusterAppRef,
    /// kstatus, now.
    pub status: Status,
    /// Whether `status` is `Current`.
    pub ready: bool,
    /// The revision that runs.
    #[serde(default)]
    pub revision: String,
    /// The revision that it tries to run.
    #[serde(default)]
    pub attempted_revision: String,
    /// One word on why, for machines.
    #[serde(default)]
    pub reason: String,
    /// A sentence on why; empty when `Current`, cut at 1 KiB.
    #[serde(default)]
    pub message: String,
    /// Whether it runs something else than was declared.
    #[serde(default)]
    pub drifted: bool,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_transition_time: Option<Time>,
    /// The last state that counted; absent until the target has been seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
}

/// A state of a subject, as changes and deliveries carry it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// kstatus.
    pub status: Status,
    /// What this status is about: what runs when `Current`, what is tried when `InProgress` or `Failed`.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub revision: String,
    /// The revision that was last `Current`; absent before the first and after `NotFound`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub current: Option<String>,
    /// Whether it has failed since it was last `Current`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failed: bool,
    /// Whether it runs something else than was declared.
    #[serde(default, skip_serializing_if = "is_false")]
    pub drifted: bool,
    /// One word on why. Only in the newer state of a change.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// A sentence on why; of a workload that is `Current`, how many replicas run. Only in the newer state of a change.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub message: String,
}

/// The last state of a subject that counted; the baseline that the next observation is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Settled {
    /// kstatus: never `Unknown` or `Terminating`.
    pub status: Status,
    /// What the status is about.
    #[serde(default)]
    pub revision: String,
    /// The revision that was last `Current`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Whether it has failed since.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failed: bool,
    /// Whether it runs something else than was declared.
    #[serde(default, skip_serializing_if = "is_false")]
    pub drifted: bool,
    /// Hash of the rules that read the object; when it changes, a new baseline is taken.
    #[serde(default)]
    pub reader: String,
    /// The log's serial when this target was first seen, 0 if nothing was in the log yet. What is at or below it happened to an
    /// earlier target of this name, and is never sent on behalf of this one.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub since: i64,
    /// The log's serial when the last baseline was taken: what is at or below it is another story.
    #[serde(default, skip_serializing_if = "is_zero_serial")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub based: i64,
}

/// The change log: a stream whose consumers are the cursors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeLog {
    /// Which holder of the Lease wrote it: `leaseTransitions` then. A writer that reads a higher one than its own is deposed.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub epoch: i32,
    /// Serial at first sight of this pipeline: Unix milliseconds then.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub first: i64,
    /// Serial of the newest change; + 1 each, never back.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// Oldest first; pruned below the lowest cursor.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// One entry of the change log: a subject went from one settled state to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Place in the log; given once, never to another content.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// What changed: `target/ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` where the target names another; `cluster/CLUSTER`,
    /// `environment/ENVIRONMENT` or `pipeline`.
    pub subject: String,
    /// When it was observed.
    #[schemars(with = "String")]
    pub time: Time,
    /// Whether several changes were made one for lack of room.
    #[serde(default, skip_serializing_if = "is_false")]
    pub coalesced: bool,
    /// When the state before ended, of a coalesced change.
    #[serde(default, skip_serializing_if = "Left::is_empty")]
    pub left: Left,
    /// The state before.
    pub from: State,
    /// The state after, with reason and message.
    pub to: State,
}

/// When the state before the first of several changes ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// When status or revision first changed; empty: at the time of the change, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub status: Option<Time>,
    /// When drift first came or went; empty: at the time of the change, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub drift: Option<Time>,
}

impl Left {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero_serial(serial: &i64) -> bool {
    *serial == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}
