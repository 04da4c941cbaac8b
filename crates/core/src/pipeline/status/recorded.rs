//! Recordings of a real Fleet 0.16: three clusters, one line for each watch event that changes what is read (`tests/data/fleet`). The first
//! line says what happens. Each event is read, and processed as a reconcile does. The transitions are exactly those that happened, also if
//! Relaybook is restarted after any event.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use kube_core::DynamicObject;
use serde_json::{Value, json};

use super::apply::apply_all;
use super::target::application;
use super::*;
use crate::changelog::open;
use crate::meaning::transitions;
use crate::observe;
use crate::observe::{EventOrigin, Member, Observation, ReadObject, Relation, combine};
use crate::reading::Now;
use relaybook_api::pipeline::source::FleetCluster;
use relaybook_api::values::refs::AppRef;

/// Kind, namespace and name.
type Key = (String, String, String);

/// The state of an object after an event. `None`: it was deleted.
struct Event {
    key: Key,
    object: Option<DynamicObject>,
    /// Whether it was there before the recording.
    is_before: bool,
}

impl Event {
    fn parse(line: &Value) -> Self {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let labels = line["labels"].as_object().into_iter().flatten();
        let labels: BTreeMap<String, &Value> =
            labels.map(|(name, value)| (format!("fleet.cattle.io/{name}"), value)).collect();
        let object = json!({
            "apiVersion": "fleet.cattle.io/v1alpha1", "kind": line["kind"], "spec": line["spec"], "status": line["status"],
            "metadata": {"name": line["name"], "namespace": line["ns"], "generation": line["gen"], "labels": labels},
        });
        let object = (line["ev"] != "DELETED").then(|| serde_json::from_value(object).unwrap());
        Self { key: (text("kind"), text("ns"), text("name")), object, is_before: line["at"] == "before" }
    }
}

fn events(recording: &str) -> Vec<Event> {
    recording.lines().skip(1).map(|line| Event::parse(&serde_json::from_str(line).unwrap())).collect()
}

/// A pipeline whose targets are all objects of a recording.
struct World {
    targets: Vec<(Key, TargetInfo)>,
    objects: BTreeMap<Key, ReadObject>,
    status: PipelineStatus,
    offline: BTreeSet<ClusterRef>,
    passes: i64,
    told: BTreeMap<Key, Vec<String>>,
}

impl World {
    fn new(events: &[Event]) -> Self {
        let keys: BTreeSet<&Key> = events.iter().map(|event| &event.key).collect();
        let target = |key: &Key| {
            let (kind, namespace, name) = key.clone();
            let full = format!("all/{namespace}/{kind}/{name}");
            let app = AppRef { api_version: "fleet.cattle.io/v1alpha1".into(), kind, name, revision_path: None };
            (key.clone(), TargetInfo { environment: "all".into(), namespace, app, name: full, ..TargetInfo::default() })
        };
        let targets: Vec<_> = keys.into_iter().map(target).collect();
        let objects = targets.iter().map(|(key, _)| (key.clone(), ReadObject::nothing())).collect();
        let status = PipelineStatus { log: Some(open(Time::UNIX_EPOCH, Some(1))), ..PipelineStatus::default() };
        Self { targets, objects, status, offline: BTreeSet::new(), passes: 0, told: BTreeMap::new() }
    }

    /// The watch delivers an event.
    fn deliver(&mut self, event: &Event, origin: EventOrigin) {
        let mut read = observe::see(event.object.as_ref(), None, None);
        let before = self.objects.get(&event.key).and_then(|before| before.relation.as_ref());
        let origin = if before.is_none() && origin == EventOrigin::Changed { EventOrigin::Created } else { origin };
        read.relation = read.relation.map(|relation| relation.following(before, origin));
        self.objects.insert(event.key.clone(), read);
        self.pass();
    }

    /// Events happen while Relaybook is stopped.
    fn miss(&mut self, events: &[Event]) {
        for event in events {
            self.objects.insert(event.key.clone(), observe::see(event.object.as_ref(), None, None));
        }
    }

