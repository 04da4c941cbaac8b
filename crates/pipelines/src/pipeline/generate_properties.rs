//! Property tests: objects that come, go, change and move, while writes are lost and the controller is stopped and started. Each object that
//! was created while it was selected is `Added` once, each target whose object was deleted is `Removed` once, and what only moved is silent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use crate::pipeline::gather::{arrange, plans, recorded};
use crate::pipeline::write::tracker::{Attempt, WriteTracker, processed};
use relaybook_api::pipeline::target::{TargetInfo, targets_of};
use relaybook_api::pipeline::{Cursor, Dispatched};
use relaybook_api::values::refs::ClusterAppRef;
use relaybook_api::{Pipeline, PipelineSpec, PipelineStatus, Status, Time};
use relaybook_core::observe::Observation;
use relaybook_core::pipeline::generate::*;
use relaybook_core::pipeline::hooks::Keys;
use relaybook_core::pipeline::plan::plan;
use relaybook_core::pipeline::status::target::source;
use relaybook_core::pipeline::status::{Base, Gathered, Next, next};
use relaybook_core::reading::selection::{Joined, Selected, Selecting};
use relaybook_core::reading::{Application, Now, Reading};

const NAMES: [&str; 3] = ["a", "b", "c"];
const HERE: &str = "c";

#[derive(Clone, Copy, Debug)]
enum Step {
    /// An object is created, selected or not. `later`: in another second than the last one.
    Create { name: usize, selected: bool, later: bool },
    /// An object is deleted.
    Delete(usize),
    /// A label of an object changes, so that it is selected, or is not selected any more.
    Move(usize),
    /// An object has a new revision.
    Say(usize, u8),
    /// The controller reconciles. Whether its write is applied, and whether it gets the answer.
    Reconcile(bool, bool),
    /// The controller stops.
    Stop,
    /// The controller starts, or starts again.
    Start,
    /// The spec is edited to one that is refused, and back. Another pipeline has the same selection.
    Refuse,
    /// All changes are read.
    Consume,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    prop_oneof![
        4 => (name(), prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(name, selected, later)| Step::Create { name, selected, later }),
        2 => name().prop_map(Step::Delete),
        1 => name().prop_map(Step::Move),
        3 => (name(), 0..3_u8).prop_map(|(name, revision)| Step::Say(name, revision)),
        4 => (prop::bool::weighted(0.8), any::<bool>()).prop_map(|(applied, answered)| Step::Reconcile(applied, answered)),
        1 => Just(Step::Stop),
        2 => Just(Step::Start),
        1 => Just(Step::Refuse),
        2 => Just(Step::Consume),
    ]
}

/// An object in the API server.
struct Object {
    created: i64,
    selected: bool,
    says: Observation,
}

/// What the cache has of an object.
#[derive(Default)]
struct Cached {
    now: Option<(u64, Observation)>,
    ring: Option<Vec<(u64, Observation)>>,
    joined: Option<(Joined, u64)>,
}

/// Which changes of one name are required, and which are allowed.
#[derive(Clone, Debug, Default)]
struct Account {
    /// It was created while it was selected, and no status that was written has it.
    is_owed: bool,
    /// Its status was written, and it was deleted since.
    is_removal_owed: bool,
    added_at_least: usize,
    added_at_most: usize,
    removed_at_least: usize,
    removed_at_most: usize,
    changed_at_most: usize,
}

/// The API server with its objects, the cache and the controller.
struct World {
    objects: BTreeMap<usize, Object>,
    cache: BTreeMap<usize, Cached>,
    server: Pipeline,
    writes: WriteTracker,
    is_running: bool,
    declared: BTreeSet<usize>,
    is_declared: bool,
    is_refused: bool,
    told: Vec<(usize, Status, Status)>,
    accounts: BTreeMap<usize, Account>,
    seq: u64,
    clock: i64,
    term: u64,
}

impl World {
    fn new() -> Self {
        let objects = json!({"apiVersion": "apps/v1", "kind": "Deployment", "selector": {"matchLabels": {"env": "dev"}}});
        let spec = json!({"environments": [{"name": "dev", "targetsFrom": [{"objects": objects}]}]});
        let spec: PipelineSpec = serde_json::from_value(spec).unwrap();
        let mut server = Pipeline::new("p", spec);
        (server.metadata.uid, server.metadata.generation) = (Some("u".into()), Some(1));
        (server.metadata.namespace, server.metadata.resource_version) = (Some("n".into()), Some("1".into()));
        let mut world = Self {
            objects: BTreeMap::new(),
            cache: BTreeMap::new(),
            server,
            writes: WriteTracker::default(),
            is_running: false,
            declared: BTreeSet::new(),
            is_declared: false,
            is_refused: false,
            told: vec![],
            accounts: (0..NAMES.len()).map(|name| (name, Account::default())).collect(),
            seq: 0,
            clock: 1,
            term: 0,
        };
        world.start();
        world.pass(true, true);
        world
    }

