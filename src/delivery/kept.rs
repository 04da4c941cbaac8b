//! Settled deliveries that are kept, lane by lane, and which of them have been kept long enough. Pure.
//!
//! They are the audit, so only rules take them away: the newest of each lane stay, parked ones stay as long as their age
//! allows, and nothing goes that could be recorded once more, which is what the cursor tells.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::facts::Taken;
use super::lane::Place;
use super::record::{LaneKey, Record, RecordId, Theme};
use super::redeliver::wanted;
use crate::api::{Outcome, Time, version};
use crate::config::Retain;
use crate::telemetry::metrics::Removal;

/// Nothing goes so soon after it was settled: people look, and cursors are persisted.
const GRACE: Duration = Duration::from_mins(1);

/// All that are kept.
#[derive(Debug, Default)]
pub struct Kept {
    lanes: HashMap<Arc<LaneKey>, Rows>,
    count: usize,
}

#[derive(Debug, Default)]
struct Rows {
    rows: BTreeMap<Place, Row>,
    /// Deliveries of this lane that are pending.
    pending: usize,
}

/// One settled delivery.
#[derive(Clone, Debug)]
struct Row {
    id: RecordId,
    version: u64,
    outcome: Outcome,
    settled: Time,
    superseded: i64,
    /// Of what it is about, a hash: good enough for counting.
    theme: u64,
    /// Somebody wants it sent again.
    asked: bool,
}

/// How long the deliveries of a lane are kept.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// By the notification, or the defaults.
    pub retain: Retain,
    /// What is above it, or waits for a clock, could be recorded once more.
    pub cursor: Persisted<'a>,
    /// They cannot be taken away at present: they are counted, and take nobody's place.
    pub resting: bool,
}

/// What is known of the persisted cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persisted<'a> {
    /// Nothing: all is kept.
    Unknown,
    /// It stands there.
    At(&'a Taken),
    /// There is none: nothing can be recorded once more.
    Gone,
}

/// One that has been kept long enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surplus {
    /// Which.
    pub id: RecordId,
    /// The version that this was decided on; `u64::MAX` if it is no number.
    pub version: u64,
    /// Why.
    pub reason: Removal,
}

/// Those that have been kept long enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overdue {
    /// The first of them.
    pub goes: Vec<Surplus>,
    /// How many there are in all.
    pub count: usize,
}

fn theme(theme: Theme<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    theme.hash(&mut hasher);
    hasher.finish()
}

impl Kept {
    /// The key of a lane, shared by all of its entries.
    pub fn lane(&mut self, key: LaneKey) -> Arc<LaneKey> {
        let known = self.lanes.get_key_value(&key).map(|(known, _)| Arc::clone(known));
        known.unwrap_or_else(|| {
            let key = Arc::new(key);
            self.lanes.insert(Arc::clone(&key), Rows::default());
            key
        })
    }

    /// Takes note of one as it stands.
    pub fn put(&mut self, lane: &Arc<LaneKey>, record: &Record) {
        let rows = self.lanes.entry(Arc::clone(lane)).or_default();
        let status = &record.status;
        let Some(outcome) = status.outcome else {
            rows.pending += 1;
            return;
        };
        let row = Row {
            id: record.id.clone(),
            version: version(Some(&record.version)),
            outcome,
            settled: status.settled_time.unwrap_or(record.recorded),
            superseded: status.superseded,
            theme: theme(record.theme()),
            asked: wanted(record).is_some(),
        };
        let before = rows.rows.insert(Place::from(&*record.spec), row);
        self.count += usize::from(before.is_none());
    }

    /// Takes one out, as it was put in.
    pub fn take(&mut self, lane: &Arc<LaneKey>, place: Place, outcome: Option<Outcome>) {
        let Some(rows) = self.lanes.get_mut(lane) else { return };
        if outcome.is_none() {
            rows.pending = rows.pending.saturating_sub(1);
        } else if rows.rows.remove(&place).is_some() {
            self.count -= 1;
        }
        if rows.rows.is_empty() && rows.pending == 0 {
            self.lanes.remove(lane);
        }
    }

