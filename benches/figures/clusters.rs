//! Measures the cost of observing: 500 pipelines of four targets each in three control planes, the first list of 20,000 objects,
//! and one control plane that hangs.
//!
//! The first sync lasts from the start of the process until every pipeline's status is written with all targets ready. Its floor
//! is the same number of writes of the same statuses by plain clients. A resync updates every pipeline without a change, so that
//! each is reconciled again. The memory figure is what a cache of 20,000 objects adds, of which a pipeline refers to one. The hung
//! control plane is paused with SIGSTOP: it accepts connections, and never answers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::LimitRange;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use relaybook_api::Pipeline;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bed::{Bed, at_rest, notify, until};
use crate::process;
use crate::source::Source;
use crate::support::control_plane::ControlPlane;
use crate::support::{Relaybook, World};
use crate::table::{HUNG_P99, OBJECT_MEMORY, RESYNC, RESYNC_WRITES, Reading, SYNC, quantile};

/// Number of parallel writes by plain clients.
const AT_ONCE: usize = 32;
/// Number of changing targets in each healthy control plane while the other one hangs.
const MOVING: usize = 8;
/// Mean pause of each between two changes.
const REST: Duration = Duration::from_millis(800);

/// A control plane beside the one that contains Relaybook's resources.
struct Remote {
    plane: ControlPlane,
    world: World,
    name: &'static str,
}

impl Remote {
    /// Starts a control plane with a namespace of the same name, and writes its kubeconfig to a Secret.
    async fn start(name: &'static str, world: &World) -> Self {
        let plane = ControlPlane::start().expect("one more control plane");
        let there = World::on(&plane.kubeconfig, &world.ns).await;
        let kubeconfig = std::fs::read_to_string(&plane.kubeconfig).expect("the launcher wrote a kubeconfig");
        world.secret(name, json!({"kubeconfig": kubeconfig})).await;
        Self { plane, world: there, name }
    }

    /// Returns the `clusterRef` of a target in this cluster.
    fn reference(&self) -> Value {
        json!({"kind": "Secret", "name": self.name})
    }
}

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("clusters", round).await;
    let (a, b) = (Remote::start("a", &world).await, Remote::start("b", &world).await);
    let mut readings = sync(bed, round, &world, &a, &b).await;
    readings.extend(memory(bed, round, &b).await);
    readings.extend(hung(bed, round, &a, &b).await);
    readings
}

/// Measures the first sync, and a resync.
async fn sync(bed: &Bed, round: u32, world: &World, a: &Remote, b: &Remote) -> Vec<Reading> {
    let count = if bed.quick { 50 } else { 500 };
    for there in [world, &a.world, &b.world] {
        stream::iter(0..count).for_each_concurrent(AT_ONCE, async |n| there.deploy(&app(n), "1").await).await;
    }
    stream::iter(0..count)
        .for_each_concurrent(AT_ONCE, async |n| a.world.deploy(&format!("{}-twin", app(n)), "1").await)
        .await;
    let make = async |n| drop(world.create::<Pipeline>(shop(world, a, b, n)).await);
    stream::iter(0..count).for_each_concurrent(AT_ONCE, make).await;

    let pipelines = world.api::<Pipeline>();
    let began = Instant::now();
    let (mut relaybook, written) = tokio::join!(Relaybook::start(world), all_ready(&pipelines, count, "4/4"));
    let took = written.duration_since(began);
    let (used, lasted) = (at_rest(relaybook.pid()).await, began.elapsed());
    let idle = idle(bed, relaybook.pid()).await;
    let first = used.saturating_sub(lasted.mul_f64(idle));

    let before = bed.now().await.requests;
    let (used, began) = (process::cpu(relaybook.pid()), Instant::now());
    // Another field manager applies the current fields: the watch reports each pipeline, with only a new resource version.
    let touched = async |n| {
        let (kind, name) = (json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": app(n)}), app(n));
        let same = json!({"apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": name}, "spec": {"appRef": kind}});
        pipelines.patch(&name, &PatchParams::apply("somebody"), &Patch::Apply(&same)).await.expect("applied");
    };
    stream::iter(0..count).for_each_concurrent(AT_ONCE, touched).await;
    let again = (at_rest(relaybook.pid()).await - used).saturating_sub(began.elapsed().mul_f64(idle));
    let writes = (&bed.now().await.requests - &before).writes();
    let (used, began) = (process::cpu(relaybook.pid()), Instant::now());
    let label = json!({"metadata": {"labels": {"touched": "yes"}}});
    let labelled = async |n| drop(world.patch::<Pipeline>(&app(n), label.clone()).await);
    stream::iter(0..count).for_each_concurrent(AT_ONCE, labelled).await;
    let looked = (at_rest(relaybook.pid()).await - used).saturating_sub(began.elapsed().mul_f64(idle));
    let statuses = writes.count("pipelines/status") + writes.count("deliveries") + writes.count("events");
    relaybook.stop().await;
    let floor = floor(bed, round, &pipelines).await;
    let note = format!(
        "{count} pipelines, 4 targets each: statuses {:.2} s after the start, {:.2} s of CPU; the same writes {:.2} s; \
         applied again as they are {:.3} s of CPU, and {:.3} s with a new label each, so that each is looked at; at rest {:.4} of \
         a core, which is not counted",
        took.as_secs_f64(),
        first.as_secs_f64(),
        floor.as_secs_f64(),
        again.as_secs_f64(),
        looked.as_secs_f64(),
        idle,
    );
    vec![
        Reading::against(&SYNC, took.as_secs_f64(), floor.as_secs_f64()),
        Reading::against(&RESYNC, again.as_secs_f64(), first.as_secs_f64()),
        Reading::of(&RESYNC_WRITES, statuses),
        Reading::Note(note),
    ]
}

