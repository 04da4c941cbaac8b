//! Direct attempts in the engine: which offered deliveries are sent before they are recorded, and when they are recorded.
//!
//! In: offers from the dispatcher, the ends of writes. Out: deliveries in lanes, writes that record them, answers for the dispatcher. A delivery
//! without an object is always the only one in its lane, because the dispatcher records later ones only after it.

use super::Engine;
use super::effect::{Facts, Now, Task, Ticket};
use super::state::head::Decision;
use super::state::lanes::Slot;
use super::state::unrecorded::{DIRECT, MOST, Stage};
use super::writes::{Kind, Limit, Write};
use crate::outbox::Answer;
use crate::outbox::attempt::decided::{Decided, Worked};
use crate::outbox::record::{LaneKey, Record, name};
use crate::outbox::store::journal::{self, JournalError, New};
use relaybook_api::ObjectName;

impl Engine {
    /// Handles an offer: starts to send the delivery without an object, or declines.
    pub(crate) fn on_offer(&mut self, ticket: Ticket, new: New, facts: &Facts<'_>, now: Now) {
        let New { namespace, elsewhere, spec } = new;
        // It may be recorded elsewhere already. Then nothing is sent before the dispatcher has looked there.
        let elsewhere = elsewhere.map(|elsewhere| ObjectName::new(elsewhere, name(&spec)));
        let record = Record::unrecorded(&namespace, spec, now.wall, now.boot);
        let id = elsewhere.clone().unwrap_or_else(|| record.id.clone());
        match self.unrecorded.get(&id) {
            Some((stage, until)) => {
                if let Some(answer) = self.unrecorded.ask(&id, ticket) {
                    self.answer(ticket, answer);
                } else if stage == Stage::Attempted && until <= now.mono {
                    self.record_first(&id);
                }
            }
            None if elsewhere.is_some() || self.is_on_record(&id, facts) || !self.can_attempt(&record, facts, now) => {
                self.answer(ticket, Answer::Declined);
            }
            None => {
                self.unrecorded.add(id, now.mono + DIRECT, ticket);
                let key = self.lanes.insert(record);
                self.check(&key, facts, now);
            }
        }
    }

    /// Returns whether a Delivery with this name exists. The attempt to create it then shows whether it is the same delivery. It can be
    /// settled although no cursor has passed it, if the previous leader was killed before it persisted its cursors.
    fn is_on_record(&self, id: &ObjectName, facts: &Facts<'_>) -> bool {
        self.lanes.find(id).is_some() || facts.delivery_index.contains(id)
    }

    /// Returns whether a delivery can be sent at once, and nothing requires that it is recorded before.
    fn can_attempt(&self, record: &Record, facts: &Facts<'_>, now: Now) -> bool {
        let key = record.lane();
        if self.draining || !self.decides(&key.pipeline, facts) || self.unrecorded.count() >= MOST {
            return false;
        }
        let is_accepting = facts.health.is_accepting(&record.id.namespace, &record.spec.notification);
        if !is_accepting || self.lanes.get(&key).is_some() {
            return false;
        }
        let Decision::Send(notification, _) = self.decision(&key, record, facts, now) else { return false };
        let Ok(sending) = &notification.sending else { return false };
        // If a forge is asked and is slow, the delivery is recorded while it waits, as for a slow receiver.
        if !facts.allows(sending.longest() + journal::DEADLINE, now) {
            return false;
        }
        let origin = facts.origin(sending);
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
        let Some(record) = record.cloned() else { return self.end_offer(id, || Answer::Declined) };
        self.unrecorded.set(id, Stage::Recording);
        self.begin_beside(&record.spec.pipeline_ref.uid);
        let status = record.status.clone();
        self.start(Task::Write(Write::new(Kind::Pending, Decided::noted(record, status), Limit::Aside)));
    }

    /// Handles the end of the write that records a delivery as pending.
    pub(crate) fn on_recorded(
        &mut self,
        id: &ObjectName,
        result: Result<Record, JournalError>,
        facts: &Facts<'_>,
        now: Now,
    ) {
        let stage = self.unrecorded.get(id).map(|(stage, _)| stage);
        let stored = match result {
            Ok(stored) => stored,
            Err(error) => {
                self.has_failed(id, &error);
                // The dispatcher offers it again, and the write is then repeated.
                if stage == Some(Stage::Recording) {
                    self.unrecorded.set(id, Stage::Attempted);
                }
                return;
            }
        };
        // If its outcome is already being written, that write finds the object.
        if !matches!(stage, Some(Stage::Recording | Stage::Attempted)) {
            return self.has_object(id);
        }
        if self.initial_sync.was_deleted(&stored.uid) {
            self.end_offer(id, || Answer::Recorded);
            let _ = facts.delivery_index.take_own(&stored.uid);
            return self.deleted(id, facts, now);
        }
        self.recorded(stored, facts, now);
    }

