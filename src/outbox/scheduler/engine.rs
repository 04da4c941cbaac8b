//! The engine owns all lanes. It is the only component that decides what can be sent.
//!
//! In: records (from the dispatcher and from the journal's watch), and notices of changes. Out: work in separate tasks, with a maximum
//! number, and at most one for each lane. One task runs the engine, so a lane needs no lock.
//!
//! While another replica is the leader, the engine updates the lanes from the writes of that replica, and takes nothing from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::admission::Admission;
use super::fair_queue::{AttemptOutcome, FairQueue, Turn};
use super::initial_sync::InitialSync;
use super::rate::{Rates, Shared};
use crate::api::now;
use crate::config::Retry;
use crate::outbox::attempt::work::{Decided, Parts, Worked};
use crate::outbox::audit_log::trouble;
use crate::outbox::lane::schedule;
use crate::outbox::lane::{Lane, Place};
use crate::outbox::record::{LaneKey, Record, RecordId};
use crate::outbox::send_gate::genuine::Sight;
use crate::outbox::send_gate::index::SendDecision;
use crate::outbox::store::journal::Event;
use crate::outbox::{Command, Scope, Started};

/// How long requests in flight can continue after a stop.
const DRAIN: Duration = Duration::from_secs(20);
/// For this long after a start, the watches of Secrets and notifications can deliver events that are not changes.
const FIRST_WORDS: Duration = Duration::from_secs(10);

/// A lane, with what the engine stores for it.
#[derive(Default)]
pub(in crate::outbox) struct Slot {
    pub(in crate::outbox) lane: Lane<Record>,
    pub(in crate::outbox) timer: Option<Instant>,
    /// In the fair queue, waiting for a worker.
    pub(in crate::outbox) ready: bool,
    /// Something changed while the head was at work, so the lane is checked again afterwards. `true`: a failed head is also retried.
    pub(in crate::outbox) stale: Option<bool>,
    /// The rate that the lane shares, from the time when it is ready until it is sent.
    pub(in crate::outbox) shared: Option<Shared>,
    /// The origin that the last attempt could not connect to.
    pub(in crate::outbox) unreachable: Option<String>,
    /// When the lane was resumed from its stored objects, if there was no attempt since.
    pub(in crate::outbox) resumed: Option<Instant>,
    /// Deliveries were superseded since the last attempt. The head is sent before others are superseded. Otherwise frequent changes would
    /// never let one be sent.
    pub(in crate::outbox) marked: bool,
}

/// The result of a task.
pub(in crate::outbox) enum Done {
    /// An attempt is over: the origin's worker is free, and the result still has to be written.
    Attempted { turn: Turn, attempt_outcome: AttemptOutcome, decided: Box<Decided> },
    /// The work on a delivery of this lane is over.
    Worked(LaneKey, Box<Worked>),
    /// The write of a superseded delivery of this lane is over.
    Superseded(LaneKey, Box<Worked>),
    /// A delivery that has to be redelivered was reopened.
    Reopened(Box<Worked>),
    /// These Deliveries were not in a source's list in this leadership term, and live reads showed that they are gone.
    Missing { source: usize, turn: u64, gone: Vec<RecordId> },
    /// A Delivery that Pennant did not record was deleted, or its deletion failed.
    Expelled { id: RecordId, version: u64, failed: Option<String> },
}

/// The engine.
pub(in crate::outbox) struct Engine {
    pub(in crate::outbox) parts: Parts,
    pub(in crate::outbox) started: Started,
    /// Sorted, so that the lanes of one notification and pipeline are next to each other.
    pub(in crate::outbox) lanes: BTreeMap<LaneKey, Slot>,
    pub(in crate::outbox) index: HashMap<RecordId, (LaneKey, Place)>,
    pub(in crate::outbox) fair_queue: FairQueue,
    pub(in crate::outbox) rates: Rates,
    /// Settled deliveries that users want to redeliver.
    pub(in crate::outbox) asks: BTreeMap<RecordId, Record>,
    /// By namespace: how many deliveries are being reopened.
    pub(in crate::outbox) reopening: HashMap<String, usize>,
    pub(in crate::outbox) timers: BTreeSet<(Instant, LaneKey)>,
    pub(in crate::outbox) work: JoinSet<Done>,
    pub(in crate::outbox) initial_sync: InitialSync,
    pub(in crate::outbox) admission: Admission,
    pub(in crate::outbox) draining: bool,
}

