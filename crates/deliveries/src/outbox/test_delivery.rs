//! Sends the Delivery of a test. It is recorded first, and sent once. It is in no lane, no order and no count.
//!
//! In: the sample of a transition, and the notification with which it is sent. Out: the Delivery with its outcome. The engine ignores the
//! Deliveries of tests. So only the process that has recorded such a Delivery sends it, and no client can make Relaybook send one that it
//! has created itself. If that process ends, the outcome is Canceled with reason `TestInterrupted`, and nothing is sent again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;

use super::Deliveries;
use super::attempt::decide;
use super::attempt::request::{Around, Built, build};
use super::driver::parts::Parts;
use super::driver::tasks::{look_up_apart, send_apart};
use super::record::{Record, name};
use super::send_gate::index::PipelineFacts;
use super::store::journal::{JournalError, New, Written};
use relaybook_api::delivery::Reason;
use relaybook_api::{DeliverySpec, DeliveryStatus, ObjectName, Outcome, Time, now, since_boot};
use relaybook_egress::{Attempt, AttemptResult, NotSent};
use relaybook_runtime::tenure::{Tenure, Unowned};
use relaybook_settings::config::Sending;

/// The header of each request of a test.
const TEST: HeaderName = HeaderName::from_static("relaybook-test");
/// The longest time for the request, and for the one that closes an alert.
const LONGEST: Duration = Duration::from_secs(20);
const CLOSING: Duration = Duration::from_secs(5);
/// How long a test waits for a Secret that was not read yet, and how often it checks.
const SECRET: Duration = Duration::from_secs(5);
const CHECK: Duration = Duration::from_millis(200);
/// How long the Delivery of a test is kept.
const KEPT: Duration = Duration::from_hours(1);
/// Maximum number of Deliveries of tests that are remembered, and deleted when they expire.
const MOST_KEPT: usize = 10_000;
/// How often the outcome is written before the test ends without it.
const WRITES: u32 = 5;

/// What a test sends.
pub struct TestSend<'a> {
    /// The sample.
    pub spec: DeliverySpec,
    /// The sample of a second request, which closes the alert that the first one has opened.
    pub closes: Option<DeliverySpec>,
    /// The namespace in which the Delivery is stored.
    pub home: &'a str,
    /// The namespace of the Notification, whose status shows the result.
    pub shown_in: &'a str,
    /// How it is sent.
    pub sending: &'a Sending,
    /// The pipeline.
    pub facts: &'a PipelineFacts,
}

/// A test that is over.
pub struct Tested {
    /// The Delivery that records it.
    pub id: ObjectName,
    /// What it reports.
    pub spec: Arc<DeliverySpec>,
    /// Its status.
    pub status: DeliveryStatus,
    /// Whether the outcome could not be written to the Delivery.
    pub is_unwritten: bool,
}

/// The Deliveries of tests that exist, with the time when each was recorded; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TestsKept(Arc<Mutex<HashMap<ObjectName, Time>>>);

impl TestsKept {
    /// Notes a Delivery of a test.
    pub fn seen(&self, record: &Record) {
        let mut kept = self.0.lock();
        if kept.len() < MOST_KEPT {
            kept.insert(record.id.clone(), record.recorded);
        }
    }

    /// Notes that it does not exist any more.
    pub fn gone(&self, id: &ObjectName) {
        self.0.lock().remove(id);
    }

    /// Returns those that were kept long enough.
    #[must_use]
    pub fn expired(&self, now: Time) -> Vec<ObjectName> {
        let kept = self.0.lock();
        kept.iter()
            .filter(|(_, recorded)| Duration::try_from(now.duration_since(**recorded)).is_ok_and(|age| age > KEPT))
            .map(|(id, _)| id.clone())
            .collect()
    }
}

impl Deliveries {
    /// Records a test, sends it once, and writes its outcome. `tenure`: of the bucket of the Notification. `None`: it is recorded already, so another process has sent it.
    pub async fn test(&self, tenure: &Tenure, test: TestSend<'_>) -> Result<Option<Tested>, JournalError> {
        let new = New { namespace: test.home.to_owned(), elsewhere: None, spec: Arc::new(test.spec.clone()) };
        let Some(record) = self.parts.journal.create_test(tenure.into(), &new).await? else { return Ok(None) };
        let mut status = match request(&self.parts, &record, &test, LONGEST).await {
            Err((outcome, reason, error)) => decide::unsendable(&record.status, outcome, reason, &error, now()).0,
            Ok(attempt) => decide::tested(&record.status, &attempt, now()),
        };
        // Without an answer, the receiver can have opened the alert, too.
        if status.attempts > 0
            && let Some(error) = self.close(&record, &test).await
        {
            status.error = Some(format!("the request that closes the alert failed: {error}"));
        }
        Ok(Some(self.write_test(record, status).await))
    }

