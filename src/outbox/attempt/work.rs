//! One piece of work on one delivery, from the time when its lane hands it out until its write is answered.
//!
//! In: a record and what has to be done with it. Out: [`Worked`]. The work runs in a separate task and does not touch the engine's data.
//! The pure functions of `decide` make all decisions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::BackoffBuilder as _;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::decide::{self, At, Then};
use super::request::build;
use crate::api::{DeliveryStatus, now, since_boot};
use crate::config::{self, EffectiveNotification, Retry, Sending};
use crate::k8s::call::CallError;
use crate::k8s::limiter::NamespaceLimiter;
use crate::leader::Lease;
use crate::outbox::lane::After;
use crate::outbox::lane::{redeliver, schedule};
use crate::outbox::record::Record;
use crate::outbox::scheduler::fair_queue::AttemptOutcome;
use crate::outbox::send_gate::index;
use crate::outbox::send_gate::index::{Gone, PipelineFacts, SendDecision};
use crate::outbox::send_gate::live_check;
use crate::outbox::store::delivery_index::DeliveryIndex;
use crate::outbox::store::journal::{Journal, JournalError, Written};
use crate::outbox::trace::Call;
use crate::telemetry::{Metrics, Tracer, chain};
use crate::webhook::{self, Attempt, AttemptResult, Outgoing, Sender};

/// The longest pause between two tries of a write.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause if something seems gone but is not. The watches catch up in this time.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// What the engine's tasks need.
#[derive(Clone)]
pub struct Parts {
    /// Whether this replica is the leader.
    pub lease: Lease,
    /// Where deliveries are kept.
    pub journal: Journal,
    /// What can be sent.
    pub pipeline_index: index::PipelineIndex,
    /// What is known about all deliveries.
    pub delivery_index: DeliveryIndex,
    /// Sends the requests.
    pub sender: Arc<Sender>,
    /// The runtime on which requests are sent.
    pub sending: Handle,
    /// For live reads.
    pub client: kube::Client,
    /// The name of the local cluster.
    pub cluster_name: String,
    /// Metrics.
    pub metrics: Metrics,
    /// Traces.
    pub tracer: Tracer,
    /// Limits the concurrent writes of outcomes.
    pub outcomes: NamespaceLimiter,
    /// Limits the concurrent writes of failed attempts that are retried. Nobody waits for these writes, and the timeouts of a hanging
    /// receiver happen all at once.
    pub failures: NamespaceLimiter,
    /// Limits the concurrent calls for deliveries that are not sent: waiting, canceling.
    pub aside: NamespaceLimiter,
}

impl Parts {
    /// The origin that lanes to one receiver share, even if its URL is in a Secret.
    pub fn origin(&self, sending: &Sending) -> String {
        let destination = match &sending.destination {
            config::Destination::Url(url) => Url::parse(url.origin()).map(webhook::Destination::Url).ok(),
            config::Destination::Secret(key) => Some(webhook::Destination::Secret(key.clone())),
        };
        // If the Secret has not been read yet, only its name is known.
        destination.and_then(|destination| self.sender.origin(&destination)).unwrap_or_else(|| sending.origin())
    }
}

/// The consequence of an attempt, or of the lack of one, for a delivery. It still has to be written.
#[derive(Debug)]
pub struct Decided {
    record: Record,
    status: DeliveryStatus,
    after: After,
}

impl Decided {
    /// Only the status has to be written. The lane can take the delivery again at once.
    pub fn noted(record: Record, status: DeliveryStatus) -> Self {
        Self { record, status, after: After::Nothing }
    }

    /// The outcome Superseded has to be written.
    pub fn superseded(record: Record, status: DeliveryStatus) -> Self {
        Self { record, status, after: After::Settled { answered: false } }
    }

    /// Failed probe of an origin that is already marked unreachable: skip the status write. `Err`: the status must be written.
    pub fn untold(self) -> Result<Box<Worked>, Box<Self>> {
        if !self.is_retried() {
            return Err(Box::new(self));
        }
        let Self { record, status, after } = self;
        let record = Record { status, unwritten: true, ..record };
        Ok(Box::new(Worked { record, after, gone: false, instead: None, news: false }))
    }

