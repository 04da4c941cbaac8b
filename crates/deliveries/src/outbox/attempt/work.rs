//! The work on one delivery, from the time when its lane starts it until its write is answered.
//!
//! In: a record and what has to be done with it. Out: [`Worked`]. The work runs in a separate task and does not access the engine's data.
//! The pure functions of `decide` make all decisions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::decide::{self, At, Then};
use super::request::{Around, build};
use crate::outbox::direct::Direct;
use crate::outbox::lane::After;
use crate::outbox::lane::redeliver;
use crate::outbox::record::Record;
use crate::outbox::scheduler::effect::Now;
use crate::outbox::scheduler::fair_queue::AttemptOutcome;
use crate::outbox::send_gate::index;
use crate::outbox::send_gate::index::{Gone, PipelineFacts, SendDecision};
use crate::outbox::send_gate::live_check;
use crate::outbox::store::delivery_index::DeliveryIndex;
use crate::outbox::store::journal::Journal;
use crate::outbox::test_delivery::TestsKept;
use crate::outbox::trace::Call;
use relaybook_api::delivery::Reason;
use relaybook_api::values::permalink::PageUrl;
use relaybook_api::{DeliveryStatus, Outcome};
use relaybook_egress::{Attempt, AttemptResult, Outgoing, Sender};
use relaybook_runtime::call::CallError;
use relaybook_runtime::leader::Lease;
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_settings::config;
use relaybook_settings::config::{EffectiveNotification, Retry, Sending};
use relaybook_telemetry::{Metrics, Tracer, chain};

/// Pause after a check for a deleted object that found the object, or that failed. The watches catch up in this time.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The components that the engine's tasks use.
#[derive(Clone)]
pub struct Parts {
    /// Shows whether this replica is the leader.
    pub lease: Lease,
    /// The store of deliveries.
    pub journal: Journal,
    /// The index that decides what can be sent.
    pub pipeline_index: index::PipelineIndex,
    /// The index of all deliveries.
    pub delivery_index: DeliveryIndex,
    /// Sends the requests.
    pub sender: Arc<Sender>,
    /// The runtime on which requests are sent.
    pub sending: Handle,
    /// Client for live reads.
    pub client: kube::Client,
    /// The name of the local cluster.
    pub cluster_name: String,
    /// The URL of the audit page, for links in requests.
    pub page_url: Option<PageUrl>,
    /// Metrics.
    pub metrics: Metrics,
    /// Traces.
    pub tracer: Tracer,
    /// The deliveries that are not recorded yet, with those who wait for that.
    pub direct: Direct,
    /// The Deliveries of tests, until they are deleted.
    pub tests_kept: TestsKept,
    /// Limits the concurrent writes of outcomes.
    pub outcomes: NamespaceLimiter,
    /// Limits the concurrent writes of failed attempts that are retried. These writes are not urgent, and a receiver that hangs causes many
    /// of them at once, because its timeouts end together.
    pub failures: NamespaceLimiter,
    /// Limits the concurrent calls for deliveries that are not sent: they wait, are canceled or are reopened.
    pub aside: NamespaceLimiter,
}

impl Parts {
    /// Returns the origin of a receiver, even if its URL is in a Secret. All lanes to this receiver share the origin.
    pub fn origin(&self, sending: &Sending) -> String {
        let destination = match &sending.destination {
            config::Destination::Url(url) => Url::parse(url.origin()).map(relaybook_egress::Destination::Url).ok(),
            config::Destination::Secret(key) => Some(relaybook_egress::Destination::Secret(key.clone())),
        };
        // If the Secret has not been read yet, only the name of the Secret is known.
        destination.and_then(|destination| self.sender.origin(&destination)).unwrap_or_else(|| sending.origin())
    }
}

/// The decision about a delivery, after an attempt or without one. It still has to be written.
#[derive(Debug)]
pub struct Decided {
    pub(super) record: Record,
    pub(super) status: DeliveryStatus,
    pub(super) after: After,
}

impl Decided {
    /// Decides that only the status has to be written. The lane can take the delivery again at once.
    pub fn noted(record: Record, status: DeliveryStatus) -> Self {
        Self { record, status, after: After::Nothing }
    }

    /// Decides that the outcome Superseded has to be written.
    pub fn superseded(record: Record, status: DeliveryStatus) -> Self {
        Self { record, status, after: After::Settled { answered: false } }
    }

    /// Returns the record as it was before the decision.
    pub fn into_record(self) -> Record {
        self.record
    }

