//! One pipeline of 8 targets with 8 notifications, whose targets change as fast as the system takes them.
//!
//! A target changes again when the pipeline's status shows its last change, unless the log holds so many of its changes that the
//! next would be made one with another, or the receiver is too far behind. So the load is as high as it can be with nothing
//! lost to compaction, which is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use pennant::api::{Pipeline, Status};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::api_server::Moment;
use crate::bed::{Bed, pipeline, until};
use crate::floor;
use crate::process;
use crate::receiver::Arrived;
use crate::render;
use crate::source::Source;
use crate::support::{Pennant, World};
use crate::table::{CPU, RENDER_SHARE, Reading, THROUGHPUT, WRITES_FAST};

const TARGETS: usize = 8;
const NOTIFICATIONS: usize = 8;
/// Changes of one target that may wait in the log: one more, and two would be made one.
const IN_LOG: usize = pennant::changelog::MAX_PER_SUBJECT - 1;
/// Changes of one target that may wait for the receiver: enough to keep all of its lanes busy.
const AHEAD: usize = 4;

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let floor = floor::pairs(bed, "floor-before", round).await;
    let world = bed.world("throughput", round).await;
    let apps: Vec<_> = (0..TARGETS).map(|n| format!("web-{n}")).collect();
    let mut sources = Vec::new();
    for app in &apps {
        sources.push(Source::create(&world, app).await);
    }
    pipeline(&world, "shop", &apps).await;
    for n in 0..NOTIFICATIONS {
        bed.notification(&world, &format!("hook-{n}"), json!({})).await;
    }
    let mut pennant = Pennant::start(&world).await;
    world.settled().await;

    let load = Load::start(bed, &world, sources);
    sleep(bed.seconds(5, 3)).await;
    let before = Here::now(bed, &pennant).await;
    sleep(bed.seconds(30, 8)).await;
    let after = Here::now(bed, &pennant).await;
    let seen = *load.seen.borrow();
    let (sources, changes) = load.stop().await;
    until("all is delivered", async || delivered(&pennant).await >= (changes * NOTIFICATIONS) as f64).await;
    check(bed, &world, &pennant, changes).await;
    pennant.stop().await;
    let alone = alone(bed, sources).await;
    let floor = floor.and(floor::pairs(bed, "floor-after", round).await);
    let mut readings = readings(&floor, &before, &after, alone, render::cost(bed.quick));
    let mean = |n: usize| n as f64 / seen.versions as f64;
    let (size, changes) = (mean(seen.bytes) / 1024.0, mean(seen.changes));
    readings.push(Reading::Note(format!(
        "the pipeline's status has {size:.1} KiB and {changes:.0} changes in its log, on average"
    )));
    readings
}