    /// Relaybook starts again: it lists all objects, and has nothing but its status.
    fn restart(&mut self) {
        for read in self.objects.values_mut() {
            read.relation = read.relation.take().map(|relation| relation.following(None, EventOrigin::Listed));
        }
        self.status = serde_json::from_value(serde_json::to_value(&self.status).unwrap()).unwrap();
        self.pass();
    }

    /// Returns the observation of each object together with its Bundles, and the identifier of its confirmed label.
    fn observe(&mut self) -> Vec<(Observation, String)> {
        let part = |read: &ReadObject| read.relation.as_ref().and_then(Relation::as_part).cloned();
        let parts: Vec<_> = self
            .objects
            .iter()
            .filter_map(|(key, read)| Some((key.2.clone(), read.observation.clone(), part(read)?)))
            .collect();
        let mut all = Vec::new();
        for (key, _) in &self.targets {
            let read = self.objects.get_mut(key).unwrap();
            all.push(match &mut read.relation {
                Some(Relation::Parent(parent)) => {
                    let family = parent.family().clone();
                    let mine = parts.iter().filter(|(.., part)| part.families().contains(&family));
                    let members: Vec<_> = mine.map(|(name, said, part)| Member { name, read: Some((said, part)) }).collect();
                    let said = combine(parent, &members);
                    (said, parent.confirmed().unwrap_or_default())
                }
                _ => (read.observation.clone(), String::new()),
            });
        }
        all
    }

    /// Relaybook reconciles the pipeline.
    fn pass(&mut self) {
        let said = self.observe();
        self.passes += 1;
        let reading = |(now, confirmed): (Observation, String)| Reading {
            observations: vec![],
            now: Now::Known(now),
            seq: u64::try_from(self.passes).unwrap() * 1_000_000,
            changed_at: None,
            overflowed: false,
            cluster: String::new(),
            confirmed,
        };
        let targets = self.targets.iter().zip(said).map(|((_, target), said)| (target.clone(), reading(said))).collect();
        let offline = |cluster: &ClusterRef| ClusterReading {
            cluster_ref: cluster.clone(),
            reachability: Reachability::Offline,
            is_reported: true,
        };
        let gathered = Gathered { clusters: self.offline.iter().map(offline).collect(), ..Gathered::of(targets) };
        let mut log = self.status.log.take().unwrap();
        let now = Time::from_second(self.passes).unwrap();
        let applied = apply_all(&gathered, &self.status, true, &mut log, now);
        (self.status.environments, self.status.settled) = (applied.environments, applied.settled);
        for change in std::mem::take(&mut log.changes) {
            let LogSubject::Target(name) = LogSubject::parse(&change.subject) else { continue };
            let (key, _) = self.targets.iter().find(|(_, target)| target.name == name).unwrap();
            let revision = change.to.revision.get(..6).unwrap_or(&change.to.revision);
            let named = transitions(&change).map(|of| format!("{} {revision}", of.as_str()).trim_end().to_owned());
            self.told.entry(key.clone()).or_default().extend(named);
        }
        self.status.log = Some(log);
    }

    /// The status that the pipeline shows of an object.
    fn shown(&self, key: &Key) -> &TargetStatus {
        let (_, info) = self.targets.iter().find(|(of, _)| of == key).unwrap();
        let mut targets = self.status.environments.iter().flat_map(|environment| &environment.targets);
        targets.find(|target| target.cluster_app_ref == application(info)).unwrap()
    }

    /// Starts Relaybook before a recording.
    fn start(events: &[Event]) -> Self {
        let mut world = Self::new(events);
        world.miss(&events[..first(events)]);
        world.restart();
        world
    }

    /// The watch delivers these events. `restarts`: whether Relaybook is restarted after the event of this number. What has failed stays failed
    /// then.
    fn play(&mut self, events: &[Event], restarts: impl Fn(usize) -> bool) {
        for (number, event) in events.iter().enumerate() {
            self.deliver(event, EventOrigin::Changed);
            if restarts(number) {
                let keys: Vec<Key> = self.targets.iter().map(|(key, _)| key.clone()).collect();
                let failed: Vec<Key> = keys.into_iter().filter(|key| self.shown(key).status == Status::Failed).collect();
                self.restart();
                for key in failed {
                    assert_eq!(self.shown(&key).status, Status::Failed, "{key:?} after event {number}");
                }
            }
        }
    }

