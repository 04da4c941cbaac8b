//! Property tests: the log contains each change once, whatever happens to a write. Answers are lost. Writes fail, or are applied long after
//! the controller stopped waiting. The watch lags. The consumer reads what is stored. A restarted controller continues from what is stored.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use proptest::prelude::*;

use super::write::tracker::{Attempt, WriteTracker, processed, serial};
use relaybook_api::pipeline::target::TargetInfo;
use relaybook_api::pipeline::{Cursor, Dispatched};
use relaybook_api::values::refs::AppRef;
use relaybook_api::{LogSubject, Pipeline, PipelineSpec, PipelineStatus, Settled, State, Status, Time};
use relaybook_core::changelog::{Verdict, settle};
use relaybook_core::observe::{Observation, reader};
use relaybook_core::pipeline::hooks::Keys;
use relaybook_core::pipeline::status::target::source;
use relaybook_core::pipeline::status::{Base, Gathered, Next, Observed, next};
use relaybook_core::reading::{Now, Reading};

#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    AppliedAnswerLost,
    NotApplied,
    /// The write is in flight until [`Step::Land`].
    Late,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The object has a new status.
    Say(Status, u8),
    /// The controller reconciles. If it writes, the write has this fate.
    Reconcile(Fate),
    /// The oldest write in flight is applied, if its tests pass.
    Land,
    /// The watch delivers the newest object.
    Watch,
    /// The controller is killed, and another one starts.
    Restart,
    /// The consumer reads the log.
    Consume,
}

fn step(restarts: u32) -> impl Strategy<Value = Step> {
    use Status::{Current, Failed, InProgress, NotFound, Terminating};
    let status = prop::sample::select(vec![Current, Current, InProgress, Failed, NotFound, Terminating]);
    let fate = prop::sample::select(vec![Fate::Answered, Fate::AppliedAnswerLost, Fate::NotApplied, Fate::Late]);
    prop_oneof![
        4 => (status, 0..3_u8).prop_map(|(s, r)| Step::Say(s, r)),
        3 => fate.prop_map(Step::Reconcile),
        1 => Just(Step::Land),
        1 => Just(Step::Watch),
        restarts => Just(Step::Restart),
        2 => Just(Step::Consume),
    ]
}

/// The controller, the API server, the object and the consumer.
struct World {
    target: TargetInfo,
    said: Vec<(u64, Observation)>,
    /// Sequence number of the last observation that the cache does not keep.
    forgotten: u64,
    server: Pipeline,
    watched: Pipeline,
    writes: WriteTracker,
    consumed: Vec<(State, State, bool)>,
    /// Writes in flight: the object that each write is based on, and the content of the write.
    flying: VecDeque<(Pipeline, Next)>,
    clock: i64,
}

