//! Settled deliveries that are kept, by lane, and which of them have been kept long enough. Pure.
//!
//! Settled deliveries are the audit trail, so only retention rules and the cap delete them. Of each lane, the newest are kept, and parked
//! ones in addition. Deliveries beyond the maximum age are deleted. A delivery whose change can be recorded again is kept in any case; the
//! persisted cursor shows whether it can. A delivery for which a user has requested a redelivery is also kept. So are a superseded one whose
//! count is still needed, and one whose message the next delivery continues.
//!
//! The cost of a sweep depends on what has changed or is due, not on the number of kept deliveries. Lanes are indexed by the time at which
//! a rule may next apply to one of their rows. Rows are indexed by age, for the cap.

mod messages;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::outbox::lane::Place;
use crate::outbox::lane::redeliver::wanted;
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::facts::PersistedCursor;
use relaybook_api::delivery::MessageThread;
use relaybook_api::{ObjectName, Outcome, Time, version};
use relaybook_settings::config::Retain;
use relaybook_telemetry::metrics::Removal;

/// Minimum time for which a settled delivery is kept. In this time, users can read it and cursors are persisted.
const GRACE: Duration = Duration::from_mins(1);
/// Maximum time between two checks of a lane. Rules can change without an event, for example by a label of a pipeline.
const AGAIN: Duration = Duration::from_mins(10);

/// All settled deliveries that are kept.
#[derive(Debug, Default)]
pub struct RetentionIndex {
    lanes: HashMap<Arc<LaneKey>, Rows>,
    count: usize,
    /// When each lane has to be checked next.
    due: BTreeSet<(Time, Arc<LaneKey>)>,
    /// All rows, in the order in which the cap deletes them.
    old: BTreeSet<(bool, Time, Arc<LaneKey>, Place)>,
    /// The version of the rules at the last check.
    rules: u64,
}

#[derive(Debug, Default)]
struct Rows {
    settled: BTreeMap<Place, Row>,
    /// The due time of the lane, as in the index.
    due: Time,
    /// Number of pending deliveries of this lane.
    pending: usize,
    /// What the redeliveries among them are about.
    reopened: BTreeMap<Place, u64>,
    /// By what they are about: the deliveries whose message the next delivery continues.
    open: BTreeMap<u64, Place>,
}

/// One settled delivery.
#[derive(Clone, Debug)]
struct Row {
    id: ObjectName,
    version: u64,
    outcome: Outcome,
    settled: Time,
    superseded: i64,
    /// A hash of what the delivery is about. It is precise enough.
    about: u64,
    /// The message that the next delivery continues. Only the newest delivery about something has one.
    message: Option<Arc<MessageThread>>,
    /// Whether a message of an earlier delivery ends with it: it was delivered once.
    ends_earlier: bool,
    /// Whether a user has requested its redelivery.
    asked: bool,
}

/// How long the deliveries of a lane are kept.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The limits, from the notification or the defaults.
    pub retain: Retain,
    /// The persisted cursor. Changes above it, or with a running timer, can be recorded again.
    pub cursor: Persisted<'a>,
    /// Whether deletes fail in the namespace of these deliveries at present. They are then counted, but do not use up the limit of a sweep.
    pub resting: bool,
    /// Whether another replica deletes these deliveries. They are counted, and use up the limit of the cap.
    pub elsewhere: bool,
}

/// What is known about the persisted cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persisted<'a> {
    /// The cursor is not known: all deliveries are kept.
    Unknown,
    /// The persisted cursor.
    At(&'a PersistedCursor),
    /// There is no cursor: nothing can be recorded again.
    Gone,
}

/// A delivery that has been kept long enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surplus {
    /// The delivery.
    pub id: ObjectName,
    /// The version on which this was decided; `u64::MAX` if it is not a number.
    pub version: u64,
    /// Why it has to be deleted.
    pub reason: Removal,
}

/// The deliveries that have been kept long enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// The first of these deliveries.
    pub goes: Vec<Surplus>,
    /// Total number of these deliveries.
    pub count: usize,
    /// Number of rows that were checked to find them.
    pub checked: usize,
}

/// Returns the hash of what a delivery is about.
fn about(record: &Record) -> u64 {
    let mut hasher = DefaultHasher::new();
    record.about().hash(&mut hasher);
    hasher.finish()
}

