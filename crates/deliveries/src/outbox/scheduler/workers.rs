//! The part of the engine that assigns work: which lane gets a worker, for which work, and what follows from the result.
//!
//! In: a lane that may have something to do. Out: at most one [`Task`] for it. After the task: the lane's next state, and effects that
//! report an outcome or a delivery that needs attention. `head` decides what happens with a head that is due.

use std::time::{Duration, Instant};

use super::effect::{Effect, Limit, Now, Task};
use super::engine::Engine;
use super::fair_queue::{AttemptOutcome, Turn};
use super::gauges::is_blocked;
use super::head::{Decision, Facts, decide};
use super::lanes::Slot;
use super::rate::Permit;
use crate::outbox::attempt::work::{self, Decided, Worked};
use crate::outbox::audit_log::trouble;
use crate::outbox::lane::{After, Due, Place};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::index::SendDecision;
use crate::outbox::store::journal;
use relaybook_api::delivery::Reason;
use relaybook_api::{DeliveryStatus, ObjectName, Outcome};
use relaybook_settings::config::Rate;

impl Engine {
    /// Returns whether this replica holds buckets, and everything was listed since it acquired the last one.
    pub(crate) fn acting(&self) -> bool {
        let listed = |term| self.initial_sync.term() == Some(term) && self.parts.pipeline_index.term() == Some(term);
        self.parts.lease.term().is_some_and(|term| listed(term.number))
    }

    /// Checks whether a lane has something to do now, and starts it.
    pub(crate) fn check(&mut self, key: &LaneKey, now: Now) {
        if self.is_empty(key, now) {
            return self.forget(key);
        }
        if self.draining || !self.is_judged() {
            return;
        }
        if !self.is_ours(&key.pipeline) {
            return self.follow_lane(key);
        }
        self.prove_head(key, now);
        self.supersede(key, now);
        let Some(slot) = self.lanes.get(key).filter(|slot| !slot.ready) else { return };
        match slot.lane.due(now.mono) {
            Due::Busy | Due::Held => {}
            Due::Empty => self.forget(key),
            Due::At(until) => self.lanes.set_timer(key, until),
            Due::Now => self.consider(key, now),
        }
    }

    fn is_empty(&self, key: &LaneKey, now: Now) -> bool {
        self.lanes.get(key).is_some_and(|slot| !slot.ready && slot.lane.due(now.mono) == Due::Empty)
    }

    fn forget(&mut self, key: &LaneKey) {
        self.lanes.forget(key);
        self.parts.delivery_index.trouble(key, None);
    }

    /// Decides about a delivery that is, or would be, the head of a lane.
    pub(super) fn decision(&self, key: &LaneKey, head: &Record) -> Decision {
        let is_behind = self.lanes.is_behind(key, head);
        let sendable = if is_behind { SendDecision::NotYet } else { self.parts.pipeline_index.find(&head.spec) };
        let uncounted = if matches!(sendable, SendDecision::Send(..)) { self.uncounted(head) } else { None };
        decide(head, Facts { is_unproven: self.is_unproven(head), uncounted, sendable })
    }

    /// Starts what has to be done with the head of a lane, which is due.
    fn consider(&mut self, key: &LaneKey, now: Now) {
        let Some(decision) = self.lanes.head(key).map(|head| self.decision(key, head)) else { return };
        match decision {
            Decision::Send(notification, _) => {
                let Ok(sending) = &notification.sending else { return };
                let origin = self.parts.origin(sending);
                self.queue(key, origin, notification.delivery.rate, now);
            }
            Decision::Count(superseded) => {
                let Some(record) = self.take(key, now) else { return };
                let status = DeliveryStatus { superseded, ..record.status.clone() };
                self.write(key, Decided::noted(record, status), Limit::Outcomes);
            }
            Decision::Refuse => {
                let Some(record) = self.take(key, now) else { return };
                self.write(key, work::refuse(record, now), Limit::Aside);
            }
            Decision::Wait { reason, message, until } => {
                let failures = self.lanes.get(key).map_or(0, |slot| slot.lane.failures());
                let Some(record) = self.take(key, now) else { return };
                let chance = self.random.f64();
                let decided = work::wait(record, reason, &message, until.as_ref(), failures, chance, now);
                self.write(key, decided, Limit::Aside);
            }
            Decision::Cancel { what, sure } => {
                let Some(record) = self.take(key, now).map(Box::new) else { return };
                self.writes(key);
                self.start(Task::Cancel { key: key.clone(), record, what, sure });
            }
            Decision::Hold => {
                let Some(slot) = self.lanes.get_mut(key) else { return };
                slot.lane.take(now.mono);
                slot.lane.done(After::Hold { until: None });
            }
        }
    }

