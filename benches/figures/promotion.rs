//! Measures promotions: the time from the status of the earlier environment to the request for the later one, the writes while nothing
//! changes, and approvals.
//!
//! In: a pipeline of two environments, of which the second follows the first. One status write completes a rollout in the first. Out: the
//! times until the requests `Deployed` and `PromotionRequested` arrive, which are compared with each other: both are caused by the same
//! write, so a busy machine delays both. The second environment is then rolled out, as a CI would do it.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams};
use relaybook_api::{Pipeline, Promotion, Status};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::approval;
use crate::bed::{Bed, notify, until};
use crate::process;
use crate::quiet::{OURS, still};
use crate::receiver::Arrived;
use crate::support::world::apps::{Kind, condition};
use crate::support::world::pipeline;
use crate::support::world::promotions::by_notification;
use crate::support::{Relaybook, World};
use crate::table::{PROMOTION, PROMOTION_IDLE, Reading, quantile};

/// Number of pipelines of which the writes are counted.
const PIPELINES: usize = 200;
/// The environments, with the application of each.
const ENVIRONMENTS: [&str; 2] = ["dev/dev", "prod/prod"];

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let mut readings = latency(bed, round).await;
    readings.extend(idle(bed, round).await);
    readings.extend(approval::measure(bed, round).await);
    readings
}

/// Creates a pipeline in which `prod` follows `dev`.
pub async fn promoting(world: &World, name: &str, policy: Value) {
    let mut object = pipeline(&world.ns, name, Kind::Deployment, &ENVIRONMENTS);
    object["spec"]["environments"][1]["promotion"] = by_notification(policy);
    world.create::<Pipeline>(object).await;
}

/// Creates the notification of both environments. The path of a request contains the environment and the type.
async fn hook(bed: &Bed, world: &World) {
    let triggers = json!([{"type": "Deployed", "environments": ["dev"]}, {"type": "PromotionRequested"}, {"type": "PromotionFinished"}]);
    let url = bed.receiver.url(&format!("/{}/{{{{environment}}}}/{{{{type}}}}", world.ns));
    notify(world, "hook", &url, json!({"triggers": triggers})).await;
}

async fn latency(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("promotion", round).await;
    for app in ["dev", "prod"] {
        world.deploy(app, "1").await;
    }
    promoting(&world, "shop", json!({"retain": {"perEnvironment": 100}})).await;
    hook(bed, &world).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let [deployed, requested, finished] =
        ["dev/Deployed", "prod/PromotionRequested", "prod/PromotionFinished"].map(|path| format!("/{}/{path}", world.ns));
    let (mut to_deployed, mut to_request) = (Vec::new(), Vec::new());
    let mut arrivals = bed.receiver.arrivals();
    let count = if bed.quick { 15 } else { 60 };
    for n in 0..count {
        let tag = (n + 2).to_string();
        world.roll_out("dev", &tag).await;
        until("the rollout is observed", async || in_progress(&world, &tag).await).await;
        // A random pause, so that the changes are not in step with tasks that run once a second.
        sleep(Duration::from_millis(100 + fastrand::u64(0..100))).await;
        let began = finish(&world, "dev").await;
        let both = |arrived: &Arrived| [&deployed, &requested].iter().all(|path| has(arrived, path, n));
        arrivals.wait_for(both).await.expect("the receiver runs");
        for (path, times) in [(&deployed, &mut to_deployed), (&requested, &mut to_request)] {
            let arrived = bed.receiver.times(path);
            assert_eq!(arrived.len(), n + 1, "{path} arrives once for each revision");
            times.push(arrived[n].duration_since(began).as_secs_f64() * 1000.0);
        }
        world.ship("prod", &tag).await;
        arrivals.wait_for(|arrived| has(arrived, &finished, n)).await.expect("the receiver runs");
    }
    relaybook.stop().await;
    let p = |times: &mut [f64], q| quantile(times, q).expect("it was measured");
    let spread = |times: &mut [f64]| [0.05, 0.5, 0.95].map(|q| format!("{:.1}", p(times, q))).join(", ");
    let note = format!(
        "p5, p50 and p95 to PromotionRequested: {} ms; to Deployed: {} ms",
        spread(&mut to_request),
        spread(&mut to_deployed)
    );
    vec![Reading::against(&PROMOTION, p(&mut to_request, 0.5), p(&mut to_deployed, 0.5)), Reading::Note(note)]
}

/// Whether more than `n` requests to this path have arrived.
fn has(arrived: &Arrived, path: &str, n: usize) -> bool {
    arrived.by_path.get(path).is_some_and(|count| *count > n)
}

/// Whether the status of the pipeline shows that `dev` tries to run this revision.
async fn in_progress(world: &World, tag: &str) -> bool {
    let status = world.get_pipeline("shop").await.status.unwrap_or_default();
    let mut targets = status.environments.iter().flat_map(|e| &e.targets);
    targets.any(|t| t.cluster_app_ref.name == "dev" && t.attempted_revision == tag && t.status == Status::InProgress)
}

/// Writes the status of a finished rollout. Returns when the write began.
async fn finish(world: &World, app: &str) -> Instant {
    let api = world.api::<Deployment>();
    let generation = api.get(app).await.expect("the Deployment is there").metadata.generation;
    let conditions = [
        condition("Progressing", "True", "NewReplicaSetAvailable", "ReplicaSet has progressed."),
        condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
    ];
    let status = json!({"observedGeneration": generation, "conditions": conditions, "replicas": 1, "updatedReplicas": 1,
        "readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": null});
    let patch = Patch::Merge(json!({"status": status}));
    let began = Instant::now();
    api.patch_status(app, &PatchParams::default(), &patch).await.expect("a status is written");
    began
}

/// Counts the writes while nothing changes. Each pipeline has a promotion that was requested, or one that waits for an approval.
async fn idle(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("promotion-idle", round).await;
    for app in ["dev", "prod"] {
        world.deploy(app, "1").await;
    }
    for n in 0..PIPELINES {
        promoting(&world, &format!("shop-{n}"), json!({"manual": n % 2 == 0})).await;
    }
    hook(bed, &world).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("dev", "2").await;
    until("each pipeline has its promotion", async || {
        let all = world.api::<Promotion>().list(&ListParams::default()).await.expect("listed").items;
        all.len() == PIPELINES && all.iter().all(|p| p.status.as_ref().is_some_and(|s| s.step > 0))
    })
    .await;
    let requested = format!("/{}/prod/PromotionRequested", world.ns);
    until("each request has arrived", async || bed.receiver.times(&requested).len() == PIPELINES / 2).await;
    // A new process, so that what is written only now and then is written.
    relaybook.restart().await;
    world.settled().await;
    still(bed).await;

    let phase = bed.seconds(20, 5);
    let start = bed.now().await.requests;
    sleep(phase).await;
    relaybook.restart().await;
    sleep(phase).await;
    let written = (&bed.now().await.requests - &start).writes().only(&OURS);
    let memory = process::memory(relaybook.pid());
    relaybook.stop().await;
    vec![
        Reading::of(&PROMOTION_IDLE, written.total()),
        Reading::Note(format!("written: {}; resident memory {memory:.1} MiB", written.each(1.0))),
    ]
}
