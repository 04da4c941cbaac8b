//! What a status write does after a conflict or a lost response. Pure.
//!
//! In: the write, and the live object. Out: the result of the write, or the object to which it has to be repeated.

use super::Written;
use crate::outbox::record::Record;
use relaybook_api::DeliveryStatus;

/// Decides what follows from the live object after a conflict or a lost response. `Err`: the status has to be written to this object.
pub(crate) fn met(record: &Record, status: &mut DeliveryStatus, live: Option<Record>) -> Result<Written, Box<Record>> {
    let Some(live) = live.map(Box::new) else { return Ok(Written::Gone(None)) };
    if live.uid != record.uid {
        return Ok(Written::Gone(Some(live)));
    }
    // This is our write, but its response was lost.
    if live.status == *status {
        return Ok(Written::Stored { version: live.version, status: Box::new(status.clone()) });
    }
    let is_later = status.outcome.is_none() && live.status.attempts >= status.attempts.max(1);
    if live.status.outcome.is_some() || is_later {
        return Ok(Written::Overtaken(live));
    }
    if status.outcome.is_some() && live.asked != record.asked {
        return Ok(Written::Annotated(live));
    }
    keep_history(status, &live.status);
    Err(live)
}

/// Keeps what the API server protects in a stored status: the number of attempts does not decrease, and the mark of a redelivery stays.
pub(crate) fn keep_history(status: &mut DeliveryStatus, live: &DeliveryStatus) {
    status.attempts = status.attempts.max(live.attempts);
    if status.redelivered.is_none() {
        status.redelivered.clone_from(&live.redelivered);
    }
}
