//! Direct attempts in the engine: which offered deliveries are sent before they are recorded, and when they are recorded.
//!
//! In: offers from the dispatcher, the ends of writes. Out: deliveries in lanes, tasks that record them, answers for the dispatcher
//! (`direct`). A delivery without an object is always the only one in its lane, because the dispatcher records later ones only after it.

use super::effect::{Now, Task};
use super::engine::Engine;
use super::fair_queue::Turn;
use super::head::Decision;
use super::lanes::Slot;
use crate::outbox::attempt::work::Decided;
use crate::outbox::direct::{Answer, DIRECT, MOST, Offer, Stage};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::store::journal::{self, JournalError, New};
use relaybook_api::ObjectName;

impl Engine {
    /// Handles an offer: starts to send the delivery without an object, or declines.
    pub(crate) fn offer(&mut self, offer: Offer, now: Now) {
        let record = Record::unrecorded(&offer.namespace, offer.spec, now.wall, now.boot);
        let id = record.id.clone();
        match self.unrecorded.get(&id) {
            Some((Stage::Attempted, until)) => {
                self.parts.direct.retried(&id, offer.answer);
                if until <= now.mono {
                    self.record_first(&id);
                }
            }
            Some(_) => self.parts.direct.ask_again(&id, offer.answer),
            None if self.is_on_record(&id) || !self.can_attempt(&record) => drop(offer.answer.send(Answer::Declined)),
            None => {
                self.parts.direct.add(&id, offer.answer);
                #[cfg(feature = "broken")]
                if crate::broken::is(crate::broken::Wrong::CursorBeforeOutcome) {
                    self.parts.direct.recorded(&id);
                }
                self.unrecorded.add(id, now.mono + DIRECT);
                let key = self.lanes.insert(record);
                self.check(&key, now);
            }
        }
    }

    /// Returns whether a Delivery with this name exists. The attempt to create it then shows whether it is the same delivery. It can be
    /// settled although no cursor has passed it, if the previous leader was killed before it persisted its cursors.
    fn is_on_record(&self, id: &ObjectName) -> bool {
        self.lanes.find(id).is_some() || self.parts.delivery_index.contains(id)
    }

    /// Returns whether a delivery can be sent at once, and nothing requires that it is recorded before.
    fn can_attempt(&self, record: &Record) -> bool {
        let key = record.lane();
        if self.draining || !self.decides(&key.pipeline) || self.unrecorded.count() >= MOST {
            return false;
        }
        let is_accepting = self.parts.journal.is_accepting(&record.id.namespace, &record.spec.notification);
        if !is_accepting || self.lanes.get(&key).is_some() {
            return false;
        }
        let Decision::Send(notification, _) = self.decision(&key, record) else { return false };
        let Ok(sending) = &notification.sending else { return false };
        if !self.parts.lease.allows(sending.timeout + journal::DEADLINE) {
            return false;
        }
        let origin = self.parts.origin(sending);
        let is_prompt = self.fair_queue.is_prompt(&origin, &key);
        let shared = (key.namespace, key.notification, origin);
        is_prompt && (notification.delivery.rate.is_none() || self.rates.is_free(&shared))
    }

    /// Records the deliveries that have been without an object for the longest allowed time.
    pub(crate) fn record_overdue(&mut self, now: Now) {
        while let Some(id) = self.unrecorded.take_overdue(now.mono) {
            // If the result is already being written, the receiver has answered, and the API server is slow.
            let waits = matches!(self.unrecorded.get(&id), Some((Stage::Attempted, _)));
            if let Some((key, _)) = self.lanes.find(&id).filter(|_| waits) {
                self.fair_queue.is_slow(key);
            }
            self.record_first(&id);
        }
    }

    /// Records the head of a lane as pending, if it has no object yet.
    pub(crate) fn record_head(&mut self, key: &LaneKey) {
        let head = self.lanes.head(key).filter(|head| !head.is_recorded());
        if let Some(id) = head.map(|head| head.id.clone()) {
            self.record_first(&id);
        }
    }

    /// Records a delivery as pending. Its request can be under way.
    fn record_first(&mut self, id: &ObjectName) {
        if !matches!(self.unrecorded.get(id), Some((Stage::Attempted, _))) {
            return;
        }
        let record = self.lanes.find(id).and_then(|(key, place)| self.lanes.get(key)?.lane.get(place));
        let Some(spec) = record.map(|record| record.spec.clone()) else {
            self.unrecorded.remove(id);
            return self.parts.direct.forget(id);
        };
        self.unrecorded.set(id, Stage::Recording);
        self.start(Task::Record(id.clone(), New { namespace: id.namespace.clone(), elsewhere: None, spec }));
    }