impl RetentionIndex {
    /// Returns the key of a lane, which all of its entries share.
    pub fn lane(&mut self, key: LaneKey) -> Arc<LaneKey> {
        let known = self.lanes.get_key_value(&key).map(|(known, _)| Arc::clone(known));
        known.unwrap_or_else(|| {
            let key = Arc::new(key);
            self.lanes.insert(Arc::clone(&key), Rows::default());
            key
        })
    }

    /// Stores the current state of a delivery.
    pub fn put(&mut self, lane: &Arc<LaneKey>, record: &Record) {
        self.dirty(lane);
        let rows = self.lanes.entry(Arc::clone(lane)).or_default();
        let status = &record.status;
        let place = Place::from(&*record.spec);
        let Some(outcome) = status.outcome else {
            rows.pending += 1;
            if record.again {
                rows.end_message(about(record), place);
                rows.reopened.insert(place, about(record));
            }
            return;
        };
        rows.reopened.remove(&place);
        let ends_earlier = outcome == Outcome::Delivered || status.thread.is_some();
        let message = status.thread.as_ref().filter(|thread| outcome == Outcome::Delivered && !thread.closed);
        if ends_earlier {
            rows.end_message(about(record), place);
        }
        let row = Row {
            id: record.id.clone(),
            version: version(Some(&record.version)),
            outcome,
            settled: status.settled_time.unwrap_or(record.recorded),
            superseded: status.superseded,
            about: about(record),
            message: message.filter(|_| rows.begin_message(about(record), place)).map(|thread| Arc::new(thread.clone())),
            ends_earlier,
            asked: wanted(record).is_some(),
        };
        self.old.insert(row.by_age(lane, place));
        match rows.settled.insert(place, row) {
            None => self.count += 1,
            Some(before) => self.take_old(lane, place, &before),
        }
    }

    /// Removes a row from the index by age, unless the row that replaced it has the same key.
    fn take_old(&mut self, lane: &Arc<LaneKey>, place: Place, row: &Row) {
        let now = self.lanes.get(lane).and_then(|rows| rows.settled.get(&place));
        if now.is_none_or(|now| now.by_age(lane, place) != row.by_age(lane, place)) {
            self.old.remove(&row.by_age(lane, place));
        }
    }

    /// Makes the next sweep check a lane, because something in it has changed.
    fn dirty(&mut self, lane: &Arc<LaneKey>) {
        self.put_due(lane, Time::MIN);
    }

    fn put_due(&mut self, lane: &Arc<LaneKey>, due: Time) {
        let rows = self.lanes.entry(Arc::clone(lane)).or_default();
        let before = std::mem::replace(&mut rows.due, due);
        self.due.remove(&(before, Arc::clone(lane)));
        self.due.insert((due, Arc::clone(lane)));
    }

    /// Removes a delivery. `outcome`: the outcome with which it was stored.
    pub fn take(&mut self, lane: &Arc<LaneKey>, place: Place, outcome: Option<Outcome>) {
        let Some(rows) = self.lanes.get_mut(lane) else { return };
        let (due, mut gone) = (rows.due, None);
        if outcome.is_none() {
            rows.pending = rows.pending.saturating_sub(1);
            rows.reopened.remove(&place);
        } else {
            gone = rows.settled.remove(&place);
            rows.open.retain(|_, of| *of != place);
        }
        let is_empty = rows.settled.is_empty() && rows.pending == 0;
        if let Some(row) = gone {
            self.count -= 1;
            self.take_old(lane, place, &row);
        }
        if is_empty {
            self.lanes.remove(lane);
            self.due.remove(&(due, Arc::clone(lane)));
        } else {
            self.dirty(lane);
        }
    }

    /// Returns how many settled deliveries are kept.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns how many earlier deliveries this one replaces: those just before it, with the same supersede key, that were superseded. Only
    /// those behind `after` count.
    ///
    /// The last of them contains how many it had replaced itself, so older ones need not be kept. A delivery before it can have been
    /// superseded later, because it was in flight at that time. Such a delivery is added.
    #[must_use]
    pub fn replaced(&self, record: &Record, after: Option<Place>) -> i64 {
        if record.supersede_key().is_none() {
            return 0;
        }
        let about = about(record);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let to = Bound::Excluded(Place::from(&*record.spec));
        let Some(rows) = self.lanes.get(&record.home()) else { return 0 };
        let before = rows.settled.range((from, to)).rev().map(|(_, row)| row).filter(|row| row.about == about);
        let superseded = before.take_while(|row| row.outcome == Outcome::Superseded);
        let mut told = None;
        superseded.fold(0i64, |count, row| {
            if told.is_some_and(|told| row.settled <= told) {
                return count;
            }
            told = Some(row.settled);
            count.saturating_add(row.superseded).saturating_add(1)
        })
    }