    /// Skips the status write after a failed probe of an origin that is already known to be unreachable. Returns `Err` if the status must
    /// be written.
    pub fn skip_write(self) -> Result<Box<Worked>, Box<Self>> {
        if !self.is_retried() || !self.record.is_recorded() {
            return Err(Box::new(self));
        }
        let Self { record, status, after } = self;
        let record = Record { status, unwritten: true, ..record };
        Ok(Box::new(Worked { record, after, gone: false, instead: None, is_written: false }))
    }

    /// Returns how long the last request took.
    pub fn took(&self) -> Option<Duration> {
        self.status.last_duration_millis.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis)
    }

    /// Takes over the object that now records the delivery, if there was none before.
    pub fn adopt(&mut self, known: &Record) {
        if !self.record.is_recorded() && known.is_recorded() && self.record.id == known.id {
            self.record.adopt(known);
        }
    }

    /// Returns what was decided.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> (&Record, &DeliveryStatus, After) {
        (&self.record, &self.status, self.after)
    }

    /// Returns whether the attempt failed and is retried.
    pub fn is_retried(&self) -> bool {
        matches!(self.after, After::Retry { .. })
    }

    fn new(record: Record, (status, then): (DeliveryStatus, Then), now: Now) -> Self {
        let status = redeliver::noted(&record, status, now.wall);
        let after = match then {
            Then::Settle { answered } => After::Settled { answered },
            Then::Retry { after, asked } => After::Retry { until: now.mono + after, asked },
            Then::Hold { after } => After::Hold { until: after.map(|a| now.mono + a) },
        };
        Self { record, status, after }
    }
}

#[cfg(feature = "broken")]
impl Decided {
    /// Returns the result as if the status were written.
    pub fn unwritten(&self) -> Option<Worked> {
        let record = Record { status: self.status.clone(), ..self.record.clone() };
        let settled = matches!(self.after, After::Settled { .. });
        settled.then_some(Worked { record, after: self.after, gone: false, instead: None, is_written: true })
    }
}

/// The result of work that has ended.
#[derive(Debug)]
pub struct Worked {
    /// The record in its current state.
    pub record: Record,
    /// What the lane does next.
    pub after: After,
    /// Whether the object was deleted meanwhile.
    pub gone: bool,
    /// The object that now has the same name.
    pub instead: Option<Box<Record>>,
    /// Whether a new status was written.
    pub is_written: bool,
}

/// Makes one attempt, which ends at `until`, by the clock since boot. Also returns what the attempt shows about the receiver.
pub async fn attempt(
    parts: Parts,
    record: Record,
    notification: Arc<EffectiveNotification>,
    facts: Arc<PipelineFacts>,
    failures: u32,
    until: Duration,
) -> (Decided, AttemptOutcome) {
    if record.refusal().is_some() {
        return (refuse(record, Now::read()), AttemptOutcome::Nothing);
    }
    let blocked = |record: Record, reason, message: &str| {
        let retry = Some(&notification.delivery.retry);
        (wait(record, reason, message, retry, failures, fastrand::f64(), Now::read()), AttemptOutcome::Nothing)
    };
    let how = match &notification.sending {
        Ok(how) => how,
        Err(problem) => return blocked(record, problem.reason(), &problem.to_string()),
    };
    let around = Around { facts: &facts, cluster: &parts.cluster_name, page: parts.page_url.as_ref() };
    let mut outgoing = match build(&record, how, around, until) {
        Ok(outgoing) => outgoing,
        Err(error) => {
            let (reason, message) = (error.reason(), error.to_string());
            let Some(outcome) = error.outcome() else { return blocked(record, reason, &message) };
            let now = Now::read();
            let decision = decide::unsendable(&record.status, outcome, reason, &message, now.wall);
            return (Decided::new(record, decision, now), AttemptOutcome::Nothing);
        }
    };
    #[cfg(feature = "broken")]
    if crate::broken::is(crate::broken::Wrong::OutcomeBeforeRequest) {
        let status = crate::broken::delivered(&record.status);
        let decided = Decided::new(record, (status, Then::Settle { answered: true }), Now::read());
        let worked = Box::pin(super::write::store(parts.clone(), decided, parts.outcomes.clone())).await;
        Box::pin(parts.sender.send(outgoing)).await;
        let status = worked.record.status.clone();
        return (Decided { record: worked.record, status, after: worked.after }, AttemptOutcome::Answer);
    }
    let call = Call::begin(&parts.tracer, &record, &outgoing, fastrand::u64(..));
    outgoing.trace_parent = call.as_ref().and_then(Call::header);
    let attempt = send_apart(&parts, outgoing).await;
    observe(&parts, &record, &attempt);
    if let Some(span) = call.and_then(|call| call.end(&attempt)) {
        parts.tracer.take(span);
    }
    ended(record, &attempt, &notification.delivery.retry, failures, fastrand::f64(), Now::read())
}

