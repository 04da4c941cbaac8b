//! `Pipeline`: the environments that an application passes through, and the change log of what happened there.
//!
//! Two writers share the status: the dispatcher writes only `dispatched`, and the pipeline controller everything else.

pub(super) mod dispatched;
pub mod record;
pub(super) mod seen;
pub mod source;
mod spec;
pub mod target;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;
use super::conditions::Condition;
use super::notification::NotificationLayer;
use super::pipeline_set::MadeBy;
use super::promotion::{EnvironmentPromotion, PromotionPolicy, PromotionState, WaitingApproval};
use super::values::configuration;
use super::values::refs::{AppRef, ClusterAppRef};
pub use super::values::status::Status;
pub use dispatched::{Cursor, Dispatched, LastSent, NotReadyNotification, RunningTimer};
pub use record::{Record, Recorded};
pub use seen::{ClusterStatus, Dropped, Left};
pub use source::{GeneratedFrom, GeneratedTarget, TargetSource};
pub use spec::{Baseline, Environment, InboundHooks, RevisionSource, Target};

/// Maximum number of targets in one pipeline. A pipeline with more targets is `Ready=False` with reason `TooManyTargets`.
pub const MAX_TARGETS: usize = 256;

/// The targets of one application, ordered by environment.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "relaybook.dev",
    version = "v1alpha1",
    crates(kube_core = "kube_core"),
    kind = "Pipeline",
    namespaced,
    status = "PipelineStatus",
    shortname = "rbp",
    category = "relaybook",
    derive = "PartialEq",
    printcolumn = r#"{"name":"App","type":"string","jsonPath":".spec.appRef.name"}"#,
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.appRef.kind"}"#,
    printcolumn = r#"{"name":"Targets","type":"string","jsonPath":".status.readyTargets"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".status.revision"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Not Ready","type":"string","jsonPath":".status.dispatched.notifications[0].name"}"#,
    printcolumn = r#"{"name":"Last Sent","type":"date","jsonPath":".status.dispatched.lastSentTime"}"#,
    printcolumn = r#"{"name":"Sent By","type":"string","jsonPath":".status.dispatched.lastSentBy"}"#,
    printcolumn = r#"{"name":"Targets Sent","type":"string","priority":1,"jsonPath":".status.dispatched.lastSentSummary"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "size(self.environments) == 0 || !has(self.environments[0].promotion)",
     "message": "the first environment cannot have promotion, because no environment is before it; remove environments[0].promotion"},
    {"rule": "has(self.appRef) || self.environments.all(e, !has(e.targets) || size(e.targets) == 0)",
     "message": "targets require the application object; set appRef"},
    {"rule": "!has(self.hooks) || !has(self.promotion) || !has(self.promotion.strategy) || !has(self.promotion.strategy.secretRef) || self.promotion.strategy.secretRef.name != self.hooks.secretRef.name",
     "message": "hooks and promotion.strategy must not have the same secretRef, because a key of hooks must not approve; use two Secrets"},
    {"rule": "!has(self.hooks) || self.environments.all(e, !has(e.promotion) || !has(e.promotion.strategy) || !has(e.promotion.strategy.secretRef) || e.promotion.strategy.secretRef.name != self.hooks.secretRef.name)",
     "message": "hooks and the promotion of an environment must not have the same secretRef, because a key of hooks must not approve; use two Secrets"},
    {"rule": "!has(self.pipelineSet) || (has(oldSelf.pipelineSet) && self.pipelineSet.name == oldSelf.pipelineSet.name)",
     "message": "pipelineSet cannot be added or name another set, because a PipelineSet changes only pipelines that it made; leave it as it was, or delete the pipeline"},
]))]
pub struct PipelineSpec {
    /// The application object, by default the same in every target of `targets`. Absent if no environment has `targets`.
    #[serde(default, skip_serializing_if = "AppRef::is_empty")]
    pub app_ref: AppRef,
    /// The environments, in the order in which a revision passes through them.
    #[schemars(length(min = 1, max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub environments: Vec<Environment>,
    /// Where the revisions come from, for links to commits. If absent, an Application of Argo CD or an object of Fleet names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RevisionSource>,
    /// How a revision goes from each environment to the next. If absent, nothing is promoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionPolicy>,
    /// The hook with which other systems request an immediate check of the pipeline's promotions. If absent, the hook refuses every request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<InboundHooks>,
    /// Notification settings that differ for this pipeline from those of its namespace, and notifications of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub notifications: Vec<NotificationLayer>,
    /// A namespace whose Notifications are layers over the notifications of the same name, below `notifications` of this Pipeline. Only those
    /// Notifications count that have the namespace of this Pipeline in `pipelineNamespaces`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub layer_namespace: Option<String>,
    /// What was there before the first observation of a target. If absent, `Present`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Labels, annotations and fields of the application objects that messages can contain. If absent, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// The set that made the pipeline. It cannot be added later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_set: Option<MadeBy>,
}

