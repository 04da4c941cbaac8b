//! Measures the message of one team while another one makes as much work as the API allows: 50 pipelines that each follow all 50 Deployments
//! of their namespace by `metadata.resourceVersion`, while somebody patches these Deployments in a loop. Each patch is a change of all 50
//! pipelines, and with Notifications it is 50 deliveries for each.
//!
//! In: the two namespaces, neither of them that of Relaybook itself. Out: the time from the status of the quiet team's application to its request,
//! with these pipelines and without them. The patches go on all the time, because they are no work of Relaybook. Measured are the state while the
//! budget of the noisy namespace lasts, as a note, and the state after that, as the figure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use relaybook_api::Pipeline;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::bed::{Bed, notify, pipeline};
use crate::source::Source;
use crate::support::relaybook::Options;
use crate::support::{Relaybook, World};
use crate::table::{NOISY, NOISY_NOTIFIED, Reading, quantile};

/// Number of pipelines of the noisy team, and of its Deployments.
const PIPELINES: usize = 50;
const APPS: usize = 50;
/// Number of its Notifications.
const NOTIFICATIONS: usize = 2;
/// Interval between two patches.
const PATCH_EVERY: Duration = Duration::from_millis(50);
/// Time for a message. Without a limit, one round could last for hours.
const LONGEST: Duration = Duration::from_mins(1);

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let (own, quiet, noisy) =
        (bed.world("noisy-own", round).await, bed.world("quiet-team", round).await, bed.world("noisy-team", round).await);
    let mut source = Source::create(&quiet, "web").await;
    pipeline(&quiet, "shop", &["web".to_owned()]).await;
    bed.notification(&quiet, "hook", json!({})).await;
    let path = format!("/{}/web", quiet.ns);
    let apps: Vec<String> = (0..APPS).map(|n| format!("app-{n}")).collect();
    stream::iter(&apps).map(|app| deploy(&noisy, app)).buffer_unordered(8).collect::<Vec<_>>().await;
    let watch = vec![quiet.ns.clone(), noisy.ns.clone()];
    let mut relaybook = Relaybook::with(&own, Options { watch, ..Options::of(&own) }).await;
    quiet.settled().await;

    let stop = Arc::new(AtomicBool::new(false));
    let mut patches = JoinSet::new();
    patches.spawn(patch(noisy.api(), apps, stop.clone()));
    let mut readings = Vec::new();
    let mut times = async |name: &str, seconds| {
        let mut times = messages(bed, &mut source, &path, seconds).await;
        let [p50, p90, most] = [0.5, 0.9, 1.0].map(|q| quantile(&mut times, q).expect("it was measured"));
        (p50, Reading::Note(format!("{name}: p50 {p50:.1}, p90 {p90:.1}, at most {most:.0} ms of {}", times.len())))
    };
    let length = bed.seconds(30, 10);
    let (alone, note) = times("without the pipelines", length).await;
    readings.push(note);
    stream::iter(0..PIPELINES).map(|n| follow_all(&noisy, n)).buffer_unordered(8).collect::<Vec<_>>().await;
    for (figure, count, what) in [(&NOISY, 0, "50 pipelines"), (&NOISY_NOTIFIED, NOTIFICATIONS, "with Notifications")] {
        for n in 0..count {
            // Their deliveries are sent, so that they cost as much as possible.
            let url = bed.receiver.url(&format!("/{}/{{{{target.app.name}}}}", noisy.ns));
            notify(&noisy, &format!("loud-{n}"), &url, json!({})).await;
        }
        let (_, note) = times(&format!("{what}, at first"), length).await;
        readings.push(note);
        budget_is_used(&relaybook).await;
        let (beside, note) = times(&format!("{what}, then"), length).await;
        readings.extend([Reading::against(figure, beside, alone), note]);
    }
    stop.store(true, Ordering::Relaxed);
    patches.join_all().await;
    noisy.api::<Pipeline>().delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
    relaybook.stop().await;
    readings
}

async fn deploy(world: &World, app: &str) {
    world.deploy_with(app, "1", json!({"team": "noisy"})).await;
}

/// Creates a pipeline that follows all Deployments of its namespace by their version.
async fn follow_all(world: &World, n: usize) {
    let objects = json!({"apiVersion": "apps/v1", "kind": "Deployment", "selector": {"matchLabels": {"team": "noisy"}},
        "revisionPath": ".metadata.resourceVersion"});
    let spec = json!({"environments": [{"name": "prod", "targetsFrom": [{"objects": objects}]}]});
    world.create::<Pipeline>(json!({"metadata": {"name": format!("all-{n}")}, "spec": spec})).await;
}

/// Patches Deployments one after the other.
async fn patch(api: Api<Deployment>, apps: Vec<String>, stop: Arc<AtomicBool>) {
    let mut clock = interval(PATCH_EVERY);
    for (n, app) in apps.iter().cycle().enumerate() {
        clock.tick().await;
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": n.to_string()}}}));
        api.patch(app, &PatchParams::default(), &patch).await.expect("patched");
    }
}

/// Waits until the noisy namespace waits for its pace. A program without a pace has no such metric; then it waits for half a minute.
async fn budget_is_used(relaybook: &Relaybook) {
    let until = Instant::now() + Duration::from_mins(3);
    while Instant::now() < until {
        match relaybook.metrics().await.get("relaybook_api_writes_paced_total{kind=\"pipeline_status\"}") {
            Some(count) if *count > 0.0 => break,
            Some(_) => sleep(Duration::from_millis(500)).await,
            None => return sleep(Duration::from_secs(30)).await,
        }
    }
    sleep(Duration::from_secs(5)).await;
}

/// Returns the times of the quiet team's messages, in milliseconds.
async fn messages(bed: &Bed, source: &mut Source, path: &str, length: Duration) -> Vec<f64> {
    let (end, mut times) = (Instant::now() + length, Vec::new());
    let mut arrivals = bed.receiver.arrivals();
    while Instant::now() < end {
        sleep(Duration::from_millis(200 + fastrand::u64(0..200))).await;
        let before = bed.receiver.times(path).len();
        let began = Instant::now();
        source.flip().await;
        let arrived = arrivals.wait_for(|all| all.by_path.get(path).is_some_and(|count| *count > before));
        let has_arrived = timeout(LONGEST, arrived).await.is_ok();
        let took = if has_arrived { bed.receiver.times(path)[before].duration_since(began) } else { LONGEST };
        times.push(took.as_secs_f64() * 1000.0);
    }
    times
}
