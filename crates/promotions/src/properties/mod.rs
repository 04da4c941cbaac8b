//! Property tests: each promotion is started and requested at most once for each occasion, whatever happens. Answers are lost. Writes fail,
//! or are applied long after the controller stopped waiting. The watches lag. Processes are killed in the middle of a reconcile. Two replicas act
//! at the same time, which the Lease prevents. People approve, retry, delete, request and forge promotions.
//!
//! The reconcile, the index, and all decisions are the real ones. The rest is a model. Other steps happen before each call of a reconcile, so every
//! order of calls is tried.

mod carried;
mod outside;
mod server;
mod steps;

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;

use futures::FutureExt as _;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use proptest::prelude::*;

use super::Error;
use super::controller::index::Key;
use super::controller::reconcile::{self, Calls};
use relaybook_api::promotion::Phase;
use relaybook_api::{Pipeline, Promotion, PromotionSpec, PromotionStatus, Time};
use relaybook_core::promotion::pair::Pair;
use relaybook_core::promotion::plan::{Plan, counts, is_ended, is_new, plan};
use relaybook_core::promotion::policy::policy;
use relaybook_core::promotion::progress::{Progress, Task};
use relaybook_core::promotion::testing::{DEV, ENVIRONMENTS, PROD, STAGING};
use server::{Server, Write, last_step};
use steps::{FATES, Fate, Step, step};

/// Maximum number of steps of a history.
const STEPS: usize = 40;
/// Number of histories of each property.
const HISTORIES: u32 = 5_000;

fn steps(replicas: usize) -> impl Strategy<Value = Vec<Step>> {
    let one = (0..52_u8, 0..6_usize, 0..8_u8, prop::sample::select(FATES.to_vec()));
    prop::collection::vec(one.prop_map(move |choice| step(choice, replicas)), 0..=STEPS)
}

fn key() -> Key {
    Key { namespace: "team-a".into(), uid: "u".into() }
}

struct World(Mutex<Server>);

/// The calls of one reconcile of one replica.
struct Process<'a> {
    world: &'a World,
    replica: usize,
    lists: u64,
}

impl World {
    fn new(replicas: usize, steps: Vec<Step>) -> Self {
        Self(Mutex::new(Server::new(replicas, None, steps)))
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.0.lock()
    }

    fn step(&self, step: Step) {
        match step {
            Step::Reconcile(replica) => self.reconcile(replica),
            Step::Work(replica) => {
                self.step(Step::WatchPipelines(replica));
                self.step(Step::WatchPromotions(replica));
                self.reconcile(replica);
            }
            other => self.server().step(other),
        }
    }

    fn run(&self) {
        while let Some(step) = self.next() {
            self.step(step);
        }
    }

    fn next(&self) -> Option<Step> {
        self.server().script.pop_front()
    }

    fn reconcile(&self, replica: usize) {
        let seen = self.server().replicas[replica].index.seen(&key());
        let Some(seen) = seen else { return };
        if std::mem::replace(&mut self.server().replicas[replica].is_reconciling, true) {
            return;
        }
        let process = Process { world: self, replica, lists: seen.lists };
        let ended = reconcile::run(&process, "u", seen).now_or_never();
        assert!(ended.is_some(), "no call waits");
        let mut server = self.server();
        server.replicas[replica].is_reconciling = false;
        if server.replicas[replica].is_killed {
            server.restart(replica);
        }
    }

    /// Lets everything end without further faults, and then checks that nothing is left to do.
    fn drain(&self) {
        for _ in 0..40 {
            let before = self.server().version;
            for step in [Step::Land, Step::MirrorWatch, Step::Mirror, Step::WatchPipelines(0), Step::WatchPromotions(0)] {
                self.step(step);
            }
            self.step(Step::Reconcile(0));
            let server = self.server();
            if server.version == before && server.flying.is_empty() {
                return;
            }
        }
        self.server().violations.push("the writes do not end".to_owned());
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let server = self.server();
        prop_assert!(server.violations.is_empty(), "{:?}", server.violations);
        for (what, counts) in [("started", &server.started), ("requested", &server.requested)] {
            let twice = counts.iter().find(|(_, count)| **count > 1);
            prop_assert!(twice.is_none(), "{what} more than once: {twice:?}");
        }
        let mut logged = HashSet::new();
        for entry in &server.log {
            prop_assert!(logged.insert((&entry.uid, entry.step)), "{entry:?} was logged twice");
        }
        for environment in ENVIRONMENTS {
            let here = server.log.iter().filter(|entry| entry.environment == environment);
            let orders = here.map(|entry| (entry.wipes, entry.order));
            prop_assert!(orders.is_sorted(), "the log of {environment} is not in order: {:?}", server.log);
        }
        Ok(())
    }

