//! `Promotion`: one revision on its way from one environment of a pipeline to the next.
//!
//! The name is a function of what the promotion is for (`promotion::names` in `relaybook_core`). So creating the object is the guard against doing
//! the same thing twice. The promotion controller writes the status. A person, or the approval hook, sets `spec.approved`.

mod strategy;
mod words;

pub use strategy::{
    Author, CommitStrategy, ForgeType, GitRepository, GitTls, NotificationStrategy, PromotionCommit, PromotionPullRequest,
    PromotionRetry, PromotionStrategy, PullRequestState, PullRequestStrategy, SecretCa, Withdrawing,
};
pub use words::{missing, with_missing};

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;
use super::pipeline::{is_false, is_zero_serial};

/// The annotation that starts a failed promotion again. Each new value counts once.
pub const RETRY: &str = concat!(group!(), "/retry");
/// The annotation with which a hook requests an immediate check of a promotion. Its value is the time of the request.
pub const LOOK: &str = concat!(group!(), "/look");
/// The annotation that shows that the hook approved a promotion.
pub const APPROVED_BY: &str = concat!(group!(), "/approved-by");

/// When and how a revision goes to an environment. It goes there once the environment before it runs the revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "[self.?after.orValue('0s'), self.?timeout.orValue('168h')].all(d, d.matches('^([0-9]+(ms|s|m|h))+$'))",
     "message": "after and timeout are durations such as 30m or 24h"},
    {"rule": "!has(self.after) || !self.after.matches('^([0-9]+(ms|s|m|h))+$') || duration(self.after) <= duration('168h')",
     "message": "after must be at most 168h"},
    {"rule": "!has(self.timeout) || !self.timeout.matches('^([0-9]+(ms|s|m|h))+$') || (duration(self.timeout) >= duration('1m') && duration(self.timeout) <= duration('168h'))",
     "message": "timeout must be at least 1m and at most 168h"},
]))]
pub struct PromotionPolicy {
    /// `true`: a promotion waits until somebody approves it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub manual: bool,
    /// How long the environment before must have been ready without interruption. Default 0s, at most 168h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32))]
    pub after: Option<String>,
    /// `true`: no promotion is started or requested. Those that were requested continue.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// How long the environment may take to run the revision. With the strategy `notification`, it is counted from the request, default 168h.
    /// Otherwise it is counted from the commit on the branch, or from the merge, default 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32))]
    pub timeout: Option<String>,
    /// How the revision gets there. If absent, nothing is promoted to the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PromotionStrategy>,
    /// How long the attempts of `commit` and `pullRequest` go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<PromotionRetry>,
    /// Which ended promotions are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<RetainPromotions>,
}

/// Which ended promotions are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.maxAge) || self.maxAge.matches('^([0-9]+(ms|s|m|h))+$')", "message": "maxAge is a duration such as 720h"},
    {"rule": "!has(self.maxAge) || !self.maxAge.matches('^([0-9]+(ms|s|m|h))+$') || (duration(self.maxAge) >= duration('1m') && duration(self.maxAge) <= duration('87600h'))",
     "message": "maxAge must be at least 1m and at most 87600h"},
]))]
pub struct RetainPromotions {
    /// How many of the newest ended promotions of an environment are kept. Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub per_environment: Option<u32>,
    /// How long an ended promotion is kept at most. Default 2160h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32))]
    pub max_age: Option<String>,
}

/// One revision on its way to one environment.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "relaybook.dev",
    version = "v1alpha1",
    crates(kube_core = "kube_core"),
    kind = "Promotion",
    namespaced,
    status = "PromotionStatus",
    shortname = "promo",
    category = "relaybook",
    derive = "PartialEq",
    selectable = ".status.phase",
    printcolumn = r#"{"name":"Pipeline","type":"string","jsonPath":".spec.pipelineRef.name"}"#,
    printcolumn = r#"{"name":"Environment","type":"string","jsonPath":".spec.environment"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".spec.revision"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason"}"#,
    printcolumn = r#"{"name":"Approved","type":"boolean","jsonPath":".spec.approved"}"#,
    printcolumn = r#"{"name":"URL","type":"string","priority":1,"jsonPath":".status.location"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.message"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.pipelineRef == oldSelf.pipelineRef && self.environment == oldSelf.environment && self.from == oldSelf.from && self.revision == oldSelf.revision && has(self.previous) == has(oldSelf.previous) && (!has(self.previous) || !has(oldSelf.previous) || self.previous == oldSelf.previous) && self.occasion == oldSelf.occasion && has(self.request) == has(oldSelf.request) && (!has(self.request) || !has(oldSelf.request) || self.request == oldSelf.request)",
     "message": "only spec.approved of a promotion can be edited; to promote another revision, use relaybook promote"},
    {"rule": "!oldSelf.?approved.orValue(false) || self.?approved.orValue(false)",
     "message": "an approval cannot be taken back; delete the object to stop a promotion that waits"},
]))]
pub struct PromotionSpec {
    /// The pipeline.
    pub pipeline_ref: PromotedPipeline,
    /// The environment to which the revision goes.
    #[schemars(length(min = 1, max = 63))]
    pub environment: String,
    /// The environment before it, which runs the revision.
    #[schemars(length(min = 1, max = 63))]
    pub from: String,
    /// The revision.
    #[schemars(length(min = 1, max = 1024))]
    pub revision: String,
    /// The revision at which the environment was last ready. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub previous: Option<String>,
    /// Serial of the change with which the environment before came to run the revision.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub occasion: i64,
    /// Absent for a promotion that Relaybook started. For one that a person asked for: 1, 2, … for the same occasion.
    #[serde(default, skip_serializing_if = "is_zero_serial")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub request: i64,
    /// `true`: the promotion is approved. It can only change from `false` to `true`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub approved: bool,
}

