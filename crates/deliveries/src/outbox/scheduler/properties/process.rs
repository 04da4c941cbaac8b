//! A process: the real engine with its indexes, the dispatcher as a model, and the tasks in progress. A task makes one call at a time.
//!
//! In: the effects of the engine, and how calls and requests end. Out: ends of tasks, commands for the engine.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::slice;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::server::{Call, Fate, LANES, NAMESPACE, PIPELINE, Server, derived, subject};
use crate::outbox::attempt::work::{self, Decided, Worked};
use crate::outbox::direct::{Answer, Direct, Offer};
use crate::outbox::record::{LaneKey, Record, name};
use crate::outbox::scheduler::admission::Foreign;
use crate::outbox::scheduler::effect::{Done, Now, Task};
use crate::outbox::scheduler::engine::Engine;
use crate::outbox::scheduler::fair_queue::Turn;
use crate::outbox::send_gate::index::{PipelineFacts, PipelineIndex};
use crate::outbox::store::delivery_index::DeliveryIndex;
use crate::outbox::store::journal::{Event, Journal, JournalError, New};
use crate::outbox::{Command, Parts, TestsKept};
use relaybook_api::ObjectName;
use relaybook_egress::{Attempt, AttemptResult};
use relaybook_runtime::leader::{Busy, Lease, Renewal};
use relaybook_settings::config::{EffectiveNotification, Retry};

/// For whom a result is written.
pub(super) enum For {
    Lane(LaneKey),
    Superseded(LaneKey),
    Reopened(Busy),
    /// The engine believes that it is written already.
    Nobody,
}

/// A task in progress.
pub(super) enum Job {
    Attempt {
        turn: Turn,
        record: Box<Record>,
        retry: Retry,
        failures: u32,
        began: Now,
    },
    Store(For, Box<Decided>),
    Record(ObjectName, New),
    /// The dispatcher records the next delivery of a lane.
    Create(usize, New),
    Expel {
        id: ObjectName,
        foreign: Foreign,
        busy: Busy,
    },
    /// The engine does not know yet that the task has ended.
    Ended(Box<Done>),
}

impl Job {
    /// `None`: no history contains the task.
    pub(super) fn of(task: Task, server: &Server, now: Now) -> Option<Self> {
        Some(match task {
            Task::Attempt { turn, record, notification, failures, .. } => {
                Self::Attempt { turn, record, retry: notification.delivery.retry, failures, began: now }
            }
            Task::Write { key, decided, .. } => Self::Store(For::Lane(key), decided),
            Task::Supersede(key, decided) => Self::Store(For::Superseded(key), decided),
            Task::Reopen(decided, busy) => Self::Store(For::Reopened(busy), decided),
            Task::Record(id, new) => Self::Record(id, new),
            Task::Expel { id, foreign, busy } => Self::Expel { id, foreign, busy },
            Task::ReadMissing { source, term, absent } => {
                let gone = absent.into_iter().filter(|id| server.find(id).is_none()).collect();
                Self::Ended(Box::new(Done::Missing { source, term, gone }))
            }
            Task::Cancel { .. } => return None,
        })
    }