    /// Replays a recording.
    fn replay(events: &[Event], restarts: impl Fn(usize) -> bool) -> Self {
        let mut world = Self::start(events);
        world.play(&events[first(events)..], restarts);
        world
    }
}

/// The number of the first event that is not from before the recording.
fn first(events: &[Event]) -> usize {
    events.iter().take_while(|event| event.is_before).count()
}

/// The transitions of each object of a recording, as `KIND NAMESPACE/NAME: TRANSITION, …`.
fn told(world: &World) -> Vec<String> {
    let lines = world.targets.iter().map(|(key, _)| {
        let told = world.told.get(key).map(|all| all.join(", ")).unwrap_or_default();
        format!("{} {}/{}: {told}", key.0, key.1.trim_start_matches("cluster-fleet-default-"), key.2)
    });
    lines.collect()
}

/// Replays a recording, and again with a restart after each of its events.
fn check(events: &[Event], expected: &[&str]) {
    assert_eq!(told(&World::replay(events, |_| false)), expected, "without a restart");
    assert_eq!(told(&World::replay(events, |_| true)), expected, "with a restart after every event");
    for restart in 0..events.len() {
        assert_eq!(
            told(&World::replay(events, |number| number == restart)),
            expected,
            "with a restart after event {restart}"
        );
    }
}

macro_rules! recording {
    ($name:literal) => {
        events(include_str!(concat!("../../../../../tests/data/fleet/", $name, ".jsonl")))
    };
}

