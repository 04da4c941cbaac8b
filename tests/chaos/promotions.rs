//! Promotions under chaos: pipelines of two environments, in a namespace of their own. The second environment follows the first one.
//!
//! In: a seed, and when Relaybook was killed or paused. The first environment gets one revision after the other. The receiver plays a CI: after
//! it has accepted a request, the revision is rolled out in the second environment. Some promotions wait for a person.
//! Out: findings. For each revision that comes to the first environment there is at most one Promotion and at most one request, under one
//! `webhook-id`. No request is missing, and all steps are reported in order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::future::join_all;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use relaybook_api::promotion::Phase;
use relaybook_api::{Delivery, Notification, Pipeline, Promotion};
use serde_json::json;

use crate::crew::Crew;
use crate::load::{PATIENCE, insist};
use crate::receiver::{Receiver, Reply};
use crate::script::{Behaviour, Body, Then, behaviour};
use crate::support::World;
use crate::support::oracle::promotions::Expected as Steps;
use crate::support::oracle::repeats::Repeats;
use crate::support::oracle::{Expected, Finding, judge, row, seen};
use crate::support::receiver::Request;
use crate::support::world::apps::Kind;
use crate::support::world::promotions::{TRANSITIONS, by_notification};
use crate::support::world::{BODY, notification, pipeline};
use crate::verdict::{taken, written_late};

/// The pipelines, and whether their promotions require an approval.
const PIPELINES: [(&str, bool); 3] = [("east", false), ("central", false), ("west", true)];
/// The notification of promotions.
const PROMOTER: &str = "promoter";
/// Maximum number of revisions of a pipeline. The oracle needs all Promotions, and at most 100 of them can be kept.
const MOST: usize = 90;
/// Percentage of revisions that are followed by another one at once.
const HASTY: u8 = 30;
/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(100);

/// What the receiver has received.
#[derive(Default)]
struct Desk {
    numbers: HashMap<String, u64>,
    /// Pipeline and revision of each request for a promotion that was accepted.
    requested: BTreeSet<(String, String)>,
}

/// The promotions of one run.
pub struct Promotions {
    seed: u64,
    /// The namespace.
    pub world: World,
    receiver: Receiver,
    desk: Arc<Mutex<Desk>>,
    friendly: Arc<AtomicBool>,
    /// The number of revisions of each pipeline.
    revisions: [AtomicUsize; PIPELINES.len()],
}

