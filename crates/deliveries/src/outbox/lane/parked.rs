//! The deliveries that were parked since the last successful delivery to the receiver. Pure.

use std::collections::BTreeMap;

use crate::outbox::record::Record;
use relaybook_api::{ObjectName, Outcome, Time};

/// Maximum number of parked deliveries that are kept here for one notification. The newest ones are kept.
const MOST: usize = 100;

/// Why a delivery was parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Park {
    /// The reason in the status of the delivery.
    pub reason: String,
    /// HTTP status of the last response.
    pub code: Option<u16>,
    /// The error in the status of the delivery.
    pub error: String,
    /// The subject of the delivery.
    pub subject: String,
}

/// The settled deliveries of one notification that show whether the receiver lacks any delivery. These are the deliveries that were parked
/// after the last Delivered one, sorted by the time at which they were settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parked {
    parks: BTreeMap<(Time, ObjectName), Park>,
    /// When a delivery was last Delivered.
    pub delivered: Option<Time>,
    /// When a user last requested a redelivery.
    pub requested: Option<Time>,
}

impl Parked {
    /// Updates this from the current state of a delivery.
    pub fn note(&mut self, record: &Record) {
        let status = &record.status;
        let settled = status.settled_time.unwrap_or(record.recorded);
        // A request on a delivery that was still pending requires no redelivery, so it does not count. Its time is that of the outcome, or
        // slightly later.
        let requested = status.redelivered.as_ref().map(|redelivered| redelivered.time);
        let counts = |time: &Time| status.outcome.is_none() || *time < settled;
        self.requested = self.requested.max(requested.filter(counts));
        match status.outcome {
            Some(Outcome::Delivered) => {
                self.delivered = self.delivered.max(Some(settled));
                self.parks.retain(|(time, _), _| *time > settled);
            }
            Some(Outcome::Parked) if Some(settled) > self.delivered => {
                let park = Park {
                    reason: status.reason.clone().unwrap_or_default(),
                    code: status.status_code,
                    error: status.error.clone().unwrap_or_default(),
                    subject: record.spec.subject.name.clone(),
                };
                self.parks.insert((settled, record.id.clone()), park);
                if self.parks.len() > MOST {
                    self.parks.pop_first();
                }
            }
            _ => {}
        }
    }

    /// Removes a delivery that is pending again, or whose object is gone.
    pub fn forget(&mut self, id: &ObjectName) {
        self.parks.retain(|(_, known), _| known != id);
    }

    /// Returns when a delivery was last parked, if none was Delivered since.
    #[must_use]
    pub fn last(&self) -> Option<Time> {
        self.parks.last_key_value().map(|((time, _), _)| *time)
    }

    /// Returns the deliveries that were parked after `since`, the newest first.
    pub fn after(&self, since: Option<Time>) -> impl Iterator<Item = (Time, &Park)> {
        let all = self.parks.iter().rev().map(|((time, _), park)| (*time, park));
        all.take_while(move |(time, _)| Some(*time) > since)
    }

    /// Returns whether no parked delivery is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::testing::record;
    use relaybook_api::delivery::Redelivered;

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn settled(serial: i64, outcome: Outcome, second: i64) -> Record {
        let mut record = record(serial);
        record.status.outcome = Some(outcome);
        record.status.settled_time = Some(at(second));
        record.status.reason = Some("ReceiverRejected".to_owned());
        record
    }

    fn times(parked: &Parked) -> Vec<i64> {
        parked.after(None).map(|(time, _)| time.as_second()).collect()
    }

    #[test]
    fn only_deliveries_parked_since_the_last_success_count_in_any_order_of_the_list() {
        use Outcome::{Canceled, Delivered, Parked as Given, Superseded};
        let mut all = [
            settled(1, Given, 10),
            settled(2, Delivered, 20),
            settled(3, Given, 30),
            settled(4, Canceled, 40),
            settled(5, Given, 50),
            settled(6, Superseded, 60),
        ];
        for _ in 0..all.len() {
            all.rotate_left(1);
            let mut parked = Parked::default();
            for record in &all {
                parked.note(record);
            }
            assert_eq!((times(&parked), parked.last()), (vec![50, 30], Some(at(50))));
            assert_eq!(parked.after(Some(at(30))).count(), 1);
            parked.note(&settled(7, Delivered, 55));
            assert_eq!((times(&parked), parked.last()), (vec![], None));
        }
    }

    #[test]
    fn a_redelivery_of_a_parked_delivery_is_remembered_and_of_a_pending_one_is_not() {
        let mut parked = Parked::default();
        parked.note(&settled(1, Outcome::Parked, 10));
        let mut reopened = record(1);
        reopened.status.redelivered = Some(Redelivered { value: "1".into(), time: at(20) });
        parked.forget(&reopened.id);
        parked.note(&reopened);
        assert_eq!((parked.requested, parked.is_empty()), (Some(at(20)), true));
        let mut again = settled(1, Outcome::Parked, 30);
        again.status.redelivered = Some(Redelivered { value: "1".into(), time: at(20) });
        parked.note(&again);
        assert_eq!((parked.requested, times(&parked)), (Some(at(20)), vec![30]));
        let mut pending = settled(2, Outcome::Parked, 40);
        pending.status.redelivered = Some(Redelivered { value: "1".into(), time: at(40) });
        parked.note(&pending);
        assert_eq!((parked.requested, times(&parked)), (Some(at(20)), vec![40, 30]));
    }

    #[test]
    fn the_number_of_remembered_parked_deliveries_is_bounded() {
        let mut parked = Parked::default();
        for n in 1..=250 {
            parked.note(&settled(n, Outcome::Parked, n));
        }
        assert_eq!((times(&parked).len(), parked.last()), (MOST, Some(at(250))));
    }
}