    fn seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn account(&mut self, name: usize) -> &mut Account {
        self.accounts.get_mut(&name).unwrap()
    }

    /// Lists all objects. Nothing else is known of the time before.
    fn start(&mut self) {
        self.term += 1;
        self.writes = WriteTracker::new(self.server.metadata.uid.clone(), self.term);
        (self.is_running, self.declared, self.is_declared) = (true, BTreeSet::new(), false);
        self.cache.clear();
        for (name, selected, says) in self.objects.iter().map(|(n, o)| (*n, o.selected, o.says.clone())).collect::<Vec<_>>()
        {
            let (joined, now) = (self.seq(), (self.seq(), says));
            let ring = selected.then(|| vec![now.clone()]);
            let cached = Cached { now: Some(now), ring, joined: selected.then_some((Joined::Listed, joined)) };
            self.cache.insert(name, cached);
            if self.recorded().contains_key(&name) {
                // A list does not tell that an object is another one of the same name.
                let account = self.account(name);
                (account.is_owed, account.is_removal_owed) = (false, false);
            } else if selected && !self.accounts[&name].is_owed {
                // One that moved since the last write can be as new as the newest one.
                self.account(name).added_at_most += 1;
            }
        }
    }

    /// Returns the recorded targets: whether the object of each exists.
    fn recorded(&self) -> BTreeMap<usize, bool> {
        let status = self.server.status.iter().flat_map(|status| &status.environments).flat_map(|of| &of.targets);
        let each = status.map(|target| {
            let name = NAMES.iter().position(|name| target.cluster_app_ref.name == *name).unwrap();
            (name, target.settled.as_ref().is_some_and(|settled| settled.status != Status::NotFound))
        });
        each.collect()
    }

    fn event(&mut self, name: usize, says: Observation) {
        let seq = self.seq();
        let is_named = self.declared.contains(&name);
        let cached = self.cache.entry(name).or_default();
        if says.status == Status::NotFound && !is_named && cached.joined.is_none() {
            self.cache.remove(&name);
            return;
        }
        if let Some(ring) = &mut cached.ring {
            ring.push((seq, says.clone()));
        }
        cached.now = Some((seq, says));
    }

    fn select(&mut self, name: usize, joined: Option<Joined>) {
        let seq = self.seq();
        let is_named = self.declared.contains(&name);
        let cached = self.cache.entry(name).or_default();
        cached.joined = joined.map(|joined| (joined, seq));
        match joined {
            Some(_) if cached.ring.is_none() => cached.ring = Some(cached.now.iter().cloned().collect()),
            None if !is_named => cached.ring = None,
            _ => {}
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create { name, selected, later } if !self.objects.contains_key(&name) => {
                self.clock += i64::from(later);
                let (says, is_refused) = (at(0), self.is_refused);
                // If it was deleted after it moved, and no write has recorded that it left, it is as if it had never left.
                let never_left = self.recorded().get(&name) == Some(&true) && !self.accounts[&name].is_removal_owed;
                self.objects.insert(name, Object { created: self.clock, selected, says: says.clone() });
                let account = self.account(name);
                account.is_owed = selected && !is_refused && !never_left;
                account.added_at_most += 1;
                account.changed_at_most += 1;
                // One that replaces it and is not selected is like a change of its labels.
                account.is_removal_owed &= selected;
                if self.is_running {
                    if selected {
                        self.select(name, Some(Joined::Created));
                    }
                    if self.cache.get(&name).is_none_or(|cached| cached.now.is_none()) {
                        self.event(name, absent());
                    }
                    self.event(name, says);
                }
            }
            Step::Delete(name) => {
                let Some(object) = self.objects.remove(&name) else { return };
                let is_owed = self.recorded().get(&name) == Some(&true) && object.selected && !self.is_refused;
                let account = self.account(name);
                account.is_owed = false;
                account.removed_at_most += 1;
                account.is_removal_owed |= is_owed;
                if self.is_running {
                    self.select(name, None);
                    self.event(name, absent());
                }
            }
            Step::Move(name) => {
                let is_running = self.is_running;
                let Some(object) = self.objects.get_mut(&name) else { return };
                object.selected = !object.selected;
                let selected = object.selected;
                let account = self.account(name);
                // A target that is not selected any more leaves with the changes that are not written yet.
                (account.is_owed, account.is_removal_owed) = (false, account.is_removal_owed && selected);
                if is_running {
                    self.select(name, selected.then_some(Joined::Moved));
                }
            }
            Step::Say(name, revision) => {
                let Some(object) = self.objects.get_mut(&name) else { return };
                object.says = at(revision);
                let says = object.says.clone();
                self.account(name).changed_at_most += 1;
                if self.is_running {
                    self.event(name, says);
                }
            }
            Step::Reconcile(applied, answered) if self.is_running => drop(self.pass(applied, answered)),
            Step::Stop => self.is_running = false,
            Step::Start => self.start(),
            Step::Refuse if self.is_running => {
                let base = self.writes.newest(&Arc::new(self.server.clone()));
                self.declare(&base, &[], &HashMap::new());
                // Until the spec is valid again, nothing is promised. But nothing is reported twice.
                self.is_refused = true;
                for account in self.accounts.values_mut() {
                    (account.is_owed, account.is_removal_owed) = (false, false);
                }
            }
            Step::Consume => self.consume(),
            Step::Create { .. } | Step::Reconcile(..) | Step::Refuse => {}
        }
    }

