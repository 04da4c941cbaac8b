//! A process: the real engine with its indexes, the dispatcher as a model, and the tasks in progress. A task makes one call.
//!
//! In: the effects of the engine, and how calls and requests end. Out: ends of tasks, commands for the engine.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::slice;
use std::time::{Duration, Instant};

use super::dispatcher::{Pass, Waits};
use super::job::{Job, read_next};
use super::outside::Existing;
use super::server::{Fate, NAMESPACE, PIPELINE, Server, subject, uid};
use crate::outbox::attempt::decided::Attempted;
use crate::outbox::engine::Engine;
use crate::outbox::engine::effect::{Done, Effect, Input, Now, Ticket};
use crate::outbox::engine::writes::{Answered, Call, Next, Write};
use crate::outbox::send_gate::index::{PipelineFacts, PipelineIndex};
use crate::outbox::store::delivery_index::DeliveryIndex;
use crate::outbox::store::journal::{Event, Journal};
use crate::outbox::{Answer, Command, Parts, TestsKept};
use relaybook_api::delivery::MessageThread;
use relaybook_api::notification::Ordering;
use relaybook_core::leader::bucket::Buckets;
use relaybook_egress::{Attempt, AttemptResult};
use relaybook_runtime::leader::{Lease, Renewal};
use relaybook_settings::config::EffectiveNotification;

/// How long a Lease lasts that is not too short: longer than any history.
pub(super) const LONG: Duration = Duration::from_hours(1_000_000);

pub(super) struct Process {
    pub(super) engine: Engine,
    pub(super) parts: Parts,
    renewal: Renewal,
    /// The buckets that the engine has not released.
    held: Buckets,
    /// The commands that the engine has not received yet, each with its number.
    pub(super) commands: VecDeque<(Ticket, Command)>,
    last: Ticket,
    /// The answers that the dispatcher has not read yet.
    pub(super) answers: HashMap<Ticket, Answer>,
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
        let (lease, renewal) = Lease::renewable(LONG);
        let pipeline_index = PipelineIndex::default();
        pipeline_index.complete(1);
        let journal = Journal::new(base.client.clone(), base.metrics.clone());
        let (delivery_index, tests_kept) = (DeliveryIndex::default(), TestsKept::default());
        let mut process = Self {
            engine: Engine::new(16, vec![None], fastrand::Rng::with_seed(1)),
            parts: Parts { lease, journal, pipeline_index, delivery_index, tests_kept, ..base.clone() },
            renewal,
            held: Buckets::NONE,
            commands: VecDeque::new(),
            last: Ticket(0),
            answers: HashMap::new(),
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

    /// Gives the engine an input. `Driver::turn`
    pub(super) fn on(&mut self, input: Input, now: Now) -> Vec<Effect> {
        self.held = self.held.and(self.parts.lease.buckets());
        let pipelines = self.parts.pipeline_index.read();
        self.engine.on(input, &self.parts.facts(self.held, &pipelines), now)
    }

    /// Carries out an effect that starts no task: `Driver::carry_out`. Returns `false` if a command is answered twice.
    pub(super) fn carry_out(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::Answer(ticket, answer) => return self.answers.insert(ticket, answer).is_none(),
            Effect::Release(bucket) => self.held = self.held.without([bucket].into_iter().collect()),
            _ => {}
        }
        true
    }

    /// Returns when the engine must act next.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let pipelines = self.parts.pipeline_index.read();
        self.engine.next_time(&self.parts.facts(self.held, &pipelines))
    }

    /// Sends a command to the engine, and returns its number.
    pub(super) fn send(&mut self, command: Command) -> Ticket {
        self.last.0 += 1;
        self.commands.push_back((self.last, command));
        self.last
    }

    /// Begins a list of the Deliveries. It replaces what the watch has not delivered.
    pub(super) fn list(&mut self, server: &Server) {
        let seen = server.objects.values().map(|record| Event::Seen(Box::new(record.clone())));
        self.list = [Event::ListBegins].into_iter().chain(seen).chain([Event::ListEnds(1)]).collect();
        self.watched = server.reports.len();
    }

    /// Its watches deliver what exists besides Deliveries.
    pub(super) fn see(&mut self, existing: Existing, settings: &EffectiveNotification, server: &Server) {
        let index = &self.parts.pipeline_index;
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
        watched && !self.engine.has_paused() && self.commands.is_empty() && self.jobs.is_empty() && self.passes.is_empty()
    }

    /// Ends the call or the request of a task. Returns what remains of the task.
    pub(super) fn proceed(
        &mut self,
        job: Job,
        server: &mut Server,
        fate: Fate,
        (result, thread): (AttemptResult, Option<MessageThread>),
        now: Now,
    ) -> Option<Job> {
        let done = match job {
            Job::Attempt { turn, record, retry, began, .. } => {
                let duration = now.boot.saturating_sub(began.boot);
                let attempt = Attempt { started: began.wall, duration, result, step: None, learned: None };
                let error = attempt.error();
                self.parts.delivery_index.attempted(&record, began.wall, error.as_deref());
                Done::Attempted { turn, retry, attempt: Box::new(Ok(Attempted { attempt, thread })) }
            }
            Job::Write(write) => {
                let answered = self.call(&write, server, fate, now);
                Done::Answered(write, answered)
            }
            Job::Unawaited(write) => {
                let answered = self.call(&write, server, fate, now);
                return match write.next(answered, false, 0.0, now) {
                    Next::Ended(..) => None,
                    Next::Call(again) | Next::Pause(again, ..) => Some(Job::Unawaited(again)),
                };
            }
            Job::Create(lane, new) => {
                let result = server.create(&new, None, fate, now);
                self.parts.journal.note_create(&new, &result);
                match result {
                    Ok(stored) => self.recorded(lane, Some(stored)),
                    Err(_) => self.end(lane),
                }
                return None;
            }
            Job::Expel { id, foreign } => {
                let failed = server.delete(&id, foreign.version, fate).err().map(|error| error.detail());
                Done::Expelled { id, foreign, failed }
            }
            Job::Verify { lane, target, what } => {
                let is_gone = server.existing.is_gone(what, target);
                Done::Verified { lane, what, is_gone: matches!(fate, Fate::Answered).then_some(is_gone) }
            }
            Job::Missing { source, term, absent, gone } => {
                return Some(read_next(source, term, absent, gone, server, fate));
            }
            Job::Ended(done) => *done,
        };
        Some(Job::Ended(Box::new(done)))
    }

    /// Makes the next call of a write: `tasks::call`.
    fn call(&self, write: &Write, server: &mut Server, fate: Fate, now: Now) -> Answered {
        match write.call() {
            Call::Create(new, status) => {
                let created = server.create(&new, status, fate, now);
                self.parts.journal.note_create(&new, &created);
                if let Ok(stored) = &created {
                    self.parts.delivery_index.recorded(slice::from_ref(stored));
                }
                Answered::Created(Box::new(created))
            }
            Call::Patch(record, status) => {
                let written = server.write(record, status, fate, now);
                self.parts.journal.note(&written);
                Answered::Patched(written)
            }
        }
    }
}