    /// Checks that nothing is missing.
    fn check_end(&self) -> Result<(), TestCaseError> {
        let server = self.server();
        let all: Vec<&Promotion> = server.promotions.values().collect();
        for index in [STAGING, PROD] {
            let (environment, pair) = (ENVIRONMENTS[index], Pair::new(&server.pipeline, index).unwrap());
            let policy = policy(&server.pipeline.spec, index).unwrap();
            let plan = plan(&server.pipeline, index, &all);
            prop_assert!(!matches!(plan, Plan::Create(_)), "not created: {plan:?}");
            let here = all.iter().filter(|promotion| promotion.spec.environment == environment && counts(promotion));
            let open: Vec<_> = here.filter(|promotion| !is_new(promotion) && !is_ended(promotion)).collect();
            prop_assert!(open.len() <= 1, "several are open: {open:?}");
            let Some(open) = open.first() else { continue };
            if pair.not_observed().is_some() || pair.ready().is_none() || policy.suspend || policy.manual {
                continue;
            }
            let phase = open.status.as_ref().and_then(|status| status.phase);
            let reason = open.status.as_ref().map_or("", |status| status.reason.as_str());
            let is_done = phase.is_some_and(|phase| phase != Phase::Pending) || reason == "Soaking";
            prop_assert!(is_done, "nothing happens: {open:?}");
            let shown = pair.mirror().map(|mirror| (mirror.name.clone(), mirror.taken));
            prop_assert_eq!(shown, Some((open.name_any(), last_step(open))), "the log is behind");
        }
        Ok(())
    }
}

impl Process<'_> {
    /// Takes other steps first. Returns what happens to this call. A killed process makes no more calls.
    fn fate(&self) -> Option<Fate> {
        self.world.server().calls += 1;
        let fate = loop {
            match self.world.next() {
                None => break Fate::Answered,
                Some(Step::Fate(fate)) => break fate,
                Some(other) => self.world.step(other),
            }
        };
        (!self.world.server().replicas[self.replica].is_killed).then_some(fate)
    }

    fn read<T>(&self, read: impl FnOnce(&mut Server) -> T) -> Result<T, Error> {
        match self.fate() {
            Some(Fate::Answered) => Ok(read(&mut self.world.server())),
            _ => Err(Error::Conflict),
        }
    }

    fn apply<T>(&self, late: Write, apply: impl FnOnce(&mut Server) -> T) -> Result<T, Error> {
        let fate = self.fate();
        let mut server = self.world.server();
        match fate {
            Some(Fate::Answered) => return Ok(apply(&mut server)),
            Some(Fate::AppliedAnswerLost) => drop(apply(&mut server)),
            Some(Fate::Late) => server.flying.push_back(late),
            Some(Fate::NotApplied) | None => {}
        }
        Err(Error::Conflict)
    }
}

impl Calls for Process<'_> {
    fn now(&self) -> Time {
        self.world.server().now()
    }

    async fn pipeline(&self, _: &str) -> Result<Option<Pipeline>, Error> {
        self.read(|server| {
            let found = server.pipeline.clone();
            server.replicas[self.replica].index.learn_pipeline(self.lists, &found);
            Some(found).filter(|_| !server.is_gone)
        })
    }

    async fn promotion(&self, name: &str) -> Result<Option<Promotion>, Error> {
        self.read(|server| {
            let found = server.promotions.get(name).cloned();
            if let Some(found) = &found {
                server.replicas[self.replica].index.learn_promotion(self.lists, found);
            }
            found
        })
    }

    async fn create(&self, spec: &PromotionSpec) -> Result<Option<Promotion>, Error> {
        if self.world.server().refuses == Some(spec.environment.as_str()) {
            return Err(Error::Refused(spec.environment.clone()));
        }
        self.apply(Write::Create(spec.clone()), |server| {
            let stored = server.create(spec);
            server.replicas[self.replica].index.learn_promotion(self.lists, &stored);
            Some(stored)
        })
    }

    async fn write(&self, base: &Promotion, status: &PromotionStatus) -> Result<Option<Promotion>, Error> {
        self.apply(Write::Status(Box::new(base.clone()), Box::new(status.clone())), |server| server.write(base, status))
            .inspect(|stored| {
                let mut server = self.world.server();
                if let Some(stored) = stored {
                    server.replicas[self.replica].index.learn_promotion(self.lists, stored);
                    server.outside.note(self.replica, stored, base.status.as_ref());
                }
            })
    }

    fn progress(&self, promotion: &Promotion) -> Progress {
        self.world.server().outside.progress(self.replica, promotion)
    }

    async fn read_sent(&self, _: &Promotion) -> Result<(), Error> {
        self.read(|_| ())
    }

    fn start(&self, promotion: &Promotion, task: Task) -> Result<(), Error> {
        let mut server = self.world.server();
        if server.replicas[self.replica].is_killed || server.outside.leader != self.replica {
            return Err(Error::NotLeader);
        }
        let now = server.now();
        server.outside.start(self.replica, promotion, task, now);
        Ok(())
    }

    async fn delete(&self, base: &Promotion) -> Result<(), Error> {
        self.apply(Write::Delete(Box::new(base.clone())), |server| {
            if server.is_current(base) {
                server.remove(&base.name_any());
            }
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(HISTORIES))]

    #[test]
    fn each_occasion_is_promoted_at_most_once(steps in steps(1)) {
        let world = World::new(1, steps);
        world.run();
        world.check()?;
        world.drain();
        world.check()?;
        world.check_end()?;
    }

    #[test]
    fn two_leaders_at_once_promote_no_occasion_twice(steps in steps(2)) {
        let world = World::new(2, steps);
        world.run();
        world.check()?;
        world.drain();
        world.check()?;
        world.check_end()?;
    }
}

