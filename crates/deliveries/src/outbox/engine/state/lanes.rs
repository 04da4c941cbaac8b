//! All lanes: which deliveries they contain, in which lane each delivery is, and when each lane is checked again. Pure.
//!
//! In: pending deliveries, times. Out: lanes, and the order between the lanes of one notification.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use super::rate::Shared;
use crate::outbox::attempt::decided::Decided;
use crate::outbox::lane::{Lane, Place};
use crate::outbox::record::{LaneKey, PIPELINE_LANE, Record};
use relaybook_api::ObjectName;

/// A lane, with what the engine stores for it.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) lane: Lane<Record>,
    timer: Option<Instant>,
    /// Whether the lane waits for a worker, or for the turn at its rate before that.
    pub(crate) ready: bool,
    /// Something changed while the head was in progress, so the lane is checked again afterwards. `true`: a failed head is also retried.
    pub(crate) stale: Option<bool>,
    /// The rate that the lane shares, from the time when it is ready until its attempt starts.
    pub(crate) shared: Option<Shared>,
    /// The origin to which the last attempt could not connect.
    pub(crate) unreachable: Option<String>,
    /// When the lane was resumed from its stored objects. `None`: there was an attempt since.
    pub(crate) resumed: Option<Instant>,
    /// Whether deliveries were superseded since the last attempt. If so, a head that is due is sent before further ones are superseded.
    /// Otherwise frequent changes could delay every attempt without end.
    pub(crate) marked: bool,
    /// Deliveries that wait for the write of their outcome Superseded, in order. One of them at a time is being written.
    pub(crate) superseding: VecDeque<Decided>,
}

/// The lanes, and the index of their deliveries. While the outcome Superseded of a delivery is written, the delivery is in the index only.
/// A deleted delivery that is in progress is in its lane only.
#[derive(Default)]
pub(crate) struct Lanes {
    /// Sorted, so that the lanes of one notification and pipeline are next to each other.
    slots: BTreeMap<LaneKey, Slot>,
    index: HashMap<ObjectName, (LaneKey, Place)>,
    timers: BTreeSet<(Instant, LaneKey)>,
}

impl Lanes {
    pub(crate) fn get(&self, key: &LaneKey) -> Option<&Slot> {
        self.slots.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &LaneKey) -> Option<&mut Slot> {
        self.slots.get_mut(key)
    }

    /// Returns the first delivery of a lane.
    pub(crate) fn head(&self, key: &LaneKey) -> Option<&Record> {
        self.get(key)?.lane.head()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&LaneKey, &Slot)> {
        self.slots.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&LaneKey, &mut Slot)> {
        self.slots.iter_mut()
    }

    /// Returns the keys of the lanes for which `is_wanted` is true.
    pub(crate) fn keys(&self, is_wanted: impl Fn(&LaneKey) -> bool) -> Vec<LaneKey> {
        self.slots.keys().filter(|key| is_wanted(key)).cloned().collect()
    }

    /// Returns how many deliveries are in the index.
    pub(crate) fn count(&self) -> usize {
        self.index.len()
    }

    /// Returns the lane of a delivery, and its place there.
    pub(crate) fn find(&self, id: &ObjectName) -> Option<(&LaneKey, Place)> {
        self.index.get(id).map(|(key, place)| (key, *place))
    }

    /// Adds a delivery to its lane, unless it is there. Returns the lane.
    pub(crate) fn insert(&mut self, record: Record) -> LaneKey {
        let (key, place) = (record.lane(), Place::from(&*record.spec));
        self.index.insert(record.id.clone(), (key.clone(), place));
        self.slots.entry(key.clone()).or_default().lane.insert(place, record);
        key
    }

