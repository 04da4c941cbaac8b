//! The engine owns all lanes. No other component decides what can be sent.
//!
//! In: records (from the dispatcher and from the journal's watch), offers of deliveries without an object, notices of changes, and ends of
//! tasks, each as an [`Input`]. Out: [`Effect`]s, mostly tasks. Attempts are limited in total, and a lane has one task at a time. The
//! exception is a slow direct attempt, which a second task records. One task runs the engine (`driver`), so a lane needs no lock. The engine
//! starts no task, and of the clocks it reads only that of the Lease.
//!
//! The engine updates the lanes of other replicas from what they write, and starts no work for them (`ours`).

use std::time::{Duration, Instant};

use super::admission::Admission;
use super::asks::Asks;
use super::effect::{Done, Effect, Input, Now, Task};
use super::fair_queue::FairQueue;
use super::initial_sync::InitialSync;
use super::lanes::Lanes;
use super::ours::Ours;
use super::rate::Rates;
use super::unrecorded::Unrecorded;
use crate::outbox::attempt::work::Parts;
use crate::outbox::audit_log::trouble;
use crate::outbox::lane::{Place, schedule};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::genuine::Sight;
use crate::outbox::send_gate::index::SendDecision;
use crate::outbox::store::journal::Event;
use crate::outbox::{Command, Scope};
use relaybook_api::ObjectName;
use relaybook_settings::config::Retry;

/// Time after the start of a leadership term in which the watches of Secrets and notifications can deliver events that are not changes.
const INITIAL_EVENTS: Duration = Duration::from_secs(10);

/// The engine.
pub(crate) struct Engine {
    pub(crate) parts: Parts,
    /// By source of events: the namespace that is watched. `None`: all.
    sources: Vec<Option<String>>,
    pub(crate) lanes: Lanes,
    pub(crate) fair_queue: FairQueue,
    pub(crate) rates: Rates,
    /// Settled deliveries for which users have requested a redelivery.
    pub(crate) asks: Asks,
    /// The deliveries that have no object yet.
    pub(crate) unrecorded: Unrecorded,
    pub(crate) initial_sync: InitialSync,
    pub(crate) admission: Admission,
    pub(crate) ours: Ours,
    pub(crate) draining: bool,
    pub(crate) random: fastrand::Rng,
    /// What the driver has to do after this turn, in this order.
    pub(crate) effects: Vec<Effect>,
}

impl Engine {
    pub(crate) fn new(parts: Parts, workers: usize, sources: Vec<Option<String>>, random: fastrand::Rng) -> Self {
        Self {
            initial_sync: InitialSync::new(sources.len()),
            parts,
            sources,
            lanes: Lanes::default(),
            fair_queue: FairQueue::new(workers),
            rates: Rates::default(),
            asks: Asks::default(),
            unrecorded: Unrecorded::default(),
            admission: Admission::default(),
            ours: Ours::default(),
            draining: false,
            random,
            effects: Vec::new(),
        }
    }

    /// Handles an input, and then starts what can be started. The caller carries out the effects in their order, before the next input.
    #[must_use]
    pub(crate) fn on(&mut self, input: Input, now: Now) -> Vec<Effect> {
        match input {
            Input::Command(command) => self.handle_command(command, now),
            Input::Watched(source, event) => self.handle_event(source, event, now),
            Input::Done(done) => self.done(done, now),
            Input::Tick => self.ring(now),
            Input::Measure => self.measure(now),
            Input::Stop => self.draining = true,
            Input::Lease => {}
        }
        self.follow_buckets(now);
        self.answer_drained();
        self.judge_listed(now);
        self.assign(now);
        std::mem::take(&mut self.effects)
    }

