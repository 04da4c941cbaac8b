//! `Delivery`: one recorded transition that is sent to one endpoint, and afterwards an entry of the audit.
//!
//! Only Relaybook writes spec and status. Users annotate it, label it, read it or delete it. It has no owner reference, because the audit
//! outlives its cause.
//!
//! The CRD has no status subresource (`api::crd`), so that one create can contain the outcome. So a client with the permission to patch
//! Deliveries can also send a status. Rules of the schema reject changes of the spec, and changes of the status after the outcome.
//! The chart's admission policy rejects all other changes of the status by clients other than Relaybook.

mod identity;
mod reason;

use std::collections::BTreeMap;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;
use super::pipeline::State;
use super::pipeline::source::TargetOrigin;
use super::values::refs::ClusterRef;
pub use super::values::transition::{Family, SubjectKind, TransitionType};
pub use identity::{TEST_LANE, name, webhook_id};
pub use reason::Reason;

/// The label with the namespace of the pipeline. The Delivery itself is where its URL is written, which can be another namespace.
pub const PIPELINE_NAMESPACE: &str = concat!(group!(), "/pipeline-namespace");

/// The label of Deliveries that record tests. Lists of deliveries that need attention exclude it.
pub const TEST_LABEL: &str = concat!(group!(), "/test");

/// Replaces the uid of a notification that has a cluster-wide notification as a layer. Such a notification has no uid of its own.
pub const GLOBAL: &str = "global";

/// Whether two uids of notifications with the same name mean the same notification. If one of them is [`GLOBAL`], they do: the name
/// is the identity, and a notification continues when a cluster-wide layer below it is added or removed. Only a Notification that was
/// deleted and created again is a different notification.
#[must_use]
pub fn is_same_notification(one: &str, other: &str) -> bool {
    one == other || one == GLOBAL || other == GLOBAL
}

/// One recorded transition.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "relaybook.dev",
    version = "v1alpha1",
    crates(kube_core = "kube_core"),
    kind = "Delivery",
    plural = "deliveries",
    namespaced,
    status = "DeliveryStatus",
    shortname = "dlv",
    category = "relaybook",
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
    /// Uid of the notification. A notification that is created again under the same name is a different one and does not send this
    /// delivery. `global` if a cluster-wide notification is one of its layers.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub notification_uid: String,
    /// The pipeline whose change is reported.
    pub pipeline_ref: PipelineRef,
    /// The subject that changed.
    pub subject: Subject,
    /// The lane within the pipeline and the notification: the subject, or `pipeline`. Deliveries of a lane are sent in order.
    #[schemars(length(min = 1, max = 512))]
    pub lane: String,
    /// Position in the lane: the serial of the change. If the trigger has a `for`, the serial of the newest change before `due`.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub order: i64,
    /// When the state had lasted for the time in `for` of the trigger. Absent if the trigger has no `for`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub due: Option<Time>,
    /// Serial of the change that the delivery reports.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// The type of the transition.
    #[serde(rename = "type")]
    pub type_: TransitionType,
    /// When the change was observed.
    #[schemars(with = "String")]
    pub time: Time,
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// Whether several changes were merged into one before the delivery was recorded.
    #[serde(default, skip_serializing_if = "super::pipeline::is_false")]
    pub coalesced: bool,
    /// Why the delivery is parked and not sent: the `when` expression of the trigger could not be evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub error: Option<String>,
    /// Whether it is a test that a user has requested. A test has a lane of its own, one attempt, and is in no count.
    #[serde(default, skip_serializing_if = "super::pipeline::is_false")]
    pub test: bool,
}

/// The pipeline of a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRef {
    /// Namespace of the pipeline.
    #[schemars(length(max = 253))]
    pub namespace: String,
    /// Name of the pipeline.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Uid of the pipeline. A pipeline that is created again under the same name is a different one.
    #[schemars(length(max = 128))]
    pub uid: String,
}

