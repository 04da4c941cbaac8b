//! Which pending deliveries of a lane are superseded by later ones, and how many each replaces. Pure.
//!
//! A later delivery about the same subject contains everything that an earlier one contains. With `supersede`, every earlier delivery that
//! is not in flight is superseded. Without it, a lane contains at most [`BOUND`] deliveries. If there are more, the newest ones are
//! superseded, except the last one about each subject. So the oldest are still sent in order, and the last one replaces the superseded
//! ones. Each superseded delivery gets the outcome Superseded. A transition of a promotion is never superseded, and does not count toward
//! [`BOUND`], because a receiver acts on each of them.
//!
//! The counts form a chain. Each superseded delivery contains the number of deliveries that it had replaced itself. The next one about the
//! same subject replaces that number and one more. So the stored data give the right count after a crash at any point.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use super::{Lane, Place};
use crate::outbox::record::{Record, SupersedeKey};
use relaybook_api::delivery::Reason;
use relaybook_api::{DeliveryStatus, Outcome, Time};

/// Maximum number of pending deliveries in a lane, without those of promotions.
pub const BOUND: usize = 100;

/// Why deliveries are superseded: the reason in the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// `spec.delivery.supersede`.
    Wanted,
    /// The lane is full.
    LaneFull,
}

impl Why {
    const fn reason(self) -> Reason {
        match self {
            Self::Wanted => Reason::NewerPending,
            Self::LaneFull => Reason::LaneFull,
        }
    }
}

/// Returns the places of the deliveries to supersede, oldest first.
#[must_use]
pub fn victims(lane: &Lane<Record>, why: Why) -> Vec<Place> {
    let most = match why {
        Why::Wanted => usize::MAX,
        Why::LaneFull => queue(lane).count().saturating_sub(BOUND),
    };
    choose(queue(lane), lane.at_work(), most)
}

/// Returns the deliveries that others can replace, in order, each with what it is about.
fn queue(lane: &Lane<Record>) -> impl DoubleEndedIterator<Item = (Place, SupersedeKey<'_>)> {
    lane.iter().filter_map(|(place, record)| Some((place, record.supersede_key()?)))
}

/// Returns at most `most` deliveries that have a later one with the same supersede key. It chooses the youngest ones, and returns them in
/// order.
fn choose<K: Eq + Hash>(
    queue: impl DoubleEndedIterator<Item = (Place, K)>,
    at_work: Option<Place>,
    most: usize,
) -> Vec<Place> {
    let mut later = HashSet::new();
    let replaced = queue.rev().filter_map(|(place, supersede_key)| {
        // Insert the key first: a delivery in progress also counts as a later one for those before it.
        let replaced = !later.insert(supersede_key);
        (replaced && Some(place) != at_work).then_some(place)
    });
    let mut places: Vec<_> = replaced.take(most).collect();
    places.reverse();
    places
}

/// Returns the statuses of the superseded deliveries. `known` returns how many settled deliveries a delivery replaces, counting only those
/// behind the given place.
pub fn statuses(
    lane: &Lane<Record>,
    victims: &[Place],
    why: Why,
    now: Time,
    known: impl Fn(&Record, Option<Place>) -> i64,
) -> Vec<DeliveryStatus> {
    let goes: HashSet<_> = victims.iter().copied().collect();
    // By supersede key: the place of the last delivery, and how many deliveries the next one replaces because of it.
    let mut chain: HashMap<SupersedeKey<'_>, (Place, i64)> = HashMap::new();
    let mut statuses = Vec::with_capacity(victims.len());
    for (place, record) in lane.iter() {
        let Some(key) = record.supersede_key() else { continue };
        if !goes.contains(&place) {
            chain.insert(key, (place, 0));
            continue;
        }
        let (last, count) = chain.get(&key).map_or((None, 0), |(last, count)| (Some(*last), *count));
        let count = record.status.superseded.max(count + known(record, last));
        chain.insert(key, (place, count + 1));
        statuses.push(settled(&record.status, count, why, now));
    }
    statuses
}

