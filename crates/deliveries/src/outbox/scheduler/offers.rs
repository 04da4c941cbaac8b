//! Direct attempts in the engine: which offered deliveries are sent before they are recorded, and when they are recorded.
//!
//! In: offers from the dispatcher, the ends of writes. Out: deliveries in lanes, writes in separate tasks, answers for the dispatcher. A
//! delivery without an object is always the only one in its lane, because the dispatcher records later ones only after it.

use std::time::Instant;

use super::engine::{Done, Engine};
use super::fair_queue::Turn;
use crate::outbox::attempt::work::Decided;
use crate::outbox::direct::{Answer, DIRECT, MOST, Offer, Stage};
use crate::outbox::lane::Place;
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::index::SendDecision;
use crate::outbox::store::journal::{self, JournalError, New};
use relaybook_api::{ObjectName, now, since_boot};

impl Engine {
    /// Handles an offer: starts to send the delivery without an object, or declines.
    pub(crate) fn offer(&mut self, offer: Offer) {
        let record = Record::unrecorded(&offer.namespace, offer.spec, now(), since_boot());
        let id = record.id.clone();
        match self.stages.get(&id).copied() {
            Some((Stage::Attempted, until)) => {
                self.parts.direct.retried(&id, offer.answer);
                if until <= Instant::now() {
                    self.record_first(&id);
                }
            }
            Some(_) => self.parts.direct.ask_again(&id, offer.answer),
            None if self.is_on_record(&id) || !self.can_attempt(&record) => drop(offer.answer.send(Answer::Declined)),
            None => {
                let (key, place) = (record.lane(), Place::from(&*record.spec));
                let until = Instant::now() + DIRECT;
                self.parts.direct.add(&id, offer.answer);
                self.stages.insert(id.clone(), (Stage::Attempted, until));
                self.unrecorded.push_back((until, id.clone()));
                #[cfg(feature = "broken")]
                let record_id = id.clone();
                self.index.insert(id, (key.clone(), place));
                self.lanes.entry(key.clone()).or_default().lane.insert(place, record);
                #[cfg(feature = "broken")]
                if crate::broken::is(crate::broken::Wrong::CursorBeforeOutcome) {
                    self.parts.direct.recorded(&record_id);
                }
                self.check(&key);
            }
        }
    }

    /// Returns whether a Delivery with this name exists. The attempt to create it then shows whether it is the same delivery. It can be
    /// settled although no cursor has passed it, if the previous leader was killed before it persisted its cursors.
    fn is_on_record(&self, id: &ObjectName) -> bool {
        self.index.contains_key(id) || self.parts.delivery_index.contains(id)
    }

    /// Returns whether a delivery can be sent at once, and nothing requires that it is recorded before.
    fn can_attempt(&self, record: &Record) -> bool {
        let key = record.lane();
        if self.draining || !self.decides(&key.pipeline) || self.stages.len() >= MOST || record.refusal().is_some() {
            return false;
        }
        if !self.parts.journal.is_accepting(&record.id.namespace, &record.spec.notification)
            || self.lanes.contains_key(&key)
            || self.is_behind(&key, record)
        {
            return false;
        }
        let SendDecision::Send(notification, _) = self.parts.pipeline_index.find(&record.spec) else { return false };
        let Ok(sending) = &notification.sending else { return false };
        // What it replaces is part of the request, so that number is written first.
        if self.uncounted(record).is_some() || !self.parts.lease.allows(sending.timeout + journal::DEADLINE) {
            return false;
        }
        let origin = self.parts.origin(sending);
        let is_prompt = self.fair_queue.is_prompt(&origin, &key);
        let shared = (key.namespace, key.notification, origin);
        is_prompt && (notification.delivery.rate.is_none() || self.rates.is_free(&shared))
    }

    /// Records the deliveries that have been without an object for the longest allowed time.
    pub(crate) fn record_overdue(&mut self, now: Instant) {
        while let Some((until, _)) = self.unrecorded.front()
            && *until <= now
        {
            let Some((_, id)) = self.unrecorded.pop_front() else { return };
            // If the result is already being written, the receiver has answered, and the API server is slow.
            let waits = matches!(self.stages.get(&id), Some((Stage::Attempted, _)));
            if let Some((key, _)) = self.index.get(&id).filter(|_| waits) {
                self.fair_queue.is_slow(key);
            }
            self.record_first(&id);
        }
    }

