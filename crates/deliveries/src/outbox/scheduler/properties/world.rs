//! A history as it runs: the processes, what is outside of them, and what is checked.
//!
//! In: [`Step`]s. Out: what is wrong. Each check of a request is made when it starts, and each check of the cursor when it is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::job::{For, Job};
use super::process::Process;
use super::server::{Fate, PIPELINE, Server};
use super::{Setting, Step, Wrong};
use crate::outbox::Parts;
use crate::outbox::attempt::work::Worked;
use crate::outbox::lane::After;
use crate::outbox::record::Record;
use crate::outbox::scheduler::effect::{Done, Effect, Input, Now, Task};
use relaybook_api::Time;
use relaybook_api::notification::Ordering;
use relaybook_egress::{AttemptResult, Failure, FailureKind};
use relaybook_settings::config::EffectiveNotification;

/// The wall clock at the start, when the log begins.
const START: i64 = 1_800_000_000;
/// Maximum number of rounds until nothing is left to do after a history.
const ROUNDS: usize = 3000;
const FATES: [Fate; 7] =
    [Fate::Answered, Fate::Answered, Fate::Lost, Fate::Answered, Fate::Failed, Fate::Answered, Fate::Late];

pub(super) type Checked = Result<(), TestCaseError>;

/// How a receiver responds.
fn result(how: usize) -> AttemptResult {
    let answered = |status, retry_after| {
        let (redirect, body, rotated) = (None, String::new(), false);
        AttemptResult::Answered { status, retry_after, redirect, body, rotated }
    };
    let failed = |kind| AttemptResult::Failed(Failure { kind, text: "no answer".to_owned() });
    match how % 8 {
        0..3 => answered(200, None),
        3 => answered(503, None),
        4 => answered(503, Some(Duration::from_secs(30))),
        5 => answered(400, None),
        6 => failed(FailureKind::Connect),
        _ => failed(FailureKind::Timeout),
    }
}

pub(super) struct World<'a> {
    base: &'a Parts,
    pub(super) settings: EffectiveNotification,
    start: Instant,
    /// The time since the start.
    at: Duration,
    pub(super) server: Server,
    /// The leader is the last one. The process before it has lost the Lease, and its tasks continue.
    pub(super) processes: Vec<Process>,
    /// By serial: how often a receiver may have given a final answer, without redeliveries.
    pub(super) received: BTreeMap<i64, usize>,
    /// The serials for which this process or an earlier one got a final answer.
    pub(super) answered: BTreeSet<i64>,
    pub(super) restarts: usize,
    /// How many commands, events and ends of calls there were.
    moves: usize,
    wrong: Option<Wrong>,
    writes: usize,
    pub(super) reached: BTreeSet<&'static str>,
}

impl<'a> World<'a> {
    pub(super) fn new(base: &'a Parts, settings: &EffectiveNotification, wrong: Option<Wrong>) -> Self {
        Self {
            base,
            settings: settings.clone(),
            start: Instant::now(),
            at: Duration::ZERO,
            server: Server { notification: 1, recorded: Time::from_second(START).ok(), ..Server::default() },
            processes: Vec::new(),
            received: BTreeMap::new(),
            answered: BTreeSet::new(),
            restarts: 0,
            moves: 0,
            wrong,
            writes: 0,
            reached: BTreeSet::new(),
        }
    }

    fn now(&self) -> Now {
        let wall = Time::from_second(START).unwrap().checked_add(self.at).unwrap();
        Now { mono: self.start + self.at, wall, boot: self.at }
    }

    pub(super) fn leader(&self) -> usize {
        self.processes.len() - 1
    }

    fn older(&self, is_older: bool) -> usize {
        if is_older { 0 } else { self.leader() }
    }

    pub(super) fn step(&mut self, step: Step) -> Checked {
        self.at += Duration::from_millis(1);
        let (leader, now) = (self.leader(), self.now());
        match step {
            Step::Change(lane) => {
                self.server.change(lane);
                self.server.inform(&self.processes[leader].engine.parts.pipeline_index);
            }
            Step::Calm(rounds) => (0..rounds).try_for_each(|_| self.round())?,
            Step::Dispatch => self.processes[leader].dispatch(&mut self.server),
            Step::Command => _ = self.command(leader)?,
            Step::Watch(is_older) => _ = self.watch(self.older(is_older))?,
            Step::End(is_older, which, how) => self.end(self.older(is_older), which, how)?,
            Step::Time => self.time()?,
            Step::Persist => self.persist()?,
            Step::Delete(number) => self.server.user_deletes(number),
            Step::Redeliver(number) => self.server.user_redelivers(number, now),
            Step::Edit(setting) => self.edit(setting),
            Step::Replace(thing, is_true) => self.replace(thing, is_true),
            Step::Learn => self.learn(),
            Step::List => self.processes[leader].list(&self.server),
            Step::Lease(is_short) => self.lease(is_short)?,
            Step::Forge(number, forged) => {
                let is_whole = self.settings.delivery.ordering == Ordering::Pipeline;
                let serial = self.server.forge(number, is_whole, forged, now);
                self.answered.extend(serial.filter(|_| forged.is_settled));
            }
            Step::Quota(is_full) => self.server.is_full = is_full,
            Step::Late(is_applied) => {
                if let Some(call) = self.server.flying.pop_front().filter(|_| is_applied) {
                    self.server.apply(call, now);
                }
            }
            Step::Kill => self.restart(true)?,
            Step::HandOver => self.restart(false)?,
            Step::Stop => {
                self.processes[leader].is_stopped = true;
                self.on(leader, Input::Stop)?;
            }
        }
        Ok(())
    }