/// Decides what the end of an attempt means for the delivery, and what it shows about the receiver. `chance`: random, in 0..1.
pub(crate) fn ended(
    mut record: Record,
    attempt: &Attempt,
    retry: &Retry,
    failures: u32,
    chance: f64,
    now: Now,
) -> (Decided, AttemptOutcome) {
    let before = record.not_found;
    record.not_found = if attempt.result.status() == Some(404) { before.saturating_add(1) } else { 0 };
    let at = At { now: now.wall, chance };
    let decision = decide::attempted(&record.status, attempt, before, retry, record.age.at(now.boot), failures, at);
    let decided = Decided::new(record, decision, now);
    let attempt_outcome = attempt_outcome(&attempt.result, decided.after, now.mono);
    (decided, attempt_outcome)
}

/// Makes the request on separate threads. Otherwise a receiver with an endless response would occupy the threads that renew the Lease. If
/// this future is dropped, the request is aborted.
pub(crate) async fn send_apart(parts: &Parts, outgoing: Outgoing) -> Attempt {
    let sender = parts.sender.clone();
    let request = AbortOnDropHandle::new(parts.sending.spawn(async move { sender.send(outgoing).await }));
    match request.await {
        Ok(attempt) => attempt,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The task was aborted. Its runtime shuts down only after all other parts, so this result is not needed.
            Err(_) => std::future::pending().await,
        },
    }
}

fn attempt_outcome(result: &AttemptResult, after: After, now: Instant) -> AttemptOutcome {
    match result {
        AttemptResult::Answered { .. } => AttemptOutcome::Answer,
        AttemptResult::NotSent(_) => AttemptOutcome::Nothing,
        AttemptResult::Failed(failure) if failure.kind.is_unreachable() => {
            // After the delivery is parked (retries exhausted), the next delivery can probe at once.
            let again = if let After::Retry { until, .. } = after { until } else { now };
            AttemptOutcome::NoConnection { again }
        }
        AttemptResult::Failed(_) => AttemptOutcome::Silence,
    }
}

/// Decides about a delivery that must wait. `until`: the retry settings that limit the wait. `chance`: random, in 0..1.
pub fn wait(
    record: Record,
    reason: Reason,
    message: &str,
    until: Option<&Retry>,
    failures: u32,
    chance: f64,
    now: Now,
) -> Decided {
    let at = At { now: now.wall, chance };
    let decision = decide::blocked(&record.status, reason, message, until, record.age.at(now.boot), failures, at);
    Decided::new(record, decision, now)
}

/// Parks a delivery that was recorded with an error.
pub fn refuse(record: Record, now: Now) -> Decided {
    let error = record.refusal().unwrap_or_default();
    let decision = decide::unsendable(&record.status, Outcome::Parked, Reason::ExpressionFailed, error, now.wall);
    Decided::new(record, decision, now)
}

/// Cancels a delivery whose pipeline, target or notification is gone. Unless `sure` is true, a live read must confirm that first.
pub async fn cancel(parts: Parts, record: Record, what: Gone, sure: bool) -> Worked {
    if !sure {
        let permit = parts.aside.acquire(&record.id.namespace).await;
        let found = live_check::is_gone(&parts.client, &parts.pipeline_index, &parts.cluster_name, &record.spec, what).await;
        permit.finish(!matches!(found, Err(CallError::Timeout)));
        match found {
            // The object may have been created again since the check that found it gone.
            Ok(true) if matches!(parts.pipeline_index.find(&record.spec), SendDecision::Gone { .. }) => {}
            Ok(_) => return untouched(record),
            Err(error) => {
                tracing::warn!(error = %chain(&error), delivery = %record.id.name, "could not verify that the Pipeline or Notification was deleted; retrying");
                return untouched(record);
            }
        }
    }
    let now = Now::read();
    let status = decide::canceled(&record.status, what.reason(), now.wall);
    let decided = Decided::new(record, (status, Then::Settle { answered: false }), now);
    let limiter = parts.aside.clone();
    super::write::store(parts, decided, limiter).await
}

fn untouched(record: Record) -> Worked {
    let until = Some(Instant::now() + ASK_AGAIN);
    Worked { record, after: After::Hold { until }, gone: false, instead: None, is_written: false }
}

fn observe(parts: &Parts, record: &Record, attempt: &Attempt) {
    if matches!(attempt.result, AttemptResult::NotSent(_)) {
        return;
    }
    if record.status.attempts == 0 {
        let after = attempt.started.duration_since(record.spec.time);
        parts.metrics.first_attempt(Duration::try_from(after).unwrap_or_default());
    }
    parts.delivery_index.attempted(record, attempt.started, attempt.result.error().as_deref());
}
