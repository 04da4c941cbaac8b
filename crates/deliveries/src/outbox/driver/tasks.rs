//! The work of the engine's tasks: calls and requests. Each makes one call, and returns its answer as it is.
//!
//! In: a [`Task`]. Out: [`Done`]. The work runs in a separate task, and does not access the engine.

use std::slice;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::parts::Parts;
use crate::outbox::attempt::decided::Attempted;
use crate::outbox::attempt::request::{Around, Built, build};
use crate::outbox::engine::effect::{Done, Task};
use crate::outbox::engine::writes::{Answered, Call, Limit, Write};
use crate::outbox::lane::thread::{self, Before};
use crate::outbox::record::{Record, name};
use crate::outbox::send_gate::index::{Gone, PipelineFacts};
use crate::outbox::send_gate::live_check;
use crate::outbox::store::journal::JournalError;
use crate::outbox::trace;
use relaybook_api::DeliverySpec;
use relaybook_api::values::looked_up::LookedUp;
use relaybook_egress::{Attempt, AttemptResult, Outgoing, RequestError};
use relaybook_runtime::call::CallError;
use relaybook_runtime::tenure::{Tenure, Unowned};
use relaybook_settings::config::{EffectiveNotification, LOOK_UP, Sending};
use relaybook_settings::render::Web;
use relaybook_telemetry::chain;

/// Does the work of a task. Each future is as large as its own kind of work: thousands of writes can wait.
pub(super) fn run(parts: Parts, task: Task) -> BoxFuture<'static, Done> {
    match task {
        Task::Attempt { turn, record, notification, facts, before, until } => Box::pin(async move {
            let attempt = Box::new(attempt(&parts, &record, &notification, &facts, &before, until).await);
            Done::Attempted { turn, retry: notification.delivery.retry, attempt }
        }),
        Task::Write(write) => {
            #[cfg(feature = "broken")]
            if let Some(answered) = broken::too_early(&parts, &write) {
                return Box::pin(std::future::ready(Done::Answered(write, answered)));
            }
            Box::pin(async move {
                let answered = call(&parts, &write).await;
                Done::Answered(write, answered)
            })
        }
        Task::Verify { lane, namespace, spec, what } => Box::pin(async move {
            let is_gone = verify(&parts, &namespace, &spec, what).await;
            Done::Verified { lane, what, is_gone }
        }),
        Task::ReadMissing { source, term, absent } => {
            Box::pin(async move { Done::Missing { source, term, gone: parts.journal.gone(absent).await } })
        }
        Task::Expel { id, foreign } => Box::pin(async move {
            // The engine has checked this, too. But the call starts later.
            let tenure = Tenure::begin(&parts.lease, Some(&foreign.pipeline), &CancellationToken::new());
            let deleted = match &tenure {
                Some(tenure) => parts.journal.delete(tenure.into(), &id, foreign.version).await,
                None => Err(JournalError::NotHeld),
            };
            let failed = deleted.err().map(|error| error.detail());
            Done::Expelled { id, foreign, failed }
        }),
    }
}

/// Renders a request and makes it. It ends at `until`, by the clock since boot. It is rendered here, because a large template would delay
/// all lanes in the engine's turn.
async fn attempt(
    parts: &Parts,
    record: &Record,
    notification: &EffectiveNotification,
    facts: &PipelineFacts,
    before: &Before,
    until: Duration,
) -> Result<Attempted, RequestError> {
    let sending = notification.sending.as_ref().map_err(|problem| RequestError::Render(problem.clone()))?;
    let web = parts.pipeline_index.web();
    let looked_up = look_up_apart(parts, sending, &web, &record.spec).await;
    let page = parts.page_url.as_ref();
    let around = Around { facts, cluster: &parts.cluster_name, page, web: &web, looked_up: looked_up.as_ref() };
    let Built { mut outgoing, part } = build(record, sending, around, Some(before), until)?;
    #[cfg(feature = "broken")]
    broken::write_first(parts, record).await;
    let call = trace::Call::begin(&parts.tracer, record, &outgoing, fastrand::u64(..));
    outgoing.trace_parent = call.as_ref().and_then(trace::Call::header);
    let attempt = send_apart(parts, outgoing).await;
    observe(parts, record, &attempt);
    if let Some(span) = call.and_then(|call| call.end(&attempt)) {
        parts.tracer.take(span);
    }
    let thread = sending.thread.as_ref().zip(part).zip(attempt.learned.as_ref()).and_then(|((settings, part), learned)| {
        thread::after(before.open(), part, learned, settings, record.spec.type_, attempt.started)
    });
    Ok(Attempted { attempt, thread })
}

/// Makes the request on separate threads. Otherwise a receiver with an endless response would occupy the threads that renew the Lease. If
/// this future is dropped, the request is aborted.
pub(in crate::outbox) async fn send_apart(parts: &Parts, outgoing: Outgoing) -> Attempt {
    let sender = parts.sender.clone();
    ended(AbortOnDropHandle::new(parts.sending.spawn(async move { sender.send(outgoing).await }))).await
}

