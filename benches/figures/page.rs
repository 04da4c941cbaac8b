//! Measures the audit page: 1,000 pipelines, 100,000 deliveries, and one person who looks at it.
//!
//! Nothing else runs on the control plane, so the calls that the API server counts are those of the page. The memory is that of `relaybook page`
//! after every screen was read several times, less that before the first. The time is until the whole answer has arrived.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use kube::api::{Patch, PatchParams, PostParams};
use relaybook_api::{Delivery, DeliverySpec, Notification, Outcome, Pipeline, TransitionType};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bed::{Bed, at_rest};
use crate::process;
use crate::support::World;
use crate::support::own_page::OwnPage;
use crate::table::{PAGE_CALLS, PAGE_IDLE, PAGE_MEMORY, PAGE_OVERVIEW, PAGE_SLOWEST, Reading};

/// Number of parallel writes by plain clients.
const AT_ONCE: usize = 32;
/// Number of times that each screen is read.
const VISITS: usize = 20;

/// `relaybook page`, and a client with the cookie of its browser.
struct Page {
    running: OwnPage,
    origin: String,
    client: reqwest::Client,
    cookie: String,
}

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("page", round).await;
    let (pipelines, deliveries) = if bed.quick { (100, 2_000) } else { (1_000, 100_000) };
    for name in 0..10 {
        let spec = json!({"triggers": [{"type": "Deployed"}], "endpoint": {"url": format!("https://receiver-{name}.example.com/")},
                          "template": {"inline": {"body": "{}"}}});
        world.create::<Notification>(json!({"metadata": {"name": format!("hook-{name}")}, "spec": spec})).await;
    }
    stream::iter(0..pipelines).for_each_concurrent(AT_ONCE, async |number| pipeline(&world, number).await).await;
    let record = async |number| {
        world.api::<Delivery>().create(&PostParams::default(), &delivery(&world, number, pipelines)).await.expect("created");
    };
    stream::iter(0..deliveries).for_each_concurrent(AT_ONCE, record).await;
    let page = Page::start(&world).await;
    let pid = page.running.pid();
    at_rest(pid).await;
    let before = process::memory(pid);
    let (mut overview, mut slowest, mut most, mut notes) = (Vec::new(), 0.0_f64, 0.0_f64, Vec::new());
    let some = kube::ResourceExt::name_any(&delivery(&world, 7, pipelines));
    for (name, path) in [
        ("overview", "/".to_owned()),
        ("pipeline", format!("/pipelines/{}/pipeline-0007", world.ns)),
        ("delivery", format!("/deliveries/{}/{some}", world.ns)),
        ("notification", format!("/notifications/{}/hook-7", world.ns)),
        ("receivers", "/receivers".to_owned()),
        ("parked", "/parked".to_owned()),
        ("clusters", "/clusters".to_owned()),
        ("search", "/search?q=build-77".to_owned()),
    ] {
        page.get(&path).await;
        let calls = bed.now().await.requests;
        let mut times = Vec::new();
        for _ in 0..VISITS {
            times.push(page.get(&path).await);
        }
        // Reading the counters is a call itself.
        let calls = ((&bed.now().await.requests - &calls).without("WATCH").total() - 1.0) / VISITS as f64;
        times.sort_by(f64::total_cmp);
        let p95 = times[VISITS * 95 / 100 - 1];
        most = most.max(calls);
        if name == "overview" {
            overview = vec![p95];
        }
        slowest = slowest.max(p95);
        notes.push(format!("{name} {p95:.0} ms and {calls:.1} calls"));
    }
    let memory = process::memory(pid) - before;
    let idle = idle(bed, &page).await;
    vec![
        Reading::of(&PAGE_OVERVIEW, overview[0]),
        Reading::of(&PAGE_SLOWEST, slowest),
        Reading::of(&PAGE_MEMORY, memory),
        Reading::of(&PAGE_CALLS, most),
        Reading::of(&PAGE_IDLE, idle),
        Reading::Note(format!(
            "{pipelines} pipelines, {deliveries} deliveries; p95: {}; {before:.1} MiB before",
            notes.join(", ")
        )),
    ]
}

/// Returns the number of calls other than watches while the overview is open and nothing happens.
async fn idle(bed: &Bed, page: &Page) -> f64 {
    let url = format!("{}/events?for=%2F", page.origin);
    let mut events = page.client.get(url).header("cookie", &page.cookie).send().await.expect("a stream");
    sleep(Duration::from_secs(3)).await;
    let before = bed.now().await.requests;
    let reading = async { while let Ok(Some(_)) = events.chunk().await {} };
    let _ = tokio::time::timeout(bed.seconds(40, 10), reading).await;
    // The API server also makes calls of its own, such as for its Lease.
    (&bed.now().await.requests - &before).only(&["relaybook.dev", "selfsubject"]).without("WATCH").total()
}

