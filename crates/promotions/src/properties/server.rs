//! The model of the API server, of the pipeline controller, and of people.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use super::outside::Outside;
use super::steps::Step;
use crate::controller::index::Index;
use relaybook_api::pipeline::EnvironmentStatus;
use relaybook_api::promotion::{LOOK, MAX_STEPS, Phase, PromotedPipeline, PromotionPolicy, PromotionStrategy, RETRY};
use relaybook_api::{Pipeline, Promotion, PromotionSpec, PromotionStatus, Status, Time};
use relaybook_core::promotion::names::{Order, labels, name, order, order_of_mirror};
use relaybook_core::promotion::pair::{Pair, mirror};
use relaybook_core::promotion::plan::{counts, is_new, newest};
use relaybook_core::promotion::testing::{ENVIRONMENTS, at, automatic, environment, mirror as shown_as, pipeline};
use relaybook_runtime::controller::Listing;

mod mirroring;

/// A write that no process waits for any more.
#[derive(Clone, Debug)]
pub(super) enum Write {
    Create(PromotionSpec),
    Status(Box<Promotion>, Box<PromotionStatus>),
    Delete(Box<Promotion>),
}

/// A process: what its watches have delivered, and what they will deliver.
#[derive(Default)]
pub(super) struct Replica {
    pub(super) index: Index,
    pub(super) listings: (Listing, Listing),
    pub(super) pipelines: VecDeque<Event<Pipeline>>,
    pub(super) promotions: VecDeque<Event<Promotion>>,
    pub(super) is_reconciling: bool,
    /// The process was killed during the reconcile.
    pub(super) is_killed: bool,
}

/// A step that the pipeline controller took into the log.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Logged {
    pub(super) environment: String,
    /// The number of times that the status was wiped before.
    pub(super) wipes: u32,
    pub(super) order: Order,
    pub(super) uid: String,
    pub(super) step: i64,
}

/// Everything but the reconcile in progress.
pub(super) struct Server {
    pub(super) pipeline: Pipeline,
    pub(super) promotions: BTreeMap<String, Promotion>,
    /// What the pipeline controller has seen of them.
    pub(super) mirrored: BTreeMap<String, Promotion>,
    pub(super) replicas: Vec<Replica>,
    pub(super) flying: VecDeque<Write>,
    pub(super) script: VecDeque<Step>,
    pub(super) log: Vec<Logged>,
    pub(super) version: u64,
    pub(super) serial: i64,
    pub(super) clock: i64,
    pub(super) wipes: u32,
    /// By environment and occasion: the number of first steps of promotions that Relaybook started.
    pub(super) started: HashMap<(String, i64), u32>,
    /// By environment and occasion: the number of their requests, without retries.
    pub(super) requested: HashMap<(String, i64), u32>,
    pub(super) violations: Vec<String>,
    /// The pipeline was deleted.
    pub(super) is_gone: bool,
    /// Number of calls.
    pub(super) calls: u32,
    /// The environment whose promotions the API server does not create.
    pub(super) refuses: Option<&'static str>,
    /// Each phase with each reason that a status had.
    pub(super) written: BTreeSet<String>,
    /// The strategy of every policy.
    strategy: Option<PromotionStrategy>,
    /// The forge, and the attempts of the replicas.
    pub(super) outside: Outside,
}

impl Server {
    pub(super) fn new(replicas: usize, strategy: Option<PromotionStrategy>, script: Vec<Step>) -> Self {
        let mut pipeline = pipeline();
        pipeline.spec.promotion = Some(policy_of(0, strategy.clone()));
        let status = pipeline.status.as_mut().unwrap();
        status.environments = ENVIRONMENTS.iter().map(|name| environment(name, "1", 0)).collect();
        let mut server = Self {
            pipeline,
            promotions: BTreeMap::new(),
            mirrored: BTreeMap::new(),
            replicas: Vec::new(),
            flying: VecDeque::new(),
            script: script.into(),
            log: Vec::new(),
            version: 1,
            serial: 100,
            clock: 1000,
            wipes: 0,
            started: HashMap::new(),
            requested: HashMap::new(),
            violations: Vec::new(),
            is_gone: false,
            calls: 0,
            refuses: None,
            written: BTreeSet::new(),
            strategy,
            outside: Outside::new(replicas),
        };
        server.replicas.resize_with(replicas, Replica::default);
        (0..replicas).for_each(|replica| server.restart(replica));
        server
    }

