//! A process: the real engine with its indexes, the dispatcher as a model, and the tasks in progress. A task makes one call at a time.
//!
//! In: the effects of the engine, and how calls and requests end. Out: ends of tasks, commands for the engine.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::slice;
use std::time::Duration;

use super::dispatcher::{Pass, Waits};
use super::job::{For, Job, confirmed, read_next, to_create};
use super::outside::Existing;
use super::server::{Fate, NAMESPACE, PIPELINE, Server, lane_of, subject, uid};
use crate::outbox::attempt::work::{self, Decided, Worked};
use crate::outbox::direct::Direct;
use crate::outbox::lane::After;
use crate::outbox::record::Record;
use crate::outbox::scheduler::effect::{Done, Now};
use crate::outbox::scheduler::engine::Engine;
use crate::outbox::send_gate::index::{PipelineFacts, PipelineIndex};
use crate::outbox::store::delivery_index::DeliveryIndex;
use crate::outbox::store::journal::{Event, Journal, JournalError};
use crate::outbox::{Command, Parts, TestsKept};
use relaybook_api::notification::Ordering;
use relaybook_egress::{Attempt, AttemptResult};
use relaybook_runtime::leader::{Lease, Renewal};
use relaybook_settings::config::EffectiveNotification;

pub(super) struct Process {
    pub(super) engine: Engine,
    renewal: Renewal,
    pub(super) commands: VecDeque<Command>,
    /// The list in progress.
    pub(super) list: VecDeque<Event>,
    /// How many reports the watch has delivered.
    pub(super) watched: usize,
    pub(super) is_loaded: bool,
    pub(super) is_stopped: bool,
    pub(super) jobs: Vec<Job>,
    pub(super) passes: BTreeMap<usize, Pass>,
    /// The changes whose deliveries are recorded.
    pub(super) done: BTreeSet<i64>,
    pub(super) cursor: i64,
    /// The number in the uid of the notification to which the cursor belongs.
    pub(super) uid: usize,
    /// What its watches have delivered.
    pub(super) known: Existing,
    /// Whether one lane contains the deliveries of all targets.
    pub(super) is_whole: bool,
    /// Whether the Lease is too short for a request.
    pub(super) is_short: bool,
    /// Broken on purpose: the dispatcher does not wait for the answer to its offer.
    pub(super) is_early: bool,
}

impl Process {
    /// Starts a process from what is stored.
    pub(super) fn new(base: &Parts, settings: &EffectiveNotification, server: &Server) -> Self {
        let (lease, renewal) = Lease::renewable(Duration::from_hours(1000));
        let pipeline_index = PipelineIndex::default();
        pipeline_index.complete(1);
        let journal = Journal::new(base.client.clone(), base.metrics.clone());
        let (delivery_index, direct, tests_kept) = (DeliveryIndex::default(), Direct::default(), TestsKept::default());
        let parts = Parts { lease, journal, pipeline_index, delivery_index, direct, tests_kept, ..base.clone() };
        let mut process = Self {
            engine: Engine::new(parts, 16, vec![None], fastrand::Rng::with_seed(1)),
            renewal,
            commands: VecDeque::new(),
            list: VecDeque::new(),
            watched: 0,
            is_loaded: false,
            is_stopped: false,
            jobs: Vec::new(),
            passes: BTreeMap::new(),
            done: BTreeSet::new(),
            cursor: server.cursor,
            uid: server.notification,
            known: server.existing.clone(),
            is_whole: false,
            is_short: false,
            is_early: false,
        };
        process.see(server.existing.clone(), settings, server);
        process.list(server);
        process
    }

    /// Begins a list of the Deliveries. It replaces what the watch has not delivered.
    pub(super) fn list(&mut self, server: &Server) {
        let seen = server.objects.values().map(|record| Event::Seen(Box::new(record.clone())));
        self.list = [Event::ListBegins].into_iter().chain(seen).chain([Event::ListEnds(1)]).collect();
        self.watched = server.reports.len();
    }

    /// Its watches deliver what exists besides Deliveries.
    pub(super) fn see(&mut self, existing: Existing, settings: &EffectiveNotification, server: &Server) {
        let index = &self.engine.parts.pipeline_index;
        if existing.has_pipeline {
            let known = existing.targets.iter().map(|(lane, since)| (subject(*lane), *since));
            let subjects: HashMap<_, _> = known.collect();
            let (uid, namespace, name) = (PIPELINE.to_owned(), NAMESPACE.to_owned(), "podinfo".to_owned());
            let facts = PipelineFacts { uid, namespace, name, subjects, ..PipelineFacts::default() };
            index.put_pipeline(PIPELINE, facts);
            server.inform(index);
        } else {
            index.remove_pipeline(PIPELINE);
        }
        if let Some(number) = existing.notification {
            let notification = EffectiveNotification { uid: uid(number), ..settings.clone() };
            index.put_notification(NAMESPACE, "deploys", notification);
        } else {
            index.remove_notification(NAMESPACE, "deploys");
        }
        self.is_whole = settings.delivery.ordering == Ordering::Pipeline;
        self.known = existing;
    }

    /// Sets how long its Lease lasts.
    pub(super) fn renew(&mut self, duration: Duration) {
        self.renewal.set(Some(duration));
        self.is_short = duration.is_zero();
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
            Job::Confirm { key, record, what } => {
                let is_gone = server.existing.is_gone(what, lane_of(&record.spec));
                let answer = matches!(fate, Fate::Answered).then_some(is_gone);
                return Some(confirmed(key, *record, what, answer, &self.engine.parts.pipeline_index, now));
            }
            Job::Missing { source, term, absent, gone } => {
                return Some(read_next(source, term, absent, gone, server, fate));
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
            Err(error) if error.is_refused() && parts.pipeline_index.pipeline(PIPELINE).is_none() => {
                parts.direct.recorded(&record.id);
                let (record, after) = (record.clone(), After::Settled { answered: false });
                Ok(Box::new(Worked { record, after, gone: true, instead: None, is_written: false }))
            }
            Err(error) => {
                parts.direct.failed(&record.id, &error);
                Err(decided)
            }
        }
    }
}