    /// Returns the Delivery of a test that was begun before, in one of these namespaces.
    pub async fn begun_test(&self, spec_name: &str, namespaces: &[String]) -> Result<Option<Record>, JournalError> {
        for namespace in namespaces {
            let found = self.parts.journal.read(&ObjectName::new(namespace, spec_name)).await?;
            if let Some(found) = found.filter(|found| found.spec.test && name(&found.spec) == spec_name) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Ends a test whose process has stopped. Its request may have been sent, so only the one that closes its alert follows.
    pub async fn end_test(&self, known: Record, closing: Option<TestSend<'_>>) -> Tested {
        if known.status.outcome.is_some() {
            return tested(known, false);
        }
        if let Some(closing) = closing.filter(|closing| closing.spec.subject == known.spec.subject) {
            let _ = self.close(&known, &closing).await;
        }
        let status = decide::canceled(&known.status, Reason::TestInterrupted, now());
        self.write_test(known, status).await
    }

    /// Sends the request that closes the alert of a test, if there is one. Returns its error.
    async fn close(&self, record: &Record, test: &TestSend<'_>) -> Option<String> {
        let closing = Record { spec: Arc::new(test.closes.clone()?), ..record.clone() };
        match request(&self.parts, &closing, test, CLOSING).await {
            Ok(attempt) => attempt.error(),
            Err((_, _, error)) => Some(error),
        }
    }

    async fn write_test(&self, mut record: Record, status: DeliveryStatus) -> Tested {
        for tries in 1.. {
            match self.parts.journal.write(Unowned::Outcome.into(), &record, &status).await {
                Ok(Written::Stored { status, .. }) => return tested(Record { status: *status, ..record }, false),
                Ok(Written::Overtaken(live) | Written::Reopened(live)) => return tested(*live, false),
                // A user has deleted the record. The result is still true.
                Ok(Written::Gone(_)) => return tested(Record { status, ..record }, false),
                Ok(Written::Annotated(_)) | Err(_) if tries >= WRITES => break,
                // A user has requested a redelivery, which a test does not have.
                Ok(Written::Annotated(live)) => record = *live,
                Err(error) => {
                    tracing::warn!(error = %error.detail(), delivery = %record.id.name, "could not write the outcome of a test; retrying");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        tested(Record { status, ..record }, true)
    }
}

fn tested(record: Record, is_unwritten: bool) -> Tested {
    Tested { id: record.id, spec: record.spec, status: record.status, is_unwritten }
}

/// Makes one request. `Err`: it cannot be rendered.
async fn request(
    parts: &Parts,
    record: &Record,
    test: &TestSend<'_>,
    longest: Duration,
) -> Result<Attempt, (Outcome, Reason, String)> {
    let web = parts.pipeline_index.web();
    let looked_up = look_up_apart(parts, test.sending, &web, &record.spec).await;
    let page = parts.page_url.as_ref();
    let around = Around { facts: test.facts, cluster: &parts.cluster_name, page, web: &web, looked_up: looked_up.as_ref() };
    let given_up = since_boot() + SECRET;
    loop {
        let until = since_boot() + longest;
        let Built { mut outgoing, .. } = build(record, test.sending, around, None, until)
            .map_err(|error| (error.outcome().unwrap_or(Outcome::Parked), error.reason(), error.to_string()))?;
        outgoing.is_test = true;
        outgoing.headers.retain(|(name, _)| *name != TEST);
        outgoing.headers.push((TEST, HeaderValue::from_static("true")));
        outgoing.timeout = outgoing.timeout.min(longest);
        // The status of the Notification has other readers than the Delivery.
        let is_foreign = |namespace: String| namespace != test.shown_in;
        outgoing.withhold_answer |= test.home != test.shown_in || test.sending.credentials_from().any(is_foreign);
        let attempt = send_apart(parts, outgoing).await;
        if !matches!(attempt.result, AttemptResult::NotSent(NotSent::SecretUnknown(_))) || since_boot() >= given_up {
            return Ok(attempt);
        }
        tokio::time::sleep(CHECK).await;
    }
}