    /// Each write and each request to the forge need some time.
    pub(super) fn now(&self) -> Time {
        let passed = self.version + self.outside.requests;
        at(self.clock).checked_add(std::time::Duration::from_millis(passed)).unwrap()
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Pipeline)) {
        edit(&mut self.pipeline);
        self.pipeline.metadata.resource_version = Some(self.next_version());
        for replica in &mut self.replicas {
            replica.pipelines.push_back(Event::Apply(self.pipeline.clone()));
        }
    }

    fn put(&mut self, mut promotion: Promotion) -> Promotion {
        promotion.metadata.resource_version = Some(self.next_version());
        for replica in &mut self.replicas {
            replica.promotions.push_back(Event::Apply(promotion.clone()));
        }
        self.promotions.insert(promotion.name_any(), promotion.clone());
        promotion
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(mut promotion) = self.promotions.remove(name) else { return };
        promotion.metadata.resource_version = Some(self.next_version());
        for replica in &mut self.replicas {
            replica.promotions.push_back(Event::Delete(promotion.clone()));
        }
    }

    /// Stores a new promotion. Returns the object that has its name.
    pub(super) fn create(&mut self, spec: &PromotionSpec) -> Promotion {
        let name = name(spec);
        if let Some(existing) = self.promotions.get(&name) {
            return existing.clone();
        }
        let mut promotion = Promotion::new(&name, spec.clone());
        promotion.metadata.namespace = Some("team-a".into());
        promotion.metadata.labels = Some(labels(spec));
        promotion.metadata.uid = Some(format!("p{}", self.version));
        promotion.metadata.creation_timestamp = Some(v1::Time(at(self.clock)));
        self.put(promotion)
    }

    /// Whether the tests of a write pass.
    pub(super) fn is_current(&self, base: &Promotion) -> bool {
        let (found, base) = (self.promotions.get(&base.name_any()), &base.metadata);
        found.is_some_and(|found| found.metadata.uid == base.uid && found.metadata.resource_version == base.resource_version)
    }

    pub(super) fn write(&mut self, base: &Promotion, status: &PromotionStatus) -> Option<Promotion> {
        if !self.is_current(base) {
            return None;
        }
        self.judge(base, status);
        Some(self.put(Promotion { status: Some(status.clone()), ..base.clone() }))
    }

    /// Checks one write of a status.
    fn judge(&mut self, base: &Promotion, status: &PromotionStatus) {
        let before = base.status.clone().unwrap_or_default();
        self.written.insert(format!("{} {}", status.phase.map_or("", Phase::as_str), status.reason));
        let mut wrong =
            |what: &str| self.violations.push(format!("{what}: {} from {before:?} to {status:?}", base.name_any()));
        if base.status.as_ref() == Some(status) {
            wrong("a write changes nothing");
        }
        if matches!(before.phase, Some(Phase::Finished | Phase::Withdrawn)) && before.phase != status.phase {
            wrong("an end is not final");
        }
        let is_step = status.step == before.step + 1;
        if status.step != before.step && (!is_step || status.steps.last().map(|last| last.step) != Some(status.step)) {
            wrong("steps are not counted one by one");
        }
        let oldest = status.steps.first().map_or(1, |first| first.step);
        if status.steps.len() > MAX_STEPS || status.steps.iter().map(|step| step.step).ne(oldest..=status.step) {
            wrong("the kept steps have a gap");
        }
        let PromotionSpec { environment, occasion, request: 0, .. } = &base.spec else { return };
        let occasion = (environment.clone(), *occasion);
        if before.step == 0 && status.step == 1 {
            *self.started.entry(occasion.clone()).or_default() += 1;
        }
        let is_request = status.phase == Some(Phase::Requested) && before.phase != status.phase;
        if is_request && !matches!(before.phase, Some(Phase::Failed | Phase::Closed)) {
            *self.requested.entry(occasion).or_default() += 1;
        }
    }

    fn land(&mut self) {
        match self.flying.pop_front() {
            Some(Write::Create(spec)) => drop(self.create(&spec)),
            Some(Write::Status(base, status)) => drop(self.write(&base, &status)),
            Some(Write::Delete(base)) if self.is_current(&base) => self.remove(&base.name_any()),
            Some(Write::Delete(_)) | None => {}
        }
    }

    /// Starts a process from what is stored.
    pub(super) fn restart(&mut self, replica: usize) {
        self.outside.kill(replica);
        if self.replicas[replica].is_reconciling {
            self.replicas[replica].is_killed = true;
            return;
        }
        let mut new = Replica::default();
        new.pipelines.extend([Event::Init, Event::InitApply(self.pipeline.clone()), Event::InitDone]);
        new.promotions.push_back(Event::Init);
        new.promotions.extend(self.promotions.values().cloned().map(Event::InitApply));
        new.promotions.push_back(Event::InitDone);
        self.replicas[replica] = new;
        self.watch_pipelines(replica);
        self.watch_promotions(replica);
    }

    fn watch_pipelines(&mut self, replica: usize) {
        let Replica { index, listings, pipelines, .. } = &mut self.replicas[replica];
        for event in pipelines.drain(..) {
            index.absorb_pipeline(&mut listings.0, event);
        }
    }

    fn watch_promotions(&mut self, replica: usize) {
        let Replica { index, listings, promotions, .. } = &mut self.replicas[replica];
        for event in promotions.drain(..) {
            index.absorb_promotion(&mut listings.1, event);
        }
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Fate(_) | Step::Reconcile(_) | Step::Work(_) => {}
            Step::Runs(index, revision) => self.runs(index, &revision.to_string()),
            Step::Tries(index, revision) => self.edit_environment(index, |environment| {
                let settled = environment.settled.as_mut().unwrap();
                (settled.status, settled.revision) = (Status::InProgress, String::new());
                let target = &mut environment.targets[0];
                (target.status, target.attempted_revision) = (Status::InProgress, revision.to_string());
            }),
            Step::Seen(index, is_seen) => self.edit_environment(index, |environment| {
                let settled = environment.settled.as_ref().map_or(Status::Current, |settled| settled.status);
                environment.targets[0].status = if is_seen { settled } else { Status::Unknown };
            }),
            Step::Wipe => self.wipe(),
            Step::Policy(bits) => {
                let policy = policy_of(bits, self.strategy.clone());
                self.edit(|pipeline| pipeline.spec.promotion = Some(policy));
            }
            Step::MirrorWatch => self.mirrored.clone_from(&self.promotions),
            Step::Mirror => self.mirror(),
            Step::WatchPipelines(replica) => self.watch_pipelines(replica),
            Step::WatchPromotions(replica) => self.watch_promotions(replica),
            Step::Restart(replica) => self.restart(replica),
            Step::Land => self.land(),
            Step::Lose => drop(self.flying.pop_front()),
            Step::Approve(which) => self.patch(which, |promotion| promotion.spec.approved = true),
            Step::Retry(which) => {
                let value = self.version.to_string();
                self.patch(which, |promotion| drop(promotion.annotations_mut().insert(RETRY.to_owned(), value)));
            }
            Step::Delete(which) => self.delete(which),
            Step::Promote(index) => self.promote(index),
            Step::Forge(index, choice) => self.forge(index, choice),
            Step::Tick(minutes) => self.clock += 60 * i64::from(minutes),
            Step::Check(which) => {
                let value = self.version.to_string();
                self.patch(which, |promotion| drop(promotion.annotations_mut().insert(LOOK.to_owned(), value)));
            }
            Step::Deploy(index) => {
                if let Some(revision) = self.outside.declared(ENVIRONMENTS[index]) {
                    self.runs(index, &revision);
                }
            }
            Step::Outside(event) => self.outside(event),
        }
    }

    pub(super) fn edit_environment(&mut self, index: usize, edit: impl FnOnce(&mut EnvironmentStatus)) {
        self.edit(|pipeline| edit(&mut pipeline.status.as_mut().unwrap().environments[index]));
    }

    fn runs(&mut self, index: usize, revision: &str) {
        let before = &self.pipeline.status.as_ref().unwrap().environments[index];
        let settled = before.settled.as_ref().unwrap();
        let is_same = settled.current.as_deref() == Some(revision);
        self.serial += 1;
        let reached = if is_same { settled.reached } else { self.serial };
        let promotion = before.promotion.clone();
        let mut after = environment(ENVIRONMENTS[index], revision, reached);
        (after.promotion, after.targets[0].last_transition_time) = (promotion, Some(self.now()));
        self.edit_environment(index, |environment| *environment = after);
    }

    /// Everything becomes a baseline. The newest promotions are taken silently.
    fn wipe(&mut self) {
        self.mirrored.clone_from(&self.promotions);
        let all: Vec<&Promotion> = self.mirrored.values().filter(|promotion| !is_new(promotion)).collect();
        let newest = ENVIRONMENTS.map(|name| newest(&all, name).map(|newest| shown_as(newest, last_step(newest))));
        (self.serial, self.wipes) = (self.serial + 1, self.wipes + 1);
        self.edit(|pipeline| {
            for (environment, newest) in pipeline.status.as_mut().unwrap().environments.iter_mut().zip(newest) {
                environment.settled.as_mut().unwrap().reached = 0;
                environment.promotion = newest;
            }
        });
    }

    fn patch(&mut self, which: u8, edit: impl FnOnce(&mut Promotion)) {
        if let Some(mut promotion) = self.chosen(which) {
            edit(&mut promotion);
            self.put(promotion);
        }
    }

    fn chosen(&self, which: u8) -> Option<Promotion> {
        let which = usize::from(which).checked_rem(self.promotions.len())?;
        self.promotions.values().nth(which).cloned()
    }

    /// A person deletes a promotion that is in the status of the pipeline, or that was rejected.
    fn delete(&mut self, which: u8) {
        let Some(promotion) = self.chosen(which) else { return };
        let mirror = mirror(&self.pipeline, &promotion.spec.environment);
        if !counts(&promotion) || mirror.is_some_and(|mirror| order_of_mirror(mirror) >= order(&promotion.spec)) {
            self.remove(&promotion.name_any());
        }
    }

    /// Returns the spec of a promotion to an environment, as a person would request it.
    fn spec(&self, index: usize) -> Option<PromotionSpec> {
        let pair = Pair::new(&self.pipeline, index)?;
        let occasion = pair.reached().max(pair.mirror().map_or(0, |mirror| mirror.occasion));
        let here =
            self.promotions.values().filter(|p| p.spec.environment == ENVIRONMENTS[index] && p.spec.occasion == occasion);
        let logged = pair.mirror().filter(|mirror| mirror.occasion == occasion).map(|mirror| mirror.request);
        let request = here.map(|promotion| promotion.spec.request).chain(logged).max();
        Some(PromotionSpec {
            pipeline_ref: PromotedPipeline { name: "web".into(), uid: "u".into() },
            environment: ENVIRONMENTS[index].into(),
            from: ENVIRONMENTS[index - 1].into(),
            revision: pair.ready()?.revision.clone(),
            previous: None,
            occasion,
            request: request.unwrap_or(0) + 1,
            approved: false,
        })
    }

    fn promote(&mut self, index: usize) {
        if let Some(spec) = self.spec(index) {
            self.create(&spec);
        }
    }

    fn forge(&mut self, index: usize, choice: u8) {
        let Some(spec) = self.spec(index) else { return };
        let spec = match choice {
            0 => PromotionSpec { occasion: spec.occasion + 1000, request: 0, ..spec },
            1 => PromotionSpec { occasion: spec.occasion.max(1) - 1, request: 0, ..spec },
            2 => PromotionSpec { from: "dev".into(), request: 0, ..spec },
            3 => PromotionSpec { revision: "3".into(), request: 0, ..spec },
            4 => PromotionSpec { revision: "3".into(), ..spec },
            5 => PromotionSpec { request: spec.request + 7, ..spec },
            _ => PromotionSpec { request: 0, ..spec },
        };
        self.create(&spec);
    }
}

/// Returns a policy. Without a strategy, it is `notification`.
fn policy_of(bits: u8, strategy: Option<PromotionStrategy>) -> PromotionPolicy {
    let after = (bits & 4 != 0).then(|| "1m".to_owned());
    let strategy = strategy.or(automatic().strategy);
    let timeout = Some("5m".to_owned());
    PromotionPolicy { manual: bits & 1 != 0, suspend: bits & 3 == 2, after, timeout, strategy, ..automatic() }
}

pub(super) fn last_step(promotion: &Promotion) -> i64 {
    promotion.status.as_ref().map_or(0, |status| status.step)
}
