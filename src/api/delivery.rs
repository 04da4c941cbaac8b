//! `Delivery`: one recorded transition on its way to one endpoint, and afterwards the row of the audit.
//!
//! Pennant alone writes it; people read it or delete it. It has no owner reference: the audit outlives its cause.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;
use super::pipeline::State;
use super::values::refs::ClusterRef;
pub use super::values::transition::{Family, SubjectKind, TransitionType};

/// What stands for the uid of a notification of which the global configuration says something: it has none of its own.
pub const GLOBAL: &str = "global";

/// Whether two uids speak of the same notification of one name. One with [`GLOBAL`] goes on when the global configuration begins
/// or ceases to lie beneath it: it is what it is called, and only a Notification that was deleted and made again is another.
#[must_use]
pub fn is_same_notification(one: &str, other: &str) -> bool {
    one == other || one == GLOBAL || other == GLOBAL
}

/// One transition, recorded.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "pennant.dev",
    version = "v1alpha1",
    kind = "Delivery",
    plural = "deliveries",
    namespaced,
    status = "DeliveryStatus",
    shortname = "dlv",
    category = "pennant",
    derive = "PartialEq",
    selectable = ".status.outcome",
    printcolumn = r#"{"name":"Pipeline","type":"string","jsonPath":".spec.pipelineRef.name"}"#,
    printcolumn = r#"{"name":"Notification","type":"string","jsonPath":".spec.notification"}"#,
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.subject.name"}"#,
    printcolumn = r#"{"name":"Type","type":"string","jsonPath":".spec.type"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".spec.to.revision"}"#,
    printcolumn = r#"{"name":"Outcome","type":"string","jsonPath":".status.outcome"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason"}"#,
    printcolumn = r#"{"name":"Code","type":"integer","jsonPath":".status.statusCode"}"#,
    printcolumn = r#"{"name":"Attempts","type":"integer","jsonPath":".status.attempts"}"#,
    printcolumn = r#"{"name":"Last Attempt","type":"date","jsonPath":".status.lastAttemptTime"}"#,
    printcolumn = r#"{"name":"Next","type":"string","priority":1,"jsonPath":".status.nextAttemptTime"}"#,
    printcolumn = r#"{"name":"Error","type":"string","priority":1,"jsonPath":".status.error"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "a recorded transition cannot be edited; delete the object to cancel it"},
]))]
pub struct DeliverySpec {
    /// Name of the notification.
    #[schemars(length(min = 1, max = 63))]
    pub notification: String,
    /// Uid of that notification: one made again under its name is another, and does not send what this one recorded. `global` if
    /// the global configuration says something of it.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub notification_uid: String,
    /// The pipeline whose change this is.
    pub pipeline_ref: PipelineRef,
    /// What changed.
    pub subject: Subject,
    /// The unit of order, within the pipeline and the notification: the subject, or `pipeline`.
    #[schemars(length(min = 1, max = 512))]
    pub lane: String,
    /// Place in the lane: the serial; of one that had to hold for a time, that of the newest change until `due`.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub order: i64,
    /// When its state had held for as long as the trigger says; absent where the trigger says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub due: Option<Time>,
    /// The change that it reports.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// What the change means.
    #[serde(rename = "type")]
    pub type_: TransitionType,
    /// When the change was observed.
    #[schemars(with = "String")]
    pub time: Time,
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// Whether several changes were made one before this was recorded.
    #[serde(default, skip_serializing_if = "super::pipeline::is_false")]
    pub coalesced: bool,
    /// Why it was parked as it was recorded: the trigger's `when` could not be evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub error: Option<String>,
}

/// The pipeline of a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRef {
    /// Its namespace.
    #[schemars(length(max = 253))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its uid: one made again under the same name is another.
    #[schemars(length(max = 128))]
    pub uid: String,
}

/// What a transition is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// Its kind.
    pub kind: SubjectKind,
    /// Its name as people see it: of a target `ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` where it names another; else that of
    /// the cluster, the environment or the pipeline.
    #[schemars(length(max = 1024))]
    pub name: String,
    /// The environment; empty for a cluster and for the pipeline.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub environment: String,
    /// The cluster, of kind `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// The target, of kind `Target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<SubjectTarget>,
}

/// The target that a transition is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectTarget {
    /// The namespace of the application object.
    #[schemars(length(max = 253))]
    pub namespace: String,
    /// The cluster's name.
    #[schemars(length(max = 1024))]
    pub cluster: String,
    /// The cluster; absent: the one that Pennant runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// The application object.
    pub app: AppObject,
}

/// Which application object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppObject {
    /// API version.
    #[schemars(length(max = 512))]
    pub api_version: String,
    /// Kind.
    #[schemars(length(max = 253))]
    pub kind: String,
    /// Name.
    #[schemars(length(max = 253))]
    pub name: String,
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// The receiver answered 2xx.
    Delivered,
    /// The receiver refused it for good, or it grew too old.
    Parked,
    /// Its pipeline, target or notification is gone.
    Canceled,
    /// A later one about the same subject was sent in its place.
    Superseded,
}

impl Outcome {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "Delivered",
            Self::Parked => "Parked",
            Self::Canceled => "Canceled",
            Self::Superseded => "Superseded",
        }
    }
}

/// What became of a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryStatus {
    /// How it ended; absent while pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why it waits, was parked or canceled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Requests made.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub attempts: i64,
    /// HTTP status of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    /// When the last request was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_attempt_time: Option<Time>,
    /// When the next one is due; read after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub next_attempt_time: Option<Time>,
    /// When the outcome was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub settled_time: Option<Time>,
    /// How long the last request took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_millis: Option<i64>,
    /// The last error, without anything secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The first 256 bytes of the last answer, printable characters only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// How many earlier ones it replaces; written before the first attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub superseded: i64,
    /// The redeliver annotation that was last acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redelivered: Option<Redelivered>,
}

/// A redelivery that was asked for with the annotation [`REDELIVER`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Redelivered {
    /// The annotation's value; one that is long is cut, with a hash.
    pub value: String,
    /// When it was acted on.
    #[schemars(with = "String")]
    pub time: Time,
}

/// The annotation of a settled Delivery whose every new value sends it again.
pub const REDELIVER: &str = "pennant.dev/redeliver";

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(number: &i64) -> bool {
    *number == 0
}