    /// Takes the head of a lane, which is then in progress.
    fn take(&mut self, key: &LaneKey, now: Now) -> Option<Record> {
        self.lanes.get_mut(key)?.lane.take(now.mono).cloned()
    }

    /// Returns how many deliveries the head replaces, if that number is not written yet.
    fn uncounted(&self, head: &Record) -> Option<i64> {
        let counts = head.status.attempts == 0 && !head.again;
        let replaced = if counts { self.parts.delivery_index.replaced(head, None) } else { 0 };
        Some(replaced).filter(|replaced| *replaced > head.status.superseded)
    }

    /// Writes what was decided about the delivery in progress of a lane.
    fn write(&mut self, key: &LaneKey, decided: Decided, limit: Limit) {
        self.writes(key);
        self.start(Task::Write { key: key.clone(), decided: Box::new(decided), limit });
    }

    /// Queues a lane that can be sent. If the notification has a rate, the lane first waits for its turn. Then it waits for a worker.
    fn queue(&mut self, key: &LaneKey, origin: String, rate: Option<Rate>, now: Now) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        slot.ready = true;
        let reason = slot.lane.head().and_then(|head| head.status.known_reason());
        // The cause is fixed, whatever the result of the attempt is.
        if matches!(reason, Some(Reason::Suspended | Reason::InvalidSpec | Reason::Incomplete)) {
            self.parts.delivery_index.trouble(key, None);
        }
        let Some(rate) = rate else { return self.fair_queue.ready(&origin, key.clone(), now.mono) };
        let shared = (key.namespace.clone(), key.notification.clone(), origin);
        slot.shared = Some(shared.clone());
        let pace = self.part_of(key, rate, now.mono);
        if let Some(lane) = self.rates.ready(shared.clone(), pace, key.clone(), now.mono) {
            self.fair_queue.ready(&shared.2, lane, now.mono);
        }
    }

    /// Ends the turn of a lane: it is no longer ready, and the next lane that shares its rate gets the turn.
    fn end_rate_turn(&mut self, key: &LaneKey, now: Instant) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        slot.ready = false;
        if let Some(shared) = slot.shared.take()
            && let Some(next) = self.rates.next(&shared)
        {
            self.fair_queue.ready(&shared.2, next, now);
        }
    }

    /// Assigns free workers to lanes that are ready.
    pub(crate) fn assign(&mut self, now: Now) {
        if self.draining || !self.is_judged() {
            return;
        }
        // Handle redelivery requests that arrived while this replica was not the leader.
        self.reopen(now);
        let mut late = Vec::new();
        while let Some(turn) = self.fair_queue.next(now.mono) {
            if let Some(turn) = self.begin(turn, now) {
                late.push(turn);
            }
        }
        for turn in late.into_iter().rev() {
            self.fair_queue.put_back(turn, now.mono);
        }
    }

    /// Starts an attempt. It first repeats the decision that made the lane ready: another replica, a user, or a newer delivery may have
    /// changed it, and the head may be another one. A request starts only if the Lease lasts longer than the request's timeout. Otherwise the
    /// turn is returned.
    fn begin(&mut self, turn: Turn, now: Now) -> Option<Turn> {
        let key = turn.lane.clone();
        let is_due = |slot: &&Slot| slot.lane.due(now.mono) == Due::Now && self.is_ours(&key.pipeline);
        let head = self.lanes.get(&key).filter(is_due).and_then(|slot| slot.lane.head());
        let decision = head.map(|head| (self.decision(&key, head), head.is_recorded()));
        let Some((Decision::Send(notification, facts), is_recorded)) = decision else {
            self.fair_queue.release(&turn.origin, &key, AttemptOutcome::Nothing, now.mono);
            self.end_rate_turn(&key, now.mono);
            self.check(&key, now);
            return None;
        };
        let takes = notification.sending.as_ref().map_or(Duration::ZERO, |s| s.timeout);
        // If it has no object yet, it must be recorded within the term, too. Otherwise the next leader would repeat the request.
        let write = if is_recorded { Duration::ZERO } else { journal::DEADLINE };
        let Some(until) = self.parts.lease.until(takes, write) else { return Some(turn) };
        let shared = self.lanes.get(&key).and_then(|slot| slot.shared.clone()).zip(notification.delivery.rate);
        let shared = shared.map(|(shared, rate)| (shared, self.part_of(&key, rate, now.mono)));
        if shared.is_some_and(|(shared, pace)| self.rates.permit(&shared, pace, now.mono) == Permit::Wait) {
            self.fair_queue.release(&turn.origin, &key, AttemptOutcome::Nothing, now.mono);
            self.record_head(&key);
            return None;
        }
        self.end_rate_turn(&key, now.mono);
        let slot = self.lanes.get_mut(&key)?;
        (slot.marked, slot.resumed) = (false, None);
        let failures = slot.lane.failures();
        let record = Box::new(slot.lane.take(now.mono).cloned()?);
        self.start(Task::Attempt { turn, record, notification, facts, failures, until });
        None
    }

    /// Handles the end of a request, and releases its worker. The lane stays busy until the outcome is written.
    pub(crate) fn attempted(&mut self, turn: &Turn, attempt_outcome: AttemptOutcome, mut decided: Decided, now: Now) {
        self.adopt_object(turn, &mut decided);
        self.fair_queue.took(turn, attempt_outcome, decided.took());
        let freed = self.fair_queue.release(&turn.origin, &turn.lane, attempt_outcome, now.mono);
        let lost = matches!(attempt_outcome, AttemptOutcome::NoConnection { .. });
        if let Some(slot) = self.lanes.get_mut(&turn.lane) {
            slot.unreachable = lost.then(|| turn.origin.clone());
        }
        if !freed.is_empty() {
            self.recovered(&turn.origin, &freed, now);
        }
        let skipped = if lost && turn.probe && !turn.write_failure { decided.skip_write() } else { Err(Box::new(decided)) };
        match skipped {
            Ok(worked) => self.worked(&turn.lane, *worked, now),
            Err(decided) => {
                let limit = if decided.is_retried() { Limit::Failures } else { Limit::Outcomes };
                self.write(&turn.lane, *decided, limit);
            }
        }
    }

    /// Retries the lanes that wait only because an origin was unreachable, now that it is reachable again.
    fn recovered(&mut self, origin: &str, freed: &[ObjectName], now: Now) {
        tracing::info!(notifications = freed.len(), "a receiver is reachable again; retrying its lanes");
        let waits = |key: &LaneKey, slot: &Slot| slot.unreachable.as_deref() == Some(origin) && freed.contains(&key.owner());
        let those = self.lanes.iter().filter(|(key, slot)| waits(key, slot));
        for key in those.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            if let Some(slot) = self.lanes.get_mut(&key) {
                slot.unreachable = None;
            }
            self.changed(&key, true, now);
        }
    }

    pub(crate) fn worked(&mut self, key: &LaneKey, worked: Worked, now: Now) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        let record = &worked.record;
        if let Some(busy) = slot.lane.busy() {
            *busy = record.clone();
        }
        let stale = slot.stale.take();
        let settled = slot.lane.done(worked.after).is_some();
        self.written(record, !settled && !worked.gone, now);
        // A user deleted the delivery while it was in progress, and there was nothing to write for it. Or its object was deleted before the
        // answer to the create.
        let is_known = self.lanes.find(&record.id).is_some();
        let deleted = !settled && (!is_known || self.initial_sync.was_deleted(&record.uid));
        if deleted && let Some(slot) = self.lanes.get_mut(key) {
            slot.lane.remove(Place::from(&*record.spec));
            self.lanes.settled(&record.id);
        }
        let trouble = if settled || deleted { None } else { trouble(record) };
        self.parts.delivery_index.trouble(key, trouble);
        if settled || worked.gone {
            self.lanes.settled(&record.id);
            self.settled(worked, now);
        } else if worked.is_written {
            self.tell(record);
        }
        if let Some(retry) = stale {
            self.changed(key, retry, now);
        }
        if settled || deleted {
            self.moved(key, now);
        } else if stale.is_none() {
            self.check(key, now);
        }
    }

    /// Handles a delivery that is settled and whose outcome is written, or whose object is gone.
    pub(crate) fn settled(&mut self, worked: Worked, now: Now) {
        let Worked { record, gone, instead, is_written, .. } = worked;
        if gone {
            self.parts.delivery_index.forget(&record.id);
        } else {
            self.parts.delivery_index.note(&record);
            // If another replica has settled the delivery, that replica has reported it.
            if let Some(outcome) = record.status.outcome.filter(|_| is_written) {
                self.effects.push(Effect::Settled(Box::new(record.clone()), outcome));
                self.tell(&record);
            }
            self.asked(record, now);
        }
        if let Some(instead) = instead {
            self.seen(*instead, now);
        }
    }

    /// Reports a delivery that needs a user's attention.
    fn tell(&mut self, record: &Record) {
        let status = &record.status;
        if status.outcome == Some(Outcome::Parked) || is_blocked(status) {
            self.effects.push(Effect::Note(Box::new(record.clone())));
        }
    }
}