/// What the controllers know about a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineStatus {
    /// The generation of the spec that `environments` was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the spec is valid, and every target's application object exists and is observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The environments in spec order, with what is observed at each target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<EnvironmentStatus>,
    /// The number of ready targets and of all targets, such as `3/4`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ready_targets: String,
    /// The worst status of all targets. From the worst: `Failed`, `Unknown`, `NotFound`, `Terminating`, `InProgress`, `Current`. Absent without
    /// targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Status>,
    /// The revision that runs in the last environment. Several revisions are joined by `,`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The last settled state of the whole pipeline: `Current` if every environment is `Current` at the same revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// The clusters of the targets, except the cluster that Relaybook runs in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterStatus>,
    /// The change log: what happened, for the notifications that have not read it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<ChangeLog>,
    /// Changes that were dropped because the log had no space for them. Absent if no change was ever dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Dropped>,
    /// The progress of the dispatcher. Only the dispatcher writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched: Option<Dispatched>,
}

/// One environment as observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentStatus {
    /// Name, as in the spec.
    pub name: String,
    /// Its targets: those of `targets` in spec order, then those of `targetsFrom` by name.
    #[serde(default)]
    pub targets: Vec<TargetStatus>,
    /// What is recorded of each entry of `targetsFrom` whose objects have been listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generated: Vec<GeneratedFrom>,
    /// The last settled state of the whole environment: `Current` if every target is `Current` at the same revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// The newest promotion to this environment. Absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<EnvironmentPromotion>,
    /// The promotion to this environment that waits for an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_approval: Option<WaitingApproval>,
}

/// One target as observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// The application object that this status describes.
    pub cluster_app_ref: ClusterAppRef,
    /// For a target of `targetsFrom`: the entry that selects it, and its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated: Option<GeneratedTarget>,
    /// The current kstatus.
    pub status: Status,
    /// Whether `status` is `Current`.
    pub ready: bool,
    /// The revision that runs.
    #[serde(default)]
    pub revision: String,
    /// The revision that the application object tries to run.
    #[serde(default)]
    pub attempted_revision: String,
    /// Machine-readable reason for the status: one word.
    #[serde(default)]
    pub reason: String,
    /// Human-readable reason for the status. Empty if `Current`, cut at 1 KiB.
    #[serde(default)]
    pub message: String,
    /// Whether the running state differs from the declared state.
    #[serde(default)]
    pub drifted: bool,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_transition_time: Option<Time>,
    /// The last settled state. Absent until the target was observed for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
}

impl TargetStatus {
    /// Whether its last settled state is that its object does not exist.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.settled.as_ref().is_some_and(|settled| settled.status == Status::NotFound)
    }
}

/// A state of a subject, as changes and deliveries contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// kstatus.
    pub status: Status,
    /// The revision that the status is about: the running revision if `Current`, the attempted one if `InProgress` or `Failed`.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub revision: String,
    /// The revision that was last `Current`. Absent before the first one and after `NotFound`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub current: Option<String>,
    /// What the status is about beside the revision, such as `values sha256:3f2a1b9c0d1e`. Empty for kinds without it, or if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub configuration: String,
    /// The configuration that was last `Current`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub current_configuration: String,
    /// Address of the Git repository, without credentials. In the newer state of a change it is that of `revision`, and in the older one that of
    /// `current`. Empty if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub repository: String,
    /// Whether the subject has failed since it was last `Current`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failed: bool,
    /// Whether the running state differs from the declared state.
    #[serde(default, skip_serializing_if = "is_false")]
    pub drifted: bool,
    /// Machine-readable reason: one word. Set only in the newer state of a change.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// Human-readable reason. For a workload that is `Current`, the number of running replicas. Set only in the newer state of a
    /// change.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub message: String,
    /// The promotion, if the subject is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<PromotionState>,
    /// What `spec.record` of the pipeline lists of the application object. Set only in the newer state of a change of a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Box<Recorded>>,
}

