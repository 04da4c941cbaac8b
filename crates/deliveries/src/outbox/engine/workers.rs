//! The part of the engine that assigns work: which lane gets a worker, for which work, and what follows from the result.
//!
//! In: a lane that may have something to do, ends of its tasks. Out: at most one [`Task`] for it. After the task: the lane's next state, and
//! effects that report an outcome or a delivery that needs attention. `head` decides what happens with a head that is due, and `writes` what
//! follows after each call of a write.

use std::time::{Duration, Instant};

use super::Engine;
use super::effect::{Effect, Facts, Now, Task};
use super::gauges::is_blocked;
use super::state::fair_queue::{AttemptOutcome, Turn};
use super::state::head::Decision;
use super::state::lanes::Slot;
use super::state::rate::Permit;
use super::writes::{Answered, Kind, Limit, Next, Write};
use crate::outbox::attempt::decided::{Attempted, Decided, Worked};
use crate::outbox::audit_log::trouble;
use crate::outbox::lane::thread::Before;
use crate::outbox::lane::{After, Due, Place};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::index::{Gone, SendDecision};
use crate::outbox::store::journal;
use relaybook_api::delivery::Reason;
use relaybook_api::{DeliveryStatus, ObjectName, Outcome};
use relaybook_egress::RequestError;
use relaybook_settings::config::{Rate, Retry, Sending};

/// Pause after a check for a deleted object that found the object, or that failed. The watches catch up in this time.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Pause until the dispatcher has likely compared a delivery.
const COMPARE: Duration = Duration::from_millis(500);

impl Engine {
    /// Returns whether this replica holds buckets, and everything was listed since it acquired the last one.
    pub(crate) fn acting(&self, facts: &Facts<'_>) -> bool {
        let listed = |term| self.initial_sync.term() == Some(term) && facts.pipelines.term() == Some(term);
        facts.lease.term().is_some_and(|term| listed(term.number))
    }

    /// Checks whether a lane has something to do now, and starts it.
    pub(crate) fn check(&mut self, key: &LaneKey, facts: &Facts<'_>, now: Now) {
        if self.is_empty(key, now) {
            return self.forget(key, facts);
        }
        if self.draining || !self.is_judged(facts) {
            return;
        }
        if !facts.is_ours(&key.pipeline) {
            return self.follow_lane(key, facts);
        }
        self.prove_head(key, facts, now);
        self.supersede(key, facts, now);
        let Some(slot) = self.lanes.get(key).filter(|slot| !slot.ready) else { return };
        match slot.lane.due(now.mono) {
            Due::Busy | Due::Held => {}
            Due::Empty => self.forget(key, facts),
            Due::At(until) => self.lanes.set_timer(key, until),
            Due::Now => self.consider(key, facts, now),
        }
    }

    fn is_empty(&self, key: &LaneKey, now: Now) -> bool {
        self.lanes.get(key).is_some_and(|slot| !slot.ready && slot.lane.due(now.mono) == Due::Empty)
    }

    fn forget(&mut self, key: &LaneKey, facts: &Facts<'_>) {
        self.lanes.forget(key);
        facts.delivery_index.trouble(key, None);
    }

    /// Starts what has to be done with the head of a lane, which is due.
    fn consider(&mut self, key: &LaneKey, facts: &Facts<'_>, now: Now) {
        let Some(decision) = self.lanes.head(key).map(|head| self.decision(key, head, facts, now)) else { return };
        match decision {
            Decision::Send(notification, _) => {
                let Ok(sending) = &notification.sending else { return };
                let origin = facts.origin(sending);
                self.queue(key, origin, notification.delivery.rate, facts, now);
            }
            Decision::Count(superseded) => {
                let Some(record) = self.take(key, now) else { return };
                let status = DeliveryStatus { superseded, ..record.status.clone() };
                self.write(key, Decided::noted(record, status), Limit::Outcomes, facts, now);
            }
            Decision::Refuse => {
                let Some(record) = self.take(key, now) else { return };
                self.write(key, Decided::refused(record, now), Limit::Aside, facts, now);
            }
            Decision::Outdated => {
                let Some(record) = self.take(key, now) else { return };
                self.write(key, Decided::outdated(record, now), Limit::Aside, facts, now);
            }
            Decision::Wait { reason, message, until } => {
                let failures = self.lanes.get(key).map_or(0, |slot| slot.lane.failures());
                let Some(record) = self.take(key, now) else { return };
                let chance = self.random.f64();
                let decided = Decided::waiting(record, reason, &message, until.as_ref(), failures, chance, now);
                self.write(key, decided, Limit::Aside, facts, now);
            }
            Decision::Cancel { what, sure } => {
                let Some(record) = self.take(key, now) else { return };
                if sure {
                    return self.write(key, Decided::canceled(record, what, now), Limit::Aside, facts, now);
                }
                self.writes(key);
                let (namespace, spec) = (record.id.namespace, record.spec);
                self.start(Task::Verify { lane: key.clone(), namespace, spec, what });
            }
            Decision::Hold => self.hold(key, None, now),
            Decision::Compare => self.hold(key, Some(now.mono + COMPARE), now),
        }
    }

