//! Writes the result of the work on one delivery, until the API server has taken it.
//!
//! In: what was decided. Out: [`Worked`]. A delivery that has no object yet is created together with its result.

use std::time::{Duration, Instant};

use backon::BackoffBuilder as _;

use super::work::{Decided, Parts, Worked};
use crate::outbox::lane::{After, redeliver, schedule};
use crate::outbox::record::Record;
use crate::outbox::store::journal::{JournalError, New, Written};
use relaybook_api::{DeliveryStatus, now};
use relaybook_runtime::limiter::NamespaceLimiter;

/// The longest pause between two tries of a write.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Writes a status. Retries until the API server gives a final result; the lane waits meanwhile. So a delivery is never sent again only
/// because its result was not written.
///
/// `limiter` limits the concurrent writes. Each try acquires a permit, and releases it before the next pause. So rejected or hanging writes
/// of one namespace do not block all others.
pub async fn store(parts: Parts, decided: Decided, limiter: NamespaceLimiter) -> Worked {
    let Decided { mut record, mut status, after } = decided;
    if status == record.status && !record.unwritten {
        return Worked { record, after, gone: false, instead: None, is_written: false };
    }
    if !record.is_recorded() {
        match record_result(&parts, &record, &status).await {
            None => {
                let after = After::Settled { answered: false };
                return Worked { record, after, gone: true, instead: None, is_written: false };
            }
            Some(stored) if stored.status == status => {
                record.adopt(&stored);
                return Worked { record: Record { status, ..record }, after, gone: false, instead: None, is_written: true };
            }
            Some(stored) if is_later(&stored.status, &status) => return overtaken(&record, stored),
            // An earlier write has recorded it as pending.
            Some(stored) => {
                record.adopt(&stored);
                record.status = stored.status;
            }
        }
    }
    let mut pauses = pauses();
    loop {
        let permit = limiter.acquire(&record.id.namespace).await;
        let written = parts.journal.write(&record, &status).await;
        permit.finish(!matches!(written, Err(JournalError::Timeout)));
        match written {
            Ok(Written::Stored { version, status }) => {
                record.version = version;
                record.status = *status;
                record.unwritten = false;
                return Worked { record, after, gone: false, instead: None, is_written: true };
            }
            Ok(Written::Overtaken(live)) => return overtaken(&record, *live),
            // The watch had not delivered the annotation yet. The outcome now includes it, so that it causes no second request.
            Ok(Written::Annotated(live)) => {
                status = redeliver::noted(&live, status, relaybook_api::now());
                record = Record { asked: live.asked, version: live.version, status: live.status, ..record };
            }
            Ok(Written::Gone(instead)) => {
                let after = After::Settled { answered: false };
                return Worked { record, after, gone: true, instead, is_written: false };
            }
            Err(error) => {
                tracing::warn!(error = %error.detail(), delivery = %record.id.name, "could not write the Delivery status; the lane is blocked until a retry succeeds");
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
        }
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
fn overtaken(record: &Record, live: Record) -> Worked {
    let after = match live.status.outcome {
        Some(_) => After::Settled { answered: false },
        None => After::Retry { until: Instant::now() + schedule::resume(live.status.next_attempt_time, now()), asked: true },
    };
    let mut live = Record { again: record.again || live.again, ..live };
    live.copy_local_state_from(record);
    Worked { record: live, after, gone: false, instead: None, is_written: false }
}