    /// Removes a delivery, and returns the lane in which it was. If it is in progress, the lane keeps it until its write has ended.
    pub(crate) fn remove(&mut self, id: &ObjectName) -> Option<LaneKey> {
        let (key, place) = self.index.remove(id)?;
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.lane.remove(place);
        }
        Some(key)
    }

    /// Removes a settled delivery, which its lane does not contain any more, from the index.
    pub(crate) fn settled(&mut self, id: &ObjectName) {
        self.index.remove(id);
    }

    /// Returns whether a lane may still have to learn how its work on this delivery has ended.
    pub(crate) fn is_at_work(&self, record: &Record) -> bool {
        let place = Some(Place::from(&*record.spec));
        let is_in = |key: &LaneKey| self.get(key).is_some_and(|s| s.lane.at_work() == place || s.lane.is_marking());
        is_in(&record.home()) || is_in(&record.lane_again())
    }

    /// Puts the deliveries whose outcome Superseded is not being written yet back into their lane. Those that were deleted or settled
    /// meanwhile are not pending any more.
    pub(crate) fn keep_pending(&mut self, key: &LaneKey) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        for decided in std::mem::take(&mut slot.superseding) {
            slot.lane.superseded();
            let record = decided.record;
            if self.index.contains_key(&record.id) {
                slot.lane.insert(Place::from(&*record.spec), record);
            }
        }
    }

    /// Removes an empty lane.
    pub(crate) fn forget(&mut self, key: &LaneKey) {
        if let Some(timer) = self.slots.remove(key).and_then(|slot| slot.timer) {
            self.timers.remove(&(timer, key.clone()));
        }
    }

    /// Sets when a lane is checked again.
    pub(crate) fn set_timer(&mut self, key: &LaneKey, until: Instant) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if let Some(old) = slot.timer.replace(until) {
            self.timers.remove(&(old, key.clone()));
        }
        self.timers.insert((until, key.clone()));
    }

    /// Returns when the next lane is checked again.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns a lane that has to be checked again now, and ends its timer.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<LaneKey> {
        self.next_timer().filter(|at| *at <= now)?;
        let (_, key) = self.timers.pop_first()?;
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.timer = None;
        }
        Some(key)
    }

    /// Returns whether another lane contains an older delivery that must be sent first. This can happen after an edit of `ordering`,
    /// because the order is also kept between a target's lane and the pipeline's lane. A superseded delivery counts until its outcome is written,
    /// because after a crash it would be sent.
    pub(crate) fn is_behind(&self, key: &LaneKey, head: &Record) -> bool {
        if key.is_again() {
            return false;
        }
        let place = Place::from(&*head.spec);
        if key.lane == PIPELINE_LANE {
            let is_older = |slot: &Slot| slot.lane.iter().next().is_some_and(|(first, _)| first < place);
            return self.beside(key).any(|(_, slot)| slot.lane.is_marking() || is_older(slot));
        }
        let pipeline = self.get(&key.of_pipeline());
        if pipeline.is_some_and(|slot| slot.lane.is_marking()) {
            return true;
        }
        let mut older = pipeline.into_iter().flat_map(|slot| slot.lane.iter()).take_while(|(at, _)| *at < place);
        let about = head.spec.log_subject();
        older.any(|(_, record)| record.spec.log_subject() == about)
    }

    /// Returns the lanes whose heads may have waited for a delivery of this lane.
    pub(crate) fn waiting_for(&self, key: &LaneKey) -> Vec<LaneKey> {
        let pipeline = key.of_pipeline();
        if key.is_again() {
            Vec::new()
        } else if *key == pipeline {
            self.beside(key).map(|(other, _)| other.clone()).collect()
        } else {
            Vec::from_iter(self.slots.contains_key(&pipeline).then_some(pipeline))
        }
    }

    /// Returns the other lanes of the same notification and pipeline that keep the order.
    fn beside<'a>(&'a self, key: &'a LaneKey) -> impl Iterator<Item = (&'a LaneKey, &'a Slot)> {
        let first = LaneKey { lane: String::new(), ..key.clone() };
        let those = self.slots.range(first..).take_while(move |(other, _)| other.has_same_notification(key));
        those.filter(move |(other, _)| *other != key && !other.is_again())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outbox::testing::record;

    #[test]
    fn a_lane_has_one_timer_and_none_after_it_is_removed() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        let key = lanes.insert(record(1));
        lanes.set_timer(&key, now);
        lanes.set_timer(&key, now + Duration::from_secs(1));
        assert_eq!(lanes.take_due(now), None, "it was set again");
        assert_eq!(lanes.take_due(now + Duration::from_secs(1)), Some(key.clone()));
        assert_eq!(lanes.next_timer(), None);
        lanes.set_timer(&key, now);
        lanes.forget(&key);
        assert_eq!((lanes.next_timer(), lanes.get(&key).is_some()), (None, false));
    }

    #[test]
    fn a_delivery_waits_for_older_ones_of_its_subject_in_the_lane_of_the_pipeline() {
        let mut lanes = Lanes::default();
        let mut older = record(1);
        std::sync::Arc::make_mut(&mut older.spec).lane = PIPELINE_LANE.to_owned();
        let (pipeline, own) = (lanes.insert(older.clone()), lanes.insert(record(2)));
        assert!(lanes.is_behind(&own, &record(2)) && !lanes.is_behind(&pipeline, &older));
        assert_eq!((lanes.waiting_for(&pipeline), lanes.waiting_for(&own)), (vec![own.clone()], vec![pipeline.clone()]));
        assert_eq!(lanes.remove(&older.id), Some(pipeline.clone()));
        assert!(!lanes.is_behind(&own, &record(2)));
        let mut newer = record(3);
        std::sync::Arc::make_mut(&mut newer.spec).lane = PIPELINE_LANE.to_owned();
        assert!(lanes.is_behind(&pipeline, &newer), "its first delivery is older");
    }
}
