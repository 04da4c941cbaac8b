//! The engine owns all lanes. No other component decides what can be sent.
//!
//! In: records (from the dispatcher and from the journal's watch), offers of deliveries without an object, and notices of changes. Out: work
//! in separate tasks: a limited number in total, and one task for each lane. The exception is a slow direct attempt, which a second task
//! records. One task runs the engine, so a lane needs no lock.
//!
//! The engine updates the lanes of other replicas from what they write, and starts no work for them (`ours`).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::admission::{Admission, Foreign};
use super::fair_queue::{AttemptOutcome, FairQueue, Turn};
use super::initial_sync::InitialSync;
use super::ours::Ours;
use super::rate::{Rates, Shared};
use crate::outbox::attempt::work::{Decided, Parts, Worked};
use crate::outbox::audit_log::trouble;
use crate::outbox::direct::Stage;
use crate::outbox::lane::schedule;
use crate::outbox::lane::{Lane, Place};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::genuine::Sight;
use crate::outbox::send_gate::index::SendDecision;
use crate::outbox::store::journal::{Event, JournalError};
use crate::outbox::{Command, Scope, Started};
use relaybook_api::ObjectName;
use relaybook_api::now;
use relaybook_settings::config::Retry;

/// Maximum time for which requests in flight can continue after a stop.
const DRAIN: Duration = Duration::from_secs(20);
/// Time after the start of a leadership term in which the watches of Secrets and notifications can deliver events that are not changes.
const INITIAL_EVENTS: Duration = Duration::from_secs(10);

/// A lane, with what the engine stores for it.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) lane: Lane<Record>,
    pub(crate) timer: Option<Instant>,
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

/// The result of a task.
pub(crate) enum Done {
    /// An attempt has ended: its worker is free, and the result still has to be written.
    Attempted { turn: Turn, attempt_outcome: AttemptOutcome, decided: Box<Decided> },
    /// The work on a delivery of this lane has ended.
    Worked(LaneKey, Box<Worked>),
    /// The write of a superseded delivery of this lane has ended.
    Superseded(LaneKey, Box<Worked>),
    /// The write that reopens a delivery for redelivery has ended.
    Reopened(Box<Worked>),
    /// The write that records a delivery of a direct attempt as pending has ended.
    Recorded(ObjectName, Box<Result<Record, JournalError>>),
    /// These Deliveries were not in a source's list in this leadership term, and live reads showed that they are gone.
    Missing { source: usize, term: u64, gone: Vec<ObjectName> },
    /// A Delivery that Relaybook did not record was deleted, or the deletion failed.
    Expelled { id: ObjectName, foreign: Foreign, failed: Option<String> },
}

/// The engine.
pub(crate) struct Engine {
    pub(crate) parts: Parts,
    pub(crate) started: Started,
    /// Sorted, so that the lanes of one notification and pipeline are next to each other.
    pub(crate) lanes: BTreeMap<LaneKey, Slot>,
    pub(crate) index: HashMap<ObjectName, (LaneKey, Place)>,
    pub(crate) fair_queue: FairQueue,
    pub(crate) rates: Rates,
    /// Settled deliveries for which users have requested a redelivery.
    pub(crate) asks: BTreeMap<ObjectName, Record>,
    /// By namespace: how many deliveries are being reopened.
    pub(crate) reopening: HashMap<String, usize>,
    pub(crate) timers: BTreeSet<(Instant, LaneKey)>,
    /// The deliveries that have no object yet: where each of them is, and until when it can be without an object.
    pub(crate) stages: HashMap<ObjectName, (Stage, Instant)>,
    /// When these deliveries have to be recorded, the next one first. Some of them can be recorded already.
    pub(crate) unrecorded: VecDeque<(Instant, ObjectName)>,
    pub(crate) work: JoinSet<Done>,
    pub(crate) initial_sync: InitialSync,
    pub(crate) admission: Admission,
    pub(crate) ours: Ours,
    pub(crate) draining: bool,
}

impl Engine {
    pub(crate) fn new(parts: Parts, workers: usize, started: Started) -> Self {
        Self {
            initial_sync: InitialSync::new(started.sources.len()),
            parts,
            started,
            admission: Admission::default(),
            ours: Ours::default(),
            lanes: BTreeMap::new(),
            index: HashMap::new(),
            fair_queue: FairQueue::new(workers),
            rates: Rates::default(),
            asks: BTreeMap::new(),
            reopening: HashMap::new(),
            timers: BTreeSet::new(),
            stages: HashMap::new(),
            unrecorded: VecDeque::new(),
            work: JoinSet::new(),
            draining: false,
        }
    }

