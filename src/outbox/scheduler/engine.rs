//! The engine: owns all lanes, and is the only one that says what may be sent.
//!
//! In: records (from the dispatcher and from the journal's watch), and word that something has changed. Out: pieces of work in
//! tasks of their own, at most so many at once, and at most one for a lane. One task runs it, so a lane needs no lock.
//!
//! While another replica acts, the lanes are kept as its writes tell, and nothing is taken from them.

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

/// After a stop, requests under way may finish for so long.
const DRAIN: Duration = Duration::from_secs(20);
/// So long after a start the watches of Secrets and notifications may bring what is no change.
const FIRST_WORDS: Duration = Duration::from_secs(10);

/// A lane and its place in the engine's books.
#[derive(Default)]
pub(in crate::outbox) struct Slot {
    pub(in crate::outbox) lane: Lane<Record>,
    pub(in crate::outbox) timer: Option<Instant>,
    /// In the fair queue, waiting for a worker.
    pub(in crate::outbox) ready: bool,
    /// Something has changed while its head was at work: it is looked at again afterwards, with or without a new try.
    pub(in crate::outbox) stale: Option<bool>,
    /// The rate that it shares, from being ready until it is sent.
    pub(in crate::outbox) shared: Option<Shared>,
    /// The origin to which its last attempt found no connection.
    pub(in crate::outbox) unreachable: Option<String>,
    /// When it was taken up as it is recorded, if nothing was done in it since.
    pub(in crate::outbox) resumed: Option<Instant>,
    /// Since the last attempt some were superseded: the head goes before others are, or a storm would never let one go.
    pub(in crate::outbox) marked: bool,
}

/// What a task brings back.
pub(in crate::outbox) enum Done {
    /// An attempt is over: the origin's worker is free, and what came of it is to be written.
    Attempted { turn: Turn, attempt_outcome: AttemptOutcome, decided: Box<Decided> },
    /// A delivery's work is over, in this lane.
    Worked(LaneKey, Box<Worked>),
    /// That one of this lane is superseded is written.
    Superseded(LaneKey, Box<Worked>),
    /// One that is to be sent again has been reopened.
    Reopened(Box<Worked>),
    /// Of those that a source's list did not bring in this turn, these are really gone.
    Missing { source: usize, turn: u64, gone: Vec<RecordId> },
    /// One that Pennant did not record was deleted, or could not be.
    Expelled { id: RecordId, version: u64, failed: Option<String> },
}

/// The engine.
pub(in crate::outbox) struct Engine {
    pub(in crate::outbox) parts: Parts,
    pub(in crate::outbox) started: Started,
    /// In order, so that the lanes of one notification and pipeline stand side by side.
    pub(in crate::outbox) lanes: BTreeMap<LaneKey, Slot>,
    pub(in crate::outbox) index: HashMap<RecordId, (LaneKey, Place)>,
    pub(in crate::outbox) fair_queue: FairQueue,
    pub(in crate::outbox) rates: Rates,
    /// Settled ones that somebody wants to have sent again.
    pub(in crate::outbox) asks: BTreeMap<RecordId, Record>,
    /// By namespace: how many are being reopened.
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

    /// Runs until `stop`, then until the work under way is over, but no longer than [`DRAIN`].
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
                        // Its lane stays busy: better still than out of order. The process ends and starts anew.
                        tracing::error!(%error, "a delivery's task broke");
                        break;
                    }
                },
                () = tokio::time::sleep_until(wake.unwrap_or_else(tokio::time::Instant::now)), if wake.is_some() => self.ring(),
                // What could not be begun for want of time is looked at again above.
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

    /// When something is to be looked at, if nothing else happens.
    fn next_time(&self) -> Option<Instant> {
        if self.draining {
            return None;
        }
        // Nothing is sent while another replica acts, so there is nothing to wake up for.
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
                // Another URL or template may be what the receiver wanted; a label of the pipeline hardly is.
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
        // What is heard first after a start is no news to a lane that waits as its object says.
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

    /// A list is complete. What it does not bring is read live, for it may have been recorded after the list was made.
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

    /// A source has told everything. When all have in this turn, go on where whoever acted before has ended.
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
        // The dispatcher then knows which of them it need not record again.
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
            return; // an answer or an event from before it was deleted
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
            // Another replica has settled it, and has begun to send it again.
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

    /// Another replica, or a person, has written to one that is known.
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

    /// The clock has reached one or more lanes.
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