impl Page {
    async fn start(world: &World) -> Self {
        let running = OwnPage::start(&world.kubeconfig, &["--controller-namespace", &world.ns]);
        let (origin, cookie) = (running.origin().to_owned(), running.enter().await);
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { running, origin, client, cookie }
    }

    /// Reads a page. Returns the time in milliseconds.
    async fn get(&self, path: &str) -> f64 {
        let began = Instant::now();
        let answer = self.client.get(format!("{}{path}", self.origin)).header("cookie", &self.cookie).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), 200, "{path}");
        let body = answer.bytes().await.expect("a body");
        assert!(body.len() > 1000, "{path}");
        began.elapsed().as_secs_f64() * 1000.0
    }
}

/// Creates a pipeline with four environments of two targets each, with its status as the controllers would write it.
async fn pipeline(world: &World, number: usize) {
    let name = format!("pipeline-{number:04}");
    let names = ["dev", "test", "staging", "prod"];
    let target = |environment: &str, n: usize| json!({"namespace": format!("{name}-{environment}-{n}")});
    let environments: Vec<Value> =
        names.iter().map(|e| json!({"name": e, "targets": [target(e, 0), target(e, 1)]})).collect();
    let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    world
        .create::<Pipeline>(json!({"metadata": {"name": name}, "spec": {"appRef": app, "environments": environments}}))
        .await;
    let observed = |environment: &str, n: usize| {
        let state = if number.is_multiple_of(50) && environment == "prod" { "Failed" } else { "Current" };
        let settled = json!({"status": state, "revision": format!("build-{number}"), "current": format!("build-{number}"), "reader": "0123456789abcdef"});
        json!({
            "clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": format!("{name}-{environment}-{n}")},
            "status": state, "ready": state == "Current", "revision": format!("build-{number}"),
            "attemptedRevision": format!("build-{number}"), "lastTransitionTime": "2026-03-01T12:00:00Z", "settled": settled,
        })
    };
    let states: Vec<Value> = names.iter().map(|e| json!({"name": e, "targets": [observed(e, 0), observed(e, 1)]})).collect();
    let cursors: Vec<Value> = (0..10)
        .map(|n| json!({"notification": format!("hook-{n}"), "serial": 1_700_000_000_000_i64, "uid": "global"}))
        .collect();
    let sent: Vec<Value> = names
        .iter()
        .flat_map(|e| [0, 1].map(|n| json!({"subject": format!("target/{e}/in-cluster/{name}-{e}-{n}"), "time": "2026-03-01T12:00:01Z", "notification": "hook-1"})))
        .collect();
    let patch = json!({"status": {
        "observedGeneration": 1, "readyTargets": "8/8", "revision": format!("build-{number}"), "environments": states,
        "log": {"first": 1_700_000_000_000_i64, "serial": 1_700_000_000_008_i64, "changes": []},
        "dispatched": {"cursors": cursors, "lastSent": sent, "lastSentTime": "2026-03-01T12:00:01Z", "lastSentBy": "hook-1"},
    }});
    let api = world.api::<Pipeline>();
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
}

/// A settled delivery. One in a hundred was parked.
fn delivery(world: &World, number: usize, pipelines: usize) -> Delivery {
    let (pipeline, notification) = (format!("pipeline-{:04}", number % pipelines), format!("hook-{}", number % 10));
    let outcome = if number % 100 == 3 { Outcome::Parked } else { Outcome::Delivered };
    let spec: DeliverySpec = serde_json::from_value(json!({
        "notification": notification, "notificationUid": "n", "lane": "target/prod/in-cluster/x",
        "pipelineRef": {"namespace": world.ns, "name": pipeline, "uid": "p"},
        "subject": {"kind": "Target", "name": "prod/in-cluster/x", "environment": "prod",
                    "target": {"namespace": "x", "cluster": "in-cluster", "app": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}},
        "order": number, "serial": number, "type": TransitionType::Deployed.as_str(), "time": "2026-03-01T12:00:00Z",
        "from": {"status": "Current", "revision": "build-1", "current": "build-1"},
        "to": {"status": "Current", "revision": format!("build-{number}"), "current": format!("build-{number}")},
    }))
    .expect("a delivery");
    let mut delivery = Delivery::new(&format!("{pipeline}-{notification}-{number:06}-deployed"), spec);
    let labels = [
        ("notification", notification),
        ("pipeline", pipeline),
        ("pipeline-namespace", world.ns.clone()),
        ("environment", "prod".to_owned()),
    ];
    delivery.metadata.labels =
        Some(labels.into_iter().map(|(key, value)| (format!("relaybook.dev/{key}"), value)).collect());
    let status = json!({
        "outcome": outcome.as_str(), "attempts": 1, "statusCode": if outcome == Outcome::Parked { 400 } else { 200 },
        "lastAttemptTime": "2026-03-01T12:00:01Z", "settledTime": "2026-03-01T12:00:01Z", "lastDurationMillis": number % 90,
        "response": "{\"ok\":true}",
    });
    delivery.status = Some(serde_json::from_value(status).expect("a status"));
    delivery
}
