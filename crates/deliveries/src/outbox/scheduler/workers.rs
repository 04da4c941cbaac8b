//! The part of the engine that assigns work: which lane gets a worker, for which work, and what follows from the result.
//!
//! In: a lane that may have something to do. Out: at most one piece of work for it, in a separate task. After the work: the lane's next
//! state, the figures, the audit line, and a note for the reporter.

use std::time::{Duration, Instant};

use super::engine::{Done, Engine, Slot};
use super::fair_queue::{AttemptOutcome, Turn};
use super::gauges::is_blocked;
use super::rate::Permit;
use crate::outbox::Note;
use crate::outbox::attempt::work::{self, Decided, Worked};
use crate::outbox::attempt::write;
use crate::outbox::audit_log::{audit, trouble};
use crate::outbox::lane::{After, Due, Place};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::index::SendDecision;
use crate::outbox::store::journal;
use crate::outbox::trace;
use relaybook_api::delivery::Reason;
use relaybook_api::{DeliveryStatus, ObjectName, Outcome, now, since_boot};
use relaybook_settings::config::Rate;

impl Engine {
    /// Returns whether this replica holds buckets, and everything was listed since it acquired the last one.
    pub(crate) fn acting(&self) -> bool {
        let listed = |term| self.initial_sync.term() == Some(term) && self.parts.pipeline_index.term() == Some(term);
        self.parts.lease.term().is_some_and(|term| listed(term.number))
    }

    /// Checks whether a lane has something to do now, and starts it.
    pub(crate) fn check(&mut self, key: &LaneKey) {
        if self.is_empty(key) {
            return self.forget(key);
        }
        if self.draining || !self.is_judged() {
            return;
        }
        if !self.is_ours(&key.pipeline) {
            return self.follow_lane(key);
        }
        self.prove_head(key);
        self.supersede(key);
        let Some(slot) = self.lanes.get_mut(key).filter(|slot| !slot.ready) else { return };
        match slot.lane.due(Instant::now()) {
            Due::Busy | Due::Held | Due::Empty => {}
            Due::At(until) => {
                if let Some(old) = slot.timer.replace(until) {
                    self.timers.remove(&(old, key.clone()));
                }
                self.timers.insert((until, key.clone()));
            }
            Due::Now => self.consider(key),
        }
    }

    fn is_empty(&self, key: &LaneKey) -> bool {
        let empty = |slot: &Slot| !slot.ready && slot.lane.due(Instant::now()) == Due::Empty;
        self.lanes.get(key).is_some_and(empty)
    }

    fn forget(&mut self, key: &LaneKey) {
        if let Some(timer) = self.lanes.remove(key).and_then(|slot| slot.timer) {
            self.timers.remove(&(timer, key.clone()));
        }
        self.parts.delivery_index.trouble(key, None);
    }

    /// Decides whether the head of a lane, which is due, can be sent.
    fn consider(&mut self, key: &LaneKey) {
        let Some(head) = self.lanes.get(key).and_then(|slot| slot.lane.head()) else { return };
        let behind = self.is_behind(key, head);
        let answer = if behind { SendDecision::NotYet } else { self.parts.pipeline_index.find(&head.spec) };
        // Unless Relaybook is proven to have recorded it, a delivery can only be canceled.
        let answer = if self.is_unproven(head) && !matches!(answer, SendDecision::Gone { .. }) {
            SendDecision::NotYet
        } else {
            answer
        };
        let uncounted = if matches!(answer, SendDecision::Send(..)) { self.uncounted(head) } else { None };
        let refused = head.refusal().is_some();
        let Some(slot) = self.lanes.get_mut(key) else { return };
        match answer {
            SendDecision::Send(..) | SendDecision::Wait { .. } if refused => {
                if let Some(record) = slot.lane.take(Instant::now()).cloned() {
                    let task = write::store(self.parts.clone(), work::refuse(record), self.parts.aside.clone());
                    self.spawn(key, task);
                }
            }
            SendDecision::Send(..) if uncounted.is_some() => {
                if let Some(record) = slot.lane.take(Instant::now()).cloned() {
                    let superseded = uncounted.unwrap_or_default();
                    let status = DeliveryStatus { superseded, ..record.status.clone() };
                    let task = write::store(self.parts.clone(), Decided::noted(record, status), self.parts.outcomes.clone());
                    self.spawn(key, task);
                }
            }
            SendDecision::Send(notification, _) => {
                if let Ok(sending) = &notification.sending {
                    let reason = slot.lane.head().and_then(|head| head.status.known_reason());
                    // The cause is fixed, whatever the result of the attempt is.
                    if matches!(reason, Some(Reason::Suspended | Reason::InvalidSpec | Reason::Incomplete)) {
                        self.parts.delivery_index.trouble(key, None);
                    }
                    slot.ready = true;
                    let origin = self.parts.origin(sending);
                    self.queue(key, origin, notification.delivery.rate);
                }
            }
            SendDecision::NotYet => {
                slot.lane.take(Instant::now());
                slot.lane.done(After::Hold { until: None });
            }
            SendDecision::Wait { reason, message, until } => {
                let failures = slot.lane.failures();
                if let Some(record) = slot.lane.take(Instant::now()).cloned() {
                    let decided = work::wait(record, reason, &message, until.as_ref(), failures);
                    let task = write::store(self.parts.clone(), decided, self.parts.aside.clone());
                    self.spawn(key, task);
                }
            }
            SendDecision::Gone { what, sure } => {
                if let Some(record) = slot.lane.take(Instant::now()).cloned() {
                    let task = work::cancel(self.parts.clone(), record, what, sure);
                    self.spawn(key, task);
                }
            }
        }
    }