    /// Whether the attempt failed and is retried.
    pub fn is_retried(&self) -> bool {
        matches!(self.after, After::Retry { .. })
    }

    fn new(record: Record, (status, then): (DeliveryStatus, Then)) -> Self {
        let now = Instant::now();
        let status = redeliver::noted(&record, status, crate::api::now());
        let after = match then {
            Then::Settle { answered } => After::Settled { answered },
            Then::Retry { after, asked } => After::Retry { until: now + after, asked },
            Then::Hold { after } => After::Hold { until: after.map(|a| now + a) },
        };
        Self { record, status, after }
    }
}

#[cfg(feature = "broken")]
impl Decided {
    /// The result as if the status were written.
    pub fn unwritten(&self) -> Option<Worked> {
        let record = Record { status: self.status.clone(), ..self.record.clone() };
        let settled = matches!(self.after, After::Settled { .. });
        settled.then_some(Worked { record, after: self.after, gone: false, instead: None, news: true })
    }
}

/// A piece of work that is over.
#[derive(Debug)]
pub struct Worked {
    /// The record in its current state.
    pub record: Record,
    /// What the lane does next.
    pub after: After,
    /// The object was deleted meanwhile.
    pub gone: bool,
    /// The object that has its name now.
    pub instead: Option<Box<Record>>,
    /// Whether a new status was written.
    pub news: bool,
}

/// Makes one attempt, which ends by `until`, measured from the machine's start. Also returns what the attempt shows about the receiver.
pub async fn attempt(
    parts: Parts,
    mut record: Record,
    notification: Arc<EffectiveNotification>,
    facts: Arc<PipelineFacts>,
    failures: u32,
    until: Duration,
) -> (Decided, AttemptOutcome) {
    if record.refusal().is_some() {
        return (refuse(record), AttemptOutcome::Nothing);
    }
    let blocked = |record: Record, reason, message: &str| {
        let retry = Some(&notification.delivery.retry);
        let decision = decide::blocked(&record.status, reason, message, retry, record.age.at(since_boot()), failures, at());
        (Decided::new(record, decision), AttemptOutcome::Nothing)
    };
    let how = match &notification.sending {
        Ok(how) => how,
        Err(problem) => return blocked(record, problem.reason(), &problem.to_string()),
    };
    let mut outgoing = match build(&record, how, &facts, until) {
        Ok(outgoing) => outgoing,
        Err(error) if error.is_final() => {
            let decision = decide::unsendable(&record.status, error.reason(), &error.to_string(), now());
            return (Decided::new(record, decision), AttemptOutcome::Nothing);
        }
        Err(error) => return blocked(record, error.reason(), &error.to_string()),
    };
    #[cfg(feature = "broken")]
    if crate::broken::is(crate::broken::Wrong::OutcomeBeforeRequest) {
        let status = crate::broken::delivered(&record.status);
        let decided = Decided::new(record, (status, Then::Settle { answered: true }));
        let worked = store(parts.clone(), decided, parts.outcomes.clone()).await;
        parts.sender.send(outgoing).await;
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
    let before = record.not_found;
    record.not_found = if attempt.result.status() == Some(404) { before.saturating_add(1) } else { 0 };
    let retry = &notification.delivery.retry;
    let decision = decide::attempted(&record.status, &attempt, before, retry, record.age.at(since_boot()), failures, at());
    let decided = Decided::new(record, decision);
    let attempt_outcome = attempt_outcome(&attempt.result, decided.after);
    (decided, attempt_outcome)
}

/// Makes the request on separate threads. Otherwise a receiver with an endless response would occupy the threads that renew the Lease. The
/// request is aborted when nobody waits for it any more.
async fn send_apart(parts: &Parts, outgoing: Outgoing) -> Attempt {
    let sender = parts.sender.clone();
    let request = AbortOnDropHandle::new(parts.sending.spawn(async move { sender.send(outgoing).await }));
    match request.await {
        Ok(attempt) => attempt,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // These threads end only after everything else.
            Err(_) => std::future::pending().await,
        },
    }
}