    /// Returns the lane that is busy because of it.
    pub(super) fn lane(&self) -> Option<&LaneKey> {
        match self {
            Self::Attempt { turn, .. } => Some(&turn.lane),
            Self::Store(For::Lane(key) | For::Superseded(key), _) => Some(key),
            Self::Ended(done) => match &**done {
                Done::Attempted { turn, .. } => Some(&turn.lane),
                Done::Worked(key, _) | Done::Superseded(key, _) => Some(key),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns its call that can be applied although the process is killed.
    pub(super) fn call(&self) -> Option<Call> {
        match self {
            Self::Store(_, decided) if !decided.is_stored() => {
                let (record, status, _) = decided.parts();
                let is_recorded = record.is_recorded();
                let write = || Call::Write(Box::new(record.clone()), status.clone());
                Some(if is_recorded { write() } else { Call::Create(to_create(record), Some(status.clone())) })
            }
            Self::Record(_, new) | Self::Create(_, new) => Some(Call::Create(new.clone(), None)),
            Self::Expel { id, foreign, .. } => Some(Call::Delete(id.clone(), foreign.version)),
            _ => None,
        }
    }
}

fn to_create(record: &Record) -> New {
    New { namespace: record.id.namespace.clone(), elsewhere: None, spec: record.spec.clone() }
}

/// What a lane of the dispatcher waits for.
enum Waits {
    Answer(oneshot::Receiver<Answer>),
    Create,
}

/// The deliveries of one lane that the dispatcher records in one pass: `Deliveries::record`.
struct Pass {
    todo: VecDeque<i64>,
    recorded: Vec<i64>,
    created: Vec<Record>,
    is_offering: bool,
    waits: Waits,
}

pub(super) struct Process {
    pub(super) engine: Engine,
    renewal: Renewal,
    pub(super) commands: VecDeque<Command>,
    /// The list at the start.
    pub(super) list: VecDeque<Event>,
    /// How many reports the watch has delivered.
    pub(super) watched: usize,
    pub(super) is_loaded: bool,
    pub(super) is_stopped: bool,
    pub(super) jobs: Vec<Job>,
    passes: BTreeMap<usize, Pass>,
    /// The changes whose deliveries are recorded.
    done: BTreeSet<i64>,
    pub(super) cursor: i64,
    /// Broken on purpose: the dispatcher does not wait for the answer to its offer.
    pub(super) is_early: bool,
}

impl Process {
    /// Starts a process from what is stored.
    pub(super) fn new(base: &Parts, settings: &EffectiveNotification, server: &Server) -> Self {
        let (lease, renewal) = Lease::renewable(Duration::from_hours(1000));
        let pipeline_index = PipelineIndex::default();
        let subjects: HashMap<_, _> = (0..LANES).map(|lane| (subject(lane), Some(0))).collect();
        let (uid, namespace, name) = (PIPELINE.to_owned(), NAMESPACE.to_owned(), "podinfo".to_owned());
        let facts = PipelineFacts { uid, namespace, name, subjects, ..PipelineFacts::default() };
        pipeline_index.put_pipeline(PIPELINE, facts);
        pipeline_index.put_notification(NAMESPACE, "deploys", settings.clone());
        server.inform(&pipeline_index);
        pipeline_index.complete(1);
        let journal = Journal::new(base.client.clone(), base.metrics.clone());
        let (delivery_index, direct, tests_kept) = (DeliveryIndex::default(), Direct::default(), TestsKept::default());
        let parts = Parts { lease, journal, pipeline_index, delivery_index, direct, tests_kept, ..base.clone() };
        let mut list = VecDeque::from([Event::ListBegins]);
        list.extend(server.objects.values().map(|record| Event::Seen(Box::new(record.clone()))));
        list.push_back(Event::ListEnds(1));
        Self {
            engine: Engine::new(parts, 16, vec![None], fastrand::Rng::with_seed(1)),
            renewal,
            commands: VecDeque::new(),
            list,
            watched: server.reports.len(),
            is_loaded: false,
            is_stopped: false,
            jobs: Vec::new(),
            passes: BTreeMap::new(),
            done: BTreeSet::new(),
            cursor: server.cursor,
            is_early: false,
        }
    }

    /// It is not the leader any more. It starts nothing, and its tasks continue.
    pub(super) fn depose(&mut self) {
        self.renewal.set_term(None);
        self.renewal.set(None);
        self.is_loaded = false;
        self.passes.retain(|_, pass| matches!(pass.waits, Waits::Create));
    }

    /// Returns the next event of its watch.
    pub(super) fn next_event(&mut self, server: &Server) -> Option<Event> {
        self.list.pop_front().or_else(|| {
            let report = server.reports.get(self.watched)?.clone();
            self.watched += 1;
            Some(report.event())
        })
    }

    /// Returns whether nothing is in progress.
    pub(super) fn is_idle(&self, server: &Server) -> bool {
        let watched = self.list.is_empty() && self.watched == server.reports.len();
        watched && self.commands.is_empty() && self.jobs.is_empty() && self.passes.is_empty()
    }

    /// Continues the passes of the dispatcher, and then advances its cursor.
    pub(super) fn dispatch(&mut self, server: &Server) {
        if !self.is_loaded || self.is_stopped {
            return;
        }
        for lane in 0..LANES {
            self.pass(lane, server);
        }
        while self.done.contains(&(self.cursor + 1)) {
            self.cursor += 1;
        }
    }

    fn pass(&mut self, lane: usize, server: &Server) {
        let Some(pass) = self.passes.get_mut(&lane) else {
            return self.begin(lane, server);
        };
        let Waits::Answer(answered) = &mut pass.waits else { return };
        match answered.try_recv() {
            Ok(Answer::Recorded) => self.recorded(lane, None),
            Ok(Answer::Declined) => {
                pass.is_offering = false;
                self.next(lane);
            }
            Ok(Answer::Failed(_)) | Err(TryRecvError::Closed) => self.end(lane),
            Err(TryRecvError::Empty) => {}
        }
    }

    fn begin(&mut self, lane: usize, server: &Server) {
        let mut todo = VecDeque::new();
        for (serial, _) in server.above(self.cursor).filter(|(_, of)| *of == lane) {
            if self.done.contains(&serial) {
                continue;
            }
            let id = ObjectName::new(NAMESPACE, name(&derived(serial, lane)));
            if self.engine.parts.delivery_index.is_recorded(PIPELINE, &id) {
                self.done.insert(serial);
            } else {
                todo.push_back(serial);
            }
        }
        if !todo.is_empty() {
            let (recorded, created) = (Vec::new(), Vec::new());
            self.passes.insert(lane, Pass { todo, recorded, created, is_offering: true, waits: Waits::Create });
            self.next(lane);
        }
    }

    /// Offers or records the next delivery of a lane, or ends its pass.
    fn next(&mut self, lane: usize) {
        let Some(pass) = self.passes.get_mut(&lane) else { return };
        let Some(serial) = pass.todo.front().copied() else { return self.end(lane) };
        let spec = derived(serial, lane);
        if pass.is_offering {
            let (answer, answered) = oneshot::channel();
            pass.waits = Waits::Answer(answered);
            self.commands.push_back(Command::Offer(Offer { namespace: NAMESPACE.to_owned(), spec, answer }));
        } else {
            pass.waits = Waits::Create;
            self.jobs.push(Job::Create(lane, New { namespace: NAMESPACE.to_owned(), elsewhere: None, spec }));
        }
        if self.is_early {
            self.done.insert(serial);
        }
    }

    /// The delivery for which a lane waits is recorded, by the dispatcher or by the engine.
    fn recorded(&mut self, lane: usize, created: Option<Record>) {
        let Some(pass) = self.passes.get_mut(&lane) else { return };
        pass.recorded.extend(pass.todo.pop_front());
        pass.created.extend(created);
        // A deposed process does not begin another create.
        if self.is_loaded { self.next(lane) } else { self.end(lane) }
    }

    fn end(&mut self, lane: usize) {
        let Some(pass) = self.passes.remove(&lane) else { return };
        self.engine.parts.delivery_index.recorded(&pass.created);
        if !pass.created.is_empty() {
            self.commands.push_back(Command::Recorded(pass.created));
        }
        self.done.extend(pass.recorded);
    }

    /// Ends the call or the request of a task. Returns what remains of the task.
    pub(super) fn proceed(
        &mut self,
        job: Job,
        server: &mut Server,
        fate: Fate,
        result: AttemptResult,
        now: Now,
    ) -> Option<Job> {
        let done = match job {
            Job::Attempt { turn, record, retry, failures, began } => {
                let duration = now.boot.saturating_sub(began.boot);
                let attempt = Attempt { started: began.wall, duration, result };
                let error = attempt.result.error();
                self.engine.parts.delivery_index.attempted(&record, began.wall, error.as_deref());
                let (decided, attempt_outcome) = work::ended(*record, &attempt, &retry, failures, 0.5, now);
                Done::Attempted { turn, attempt_outcome, decided: Box::new(decided) }
            }
            Job::Store(of, decided) => match self.store(decided, server, fate, now) {
                Err(decided) => return Some(Job::Store(of, decided)),
                Ok(worked) => match of {
                    For::Lane(key) => Done::Worked(key, worked),
                    For::Superseded(key) => Done::Superseded(key, worked),
                    For::Reopened(busy) => {
                        drop(busy);
                        Done::Reopened(worked)
                    }
                    For::Nobody => return None,
                },
            },
            Job::Record(id, new) => {
                let result = server.create(&new, None, fate, now);
                self.engine.parts.journal.note_create(&new, &result);
                if let Ok(stored) = &result {
                    self.engine.parts.delivery_index.recorded(slice::from_ref(stored));
                }
                Done::Recorded(id, Box::new(result))
            }
            Job::Create(lane, new) => {
                let result = server.create(&new, None, fate, now);
                self.engine.parts.journal.note_create(&new, &result);
                match result {
                    Ok(stored) => self.recorded(lane, Some(stored)),
                    Err(_) => self.end(lane),
                }
                return None;
            }
            Job::Expel { id, foreign, busy } => {
                let failed = server.delete(&id, foreign.version, fate).err().map(|error| error.detail());
                drop(busy);
                Done::Expelled { id, foreign, failed }
            }
            Job::Ended(done) => *done,
        };
        Some(Job::Ended(Box::new(done)))
    }

    /// One call of `write::store`. `Err`: another one follows.
    fn store(&self, decided: Box<Decided>, server: &mut Server, fate: Fate, now: Now) -> Result<Box<Worked>, Box<Decided>> {
        let parts = &self.engine.parts;
        let (record, status, after) = decided.parts();
        if decided.is_stored() {
            let record = record.clone();
            return Ok(Box::new(Worked { record, after, gone: false, instead: None, is_written: false }));
        }
        if record.is_recorded() {
            let written = server.write(record, status, fate, now);
            parts.journal.note(&written);
            return match written {
                Ok(written) => decided.written(written, now),
                Err(_) => Err(decided),
            };
        }
        let new = to_create(record);
        let made: Result<Record, JournalError> = server.create(&new, Some(status), fate, now);
        parts.journal.note_create(&new, &made);
        match made {
            Ok(stored) => {
                parts.delivery_index.recorded(slice::from_ref(&stored));
                parts.direct.recorded(&record.id);
                decided.created(stored, now)
            }
            Err(error) => {
                parts.direct.failed(&record.id, &error);
                Err(decided)
            }
        }
    }
}
