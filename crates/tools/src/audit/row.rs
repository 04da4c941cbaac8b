//! One delivery, as the audit shows it to users and programs.

use http::StatusCode;
use kube::ResourceExt as _;
use serde::{Serialize, Serializer};

use relaybook_api::{Delivery, DeliveryStatus, Outcome, Time, TransitionType};

/// One delivery. Most fields have the same names as in the audit log. The fields that the table of `relaybook audit` shows have the names of
/// its columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Name of the Delivery.
    pub name: String,
    /// Namespace of the Delivery.
    pub namespace: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Name of the notification.
    pub notification: String,
    /// Name of the subject: a target, a cluster, an environment or the pipeline.
    pub subject: String,
    /// The transition.
    #[serde(rename = "type")]
    pub type_: TransitionType,
    /// Whether it is a test that a user has requested.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub test: bool,
    /// The revision that the transition is about.
    pub revision: String,
    /// How the delivery ended. `None` while it is pending; JSON output shows this as `Pending`.
    #[serde(serialize_with = "state")]
    pub outcome: Option<Outcome>,
    /// Why the delivery waits, or why it was parked or canceled.
    pub reason: Option<String>,
    /// The last answer: its status, and the recorded beginning of its body.
    pub answer: Option<String>,
    /// HTTP status of the last answer.
    pub code: Option<u16>,
    /// Number of requests that were made.
    pub attempts: i64,
    /// Number of earlier deliveries that this delivery replaces.
    pub superseded: i64,
    /// When the delivery was recorded.
    pub recorded: Option<Time>,
    /// When the last request was started.
    pub last_attempt: Option<Time>,
    /// When the next request is due.
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
            name,
            namespace,
            pipeline: spec.pipeline_ref.name,
            notification: spec.notification,
            subject: spec.subject.name,
            type_: spec.type_,
            test: spec.test,
            revision: spec.to.revision,
            outcome: status.outcome,
            answer: answer(&status),
            reason: status.reason,
            code: status.status_code,
            attempts: status.attempts,
            superseded: status.superseded,
            recorded,
            last_attempt: status.last_attempt_time,
            next_attempt: status.next_attempt_time,
            settled: status.settled_time,
            duration_millis: status.last_duration_millis,
            error: status.error,
            response: status.response,
        }
    }
}

impl Row {
    /// Returns the time of the last event: the record, the start of the last request, or the outcome.
    #[must_use]
    pub fn last(&self) -> Option<Time> {
        self.recorded.max(self.last_attempt).max(self.settled)
    }

    /// Returns the type for people, which says whether it is a test.
    #[must_use]
    pub fn kind(&self) -> String {
        let test = if self.test { " (test)" } else { "" };
        format!("{}{test}", self.type_.as_str())
    }

    /// Returns `Pending`, or the outcome.
    #[must_use]
    pub fn state(&self) -> &'static str {
        word(self.outcome)
    }

    /// Returns why the delivery waits, or why it was parked or canceled: the reason, and the last error unless the answer contains it.
    #[must_use]
    pub fn why(&self) -> String {
        let is_status = |error: &&String| self.answer.as_ref().is_some_and(|answer| answer.starts_with(error.as_str()));
        let error = self.error.as_ref().filter(|error| !is_status(error));
        [self.reason.as_ref(), error].into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(": ")
    }
}

fn word(outcome: Option<Outcome>) -> &'static str {
    outcome.map_or("Pending", Outcome::as_str)
}

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn state<S: Serializer>(outcome: &Option<Outcome>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(word(*outcome))
}

fn answer(status: &DeliveryStatus) -> Option<String> {
    let code = status.status_code?;
    let words = StatusCode::from_u16(code).ok().and_then(|status| status.canonical_reason());
    let line = words.map_or_else(|| code.to_string(), |words| format!("{code} {words}"));
    let body = status.response.as_deref().filter(|body| !body.is_empty());
    Some(body.map_or_else(|| line.clone(), |body| format!("{line}: {body}")))
}

/// Sorts rows by the time of their last event, the newest first. At equal times, the newest row of a lane is first.
pub fn newest_first(rows: &mut [Row]) {
    rows.sort_by(|a, b| (b.last(), &b.name, &b.namespace).cmp(&(a.last(), &a.name, &a.namespace)));
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1;
    use serde_json::json;

    use super::*;

    fn row(name: &str, recorded: i64, status: DeliveryStatus) -> Row {
        let mut delivery = Delivery::new(name, relaybook_api::testing::spec(1));
        delivery.metadata.creation_timestamp = Some(v1::Time(Time::from_second(recorded).unwrap()));
        delivery.status = Some(status);
        delivery.into()
    }

    #[test]
    fn a_row_says_the_outcome_the_answer_and_why() {
        let status = |code: Option<u16>, response: Option<&str>, reason: Option<&str>, error: Option<&str>| {
            let text = |text: Option<&str>| text.map(ToOwned::to_owned);
            let (response, reason, error) = (text(response), text(reason), text(error));
            DeliveryStatus { status_code: code, response, reason, error, ..DeliveryStatus::default() }
        };
        for (status, answer, why) in [
            (status(None, None, None, None), None, ""),
            (status(Some(200), Some("thanks"), None, None), Some("200 OK: thanks"), ""),
            (status(Some(204), None, None, None), Some("204 No Content"), ""),
            (status(Some(599), Some("\n"), None, Some("599")), Some("599: \n"), ""),
            (
                status(Some(400), Some("nope"), Some("ReceiverRejected"), Some("400 Bad Request")),
                Some("400 Bad Request: nope"),
                "ReceiverRejected",
            ),
            (
                status(Some(503), None, Some("SecretMissing"), Some("Secret a/b does not exist")),
                Some("503 Service Unavailable"),
                "SecretMissing: Secret a/b does not exist",
            ),
            (status(None, None, Some("DnsFailed"), Some("no address")), None, "DnsFailed: no address"),
        ] {
            let row = row("d", 1, status);
            assert_eq!((row.answer.as_deref(), row.why().as_str()), (answer, why));
            let told = serde_json::to_value(&row).unwrap();
            assert_eq!((&told["outcome"], &told["name"], &told["answer"]), (&json!("Pending"), &json!("d"), &json!(answer)));
        }
        let settled = DeliveryStatus { outcome: Some(Outcome::Parked), ..DeliveryStatus::default() };
        assert_eq!(serde_json::to_value(row("d", 1, settled)).unwrap()["outcome"], "Parked");
    }

    #[test]
    fn the_newest_deliveries_come_first() {
        let at = |second| Some(Time::from_second(second).unwrap());
        let tried = DeliveryStatus { last_attempt_time: at(50), ..DeliveryStatus::default() };
        let settled = DeliveryStatus { settled_time: at(40), ..tried.clone() };
        let mut rows = vec![
            row("a-1", 30, DeliveryStatus::default()),
            row("a-2", 30, DeliveryStatus::default()),
            row("b-1", 10, tried),
            row("c-1", 60, DeliveryStatus::default()),
            row("d-1", 20, settled),
        ];
        newest_first(&mut rows);
        let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["c-1", "d-1", "b-1", "a-2", "a-1"]);
    }
}
