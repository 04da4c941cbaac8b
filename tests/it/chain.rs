//! Tests the pure modules together, from observations to deliveries. Observations that are processed in batches, kills of either
//! controller and delayed passes of the dispatcher lead to the same deliveries as changes that are processed one by one. Deliveries that
//! are marked `coalesced` are the exception.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use proptest::prelude::*;
use relaybook_api::delivery::PipelineRef;
use relaybook_api::notification::Ordering;
use relaybook_api::pipeline::{Cursor, Dispatched, RunningTimer};
use relaybook_api::{ChangeLog, DeliverySpec, LogSubject, PipelineSpec, Settled, Status, Time};
use relaybook_core::changelog::{
    GroupId, Part, Verdict, append, compact, group_state, kept, open, prune, settle, settle_group,
};
use relaybook_core::observe::Observation;
use relaybook_deliveries::dispatch::derive::subjects::Subjects;
use relaybook_deliveries::dispatch::derive::{PipelineLog, Reached, Wants, derive};
use relaybook_settings::trigger::Triggers;
use serde_json::json;

const TARGETS: [&str; 2] = ["target/dev/c/a", "target/dev/c/b"];
const ENVIRONMENT: &str = "environment/dev";
/// Longer than the delay (`for`) of any trigger and its tolerance.
const REST: i64 = 120;

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a test has few steps")]
enum Step {
    /// An application object reports a state.
    Say(usize, Observation),
    /// The pipeline controller processes all observations, and writes the status.
    Look,
    /// The pipeline controller is killed. Of the unprocessed observations, only the latest of each target remain.
    ObserverDies,
    /// The dispatcher makes a pass.
    Pass,
    /// The dispatcher persists its cursor and timers.
    Persist,
    /// The dispatcher is killed.
    DispatcherDies,
    /// This number of seconds passes.
    Wait(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use Status::{Current, Failed, InProgress, NotFound};
    let status = prop::sample::select(vec![Current, Current, InProgress, Failed, NotFound]);
    let says = (status, 1..4_u8, prop::bool::weighted(0.3)).prop_map(|(status, revision, drifted)| Observation {
        status,
        revision: revision.to_string(),
        attempted_revision: revision.to_string(),
        drifted,
        ..Observation::default()
    });
    let step = prop_oneof![
        6 => (0..2_usize, says).prop_map(|(target, says)| Step::Say(target, says)),
        4 => Just(Step::Look),
        1 => Just(Step::ObserverDies),
        4 => Just(Step::Pass),
        2 => Just(Step::Persist),
        1 => Just(Step::DispatcherDies),
        3 => (1..40_i64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..60)
}

/// The status of a pipeline, and the state of both controllers.
struct World {
    settled: [Option<Settled>; 2],
    environment: Option<Settled>,
    log: ChangeLog,
    persisted: Dispatched,
    memory: Dispatched,
    now: i64,
    told: BTreeMap<(String, i64, String), DeliverySpec>,
    order: Vec<(String, i64, String)>,
    triggers: Triggers,
    subjects: Subjects,
    pipeline: PipelineRef,
}

impl World {
    fn new() -> Self {
        let spec: PipelineSpec = serde_json::from_value(json!({
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "environments": [{"name": "dev", "targets": [{"namespace": "a"}, {"namespace": "b"}]}],
        }))
        .unwrap();
        let triggers = serde_json::from_value::<Vec<_>>(json!([
            {"type": "Deployed"}, {"type": "Recovered"}, {"type": "Removed"}, {"type": "Failed", "for": "30s"},
            {"type": "Drifted", "for": "10s"}, {"type": "DriftCorrected"}, {"type": "EnvironmentReady", "for": "20s"},
        ]));
        let pipeline = PipelineRef { namespace: "team".into(), name: "shop".into(), uid: "u".into() };
        let log = open(at(0), None);
        let cursor = Cursor { notification: "hook".into(), serial: log.first, uid: "n".into(), ..Cursor::default() };
        let persisted = Dispatched { cursors: vec![cursor], ..Dispatched::default() };
        Self {
            settled: [None, None],
            environment: None,
            log,
            memory: persisted.clone(),
            persisted,
            now: 0,
            told: BTreeMap::new(),
            order: Vec::new(),
            triggers: Triggers::compile(&triggers.unwrap()).unwrap(),
            subjects: Subjects::new(&relaybook_api::Pipeline::new("p", spec), "c", &pipeline),
            pipeline,
        }
    }

    /// Applies these observations as the pipeline controller does, and writes the log.
    fn reconcile(&mut self, said: &[(usize, Observation)]) {
        let (now, since) = (at(self.now), 0);
        for (target, obs) in said {
            match settle(self.settled[*target].as_ref(), obs, "r", since) {
                Verdict::Ignored => continue,
                Verdict::Baseline(new) | Verdict::Noted(new) => self.settled[*target] = Some(new),
                Verdict::Changed { from, to, settled } => {
                    append(&mut self.log, LogSubject::parse(TARGETS[*target]), now, from, to);
                    self.settled[*target] = Some(settled);
                }
            }
            let parts = self.settled.iter().map(|settled| Part { settled: settled.as_ref(), seen: true });
            let of = GroupId { reader: "g", members: "" };
            match settle_group(self.environment.as_ref(), group_state(parts), of, since) {
                Verdict::Ignored => {}
                Verdict::Baseline(new) | Verdict::Noted(new) => self.environment = Some(new),
                Verdict::Changed { from, to, settled } => {
                    append(&mut self.log, LogSubject::parse(ENVIRONMENT), now, from, to);
                    self.environment = Some(settled);
                }
            }
        }
        prune(&mut self.log, Some(&self.persisted));
        let kept = kept(&self.log, Some(&self.persisted));
        compact(&mut self.log, &kept);
    }

    /// Makes a pass of the dispatcher. The deliveries that it records survive a kill.
    fn pass(&mut self) {
        let (labels, annotations, taken, based) = (Arc::default(), Arc::default(), HashMap::new(), HashMap::new());
        let of = PipelineLog {
            pipeline: &self.pipeline,
            labels: &labels,
            annotations: &annotations,
            subjects: &self.subjects,
            log: &self.log,
            based: &based,
        };
        let armed: Vec<RunningTimer> = self.memory.armed.clone();
        let from = Reached { cursor: &self.memory.cursors[0], taken: &taken, armed: &armed, timer_limit: 1000 };
        let derived = derive(&of, &from, |_| Wants::These(&self.triggers, Ordering::Target), at(self.now));
        for delivery in derived.lanes.into_iter().flatten() {
            let key = (delivery.lane.clone(), delivery.serial, delivery.type_.as_str().to_owned());
            // The first delivery with a name wins. Later ones with the same name are not recorded.
            if !self.told.contains_key(&key) {
                self.order.push(key.clone());
                self.told.insert(key, delivery);
            }
        }
        let cursor = &mut self.memory.cursors[0];
        cursor.serial = cursor.serial.max(derived.reached);
        self.memory.armed = derived.armed;
    }

    fn persist(&mut self) {
        self.persisted = self.memory.clone();
    }

    /// Returns the deliveries of a lane, in the order of the lane.
    fn lane(&self, lane: &str) -> Vec<&DeliverySpec> {
        let mut all: Vec<_> = self.told.values().filter(|d| d.lane == lane).collect();
        all.sort_by_key(|d| (d.order, d.due, d.serial, d.type_));
        all
    }
}

fn at(second: i64) -> Time {
    Time::from_second(1_763_711_200 + second).unwrap()
}

fn words(lane: &[&DeliverySpec]) -> Vec<String> {
    lane.iter().map(|d| format!("{} {} {}", d.serial, d.type_.as_str(), d.to.revision)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn batches_report_the_same_as_single_changes(steps in steps()) {
        let (mut one, mut all) = (World::new(), World::new());
        let mut said: Vec<(usize, Observation)> = Vec::new();
        let end = [Step::Look, Step::Pass, Step::Wait(REST), Step::Pass, Step::Persist, Step::Pass];
        for step in steps.into_iter().chain(end) {
            match step {
                Step::Say(target, obs) => said.push((target, obs)),
                Step::Look => {
                    all.reconcile(&said);
                    for one_of_them in said.drain(..) {
                        one.reconcile(&[one_of_them]);
                        one.pass();
                        one.persist();
                    }
                }
                Step::ObserverDies => {
                    let now = |target| said.iter().rfind(|(of, _)| *of == target).cloned();
                    said = [now(0), now(1)].into_iter().flatten().collect();
                }
                Step::Pass => all.pass(),
                Step::Persist => all.persist(),
                Step::DispatcherDies => all.memory = all.persisted.clone(),
                Step::Wait(seconds) => {
                    all.now += seconds;
                    // The reference makes a pass every second.
                    for _ in 0..seconds {
                        one.now += 1;
                        one.pass();
                        one.persist();
                    }
                }
            }
        }
        for lane in TARGETS.into_iter().chain([ENVIRONMENT]) {
            let (want, got) = (one.lane(lane), all.lane(lane));
            prop_assert!(want.iter().all(|d| !d.coalesced));
            if got.iter().all(|d| !d.coalesced) && !all.log.changes.iter().any(|c| c.coalesced) {
                prop_assert_eq!(words(&got), words(&want));
            }
            // A merge after a pass whose cursor was lost can give a change another meaning. Its deliveries are `coalesced`.
            let whole = |key: &&(String, i64, String)| key.0 == lane && !all.told[*key].coalesced;
            let recorded: Vec<_> = all.order.iter().filter(whole).map(|(_, serial, type_)| (*serial, type_.as_str())).collect();
            let sorted = got.iter().filter(|d| !d.coalesced).map(|d| (d.serial, d.type_.as_str()));
            prop_assert_eq!(recorded, sorted.collect::<Vec<_>>(), "recorded in the order of the lane");
        }
    }
}