    /// Returns when the engine must act next, if nothing else happens.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let always = self.unrecorded.next_time().into_iter().chain(self.ours.next_check());
        if self.draining {
            return always.min();
        }
        // Nothing is sent while another replica is the leader, so there is nothing to wake up for.
        let sending =
            [self.fair_queue.next_probe(), self.rates.next_permit_time()].into_iter().flatten().filter(|_| self.acting());
        sending.chain(self.lanes.next_timer()).chain(always).min()
    }

    /// Starts a task after this turn.
    pub(crate) fn start(&mut self, task: Task) {
        self.effects.push(Effect::Start(task));
    }

    fn done(&mut self, done: Done, now: Now) {
        match done {
            Done::Attempted { turn, attempt_outcome, decided } => self.attempted(&turn, attempt_outcome, *decided, now),
            Done::Worked(key, worked) => self.worked(&key, *worked, now),
            Done::Superseded(key, worked) => self.superseded(&key, *worked, now),
            Done::Reopened(worked) => self.reopened(*worked, now),
            Done::Recorded(id, result) => self.recorded_first(&id, *result, now),
            Done::Expelled { id, foreign, failed } => self.expelled(id, foreign, failed, now),
            Done::Missing { source, term, gone } => {
                for id in &gone {
                    self.deleted(id, now);
                }
                self.complete(source, term, now);
            }
        }
    }

    fn handle_command(&mut self, command: Command, now: Now) {
        match command {
            Command::Recorded(records) => {
                for record in records {
                    self.recorded(record, now);
                }
            }
            Command::Offer(offer) => self.offer(offer, now),
            Command::Drain(uid, answer) => self.drain(uid, answer),
            Command::Check(scope) => {
                // A new URL or template can fix the cause of a failure. A new label of the pipeline rarely can.
                let retry = !matches!(scope, Scope::All | Scope::Pipeline(_));
                for key in self.lanes.keys(|key| scope.covers(key)) {
                    self.changed(&key, retry, now);
                }
            }
        }
    }

    /// Checks a lane again, because something that it depends on has changed. `retry`: whether a failed head is also retried.
    pub(crate) fn changed(&mut self, key: &LaneKey, retry: bool, now: Now) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        if slot.lane.busy().is_some() {
            slot.stale = Some(retry || slot.stale.unwrap_or(false));
            return;
        }
        // Ignore early retries right after the start of a term: initial list events are not changes, so the lane keeps its persisted wait.
        let is_initial = slot.resumed.is_some_and(|at| now.mono.duration_since(at) < INITIAL_EVENTS);
        slot.lane.wake(retry && !is_initial);
        let gone =
            slot.lane.head().is_some_and(|r| matches!(self.parts.pipeline_index.find(&r.spec), SendDecision::Gone { .. }));
        if gone {
            slot.lane.hurry();
        }
        self.check(key, now);
    }

    /// Returns whether a source of events contains a Delivery.
    fn contains(&self, source: usize, id: &ObjectName) -> bool {
        self.sources.get(source).is_none_or(|of| of.as_ref().is_none_or(|namespace| *namespace == id.namespace))
    }

    fn handle_event(&mut self, source: usize, event: Event, now: Now) {
        // An event can be from the first list of a term.
        self.follow_buckets(now);
        match event {
            Event::ListBegins => {
                // The list reports them again.
                self.parts.delivery_index.forget_terminating(|id| self.contains(source, id));
                self.initial_sync.begins(source);
            }
            Event::Seen(record) => {
                self.initial_sync.seen(source, &record.id);
                self.seen(*record, now);
            }
            Event::Deleted(id, uid) => self.has_gone(&id, uid, now),
            Event::Terminating(id, uid) => {
                self.has_gone(&id, uid, now);
                self.parts.delivery_index.terminating(id);
            }
            Event::ListEnds(term) => self.listed(source, term, now),
        }
    }

    /// Handles the deletion of an object. If its lane contains another object of this name, or a delivery without an object, that one stays:
    /// it has replaced the deleted object, or it is about to.
    fn has_gone(&mut self, id: &ObjectName, uid: String, now: Now) {
        self.forget_origin(id, &uid);
        let known = self.lanes.find(id).and_then(|(key, place)| self.lanes.get(key)?.lane.get(place));
        let is_other = known.is_some_and(|known| known.uid != uid);
        self.initial_sync.record_deletion(uid, now.mono);
        if !is_other {
            self.deleted(id, now);
        }
    }

    /// Ends the list of a source. Deliveries that it does not contain are read live, because they may have been recorded after the list was
    /// made.
    fn listed(&mut self, source: usize, term: u64, now: Now) {
        let Some(list) = self.initial_sync.ends(source) else { return };
        let is_absent = |id: &ObjectName| self.contains(source, id) && !list.contains(id);
        let absent: Vec<_> = self.parts.delivery_index.ids().into_iter().filter(is_absent).collect();
        if absent.is_empty() {
            return self.complete(source, term, now);
        }
        self.start(Task::ReadMissing { source, term, absent });
    }

    /// Records that a source has completed its initial list. Once all sources of this leadership term have, the lanes continue where the
    /// previous leader stopped.
    fn complete(&mut self, source: usize, term: u64, now: Now) {
        if !self.initial_sync.complete(source, term) {
            return;
        }
        for (key, slot) in self.lanes.iter_mut() {
            let Some(head) = slot.lane.head() else { continue };
            if slot.lane.at_work().is_none() {
                self.parts.delivery_index.resumed(key, trouble(head));
            }
            let status = head.status.clone();
            let failures = u32::try_from(status.attempts).unwrap_or(u32::MAX);
            let notification = self.parts.pipeline_index.effective(&head.spec);
            let retry = notification.map_or_else(Retry::default, |n| n.delivery.retry);
            slot.resumed = Some(now.mono);
            slot.lane.resume(status.next_attempt_time.map(|next| {
                let asked = schedule::was_asked(&retry, failures, status.last_attempt_time, next);
                (now.mono + schedule::resume(Some(next), now.wall), failures, asked)
            }));
        }
        // After this effect, the dispatcher knows which of them it need not record again.
        self.judge_listed(now);
        self.effects.push(Effect::Listed(term));
        for key in self.lanes.keys(|_| true) {
            self.check(&key, now);
        }
        self.reopen(now);
    }

    pub(crate) fn seen(&mut self, record: Record, now: Now) {
        if record.spec.test {
            return self.parts.tests_kept.seen(&record);
        }
        if self.initial_sync.was_deleted(&record.uid) {
            self.parts.delivery_index.deleted_before(&record.id);
            return; // a response or an event from before the deletion
        }
        let settled = record.status.outcome.is_some();
        let decides = self.decides(&record.spec.pipeline_ref.uid);
        if settled && decides && !self.is_known(&record) && !self.admit(&record, Sight::Watched, now) {
            return;
        }
        if !settled && self.parts.delivery_index.has_settled(&record) {
            return; // an event from before the outcome
        }
        let is_reopened = !settled && self.parts.delivery_index.has_been_settled(&record);
        let sight = if is_reopened { Sight::Listed } else { Sight::Watched };
        if !settled && decides && !self.admit(&record, sight, now) {
            // It can have a lane from the time when its pipeline was not known.
            let known = self.lanes.find(&record.id).and_then(|(key, place)| self.lanes.get(key)?.lane.get(place));
            if known.is_some_and(|known| known.uid == record.uid)
                && let Some(key) = self.lanes.remove(&record.id)
            {
                self.moved(&key, now);
            }
            return;
        }
        self.parts.delivery_index.note(&record);
        self.say_proven(&record);
        if settled {
            let lane = self.lanes.remove(&record.id);
            self.asked(record, now);
            if let Some(key) = lane {
                self.moved(&key, now);
            }
            return;
        }
        let key = record.lane();
        if self.lanes.find(&record.id).is_some_and(|(known, _)| *known == key) {
            return self.take_over(&key, record);
        }
        // Another replica has settled it and has started to redeliver it.
        if let Some(known) = self.lanes.remove(&record.id) {
            self.moved(&known, now);
        }
        self.asks.remove(&record.id);
        self.lanes.insert(record);
        self.check(&key, now);
    }

    /// Replaces a known delivery with a newer copy that another replica or a user has written.
    fn take_over(&mut self, key: &LaneKey, mut record: Record) {
        let place = Place::from(&*record.spec);
        let Some(slot) = self.lanes.get_mut(key) else { return };
        if let Some(known) = slot.lane.get(place).filter(|known| known.is_older_than(&record)) {
            record.copy_local_state_from(known);
            slot.lane.replace(place, record);
            if self.is_judged() && !self.is_ours(&key.pipeline) {
                self.follow_lane(key);
            }
        }
    }

    pub(crate) fn deleted(&mut self, id: &ObjectName, now: Now) {
        self.parts.delivery_index.forget(id);
        self.asks.remove(id);
        if let Some(key) = self.lanes.remove(id) {
            self.moved(&key, now);
        }
    }

    /// Handles the timers and the rates that are due.
    fn ring(&mut self, now: Now) {
        self.record_overdue(now);
        for ((_, _, origin), lane) in self.rates.take_due(now.mono) {
            self.fair_queue.ready(&origin, lane, now.mono);
        }
        while let Some(key) = self.lanes.take_due(now.mono) {
            self.check(&key, now);
        }
    }
}
