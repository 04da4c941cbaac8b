//! Whatever becomes of a write, the log tells each change once: answers are lost, writes fail, the watch lags, and a consumer
//! takes what it finds.

use std::sync::Arc;

use proptest::prelude::*;

use super::memory::{Memory, taken};
use super::status::{Base, Gathered, Observed, next};
use super::target::source;
use crate::api::pipeline::{Cursor, Dispatched};
use crate::api::refs::AppRef;
use crate::api::target::TargetInfo;
use crate::api::{Pipeline, PipelineSpec, Settled, State, Status, Time};
use crate::changelog::{Verdict, settle};
use crate::clusters::{Now, Reading};
use crate::observe::{Observation, reader};

#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    AppliedAnswerLost,
    NotApplied,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The object says something.
    Say(Status, u8),
    /// The controller looks; if it writes, this becomes of it.
    Look(Fate),
    /// The watch delivers the newest object.
    Watch,
    /// The consumer takes what is in the log.
    Consume,
}

fn step() -> impl Strategy<Value = Step> {
    use Status::{Current, Failed, InProgress, NotFound, Terminating};
    let status = prop::sample::select(vec![Current, Current, InProgress, Failed, NotFound, Terminating]);
    let fate = prop::sample::select(vec![Fate::Answered, Fate::AppliedAnswerLost, Fate::NotApplied]);
    prop_oneof![
        4 => (status, 0..3_u8).prop_map(|(s, r)| Step::Say(s, r)),
        3 => fate.prop_map(Step::Look),
        1 => Just(Step::Watch),
        2 => Just(Step::Consume),
    ]
}

/// The controller, the API server, the object and the consumer.
struct World {
    target: TargetInfo,
    said: Vec<(u64, Observation)>,
    server: Pipeline,
    watched: Pipeline,
    memory: Memory,
    consumed: Vec<(State, State, bool)>,
    clock: i64,
}