    /// Gives an engine an input, and starts the tasks that it wants. Returns whether there were any.
    pub(super) fn on(&mut self, n: usize, input: Input) -> Result<bool, TestCaseError> {
        let now = self.now();
        let mut has_started = false;
        for effect in self.processes[n].engine.on(input, now) {
            match effect {
                Effect::Start(task) => {
                    has_started = true;
                    self.begin(n, task)?;
                }
                Effect::Listed(_) => self.processes[n].is_loaded = n == self.leader(),
                _ => {}
            }
        }
        Ok(has_started)
    }

    fn begin(&mut self, n: usize, mut task: Task) -> Checked {
        match &task {
            Task::Attempt { turn, record, .. } => self.requested(n, &turn.lane, record)?,
            Task::Record(..) => _ = self.reached.insert("recorded while it is attempted"),
            Task::Supersede(..) => _ = self.reached.insert("superseded"),
            Task::Reopen(..) => _ = self.reached.insert("reopened"),
            Task::Cancel { sure: true, .. } => _ = self.reached.insert("canceled"),
            Task::Cancel { sure: false, .. } => _ = self.reached.insert("canceled after a live read"),
            Task::ReadMissing { .. } => _ = self.reached.insert("missing from a list"),
            Task::Expel { id, .. } => {
                let serial = self.server.find(id).map(|object| object.spec.serial);
                self.reached.insert("foreign");
                let server = &self.server;
                let is_other = |serial| server.deleted.contains_key(&serial) || server.forged.contains(&serial);
                let is_removed = serial.is_none_or(|serial| is_other(serial) || server.is_dead(serial));
                prop_assert!(is_removed, "a Delivery that Relaybook has recorded counts as foreign: {serial:?}");
            }
            _ => {}
        }
        match &mut task {
            Task::Cancel { sure, .. } => *sure |= self.wrong == Some(Wrong::CanceledUnread),
            Task::ReadMissing { source, term, absent } if self.wrong == Some(Wrong::MissingUnread) => {
                let done = Done::Missing { source: *source, term: *term, gone: std::mem::take(absent) };
                self.processes[n].jobs.push(Job::Ended(Box::new(done)));
                return Ok(());
            }
            _ => {}
        }
        let jobs = &mut self.processes[n].jobs;
        if let Task::Write { key, decided, .. } = &task {
            self.writes += 1;
            if self.wrong == Some(Wrong::LostEffect) && self.writes == 1 {
                return Ok(());
            }
            let (record, status, after) = decided.parts();
            if self.wrong == Some(Wrong::NextBeforeOutcome) && matches!(after, After::Settled { .. }) {
                let record = Record { status: status.clone(), ..record.clone() };
                let worked = Worked { record, after, gone: false, instead: None, is_written: true };
                jobs.push(Job::Ended(Box::new(Done::Worked(key.clone(), Box::new(worked)))));
                let Task::Write { decided, .. } = task else { return Ok(()) };
                jobs.push(Job::Store(For::Nobody, decided));
                return Ok(());
            }
        }
        let job = Job::of(task, self.now());
        self.processes[n].jobs.push(job);
        Ok(())
    }

    fn command(&mut self, n: usize) -> Result<bool, TestCaseError> {
        let Some(command) = self.processes[n].commands.pop_front() else { return Ok(false) };
        self.moves += 1;
        self.on(n, Input::Command(command))?;
        Ok(true)
    }

    fn watch(&mut self, n: usize) -> Result<bool, TestCaseError> {
        let Some(event) = self.processes[n].next_event(&self.server) else { return Ok(false) };
        self.moves += 1;
        self.on(n, Input::Watched(0, event))?;
        Ok(true)
    }