    /// Returns the first `most` deliveries past their retention limit. `cap`: the maximum number of deliveries that are kept in total. If
    /// `version` has changed, the rules have changed, and all lanes are checked.
    pub fn overdue<'a>(
        &mut self,
        rules: impl Fn(&LaneKey) -> Rules<'a>,
        version: u64,
        cap: usize,
        most: usize,
        now: Time,
    ) -> Overdue {
        let mut overdue = Overdue::default();
        if std::mem::replace(&mut self.rules, version) != version {
            let all: Vec<_> = self.lanes.keys().cloned().collect();
            for lane in all {
                self.dirty(&lane);
            }
        }
        let due: Vec<_> = self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, lane)| Arc::clone(lane)).collect();
        for lane in due {
            let (rules, Some(rows)) = (rules(&lane), self.lanes.get(&lane)) else { continue };
            overdue.checked += rows.settled.len();
            let goes = |row: &Row, reason| {
                overdue.count += 1;
                if overdue.goes.len() < most && !rules.resting && !rules.elsewhere {
                    overdue.goes.push(row.surplus(reason));
                }
            };
            let next = rows.check(&rules, now, goes, |_| {});
            self.put_due(&lane, next);
        }
        // The rules apply first. If too many deliveries are left, the cap deletes the oldest, parked ones last.
        let left = self.count.saturating_sub(cap).saturating_sub(overdue.count);
        if left > 0 {
            self.by_cap(&rules, left, most, now, &mut overdue);
        }
        overdue
    }

    /// Adds deliveries that no rule deletes, because there are `left` more than the cap allows. Where deletes fail, deliveries are counted,
    /// but do not use up the limit. Each replica deletes its own of those that are the oldest of all.
    fn by_cap<'a>(&self, rules: &impl Fn(&LaneKey) -> Rules<'a>, left: usize, most: usize, now: Time, all: &mut Overdue) {
        let mut lanes: HashMap<&Arc<LaneKey>, (bool, bool, HashSet<Place>)> = HashMap::new();
        let (mut found, mut taken) = (0, 0);
        for (_, _, lane, place) in &self.old {
            let Some(rows) = self.lanes.get(lane) else { continue };
            let (resting, elsewhere, free) = lanes.entry(lane).or_insert_with(|| {
                let (rules, mut free) = (rules(lane), HashSet::new());
                all.checked += rows.settled.len();
                rows.check(&rules, now, |_, _| {}, |place| _ = free.insert(place));
                (rules.resting, rules.elsewhere, free)
            });
            let Some(row) = rows.settled.get(place).filter(|_| free.contains(place)) else { continue };
            found += 1;
            if !*resting && taken < left {
                taken += 1;
                if all.goes.len() < most && !*elsewhere {
                    all.goes.push(row.surplus(Removal::Cap));
                }
            }
            if found >= left && (taken == left || all.goes.len() >= most) {
                break;
            }
        }
        all.count += found.min(left);
    }
}

impl Row {
    fn by_age(&self, lane: &Arc<LaneKey>, place: Place) -> (bool, Time, Arc<LaneKey>, Place) {
        (self.outcome == Outcome::Parked, self.settled, Arc::clone(lane), place)
    }

    fn surplus(&self, reason: Removal) -> Surplus {
        Surplus { id: self.id.clone(), version: self.version, reason }
    }
}