fn attempt_outcome(result: &AttemptResult, after: After) -> AttemptOutcome {
    match result {
        AttemptResult::Answered { .. } => AttemptOutcome::Answer,
        AttemptResult::NotSent(_) => AttemptOutcome::Nothing,
        AttemptResult::Failed(failure) if failure.kind.is_unreachable() => {
            // After the delivery is parked (retries exhausted), the next delivery can probe at once.
            let again = if let After::Retry { until, .. } = after { until } else { Instant::now() };
            AttemptOutcome::NoConnection { again }
        }
        AttemptResult::Failed(_) => AttemptOutcome::Silence,
    }
}

/// Decides about a delivery that must wait.
pub fn wait(record: Record, reason: &str, message: &str, until: Option<&Retry>, failures: u32) -> Decided {
    let decision = decide::blocked(&record.status, reason, message, until, record.age.at(since_boot()), failures, at());
    Decided::new(record, decision)
}

/// Parks a delivery that was recorded with an error.
pub fn refuse(record: Record) -> Decided {
    let error = record.refusal().unwrap_or_default();
    let decision = decide::unsendable(&record.status, "ExpressionFailed", error, now());
    Decided::new(record, decision)
}

/// Cancels a delivery whose pipeline, target or notification is gone. Unless `sure` is set, a live read must confirm that first.
pub async fn cancel(parts: Parts, record: Record, what: Gone, sure: bool) -> Worked {
    if !sure {
        let turn = parts.aside.pass(&record.id.namespace).await;
        let found = live_check::is_gone(&parts.client, &parts.pipeline_index, &parts.cluster_name, &record.spec, what).await;
        turn.over(!matches!(found, Err(CallError::Timeout)));
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
    let status = decide::canceled(&record.status, what.reason(), now());
    let decided = Decided::new(record, (status, Then::Settle { answered: false }));
    let limiter = parts.aside.clone();
    store(parts, decided, limiter).await
}

fn untouched(record: Record) -> Worked {
    let until = Some(Instant::now() + ASK_AGAIN);
    Worked { record, after: After::Hold { until }, gone: false, instead: None, news: false }
}

/// Another replica has written the result of a later attempt or an outcome. Its result counts.
fn overtaken(record: &Record, live: Record) -> Worked {
    let after = match live.status.outcome {
        Some(_) => After::Settled { answered: false },
        None => After::Retry { until: Instant::now() + schedule::resume(live.status.next_attempt_time, now()), asked: true },
    };
    let mut live = Record { again: record.again || live.again, ..live };
    live.goes_on_from(record);
    Worked { record: live, after, gone: false, instead: None, news: false }
}

fn at() -> At {
    At { now: now(), chance: fastrand::f64() }
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

/// Writes a status, with retries until the API server gives a final result. The lane waits meanwhile. So a delivery is never sent again
/// only because its result was not written.
///
/// `limiter` limits the concurrent writes. A write passes it for each try and does not hold it during a delay. So rejected or hanging
/// writes of one namespace do not block all others.
pub async fn store(parts: Parts, decided: Decided, limiter: NamespaceLimiter) -> Worked {
    let Decided { mut record, mut status, after } = decided;
    if status == record.status && !record.unwritten {
        return Worked { record, after, gone: false, instead: None, news: false };
    }
    let mut pauses = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times()
        .build();
    loop {
        let turn = limiter.pass(&record.id.namespace).await;
        let written = parts.journal.write(&record, &status).await;
        turn.over(!matches!(written, Err(JournalError::Timeout)));
        match written {
            Ok(Written::Stored { version }) => {
                record.version = version;
                record.status = status;
                record.unwritten = false;
                return Worked { record, after, gone: false, instead: None, news: true };
            }
            Ok(Written::Overtaken(live)) => return overtaken(&record, *live),
            // The watch had not shown the annotation yet. This outcome answers it, so that it causes no second request.
            Ok(Written::Annotated(live)) => {
                status = redeliver::noted(&live, status, crate::api::now());
                record = Record { asked: live.asked, version: live.version, status: live.status, ..record };
            }
            Ok(Written::Gone(instead)) => {
                let after = After::Settled { answered: false };
                return Worked { record, after, gone: true, instead, news: false };
            }
            Err(error) => {
                tracing::warn!(error = %error.detail(), delivery = %record.id.name, "could not write a status; the lane waits");
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
        }
    }
}