    /// How many are kept.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many earlier ones this one stands for: those just before it, of the same theme, that were superseded. Only what stands
    /// behind `after` counts.
    ///
    /// The last of them says how many it had replaced itself, so older ones need not be kept. What was superseded after it,
    /// though it stands before it (it was in flight meanwhile), comes on top.
    #[must_use]
    pub fn replaced(&self, record: &Record, after: Option<Place>) -> i64 {
        let theme = theme(record.theme());
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let to = Bound::Excluded(Place::from(&*record.spec));
        let Some(rows) = self.lanes.get(&record.home()) else { return 0 };
        let before = rows.rows.range((from, to)).rev().map(|(_, row)| row).filter(|row| row.theme == theme);
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

    /// Those that have been kept long enough, the first `most` by name. `cap`: so many are kept of all.
    pub fn overdue<'a>(&self, rules: impl Fn(&LaneKey) -> Rules<'a>, cap: usize, most: usize, now: Time) -> Overdue {
        let mut overdue = Overdue::default();
        let too_many = self.count.saturating_sub(cap);
        let mut rest = Rest::default();
        for (key, rows) in &self.lanes {
            rows.overdue(&rules(key), now, (most, too_many > 0), &mut overdue, &mut rest);
        }
        // By rule first; what is too much all the same goes by age, parked ones last.
        let left = too_many.saturating_sub(overdue.count);
        overdue.count += left.min(rest.old.len() + rest.held);
        if left > 0 {
            rest.old.sort_unstable_by_key(|(parked, settled, _)| (*parked, *settled));
            overdue.goes.extend(rest.old.into_iter().take(left).map(|(.., surplus)| surplus));
        }
        overdue.goes.truncate(most);
        overdue
    }
}

/// Those that no rule takes away, and that may go if there are too many in all.
#[derive(Default)]
struct Rest {
    old: Vec<Old>,
    /// Such ones as cannot be taken away at present.
    held: usize,
}

/// (whether it is parked, when it was settled, which).
type Old = (bool, Time, Surplus);

impl Rows {
    fn overdue(&self, rules: &Rules<'_>, now: Time, (most, capped): (usize, bool), all: &mut Overdue, rest: &mut Rest) {
        let mut newer = 0;
        let mut themes = HashSet::new();
        for (place, row) in self.rows.iter().rev() {
            let last = themes.insert(row.theme);
            let parked = row.outcome == Outcome::Parked;
            newer += usize::from(!parked);
            // One that is still to be sent stands for it.
            let counts = last && row.outcome == Outcome::Superseded && self.pending > 0;
            if counts || row.asked || !rules.cursor.is_beyond(place.serial()) {
                continue;
            }
            let age = Duration::try_from(now.duration_since(row.settled)).unwrap_or_default();
            if age < GRACE {
                continue;
            }
            let reason = match () {
                () if age > rules.retain.max_age => Removal::MaxAge,
                () if !parked && newer > rules.retain.per_lane => Removal::PerLane,
                () if capped => Removal::Cap,
                () => continue,
            };
            let surplus = || Surplus { id: row.id.clone(), version: row.version, reason };
            match reason {
                Removal::Cap if rules.resting => rest.held += 1,
                Removal::Cap => rest.old.push((parked, row.settled, surplus())),
                _ => {
                    all.count += 1;
                    if all.goes.len() < most && !rules.resting {
                        all.goes.push(surplus());
                    }
                }
            }
        }
    }
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
    use super::*;
    use crate::delivery::testing::record;

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

    fn kept(records: &[Record]) -> Kept {
        let mut kept = Kept::default();
        for record in records {
            let lane = kept.lane(record.home());
            kept.put(&lane, record);
        }
        kept
    }

    fn goes(kept: &Kept, cursor: Persisted<'_>, cap: usize, now: i64) -> Vec<(i64, Removal)> {
        let overdue = kept.overdue(|_| Rules { retain: RETAIN, cursor, resting: false }, cap, 100, at(now));
        assert_eq!(overdue.count, overdue.goes.len());
        let serial = |id: &RecordId| (1..100).find(|n| record(*n).id == *id).unwrap();
        let mut goes: Vec<_> = overdue.goes.iter().map(|s| (serial(&s.id), s.reason)).collect();
        goes.sort_unstable();
        goes
    }