impl Rows {
    /// Calls `goes` for rows that a rule deletes, and `free` for rows that the cap can delete. Returns when this can next change without a
    /// change in the lane.
    fn check(&self, rules: &Rules<'_>, now: Time, mut goes: impl FnMut(&Row, Removal), mut free: impl FnMut(Place)) -> Time {
        let mut newer = 0;
        let mut themes = HashSet::new();
        let mut next = after(now, AGAIN);
        for (place, row) in self.settled.iter().rev() {
            let last = themes.insert(row.about);
            let parked = row.outcome == Outcome::Parked;
            newer += usize::from(!parked);
            // A pending delivery replaces it, and its count is still needed for that.
            let counts = last && row.outcome == Outcome::Superseded && self.pending > 0;
            if counts || row.asked {
                continue;
            }
            // The next delivery continues its message.
            if let Some(end) = row.message_end().filter(|end| now < *end) {
                next = next.min(end);
                continue;
            }
            let many = !parked && newer > rules.retain.per_lane;
            let at = after(row.settled, if many { GRACE } else { rules.retain.max_age.max(GRACE) });
            if at > now {
                next = next.min(at);
            }
            let age = Duration::try_from(now.duration_since(row.settled)).unwrap_or_default();
            let reason = match () {
                () if age < GRACE => continue,
                () if age > rules.retain.max_age => Some(Removal::MaxAge),
                () if many => Some(Removal::PerLane),
                () => None,
            };
            // The cursor may advance before the next sweep, and an overdue row is counted until it is deleted.
            if reason.is_some() || at <= now {
                next = Time::MIN;
            }
            match reason {
                _ if !rules.cursor.is_beyond(place.serial()) => {}
                Some(reason) => goes(row, reason),
                None => free(*place),
            }
        }
        next
    }
}

fn after(time: Time, span: Duration) -> Time {
    time.checked_add(span).unwrap_or(Time::MAX)
}