    /// Runs until `stop`. Then continues until the work in progress has ended, but no longer than [`DRAIN`].
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut events: mpsc::Receiver<(usize, Event)>,
        stop: CancellationToken,
    ) {
        let mut deadline = None;
        let mut lease = self.parts.lease.clone();
        let mut gauges = tokio::time::interval(Duration::from_secs(5));
        loop {
            self.follow_buckets();
            self.answer_drained();
            self.judge_listed();
            self.assign();
            if self.draining && (self.work.is_empty() || deadline.is_some_and(|d| Instant::now() >= d)) {
                break;
            }
            let wake = self.next_time().into_iter().chain(deadline).chain(self.ours.next_check()).min();
            let wake = wake.map(tokio::time::Instant::from_std);
            tokio::select! {
                () = stop.cancelled(), if !self.draining => {
                    self.draining = true;
                    deadline = Some(Instant::now() + DRAIN);
                }
                Some(command) = commands.recv() => self.handle_command(command),
                Some((source, event)) = events.recv() => self.handle_event(source, event),
                Some(done) = self.work.join_next(), if !self.work.is_empty() => match done {
                    Ok(done) => self.done(done),
                    Err(error) => {
                        // The lane stays busy, because that is better than a wrong order. The process exits and starts again.
                        tracing::error!(%error, "a delivery task panicked; stopping the engine");
                        break;
                    }
                },
                () = tokio::time::sleep_until(wake.unwrap_or_else(tokio::time::Instant::now)), if wake.is_some() => self.ring(),
                // The Lease was renewed, or buckets have moved. The loop retries what could not start because the Lease was too short.
                () = lease.changed() => {}
                _ = gauges.tick() => self.measure(),
            }
        }
        self.work.shutdown().await;
        self.parts.direct.close();
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Attempted { turn, attempt_outcome, decided } => self.attempted(&turn, attempt_outcome, *decided),
            Done::Worked(key, worked) => self.worked(&key, *worked),
            Done::Superseded(key, worked) => self.superseded(&key, *worked),
            Done::Reopened(worked) => self.reopened(*worked),
            Done::Recorded(id, result) => self.recorded_first(&id, *result),
            Done::Expelled { id, foreign, failed } => self.expelled(id, foreign, failed),
            Done::Missing { source, term, gone } => {
                for id in &gone {
                    self.deleted(id);
                }
                self.complete(source, term);
            }
        }
    }

    /// Returns when the engine must act next, if nothing else happens.
    fn next_time(&self) -> Option<Instant> {
        let unrecorded = self.unrecorded.front().map(|(until, _)| *until);
        if self.draining {
            return unrecorded;
        }
        // Nothing is sent while another replica is the leader, so there is nothing to wake up for.
        let sending =
            [self.fair_queue.next_probe(), self.rates.next_permit_time()].into_iter().flatten().filter(|_| self.acting());
        let timers = self.timers.first().map(|(at, _)| *at);
        sending.chain(timers).chain(unrecorded).min()
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Recorded(records) => {
                for record in records {
                    self.recorded(record);
                }
            }
            Command::Offer(offer) => self.offer(offer),
            Command::Drain(uid, answer) => self.drain(uid, answer),
            Command::Check(scope) => {
                let keys: Vec<_> = self.lanes.keys().filter(|key| scope.covers(key)).cloned().collect();
                // A new URL or template can fix the cause of a failure. A new label of the pipeline rarely can.
                let retry = !matches!(scope, Scope::All | Scope::Pipeline(_));
                for key in keys {
                    self.changed(&key, retry);
                }
            }
        }
    }

    /// Checks a lane again, because something that it depends on has changed. `retry`: whether a failed head is also retried.
    pub(crate) fn changed(&mut self, key: &LaneKey, retry: bool) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        if slot.lane.busy().is_some() {
            slot.stale = Some(retry || slot.stale.unwrap_or(false));
            return;
        }
        // Ignore early retries right after the start of a term: initial list events are not changes, so the lane keeps its persisted wait.
        let is_initial = slot.resumed.is_some_and(|at| at.elapsed() < INITIAL_EVENTS);
        slot.lane.wake(retry && !is_initial);
        let gone =
            slot.lane.head().is_some_and(|r| matches!(self.parts.pipeline_index.find(&r.spec), SendDecision::Gone { .. }));
        if gone {
            slot.lane.hurry();
        }
        self.check(key);
    }

    fn handle_event(&mut self, source: usize, event: Event) {
        // An event can be from the first list of a term.
        self.follow_buckets();
        match event {
            Event::ListBegins => {
                // The list reports them again.
                self.parts.delivery_index.forget_terminating(|id| self.started.contains(source, id));
                self.initial_sync.begins(source);
            }
            Event::Seen(record) => {
                self.initial_sync.seen(source, &record.id);
                self.seen(*record);
            }
            Event::Deleted(id, uid) => self.has_gone(&id, uid),
            Event::Terminating(id, uid) => {
                self.has_gone(&id, uid);
                self.parts.delivery_index.terminating(id);
            }
            Event::ListEnds(term) => self.listed(source, term),
        }
    }

    fn has_gone(&mut self, id: &ObjectName, uid: String) {
        self.forget_origin(id, &uid);
        self.initial_sync.record_deletion(uid, Instant::now());
        self.deleted(id);
    }

    /// Ends the list of a source. Deliveries that it does not contain are read live, because they may have been recorded after the list was
    /// made.
    fn listed(&mut self, source: usize, term: u64) {
        let Some(list) = self.initial_sync.ends(source) else { return };
        let is_here = |id: &ObjectName| self.started.contains(source, id);
        let absent: Vec<_> =
            self.parts.delivery_index.ids().into_iter().filter(|id| is_here(id) && !list.contains(id)).collect();
        if absent.is_empty() {
            return self.complete(source, term);
        }
        let journal = self.parts.journal.clone();
        self.work.spawn(async move { Done::Missing { source, term, gone: journal.gone(absent).await } });
    }

    /// Records that a source has completed its initial list. Once all sources of this leadership term have, the lanes continue where the
    /// previous leader stopped.
    fn complete(&mut self, source: usize, term: u64) {
        if !self.initial_sync.complete(source, term) {
            return;
        }
        let (wall, mono) = (now(), Instant::now());
        for (key, slot) in &mut self.lanes {
            let Some(head) = slot.lane.head() else { continue };
            if slot.lane.at_work().is_none() {
                self.parts.delivery_index.resumed(key, trouble(head));
            }
            let status = head.status.clone();
            let failures = u32::try_from(status.attempts).unwrap_or(u32::MAX);
            let notification = self.parts.pipeline_index.effective(&head.spec);
            let retry = notification.map_or_else(Retry::default, |n| n.delivery.retry);
            slot.resumed = Some(mono);
            slot.lane.resume(status.next_attempt_time.map(|next| {
                let asked = schedule::was_asked(&retry, failures, status.last_attempt_time, next);
                (mono + schedule::resume(Some(next), wall), failures, asked)
            }));
        }
        // After this call, the dispatcher knows which of them it need not record again.
        self.judge_listed();
        (self.started.ready)(term);
        let keys: Vec<_> = self.lanes.keys().cloned().collect();
        for key in keys {
            self.check(&key);
        }
        self.reopen();
    }

    pub(crate) fn seen(&mut self, record: Record) {
        if record.spec.test {
            return self.parts.tests_kept.seen(&record);
        }
        if self.initial_sync.was_deleted(&record.uid) {
            self.parts.delivery_index.deleted_before(&record.id);
            return; // a response or an event from before the deletion
        }
        let settled = record.status.outcome.is_some();
        let decides = self.decides(&record.spec.pipeline_ref.uid);
        if settled && decides && !self.is_known(&record) && !self.admit(&record, Sight::Watched) {
            return;
        }
        if !settled && self.parts.delivery_index.has_settled(&record) {
            return; // an event from before the outcome
        }
        if !settled && decides && !self.admit(&record, Sight::Watched) {
            return;
        }
        self.parts.delivery_index.note(&record);
        self.say_proven(&record);
        let (key, place) = (record.lane(), Place::from(&*record.spec));
        if settled {
            let was = self.index.remove(&record.id);
            self.asked(record);
            if let Some((key, _)) = was {
                self.lanes.get_mut(&key).and_then(|slot| slot.lane.remove(place));
                self.moved(&key);
            }
            return;
        }
        match self.index.get(&record.id) {
            Some((known, _)) if *known == key => return self.take_over(&key, place, record),
            // Another replica has settled it and has started to redeliver it.
            Some((known, _)) => {
                let known = known.clone();
                self.lanes.get_mut(&known).and_then(|slot| slot.lane.remove(place));
                self.moved(&known);
            }
            None => {}
        }
        self.asks.remove(&record.id);
        self.index.insert(record.id.clone(), (key.clone(), place));
        self.lanes.entry(key.clone()).or_default().lane.insert(place, record);
        self.check(&key);
    }

    /// Replaces a known delivery with a newer copy that another replica or a user has written.
    fn take_over(&mut self, key: &LaneKey, place: Place, mut record: Record) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        if let Some(known) = slot.lane.get(place).filter(|known| known.is_older_than(&record)) {
            record.copy_local_state_from(known);
            slot.lane.replace(place, record);
            if self.is_judged() && !self.is_ours(&key.pipeline) {
                self.follow_lane(key);
            }
        }
    }

    pub(crate) fn deleted(&mut self, id: &ObjectName) {
        self.parts.delivery_index.forget(id);
        self.asks.remove(id);
        let Some((key, place)) = self.index.remove(id) else { return };
        if let Some(slot) = self.lanes.get_mut(&key) {
            slot.lane.remove(place);
        }
        self.moved(&key);
    }

    /// Handles the timers and the rates that are due.
    fn ring(&mut self) {
        let now = Instant::now();
        self.record_overdue(now);
        for ((_, _, origin), lane) in self.rates.take_due(now) {
            self.fair_queue.ready(&origin, lane, now);
        }
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            let Some((_, key)) = self.timers.pop_first() else { return };
            if let Some(slot) = self.lanes.get_mut(&key) {
                slot.timer = None;
            }
            self.check(&key);
        }
    }
}