fn settled(before: &DeliveryStatus, superseded: i64, why: Why, now: Time) -> DeliveryStatus {
    DeliveryStatus {
        outcome: Some(Outcome::Superseded),
        reason: Some(why.reason().as_str().to_owned()),
        next_attempt_time: None,
        settled_time: Some(now),
        superseded,
        ..before.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;
    use crate::outbox::lane::After;
    use crate::outbox::store::retention_index::RetentionIndex;
    use crate::outbox::testing::record;
    use relaybook_api::TransitionType;

    fn places(lane: &str, at_work: Option<i64>, most: usize) -> Vec<i64> {
        let place = |serial| Place::from(&*record(serial).spec);
        let queue: Vec<_> = lane.bytes().zip(1..).map(|(supersede_key, serial)| (place(serial), supersede_key)).collect();
        choose(queue.into_iter(), at_work.map(place), most).into_iter().map(Place::serial).collect()
    }

    #[test]
    fn a_waiting_delivery_is_superseded_by_a_later_one_of_the_same_key() {
        // Each row: the pending deliveries (oldest first), the one in progress, the maximum number to supersede, and the superseded ones.
        for (lane, at_work, most, expected) in [
            ("", None, usize::MAX, &[][..]),
            ("a", None, usize::MAX, &[]),
            ("aaaa", None, usize::MAX, &[1, 2, 3]),
            ("aaaa", Some(1), usize::MAX, &[2, 3]),
            ("aaaa", Some(4), usize::MAX, &[1, 2, 3]),
            ("abab", None, usize::MAX, &[1, 2]),
            ("abc", None, usize::MAX, &[]),
            ("aaaa", None, 1, &[3]),
            ("aaaa", Some(3), 1, &[2]),
            ("abacd", None, 2, &[1]),
            ("aaaa", None, 0, &[]),
        ] {
            assert_eq!(places(lane, at_work, most), expected, "{lane}");
        }
    }

    #[test]
    fn counts_of_superseded_deliveries_continue_from_the_stored_ones() {
        let mut lane = Lane::default();
        for serial in 1..=5 {
            let record = record(serial);
            lane.insert(Place::from(&*record.spec), record);
        }
        let at = |serial| Place::from(&*record(serial).spec);
        // Seven deliveries were replaced before the first, and three between the second and the third.
        let known = |record: &Record, after: Option<Place>| match record.spec.serial {
            1 if after.is_none() => 7,
            3 if after == Some(at(2)) => 3,
            _ => 0,
        };
        let counts = |victims: &[Place]| {
            let statuses = statuses(&lane, victims, Why::Wanted, Time::UNIX_EPOCH, known);
            statuses.into_iter().map(|s| s.superseded).collect::<Vec<_>>()
        };
        assert_eq!(counts(&[at(1), at(2), at(3), at(4)]), [7, 8, 12, 13]);
        assert_eq!(counts(&[at(1), at(3), at(4)]), [7, 3, 4], "one that stays is itself what the later ones follow");
        let status = &statuses(&lane, &[at(1)], Why::LaneFull, Time::UNIX_EPOCH, known)[0];
        assert_eq!((status.outcome, status.reason.as_deref()), (Some(Outcome::Superseded), Some("LaneFull")));
    }

    #[test]
    fn a_full_lane_supersedes_deliveries_down_to_its_bound() {
        let mut lane = Lane::default();
        for serial in 1..=130 {
            let record = record(serial);
            lane.insert(Place::from(&*record.spec), record);
        }
        let gone: Vec<_> = victims(&lane, Why::LaneFull).into_iter().map(Place::serial).collect();
        assert_eq!(gone, (100..130).collect::<Vec<_>>());
        let places = victims(&lane, Why::LaneFull);
        assert_eq!(lane.supersede(&places).len(), 30);
        assert_eq!(lane.count(), BOUND);
    }

    #[test]
    fn transitions_of_promotions_are_neither_superseded_nor_counted() {
        let mut lane = Lane::default();
        let promoted = |serial| {
            let mut record = record(serial);
            Arc::make_mut(&mut record.spec).type_ = TransitionType::PromotionRequested;
            record
        };
        for record in (1..=150).map(promoted) {
            lane.insert(Place::from(&*record.spec), record);
        }
        assert!(victims(&lane, Why::Wanted).is_empty() && victims(&lane, Why::LaneFull).is_empty());
        for serial in 151..=155 {
            let record = record(serial);
            lane.insert(Place::from(&*record.spec), record);
        }
        assert!(victims(&lane, Why::LaneFull).is_empty(), "only 5 count");
        let wanted: Vec<_> = victims(&lane, Why::Wanted).into_iter().map(Place::serial).collect();
        assert_eq!(wanted, [151, 152, 153, 154]);
        let replaced: Vec<_> = victims(&lane, Why::Wanted);
        let statuses = statuses(&lane, &replaced, Why::Wanted, Time::UNIX_EPOCH, |_, _| 0);
        assert_eq!(statuses.iter().map(|status| status.superseded).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    /// A lane, its stored state, and a process that can die between any two steps.
    #[derive(Default)]
    struct Life {
        stored: std::collections::BTreeMap<i64, Record>,
        lane: Lane<Record>,
        kept: RetentionIndex,
        clock: i64,
        sent: Vec<(i64, i64)>,
    }

    impl Life {
        fn arrive(&mut self) {
            let next = record(i64::try_from(self.stored.len()).unwrap() + 1);
            self.lane.insert(Place::from(&*next.spec), next.clone());
            self.stored.insert(next.spec.serial, next);
        }

        fn store(&mut self, record: Record, status: DeliveryStatus) {
            let record = Record { status, ..record };
            let home = self.kept.lane(record.home());
            if record.status.outcome.is_some() {
                self.kept.put(&home, &record);
            }
            self.stored.insert(record.spec.serial, record);
        }

        /// Supersedes at most `most` deliveries. Only the first `writes` of the outcomes are written, and the process dies if some are not.
        fn supersede(&mut self, most: usize, writes: usize) {
            self.clock += 1;
            let places = choose(queue(&self.lane), self.lane.at_work(), most);
            let now = Time::from_second(self.clock).unwrap();
            let known = |record: &Record, after| self.kept.replaced(record, after);
            let statuses = statuses(&self.lane, &places, Why::Wanted, now, known);
            for (record, status) in self.lane.supersede(&places).into_iter().zip(statuses).take(writes) {
                self.store(record, status);
                self.lane.superseded();
            }
            if self.lane.is_marking() {
                self.crash();
            }
        }

        fn begin(&mut self) {
            let Some(head) = self.lane.take(Instant::now()).cloned() else { return };
            let superseded = head.status.superseded.max(self.kept.replaced(&head, None));
            let status = DeliveryStatus { superseded, ..head.status.clone() };
            *self.lane.busy().unwrap() = Record { status: status.clone(), ..head.clone() };
            self.store(head, status);
        }

        fn end(&mut self, taken: bool) {
            self.clock += 1;
            let Some(busy) = self.lane.busy().cloned() else { return };
            let after =
                if taken { After::Settled { answered: true } } else { After::Retry { until: Instant::now(), asked: false } };
            self.lane.done(after);
            if taken {
                self.sent.push((busy.spec.serial, busy.status.superseded));
                let settled_time = Some(Time::from_second(self.clock).unwrap());
                let status = DeliveryStatus { outcome: Some(Outcome::Delivered), settled_time, ..busy.status.clone() };
                self.store(busy, status);
            }
        }

        fn crash(&mut self) {
            (self.lane, self.kept) = (Lane::default(), RetentionIndex::default());
            for record in self.stored.values() {
                let home = self.kept.lane(record.home());
                match record.status.outcome {
                    Some(_) => self.kept.put(&home, record),
                    None => drop(self.lane.insert(Place::from(&*record.spec), record.clone())),
                }
            }
        }
    }

    proptest! {
        /// In any order of events, nothing is lost and the order is kept. Each sent delivery contains the number of deliveries that it
        /// replaces.
        #[test]
        fn every_superseded_delivery_is_counted_once(steps in prop::collection::vec((0u8..13, 0usize..5), 1..120)) {
            let mut life = Life::default();
            for (step, writes) in steps {
                match step {
                    0..4 => life.arrive(),
                    4 => life.supersede(usize::MAX, usize::MAX),
                    5 => life.supersede(1, 1),
                    11 => life.supersede(usize::MAX, writes),
                    6 | 7 => life.begin(),
                    8 => life.end(true),
                    9 | 10 => life.end(false),
                    _ => life.crash(),
                }
            }
            life.end(true);
            while life.lane.count() > 0 {
                life.begin();
                life.end(true);
            }
            prop_assert!(life.sent.is_sorted());
            let superseded = life.stored.values().filter(|r| r.status.outcome == Some(Outcome::Superseded)).count();
            prop_assert_eq!(life.sent.len() + superseded, life.stored.len());
            prop_assert_eq!(life.sent.iter().map(|(_, count)| *count).sum::<i64>(), i64::try_from(superseded).unwrap());
        }
    }
}
