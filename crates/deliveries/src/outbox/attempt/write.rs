//! Writes the result of the work on one delivery, until the API server has taken it.
//!
//! In: what was decided. Out: [`Worked`]. A delivery that has no object yet is created together with its result.

use std::time::Duration;

use backon::BackoffBuilder as _;

use super::work::{Decided, Parts, Worked};
use crate::outbox::lane::{After, redeliver, schedule};
use crate::outbox::record::Record;
use crate::outbox::scheduler::effect::Now;
use crate::outbox::store::journal::{JournalError, New, Written, keep_history};
use relaybook_api::DeliveryStatus;
use relaybook_runtime::limiter::NamespaceLimiter;

/// The longest pause between two tries of a write.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Writes a status. Retries until the API server gives a final result; the lane waits meanwhile. So a delivery is never sent again only
/// because its result was not written.
///
/// `limiter` limits the concurrent writes. Each try acquires a permit, and releases it before the next pause. So rejected or hanging writes
/// of one namespace do not block all others.
pub async fn store(parts: Parts, mut decided: Decided, limiter: NamespaceLimiter) -> Worked {
    if decided.is_stored() {
        let Decided { record, after, .. } = decided;
        return Worked { record, after, gone: false, instead: None, is_written: false };
    }
    if !decided.record.is_recorded() {
        let Some(stored) = record_result(&parts, &decided.record, &decided.status).await else {
            let after = After::Settled { answered: false };
            return Worked { record: decided.record, after, gone: true, instead: None, is_written: false };
        };
        match decided.created(stored, Now::read()) {
            Ok(worked) => return *worked,
            Err(pending) => decided = *pending,
        }
    }
    let mut pauses = pauses();
    loop {
        let permit = limiter.acquire(&decided.record.id.namespace).await;
        let written = parts.journal.write(&decided.record, &decided.status).await;
        permit.finish(!matches!(written, Err(JournalError::Timeout)));
        match written {
            Ok(written) => match decided.written(written, Now::read()) {
                Ok(worked) => return *worked,
                Err(again) => decided = *again,
            },
            Err(error) => {
                tracing::warn!(error = %error.detail(), delivery = %decided.record.id.name, "could not write the Delivery status; the lane is blocked until a retry succeeds");
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
        }
    }
}

impl Decided {
    /// Returns whether there is nothing to write.
    pub(crate) fn is_stored(&self) -> bool {
        self.status == self.record.status && !self.record.unwritten
    }

    /// Decides what follows after a create: `stored` is the object that now has the name. `Err`: this still has to be written to it.
    pub(crate) fn created(mut self, stored: Record, now: Now) -> Result<Box<Worked>, Box<Self>> {
        if stored.status == self.status {
            self.record.adopt(&stored);
            let record = Record { status: self.status, ..self.record };
            return Ok(Box::new(Worked { record, after: self.after, gone: false, instead: None, is_written: true }));
        }
        if is_later(&stored.status, &self.status) {
            return Ok(Box::new(overtaken(&self.record, stored, now)));
        }
        // An earlier write has recorded it as pending.
        self.record.adopt(&stored);
        self.record.status = stored.status;
        Err(Box::new(self))
    }

    /// Decides what follows after the answer to a status write. `Err`: this has to be written instead.
    pub(crate) fn written(self, written: Written, now: Now) -> Result<Box<Worked>, Box<Self>> {
        let Self { record, status, after } = self;
        let worked = match written {
            Written::Stored { version, status } => {
                let record = Record { version, status: *status, unwritten: false, ..record };
                Worked { record, after, gone: false, instead: None, is_written: true }
            }
            Written::Overtaken(live) => overtaken(&record, *live, now),
            // The watch had not delivered the annotation yet. The outcome now includes it, so that it causes no second request.
            Written::Annotated(live) => {
                let mut status = redeliver::noted(&live, status, now.wall);
                keep_history(&mut status, &live.status);
                let record = Record { asked: live.asked, version: live.version, status: live.status, ..record };
                return Err(Box::new(Self { record, status, after }));
            }
            Written::Gone(instead) => {
                let after = After::Settled { answered: false };
                Worked { record, after, gone: true, instead, is_written: false }
            }
        };
        Ok(Box::new(worked))
    }
}

fn pauses() -> backon::ExponentialBackoff {
    backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times()
        .build()
}

/// Whether another replica has written a later state than this one.
fn is_later(stored: &DeliveryStatus, ours: &DeliveryStatus) -> bool {
    stored.outcome.is_some() || (ours.outcome.is_none() && stored.attempts >= ours.attempts.max(1))
}

/// Records a delivery together with the result of its first attempt. Returns the object that now has its name. Retries until the API
/// server accepts it, because the receiver has answered. It does not wait for a permit: a pass of the dispatcher waits for it, and status
/// writes that hang must not block the log. Returns `None` if its pipeline is gone: its namespace may be gone as well, and nothing derives
/// the delivery again.
async fn record_result(parts: &Parts, record: &Record, status: &DeliveryStatus) -> Option<Record> {
    let new = New { namespace: record.id.namespace.clone(), elsewhere: None, spec: record.spec.clone() };
    let mut pauses = pauses();
    loop {
        let made = parts.journal.create(&new, Some(status)).await;
        let name = &record.id.name;
        match made {
            Ok(stored) => {
                // The index must know it before any component can read that the cursor has moved past it.
                parts.delivery_index.recorded(std::slice::from_ref(&stored));
                parts.direct.recorded(&record.id);
                return Some(stored);
            }
            Err(error) if error.is_refused() && parts.pipeline_index.pipeline(&record.spec.pipeline_ref.uid).is_none() => {
                tracing::warn!(error = %error.detail(), delivery = %name, "could not record a Delivery that was sent; its pipeline is gone");
                parts.direct.recorded(&record.id);
                return None;
            }
            Err(error) => {
                parts.direct.failed(&record.id, &error);
                tracing::warn!(error = %error.detail(), delivery = %name, "could not record a Delivery that was sent; the lane is blocked until a retry succeeds");
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
        }
    }
}

/// Applies the state that another replica has written: an outcome, or the result of a later attempt. That state takes precedence.
fn overtaken(record: &Record, live: Record, now: Now) -> Worked {
    let after = match live.status.outcome {
        Some(_) => After::Settled { answered: false },
        None => After::Retry { until: now.mono + schedule::resume(live.status.next_attempt_time, now.wall), asked: true },
    };
    let mut live = Record { again: record.again || live.again, ..live };
    live.copy_local_state_from(record);
    Worked { record: live, after, gone: false, instead: None, is_written: false }
}