#[test]
fn a_deployment_that_is_refused_fails_once_and_the_next_one_is_not_blamed_for_it() {
    let each = "Progressing eff2cb, Failed eff2cb, Progressing 060bac, Deployed 060bac";
    let all = ["Bundle fleet-default", "BundleDeployment c1", "BundleDeployment c2", "BundleDeployment c3"];
    let mut all: Vec<String> = all.map(|of| format!("{of}/shop-db: {each}")).into();
    all.push(format!("GitRepo fleet-default/shop: {each}"));
    check(&recording!("deployed-false-then-fixed"), &all.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_chart_that_is_not_installed_fails() {
    let each = "Progressing 197d4d, Failed 197d4d, Progressing da6233, Deployed da6233";
    let all = ["Bundle fleet-default", "BundleDeployment c1", "BundleDeployment c2", "BundleDeployment c3"];
    let mut all: Vec<String> = all.map(|of| format!("{of}/shop-db: {each}")).into();
    all.push(format!("GitRepo fleet-default/shop: {each}"));
    check(&recording!("installed-false"), &all.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_deployment_that_never_gets_ready_fails_and_drift_is_reported() {
    let fails = "Progressing 1f81d4, Failed 1f81d4, Progressing 7fff62, Deployed 7fff62";
    let drifts = "Drifted 7fff62, DriftCorrected 7fff62, Drifted 7fff62";
    check(
        &recording!("never-ready"),
        &[
            &format!("Bundle fleet-default/shop-web: {fails}, {drifts}"),
            &format!("BundleDeployment c1/shop-web: {fails}, {drifts}"),
            &format!("BundleDeployment c2/shop-web: {fails}"),
            &format!("BundleDeployment c3/shop-web: {fails}"),
            &format!("GitRepo fleet-default/shop: {fails}, {drifts}"),
        ],
    );
}

#[test]
fn a_new_repository_is_deployed_when_its_bundles_are() {
    let each = "Added 915599, Progressing 915599, Deployed 915599";
    let bundle = |of: &str| format!("{of}: {each}");
    check(
        &recording!("new-gitrepo"),
        &[
            &bundle("Bundle fleet-default/shop-db"),
            &bundle("Bundle fleet-default/shop-web"),
            &bundle("BundleDeployment c1/shop-db"),
            &bundle("BundleDeployment c1/shop-web"),
            &bundle("BundleDeployment c2/shop-db"),
            &bundle("BundleDeployment c2/shop-web"),
            &bundle("BundleDeployment c3/shop-db"),
            &bundle("BundleDeployment c3/shop-web"),
            "GitRepo fleet-default/shop: Added, Progressing, Progressing 915599, Deployed 915599",
        ],
    );
}

#[test]
fn a_failure_in_the_first_partition_is_reported_where_it_happens() {
    check(
        &recording!("partition-blocked"),
        &[
            "Bundle fleet-default/shop-web: Progressing e4f170, Failed e4f170",
            "BundleDeployment c1/shop-web: Progressing e4f170, Failed e4f170",
            "BundleDeployment c2/shop-web: Progressing e4f170",
            "BundleDeployment c3/shop-web: Progressing e4f170",
            "GitRepo fleet-default/shop: Progressing e4f170, Failed e4f170",
        ],
    );
}

#[test]
fn a_success_is_reported_while_another_cluster_is_offline() {
    check(
        &recording!("max-unavailable-one-offline"),
        &[
            "Bundle fleet-default/shop-web: Progressing b72047",
            "BundleDeployment c1/shop-web: Progressing b72047, Deployed b72047",
            "BundleDeployment c2/shop-web: Progressing b72047, Deployed b72047",
            "BundleDeployment c3/shop-web: Progressing b72047",
            "GitRepo fleet-default/shop: Progressing b72047",
        ],
    );
}

/// The first modification is corrected by Fleet, so it is no drift. The second one is not.
const TWICE: [&str; 5] = [
    "Bundle fleet-default/shop-db: Progressing 4eb828, Failed 4eb828, Progressing d79aa5, Progressing 691c8d, \
     Deployed 691c8d, Drifted 691c8d",
    "BundleDeployment c1/shop-db: Progressing 4eb828, Failed 4eb828, Progressing d79aa5, Progressing 691c8d, \
     Deployed 691c8d, Drifted 691c8d",
    "BundleDeployment c2/shop-db: Progressing 4eb828, Failed 4eb828, Progressing d79aa5, Progressing 691c8d, Deployed 691c8d",
    "BundleDeployment c3/shop-db: Progressing 4eb828, Failed 4eb828, Progressing d79aa5, Progressing 691c8d, Deployed 691c8d",
    "GitRepo fleet-default/shop: Progressing 4eb828, Failed 4eb828, Progressing d79aa5, Progressing 691c8d, \
     Deployed 691c8d, Drifted 691c8d",
];

#[test]
fn an_error_that_does_not_change_is_no_failure_of_the_next_commits() {
    check(&recording!("same-error-twice-agent-down"), &TWICE);
}

#[test]
fn a_targeting_error_fails_with_the_words_of_fleet() {
    let each = "Progressing e5b7a6, Failed e5b7a6";
    check(
        &recording!("targeting-error"),
        &[
            &format!("Bundle fleet-default/shop-db: {each}"),
            "BundleDeployment c1/shop-db: ",
            "BundleDeployment c2/shop-db: ",
            "BundleDeployment c3/shop-db: ",
            &format!("GitRepo fleet-default/shop: {each}"),
        ],
    );
    let events = recording!("targeting-error");
    let world = World::replay(&events, |_| false);
    for kind in ["Bundle", "GitRepo"] {
        let key = events.iter().map(|event| &event.key).find(|key| key.0 == kind).unwrap();
        assert!(world.shown(key).message.contains("targeting error: cluster c3"), "{}", world.shown(key).message);
    }
}

/// The recording begins during the outage and has no Bundles. So the state before it is added, and a Bundle for each repository.
#[test]
fn an_outage_of_the_git_server_ends_with_the_next_poll() {
    let recorded = recording!("git-server-outage");
    let mut events = Vec::new();
    for event in recorded.iter().filter(|event| event.is_before) {
        let mut online = event.object.clone().unwrap();
        let commit = online.data["status"]["commit"].clone();
        online.data["status"]["conditions"] = json!([{"type": "GitPolling", "status": "True"}]);
        events.push(Event { key: event.key.clone(), object: Some(online), is_before: true });
        events.push(Event::parse(&json!({
            "at": "before", "ev": "MODIFIED", "kind": "Bundle", "ns": event.key.1, "name": "shop-web", "gen": 1,
            "labels": {"repo-name": "shop", "commit": commit},
            "status": {"observedGeneration": 1, "summary": {"desiredReady": 3, "ready": 3}},
        })));
    }
    events.extend(recorded.into_iter().map(|event| Event { is_before: false, ..event }));
    check(
        &events,
        &[
            "Bundle fleet-default/shop-web: ",
            "Bundle fleet-two/shop-web: ",
            "GitRepo fleet-default/shop: Failed af85f9, Recovered af85f9",
            "GitRepo fleet-two/shop: Failed 75ab08, Recovered 75ab08",
        ],
    );
}

/// Replays a recording of which Relaybook misses some events. `offline`: the cluster whose agent is offline then, until it writes a status.
fn with_gap(events: &[Event], gap: &Range<usize>, offline: Option<&str>) -> World {
    let mut world = World::start(events);
    world.play(&events[first(events)..gap.start], |_| false);
    world.miss(&events[gap.clone()]);
    for (key, target) in world.targets.iter_mut().filter(|(key, _)| offline.is_some_and(|name| key.1.ends_with(name))) {
        let cluster = FleetCluster { namespace: "fleet-default".into(), name: key.1.clone() };
        target.cluster_ref = Some(cluster.reference());
        world.offline.extend(target.cluster_ref.clone());
    }
    world.restart();
    let reports = |event: &Event| offline.is_none_or(|name| event.key.1.ends_with(name));
    let back = events[gap.end..].iter().position(reports).map_or(events.len(), |after| gap.end + after);
    world.play(&events[gap.end..back], |_| false);
    world.offline.clear();
    world.play(&events[back..], |_| false);
    world
}

#[test]
fn no_false_success_is_reported_whichever_events_are_missed() {
    for events in [
        recording!("deployed-false-then-fixed"),
        recording!("installed-false"),
        recording!("max-unavailable-one-offline"),
        recording!("never-ready"),
        recording!("partition-blocked"),
        recording!("same-error-twice-agent-down"),
        recording!("targeting-error"),
    ] {
        let happened = World::replay(&events, |_| false);
        let successes = |world: &World, key: &Key| -> BTreeSet<String> {
            let told = world.told.get(key).into_iter().flatten().map(|told| told.replace("Recovered", "Deployed"));
            told.filter(|told| told.starts_with("Deployed")).collect()
        };
        for from in first(&events)..events.len() {
            for to in (from + 1..=(from + 4).min(events.len())).chain([events.len()]) {
                let world = with_gap(&events, &(from..to), None);
                for (key, _) in &world.targets {
                    let (told, real) = (successes(&world, key), successes(&happened, key));
                    assert!(told.is_subset(&real), "{key:?} without {from}..{to}: {told:?}");
                }
            }
        }
    }
}

/// Relaybook is stopped before the first failure, until the agent of c3 is away and has not processed the third commit.
#[test]
fn an_error_of_an_agent_that_is_offline_is_not_new() {
    let events = recording!("same-error-twice-agent-down");
    let at = |place: &str, commit: &str| {
        let found = events.iter().position(|event| {
            let labels = event.object.as_ref().and_then(|object| object.metadata.labels.as_ref());
            let label = labels.and_then(|labels| labels.get("fleet.cattle.io/commit"));
            event.key.1.ends_with(place) && label.is_some_and(|label| label.starts_with(commit))
        });
        found.unwrap()
    };
    let gap = at("c1", "4eb828")..at("c3", "691c8d") + 1;
    let c3 = |offline| {
        let told = told(&with_gap(&events, &gap, offline));
        told.into_iter().find(|line| line.starts_with("BundleDeployment c3")).unwrap()
    };
    assert_eq!(c3(Some("c3")), "BundleDeployment c3/shop-db: Progressing 691c8d, Deployed 691c8d");
    assert!(c3(None).contains("Failed 691c8d"), "if the agent reports, the error can be new");
}
