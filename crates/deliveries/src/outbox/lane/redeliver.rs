//! Redelivery of a settled delivery at the request of a user. Pure.
//!
//! Each new value of the annotation causes one redelivery. The write that reopens the delivery also stores the value. So neither a restart
//! nor another replica repeats the redelivery.

use sha2::{Digest as _, Sha256};

use crate::outbox::record::Record;
use relaybook_api::delivery::Redelivered;
use relaybook_api::{DeliveryStatus, Time};

/// Maximum length of a stored value, in characters. A longer value is cut to this length, and a hash of the whole value is appended.
const VALUE: usize = 128;

/// Returns the value of a settled delivery's annotation, if Relaybook has not processed it yet.
#[must_use]
pub fn wanted(record: &Record) -> Option<String> {
    record.status.outcome?;
    unheeded(record)
}

/// Returns the status that reopens a settled delivery. The delivery is pending again, and keeps the counts and the last response.
#[must_use]
pub fn reopened(before: &DeliveryStatus, value: String, now: Time) -> DeliveryStatus {
    DeliveryStatus {
        outcome: None,
        reason: None,
        settled_time: None,
        next_attempt_time: None,
        redelivered: Some(Redelivered { value, time: now }),
        ..before.clone()
    }
}

/// Adds the annotation of a pending delivery to its outcome. The delivery is sent anyway, so its annotation causes no second request. If a
/// delivery that is already being redelivered gets a new annotation, it is redelivered once more.
#[must_use]
pub fn noted(record: &Record, status: DeliveryStatus, now: Time) -> DeliveryStatus {
    if status.outcome.is_none() || record.again {
        return status;
    }
    match unheeded(record) {
        Some(value) => DeliveryStatus { redelivered: Some(Redelivered { value, time: now }), ..status },
        None => status,
    }
}

fn unheeded(record: &Record) -> Option<String> {
    let value = kept(record.asked.as_deref()?);
    let acted = record.status.redelivered.as_ref().is_some_and(|redelivered| redelivered.value == value);
    (!acted).then_some(value)
}

/// Shortens a value for the status.
fn kept(value: &str) -> String {
    match value.char_indices().nth(VALUE) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}…{}", &value[..end], &hex::encode(Sha256::digest(value))[..16]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::testing::record;
    use relaybook_api::Outcome;

    fn asked(value: &str) -> Record {
        let mut record = record(1);
        record.asked = Some(value.to_owned());
        record.status.outcome = Some(Outcome::Parked);
        record.status.settled_time = Some(Time::UNIX_EPOCH);
        record
    }

    #[test]
    fn each_value_of_the_annotation_reopens_a_delivery_once() {
        let mut first = asked("1");
        let value = wanted(&first).unwrap();
        let reopened = reopened(&first.status, value, Time::UNIX_EPOCH);
        assert_eq!((reopened.outcome, reopened.settled_time), (None, None));
        first.status = reopened;
        assert_eq!(wanted(&first), None, "it is pending");
        first.status.outcome = Some(Outcome::Delivered);
        assert_eq!(wanted(&first), None, "that was done");
        first.asked = Some("2".to_owned());
        assert_eq!(wanted(&first).as_deref(), Some("2"));
        first.asked = None;
        assert_eq!(wanted(&first), None);
        assert_eq!(wanted(&asked("")).as_deref(), Some(""));
    }

    #[test]
    fn the_annotation_of_a_pending_delivery_does_not_send_it_twice() {
        let mut pending = asked("1");
        pending.status.outcome = None;
        let settled = DeliveryStatus { outcome: Some(Outcome::Delivered), ..pending.status.clone() };
        let noted_status = noted(&pending, settled.clone(), Time::UNIX_EPOCH);
        assert_eq!(wanted(&Record { status: noted_status, ..pending.clone() }), None);
        assert_eq!(noted(&pending, pending.status.clone(), Time::UNIX_EPOCH), pending.status, "not before it is settled");
        let again = Record { again: true, ..pending };
        assert_eq!(noted(&again, settled.clone(), Time::UNIX_EPOCH), settled);
    }

    #[test]
    fn long_values_of_the_annotation_are_cut_and_stay_different() {
        let (a, b) = (format!("{}a", "é".repeat(500)), format!("{}b", "é".repeat(500)));
        assert_ne!(kept(&a), kept(&b));
        assert!(kept(&a).chars().count() < 160);
    }
}
