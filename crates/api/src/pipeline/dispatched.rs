//! The dispatcher's part of a pipeline's status: its progress, and what was sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::values::transition::TransitionType;

/// The progress of the dispatcher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dispatched {
    /// One cursor for each notification that applies to the pipeline.
    #[serde(default)]
    pub cursors: Vec<Cursor>,
    /// Running timers: transitions that are reported when their state has lasted for the time in `for` of the trigger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub armed: Vec<RunningTimer>,
    /// The last successful delivery for each subject, with its time and notification.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_sent: Vec<LastSent>,
    /// When a receiver last answered 2xx for any subject of this pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_sent_time: Option<Time>,
    /// The notification of that delivery.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_sent_by: String,
    /// `lastSent` of the targets in one line, newest first, for `kubectl get -o wide`; at most 512 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_sent_summary: String,
    /// When the newest Delivery for this pipeline was created, by the clock of the API server. A later Delivery that does not match
    /// a change in the log was not recorded by Relaybook. Relaybook never sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub recorded: Option<Time>,
    /// The shard that handles the pipeline. If absent, the shard without an ID. When the label of the pipeline names another shard, this one
    /// ends its work, and then writes the other one here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub shard: Option<String>,
    /// Targets whose object is gone and that have pending deliveries, each as in the change log. Generated targets stay in the status until
    /// these are settled, and a pipeline that a `PipelineSet` made stays until then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_targets: Vec<String>,
    /// Notifications that have a problem for one target or for all targets. At most 100 entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notifications: Vec<NotReadyNotification>,
}

/// A notification that cannot be sent at present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotReadyNotification {
    /// Name of the notification.
    pub name: String,
    /// The environment. If absent, all environments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The target: its name in the change log after `target/`. If absent, all targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Always `false`. Notifications that are ready are not listed.
    pub ready: bool,
    /// Machine-readable reason: one word.
    pub reason: String,
    /// Human-readable message with layer, field and remedy.
    pub message: String,
}

/// How far one notification has read the change log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cursor {
    /// Name of the notification.
    pub notification: String,
    /// Serial of the last change that was read.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// Uid of the Notification. A Notification that is created again under the same name gets a new cursor.
    #[serde(default)]
    pub uid: String,
    /// When a receiver last answered 2xx to this notification for this pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_sent_time: Option<Time>,
}

/// A transition whose timer is running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningTimer {
    /// Name of the notification.
    pub notification: String,
    /// The subject, as in the change log.
    pub subject: String,
    /// Serial of the change. The change stays in the log while the timer runs.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// The type of the transition.
    #[serde(rename = "type")]
    pub type_: TransitionType,
    /// When the transition is reported, unless its state ends earlier.
    #[schemars(with = "String")]
    pub due: Time,
}

/// The last successful delivery about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastSent {
    /// The subject, as in the change log.
    pub subject: String,
    /// When a receiver last answered 2xx about it.
    #[schemars(with = "String")]
    pub time: Time,
    /// The notification that the receiver answered. Empty in a status that an earlier version wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notification: String,
}