impl Promotions {
    /// Creates the namespace and all objects that must exist before the first change.
    pub async fn new(seed: u64, kubeconfig: &Path, ns: &str) -> Self {
        let world = World::on(kubeconfig, ns).await;
        let (desk, friendly) = (Arc::<Mutex<Desk>>::default(), Arc::<AtomicBool>::default());
        let (at, is_friendly) = (desk.clone(), friendly.clone());
        let receiver =
            Receiver::start(move |request| reply(seed, request, &mut lock(&at), is_friendly.load(Ordering::Relaxed)));
        for (name, manual) in PIPELINES {
            let apps = ["dev", "prod"].map(|environment| format!("{name}-{environment}"));
            for app in &apps {
                world.deploy(app, "0").await;
            }
            let targets = [format!("dev/{}", apps[0]), format!("prod/{}", apps[1])];
            let mut object = pipeline(&world.ns, name, Kind::Deployment, &targets.each_ref().map(String::as_str));
            let policy = by_notification(json!({"manual": manual, "retain": {"perEnvironment": 100}}));
            object["spec"]["environments"][1]["promotion"] = policy;
            world.create::<Pipeline>(object).await;
        }
        let triggers = TRANSITIONS.map(|type_| json!({"type": type_}));
        let body = BODY.replacen('{', r#"{"promotion": "{{promotion.name}}", "#, 1);
        let over = json!({
            "triggers": triggers, "endpoint": {"timeout": "5s"}, "template": {"inline": {"body": body}},
            "delivery": {"retain": {"perLane": 1000}},
        });
        let url = receiver.url(&format!("/{PROMOTER}/{{{{pipeline.name}}}}"));
        world.create::<Notification>(notification(PROMOTER, &url, over)).await;
        Self { seed, world, receiver, desk, friendly, revisions: [const { AtomicUsize::new(0) }; PIPELINES.len()] }
    }

    /// Promotes revisions of all pipelines until `enough`, then finishes the current ones. Returns the pipelines that got stuck.
    pub async fn run(&self, enough: &AtomicBool) -> Vec<String> {
        let stuck = join_all((0..PIPELINES.len()).map(async |number| {
            let mut rng = Rng::with_seed(self.seed.wrapping_add(u64::try_from(number).unwrap_or(0)));
            while !enough.load(Ordering::Relaxed) && self.revisions[number].load(Ordering::Relaxed) < MOST {
                tokio::time::sleep(Duration::from_millis(rng.u64(0..500))).await;
                self.promote(number, rng.u8(0..100) < HASTY).await?;
            }
            Ok(())
        }));
        stuck.await.into_iter().filter_map(Result::err).collect()
    }

    /// Promotes one more revision of each pipeline.
    pub async fn finale(&self) -> Vec<String> {
        let stuck = join_all((0..PIPELINES.len()).map(|number| self.promote(number, false)));
        stuck.await.into_iter().filter_map(Result::err).collect()
    }

    /// Stops the faults of the receiver.
    pub fn be_friendly(&self) {
        self.friendly.store(true, Ordering::Relaxed);
    }

    /// Returns the number of revisions so far.
    pub fn acts(&self) -> usize {
        self.revisions.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Rolls out a revision in the first environment, and after the request in the second one. If `hasty`, the first environment gets
    /// another revision at once, so that the promotion of this one is withdrawn or never created.
    async fn promote(&self, number: usize, hasty: bool) -> Result<(), String> {
        let (name, manual) = PIPELINES[number];
        let mut revision = String::new();
        for _ in 0..=usize::from(hasty) {
            revision = (self.revisions[number].fetch_add(1, Ordering::Relaxed) + 1).to_string();
            self.ship(&format!("{name}-dev"), &revision).await;
        }
        if manual {
            self.approve(name, &revision).await?;
        }
        let key = (name.to_owned(), revision.clone());
        until(&format!("no request for {name} {revision}"), async || lock(&self.desk).requested.contains(&key)).await?;
        self.ship(&format!("{name}-prod"), &revision).await;
        Ok(())
    }

    async fn ship(&self, app: &str, revision: &str) {
        insist(async || self.world.try_roll_out(app, revision).await).await;
        insist(async || self.world.try_finish(app).await).await;
    }

    /// Approves the promotion of a revision once it waits for that.
    async fn approve(&self, pipeline: &str, revision: &str) -> Result<(), String> {
        let approved = Patch::Merge(json!({"spec": {"approved": true}}));
        until(&format!("no promotion of {pipeline} {revision} to approve"), async || {
            let all = insist(async || self.world.api::<Promotion>().list(&ListParams::default()).await).await;
            let is = |p: &&Promotion| p.spec.pipeline_ref.name == pipeline && p.spec.revision == revision;
            let Some(found) = all.iter().find(is).filter(|p| p.status.is_some()) else { return false };
            let (api, params) = (self.world.api::<Promotion>(), PatchParams::default());
            api.patch(&found.name_any(), &params, &approved).await.is_ok()
        })
        .await
    }

    /// Waits until everything is settled, and until there are no findings or the findings no longer change.
    pub async fn settle(&self, crew: &Crew) -> Vec<String> {
        let deadline = Instant::now() + *PATIENCE;
        let mut before = None;
        loop {
            let (at_rest, findings) = self.collect(crew).await;
            let texts: Vec<_> = findings.iter().map(|f| format!("{}: {}", f.kind, f.text)).collect();
            let at_rest = at_rest && taken(&self.world).await;
            if Instant::now() > deadline || (at_rest && (texts.is_empty() || before.as_ref() == Some(&texts))) {
                return texts;
            }
            before = at_rest.then_some(texts);
            tokio::time::sleep(LOOK * 5).await;
        }
    }

    /// Returns whether nothing is pending, and all findings.
    async fn collect(&self, crew: &Crew) -> (bool, Vec<Finding>) {
        // Requests are read first, and promotions last: each is recorded before its effect.
        let requests = self.receiver.log();
        let seen: Vec<_> = requests.iter().map(seen).collect();
        let all = ListParams::default();
        let deliveries = insist(async || self.world.api::<Delivery>().list(&all).await).await.items;
        let promotions = insist(async || self.world.api::<Promotion>().list(&all).await).await.items;
        let pipelines = insist(async || self.world.api::<Pipeline>().list(&all).await).await.items;
        let rows: Vec<_> = deliveries.iter().map(row).collect();
        let mut expected = Expected {
            duplicates: Repeats::Across(crew.interruptions()),
            frozen: crew.frozen.clone(),
            ..Expected::default()
        };
        let mut findings = once(&requests, &promotions);
        for (name, _) in PIPELINES {
            let steps = Steps::any(&self.world.ns, name, &[PROMOTER]);
            expected.lanes.extend(steps.lanes(&promotions));
            let pipeline = pipelines.iter().find(|p| p.name_any() == name);
            findings.extend(steps.judge(&promotions, pipeline, &deliveries));
        }
        let late = written_late(crew, &seen, &rows);
        let mut found = judge(&expected, &seen, &rows);
        found.retain(|f| f.kind != "audit" || !late.iter().any(|text| f.text.starts_with(text)));
        findings.extend(found);
        (rows.iter().all(|r| r.step.outcome.is_some()), findings)
    }
}

/// Finds promotions that were requested under two ids or not at all, and occasions with two promotions.
fn once(requests: &[Request], promotions: &[Promotion]) -> Vec<Finding> {
    let finding = |kind, text| Finding { final_: true, kind, text };
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for request in requests {
        let body = request.json();
        if body["type"] == "PromotionRequested" {
            let name = body["promotion"].as_str().unwrap_or_default().to_owned();
            ids.entry(name).or_default().insert(request.id().to_owned());
        }
    }
    let twice = ids.iter().filter(|(_, ids)| ids.len() > 1);
    let mut findings: Vec<_> =
        twice.map(|(name, ids)| finding("duplicate", format!("{name} was requested as {ids:?}"))).collect();
    let mut occasions: BTreeMap<(String, i64), BTreeSet<String>> = BTreeMap::new();
    for promotion in promotions {
        let (spec, name) = (&promotion.spec, promotion.name_any());
        let mut steps = promotion.status.iter().flat_map(|s| &s.steps);
        if steps.any(|s| s.phase == Phase::Requested) && !ids.contains_key(&name) {
            findings.push(finding("missing", format!("{name} was requested, and no request has arrived")));
        }
        occasions.entry((spec.pipeline_ref.name.clone(), spec.occasion)).or_default().insert(name);
    }
    let twice = occasions.iter().filter(|(_, names)| names.len() > 1);
    findings.extend(twice.map(|(occasion, names)| finding("duplicate", format!("{occasion:?} has {names:?}"))));
    findings
}

/// Returns the reaction to a request. Nothing is refused for good, because a CI that refuses a promotion never carries it out.
fn reply(seed: u64, request: &Request, desk: &mut Desk, friendly: bool) -> Reply {
    let body = request.json();
    let number = desk.numbers.entry(request.path.clone()).or_default();
    *number += 1;
    let kind = Behaviour { after: Duration::ZERO, then: Then::Take(200, Body::Short) };
    let Behaviour { then, after } = if friendly { kind } else { behaviour(seed, &request.path, *number) };
    let answer = |status, headers: &str, body| Reply::Answer { status, headers: headers.to_owned(), body, after };
    match then {
        Then::Take(code, how) => {
            if body["type"] == "PromotionRequested" {
                let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
                desk.requested.insert((text("pipeline"), text("revision")));
            }
            answer(code, "", how)
        }
        Then::Fail(code) => answer(code, "", Body::Short),
        Then::Throttle(_) => answer(429, "retry-after: 1\r\n", Body::Short),
        Then::Hang => Reply::Hang,
        Then::Close => Reply::Close,
        Then::DripHead => Reply::DripHead,
        Then::Bomb => Reply::Bomb,
    }
}

/// Waits until this is true, at most for [`PATIENCE`].
async fn until(problem: &str, mut holds: impl AsyncFnMut() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + *PATIENCE;
    while !holds().await {
        if Instant::now() > deadline {
            return Err(format!("{problem} within {:?}", *PATIENCE));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}