/// Returns what a forge says about the commit, on the same threads. `None`: the body does not use it, or the global configuration allows no
/// question about it. The attempt has [`LOOK_UP`] more time for it.
pub(in crate::outbox) async fn look_up_apart(
    parts: &Parts,
    sending: &Sending,
    web: &Web,
    spec: &DeliverySpec,
) -> Option<LookedUp> {
    let wanted = sending.look_ups;
    if wanted.is_none() {
        return None;
    }
    let of = web.look_up(spec)?;
    let sender = parts.sender.clone();
    let asked = parts.sending.spawn(async move { sender.look_up(&of, wanted, LOOK_UP).await });
    Some(ended(AbortOnDropHandle::new(asked)).await)
}

/// Returns the result of a task on those threads.
async fn ended<T>(task: AbortOnDropHandle<T>) -> T {
    match task.await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The task was aborted. Its runtime shuts down only after all other parts, so this result is not needed.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Notes an attempt for users.
fn observe(parts: &Parts, record: &Record, attempt: &Attempt) {
    if matches!(attempt.result, AttemptResult::NotSent(_)) {
        return;
    }
    if record.status.attempts == 0 {
        let after = attempt.started.duration_since(record.spec.time);
        parts.metrics.first_attempt(Duration::try_from(after).unwrap_or_default());
    }
    parts.delivery_index.attempted(record, attempt.started, attempt.error().as_deref());
}

/// Makes the next call of a write, with a permit if it needs one.
async fn call(parts: &Parts, write: &Write) -> Answered {
    match write.call() {
        Call::Create(new, status) => {
            let created = parts.journal.create(Unowned::Outcome.into(), &new, status).await;
            // The index must know it before any component can read that the cursor has moved past it.
            if let Ok(stored) = &created {
                parts.delivery_index.recorded(slice::from_ref(stored));
            }
            Answered::Created(Box::new(created))
        }
        Call::Patch(record, status) => {
            let limiter = match write.limit() {
                Limit::Outcomes => &parts.outcomes,
                Limit::Failures => &parts.failures,
                Limit::Aside => &parts.aside,
            };
            // So rejected or hanging writes of one namespace do not block all others.
            let permit = limiter.acquire(&record.id.namespace).await;
            let written = parts.journal.write(Unowned::Outcome.into(), record, status).await;
            permit.finish(!matches!(written, Err(JournalError::Timeout)));
            #[cfg(feature = "broken")]
            let written = broken::or_unanswered(written, record, status);
            Answered::Patched(written)
        }
    }
}

/// Reads whether a pipeline, target or notification is gone. `None`: the read has failed.
async fn verify(parts: &Parts, namespace: &str, spec: &DeliverySpec, what: Gone) -> Option<bool> {
    let permit = parts.aside.acquire(namespace).await;
    let found = live_check::is_gone(&parts.client, &parts.pipeline_index, &parts.cluster_name, spec, what).await;
    permit.finish(!matches!(found, Err(CallError::Timeout)));
    found
        .inspect_err(|error| {
            tracing::warn!(error = %chain(error), delivery = %name(spec), "could not verify that the Pipeline or Notification was deleted; retrying");
        })
        .ok()
}

/// Breaks promises on purpose.
#[cfg(feature = "broken")]
mod broken {
    use super::{Answered, JournalError, Parts, Record, Write, call};
    use crate::broken::{Wrong, delivered, is};
    use crate::outbox::attempt::decided::Decided;
    use crate::outbox::engine::effect::Now;
    use crate::outbox::engine::writes::{Call, Kind, Limit, Next};
    use crate::outbox::lane::After;
    use crate::outbox::store::journal::Written;
    use relaybook_api::DeliveryStatus;

    /// Returns an answer as if the outcome of a lane were written, and writes it later.
    pub(super) fn too_early(parts: &Parts, write: &Write) -> Option<Answered> {
        let is_outcome = matches!(write.kind, Kind::Lane(_)) && matches!(write.decided.after, After::Settled { .. });
        let Call::Patch(record, status) = write.call() else { return None };
        if !is(Wrong::NextBeforeOutcome) || !is_outcome {
            return None;
        }
        let status = Box::new(status.clone());
        let answered = Written::Stored { version: record.version.clone(), status };
        tokio::spawn(store(parts.clone(), Box::new(write.clone())));
        Some(Answered::Patched(Ok(answered)))
    }

    /// Returns an answer as if a write that was not answered were carried out.
    pub(super) fn or_unanswered(
        written: Result<Written, JournalError>,
        record: &Record,
        status: &DeliveryStatus,
    ) -> Result<Written, JournalError> {
        match written {
            Err(JournalError::Timeout) if is(Wrong::UnansweredIsWritten) => {
                Ok(Written::Stored { version: record.version.clone(), status: Box::new(status.clone()) })
            }
            written => written,
        }
    }

    /// Writes the outcome Delivered before the request.
    pub(super) async fn write_first(parts: &Parts, record: &Record) {
        if is(Wrong::OutcomeBeforeRequest) {
            let decided = Decided::superseded(record.clone(), delivered(&record.status));
            Box::pin(store(parts.clone(), Write::new(Kind::Reopened, decided, Limit::Outcomes))).await;
        }
    }

    async fn store(parts: Parts, mut write: Box<Write>) {
        loop {
            let answered = call(&parts, &write).await;
            write = match write.next(answered, false, 0.0, Now::read()) {
                Next::Ended(..) => return,
                Next::Call(again) => again,
                Next::Pause(again, pause, _) => {
                    tokio::time::sleep(pause).await;
                    again
                }
            };
        }
    }
}