/// Measures the share of a core that a process uses while nothing changes: probes of clusters, Leases, timers.
async fn idle(bed: &Bed, pid: u32) -> f64 {
    let (used, began) = (process::cpu(pid), Instant::now());
    sleep(bed.seconds(10, 2)).await;
    (process::cpu(pid) - used).as_secs_f64() / began.elapsed().as_secs_f64()
}

fn app(n: usize) -> String {
    format!("shop-{n}")
}

/// Returns a pipeline with one target in the local cluster, two in cluster `a` and one in cluster `b`.
fn shop(world: &World, a: &Remote, b: &Remote, n: usize) -> Value {
    let (name, ns) = (app(n), &world.ns);
    let prod = json!([
        {"namespace": ns, "clusterRef": a.reference()},
        {"namespace": ns, "clusterRef": a.reference(), "appRef": {"name": format!("{name}-twin")}},
        {"namespace": ns, "clusterRef": b.reference()},
    ]);
    json!({
        "metadata": {"name": name},
        "spec": {
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "environments": [{"name": "dev", "targets": [{"namespace": ns}]}, {"name": "prod", "targets": prod}],
        },
    })
}

/// Waits until the status of this many pipelines is written with these targets ready, such as `4/4`, and returns the time.
pub async fn all_ready(pipelines: &Api<Pipeline>, count: usize, ready: &str) -> Instant {
    let mut found = BTreeSet::new();
    let mut seen = watcher(pipelines.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(pipeline) = seen.try_next().await.expect("pipelines are watched") {
        if pipeline.status.as_ref().is_some_and(|s| s.ready_targets == ready) {
            found.insert(pipeline.name_any());
        }
        if found.len() == count {
            break;
        }
    }
    Instant::now()
}

/// Measures plain clients that write the same statuses to pipelines that no controller watches.
async fn floor(bed: &Bed, round: u32, of: &Api<Pipeline>) -> Duration {
    let world = bed.world("clusters-floor", round).await;
    let all = of.list(&ListParams::default()).await.expect("listed").items;
    let copy = async |p: Pipeline| {
        let spec = serde_json::to_value(&p.spec).expect("a spec");
        drop(world.create::<Pipeline>(json!({"metadata": {"name": p.name_any()}, "spec": spec})).await);
    };
    stream::iter(all.clone()).for_each_concurrent(AT_ONCE, copy).await;
    let api = &world.api::<Pipeline>();
    let write = async |p: Pipeline| {
        let steps = json!([{"op": "add", "path": "/status", "value": p.status}]);
        let patch = Patch::Json::<()>(serde_json::from_value(steps).expect("a patch"));
        api.patch_status(&p.name_any(), &PatchParams::default(), &patch).await.expect("a status is written");
    };
    let began = Instant::now();
    stream::iter(all).for_each_concurrent(AT_ONCE, write).await;
    began.elapsed()
}

/// Measures the memory of a cache of many objects.
async fn memory(bed: &Bed, round: u32, b: &Remote) -> Vec<Reading> {
    let count = if bed.quick { 2_000 } else { 20_000 };
    let world = bed.world("clusters-memory", round).await;
    let kubeconfig = std::fs::read_to_string(&b.plane.kubeconfig).expect("the launcher wrote a kubeconfig");
    world.secret(b.name, json!({"kubeconfig": kubeconfig})).await;
    let object = |n: usize| {
        json!({"metadata": {"name": format!("item-{n}"), "labels": {"app.kubernetes.io/version": format!("1.{n}")},
            "annotations": {"filler": "x".repeat(512)}}})
    };
    let make = async |n| drop(b.world.create::<LimitRange>(object(n)).await);
    stream::iter(0..count).for_each_concurrent(AT_ONCE, make).await;
    let pipeline = |name: &str, kind: &str, of: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "appRef": {"apiVersion": if kind == "LimitRange" { "v1" } else { "apps/v1" }, "kind": kind, "name": of},
                "environments": [{"name": "prod", "targets": [{"namespace": b.world.ns, "clusterRef": b.reference()}]}],
            },
        })
    };
    world.create::<Pipeline>(pipeline("few", "Deployment", "fence")).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.observed("few").await;
    at_rest(relaybook.pid()).await;
    let before = process::memory(relaybook.pid());
    world.create::<Pipeline>(pipeline("many", "LimitRange", "item-0")).await;
    world.observed("many").await;
    at_rest(relaybook.pid()).await;
    let after = process::memory(relaybook.pid());
    relaybook.stop().await;
    let each = (after - before) * 1024.0 / count as f64;
    vec![
        Reading::of(&OBJECT_MEMORY, each),
        Reading::Note(format!("{before:.1} MiB before, {after:.1} MiB with a cache of {count} objects")),
    ]
}

