//! The engine's work besides sending: deliveries that later ones supersede, and redeliveries that users request.
//!
//! In: lanes with more deliveries than they can contain, settled deliveries with a new annotation. Out: writes, in separate tasks. The pure
//! functions of `supersede` and `redeliver` decide which deliveries are superseded or redelivered.

use std::time::Instant;

use super::engine::{Done, Engine};
use crate::outbox::attempt::work::{Decided, Worked};
use crate::outbox::attempt::write;
use crate::outbox::lane::redeliver::{noted, reopened, wanted};
use crate::outbox::lane::supersede::{BOUND, Why, statuses, victims};
use crate::outbox::lane::{Due, Place};
use crate::outbox::record::{LaneKey, PIPELINE_LANE, Record};
use crate::outbox::send_gate::genuine::Sight;
use relaybook_api::{Age, ObjectName, Outcome, now, since_boot};

/// Maximum number of deliveries of one namespace that are reopened at once. If writes to a namespace fail, other namespaces continue.
const REOPENING: usize = 16;

impl Engine {
    /// Removes from a lane the deliveries that later ones supersede. Nothing of the lane is sent until their outcomes are written.
    pub(crate) fn supersede(&mut self, key: &LaneKey) {
        let Some(slot) = self.lanes.get_mut(key).filter(|slot| slot.lane.count() > 1 && !slot.lane.is_marking()) else {
            return;
        };
        let Some(head) = slot.lane.head() else { return };
        let found = self.parts.pipeline_index.effective(&head.spec);
        // Deliveries of an earlier notification with the same name are canceled, not superseded.
        let Some(notification) = found.filter(|n| n.uid == head.spec.notification_uid) else { return };
        let why = match notification.delivery.supersede {
            true => Why::Wanted,
            false if slot.lane.count() > BOUND => Why::LaneFull,
            false => return,
        };
        if slot.marked && slot.lane.due(Instant::now()) == Due::Now {
            return;
        }
        let places = victims(&slot.lane, why);
        let known = |record: &Record, after| self.parts.delivery_index.replaced(record, after);
        let statuses = statuses(&slot.lane, &places, why, now(), known);
        slot.marked |= !places.is_empty();
        let superseded = slot.lane.supersede(&places).into_iter().zip(statuses).map(|(record, status)| {
            let status = noted(&record, status, now());
            Decided::superseded(record, status)
        });
        slot.superseding = superseded.collect();
        self.write_superseded(key);
    }

    /// Starts the next write for the superseded deliveries of a lane. They are written one after the other, because each count contains
    /// those before it. So no stored count ever contains a delivery that is still pending.
    fn write_superseded(&mut self, key: &LaneKey) {
        let Some(decided) = self.lanes.get_mut(key).and_then(|slot| slot.superseding.pop_front()) else { return };
        let task = write::store(self.parts.clone(), decided, self.parts.outcomes.clone());
        let key = key.clone();
        self.work.spawn(async { Done::Superseded(key, Box::new(task.await)) });
    }

    /// Handles the end of the write for a superseded delivery. It is stored as Superseded, or another replica has written another state.
    pub(crate) fn superseded(&mut self, key: &LaneKey, worked: Worked) {
        self.written(&worked.record, false);
        let is_superseded = worked.gone || worked.record.status.outcome == Some(Outcome::Superseded);
        if !is_superseded || !self.decides(&key.pipeline) || self.draining {
            self.keep_pending(key);
        }
        self.write_superseded(key);
        if let Some(slot) = self.lanes.get_mut(key) {
            slot.lane.superseded();
            if !worked.gone && worked.record.status.outcome.is_none() {
                // Another replica has attempted it meanwhile, so it is still pending.
                slot.lane.insert(Place::from(&*worked.record.spec), worked.record);
                return self.moved(key);
            }
        }
        self.index.remove(&worked.record.id);
        self.settled(worked);
        self.moved(key);
    }