impl Engine {
    pub(in crate::outbox) fn new(parts: Parts, workers: usize, started: Started) -> Self {
        Self {
            initial_sync: InitialSync::new(started.sources.len()),
            parts,
            started,
            admission: Admission::default(),
            lanes: BTreeMap::new(),
            index: HashMap::new(),
            fair_queue: FairQueue::new(workers),
            rates: Rates::default(),
            asks: BTreeMap::new(),
            reopening: HashMap::new(),
            timers: BTreeSet::new(),
            work: JoinSet::new(),
            draining: false,
        }
    }

    /// Runs until `stop`, then until the work in progress is over, but no longer than [`DRAIN`].
    pub(in crate::outbox) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut events: mpsc::Receiver<(usize, Event)>,
        stop: CancellationToken,
    ) {
        let mut deadline = None;
        let mut lease = self.parts.lease.clone();
        let mut gauges = tokio::time::interval(Duration::from_secs(5));
        loop {
            self.judge_listed();
            self.assign();
            if self.draining && (self.work.is_empty() || deadline.is_some_and(|d| Instant::now() >= d)) {
                break;
            }
            let wake = self.next_time().into_iter().chain(deadline).min().map(tokio::time::Instant::from_std);
            tokio::select! {
                () = stop.cancelled(), if !self.draining => {
                    self.draining = true;
                    deadline = Some(Instant::now() + DRAIN);
                }
                Some(command) = commands.recv() => self.obey(command),
                Some((source, event)) = events.recv() => self.take_note(source, event),
                Some(done) = self.work.join_next(), if !self.work.is_empty() => match done {
                    Ok(done) => self.done(done),
                    Err(error) => {
                        // Its lane stays busy, because a wrong order would be worse. The process exits and starts again.
                        tracing::error!(%error, "a delivery's task broke");
                        break;
                    }
                },
                () = tokio::time::sleep_until(wake.unwrap_or_else(tokio::time::Instant::now)), if wake.is_some() => self.ring(),
                // A renewed Lease. The loop above retries what could not start because the Lease was too short.
                () = lease.changed() => {}
                _ = gauges.tick() => self.measure(),
            }
        }
        self.work.shutdown().await;
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Attempted { turn, attempt_outcome, decided } => self.attempted(&turn, attempt_outcome, *decided),
            Done::Worked(key, worked) => self.worked(&key, *worked),
            Done::Superseded(key, worked) => self.superseded(&key, *worked),
            Done::Reopened(worked) => self.reopened(*worked),
            Done::Expelled { id, version, failed } => self.expelled(id, version, failed),
            Done::Missing { source, turn, gone } => {
                for id in &gone {
                    self.deleted(id);
                }
                self.complete(source, turn);
            }
        }
    }

    /// When the engine must act next, if nothing else happens.
    fn next_time(&self) -> Option<Instant> {
        if self.draining {
            return None;
        }
        // Nothing is sent while another replica is the leader, so there is nothing to wake up for.
        let sending =
            [self.fair_queue.next_probe(), self.rates.next_leave()].into_iter().flatten().filter(|_| self.acting());
        sending.chain(self.timers.first().map(|(at, _)| *at)).min()
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Recorded(records) => {
                for record in records {
                    self.recorded(record);
                }
            }
            Command::Look(scope) => {
                let keys: Vec<_> = self.lanes.keys().filter(|key| scope.covers(key)).cloned().collect();
                // A new URL or template can be what the receiver needed. A new label of the pipeline hardly can.
                let retry = !matches!(scope, Scope::All | Scope::Pipeline(_));
                for key in keys {
                    self.changed(&key, retry);
                }
            }
        }
    }

    /// Something that a lane depends on has changed.
    pub(in crate::outbox) fn changed(&mut self, key: &LaneKey, retry: bool) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        if slot.lane.busy().is_some() {
            slot.stale = Some(retry || slot.stale.unwrap_or(false));
            return;
        }
        // Ignore the first wake-ups after a start: initial list events are not changes, so the lane keeps its persisted wait.
        let first_words = slot.resumed.is_some_and(|at| at.elapsed() < FIRST_WORDS);
        slot.lane.wake(retry && !first_words);
        let gone =
            slot.lane.head().is_some_and(|r| matches!(self.parts.pipeline_index.find(&r.spec), SendDecision::Gone { .. }));
        if gone {
            slot.lane.hurry();
        }
        self.look(key);
    }

    fn take_note(&mut self, source: usize, event: Event) {
        match event {
            Event::ListBegins => self.initial_sync.begins(source),
            Event::Seen(record) => {
                self.initial_sync.seen(source, &record.id);
                self.seen(*record);
            }
            Event::Deleted(id, uid) => {
                self.forget_origin(&id, &uid);
                self.initial_sync.bury(uid, Instant::now());
                self.deleted(&id);
            }
            Event::ListEnds(turn) => self.listed(source, turn),
        }
    }

    /// A list is complete. Deliveries that it does not contain are read live, because they may have been recorded after the list was made.
    fn listed(&mut self, source: usize, turn: u64) {
        let Some(list) = self.initial_sync.ends(source) else { return };
        let here = |id: &RecordId| {
            self.started.sources.get(source).is_none_or(|ns| ns.as_ref().is_none_or(|ns| *ns == id.namespace))
        };
        let absent: Vec<_> =
            self.parts.delivery_index.ids().into_iter().filter(|id| here(id) && !list.contains(id)).collect();
        if absent.is_empty() {
            return self.complete(source, turn);
        }
        let journal = self.parts.journal.clone();
        self.work.spawn(async move { Done::Missing { source, turn, gone: journal.gone(absent).await } });
    }

    /// A source has completed its initial list. When all sources of this leadership term have, continue where the previous leader ended.
    fn complete(&mut self, source: usize, turn: u64) {
        if !self.initial_sync.complete(source, turn) {
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
        // After this, the dispatcher knows which of them it need not record again.
        self.judge_listed();
        (self.started.ready)(turn);
        let keys: Vec<_> = self.lanes.keys().cloned().collect();
        for key in keys {
            self.look(&key);
        }
        self.reopen();
    }

    pub(in crate::outbox) fn seen(&mut self, record: Record) {
        if self.initial_sync.is_buried(&record.uid) {
            return; // a response or an event from before the deletion
        }
        let settled = record.status.outcome.is_some();
        if !settled && self.parts.delivery_index.has_settled(&record) {
            return; // an event from before the outcome
        }
        if !settled && self.is_judged() && !self.admit(&record, Sight::Watched) {
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
            // Another replica has settled it, and has started to redeliver it.
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
        self.look(&key);
    }

    /// Another replica or a user has written to a delivery that is already known.
    fn take_over(&mut self, key: &LaneKey, place: Place, mut record: Record) {
        let Some(slot) = self.lanes.get_mut(key) else { return };
        if let Some(known) = slot.lane.get(place).filter(|known| known.is_older_than(&record)) {
            record.goes_on_from(known);
            slot.lane.replace(place, record);
        }
    }

    fn deleted(&mut self, id: &RecordId) {
        self.parts.delivery_index.forget(id);
        self.asks.remove(id);
        let Some((key, place)) = self.index.remove(id) else { return };
        if let Some(slot) = self.lanes.get_mut(&key) {
            slot.lane.remove(place);
        }
        self.moved(&key);
    }

    /// Handles the timers that have expired.
    fn ring(&mut self) {
        let now = Instant::now();
        for ((_, _, origin), lane) in self.rates.ring(now) {
            self.fair_queue.ready(&origin, lane, now);
        }
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            let Some((_, key)) = self.timers.pop_first() else { return };
            if let Some(slot) = self.lanes.get_mut(&key) {
                slot.timer = None;
            }
            self.look(&key);
        }
    }
}