/// Measures changes in two control planes while the third hangs, and while it does not. One pipeline has targets in all three.
async fn hung(bed: &Bed, round: u32, a: &Remote, b: &Remote) -> Vec<Reading> {
    let world = bed.world("clusters-hung", round).await;
    for remote in [a, b] {
        let kubeconfig = std::fs::read_to_string(&remote.plane.kubeconfig).expect("the launcher wrote a kubeconfig");
        world.secret(remote.name, json!({"kubeconfig": kubeconfig})).await;
    }
    let mut sources = Vec::new();
    let mut targets = vec![json!({"namespace": a.world.ns, "clusterRef": a.reference(), "appRef": {"name": "fence"}})];
    for n in 0..MOVING {
        let (here, there) = (format!("here-{n}"), format!("there-{n}-{round}"));
        targets.push(json!({"namespace": world.ns, "appRef": {"name": here}}));
        targets.push(json!({"namespace": b.world.ns, "clusterRef": b.reference(), "appRef": {"name": there}}));
        sources.push(Source::create(&world, &here).await);
        sources.push(Source::create(&b.world, &there).await);
    }
    let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "app"});
    let spec = json!({"appRef": app, "environments": [{"name": "prod", "targets": targets}]});
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    let triggers = json!({"triggers": [{"type": "Failed"}, {"type": "Recovered"}]});
    notify(&world, "hook", &bed.receiver.url(&format!("/{}/{{{{target.app.name}}}}", world.ns)), triggers).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let (mut without, mut with) = (Vec::new(), Vec::new());
    for hangs in [false, true, true, false] {
        if hangs {
            a.plane.freeze_api_server();
        }
        sleep(bed.seconds(3, 1)).await;
        let before: Vec<_> = sources.iter().map(|s| s.flips.len()).collect();
        sources = flip(sources, bed.seconds(30, 8)).await;
        until("all has arrived", async || sources.iter().all(|s| arrivals(bed, &world, s).len() == s.flips.len())).await;
        for (source, before) in sources.iter().zip(before) {
            let pairs = source.flips.iter().zip(arrivals(bed, &world, source)).skip(before);
            let times = pairs.map(|(began, at)| at.duration_since(*began).as_secs_f64() * 1000.0);
            if hangs { with.extend(times) } else { without.extend(times) }
        }
        a.plane.thaw_api_server();
    }
    relaybook.stop().await;
    let [fine, ill] = [&mut without, &mut with].map(|times| quantile(times, 0.99).expect("it was measured"));
    let [p50, p50_with] = [&mut without, &mut with].map(|times| quantile(times, 0.5).expect("it was measured"));
    vec![
        Reading::against(&HUNG_P99, ill, fine),
        Reading::Note(format!("of {} and {} changes: p50 {p50:.1} and {p50_with:.1} ms", without.len(), with.len())),
    ]
}

fn arrivals(bed: &Bed, world: &World, source: &Source) -> Vec<Instant> {
    bed.receiver.times(&format!("/{}/{}", world.ns, source.app))
}

/// Changes all source objects repeatedly, with random pauses.
async fn flip(sources: Vec<Source>, time: Duration) -> Vec<Source> {
    let end = Instant::now() + time;
    let one = async |mut source: Source| {
        while Instant::now() < end {
            sleep(REST.mul_f64(0.5 + fastrand::f64())).await;
            source.flip().await;
        }
        source
    };
    futures::future::join_all(sources.into_iter().map(one)).await
}