    /// Records the head of a lane as pending, if it has no object yet.
    pub(crate) fn record_head(&mut self, key: &LaneKey) {
        let head = self.lanes.get(key).and_then(|slot| slot.lane.head()).filter(|head| !head.is_recorded());
        if let Some(id) = head.map(|head| head.id.clone()) {
            self.record_first(&id);
        }
    }

    /// Records a delivery as pending. Its request can be under way.
    fn record_first(&mut self, id: &ObjectName) {
        let Some((stage @ Stage::Attempted, _)) = self.stages.get_mut(id) else { return };
        let record = self.index.get(id).and_then(|(key, place)| self.lanes.get(key)?.lane.get(*place));
        let Some(record) = record else {
            self.stages.remove(id);
            return self.parts.direct.forget(id);
        };
        *stage = Stage::Recording;
        let new = New { namespace: id.namespace.clone(), elsewhere: None, spec: record.spec.clone() };
        let (journal, index) = (self.parts.journal.clone(), self.parts.delivery_index.clone());
        let id = id.clone();
        self.work.spawn(async move {
            let result = journal.create(&new, None).await;
            // The index must know it before any component can read that the cursor has moved past it.
            if let Ok(stored) = &result {
                index.recorded(std::slice::from_ref(stored));
            }
            Done::Recorded(id, Box::new(result))
        });
    }

    /// Handles the end of the write that records a delivery as pending.
    pub(crate) fn recorded_first(&mut self, id: &ObjectName, result: Result<Record, JournalError>) {
        let stored = match result {
            Ok(stored) => stored,
            Err(error) => {
                self.parts.direct.failed(id, &error);
                // The dispatcher offers it again, and the write is then repeated.
                if let Some((stage @ Stage::Recording, _)) = self.stages.get_mut(id) {
                    *stage = Stage::Attempted;
                }
                return;
            }
        };
        // If its outcome is already being written, that write finds the object.
        if !matches!(self.stages.get(id), Some((Stage::Recording, _))) {
            return self.parts.direct.recorded(id);
        }
        if self.initial_sync.was_deleted(&stored.uid) {
            self.stages.remove(id);
            self.parts.direct.recorded(id);
            let _ = self.parts.delivery_index.take_own(&stored.uid);
            return self.deleted(id);
        }
        self.recorded(stored);
    }

    /// Gives a delivery that had no object the one that now records it.
    pub(crate) fn take_object(&mut self, stored: &Record) {
        if self.stages.remove(&stored.id).is_none() {
            return;
        }
        self.parts.direct.recorded(&stored.id);
        let slot = self.index.get(&stored.id).and_then(|(key, _)| self.lanes.get_mut(key));
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
        let busy = self.lanes.get_mut(key).and_then(|slot| slot.lane.busy());
        if let Some((stage, _)) = busy.and_then(|busy| self.stages.get_mut(&busy.id)) {
            *stage = Stage::Written;
        }
    }

    /// Accepts a delivery whose first write has ended.
    pub(crate) fn written(&mut self, record: &Record, is_open: bool) {
        let Some((stage, until)) = self.stages.get_mut(&record.id) else { return };
        if record.is_recorded() || !is_open {
            self.stages.remove(&record.id);
            self.accept(record);
        } else {
            // Nothing had to be written.
            *stage = Stage::Attempted;
            if *until <= Instant::now() {
                self.record_first(&record.id.clone());
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
        let ids: Vec<_> = self.stages.keys().cloned().collect();
        for id in ids {
            let Some((key, place)) = self.index.get(&id).cloned() else {
                self.stages.remove(&id);
                self.parts.direct.forget(&id);
                continue;
            };
            let Some(slot) = self.lanes.get_mut(&key).filter(|_| is_concerned(&key.pipeline)) else { continue };
            if slot.lane.at_work() == Some(place) || slot.lane.get(place).is_some_and(Record::is_recorded) {
                continue;
            }
            slot.lane.remove(place);
            self.index.remove(&id);
            self.stages.remove(&id);
            self.parts.direct.forget(&id);
        }
    }
}

#[cfg(test)]
mod tests;
