//! A history as it runs: the processes, what is outside of them, and what is checked.
//!
//! In: [`Step`]s. Out: what is wrong. Each check of a request is made when it starts, and each check of the cursor when it is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::job::Job;
use super::messages::Messages;
use super::process::Process;
use super::server::{Fate, PIPELINE, Server};
use super::{Setting, Step, Wrong};
use crate::outbox::Parts;
use crate::outbox::attempt::decided::Decided;
use crate::outbox::engine::effect::{Done, Effect, Input, Now, Task};
use crate::outbox::engine::writes::{Answered, Kind};
use crate::outbox::lane::After;
use crate::outbox::store::journal::Written;
use relaybook_api::notification::Ordering;
use relaybook_api::{Outcome, Time, since_boot};
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
        AttemptResult::Answered { status, judged: None, retry_after, redirect, body, rotated }
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
    /// The time from boot to the start. The Lease counts from boot, too.
    boot: Duration,
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
    messages: Messages,
    /// How many commands, events and ends of calls there were.
    moves: usize,
    wrong: Option<Wrong>,
    was_wrong: bool,
    pub(super) reached: BTreeSet<&'static str>,
}

impl<'a> World<'a> {
    pub(super) fn new(base: &'a Parts, settings: &EffectiveNotification, wrong: Option<Wrong>) -> Self {
        Self {
            base,
            settings: settings.clone(),
            start: Instant::now(),
            boot: since_boot(),
            at: Duration::ZERO,
            server: Server { notification: 1, recorded: Time::from_second(START).ok(), ..Server::default() },
            processes: Vec::new(),
            received: BTreeMap::new(),
            answered: BTreeSet::new(),
            restarts: 0,
            messages: Messages::default(),
            moves: 0,
            wrong,
            was_wrong: false,
            reached: BTreeSet::new(),
        }
    }

    fn now(&self) -> Now {
        let wall = Time::from_second(START).unwrap().checked_add(self.at).unwrap();
        Now { mono: self.start + self.at, wall, boot: self.boot + self.at }
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
                self.server.inform(&self.processes[leader].parts.pipeline_index);
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
            Step::Quota(is_full) => {
                self.server.is_full = is_full;
                self.server.was_full |= is_full;
            }
            Step::Policy(is_strict) => self.server.is_strict = is_strict,
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
        for effect in self.processes[n].on(input, now) {
            match effect {
                Effect::Start(task) => {
                    has_started = true;
                    self.begin(n, task)?;
                }
                Effect::Listed(_) => self.processes[n].is_loaded = n == self.leader(),
                Effect::Answer(..) if self.is_first(Wrong::LostAnswer) => {}
                effect => prop_assert!(self.processes[n].carry_out(effect), "a command is answered twice"),
            }
        }
        Ok(has_started)
    }

    /// Returns whether the driver does this wrong now: at the first time.
    fn is_first(&mut self, wrong: Wrong) -> bool {
        let is_first = self.wrong == Some(wrong) && !self.was_wrong;
        self.was_wrong |= is_first;
        is_first
    }

