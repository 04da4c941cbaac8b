//! What was decided about a delivery, after an attempt or without one, and what its write has shown. Pure.
//!
//! In: a record, the end of its attempt, or why it is not sent. Out: [`Decided`], which still has to be written, and [`Worked`] after that.

use std::time::{Duration, Instant};

use super::decide::{self, At, Then};
use crate::outbox::engine::effect::Now;
use crate::outbox::engine::state::fair_queue::AttemptOutcome;
use crate::outbox::lane::{After, redeliver};
use crate::outbox::record::Record;
use crate::outbox::send_gate::index::Gone;
use relaybook_api::delivery::{MessageThread, Reason};
use relaybook_api::{DeliveryStatus, Outcome};
use relaybook_egress::{Attempt, AttemptResult, RequestError};
use relaybook_settings::config::Retry;

/// The end of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Attempted {
    /// The request and its result.
    pub(crate) attempt: Attempt,
    /// The message that later deliveries can continue, if this one was delivered.
    pub(crate) thread: Option<MessageThread>,
}

/// The decision about a delivery. It still has to be written.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) record: Record,
    pub(crate) status: DeliveryStatus,
    pub(crate) after: After,
}

/// The result of work that has ended.
#[derive(Debug)]
pub(crate) struct Worked {
    /// The record in its current state.
    pub(crate) record: Record,
    /// What the lane does next.
    pub(crate) after: After,
    /// Whether the object was deleted meanwhile.
    pub(crate) gone: bool,
    /// The object that now has the same name, or this one after it was reopened.
    pub(crate) instead: Option<Box<Record>>,
    /// Whether a new status was written.
    pub(crate) is_written: bool,
}

impl Worked {
    /// Returns the end of work for which nothing was written.
    pub(crate) fn unwritten(record: Record, after: After) -> Self {
        Self { record, after, gone: false, instead: None, is_written: false }
    }

    /// Returns the end of work whose object is gone.
    pub(crate) fn gone(record: Record, instead: Option<Box<Record>>) -> Self {
        let after = After::Settled { answered: false };
        Self { gone: true, instead, ..Self::unwritten(record, after) }
    }
}

impl Decided {
    /// Decides that only the status has to be written. The lane can take the delivery again at once.
    pub(crate) fn noted(record: Record, status: DeliveryStatus) -> Self {
        Self { record, status, after: After::Nothing }
    }

    /// Decides that the outcome Superseded has to be written.
    pub(crate) fn superseded(record: Record, status: DeliveryStatus) -> Self {
        Self { record, status, after: After::Settled { answered: false } }
    }

    /// Cancels a delivery whose pipeline, target or notification is gone.
    pub(crate) fn canceled(record: Record, what: Gone, now: Now) -> Self {
        let status = decide::canceled(&record.status, what.reason(), now.wall);
        Self::new(record, (status, Then::Settle { answered: false }), now)
    }

    /// Parks a delivery that was recorded with an error.
    pub(crate) fn refused(record: Record, now: Now) -> Self {
        let error = record.refusal().unwrap_or_default();
        let decision = decide::unsendable(&record.status, Outcome::Parked, Reason::ExpressionFailed, error, now.wall);
        Self::new(record, decision, now)
    }

    /// Supersedes a delivery, because a later one about the same subject was delivered.
    pub(crate) fn outdated(record: Record, now: Now) -> Self {
        let error = "a later delivery about the same subject was sent or waits, and the receiver shows the newest one";
        let (outcome, reason) = (Outcome::Superseded, Reason::NewerDelivered);
        let decision = decide::unsendable(&record.status, outcome, reason, error, now.wall);
        Self::new(record, decision, now)
    }

    /// Decides about a delivery that must wait. `until`: the retry settings that limit the wait. `chance`: random, in 0..1.
    pub(crate) fn waiting(
        record: Record,
        reason: Reason,
        message: &str,
        until: Option<&Retry>,
        failures: u32,
        chance: f64,
        now: Now,
    ) -> Self {
        let at = At { now: now.wall, chance };
        let decision = decide::blocked(&record.status, reason, message, until, record.age.at(now.boot), failures, at);
        Self::new(record, decision, now)
    }

    /// Decides what the end of an attempt means for the delivery, and what it shows about the receiver. `chance`: random, in 0..1.
    pub(crate) fn attempted(
        mut record: Record,
        attempt: &Result<Attempted, RequestError>,
        retry: &Retry,
        failures: u32,
        chance: f64,
        now: Now,
    ) -> (Self, AttemptOutcome) {
        let Attempted { attempt, thread } = match attempt {
            Ok(attempted) => attempted,
            Err(error) => {
                let (reason, message) = (error.reason(), error.to_string());
                let decided = match error.outcome() {
                    None => Self::waiting(record, reason, &message, Some(retry), failures, chance, now),
                    Some(outcome) => {
                        let decision = decide::unsendable(&record.status, outcome, reason, &message, now.wall);
                        Self::new(record, decision, now)
                    }
                };
                return (decided, AttemptOutcome::Nothing);
            }
        };
        let before = record.not_found;
        record.not_found = if attempt.result.counts_as() == Some(404) { before.saturating_add(1) } else { 0 };
        let at = At { now: now.wall, chance };
        let mut decision = decide::attempted(&record.status, attempt, before, retry, record.age.at(now.boot), failures, at);
        if decision.0.outcome == Some(Outcome::Delivered) {
            decision.0.thread.clone_from(thread);
        }
        let decided = Self::new(record, decision, now);
        let attempt_outcome = attempt_outcome(&attempt.result, decided.after, now.mono);
        (decided, attempt_outcome)
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

    /// Returns whether there is nothing to write.
    pub(crate) fn is_stored(&self) -> bool {
        self.status == self.record.status && !self.record.unwritten
    }

    /// Returns whether the attempt failed and is retried.
    pub(crate) fn is_retried(&self) -> bool {
        matches!(self.after, After::Retry { .. })
    }

    /// Returns how long the last request took.
    pub(crate) fn took(&self) -> Option<Duration> {
        self.status.last_duration_millis.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis)
    }

    /// Ends the work without a write. A later write includes the status.
    pub(crate) fn unwritten(self) -> Worked {
        let unwritten = !self.is_stored();
        Worked::unwritten(Record { status: self.status, unwritten, ..self.record }, self.after)
    }
}

fn attempt_outcome(result: &AttemptResult, after: After, now: Instant) -> AttemptOutcome {
    match result {
        AttemptResult::Answered { .. } => AttemptOutcome::Answer,
        AttemptResult::NotSent(why) if why.is_silence() => AttemptOutcome::NoToken,
        AttemptResult::NotSent(_) => AttemptOutcome::Nothing,
        AttemptResult::Failed(failure) if failure.kind.is_unreachable() => {
            // After the delivery is parked (retries exhausted), the next delivery can probe at once.
            let again = if let After::Retry { until, .. } = after { until } else { now };
            AttemptOutcome::NoConnection { again }
        }
        AttemptResult::Failed(_) => AttemptOutcome::Silence,
    }
}