    /// Holds the head of a lane, until something changes or until this time.
    fn hold(&mut self, key: &LaneKey, until: Option<Instant>, now: Now) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        slot.lane.take(now.mono);
        slot.lane.done(After::Hold { until });
        if let Some(until) = until {
            self.lanes.set_timer(key, until);
        }
    }

    /// Takes the head of a lane, which is then in progress.
    fn take(&mut self, key: &LaneKey, now: Now) -> Option<Record> {
        self.lanes.get_mut(key)?.lane.take(now.mono).cloned()
    }

    /// Writes what was decided about the delivery in progress of a lane, unless it is stored already.
    fn write(&mut self, key: &LaneKey, decided: Decided, limit: Limit, facts: &Facts<'_>, now: Now) {
        self.writes(key);
        if decided.is_stored() {
            return self.on_written(key, decided.unwritten(), facts, now);
        }
        self.start(Task::Write(Write::new(Kind::Lane(key.clone()), decided, limit)));
    }

    /// Handles the end of the live read that confirms that the delivery in progress of a lane can be canceled.
    pub(crate) fn on_verified(&mut self, key: &LaneKey, what: Gone, is_gone: Option<bool>, facts: &Facts<'_>, now: Now) {
        let Some(record) = self.lanes.get_mut(key).and_then(|slot| slot.lane.busy().cloned()) else { return };
        // The object may have been created again since the check that found it gone.
        let is_still = || matches!(facts.pipelines.find(&record.spec), SendDecision::Gone { .. });
        if is_gone == Some(true) && is_still() {
            return self.write(key, Decided::canceled(record, what, now), Limit::Aside, facts, now);
        }
        let after = After::Hold { until: Some(now.mono + ASK_AGAIN) };
        self.on_written(key, Worked::unwritten(record, after), facts, now);
    }

    /// Adds what was written to the delivery index, unless the watch has reported meanwhile that the object is deleted.
    pub(crate) fn note(&self, record: &Record, facts: &Facts<'_>) {
        if self.initial_sync.was_deleted(&record.uid) {
            facts.delivery_index.deleted_before(&record.id);
        } else {
            facts.delivery_index.note(record);
        }
    }

    /// Handles the end of a call of a write.
    pub(crate) fn on_answered(&mut self, write: Box<Write>, answered: Answered, facts: &Facts<'_>, now: Now) {
        let (id, spec) = (write.decided.record.id.clone(), write.decided.record.spec.clone());
        if write.kind == Kind::Pending
            && let Answered::Created(result) = answered
        {
            self.end_beside(&spec.pipeline_ref.uid);
            return self.on_recorded(&id, *result, facts, now);
        }
        let is_left = facts.pipelines.pipeline(&spec.pipeline_ref.uid).is_none();
        let mut failed = "could not write the Delivery status; the lane is blocked until a retry succeeds";
        if let Answered::Created(made) = &answered {
            failed = "could not record a Delivery that was sent; the lane is blocked until a retry succeeds";
            match &**made {
                Ok(_) => self.has_object(&id),
                Err(error) if error.is_refused() && is_left => {
                    tracing::warn!(error = %error.detail(), delivery = %id.name, "could not record a Delivery that was sent; its pipeline is gone");
                }
                Err(_) => {}
            }
        }
        match write.next(answered, is_left, self.random.f64(), now) {
            Next::Ended(Kind::Lane(key), worked) => self.on_written(&key, *worked, facts, now),
            Next::Ended(Kind::Superseded(key), worked) => self.on_superseded(&key, *worked, facts, now),
            Next::Ended(Kind::Reopened, worked) => self.on_reopened(*worked, facts, now),
            Next::Ended(Kind::Pending, _) => {}
            Next::Call(write) => self.start(Task::Write(write)),
            Next::Pause(write, pause, error) => {
                self.has_failed(&id, &error);
                tracing::warn!(error = %error.detail(), delivery = %id.name, "{failed}");
                self.paused.add(now.mono + pause, write);
            }
        }
    }

    /// Queues a lane that can be sent. If the notification has a rate, the lane first waits for its turn. Then it waits for a worker.
    fn queue(&mut self, key: &LaneKey, origin: String, rate: Option<Rate>, facts: &Facts<'_>, now: Now) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        slot.ready = true;
        let reason = slot.lane.head().and_then(|head| head.status.known_reason());
        // The cause is fixed, whatever the result of the attempt is.
        if matches!(reason, Some(Reason::Suspended | Reason::InvalidSpec | Reason::Incomplete)) {
            facts.delivery_index.trouble(key, None);
        }
        let Some(rate) = rate else { return self.fair_queue.ready(&origin, key.clone(), now.mono) };
        let shared = (key.namespace.clone(), key.notification.clone(), origin);
        slot.shared = Some(shared.clone());
        let pace = self.part_of(key, rate, facts, now.mono);
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
    pub(crate) fn assign(&mut self, facts: &Facts<'_>, now: Now) {
        if self.draining || !self.is_judged(facts) {
            return;
        }
        // Handle redelivery requests that arrived while this replica was not the leader.
        self.reopen(facts, now);
        let mut late = Vec::new();
        while let Some(turn) = self.fair_queue.next(now.mono) {
            if let Some(turn) = self.begin(turn, facts, now) {
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
    fn begin(&mut self, turn: Turn, facts: &Facts<'_>, now: Now) -> Option<Turn> {
        let key = turn.lane.clone();
        let is_due = |slot: &&Slot| slot.lane.due(now.mono) == Due::Now && facts.is_ours(&key.pipeline);
        let head = self.lanes.get(&key).filter(is_due).and_then(|slot| slot.lane.head());
        let decision = head.map(|head| (self.decision(&key, head, facts, now), head.is_recorded()));
        let Some((Decision::Send(notification, pipeline), is_recorded)) = decision else {
            self.fair_queue.release(&turn.origin, &key, AttemptOutcome::Nothing, now.mono);
            self.end_rate_turn(&key, now.mono);
            self.check(&key, facts, now);
            return None;
        };
        let takes = notification.sending.as_ref().map_or(Duration::ZERO, Sending::longest);
        // If it has no object yet, it must be recorded within the term, too. Otherwise the next leader would repeat the request.
        let write = if is_recorded { Duration::ZERO } else { journal::DEADLINE };
        let Some(until) = facts.lease.until(takes, write, now.boot) else { return Some(turn) };
        let shared = self.lanes.get(&key).and_then(|slot| slot.shared.clone()).zip(notification.delivery.rate);
        let shared = shared.map(|(shared, rate)| (shared, self.part_of(&key, rate, facts, now.mono)));
        if shared.is_some_and(|(shared, pace)| self.rates.permit(&shared, pace, now.mono) == Permit::Wait) {
            self.fair_queue.release(&turn.origin, &key, AttemptOutcome::Nothing, now.mono);
            self.record_head(&key);
            return None;
        }
        self.end_rate_turn(&key, now.mono);
        let slot = self.lanes.get_mut(&key)?;
        (slot.marked, slot.resumed) = (false, None);
        let record = Box::new(slot.lane.take(now.mono).cloned()?);
        let has_thread = notification.sending.as_ref().is_ok_and(|sending| sending.thread.is_some());
        let before = if has_thread { facts.delivery_index.before(&record, now.wall) } else { Before::default() };
        self.start(Task::Attempt { turn, record, notification, facts: pipeline, before, until });
        None
    }

    /// Handles the end of an attempt, and releases its worker. The lane stays busy until the outcome is written. If an object records the
    /// delivery since the attempt began, the lane has it.
    pub(crate) fn on_attempted(
        &mut self,
        turn: &Turn,
        retry: &Retry,
        attempt: &Result<Attempted, RequestError>,
        facts: &Facts<'_>,
        now: Now,
    ) {
        let slot = self.lanes.get_mut(&turn.lane);
        let known = slot.and_then(|slot| Some((slot.lane.failures(), slot.lane.busy()?.clone())));
        let Some((failures, record)) = known else { return };
        let chance = self.random.f64();
        let (decided, attempt_outcome) = Decided::attempted(record, attempt, retry, failures, chance, now);
        self.fair_queue.took(turn, attempt_outcome, decided.took());
        let freed = self.fair_queue.release(&turn.origin, &turn.lane, attempt_outcome, now.mono);
        let lost = matches!(attempt_outcome, AttemptOutcome::NoConnection { .. });
        if let Some(slot) = self.lanes.get_mut(&turn.lane) {
            slot.unreachable = lost.then(|| turn.origin.clone());
        }
        if !freed.is_empty() {
            self.recovered(&turn.origin, &freed, facts, now);
        }
        // The failure of a probe of an origin that is already known to be unreachable is not written.
        let is_unwritten = lost && turn.probe && !turn.write_failure;
        if is_unwritten && decided.is_retried() && decided.record.is_recorded() {
            return self.on_written(&turn.lane, decided.unwritten(), facts, now);
        }
        let limit = if decided.is_retried() { Limit::Failures } else { Limit::Outcomes };
        self.write(&turn.lane, decided, limit, facts, now);
    }

    /// Retries the lanes that wait only because an origin was unreachable, now that it is reachable again.
    fn recovered(&mut self, origin: &str, freed: &[ObjectName], facts: &Facts<'_>, now: Now) {
        tracing::info!(notifications = freed.len(), "a receiver is reachable again; retrying its lanes");
        let waits = |key: &LaneKey, slot: &Slot| slot.unreachable.as_deref() == Some(origin) && freed.contains(&key.owner());
        let those = self.lanes.iter().filter(|(key, slot)| waits(key, slot));
        for key in those.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            if let Some(slot) = self.lanes.get_mut(&key) {
                slot.unreachable = None;
            }
            self.changed(&key, true, facts, now);
        }
    }

    /// Handles the end of the work on the delivery in progress of a lane.
    pub(crate) fn on_written(&mut self, key: &LaneKey, worked: Worked, facts: &Facts<'_>, now: Now) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        let record = &worked.record;
        if let Some(busy) = slot.lane.busy() {
            *busy = record.clone();
        }
        let stale = slot.stale.take();
        let settled = slot.lane.done(worked.after).is_some();
        self.accept_written(&worked, !settled && !worked.gone, facts, now);
        // A user deleted the delivery while it was in progress, and there was nothing to write for it. Or its object was deleted before the
        // answer to the create.
        let is_known = self.lanes.find(&record.id).is_some();
        let deleted = !settled && (!is_known || self.initial_sync.was_deleted(&record.uid));
        if deleted && let Some(slot) = self.lanes.get_mut(key) {
            slot.lane.remove(Place::from(&*record.spec));
            self.lanes.settled(&record.id);
        }
        let trouble = if settled || deleted { None } else { trouble(record) };
        facts.delivery_index.trouble(key, trouble);
        if settled || worked.gone {
            self.lanes.settled(&record.id);
            self.settled(worked, facts, now);
        } else if worked.is_written {
            self.tell(record);
        }
        if let Some(retry) = stale {
            self.changed(key, retry, facts, now);
        }
        if settled || deleted {
            self.moved(key, facts, now);
        } else if stale.is_none() {
            self.check(key, facts, now);
        }
    }

    /// Handles a delivery that is settled and whose outcome is written, or whose object is gone.
    pub(crate) fn settled(&mut self, worked: Worked, facts: &Facts<'_>, now: Now) {
        let Worked { record, gone, instead, is_written, .. } = worked;
        if gone {
            facts.delivery_index.forget(&record.id);
        } else if instead.is_none() {
            self.note(&record, facts);
        }
        // If another replica has settled the delivery, that replica has reported it.
        if let Some(outcome) = record.status.outcome.filter(|_| is_written) {
            self.effects.push(Effect::Settled(Box::new(record.clone()), outcome));
            self.tell(&record);
        }
        match instead {
            Some(instead) => self.seen(*instead, facts, now),
            None if gone => {}
            None => self.asked(record, facts, now),
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