    fn begin(&mut self, n: usize, task: Task) -> Checked {
        match &task {
            Task::Attempt { turn, record, before, .. } => {
                self.requested(n, &turn.lane, record)?;
                let done = self.messages.requested(&self.server, record, before)?;
                self.reached.extend(done);
            }
            Task::Write(write) => {
                let is_canceled = write.decided.status.outcome == Some(Outcome::Canceled);
                match write.kind {
                    Kind::Lane(_) if is_canceled => _ = self.reached.insert("canceled"),
                    Kind::Lane(_) => {}
                    Kind::Superseded(_) => _ = self.reached.insert("superseded"),
                    Kind::Reopened => _ = self.reached.insert("reopened"),
                    Kind::Pending => _ = self.reached.insert("recorded while it is attempted"),
                }
            }
            Task::Verify { .. } => _ = self.reached.insert("verified"),
            Task::ReadMissing { .. } => _ = self.reached.insert("missing from a list"),
            Task::Expel { id, .. } => {
                let serial = self.server.find(id).map(|object| object.spec.serial);
                self.reached.insert("foreign");
                let server = &self.server;
                let is_other = |serial| server.deleted.contains_key(&serial) || server.forged.contains(&serial);
                let is_removed = serial.is_none_or(|serial| is_other(serial) || server.is_dead(serial));
                prop_assert!(is_removed, "a Delivery that Relaybook has recorded counts as foreign: {serial:?}");
            }
        }
        let wrong = self.wrong;
        let job = match task {
            Task::Verify { lane, what, .. } if wrong == Some(Wrong::CanceledUnread) => {
                Job::Ended(Box::new(Done::Verified { lane, what, is_gone: Some(true) }))
            }
            Task::ReadMissing { source, term, absent } if wrong == Some(Wrong::MissingUnread) => {
                Job::Ended(Box::new(Done::Missing { source, term, gone: absent }))
            }
            Task::Write(write) if matches!(write.kind, Kind::Lane(_)) => {
                let Decided { record, status, after } = &write.decided;
                if self.is_first(Wrong::LostEffect) {
                    return Ok(());
                }
                let is_outcome = record.is_recorded() && matches!(after, After::Settled { .. });
                if wrong == Some(Wrong::NextBeforeOutcome) && is_outcome {
                    let stored = Written::Stored { version: record.version.clone(), status: Box::new(status.clone()) };
                    self.processes[n].jobs.push(Job::Unawaited(write.clone()));
                    Job::Ended(Box::new(Done::Answered(write, Answered::Patched(Ok(stored)))))
                } else {
                    Job::Write(write)
                }
            }
            task => Job::of(task, self.now()),
        };
        self.processes[n].jobs.push(job);
        Ok(())
    }

    fn command(&mut self, n: usize) -> Result<bool, TestCaseError> {
        let Some((ticket, command)) = self.processes[n].commands.pop_front() else { return Ok(false) };
        self.moves += 1;
        self.on(n, Input::Command(ticket, command))?;
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
        let mut thread = None;
        if let Job::Attempt { record, message, .. } = &job
            && matches!(result.status(), Some(200 | 400))
        {
            thread = (result.status() == Some(200)).then(|| self.messages.accepted(record, message.as_deref()));
            self.answered.insert(record.spec.serial);
            if !record.again {
                *self.received.entry(record.spec.serial).or_default() += 1;
            }
        }
        match self.processes[n].proceed(job, &mut self.server, fate, (result, thread), now) {
            Some(Job::Ended(done)) if how.is_multiple_of(2) => _ = self.on(n, Input::Done(*done))?,
            Some(job) => self.processes[n].jobs.push(job),
            None => {}
        }
        Ok(())
    }

    /// Lets the time pass until the next timer is due. No engine wants to be called at the same time again if it starts nothing.
    fn time(&mut self) -> Checked {
        let next = self.processes.iter().filter_map(Process::next_time).min();
        let Some(next) = next else { return Ok(()) };
        self.at = self.at.max(next.saturating_duration_since(self.start));
        let now = self.now().mono;
        for n in 0..self.processes.len() {
            if self.processes[n].next_time().is_some_and(|at| at <= now) {
                let has_started = self.on(n, Input::Tick)?;
                let next = self.processes[n].next_time();
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
        server.recorded = server.recorded.max(leader.parts.delivery_index.newest(PIPELINE));
        server.inform(&leader.parts.pipeline_index);
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
        (self.server.is_full, self.server.is_strict) = (false, false);
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
        for round in 0..ROUNDS {
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
            // The dispatcher repeats an offer that has failed until the pause of the write has passed.
            if quiet < 2 && round % 8 < 7 {
                continue;
            }
            if quiet >= 2 && self.processes.iter().all(|process| process.next_time().is_none()) {
                return self.finished();
            }
            self.time()?;
        }
        Err(TestCaseError::fail("it does not come to rest"))
    }
}
