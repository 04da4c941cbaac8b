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
    if is_reopened(&record.status, &live.status) {
        return Ok(Written::Reopened(live));
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

/// Whether a delivery that was pending has been settled and reopened since.
pub(crate) fn is_reopened(before: &DeliveryStatus, live: &DeliveryStatus) -> bool {
    before.outcome.is_none() && live.outcome.is_none() && live.redelivered != before.redelivered
}

/// Keeps what the API server protects in a stored status: the number of attempts does not decrease, and the mark of a redelivery stays.
pub(crate) fn keep_history(status: &mut DeliveryStatus, live: &DeliveryStatus) {
    status.attempts = status.attempts.max(live.attempts);
    if status.redelivered.is_none() {
        status.redelivered.clone_from(&live.redelivered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::testing::record;
    use relaybook_api::Outcome;
    use relaybook_api::delivery::Redelivered;

    #[test]
    fn no_result_is_written_to_a_delivery_that_is_redelivered_since() {
        let again = |value: &str| DeliveryStatus {
            redelivered: Some(Redelivered { value: value.to_owned(), time: relaybook_api::now() }),
            ..DeliveryStatus::default()
        };
        let settled = DeliveryStatus { outcome: Some(Outcome::Parked), ..DeliveryStatus::default() };
        for (before, live, expected) in [
            (DeliveryStatus::default(), DeliveryStatus::default(), false),
            (DeliveryStatus::default(), again("1"), true),
            (again("1"), again("1"), false),
            (again("1"), again("2"), true),
            (settled, again("1"), false),
        ] {
            assert_eq!(is_reopened(&before, &live), expected, "{before:?} {live:?}");
        }
        for outcome in [None, Some(Outcome::Delivered)] {
            let mut status = DeliveryStatus { outcome, attempts: 1, ..DeliveryStatus::default() };
            let met = met(&record(1), &mut status, Some(Record { status: again("1"), ..record(1) }));
            assert!(matches!(met, Ok(Written::Reopened(_))), "{met:?}");
        }
    }
}