    #[test]
    fn the_newest_of_a_lane_stay_and_parked_ones_by_their_age() {
        use Outcome::{Canceled, Delivered, Parked, Superseded};
        let outcomes = [Parked, Delivered, Superseded, Parked, Canceled, Delivered, Delivered];
        let records: Vec<_> = outcomes.into_iter().zip(1..).map(|(o, n)| settled(n, o, 100)).collect();
        let kept = kept(&records);
        let lane = Removal::PerLane;
        assert_eq!(goes(&kept, Persisted::Gone, 99, 200), [(2, lane), (3, lane), (5, lane)]);
        let at = |serial, armed: &[i64]| Taken { serial, armed: armed.iter().copied().collect() };
        assert_eq!(goes(&kept, Persisted::At(&at(3, &[])), 99, 200), [(2, lane), (3, lane)], "not above the cursor");
        assert_eq!(
            goes(&kept, Persisted::At(&at(7, &[2])), 99, 200),
            [(3, lane), (5, lane)],
            "what its clock may come to stays"
        );
        assert_eq!(goes(&kept, Persisted::Unknown, 99, 200), []);
        assert_eq!(goes(&kept, Persisted::Gone, 99, 150), [], "not at once");
        let all: Vec<_> = (1..=7).map(|n| (n, Removal::MaxAge)).collect();
        assert_eq!(goes(&kept, Persisted::Gone, 99, 2000), all);
    }

    #[test]
    fn the_cap_takes_the_oldest_and_parked_ones_last() {
        use Outcome::{Delivered, Parked};
        let records = [settled(1, Parked, 10), settled(2, Delivered, 30), settled(3, Delivered, 20)];
        let kept = kept(&records);
        assert_eq!(goes(&kept, Persisted::Gone, 3, 200), []);
        assert_eq!(goes(&kept, Persisted::Gone, 2, 200), [(3, Removal::Cap)]);
        assert_eq!(goes(&kept, Persisted::Gone, 1, 200), [(2, Removal::Cap), (3, Removal::Cap)]);
        assert_eq!(goes(&kept, Persisted::Gone, 0, 200).len(), 3);
    }

    #[test]
    fn all_that_should_be_gone_are_counted_and_few_are_named() {
        let records: Vec<_> = (1..=9).map(|n| settled(n, Outcome::Delivered, 100)).collect();
        let kept = kept(&records);
        let overdue = |resting, cap, most| {
            let overdue = kept.overdue(|_| Rules { retain: RETAIN, cursor: Persisted::Gone, resting }, cap, most, at(200));
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
    fn what_one_stands_for_is_told_from_what_is_kept() {
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
        // One that was in flight when later ones were superseded, and then was so itself.
        let mut late = settled(1, Outcome::Superseded, 40);
        late.status.superseded = 0;
        let mut second = settled(3, Outcome::Superseded, 20);
        second.status.superseded = 1;
        let chain = kept(&[late, settled(2, Outcome::Superseded, 20), second]);
        assert_eq!(chain.replaced(&record(4), None), 3);
        // As long as something is pending, the newest superseded one stays, however old.
        let mut all = kept(&[first.clone(), settled(2, Outcome::Superseded, 10)]);
        let home = all.lane(first.home());
        all.put(&home, &record(3));
        assert_eq!(goes(&all, Persisted::Gone, 0, 5000), [(1, Removal::MaxAge)]);
    }

    #[test]
    fn the_books_are_right() {
        let mut kept = kept(&[settled(1, Outcome::Delivered, 1), record(2)]);
        let lane = kept.lane(record(1).home());
        kept.put(&lane, &settled(1, Outcome::Delivered, 2));
        assert_eq!(kept.count(), 1);
        kept.take(&lane, Place::from(&*record(1).spec), Some(Outcome::Delivered));
        kept.take(&lane, Place::from(&*record(2).spec), None);
        assert_eq!((kept.count(), kept.lanes.len()), (0, 0));
    }
}