/// Maximum number of writes in flight. It is below the number of writes that the tracker remembers.
const FLYING: usize = 4;

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
            name,
            ..TargetInfo::default()
        };
        let mut server = Pipeline::new("p", PipelineSpec::default());
        server.metadata.uid = Some("u".into());
        server.metadata.generation = Some(1);
        server.metadata.resource_version = Some("1".into());
        let mut writes = WriteTracker::new(server.metadata.uid.clone(), 1);
        writes.declare(Some(1), std::slice::from_ref(&target), 0, &HashMap::new(), 0, |_| false);
        let watched = server.clone();
        Self {
            target,
            said: vec![],
            forgotten: 0,
            server,
            watched,
            writes,
            consumed: vec![],
            flying: VecDeque::new(),
            clock: 1,
        }
    }

    /// Returns the world after these steps, when no write is in flight.
    fn after(steps: Vec<Step>) -> Self {
        let mut world = Self::new();
        // The first observation is stored. Later changes are compared with it.
        while world.pass(Fate::Answered) {}
        for step in steps {
            world.step(step);
        }
        world.end();
        world
    }

    /// Changes the stored object with a new resource version, as the API server does.
    fn store(&mut self, change: impl FnOnce(&mut Pipeline)) {
        change(&mut self.server);
        self.clock += 1;
        self.server.metadata.resource_version = Some(self.clock.to_string());
    }

    fn reading(&self) -> Reading {
        let after = self.writes.after(&self.target.name, &source(&self.target));
        let now = self.said.last().map_or_else(|| relaybook_core::observe::observe(None, None), |(_, o)| o.clone());
        Reading {
            observations: self.said.iter().filter(|(seq, _)| *seq > after.max(self.forgotten)).cloned().collect(),
            now: Now::Known(now),
            seq: self.said.last().map_or(0, |(seq, _)| *seq),
            changed_at: None,
            overflowed: false,
            cluster: String::new(),
            confirmed: String::new(),
        }
    }

    /// Runs one iteration of the loop in `reconcile`. Returns whether a write was sent.
    fn pass(&mut self, fate: Fate) -> bool {
        if self.writes.is_uncertain() {
            self.writes.learn(self.server.clone());
        }
        let (mut base, mut observed, mut found) = self.find();
        if found.as_ref().is_some_and(|next| next.merged) {
            self.writes.learn(self.server.clone());
            (base, observed, found) = self.find();
        }
        let Some(next) = found else {
            self.writes.settle(processed(&observed));
            return false;
        };
        self.writes.sending(Attempt::of(&base, &next.status, processed(&observed)));
        if !self.passes(&base, &next) {
            return true;
        }
        match fate {
            Fate::NotApplied => {}
            Fate::Late if self.flying.len() < FLYING => self.flying.push_back((Pipeline::clone(&base), next)),
            Fate::Late | Fate::Answered | Fate::AppliedAnswerLost => self.apply(next.status),
        }
        if matches!(fate, Fate::Answered) {
            self.writes.answered(self.server.clone());
        }
        true
    }

    /// Whether the tests of the patch pass.
    fn passes(&self, base: &Pipeline, next: &Next) -> bool {
        match serial(base) {
            Some(from) if !next.merged => Some(from) == serial(&self.server),
            _ => base.metadata.resource_version == self.server.metadata.resource_version,
        }
    }

    /// Returns the object that the write is based on, the readings, and the next status.
    fn find(&mut self) -> (Arc<Pipeline>, Vec<Observed>, Option<Next>) {
        let base = self.writes.newest(&Arc::new(self.watched.clone()));
        let observed: Vec<Observed> = vec![(self.target.clone(), self.reading())];
        let gathered = Gathered::of(observed.clone());
        let known = Base { pipeline: &base, promotions: Some(&[]), highest: self.writes.highest, keys: &Keys::Usable };
        let next = next(known, Ok(&gathered), Time::from_second(self.clock).unwrap());
        (base, observed, next)
    }

    fn apply(&mut self, status: PipelineStatus) {
        self.store(|server| {
            let dispatched = server.status.take().and_then(|s| s.dispatched);
            server.status = Some(PipelineStatus { dispatched, ..status });
        });
    }

    fn land(&mut self) {
        if let Some((from, next)) = self.flying.pop_front()
            && self.passes(&from, &next)
        {
            self.apply(next.status);
        }
    }

    /// Restarts the controller. Observations that were not written before are lost, except the last one.
    fn restart(&mut self) {
        self.watched = self.server.clone();
        self.writes = WriteTracker::new(self.server.metadata.uid.clone(), self.writes.term + 1);
        self.forgotten = self.said.len() as u64;
        // The object is listed again, possibly for another pipeline, so before this one requests it.
        if let Some((_, last)) = self.said.last().cloned() {
            self.said.push((self.forgotten + 1, last));
        }
        let seq = self.said.len() as u64;
        self.writes.declare(Some(1), std::slice::from_ref(&self.target), 0, &HashMap::new(), seq, |_| false);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Say(status, revision) => {
                let seq = self.said.len() as u64 + 1;
                let revision = format!("v{revision}");
                let obs =
                    Observation { status, revision: revision.clone(), attempted_revision: revision, ..Default::default() };
                self.said.push((seq, obs));
            }
            Step::Reconcile(fate) => drop(self.pass(fate)),
            Step::Land => self.land(),
            Step::Watch => self.watched = self.server.clone(),
            Step::Restart => self.restart(),
            Step::Consume => self.consume(),
        }
    }

    /// Completes everything that is in flight.
    fn end(&mut self) {
        while !self.flying.is_empty() {
            self.land();
        }
        self.step(Step::Watch);
        for _ in 0..4 {
            self.pass(Fate::Answered);
        }
        self.consume();
    }

    fn consume(&mut self) {
        let Some(status) = self.server.status.clone() else { return };
        let Some(log) = status.log else { return };
        let from = status.dispatched.and_then(|d| d.cursors.first().map(|c| c.serial)).unwrap_or(log.first);
        self.consumed.extend(
            log.changes
                .iter()
                .filter(|c| c.serial > from && LogSubject::parse(&c.subject) == self.target.log_subject())
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

/// The changes of the object, computed from one observation at a time.
#[derive(Default)]
struct Model {
    settled: Option<Settled>,
    happened: Vec<(State, State)>,
}

impl Model {
    fn take(&mut self, obs: &Observation) {
        match settle(self.settled.as_ref(), obs, &reader("apps/v1", "Deployment", None), 0) {
            Verdict::Ignored => {}
            Verdict::Baseline(new) | Verdict::Noted(new) => self.settled = Some(new),
            Verdict::Changed { from, to, settled } => {
                self.happened.push((from, to));
                self.settled = Some(settled);
            }
        }
    }

    /// Returns the model of all observations.
    fn of(said: &[(u64, Observation)]) -> Self {
        let mut model = Self::default();
        model.take(&relaybook_core::observe::observe(None, None));
        for (_, obs) in said {
            model.take(obs);
        }
        model
    }
}

fn is_decided(status: Status) -> bool {
    matches!(status, Status::Current | Status::Failed | Status::NotFound)
}

/// Returns status and revision. In a merged change, the other fields also describe the changes in between.
fn moved(state: &State) -> (Status, &str) {
    (state.status, &state.revision)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_change_is_logged_once(steps in prop::collection::vec(step(0), 0..60)) {
        let mut world = World::after(steps);
        prop_assert!(!world.pass(Fate::Answered), "there is nothing left to write");
        let happened = Model::of(&world.said).happened;
        if world.consumed.iter().any(|(_, _, coalesced)| *coalesced) {
            prop_assert_eq!(world.consumed.last().map(|c| &c.1), happened.last().map(|c| &c.1));
        } else {
            let told: Vec<(State, State)> = world.consumed.into_iter().map(|(from, to, _)| (from, to)).collect();
            prop_assert_eq!(told, happened);
        }
    }

    #[test]
    fn a_killed_controller_repeats_nothing_and_leaves_no_gap(steps in prop::collection::vec(step(1), 0..60)) {
        let mut world = World::after(steps);
        prop_assert!(!world.pass(Fate::Answered), "there is nothing left to write");
        let model = Model::of(&world.said);
        // `InProgress` can be a change for a controller that did not see that the object was already at this revision.
        let decided = |to: &State| is_decided(to.status);
        let told = world.consumed.iter().filter(|(_, to, _)| decided(to)).count();
        prop_assert!(told <= model.happened.iter().filter(|(_, to)| decided(to)).count(), "{:?}", world.consumed);
        for pair in world.consumed.windows(2) {
            prop_assert_eq!(moved(&pair[0].1), moved(&pair[1].0), "each change starts where the one before it ended");
        }
        // Whether `InProgress` counts depends on the state before it. The other states always count.
        if let Some((_, last)) = world.said.last()
            && is_decided(last.status)
        {
            let status = world.server.status.as_ref().unwrap();
            let stands = status.environments[0].targets[0].settled.as_ref().unwrap();
            let wanted = model.settled.unwrap();
            prop_assert_eq!((stands.status, &stands.revision), (wanted.status, &wanted.revision));
        }
    }
}