/// The pipeline of a promotion, which is in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotedPipeline {
    /// Name of the pipeline.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Uid of the pipeline. A pipeline that is created again under the same name is a different one.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
}

words! {
    /// Where a promotion is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum Phase {
        /// It waits: for an approval, or until the environment before has been ready for long enough.
        #[default]
        Pending,
        /// It was requested.
        Requested,
        /// The pull request exists, or the commit is pushed.
        Open,
        /// The revision is declared for the environment, which does not run it yet.
        Merged,
        /// The environment runs the revision.
        Finished,
        /// The pull request was closed without being merged.
        Closed,
        /// It was refused, or the environment did not run the revision in time.
        Failed,
        /// It is not needed any more: a later promotion replaced it, or the environment before runs another revision.
        Withdrawn,
    }
}

impl Phase {
    /// Whether nothing more happens by itself. A person can retry `Closed` and `Failed`.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Finished | Self::Closed | Self::Failed | Self::Withdrawn)
    }
}

/// The state of a promotion. Only the promotion controller writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionStatus {
    /// Where the promotion is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Machine-readable reason for the phase: one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Human-readable message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether an approval was required. Copied from the pipeline when the promotion was requested.
    #[serde(default, skip_serializing_if = "is_false")]
    pub manual: bool,
    /// The strategy. Copied from the pipeline when the promotion was requested. Until then, an edit of the pipeline takes effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PromotionStrategy>,
    /// Number of attempts.
    #[serde(default, skip_serializing_if = "is_zero_serial")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub attempts: i64,
    /// Number of attempts before the last retry.
    #[serde(default, skip_serializing_if = "is_zero_serial")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub attempts_before: i64,
    /// When the last attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_attempted_time: Option<Time>,
    /// When the next attempt starts, if the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub next_attempt_time: Option<Time>,
    /// Whether the strategy was carried out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub succeeded: bool,
    /// The commit that was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<PromotionCommit>,
    /// The pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PromotionPullRequest>,
    /// URL of the pull request or of the commit, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub location: Option<String>,
    /// Number of retries that a person asked for. Each of them has its own branch and its own commit.
    #[serde(default, skip_serializing_if = "is_zero_serial")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub retries: i64,
    /// Why the promotion is being withdrawn. Its pull request is closed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawing: Option<Withdrawing>,
    /// The approval. Absent if nobody has approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Number of the newest step. 0 for a promotion that is not valid; such a promotion is never reported.
    #[serde(default, skip_serializing_if = "is_zero_serial")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub step: i64,
    /// The last 8 steps, oldest first. Each change of the phase is a step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The value of the annotation `relaybook.dev/retry` that was last acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried: Option<String>,
}

/// Maximum number of steps in the status of a promotion.
pub const MAX_STEPS: usize = 8;

/// One change of the phase of a promotion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Number, from 1.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_i64))]
    pub step: i64,
    /// The phase after it.
    pub phase: Phase,
    /// Machine-readable reason: one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Human-readable message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it happened.
    #[schemars(with = "String")]
    pub time: Time,
}

/// An approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// When the controller saw it.
    #[schemars(with = "String")]
    pub time: Time,
}

/// The newest promotion of an environment, as the status of its pipeline shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentPromotion {
    /// Name of the Promotion.
    pub name: String,
    /// Its revision.
    pub revision: String,
    /// Its phase.
    pub phase: Phase,
    /// Machine-readable reason for the phase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Its `spec.occasion`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub occasion: i64,
    /// Its `spec.request`.
    #[serde(default, skip_serializing_if = "is_zero_serial")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub request: i64,
    /// When its last attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_attempted_time: Option<Time>,
    /// Whether its strategy was carried out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub succeeded: bool,
    /// URL of its pull request or commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub location: Option<String>,
    /// State of its pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request_state: Option<PullRequestState>,
    /// Number of its steps that are in the log.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub taken: i64,
}

/// A promotion that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingApproval {
    /// The revision.
    pub revision: String,
    /// Name of the Promotion.
    pub promotion: String,
    /// Uid of the Promotion.
    pub promotion_uid: String,
    /// When it began to wait.
    #[schemars(with = "String")]
    pub since: Time,
}

/// The promotion that a change is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionState {
    /// Name of the Promotion.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Uid of the Promotion.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// Its phase.
    pub phase: Phase,
    /// The strategy, such as `notification`. Empty until the promotion is requested.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub strategy: String,
    /// The environment that runs the revision.
    #[schemars(length(max = 63))]
    pub from: String,
    /// URL of the pull request or commit. Empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub url: String,
}