    /// Ends one call or request. The engine learns of the end of a task at once, or later.
    fn end(&mut self, n: usize, which: usize, how: usize) -> Checked {
        self.at += Duration::from_millis(1);
        let jobs = &mut self.processes[n].jobs;
        if jobs.is_empty() {
            return Ok(());
        }
        self.moves += 1;
        let which = which % jobs.len();
        let job = match jobs.remove(which) {
            Job::Ended(done) => return self.on(n, Input::Done(*done)).map(drop),
            job => job,
        };
        let (fate, result, now) = (FATES[how % FATES.len()], result(how), self.now());
        if let Job::Attempt { record, .. } = &job
            && matches!(result.status(), Some(200 | 400))
        {
            self.answered.insert(record.spec.serial);
            if !record.again {
                *self.received.entry(record.spec.serial).or_default() += 1;
            }
        }
        match self.processes[n].proceed(job, &mut self.server, fate, result, now) {
            Some(Job::Ended(done)) if how.is_multiple_of(2) => _ = self.on(n, Input::Done(*done))?,
            Some(job) => self.processes[n].jobs.push(job),
            None => {}
        }
        Ok(())
    }

    /// Lets the time pass until the next timer is due. No engine wants to be called at the same time again if it starts nothing.
    fn time(&mut self) -> Checked {
        let next = self.processes.iter().filter_map(|process| process.engine.next_time()).min();
        let Some(next) = next else { return Ok(()) };
        self.at = self.at.max(next.saturating_duration_since(self.start));
        let now = self.now().mono;
        for n in 0..self.processes.len() {
            if self.processes[n].engine.next_time().is_some_and(|at| at <= now) {
                let has_started = self.on(n, Input::Tick)?;
                let next = self.processes[n].engine.next_time();
                prop_assert!(has_started || next.is_none_or(|at| at > now), "a timer is due again at once");
            }
        }
        Ok(())
    }

    fn persist(&mut self) -> Checked {
        let (leader, server) = (&self.processes[self.processes.len() - 1], &mut self.server);
        for serial in server.cursor + 1..=leader.cursor {
            let is_gone = server.deleted.contains_key(&serial) || server.is_dead(serial);
            let is_recorded = is_gone || server.objects.contains_key(&serial);
            prop_assert!(is_recorded, "the cursor has passed {serial}, which is not recorded");
        }
        if !server.existing.has_pipeline {
            return Ok(());
        }
        server.cursor = server.cursor.max(leader.cursor);
        server.notification = leader.uid;
        server.recorded = server.recorded.max(leader.engine.parts.delivery_index.newest(PIPELINE));
        server.inform(&leader.engine.parts.pipeline_index);
        Ok(())
    }

    /// Starts another process. The leader is killed, or it has lost the Lease and its tasks continue.
    pub(super) fn restart(&mut self, is_killed: bool) -> Checked {
        while self.processes.len() > usize::from(!is_killed) {
            let process = self.processes.remove(0);
            for job in &process.jobs {
                if let Job::Attempt { record, .. } = job
                    && !record.again
                {
                    *self.received.entry(record.spec.serial).or_default() += 1;
                }
                self.server.flying.extend(job.call());
            }
        }
        // Excluded, because it is a limit of the check (docs/redelivery.md).
        self.server.withdraw();
        self.restarts += 1;
        let mut process = Process::new(self.base, &self.settings, &self.server);
        process.is_early = self.wrong == Some(Wrong::CursorBeforeObject);
        self.processes.push(process);
        if !is_killed {
            self.processes[0].depose();
        }
        for n in 0..self.processes.len() {
            self.on(n, Input::Lease)?;
        }
        Ok(())
    }

    /// One call of each task, and all that waits for an engine. Everything succeeds.
    fn round(&mut self) -> Checked {
        let leader = self.leader();
        self.processes[leader].dispatch(&mut self.server);
        for n in 0..self.processes.len() {
            while self.command(n)? {}
            while self.watch(n)? {}
            for _ in 0..self.processes[n].jobs.len() {
                self.end(n, 0, 0)?;
            }
        }
        self.persist()
    }

    /// Continues without faults until nothing is left to do, and then checks the result.
    pub(super) fn drain(&mut self) -> Checked {
        self.server.is_full = false;
        if self.processes[self.leader()].is_stopped {
            self.restart(true)?;
        }
        if self.settings.suspend {
            self.edit(Setting::Suspend);
        }
        self.learn();
        self.learn();
        self.lease(false)?;
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            let before = self.moves;
            while let Some(call) = self.server.flying.pop_front() {
                let now = self.now();
                self.server.apply(call, now);
            }
            for n in 0..self.processes.len() {
                self.on(n, Input::Measure)?;
            }
            self.round()?;
            // In the first quiet round the dispatcher can have read an answer.
            quiet = if self.moves > before { 0 } else { quiet + 1 };
            if quiet < 2 {
                continue;
            }
            if self.processes.iter().all(|process| process.engine.next_time().is_none()) {
                return self.finished();
            }
            self.time()?;
        }
        Err(TestCaseError::fail("it does not come to rest"))
    }
}
