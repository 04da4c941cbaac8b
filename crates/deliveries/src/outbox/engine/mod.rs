//! Decides which delivery is sent next. The engine owns all lanes; no other component decides what can be sent. Pure.
//!
//! In: recorded deliveries, from the dispatcher and the watch of the [store](super::store) (`admit`). Also deliveries without an object that the
//! dispatcher offers (`offers`), events after which a lane must be checked, and ends of earlier work. Each is an `Input`, with `Facts`. Out:
//! `Effect`s, mostly tasks: deliveries to send now (`workers`), fairly among receivers (`state::fair_queue`) and no faster than the configured
//! rate (`state::rate`), and writes (`writes`).
//!
//! The engine is a value: it has no handle, and reads no clock. Attempts are limited in total, and a lane has one task at a time. The exception
//! is a slow direct attempt, which a second task records. The [driver](super::driver) has one engine, so a lane needs no lock. The engine updates
//! the lanes of other replicas from what they write, and starts no work for them (`ours`).

mod admit;
pub(super) mod effect;
pub(super) mod gauges;
mod judge;
mod offers;
mod ours;
mod side_work;
pub(super) mod state;
mod workers;
pub(super) mod writes;

#[cfg(test)]
mod properties;

use std::time::{Duration, Instant};

use crate::outbox::audit_log::trouble;
use crate::outbox::lane::{Place, schedule};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::genuine::Sight;
use crate::outbox::send_gate::index::SendDecision;
use crate::outbox::store::journal::Event;
use crate::outbox::{Answer, Command, Scope};
use effect::{Done, Effect, Facts, Input, Now, Task, Ticket};
use ours::Ours;
use relaybook_api::ObjectName;
use relaybook_settings::config::Retry;
use state::admission::Admission;
use state::asks::Asks;
use state::fair_queue::FairQueue;
use state::initial_sync::InitialSync;
use state::lanes::Lanes;
use state::rate::Rates;
use state::unrecorded::Unrecorded;
use writes::Paused;

/// Time after the start of a leadership term in which the watches of Secrets and notifications can deliver events that are not changes.
const INITIAL_EVENTS: Duration = Duration::from_secs(10);

/// The engine.
pub(crate) struct Engine {
    /// By source of events: the namespace that is watched. `None`: all.
    sources: Vec<Option<String>>,
    pub(crate) lanes: Lanes,
    pub(crate) fair_queue: FairQueue,
    pub(crate) rates: Rates,
    /// Settled deliveries for which users have requested a redelivery.
    pub(crate) asks: Asks,
    /// The deliveries that have no object yet.
    pub(crate) unrecorded: Unrecorded,
    /// The writes whose last call has failed.
    pub(crate) paused: Paused,
    pub(crate) initial_sync: InitialSync,
    pub(crate) admission: Admission,
    pub(crate) ours: Ours,
    pub(crate) draining: bool,
    pub(crate) random: fastrand::Rng,
    /// What the driver has to do after this turn, in this order.
    pub(crate) effects: Vec<Effect>,
}

impl Engine {
    pub(crate) fn new(workers: usize, sources: Vec<Option<String>>, random: fastrand::Rng) -> Self {
        Self {
            initial_sync: InitialSync::new(sources.len()),
            sources,
            lanes: Lanes::default(),
            fair_queue: FairQueue::new(workers),
            rates: Rates::default(),
            asks: Asks::default(),
            unrecorded: Unrecorded::default(),
            paused: Paused::default(),
            admission: Admission::default(),
            ours: Ours::default(),
            draining: false,
            random,
            effects: Vec::new(),
        }
    }

    /// Handles an input, and then starts what can be started. The caller carries out the effects in their order, before the next input.
    #[must_use]
    pub(crate) fn on(&mut self, input: Input, facts: &Facts<'_>, now: Now) -> Vec<Effect> {
        match input {
            Input::Command(ticket, command) => self.on_command(ticket, command, facts, now),
            Input::Watched(source, event) => self.on_watched(source, event, facts, now),
            Input::Done(done) => self.on_done(done, facts, now),
            Input::Tick => self.on_tick(facts, now),
            Input::Measure => self.on_measure(facts, now),
            Input::Stop => self.draining = true,
            Input::Lease => {}
        }
        self.follow_buckets(facts, now);
        self.answer_drained();
        self.judge_listed(facts, now);
        self.assign(facts, now);
        std::mem::take(&mut self.effects)
    }

    /// Returns when the engine must act next, if nothing else happens.
    pub(crate) fn next_time(&self, facts: &Facts<'_>) -> Option<Instant> {
        let always = [self.unrecorded.next_time(), self.paused.next_time(), self.ours.next_check()].into_iter().flatten();
        if self.draining {
            return always.min();
        }
        // Nothing is sent while another replica is the leader, so there is nothing to wake up for.
        let sending = [self.fair_queue.next_probe(), self.rates.next_permit_time()].into_iter().flatten();
        sending.filter(|_| self.acting(facts)).chain(self.lanes.next_timer()).chain(always).min()
    }