    /// Notes that an object records a delivery whose result is still being written.
    pub(crate) fn has_object(&mut self, id: &ObjectName) {
        for ticket in self.unrecorded.recorded(id) {
            self.answer(ticket, Answer::Recorded);
        }
    }

    /// Notes that the first write of a delivery has failed.
    pub(crate) fn has_failed(&mut self, id: &ObjectName, error: &JournalError) {
        for (ticket, answer) in self.unrecorded.failed(id, error) {
            self.answer(ticket, answer);
        }
    }

    /// Removes a delivery from those without an object, and answers its offers.
    fn end_offer(&mut self, id: &ObjectName, answer: impl Fn() -> Answer) {
        for ticket in self.unrecorded.remove(id).into_iter().flatten() {
            self.answer(ticket, answer());
        }
    }

    /// Gives a delivery that had no object the one that now records it.
    pub(crate) fn take_object(&mut self, stored: &Record) {
        if self.unrecorded.get(&stored.id).is_none() {
            return;
        }
        self.end_offer(&stored.id, || Answer::Recorded);
        let key = self.lanes.find(&stored.id).map(|(key, _)| key.clone());
        let slot = key.and_then(|key| self.lanes.get_mut(&key));
        // If another replica has written a result meanwhile, the write of our result finds the object, and compares the two.
        let is_same = |busy: &&mut Record| busy.id == stored.id && busy.status == stored.status;
        if let Some(busy) = slot.and_then(|slot| slot.lane.busy()).filter(is_same) {
            busy.adopt(stored);
        }
    }

    /// Notes that the result for the delivery in progress is being written, and that this write also records it.
    pub(crate) fn writes(&mut self, key: &LaneKey) {
        if let Some(busy) = self.lanes.get_mut(key).and_then(|slot| slot.lane.busy()) {
            self.unrecorded.set(&busy.id, Stage::Written);
        }
    }

    /// Accepts a delivery whose first write has ended.
    pub(crate) fn accept_written(&mut self, worked: &Worked, is_open: bool, facts: &Facts<'_>, now: Now) {
        let record = &worked.record;
        let Some((_, until)) = self.unrecorded.get(&record.id) else { return };
        if record.is_recorded() || !is_open {
            // The delivery index knows it since its create was answered. Nobody can read before that that a cursor has moved past it.
            self.end_offer(&record.id, || Answer::Recorded);
            if record.is_recorded() {
                self.prove(record, facts);
                // If it is redelivered since, its entry can be newer than this.
                if worked.instead.is_none() {
                    self.note(record, facts);
                }
                self.say_proven(record, facts);
            }
        } else {
            // Nothing had to be written.
            self.unrecorded.set(&record.id, Stage::Attempted);
            if until <= now.mono {
                self.record_first(&record.id);
            }
        }
    }

    /// Removes the deliveries of these pipelines without an object that are not being attempted, at the start of a leadership term, and when
    /// their bucket is given away. Another replica may have recorded them. If not, the dispatcher derives them again.
    pub(crate) fn drop_unrecorded(&mut self, is_concerned: impl Fn(&str) -> bool) {
        let ids: Vec<_> = self.unrecorded.ids().cloned().collect();
        for id in ids {
            let mut is_recorded = false;
            if let Some((key, place)) = self.lanes.find(&id) {
                let is_idle = |slot: &&Slot| slot.lane.at_work() != Some(place);
                let idle = self.lanes.get(key).filter(is_idle).filter(|_| is_concerned(&key.pipeline));
                let Some(slot) = idle else { continue };
                is_recorded = slot.lane.get(place).is_some_and(Record::is_recorded);
            }
            // A list can have delivered its object.
            if !is_recorded {
                self.lanes.remove(&id);
            }
            self.end_offer(&id, || Answer::Declined);
        }
    }
}

#[cfg(test)]
mod tests;