    /// Returns how many deliveries the head replaces, if that number is not written yet. It is written before the first attempt, so that
    /// every attempt sends the same number.
    pub(crate) fn uncounted(&self, head: &Record) -> Option<i64> {
        let counts = head.status.attempts == 0 && !head.again;
        let replaced = if counts { self.parts.delivery_index.replaced(head, None) } else { 0 };
        Some(replaced).filter(|replaced| *replaced > head.status.superseded)
    }

    fn spawn(&mut self, key: &LaneKey, task: impl Future<Output = Worked> + Send + 'static) {
        self.writes(key);
        let key = key.clone();
        self.work.spawn(async { Done::Worked(key, Box::new(task.await)) });
    }

    /// Queues a lane that can be sent. If the notification has a rate, the lane first waits for its turn. Then it waits for a worker.
    fn queue(&mut self, key: &LaneKey, origin: String, rate: Option<Rate>) {
        let now = Instant::now();
        let Some(rate) = rate else { return self.fair_queue.ready(&origin, key.clone(), now) };
        let shared = (key.namespace.clone(), key.notification.clone(), origin);
        let pace = self.part_of(key, rate);
        if let Some(lane) = self.rates.ready(shared.clone(), pace, key.clone(), now) {
            self.fair_queue.ready(&shared.2, lane, now);
        }
        if let Some(slot) = self.lanes.get_mut(key) {
            slot.shared = Some(shared);
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
    pub(crate) fn assign(&mut self) {
        if self.draining || !self.is_judged() {
            return;
        }
        // Handle redelivery requests that arrived while this replica was not the leader.
        self.reopen();
        let now = Instant::now();
        let mut late = Vec::new();
        while let Some(turn) = self.fair_queue.next(now) {
            if let Some(turn) = self.begin(turn, now) {
                late.push(turn);
            }
        }
        for turn in late.into_iter().rev() {
            self.fair_queue.put_back(turn, now);
        }
    }

    /// Starts an attempt. It first repeats the checks that made the lane ready. A request starts only if the Lease lasts longer than the
    /// request's timeout. Otherwise the turn is returned.
    fn begin(&mut self, turn: Turn, now: Instant) -> Option<Turn> {
        let key = turn.lane.clone();
        let slot = self.lanes.get(&key).filter(|slot| slot.lane.due(now) == Due::Now && self.is_ours(&key.pipeline));
        let head = slot.and_then(|slot| slot.lane.head());
        // The head may have changed. It may now replace earlier deliveries, and that number must be written first.
        let head = head.filter(|head| self.uncounted(head).is_none() && head.refusal().is_none());
        let answer = head.map(|head| self.parts.pipeline_index.find(&head.spec));
        let Some(SendDecision::Send(notification, facts)) = answer else {
            // Another replica, a user, or a newer delivery may have made it wait meanwhile.
            self.fair_queue.release(&turn.origin, &key, AttemptOutcome::Nothing, now);
            self.end_rate_turn(&key, now);
            self.check(&key);
            return None;
        };
        let takes = notification.sending.as_ref().map_or(Duration::ZERO, |s| s.timeout);
        let until = since_boot() + takes;
        // If it has no object yet, it must be recorded within the term, too. Otherwise the next leader would repeat the request.
        let write = head.filter(|head| !head.is_recorded()).map_or(Duration::ZERO, |_| journal::DEADLINE);
        if !self.parts.lease.allows(takes + write) {
            return Some(turn);
        }
        let shared = self.lanes.get(&key).and_then(|slot| slot.shared.clone()).zip(notification.delivery.rate);
        let shared = shared.map(|(shared, rate)| (shared, self.part_of(&key, rate)));
        if shared.is_some_and(|(shared, pace)| self.rates.permit(&shared, pace, now) == Permit::Wait) {
            self.fair_queue.release(&turn.origin, &key, AttemptOutcome::Nothing, now);
            self.record_head(&key);
            return None;
        }
        self.end_rate_turn(&key, now);
        let slot = self.lanes.get_mut(&key)?;
        (slot.marked, slot.resumed) = (false, None);
        let failures = slot.lane.failures();
        let record = slot.lane.take(now).cloned()?;
        let task = work::attempt(self.parts.clone(), record, notification, facts, failures, until);
        self.work.spawn(async {
            let (decided, answer) = task.await;
            Done::Attempted { turn, attempt_outcome: answer, decided: Box::new(decided) }
        });
        None
    }

    /// Handles the end of a request, and releases its worker. The lane stays busy until the outcome is written.
    pub(crate) fn attempted(&mut self, turn: &Turn, attempt_outcome: AttemptOutcome, mut decided: Decided) {
        self.adopt_object(turn, &mut decided);
        self.fair_queue.took(turn, attempt_outcome, decided.took());
        let freed = self.fair_queue.release(&turn.origin, &turn.lane, attempt_outcome, Instant::now());
        let lost = matches!(attempt_outcome, AttemptOutcome::NoConnection { .. });
        if let Some(slot) = self.lanes.get_mut(&turn.lane) {
            slot.unreachable = lost.then(|| turn.origin.clone());
        }
        if !freed.is_empty() {
            self.recovered(&turn.origin, &freed);
        }
        #[cfg(feature = "broken")]
        if crate::broken::is(crate::broken::Wrong::NextBeforeOutcome)
            && let Some(worked) = decided.unwritten()
        {
            tokio::spawn(write::store(self.parts.clone(), decided, self.parts.outcomes.clone()));
            return self.worked(&turn.lane, worked);
        }
        let skipped = if lost && turn.probe && !turn.write_failure { decided.skip_write() } else { Err(Box::new(decided)) };
        match skipped {
            Ok(worked) => self.worked(&turn.lane, *worked),
            Err(decided) => {
                let limiter = if decided.is_retried() { &self.parts.failures } else { &self.parts.outcomes };
                let task = write::store(self.parts.clone(), *decided, limiter.clone());
                self.spawn(&turn.lane, task);
            }
        }
    }

    /// Retries the lanes that wait only because an origin was unreachable, now that it is reachable again.
    fn recovered(&mut self, origin: &str, freed: &[ObjectName]) {
        tracing::info!(notifications = freed.len(), "a receiver is reachable again; retrying its lanes");
        let waits = |key: &LaneKey, slot: &Slot| slot.unreachable.as_deref() == Some(origin) && freed.contains(&key.owner());
        let those = self.lanes.iter().filter(|(key, slot)| waits(key, slot));
        for key in those.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            if let Some(slot) = self.lanes.get_mut(&key) {
                slot.unreachable = None;
            }
            self.changed(&key, true);
        }
    }

    pub(crate) fn worked(&mut self, key: &LaneKey, worked: Worked) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        let record = &worked.record;
        if let Some(busy) = slot.lane.busy() {
            *busy = record.clone();
        }
        let stale = slot.stale.take();
        let settled = slot.lane.done(worked.after).is_some();
        self.written(record, !settled && !worked.gone);
        // A user deleted the delivery while it was in progress, and there was nothing to write for it.
        let deleted = !settled && !self.index.contains_key(&record.id);
        if deleted && let Some(slot) = self.lanes.get_mut(key) {
            slot.lane.remove(Place::from(&*record.spec));
        }
        let trouble = if settled || deleted { None } else { trouble(record) };
        self.parts.delivery_index.trouble(key, trouble);
        if settled || worked.gone {
            self.index.remove(&record.id);
            self.settled(worked);
        } else if worked.is_written {
            self.tell(record);
        }
        if let Some(retry) = stale {
            self.changed(key, retry);
        }
        if settled || deleted {
            self.moved(key);
        } else if stale.is_none() {
            self.check(key);
        }
    }

    /// Handles a delivery that is settled and whose outcome is written, or whose object is gone.
    pub(crate) fn settled(&mut self, worked: Worked) {
        let Worked { record, gone, instead, is_written, .. } = worked;
        if gone {
            self.parts.delivery_index.forget(&record.id);
        } else {
            self.parts.delivery_index.note(&record);
            // If another replica has settled the delivery, that replica has reported it.
            if let Some(outcome) = record.status.outcome.filter(|_| is_written) {
                self.parts.metrics.delivery(outcome.as_str());
                audit(&record, outcome);
                if let Some(span) = trace::settled(&self.parts.tracer, &record, outcome, now()) {
                    self.parts.tracer.take(span);
                }
                self.tell(&record);
            }
            self.asked(record);
        }
        if let Some(instead) = instead {
            self.seen(*instead);
        }
    }

    /// Reports a delivery that needs a user's attention. This does not wait: if the queue of the reporter is full, only the status contains
    /// the information.
    fn tell(&self, record: &Record) {
        let status = &record.status;
        if status.outcome == Some(Outcome::Parked) || is_blocked(status) {
            let _ = self.started.notes.try_send(Note { record: record.clone() });
        }
    }
}