    /// Puts the deliveries whose outcome Superseded is not being written yet back into their lane: their counts are wrong now, or this
    /// replica is no longer the leader. Those that were deleted or settled meanwhile are not pending any more.
    fn keep_pending(&mut self, key: &LaneKey) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        for decided in std::mem::take(&mut slot.superseding) {
            slot.lane.superseded();
            let record = decided.into_record();
            if self.index.contains_key(&record.id) {
                slot.lane.insert(Place::from(&*record.spec), record);
            }
        }
    }

    /// Stores the request of a user to redeliver a settled delivery, or removes it if there is none.
    pub(crate) fn asked(&mut self, record: Record) {
        match wanted(&record) {
            // Those of other replicas are found in the list of the term in which their bucket is acquired.
            Some(_) if self.is_ours(&record.spec.pipeline_ref.uid) => {
                self.asks.insert(record.id.clone(), record);
                self.reopen();
            }
            _ => {
                self.asks.remove(&record.id);
            }
        }
    }

    /// Reopens deliveries for which users have requested a redelivery, a few at a time.
    pub(crate) fn reopen(&mut self) {
        if self.draining || !self.is_judged() {
            return;
        }
        while let Some(record) = self.next_ask() {
            // One that another client may have created can only be redelivered once the dispatcher has compared its content.
            let sight = if self.parts.delivery_index.is_doubtful(&record.id) { Sight::Watched } else { Sight::Listed };
            let Some(value) = wanted(&record).filter(|_| self.admit(&record, sight)) else { continue };
            let Some(busy) = self.parts.lease.begin(&record.spec.pipeline_ref.uid) else { continue };
            self.begin_beside(&record.spec.pipeline_ref.uid);
            let status = reopened(&record.status, value, now());
            let record = Record { not_found: 0, ..record };
            *self.reopening.entry(record.id.namespace.clone()).or_default() += 1;
            let task = write::store(self.parts.clone(), Decided::noted(record, status), self.parts.aside.clone());
            self.work.spawn(async {
                let worked = task.await;
                drop(busy);
                Done::Reopened(Box::new(worked))
            });
        }
    }

    /// Removes and returns the next redelivery request whose namespace is below its limit.
    fn next_ask(&mut self) -> Option<Record> {
        let mut from = ObjectName::default();
        loop {
            let (id, _) = self.asks.range(&from..).next()?;
            if self.reopening.get(&id.namespace).is_none_or(|count| *count < REOPENING) {
                let id = id.clone();
                return self.asks.remove(&id);
            }
            // No namespace name contains this character, so the range continues with the next namespace.
            from = ObjectName::new(format!("{}\0", id.namespace), "");
        }
    }

    /// Handles the end of the write that reopens a delivery. The object may have changed or been deleted meanwhile.
    pub(crate) fn reopened(&mut self, worked: Worked) {
        self.end_beside(&worked.record.spec.pipeline_ref.uid);
        let namespace = &worked.record.id.namespace;
        if let Some(count) = self.reopening.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.reopening.remove(namespace);
            }
        }
        let Worked { mut record, gone, instead, is_written, .. } = worked;
        if gone {
            self.parts.delivery_index.forget(&record.id);
        } else {
            record.again = record.status.outcome.is_none();
            record.age = Age::new(record.since(), now(), since_boot());
            if is_written {
                self.parts.metrics.redelivery();
            }
            self.seen(record);
        }
        if let Some(instead) = instead {
            self.seen(*instead);
        }
        self.reopen();
    }

    /// Returns whether another lane contains an older delivery that must be sent first. This can happen after an edit of `ordering`,
    /// because the order is also kept between a target's lane and the pipeline's lane.
    pub(crate) fn is_behind(&self, key: &LaneKey, head: &Record) -> bool {
        if key.is_again() {
            return false;
        }
        let place = Place::from(&*head.spec);
        if key.lane == PIPELINE_LANE {
            let older = |key: &LaneKey| self.lanes[key].lane.iter().next().is_some_and(|(first, _)| first < place);
            return self.beside(key).iter().any(older);
        }
        let pipeline = self.lanes.get(&key.of_pipeline());
        let mut older = pipeline.into_iter().flat_map(|slot| slot.lane.iter()).take_while(|(at, _)| *at < place);
        let about = head.spec.log_subject();
        older.any(|(_, record)| record.spec.log_subject() == about)
    }

    /// Returns the other lanes of the same notification and pipeline that keep the order.
    fn beside(&self, key: &LaneKey) -> Vec<LaneKey> {
        let first = LaneKey { lane: String::new(), ..key.clone() };
        let those = self.lanes.range(first..).map(|(other, _)| other).take_while(|other| other.has_same_notification(key));
        those.filter(|other| *other != key && !other.is_again()).cloned().collect()
    }

    /// Checks a lane that no longer contains a delivery that was pending, and the lanes that waited for that delivery.
    pub(crate) fn moved(&mut self, key: &LaneKey) {
        let pipeline = key.of_pipeline();
        let behind = match () {
            () if key.is_again() => Vec::new(),
            () if *key == pipeline => self.beside(key),
            () => Vec::from_iter(self.lanes.contains_key(&pipeline).then_some(pipeline)),
        };
        self.check(key);
        for other in behind {
            self.changed(&other, false);
        }
    }
}
