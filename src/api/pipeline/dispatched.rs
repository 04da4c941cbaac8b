//! The dispatcher's part of a pipeline's status: how far it has come, and what was sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Time;
use crate::api::values::transition::TransitionType;

/// How far the dispatcher has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dispatched {
    /// One for each notification that applies.
    #[serde(default)]
    pub cursors: Vec<Cursor>,
    /// Clocks that run: transitions that are reported when their state has held for as long as their trigger says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub armed: Vec<Armed>,
    /// For each subject, the last successful delivery: when, and by which notification.
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
    /// When the newest Delivery for this pipeline was created, by the clock of the API server. A Delivery that was created later and
    /// that no change in the log explains was not recorded by Pennant, and is never sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub recorded: Option<Time>,
    /// Notifications that something is wrong with for a target, or for all; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notifications: Vec<InTrouble>,
}

/// A notification that cannot be sent as things are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InTrouble {
    /// Name of the notification.
    pub name: String,
    /// The environment; absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The target, as the change log names it after `target/`; absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Always `false`; what is ready is not listed.
    pub ready: bool,
    /// One word on why.
    pub reason: String,
    /// Layer, field and remedy.
    pub message: String,
}

/// How far into the change log one notification has been taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cursor {
    /// Name of the notification.
    pub notification: String,
    /// Serial of the last change that was taken.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// Uid of the Notification: one made again under the same name begins anew.
    #[serde(default)]
    pub uid: String,
    /// When a receiver last answered 2xx to this notification for this pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_sent_time: Option<Time>,
}

/// A transition that waits for its state to have held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Armed {
    /// Name of the notification.
    pub notification: String,
    /// The subject, as in the change log.
    pub subject: String,
    /// The change, which stays in the log meanwhile.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub serial: i64,
    /// What the change means.
    #[serde(rename = "type")]
    pub type_: TransitionType,
    /// When it is reported if nothing comes between.
    #[schemars(with = "String")]
    pub due: Time,
}

/// The last success about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastSent {
    /// The subject, as in the change log.
    pub subject: String,
    /// When a receiver last answered 2xx about it.
    #[schemars(with = "String")]
    pub time: Time,
    /// The notification that the receiver answered to; empty in a status that an earlier version wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notification: String,
}