/// What came of it, and at what price. `alone`: API server CPU for one write of a source object; `rendering`: Pennant's for
/// one rendering of a built-in template.
fn readings(floor: &floor::Floor, before: &Here, after: &Here, alone: Duration, rendering: Duration) -> Vec<Reading> {
    let took = after.at.duration_since(before.at).as_secs_f64();
    let requests = &after.api.requests - &before.api.requests;
    let writes = requests.writes();
    let sources = writes.count("apps/deployments");
    let own = writes.without("apps/deployments");
    // Half of each pair: the windows of creates and of outcomes are not quite the same.
    let (created, written) = (own.count("POST pennant.dev/deliveries"), own.count("PATCH pennant.dev/deliveries/status"));
    let count = f64::midpoint(created, written);
    let sent = after.delivered - before.delivered;
    let millis = |d: Duration| d.as_secs_f64() * 1000.0;
    let cpu = millis(after.api.cpu - before.api.cpu);
    let cpu_own = (cpu - sources * millis(alone)) / count;
    let etcd = millis(after.api.etcd - before.api.etcd) / count;
    let (pennant, bench) =
        (millis(after.pennant - before.pennant) / count, millis(after.api.bench - before.api.bench) / count);
    let all = cpu / count + etcd + pennant + bench;
    vec![
        Reading::against(&THROUGHPUT, sent / took, floor.rate()),
        Reading::against(&CPU, cpu_own, floor.api()),
        Reading::of(&WRITES_FAST, own.total() / count),
        Reading::against(&RENDER_SHARE, millis(rendering), pennant),
        Reading::Note(format!("writes a delivery: {}", own.each(count))),
        Reading::Note(format!("reads a delivery: {}", requests.only(&["GET ", "LIST "]).each(count))),
        Reading::Note(format!(
            "CPU a delivery: API server {:.2} ms ({cpu_own:.2} ms without {:.1} source writes a second of {:.2} ms each), \
             etcd {etcd:.2} ms, pennant {pennant:.2} ms, load and receiver {bench:.2} ms; in all {all:.2} ms",
            cpu / count,
            sources / took,
            millis(alone),
        )),
        Reading::Note(format!(
            "CPU of a pair of the floor: API server {:.2} ms, etcd {:.2} ms; in all {:.2} ms, which is {:.2} of the above",
            floor.api(),
            floor.etcd(),
            floor.all(),
            floor.all() / all,
        )),
        Reading::Note(format!(
            "of {} cores, {:.2} were used and {:.2} idle; in the floor {:.2} and {:.2}",
            std::thread::available_parallelism().map_or(0, usize::from),
            all * count / 1000.0 / took,
            (after.api.idle - before.api.idle).as_secs_f64() / took,
            floor.all() * floor.rate() / 1000.0,
            floor.idle(),
        )),
        Reading::Note(format!(
            "pennant counts {:.0} writes, the API server {:.0}; {created:.0} deliveries created and {sent:.0} sent in {took:.1} s",
            after.counted - before.counted,
            own.total(),
        )),
    ]
}

/// Nothing was lost on the way, repeated, or made one with something else.
async fn check(bed: &Bed, world: &World, pennant: &Pennant, changes: usize) {
    let arrived = bed.receiver.arrivals().borrow().clone();
    let here = format!("/{}/", world.ns);
    let requests: usize = arrived.by_path.iter().filter(|(path, _)| path.starts_with(&here)).map(|(_, n)| n).sum();
    assert_eq!(requests, changes * NOTIFICATIONS, "each change is told once by each notification");
    assert_eq!(delivered(pennant).await, requests as f64, "and written down");
}

async fn delivered(pennant: &Pennant) -> f64 {
    pennant.metrics().await["pennant_deliveries_total{outcome=\"Delivered\"}"]
}

/// API server CPU for one write of a source object, with nobody watching: the same writes, so fast that what the API server does
/// by itself does not count.
async fn alone(bed: &Bed, sources: Vec<Source>) -> Duration {
    let before = bed.now().await.cpu;
    let end = Instant::now() + bed.seconds(10, 4);
    let writes = join_all(sources.into_iter().map(async |mut source| {
        let mut writes = 0;
        while Instant::now() < end {
            source.flip().await;
            writes += 1;
        }
        writes
    }));
    let writes: u32 = writes.await.into_iter().sum();
    (bed.now().await.cpu - before) / writes
}

/// A moment of the measurement.
struct Here {
    at: Instant,
    api: Moment,
    delivered: f64,
    /// Writes that Pennant counts.
    counted: f64,
    pennant: Duration,
}

impl Here {
    async fn now(bed: &Bed, pennant: &Pennant) -> Self {
        let api = bed.now().await;
        let metrics = pennant.metrics().await;
        Self {
            at: Instant::now(),
            api,
            delivered: metrics["pennant_deliveries_total{outcome=\"Delivered\"}"],
            counted: metrics.iter().filter(|(k, _)| k.starts_with("pennant_api_writes_total")).map(|(_, n)| n).sum(),
            pennant: process::cpu(pennant.pid()),
        }
    }
}