    fn selecting(&self) -> Selecting {
        let one = |(name, cached): (&usize, &Cached)| {
            let (joined, seq) = cached.joined?;
            let created = Time::from_second(self.objects.get(name)?.created).ok();
            let (object, fleet_cluster, cluster, bundle) = (application(*name), None, None, None);
            Some(Selected { object, joined, seq, created, fleet_cluster, cluster, bundle })
        };
        let objects: Vec<_> = self.cache.iter().filter_map(one).collect();
        let newest = objects.iter().filter_map(|one| one.created).max();
        Selecting { total: objects.len(), newest, objects, ..Selecting::default() }
    }

    fn reading(&self, info: &TargetInfo, after: u64) -> Reading {
        let cached = NAMES.iter().position(|name| info.app.name == *name).and_then(|name| self.cache.get(&name));
        let now = cached.and_then(|cached| cached.now.clone());
        let ring = cached.and_then(|cached| cached.ring.as_deref()).unwrap_or_default();
        Reading {
            observations: ring.iter().filter(|(seq, _)| *seq > after).cloned().collect(),
            seq: now.as_ref().map_or(0, |(seq, _)| *seq),
            now: Now::Known(now.map_or_else(absent, |(_, says)| says)),
            changed_at: None,
            overflowed: false,
            cluster: String::new(),
            confirmed: String::new(),
        }
    }

    /// Reads everything as `gather` does.
    fn gather(&mut self, base: &Pipeline) -> Gathered {
        let planned = plan(&base.spec, "n", HERE, true).unwrap().selections;
        let found = [Found { planned: &planned[0], selecting: self.selecting() }];
        let recorded = targets_of(base, HERE).into_iter().map(|info| (info.clone(), self.reading(&info, u64::MAX)));
        let all = generate(base, HERE, &[], &found, &recorded.collect::<Vec<_>>());
        let mut gathered = Gathered { environments: plans(base), ..Gathered::default() };
        let (targets, news) = arrange(all, vec![], &mut gathered);
        self.declare(base, &targets, &news);
        self.is_refused = false;
        let read = |info: TargetInfo| {
            let after = self.writes.after(&info.name, &source(&info));
            let reading = self.reading(&info, after);
            (info, reading)
        };
        gathered.targets = targets.into_iter().map(read).collect();
        gathered
    }

    /// Requests the objects of the targets from the cache.
    fn declare(&mut self, base: &Pipeline, targets: &[TargetInfo], news: &HashMap<String, u64>) {
        let names: BTreeSet<usize> =
            targets.iter().map(|info| NAMES.iter().position(|name| info.app.name == *name).unwrap()).collect();
        if !std::mem::replace(&mut self.is_declared, true) || names != self.declared {
            let seq = self.seq();
            let recorded = recorded(base);
            self.writes.declare(Some(1), targets, seq, news, seq, |app| recorded.contains(app));
        }
        for name in &names {
            let cached = self.cache.entry(*name).or_default();
            let now = cached.now.clone();
            cached.ring.get_or_insert_with(|| now.into_iter().collect());
        }
        for name in self.declared.difference(&names) {
            let Some(cached) = self.cache.get_mut(name) else { continue };
            if cached.now.as_ref().is_none_or(|(_, says)| says.status == Status::NotFound) {
                self.cache.remove(name);
            } else if cached.joined.is_none() {
                cached.ring = None;
            }
        }
        self.declared = names;
    }