impl World {
    fn new() -> Self {
        let name = "dev/c/web".to_owned();
        let app =
            AppRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into(), revision_path: None };
        let target = TargetInfo {
            environment: "dev".into(),
            namespace: "web".into(),
            cluster: "c".into(),
            cluster_ref: None,
            app,
            subject: format!("target/{name}"),
            name,
        };
        let mut server = Pipeline::new("p", PipelineSpec::default());
        server.metadata.uid = Some("u".into());
        server.metadata.generation = Some(1);
        server.metadata.resource_version = Some("1".into());
        let mut memory = Memory::new(server.metadata.uid.clone(), 1);
        memory.declare(Some(1), std::slice::from_ref(&target), 0);
        let watched = server.clone();
        Self { target, said: vec![], server, watched, memory, consumed: vec![], clock: 1 }
    }

    /// Changes the stored status as the API server would: one version on.
    fn store(&mut self, change: impl FnOnce(&mut Pipeline)) {
        change(&mut self.server);
        self.clock += 1;
        self.server.metadata.resource_version = Some(self.clock.to_string());
    }

    fn reading(&self) -> Reading {
        let after = self.memory.after(&self.target.subject, &source(&self.target));
        let now = self.said.last().map_or_else(|| crate::observe::observe(None, None), |(_, o)| o.clone());
        Reading {
            observations: self.said.iter().filter(|(seq, _)| *seq > after).cloned().collect(),
            now: Now::Known(now),
            seq: self.said.last().map_or(0, |(seq, _)| *seq),
            came: None,
            overflowed: false,
            cluster: String::new(),
        }
    }

    /// One turn of the loop that `reconcile` is. Whether something was sent.
    fn look(&mut self, fate: Fate) -> bool {
        if self.memory.is_uncertain() {
            self.memory.learn(self.server.clone());
        }
        let base = self.memory.newest(&Arc::new(self.watched.clone()));
        let observed: Vec<Observed> = vec![(self.target.clone(), self.reading())];
        let gathered = Gathered { targets: observed.clone(), clusters: Vec::new() };
        let known = Base { generation: Some(1), status: base.status.as_ref(), highest: self.memory.highest };
        let Some(next) = next(known, Ok(&gathered), Time::from_second(self.clock).unwrap()) else {
            self.memory.settle(taken(&observed));
            return false;
        };
        let serial = |p: &Pipeline| p.status.as_ref().and_then(|s| s.log.as_ref()).map(|l| l.serial);
        self.memory.sending(None, next.status.log.as_ref().unwrap().serial, taken(&observed));
        // What the patch tests.
        let fresh = match serial(&base) {
            None => base.metadata.resource_version == self.server.metadata.resource_version,
            some => some == serial(&self.server),
        };
        if !fresh || matches!(fate, Fate::NotApplied) {
            return true;
        }
        self.store(|server| {
            let dispatched = server.status.take().and_then(|s| s.dispatched);
            server.status = Some(crate::api::PipelineStatus { dispatched, ..next.status });
        });
        if matches!(fate, Fate::Answered) {
            self.memory.learn(self.server.clone());
        }
        true
    }

    fn consume(&mut self) {
        let Some(status) = self.server.status.clone() else { return };
        let Some(log) = status.log else { return };
        let from = status.dispatched.and_then(|d| d.cursors.first().map(|c| c.serial)).unwrap_or(log.first);
        self.consumed.extend(
            log.changes
                .iter()
                .filter(|c| c.serial > from && c.subject == self.target.subject)
                .map(|c| (c.from.clone(), c.to.clone(), c.coalesced)),
        );
        let cursors = vec![Cursor { serial: log.serial, ..Cursor::default() }];
        self.store(|server| {
            if let Some(status) = server.status.as_mut() {
                status.dispatched = Some(Dispatched { cursors, ..Dispatched::default() });
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_change_is_told_once(steps in prop::collection::vec(step(), 0..60)) {
        let mut world = World::new();
        let mut settled: Option<Settled> = None;
        let mut happened: Vec<(State, State)> = Vec::new();
        let rules = reader("apps/v1", "Deployment", None);
        let mut counted = 0;
        // First sight, safely stored; it is what later changes are told against.
        while world.look(Fate::Answered) {}
        let end = [Step::Look(Fate::Answered); 4].into_iter().chain([Step::Consume]);
        for step in steps.into_iter().chain(end) {
            match step {
                Step::Say(status, revision) => {
                    let seq = world.said.len() as u64 + 1;
                    let revision = format!("v{revision}");
                    let obs = Observation { status, revision: revision.clone(), attempted_revision: revision, ..Default::default() };
                    world.said.push((seq, obs));
                }
                Step::Look(fate) => { world.look(fate); }
                Step::Watch => world.watched = world.server.clone(),
                Step::Consume => world.consume(),
            }
            let first = crate::observe::observe(None, None);
            let all: Vec<Observation> = std::iter::once(first).chain(world.said.iter().map(|(_, o)| o.clone())).collect();
            for obs in &all[counted..] {
                match settle(settled.as_ref(), obs, &rules, 0) {
                    Verdict::Ignored => {}
                    Verdict::Baseline(new) => settled = Some(new),
                    Verdict::Changed { from, to, settled: new } => {
                        happened.push((from, to));
                        settled = Some(new);
                    }
                }
            }
            counted = all.len();
        }
        prop_assert!(!world.look(Fate::Answered), "there is nothing left to write");
        if world.consumed.iter().any(|(_, _, coalesced)| *coalesced) {
            prop_assert_eq!(world.consumed.last().map(|c| &c.1), happened.last().map(|c| &c.1));
        } else {
            let told: Vec<(State, State)> = world.consumed.into_iter().map(|(from, to, _)| (from, to)).collect();
            prop_assert_eq!(told, happened);
        }
    }
}