    /// Returns whether a write waits for its next call.
    pub(crate) fn has_paused(&self) -> bool {
        self.paused.next_time().is_some()
    }

    /// Starts a task after this turn.
    pub(crate) fn start(&mut self, task: Task) {
        self.effects.push(Effect::Start(task));
    }

    /// Answers a command after this turn.
    pub(crate) fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.effects.push(Effect::Answer(ticket, answer));
    }

    fn on_done(&mut self, done: Done, facts: &Facts<'_>, now: Now) {
        match done {
            Done::Attempted { turn, retry, attempt } => self.on_attempted(&turn, &retry, &attempt, facts, now),
            Done::Answered(write, answered) => self.on_answered(write, answered, facts, now),
            Done::Verified { lane, what, is_gone } => self.on_verified(&lane, what, is_gone, facts, now),
            Done::Expelled { id, foreign, failed } => self.on_expelled(id, foreign, failed, facts, now),
            Done::Missing { source, term, gone } => {
                for id in &gone {
                    self.deleted(id, facts, now);
                }
                self.complete(source, term, facts, now);
            }
        }
    }

    fn on_command(&mut self, ticket: Ticket, command: Command, facts: &Facts<'_>, now: Now) {
        match command {
            Command::Recorded(records) => {
                for record in records {
                    self.recorded(record, facts, now);
                }
            }
            Command::Offer(new) => self.on_offer(ticket, new, facts, now),
            Command::Drain(uid) => self.on_drain(ticket, uid),
            Command::Check(scope) => {
                // A new URL or template can fix the cause of a failure. A new label of the pipeline rarely can.
                let retry = !matches!(scope, Scope::All | Scope::Pipeline(_));
                for key in self.lanes.keys(|key| scope.covers(key)) {
                    self.changed(&key, retry, facts, now);
                }
            }
        }
    }

    /// Checks a lane again, because something that it depends on has changed. `retry`: whether a failed head is also retried.
    pub(crate) fn changed(&mut self, key: &LaneKey, retry: bool, facts: &Facts<'_>, now: Now) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        if slot.lane.busy().is_some() {
            slot.stale = Some(retry || slot.stale.unwrap_or(false));
            return;
        }
        // Ignore early retries right after the start of a term: initial list events are not changes, so the lane keeps its persisted wait.
        let is_initial = slot.resumed.is_some_and(|at| now.mono.duration_since(at) < INITIAL_EVENTS);
        slot.lane.wake(retry && !is_initial);
        let gone = slot.lane.head().is_some_and(|r| matches!(facts.pipelines.find(&r.spec), SendDecision::Gone { .. }));
        if gone {
            slot.lane.hurry();
        }
        self.check(key, facts, now);
    }

    /// Returns whether a source of events contains a Delivery.
    fn contains(&self, source: usize, id: &ObjectName) -> bool {
        self.sources.get(source).is_none_or(|of| of.as_ref().is_none_or(|namespace| *namespace == id.namespace))
    }

    fn on_watched(&mut self, source: usize, event: Event, facts: &Facts<'_>, now: Now) {
        match event {
            Event::ListBegins => {
                // The list reports them again.
                facts.delivery_index.forget_terminating(|id| self.contains(source, id));
                self.initial_sync.begins(source);
            }
            Event::Seen(record) => {
                self.initial_sync.seen(source, &record.id);
                self.seen(*record, facts, now);
            }
            Event::Deleted(id, uid) => self.on_deleted(&id, uid, facts, now),
            Event::Terminating(id, uid) => {
                self.on_deleted(&id, uid, facts, now);
                facts.delivery_index.terminating(id);
            }
            Event::ListEnds(term) => self.on_listed(source, term, facts, now),
        }
    }

    /// Handles the deletion of an object. If its lane contains another object of this name, or a delivery without an object, that one stays:
    /// it has replaced the deleted object, or it is about to.
    fn on_deleted(&mut self, id: &ObjectName, uid: String, facts: &Facts<'_>, now: Now) {
        self.forget_origin(id, &uid, facts);
        let known = self.lanes.find(id).and_then(|(key, place)| self.lanes.get(key)?.lane.get(place));
        let is_other = known.is_some_and(|known| known.uid != uid);
        self.initial_sync.record_deletion(uid, now.mono);
        if !is_other {
            self.deleted(id, facts, now);
        }
    }

    /// Ends the list of a source. Deliveries that it does not contain are read live, because they may have been recorded after the list was
    /// made.
    fn on_listed(&mut self, source: usize, term: u64, facts: &Facts<'_>, now: Now) {
        let Some(list) = self.initial_sync.ends(source) else { return };
        let is_absent = |id: &ObjectName| self.contains(source, id) && !list.contains(id);
        let absent: Vec<_> = facts.delivery_index.ids().into_iter().filter(is_absent).collect();
        if absent.is_empty() {
            return self.complete(source, term, facts, now);
        }
        self.start(Task::ReadMissing { source, term, absent });
    }

    /// Records that a source has completed its initial list. Once all sources of this leadership term have, the lanes continue where the
    /// previous leader stopped.
    fn complete(&mut self, source: usize, term: u64, facts: &Facts<'_>, now: Now) {
        if !self.initial_sync.complete(source, term) {
            return;
        }
        for (key, slot) in self.lanes.iter_mut() {
            let Some(head) = slot.lane.head() else { continue };
            if slot.lane.at_work().is_none() {
                facts.delivery_index.resumed(key, trouble(head));
            }
            let status = head.status.clone();
            let failures = u32::try_from(status.attempts).unwrap_or(u32::MAX);
            let notification = facts.pipelines.effective(&head.spec);
            let retry = notification.map_or_else(Retry::default, |n| n.delivery.retry);
            slot.resumed = Some(now.mono);
            slot.lane.resume(status.next_attempt_time.map(|next| {
                let asked = schedule::was_asked(&retry, failures, status.last_attempt_time, next);
                (now.mono + schedule::resume(Some(next), now.wall), failures, asked)
            }));
        }
        // After this effect, the dispatcher knows which of them it need not record again.
        self.judge_listed(facts, now);
        self.effects.push(Effect::Listed(term));
        for key in self.lanes.keys(|_| true) {
            self.check(&key, facts, now);
        }
        self.reopen(facts, now);
    }

    pub(crate) fn seen(&mut self, record: Record, facts: &Facts<'_>, now: Now) {
        if record.spec.test {
            return facts.tests_kept.seen(&record);
        }
        if self.initial_sync.was_deleted(&record.uid) {
            facts.delivery_index.deleted_before(&record.id);
            return; // a response or an event from before the deletion
        }
        let settled = record.status.outcome.is_some();
        let decides = self.decides(&record.spec.pipeline_ref.uid, facts);
        if settled && decides && !self.is_known(&record, facts) && !self.admit(&record, Sight::Watched, facts, now) {
            return;
        }
        if !settled && facts.delivery_index.has_settled(&record) {
            return; // an event from before the outcome
        }
        let is_reopened = !settled && facts.delivery_index.has_been_settled(&record);
        let sight = if is_reopened { Sight::Listed } else { Sight::Watched };
        if !settled && decides && !self.admit(&record, sight, facts, now) {
            // It can have a lane from the time when its pipeline was not known.
            let known = self.lanes.find(&record.id).and_then(|(key, place)| self.lanes.get(key)?.lane.get(place));
            if known.is_some_and(|known| known.uid == record.uid)
                && let Some(key) = self.lanes.remove(&record.id)
            {
                self.moved(&key, facts, now);
            }
            return;
        }
        facts.delivery_index.note(&record);
        self.say_proven(&record, facts);
        if settled {
            let lane = self.lanes.remove(&record.id);
            self.asked(record, facts, now);
            if let Some(key) = lane {
                self.moved(&key, facts, now);
            }
            return;
        }
        let key = record.lane();
        if let Some((known, place)) = self.lanes.find(&record.id) {
            if *known == key {
                return self.take_over(&key, record, facts);
            }
            // After an edit of `ordering` the dispatcher can record a delivery for another lane, although its request is already under way. The
            // lane that works on it writes the result. In the other lane, the request would be repeated.
            let busy = self.lanes.get(known).filter(|slot| slot.lane.at_work() == Some(place));
            if busy.and_then(|slot| slot.lane.get(place)).is_some_and(|busy| busy.uid == record.uid && !record.again) {
                return;
            }
        }
        // Another replica has settled it and has started to redeliver it.
        if let Some(known) = self.lanes.remove(&record.id) {
            self.moved(&known, facts, now);
        }
        self.asks.remove(&record.id);
        self.lanes.insert(record);
        self.check(&key, facts, now);
    }

    /// Replaces a known delivery with a newer copy that another replica or a user has written.
    fn take_over(&mut self, key: &LaneKey, mut record: Record, facts: &Facts<'_>) {
        let place = Place::from(&*record.spec);
        let Some(slot) = self.lanes.get_mut(key) else { return };
        if let Some(known) = slot.lane.get(place).filter(|known| known.is_older_than(&record)) {
            record.copy_local_state_from(known);
            slot.lane.replace(place, record);
            if self.is_judged(facts) && !facts.is_ours(&key.pipeline) {
                self.follow_lane(key, facts);
            }
        }
    }

    pub(crate) fn deleted(&mut self, id: &ObjectName, facts: &Facts<'_>, now: Now) {
        facts.delivery_index.forget(id);
        self.asks.remove(id);
        if let Some(key) = self.lanes.remove(id) {
            self.moved(&key, facts, now);
        }
    }

    /// Handles the paused writes, the timers and the rates that are due.
    fn on_tick(&mut self, facts: &Facts<'_>, now: Now) {
        while let Some(write) = self.paused.take_due(now.mono) {
            self.start(Task::Write(write));
        }
        self.record_overdue(now);
        for ((_, _, origin), lane) in self.rates.take_due(now.mono) {
            self.fair_queue.ready(&origin, lane, now.mono);
        }
        while let Some(key) = self.lanes.take_due(now.mono) {
            self.check(&key, facts, now);
        }
    }
}