/// What a transition is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// Kind of the subject.
    pub kind: SubjectKind,
    /// Display name. For a target: `ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` if the target names another application. Otherwise
    /// the name of the cluster, the environment or the pipeline.
    #[schemars(length(max = 1024))]
    pub name: String,
    /// The environment. Empty for a cluster and for the pipeline.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub environment: String,
    /// The cluster, if `kind` is `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// The target, if `kind` is `Target`.
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
    /// Name of the cluster.
    #[schemars(length(max = 1024))]
    pub cluster: String,
    /// The cluster. If absent, the cluster that Relaybook runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// The application object.
    pub app: AppObject,
    /// The object that the target comes from, if `targetsFrom` has generated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<TargetOrigin>,
}

/// Reference to an application object.
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

words! {
    /// How a delivery ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    pub enum Outcome {
        /// The receiver answered 2xx.
        Delivered,
        /// The receiver refused the delivery permanently, the delivery became too old, or its data could not be evaluated or rendered.
        Parked,
        /// The pipeline, target or notification of the delivery no longer exists, or its revision contains no commit to report about.
        Canceled,
        /// A later delivery about the same subject replaced it.
        Superseded,
    }
}

/// The state of a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryStatus {
    /// How the delivery ended. Absent while it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why the delivery waits, or why it was parked, canceled or superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of attempts.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub attempts: i64,
    /// HTTP status of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    /// When the last request was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_attempt_time: Option<Time>,
    /// When the next request is due. Relaybook reads it after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub next_attempt_time: Option<Time>,
    /// When the delivery was settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub settled_time: Option<Time>,
    /// How long the last request took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_duration_millis: Option<i64>,
    /// The last error, without secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The first 256 bytes of the last answer, printable characters only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Number of earlier deliveries that this delivery replaces. Written before the first attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub superseded: i64,
    /// The redeliver annotation that Relaybook last acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redelivered: Option<Redelivered>,
    /// The message that this delivery created or continued, if later deliveries can continue it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<MessageThread>,
}

/// The message of a delivery, as later deliveries about the same subject need it. It is written together with the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageThread {
    /// A hash of the key, of the notification, and of what it remembers. Only deliveries with the same hash continue the message.
    #[schemars(length(max = 64))]
    pub key: String,
    /// What identifies the message at a receiver that lists its messages.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub id: String,
    /// A hash of the receiver's origin and of the keys of Secrets with its URL and credentials. The values are sent only there.
    #[schemars(length(max = 64))]
    pub origin: String,
    /// Until when the message is continued.
    #[schemars(with = "String")]
    pub expiration_time: Time,
    /// Whether this delivery has ended the message, so that the next one creates another message.
    #[serde(default, skip_serializing_if = "super::pipeline::is_false")]
    pub closed: bool,
    /// Values of the receiver's answers, such as the ID of the message. Without secrets.
    #[schemars(extend("maxProperties" = 8), schema_with = "remembered")]
    pub values: BTreeMap<String, String>,
}

/// Returns the schema of remembered values.
fn remembered(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 512},
    })
}

impl DeliveryStatus {
    /// Returns the reason. `None`: there is none, or another version of Relaybook wrote one that this version does not have.
    #[must_use]
    pub fn known_reason(&self) -> Option<Reason> {
        Reason::parse(self.reason.as_deref()?)
    }
}

/// A redelivery that was requested with the annotation `relaybook.dev/redeliver`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Redelivered {
    /// Value of the annotation. If it has more than 128 characters, its first 128 and a hash.
    pub value: String,
    /// When Relaybook acted on it.
    #[schemars(with = "String")]
    pub time: Time,
}

/// The annotation for a redelivery: each new value on a settled Delivery sends the Delivery again.
pub const REDELIVER: &str = concat!(group!(), "/redeliver");

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(number: &i64) -> bool {
    *number == 0
}