    /// Handles the end of the write that records a delivery as pending.
    pub(crate) fn recorded_first(&mut self, id: &ObjectName, result: Result<Record, JournalError>, now: Now) {
        let is_recording = matches!(self.unrecorded.get(id), Some((Stage::Recording, _)));
        let stored = match result {
            Ok(stored) => stored,
            Err(error) => {
                self.parts.direct.failed(id, &error);
                // The dispatcher offers it again, and the write is then repeated.
                if is_recording {
                    self.unrecorded.set(id, Stage::Attempted);
                }
                return;
            }
        };
        // If its outcome is already being written, that write finds the object.
        if !is_recording {
            return self.parts.direct.recorded(id);
        }
        if self.initial_sync.was_deleted(&stored.uid) {
            self.unrecorded.remove(id);
            self.parts.direct.recorded(id);
            let _ = self.parts.delivery_index.take_own(&stored.uid);
            return self.deleted(id, now);
        }
        self.recorded(stored, now);
    }

    /// Gives a delivery that had no object the one that now records it.
    pub(crate) fn take_object(&mut self, stored: &Record) {
        if !self.unrecorded.remove(&stored.id) {
            return;
        }
        self.parts.direct.recorded(&stored.id);
        let key = self.lanes.find(&stored.id).map(|(key, _)| key.clone());
        let slot = key.and_then(|key| self.lanes.get_mut(&key));
        // If another replica has written a result meanwhile, the write of our result finds the object, and compares the two.
        let is_same = |busy: &&mut Record| busy.id == stored.id && busy.status == stored.status;
        if let Some(busy) = slot.and_then(|slot| slot.lane.busy()).filter(is_same) {
            busy.adopt(stored);
        }
    }

    /// Gives the decision about an attempt the object that was created meanwhile, if there is one.
    pub(crate) fn adopt_object(&mut self, turn: &Turn, decided: &mut Decided) {
        if let Some(busy) = self.lanes.get_mut(&turn.lane).and_then(|slot| slot.lane.busy()) {
            decided.adopt(busy);
        }
    }

    /// Notes that the result for the delivery in progress is being written, and that this write also records it.
    pub(crate) fn writes(&mut self, key: &LaneKey) {
        if let Some(busy) = self.lanes.get_mut(key).and_then(|slot| slot.lane.busy()) {
            self.unrecorded.set(&busy.id, Stage::Written);
        }
    }

    /// Accepts a delivery whose first write has ended.
    pub(crate) fn written(&mut self, record: &Record, is_open: bool, now: Now) {
        let Some((_, until)) = self.unrecorded.get(&record.id) else { return };
        if record.is_recorded() || !is_open {
            self.unrecorded.remove(&record.id);
            self.accept(record);
        } else {
            // Nothing had to be written.
            self.unrecorded.set(&record.id, Stage::Attempted);
            if until <= now.mono {
                self.record_first(&record.id);
            }
        }
    }

    fn accept(&mut self, record: &Record) {
        if record.is_recorded() {
            self.prove(record);
            self.parts.delivery_index.note(record);
            self.say_proven(record);
        }
    }

    /// Removes the deliveries of these pipelines without an object that are not being attempted, at the start of a leadership term, and when
    /// their bucket is given away. Another replica may have recorded them. If not, the dispatcher derives them again.
    pub(crate) fn drop_unrecorded(&mut self, is_concerned: impl Fn(&str) -> bool) {
        let ids: Vec<_> = self.unrecorded.ids().cloned().collect();
        for id in ids {
            if let Some((key, place)) = self.lanes.find(&id) {
                let is_idle = |slot: &Slot| {
                    slot.lane.at_work() != Some(place) && !slot.lane.get(place).is_some_and(Record::is_recorded)
                };
                if !is_concerned(&key.pipeline) || !self.lanes.get(key).is_some_and(is_idle) {
                    continue;
                }
            }
            self.lanes.remove(&id);
            self.unrecorded.remove(&id);
            self.parts.direct.forget(&id);
        }
    }
}

#[cfg(test)]
mod tests;