/// What the pipeline's status says of one application.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    failed: bool,
    in_log: usize,
}

/// What the pipeline's status looked like, for whoever asks what it costs.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    versions: usize,
    bytes: usize,
    changes: usize,
}

/// The load: one task for each target, and one that watches the pipeline.
struct Load {
    stop: Arc<AtomicBool>,
    changes: Arc<AtomicUsize>,
    movers: JoinSet<Source>,
    watching: JoinHandle<()>,
    seen: watch::Receiver<Seen>,
}

impl Load {
    fn start(bed: &Bed, world: &World, sources: Vec<Source>) -> Self {
        let (show, shown) = watch::channel(BTreeMap::new());
        let (count, seen) = watch::channel(Seen::default());
        let watching = tokio::spawn(follow(world.api(), show, count));
        let (stop, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut movers = JoinSet::new();
        for source in sources {
            let path = format!("/{}/{}", world.ns, source.app);
            let pace = Pace { shown: shown.clone(), arrived: bed.receiver.arrivals(), path };
            movers.spawn(drive(source, pace, stop.clone(), changes.clone()));
        }
        Self { stop, changes, movers, watching, seen }
    }

    /// Lets every target end what it has begun. The sources, and how many changes they made.
    async fn stop(self) -> (Vec<Source>, usize) {
        self.stop.store(true, Ordering::Relaxed);
        let sources = self.movers.join_all().await;
        self.watching.abort();
        (sources, self.changes.load(Ordering::Relaxed))
    }
}

/// When one target may change again.
struct Pace {
    shown: watch::Receiver<BTreeMap<String, Shown>>,
    arrived: watch::Receiver<Arrived>,
    path: String,
}

async fn drive(mut source: Source, mut pace: Pace, stop: Arc<AtomicBool>, changes: Arc<AtomicUsize>) -> Source {
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        let free = |shown: &BTreeMap<String, Shown>| {
            shown.get(&source.app).is_some_and(|s| s.failed == source.failed && s.in_log <= IN_LOG)
        };
        pace.shown.wait_for(free).await.expect("the pipeline is watched");
        let near =
            |arrived: &Arrived| made * NOTIFICATIONS < arrived.by_path.get(&pace.path).unwrap_or(&0) + AHEAD * NOTIFICATIONS;
        pace.arrived.wait_for(near).await.expect("the receiver runs");
        source.flip().await;
        made += 1;
        changes.fetch_add(1, Ordering::Relaxed);
    }
    source
}

async fn follow(api: Api<Pipeline>, show: watch::Sender<BTreeMap<String, Shown>>, count: watch::Sender<Seen>) {
    let mut pipelines = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(pipeline) = pipelines.try_next().await.expect("the pipeline is watched") {
        let status = pipeline.status.unwrap_or_default();
        count.send_modify(|seen| {
            seen.versions += 1;
            seen.bytes += serde_json::to_vec(&status).map_or(0, |text| text.len());
            seen.changes += status.log.as_ref().map_or(0, |log| log.changes.len());
        });
        let mut changes = status.log.unwrap_or_default().changes;
        let coalesced: BTreeSet<_> = changes.iter().filter(|c| c.coalesced).map(|c| c.serial).collect();
        assert!(coalesced.is_empty(), "changes were made one: {coalesced:?}");
        // What all cursors have passed goes with the next change, before that is added.
        let passed = status.dispatched.unwrap_or_default().cursors.iter().map(|c| c.serial).min().unwrap_or(0);
        changes.retain(|c| c.serial > passed);
        let targets = status.environments.into_iter().flat_map(|e| e.targets);
        let shown = targets.map(|t| {
            let app = t.cluster_app_ref.name;
            let in_log = changes.iter().filter(|c| c.subject.ends_with(&format!("/{app}"))).count();
            (app, Shown { failed: t.status == Status::Failed, in_log })
        });
        show.send_replace(shown.collect());
    }
}
