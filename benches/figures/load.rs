//! The load: targets of one pipeline that change repeatedly, as fast as the system allows or with pauses.
//!
//! A target changes again once the pipeline's status shows its last change, the log has room for another change without
//! coalescing, and the receiver is not too far behind. So the load is as high as possible without coalesced changes, which is
//! checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use relaybook_api::{Pipeline, Status};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::bed::{Bed, pipeline};
use crate::receiver::Arrived;
use crate::source::Source;
use crate::support::World;

/// Number of targets of the pipeline.
pub const TARGETS: usize = 8;
/// Number of notifications. Each reports every change.
pub const NOTIFICATIONS: usize = 8;
/// Maximum number of changes of one target in the log before its next change: with that, the log is full.
const IN_LOG: usize = relaybook_core::changelog::MAX_PER_SUBJECT - 1;
/// Maximum number of changes of one target that wait for the receiver: enough to keep all of its lanes busy.
const AHEAD: usize = 4;

/// The state of one application in the pipeline's status.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    failed: bool,
    in_log: usize,
}

/// Sums over all versions of the pipeline's status, to explain its cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub versions: usize,
    pub bytes: usize,
    pub changes: usize,
}

/// A watch on the logs of the pipelines of a namespace.
#[derive(Clone)]
pub struct Log {
    shown: watch::Receiver<BTreeMap<String, Shown>>,
    seen: watch::Receiver<Seen>,
    /// The watch ends with the last clone.
    _watching: Arc<AbortOnDropHandle<()>>,
}

impl Log {
    pub fn follow(world: &World) -> Self {
        let (show, shown) = watch::channel(BTreeMap::new());
        let (count, seen) = watch::channel(Seen::default());
        let watching = AbortOnDropHandle::new(tokio::spawn(follow(world.api(), show, count)));
        Self { shown, seen, _watching: Arc::new(watching) }
    }

    /// Waits until the log shows the last change of an application, and has room for the next one.
    pub async fn has_room_for(&mut self, source: &Source) {
        let free = |shown: &BTreeMap<String, Shown>| {
            shown.get(&source.app).is_some_and(|s| s.failed == source.failed && s.in_log <= IN_LOG)
        };
        self.shown.wait_for(free).await.expect("the pipelines are watched");
    }
}

/// A running load, with one task for each target.
pub struct Load {
    stop: Arc<AtomicBool>,
    movers: JoinSet<Source>,
    log: Log,
}

/// Creates a pipeline of [`TARGETS`] targets and its [`NOTIFICATIONS`] notifications. `over` is merged into each of these.
pub async fn shop(bed: &Bed, world: &World, over: &Value) -> Vec<Source> {
    let apps: Vec<_> = (0..TARGETS).map(|n| format!("web-{n}")).collect();
    let mut sources = Vec::new();
    for app in &apps {
        sources.push(Source::create(world, app).await);
    }
    pipeline(world, "shop", &apps).await;
    for n in 0..NOTIFICATIONS {
        bed.notification(world, &format!("hook-{n}"), over.clone()).await;
    }
    sources
}

impl Load {
    /// Starts the load as fast as the system allows. With `rest`, a target pauses before each change, on average for this time.
    pub fn start(bed: &Bed, world: &World, sources: Vec<Source>, rest: Option<Duration>) -> Self {
        let (log, stop) = (Log::follow(world), Arc::new(AtomicBool::new(false)));
        let mut movers = JoinSet::new();
        for source in sources {
            let path = format!("/{}/{}", world.ns, source.app);
            let pace = Pace { log: log.clone(), arrived: bed.receiver.arrivals(), path, rest };
            movers.spawn(drive(source, pace, stop.clone()));
        }
        Self { stop, movers, log }
    }

    /// Returns the sums over all versions of the pipeline's status so far.
    pub fn seen(&self) -> Seen {
        *self.log.seen.borrow()
    }

    /// Stops the load after the current changes. Returns the source objects sorted by name, because they end in any order.
    pub async fn stop(self) -> Vec<Source> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sources = self.movers.join_all().await;
        sources.sort_by(|one, other| one.app.cmp(&other.app));
        sources
    }
}

/// Decides when one target may change again.
struct Pace {
    log: Log,
    arrived: watch::Receiver<Arrived>,
    path: String,
    rest: Option<Duration>,
}

async fn drive(mut source: Source, mut pace: Pace, stop: Arc<AtomicBool>) -> Source {
    while !stop.load(Ordering::Relaxed) {
        if let Some(rest) = pace.rest {
            // Random, so that targets do not change in step.
            sleep(rest.mul_f64(0.5 + fastrand::f64())).await;
        }
        pace.log.has_room_for(&source).await;
        let made = source.flips.len() * NOTIFICATIONS;
        let near = |arrived: &Arrived| made < arrived.by_path.get(&pace.path).unwrap_or(&0) + AHEAD * NOTIFICATIONS;
        pace.arrived.wait_for(near).await.expect("the receiver runs");
        source.flip().await;
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
        assert!(coalesced.is_empty(), "changes were coalesced: {coalesced:?}");
        // Changes that all cursors have passed do not count: they are removed before the next change is added.
        let passed = status.dispatched.unwrap_or_default().cursors.iter().map(|c| c.serial).min().unwrap_or(0);
        changes.retain(|c| c.serial > passed);
        let targets = status.environments.into_iter().flat_map(|e| e.targets);
        let shown = targets.map(|t| {
            let app = t.cluster_app_ref.name;
            let in_log = changes.iter().filter(|c| c.subject.ends_with(&format!("/{app}"))).count();
            (app, Shown { failed: t.status == Status::Failed, in_log })
        });
        show.send_modify(|all| all.extend(shown));
    }
}
