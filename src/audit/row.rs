//! One delivery, as it is told to people and programs.

use kube::ResourceExt as _;
use serde::Serialize;

use crate::api::{Delivery, Outcome, Time, TransitionType};

/// One delivery. The names of the fields are those of the audit log, as far as that has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Name of the Delivery.
    pub delivery: String,
    /// Its namespace.
    pub namespace: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Name of the notification.
    pub notification: String,
    /// What it is about.
    pub subject: String,
    /// The transition.
    #[serde(rename = "type")]
    pub type_: TransitionType,
    /// The revision that the transition is about.
    pub revision: String,
    /// How it ended; none while it is pending.
    pub outcome: Option<Outcome>,
    /// Why it waits, was parked or canceled.
    pub reason: Option<String>,
    /// HTTP status of the last answer.
    pub code: Option<u16>,
    /// Requests made.
    pub attempts: i64,
    /// How many earlier ones it replaces.
    pub superseded: i64,
    /// When it was recorded.
    pub recorded: Option<Time>,
    /// When the last request was begun.
    pub last_attempt: Option<Time>,
    /// When the next one is due.
    pub next_attempt: Option<Time>,
    /// When the outcome was known.
    pub settled: Option<Time>,
    /// How long the last request took.
    pub duration_millis: Option<i64>,
    /// The last error.
    pub error: Option<String>,
    /// The beginning of the last answer.
    pub response: Option<String>,
}

impl From<Delivery> for Row {
    fn from(delivery: Delivery) -> Self {
        let (name, namespace) = (delivery.name_any(), delivery.namespace().unwrap_or_default());
        let recorded = delivery.metadata.creation_timestamp.map(|time| time.0);
        let (spec, status) = (delivery.spec, delivery.status.unwrap_or_default());
        Self {
            delivery: name,
            namespace,
            pipeline: spec.pipeline_ref.name,
            notification: spec.notification,
            subject: spec.subject.name,
            type_: spec.type_,
            revision: spec.to.revision,
            outcome: status.outcome,
            reason: status.reason,
            code: status.status_code,
            attempts: status.attempts,
            superseded: status.superseded,
            recorded,
            last_attempt: status.last_attempt_time,
            next_attempt: status.next_attempt_time,
            settled: status.settled_time,
            duration_millis: status.duration_millis,
            error: status.error,
            response: status.response,
        }
    }
}

impl Row {
    /// When something last happened to it.
    #[must_use]
    pub fn last(&self) -> Option<Time> {
        self.recorded.max(self.last_attempt).max(self.settled)
    }

    /// `Pending`, or how it ended.
    #[must_use]
    pub fn state(&self) -> &'static str {
        self.outcome.map_or("Pending", Outcome::as_str)
    }
}
