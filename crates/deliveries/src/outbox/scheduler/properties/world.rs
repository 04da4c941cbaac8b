//! A history as it runs: the processes, what is outside of them, and what is checked.
//!
//! In: [`Step`]s. Out: what is wrong. Each check of a request is made when it starts, and each check of the cursor when it is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::process::{For, Job, Process};
use super::server::{Fate, LANES, NAMESPACE, PIPELINE, Server};
use super::{Setting, Step, Wrong};
use crate::outbox::attempt::work::Worked;
use crate::outbox::lane::After;
use crate::outbox::lane::redeliver::wanted;
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::scheduler::effect::{Done, Effect, Input, Now, Task};
use crate::outbox::{Command, Parts, Scope};
use relaybook_api::{Outcome, Time};
use relaybook_egress::{AttemptResult, Failure, FailureKind};
use relaybook_settings::config::{EffectiveNotification, Rate};

/// Maximum number of rounds until nothing is left to do after a history.
const ROUNDS: usize = 3000;
const FATES: [Fate; 7] =
    [Fate::Answered, Fate::Answered, Fate::Lost, Fate::Answered, Fate::Failed, Fate::Answered, Fate::Late];

type Checked = Result<(), TestCaseError>;

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
    settings: EffectiveNotification,
    start: Instant,
    /// The time since the start.
    at: Duration,
    server: Server,
    /// The leader is the last one. The process before it has lost the Lease, and its tasks continue.
    processes: Vec<Process>,
    /// By serial: how often a receiver may have given a final answer, without redeliveries.
    received: BTreeMap<i64, usize>,
    /// The serials for which this process or an earlier one got a final answer.
    answered: BTreeSet<i64>,
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
            server: Server::default(),
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
        let wall = Time::from_second(1_800_000_000).unwrap().checked_add(self.at).unwrap();
        Now { mono: self.start + self.at, wall, boot: self.at }
    }

    fn leader(&self) -> usize {
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
                self.server.log.push(lane);
                self.server.inform(&self.processes[leader].engine.parts.pipeline_index);
            }
            Step::Calm(rounds) => (0..rounds).try_for_each(|_| self.round())?,
            Step::Dispatch => self.processes[leader].dispatch(&self.server),
            Step::Command => _ = self.command(leader)?,
            Step::Watch(is_older) => _ = self.watch(self.older(is_older))?,
            Step::End(is_older, which, how) => self.end(self.older(is_older), which, how)?,
            Step::Time => self.time()?,
            Step::Persist => self.persist()?,
            Step::Delete(number) => self.server.user_deletes(number),
            Step::Redeliver(number) => self.server.user_redelivers(number, now),
            Step::Edit(setting) => self.edit(setting),
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
    fn on(&mut self, n: usize, input: Input) -> Result<bool, TestCaseError> {
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

    fn begin(&mut self, n: usize, task: Task) -> Checked {
        match &task {
            Task::Attempt { turn, record, .. } => self.requested(n, &turn.lane, record)?,
            Task::Record(..) => _ = self.reached.insert("recorded while it is attempted"),
            Task::Supersede(..) => _ = self.reached.insert("superseded"),
            Task::Reopen(..) => _ = self.reached.insert("reopened"),
            Task::Expel { id, .. } => {
                let serial = self.server.find(id).map(|object| object.spec.serial);
                let is_removed = serial.is_none_or(|serial| self.server.deleted.contains_key(&serial));
                prop_assert!(is_removed, "a Delivery that Relaybook has recorded counts as foreign: {serial:?}");
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
        let Some(job) = Job::of(task, &self.server, self.now()) else {
            return Err(TestCaseError::fail("it cancels a delivery"));
        };
        self.processes[n].jobs.push(job);
        Ok(())
    }

    /// Checks a request that starts now.
    fn requested(&mut self, n: usize, key: &LaneKey, record: &Record) -> Checked {
        let (server, process, serial) = (&self.server, &self.processes[n], record.spec.serial);
        prop_assert!(n == self.leader() && !process.is_stopped, "a process that may not send sends {serial}");
        let is_busy = process.jobs.iter().any(|job| job.lane() == Some(key));
        prop_assert!(!is_busy, "the lane of {serial} is in progress already");
        let is_kept = serial > server.cursor || server.objects.contains_key(&serial) || server.deleted.contains_key(&serial);
        prop_assert!(is_kept, "{serial} is sent, but neither the log nor an object contains it");
        let of = usize::try_from(serial - 1).ok().and_then(|at| server.log.get(at)).copied();
        let mut earlier = server.above(0).filter(|(other, lane)| *other < serial && Some(*lane) == of);
        let is_next = record.again || earlier.all(|(other, _)| server.is_settled(other));
        prop_assert!(is_next, "{serial} is sent before an earlier one of its lane is settled");
        self.reached.insert(if record.is_recorded() { "attempted" } else { "attempted directly" });
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
            let is_recorded = server.objects.contains_key(&serial) || server.deleted.contains_key(&serial);
            prop_assert!(is_recorded, "the cursor has passed {serial}, which is not recorded");
        }
        server.cursor = server.cursor.max(leader.cursor);
        server.recorded = server.recorded.max(leader.engine.parts.delivery_index.newest(PIPELINE));
        server.inform(&leader.engine.parts.pipeline_index);
        Ok(())
    }

    fn edit(&mut self, setting: Setting) {
        let settings = &mut self.settings;
        match setting {
            Setting::Suspend => settings.suspend = !settings.suspend,
            Setting::Supersede => settings.delivery.supersede = !settings.delivery.supersede,
            Setting::Rate => {
                let slow = Rate { per_second: NonZeroU32::MIN, burst: NonZeroU32::MIN };
                settings.delivery.rate = settings.delivery.rate.is_none().then_some(slow);
            }
        }
        let leader = self.processes.len() - 1;
        let process = &mut self.processes[leader];
        process.engine.parts.pipeline_index.put_notification(NAMESPACE, "deploys", self.settings.clone());
        let scope = Scope::Notification(NAMESPACE.to_owned(), "deploys".to_owned());
        process.commands.push_back(Command::Check(scope));
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
        self.processes[leader].dispatch(&self.server);
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

    /// Checks that nothing is lost, and that nothing waits.
    fn finished(&self) -> Checked {
        let server = &self.server;
        for (serial, _) in server.above(0).filter(|(serial, _)| !server.deleted.contains_key(serial)) {
            let object = server.objects.get(&serial);
            let outcome = object.and_then(|object| object.status.outcome);
            prop_assert!(outcome.is_some(), "{serial} has no outcome, and nothing is in progress: {object:?}");
            let is_received = outcome != Some(Outcome::Delivered) || self.answered.contains(&serial);
            prop_assert!(is_received, "{serial} counts as delivered, and no receiver has accepted it");
            prop_assert!(object.and_then(wanted).is_none(), "the redelivery of {serial} is missing");
        }
        for process in &self.processes {
            prop_assert!(process.is_idle(server), "a dispatcher or an engine waits for ever");
        }
        prop_assert_eq!(server.cursor, server.logged());
        for lane in 0..LANES {
            let changes = || server.above(0).filter(move |(_, of)| *of == lane).map(|(serial, _)| serial);
            let count = |of: &BTreeMap<i64, usize>, less: usize| -> usize {
                changes().filter_map(|serial| of.get(&serial)).map(|count| count.saturating_sub(less)).sum()
            };
            let repeated = count(&self.received, 1);
            // A user can delete a Delivery before the cursor is stored. After a crash it is recorded and sent again.
            let explained = self.restarts + count(&server.deleted, 0);
            prop_assert!(repeated <= explained, "{repeated} requests of lane {lane} were repeated");
            let last = changes().last().and_then(|serial| server.objects.get(&serial)).map(|object| object.status.outcome);
            prop_assert!(last != Some(Some(Outcome::Superseded)), "nothing later replaces the last one of lane {lane}");
        }
        Ok(())
    }
}