impl Persisted<'_> {
    fn is_beyond(self, serial: i64) -> bool {
        match self {
            Self::Unknown => false,
            Self::At(taken) => taken.is_beyond(serial),
            Self::Gone => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::outbox::testing::record;

    const RETAIN: Retain = Retain { per_lane: 2, max_age: Duration::from_secs(1000) };

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn settled(serial: i64, outcome: Outcome, second: i64) -> Record {
        let mut record = record(serial);
        record.status.outcome = Some(outcome);
        record.status.settled_time = Some(at(second));
        record
    }

    fn kept(records: &[Record]) -> RetentionIndex {
        let mut kept = RetentionIndex::default();
        for record in records {
            let lane = kept.lane(record.home());
            kept.put(&lane, record);
        }
        kept
    }

    fn goes(kept: &mut RetentionIndex, cursor: Persisted<'_>, cap: usize, now: i64) -> Vec<(i64, Removal)> {
        let rules = |_: &LaneKey| Rules { retain: RETAIN, cursor, resting: false, elsewhere: false };
        // A new version makes all lanes due, because the tests also set the time back.
        let version = kept.rules + 1;
        let overdue = kept.overdue(rules, version, cap, 100, at(now));
        assert_eq!(overdue.count, overdue.goes.len());
        let serial = |id: &ObjectName| (1..100).find(|n| record(*n).id == *id).unwrap();
        let mut goes: Vec<_> = overdue.goes.iter().map(|s| (serial(&s.id), s.reason)).collect();
        goes.sort_unstable();
        goes
    }

    #[test]
    fn the_newest_deliveries_of_a_lane_and_young_parked_ones_are_kept() {
        use Outcome::{Canceled, Delivered, Parked, Superseded};
        let outcomes = [Parked, Delivered, Superseded, Parked, Canceled, Delivered, Delivered];
        let records: Vec<_> = outcomes.into_iter().zip(1..).map(|(o, n)| settled(n, o, 100)).collect();
        let mut kept = kept(&records);
        let lane = Removal::PerLane;
        assert_eq!(goes(&mut kept, Persisted::Gone, 99, 200), [(2, lane), (3, lane), (5, lane)]);
        let at = |serial, timers: &[i64]| PersistedCursor { serial, pending_timers: timers.iter().copied().collect() };
        assert_eq!(goes(&mut kept, Persisted::At(&at(3, &[])), 99, 200), [(2, lane), (3, lane)], "not above the cursor");
        assert_eq!(
            goes(&mut kept, Persisted::At(&at(7, &[2])), 99, 200),
            [(3, lane), (5, lane)],
            "what its clock may come to stays"
        );
        assert_eq!(goes(&mut kept, Persisted::Unknown, 99, 200), []);
        assert_eq!(goes(&mut kept, Persisted::Gone, 99, 150), [], "not at once");
        let all: Vec<_> = (1..=7).map(|n| (n, Removal::MaxAge)).collect();
        assert_eq!(goes(&mut kept, Persisted::Gone, 99, 2000), all);
    }

    #[test]
    fn the_cap_deletes_the_oldest_deliveries_first_and_parked_ones_last() {
        use Outcome::{Delivered, Parked};
        let records = [settled(1, Parked, 10), settled(2, Delivered, 30), settled(3, Delivered, 20)];
        let mut kept = kept(&records);
        assert_eq!(goes(&mut kept, Persisted::Gone, 3, 200), []);
        assert_eq!(goes(&mut kept, Persisted::Gone, 2, 200), [(3, Removal::Cap)]);
        assert_eq!(goes(&mut kept, Persisted::Gone, 1, 200), [(2, Removal::Cap), (3, Removal::Cap)]);
        assert_eq!(goes(&mut kept, Persisted::Gone, 0, 200).len(), 3);
    }

    #[test]
    fn all_overdue_deliveries_are_counted_and_a_bounded_number_is_deleted() {
        let records: Vec<_> = (1..=9).map(|n| settled(n, Outcome::Delivered, 100)).collect();
        let mut kept = kept(&records);
        let mut overdue = |resting, cap, most| {
            let rules = |_: &LaneKey| Rules { retain: RETAIN, cursor: Persisted::Gone, resting, elsewhere: false };
            let overdue = kept.overdue(rules, 0, cap, most, at(200));
            (overdue.goes.len(), overdue.count)
        };
        assert_eq!(overdue(false, 99, 100), (7, 7));
        assert_eq!(overdue(false, 99, 3), (3, 7));
        assert_eq!(overdue(false, 1, 100), (8, 8), "one more by the cap");
        assert_eq!(overdue(false, 1, 3), (3, 8));
        assert_eq!(overdue(true, 99, 100), (0, 7), "where deletes fail they are counted, and others have their place");
        assert_eq!(overdue(true, 1, 100), (0, 8), "and by the cap as well");
    }

    #[test]
    fn replicas_together_delete_the_deliveries_above_the_cap() {
        let of = |pipeline: &str, number: i64| {
            let mut one = settled(number, Outcome::Delivered, 10 + number);
            Arc::make_mut(&mut one.spec).pipeline_ref.uid = pipeline.to_owned();
            one.id.name = format!("{pipeline}-{number}");
            one
        };
        let all = [of("p1", 1), of("p2", 2), of("p1", 3), of("p2", 4)];
        let deletes = |own: &str| {
            let mut kept = kept(&all);
            let rules = |lane: &LaneKey| Rules {
                retain: RETAIN,
                cursor: Persisted::Gone,
                resting: false,
                elsewhere: lane.pipeline != own,
            };
            let overdue = kept.overdue(rules, 0, 1, 100, at(200));
            let names: Vec<_> = overdue.goes.into_iter().map(|surplus| surplus.id.name).collect();
            (names, overdue.count)
        };
        let named = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((deletes("p1"), deletes("p2")), ((named(&["p1-1", "p1-3"]), 3), (named(&["p2-2"]), 3)));
    }

    #[test]
    fn the_number_of_replaced_deliveries_is_derived_from_the_kept_ones() {
        let mut first = settled(1, Outcome::Superseded, 10);
        first.status.superseded = 4;
        let all = kept(&[first.clone(), settled(9, Outcome::Delivered, 10)]);
        assert_eq!(all.replaced(&record(2), None), 5);
        assert_eq!(all.replaced(&record(1), None), 0);
        assert_eq!(all.replaced(&record(3), Some(Place::from(&*record(2).spec))), 0, "one that is pending stands between");
        assert_eq!(all.replaced(&record(10), None), 0, "one that was sent ends the chain");
        let mut other = record(2);
        let spec = Arc::make_mut(&mut other.spec);
        spec.subject.name = "dev/in-cluster/podinfo".to_owned();
        assert_eq!(all.replaced(&other, None), 0);
        // A delivery was in flight when later ones were superseded, and was then superseded itself.
        let mut late = settled(1, Outcome::Superseded, 40);
        late.status.superseded = 0;
        let mut second = settled(3, Outcome::Superseded, 20);
        second.status.superseded = 1;
        let chain = kept(&[late, settled(2, Outcome::Superseded, 20), second]);
        assert_eq!(chain.replaced(&record(4), None), 3);
        // While a delivery is pending, the newest superseded delivery is kept, however old it is.
        let mut all = kept(&[first.clone(), settled(2, Outcome::Superseded, 10)]);
        let home = all.lane(first.home());
        all.put(&home, &record(3));
        assert_eq!(goes(&mut all, Persisted::Gone, 0, 5000), [(1, Removal::MaxAge)]);
    }

    #[test]
    fn removed_deliveries_leave_no_entries_in_the_index() {
        let mut kept = kept(&[settled(1, Outcome::Delivered, 1), record(2)]);
        let lane = kept.lane(record(1).home());
        kept.put(&lane, &settled(1, Outcome::Delivered, 2));
        assert_eq!(kept.count(), 1);
        kept.take(&lane, Place::from(&*record(1).spec), Some(Outcome::Delivered));
        kept.take(&lane, Place::from(&*record(2).spec), None);
        assert_eq!((kept.count(), kept.lanes.len(), kept.due.len(), kept.old.len()), (0, 0, 0, 0));
    }

    /// Returns a record for one of many lanes.
    fn in_lane(lane: i64, serial: i64, outcome: Option<Outcome>, second: i64) -> Record {
        let mut record = record(serial);
        let spec = Arc::make_mut(&mut record.spec);
        spec.lane = format!("target/{lane}");
        spec.subject.name = spec.lane.clone();
        record.id.name = format!("{lane}/{serial}");
        record.status.outcome = outcome;
        record.status.settled_time = outcome.map(|_| at(second));
        record
    }

    #[test]
    fn a_search_reads_only_lanes_that_have_changed_or_are_due() {
        let all = (0..1000).flat_map(|lane| (1..=100).map(move |n| in_lane(lane, n, Some(Outcome::Delivered), 100)));
        let mut kept = kept(&all.collect::<Vec<_>>());
        let retain = Retain { per_lane: 100, max_age: Duration::from_hours(24) };
        let rules = |_: &LaneKey| Rules { retain, cursor: Persisted::Gone, resting: false, elsewhere: false };
        let cost = |kept: &mut RetentionIndex, version, cap, now| {
            let overdue = kept.overdue(rules, version, cap, 100, at(now));
            (overdue.checked, overdue.count)
        };
        assert_eq!(cost(&mut kept, 0, 100_000, 200), (100_000, 0), "the first check");
        assert_eq!(cost(&mut kept, 0, 100_000, 210), (0, 0));
        let lane = kept.lane(in_lane(7, 1, None, 0).home());
        kept.put(&lane, &in_lane(7, 101, Some(Outcome::Delivered), 205));
        assert_eq!(cost(&mut kept, 0, 200_000, 220), (101, 1), "one too many in its lane");
        assert_eq!(cost(&mut kept, 0, 200_000, 230), (101, 1), "it is still there");
        kept.take(&lane, Place::from(&*in_lane(7, 1, None, 0).spec), Some(Outcome::Delivered));
        assert_eq!([cost(&mut kept, 0, 200_000, 240), cost(&mut kept, 0, 200_000, 250)], [(100, 0), (0, 0)]);
        assert_eq!(cost(&mut kept, 0, 99_998, 260), (100, 2), "the cap looks at the lanes of the oldest");
        assert_eq!(cost(&mut kept, 1, 100_000, 270), (100_000, 0), "other rules");
        assert_eq!(cost(&mut kept, 1, 100_000, 280), (0, 0));
        assert_eq!(cost(&mut kept, 1, 100_000, 870), (100_000, 0), "after a while all the same");
    }

    /// Checks all rows, as would be necessary without an index.
    fn walk<'a>(
        kept: &RetentionIndex,
        rules: impl Fn(&LaneKey) -> Rules<'a>,
        cap: usize,
        now: Time,
    ) -> (Vec<(ObjectName, Removal)>, usize) {
        let (mut goes, mut old) = (Vec::new(), Vec::new());
        let (mut count, mut held) = (0, 0);
        let too_many = kept.count.saturating_sub(cap);
        for (key, rows) in &kept.lanes {
            let (rules, mut newer, mut themes) = (rules(key), 0, HashSet::new());
            for (place, row) in rows.settled.iter().rev() {
                let last = themes.insert(row.about);
                let continues = row.message_end().is_some_and(|end| now < end);
                let parked = row.outcome == Outcome::Parked;
                newer += usize::from(!parked);
                let counts = last && row.outcome == Outcome::Superseded && rows.pending > 0;
                let age = Duration::try_from(now.duration_since(row.settled)).unwrap_or_default();
                if counts || continues || row.asked || !rules.cursor.is_beyond(place.serial()) || age < GRACE {
                    continue;
                }
                let reason = match () {
                    () if age > rules.retain.max_age => Removal::MaxAge,
                    () if !parked && newer > rules.retain.per_lane => Removal::PerLane,
                    () if rules.resting => {
                        held += 1;
                        continue;
                    }
                    () => {
                        old.push((row.by_age(key, *place), row.id.clone()));
                        continue;
                    }
                };
                count += 1;
                if !rules.resting {
                    goes.push((row.id.clone(), reason));
                }
            }
        }
        let left = too_many.saturating_sub(count);
        count += left.min(old.len() + held);
        old.sort_unstable();
        goes.extend(old.into_iter().take(left).map(|(_, id)| (id, Removal::Cap)));
        goes.sort_unstable_by_key(|(id, _)| id.clone());
        (goes, count)
    }

    fn thread(end: i64) -> MessageThread {
        MessageThread {
            key: "k".to_owned(),
            id: String::new(),
            origin: "o".to_owned(),
            expiration_time: at(end),
            closed: false,
            values: [("id".to_owned(), end.to_string())].into(),
        }
    }

    #[test]
    fn the_newest_delivered_delivery_about_a_subject_has_the_message() {
        let with = |serial, outcome, end| {
            let mut record = settled(serial, outcome, 100);
            record.status.thread = Some(thread(end)).filter(|_| end > 0);
            record
        };
        let closed = |serial, outcome| {
            let mut record = with(serial, outcome, 900);
            record.status.thread.as_mut().unwrap().closed = true;
            record
        };
        let reopened = |serial| {
            let mut record = closed(serial, Outcome::Delivered);
            (record.status.outcome, record.again) = (None, true);
            record
        };
        let about_drift = |mut record: Record| {
            Arc::make_mut(&mut record.spec).type_ = relaybook_api::TransitionType::Drifted;
            record
        };
        let (sent, parked) = (Outcome::Delivered, Outcome::Parked);
        for (what, all, expected) in [
            ("none", vec![], None),
            ("the newest one", vec![with(1, sent, 901), with(2, sent, 902)], Some("902")),
            ("one that was not sent does not count", vec![with(1, sent, 901), with(2, parked, 0)], Some("901")),
            ("the newest one was a message of its own", vec![with(1, sent, 901), with(2, sent, 0)], None),
            ("the newest one has ended the message", vec![with(1, sent, 901), closed(2, sent)], None),
            ("and was then redelivered in vain", vec![with(1, sent, 901), closed(2, parked)], None),
            ("a later one was sent before", vec![with(1, sent, 901), with(9, sent, 909)], None),
            ("and was a message of its own", vec![with(1, sent, 901), with(9, sent, 0)], None),
            ("another family", vec![with(1, sent, 901), about_drift(with(2, sent, 902))], Some("901")),
        ] {
            let backwards = all.iter().rev().cloned().collect::<Vec<_>>();
            for all in [all, backwards] {
                let kept = kept(&all);
                let found = kept.message(&record(5)).map(|(_, thread)| thread.values["id"].as_str());
                assert_eq!(found, expected, "{what}");
                assert_eq!(kept.is_newest(&record(5), |_| true), all.iter().all(|known| known.spec.serial < 5), "{what}");
                let sent = all.iter().filter(|known| {
                    known.spec.serial < 5 && (known.status.thread.is_some() || known.status.outcome == Some(sent))
                });
                let sent = sent.filter(|known| known.spec.type_ == record(5).spec.type_);
                assert_eq!(kept.delivered_before(&record(5)), sent.map(|known| known.spec.serial).max(), "{what}");
            }
        }
        let waits = kept(&[with(1, sent, 901), reopened(2)]);
        assert_eq!(waits.message(&record(5)), None, "the one that has ended the message is sent again");
        assert!(!waits.is_newest(&record(1), |_| true), "a later one is sent again");
        assert!(waits.is_newest(&record(2), |_| true) && waits.is_newest(&record(5), |_| true));
        let forged = kept(&[with(1, sent, 901), with(9, sent, 909)]);
        let is_known = |id: &ObjectName| *id != record(9).id;
        assert!(forged.is_newest(&record(5), is_known), "another client may have created the later one");
        assert_eq!(forged.delivered_before(&record(10)), Some(9), "the identity is the same in each term");
        let mut deleted = kept(&[with(1, sent, 901), with(2, sent, 902)]);
        let lane = deleted.lane(record(2).home());
        deleted.take(&lane, Place::from(&*record(2).spec), Some(sent));
        assert_eq!(deleted.message(&record(5)), None, "the newest one was deleted");
    }

    #[test]
    fn a_delivery_is_kept_while_its_message_can_be_continued() {
        let mut records: Vec<_> = (1..=4).map(|serial| settled(serial, Outcome::Delivered, 100)).collect();
        records[0].status.thread = Some(thread(900));
        let mut none = kept(&records);
        assert_eq!(goes(&mut none, Persisted::Gone, 99, 200), [(1, Removal::PerLane), (2, Removal::PerLane)]);
        // Only the newest one that was delivered has a message.
        records[1..].iter_mut().for_each(|record| record.status.outcome = Some(Outcome::Canceled));
        let mut open = kept(&records);
        assert_eq!(goes(&mut open, Persisted::Gone, 0, 899).iter().filter(|(serial, _)| *serial == 1).count(), 0);
        assert_eq!(goes(&mut open, Persisted::Gone, 99, 900), [(1, Removal::PerLane), (2, Removal::PerLane)]);
    }

    proptest! {
        #[test]
        fn the_index_finds_the_same_deliveries_as_a_full_scan(
            steps in vec((0i64..4, 1i64..12, 0u8..9, 0i64..90), 1..120),
            caps in vec(0usize..30, 4),
            cursor in 0i64..14,
        ) {
            let (mut kept, mut there, mut now) = (RetentionIndex::default(), HashMap::new(), 1000);
            let mut retain = RETAIN;
            let mut version = 0;
            for (lane, serial, what, wait) in steps {
                now += wait;
                let outcomes = [Outcome::Delivered, Outcome::Parked, Outcome::Superseded, Outcome::Canceled];
                let outcome = outcomes.get(usize::from(what)).copied();
                let mut new = in_lane(lane, serial, outcome, now);
                let place = Place::from(&*new.spec);
                if let Some(before) = there.remove(&(lane, serial)) {
                    let key = kept.lane(new.home());
                    kept.take(&key, place, before);
                }
                match what {
                    7 => {}
                    8 => {
                        retain = Retain { per_lane: 1 + usize::try_from(serial).unwrap() % 3, max_age: Duration::from_secs(100 * serial.cast_unsigned()) };
                        version += 1;
                    }
                    _ => {
                        new.asked = (what == 3 && serial % 2 == 0).then(|| "1".to_owned());
                        new.status.thread = (what == 0 && serial % 3 == 0).then(|| thread(now + 30 * serial));
                        let key = kept.lane(new.home());
                        kept.put(&key, &new);
                        there.insert((lane, serial), outcome);
                    }
                }
                let taken = PersistedCursor { serial: cursor + (now - 1000) / 300, pending_timers: BTreeSet::from([3]) };
                let rules = |lane: &LaneKey| Rules {
                    retain,
                    cursor: if lane.lane == "target/3" { Persisted::Gone } else { Persisted::At(&taken) },
                    resting: lane.lane == "target/2",
                    elsewhere: false,
                };
                let cap = caps[usize::try_from(serial % 4).unwrap()];
                let expected = walk(&kept, rules, cap, at(now));
                let overdue = kept.overdue(rules, version, cap, usize::MAX, at(now));
                let mut goes: Vec<_> = overdue.goes.into_iter().map(|s| (s.id, s.reason)).collect();
                goes.sort_unstable_by_key(|(id, _)| id.clone());
                prop_assert_eq!((goes, overdue.count), expected);
                prop_assert_eq!((kept.old.len(), kept.due.len()), (kept.count(), kept.lanes.len()));
            }
        }
    }
}