impl State {
    /// The configuration, if it alone is new: the revision is the one that was last `Current` in the state before.
    #[must_use]
    pub fn new_configuration(&self, before: &Self) -> Option<&str> {
        let is_alone = before.current.as_ref() == Some(&self.revision);
        let is_new = configuration::differ(&before.current_configuration, &self.configuration);
        (is_alone && is_new).then_some(self.configuration.as_str()).filter(|text| !text.is_empty())
    }
}

/// The last settled state of a subject: the baseline that the next observation is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Settled {
    /// kstatus. Never `Unknown` or `Terminating`.
    pub status: Status,
    /// The revision that the status is about.
    #[serde(default)]
    pub revision: String,
    /// The revision that was last `Current`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// What the status is about beside the revision: of a `HelmRelease` digests of its values, of a workload the images of its init
    /// containers. Empty for other kinds, or if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub configuration: String,
    /// The configuration that was last `Current`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub current_configuration: String,
    /// Address of the Git repository of `current`, without credentials. Empty if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub repository: String,
    /// Whether the subject has failed since it was last `Current`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failed: bool,
    /// Whether the running state differs from the declared state.
    #[serde(default, skip_serializing_if = "is_false")]
    pub drifted: bool,
    /// Hash of the rules that read status and revision from the object. If it changes, the next observation becomes a new baseline.
    #[serde(default)]
    pub reader: String,
    /// Serial of the log when this target was first seen, or 0 if the log had no changes yet. Changes at or below it happened to
    /// an earlier target of the same name. They are never sent on behalf of this target.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub since: i64,
    /// Serial of the log when the last baseline was taken. Changes at or below it happened before this baseline, and no timer of
    /// `for` continues from them.
    #[serde(default, skip_serializing_if = "is_zero_serial")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub based: i64,
    /// For an environment: serial of the change with which it came to run `current`. Absent if it ran `current` when it was first seen.
    #[serde(default, skip_serializing_if = "is_zero_serial")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub reached: i64,
    /// For an environment and for the pipeline: hash of the targets. If it changes, the next state becomes a new baseline.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub members: String,
    /// For a target: hash of the label of its object and of what was staged when the label was confirmed. Only a `BundleDeployment` of
    /// Fleet has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub staged: String,
    /// For a target: hashes of errors that its object shows. If it shows them for another revision, too, that revision has not failed
    /// because of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)))]
    pub errors: Vec<String>,
}

/// The change log: a stream that notifications read by their cursors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeLog {
    /// The epoch of the replica that wrote the log: `leaseTransitions` of the Lease when it acquired the bucket of the pipeline. A writer
    /// that reads a higher value than its own does not hold the bucket any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub epoch: i32,
    /// Serial when this pipeline was first seen: the Unix time in milliseconds at that moment.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub first: i64,
    /// Serial of the newest change. Each change increases it by 1. It never decreases.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// Changes that were observed before this time can still be written until then, because the namespace causes more writes than its share.
    /// Timers wait for them. Absent: they are written at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub held_until: Option<Time>,
    /// The changes, oldest first. Changes that every cursor has passed are removed.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// One entry of the change log: a subject went from one settled state to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Position in the log. A serial is never used again for another change.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// The subject that changed: `target/ENVIRONMENT/CLUSTER/NAMESPACE` (with `/APP` if the target names another application),
    /// `cluster/CLUSTER`, `environment/ENVIRONMENT`, `promotion/ENVIRONMENT` or `pipeline`.
    pub subject: String,
    /// When the change was observed.
    #[schemars(with = "String")]
    pub time: Time,
    /// Whether several changes were merged into this one to save space.
    #[serde(default, skip_serializing_if = "is_false")]
    pub coalesced: bool,
    /// For a coalesced change: when the state before it ended.
    #[serde(default, skip_serializing_if = "Left::is_empty")]
    pub left: Left,
    /// The state before.
    pub from: State,
    /// The state after, with reason and message.
    pub to: State,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
pub(super) fn is_zero_serial(serial: &i64) -> bool {
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