#[test]
fn a_pass_without_work_makes_no_call() {
    let world = World::new(1, Vec::new());
    let figures = || {
        let server = world.server();
        (server.calls, server.version)
    };
    world.step(Step::Reconcile(0));
    assert_eq!(figures().0, 0, "nothing is indicated");
    world.step(Step::Runs(DEV, 2));
    world.drain();
    let before = figures();
    assert!(before.0 > 0);
    world.drain();
    assert_eq!(figures(), before, "the promotion was requested");
}

#[test]
fn an_environment_whose_promotions_are_refused_stops_no_other() {
    let world = World::new(1, Vec::new());
    world.server().refuses = Some(ENVIRONMENTS[PROD]);
    world.step(Step::Runs(STAGING, 2));
    world.step(Step::Runs(DEV, 3));
    world.drain();
    let to: Vec<_> = world.server().requested.keys().map(|(environment, _)| environment.clone()).collect();
    assert_eq!(to, [ENVIRONMENTS[STAGING]]);
    world.server().refuses = None;
    world.drain();
    assert_eq!(world.server().requested.len(), 2, "it is tried again");
}

#[test]
fn a_revision_that_only_a_stale_watch_shows_is_not_promoted() {
    let world = World::new(1, Vec::new());
    world.step(Step::Runs(DEV, 2));
    world.step(Step::WatchPipelines(0));
    world.step(Step::Runs(DEV, 3));
    world.step(Step::Reconcile(0));
    let revisions: Vec<_> = world.server().promotions.values().map(|promotion| promotion.spec.revision.clone()).collect();
    assert_eq!(revisions, ["3"], "the watch shows 2");
}

#[test]
fn a_pipeline_is_gone_if_a_live_read_says_so() {
    let phase = |is_gone: bool| {
        let world = World::new(1, Vec::new());
        world.step(Step::Runs(DEV, 2));
        world.drain();
        {
            let mut server = world.server();
            let deleted = Event::Delete(server.pipeline.clone());
            server.replicas[0].pipelines.push_back(deleted);
            server.is_gone = is_gone;
        }
        world.step(Step::WatchPipelines(0));
        world.step(Step::Reconcile(0));
        let server = world.server();
        server.promotions.values().next().and_then(|promotion| promotion.status.as_ref()?.phase)
    };
    assert_eq!(phase(false), Some(Phase::Requested));
    assert_eq!(phase(true), Some(Phase::Withdrawn));
}

/// The properties above can fail: here the status forgets a promotion that was deleted, and keeps the occasion.
#[test]
fn a_second_request_is_detected_if_the_status_forgets_a_promotion() {
    let requested = |is_forgotten: bool| {
        let world = World::new(1, Vec::new());
        world.step(Step::Runs(DEV, 2));
        world.drain();
        let name = world.server().promotions.keys().next().cloned().unwrap();
        world.server().remove(&name);
        if is_forgotten {
            world.server().edit_environment(STAGING, |staging| staging.promotion = None);
        }
        world.drain();
        world.server().requested.values().copied().collect::<Vec<_>>()
    };
    assert_eq!(requested(false), [1]);
    assert_eq!(requested(true), [2]);
}