    /// Reconciles once. Returns whether a write was sent.
    fn pass(&mut self, applied: bool, answered: bool) -> bool {
        if self.writes.is_uncertain() {
            self.writes.learn(self.server.clone());
        }
        let base = self.writes.newest(&Arc::new(self.server.clone()));
        let gathered = self.gather(&base);
        let known = Base { pipeline: &base, promotions: Some(&[]), highest: self.writes.highest, keys: &Keys::Usable };
        let Some(Next { status, .. }) = next(known, Ok(&gathered), Time::from_second(1000 + self.clock).unwrap()) else {
            self.writes.settle(processed(&gathered.targets));
            return false;
        };
        self.writes.sending(Attempt::of(&base, &status, processed(&gathered.targets)));
        if !applied {
            return true;
        }
        let dispatched = self.server.status.take().and_then(|status| status.dispatched);
        self.server.status = Some(PipelineStatus { dispatched, ..status });
        self.written();
        if answered {
            self.writes.answered(self.server.clone());
        }
        true
    }

    /// A status was written.
    fn written(&mut self) {
        let version: u64 = self.server.metadata.resource_version.as_ref().unwrap().parse().unwrap();
        self.server.metadata.resource_version = Some((version + 1).to_string());
        let recorded = self.recorded();
        for (name, account) in &mut self.accounts {
            if recorded.get(name) == Some(&true) && std::mem::take(&mut account.is_owed) {
                account.added_at_least += 1;
            }
            if recorded.get(name) != Some(&true) && std::mem::take(&mut account.is_removal_owed) {
                account.removed_at_least += 1;
            }
        }
    }

    /// Reads all changes of targets.
    fn consume(&mut self) {
        let Some(status) = &mut self.server.status else { return };
        let Some(log) = &status.log else { return };
        let from = status.dispatched.as_ref().map_or(log.first, |dispatched| dispatched.cursors[0].serial);
        for change in log.changes.iter().filter(|change| change.serial > from) {
            let name = change.subject.strip_prefix("target/dev/c/n/").and_then(|name| NAMES.iter().position(|n| *n == name));
            self.told.extend(name.map(|name| (name, change.from.status, change.to.status)));
        }
        let cursors = vec![Cursor { serial: log.serial, ..Cursor::default() }];
        status.dispatched = Some(Dispatched { cursors, ..Dispatched::default() });
        let version: u64 = self.server.metadata.resource_version.as_ref().unwrap().parse().unwrap();
        self.server.metadata.resource_version = Some((version + 1).to_string());
    }

    /// Completes everything.
    fn end(&mut self) {
        if !self.is_running {
            self.start();
        }
        for _ in 0..3 {
            while self.pass(true, true) {}
            self.consume();
        }
    }
}

fn absent() -> Observation {
    relaybook_core::observe::observe(None, None)
}

/// The revision that an object says.
fn at(revision: u8) -> Observation {
    let revision = format!("v{revision}");
    Observation {
        status: Status::Current,
        revision: revision.clone(),
        attempted_revision: revision,
        ..Observation::default()
    }
}

fn application(name: usize) -> Application {
    let object = ClusterAppRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: NAMES[name].to_owned(),
        namespace: "n".to_owned(),
        cluster_ref: None,
    };
    Application { object, ..Application::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_added_changed_or_removed_object_is_reported_once(steps in prop::collection::vec(step(), 0..60)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.end();
        let wanted: Vec<usize> = world.objects.iter().filter(|(_, object)| object.selected).map(|(name, _)| *name).collect();
        prop_assert_eq!(world.recorded().into_keys().collect::<Vec<_>>(), wanted, "exactly the selected objects are targets");
        for target in &world.server.status.as_ref().unwrap().environments[0].targets {
            let name = NAMES.iter().position(|name| target.cluster_app_ref.name == *name).unwrap();
            let settled = target.settled.as_ref().unwrap();
            prop_assert_eq!(&settled.revision, &world.objects[&name].says.revision);
        }
        for (name, account) in &world.accounts {
            let count = |is: fn(Status, Status) -> bool| {
                world.told.iter().filter(|(of, from, to)| of == name && is(*from, *to)).count()
            };
            let added = count(|from, to| from == Status::NotFound && to != Status::NotFound);
            let changed = count(|from, to| from == Status::Current && to == Status::Current);
            let removed = count(|from, to| from != Status::NotFound && to == Status::NotFound);
            let told = format!("{name}: {account:?}, told {:?}", world.told);
            prop_assert!((account.added_at_least..=account.added_at_most).contains(&added), "{told}");
            prop_assert!(changed <= account.changed_at_most, "{told}");
            prop_assert!((account.removed_at_least..=account.removed_at_most).contains(&removed), "{told}");
        }
    }
}
