//! The registry: begins a watch when some pipeline first needs it, and ends it a while after the last one has gone.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cache::CacheId;
use super::kind_watcher::Feed;
use super::store::Store;
use crate::api::values::refs::ClusterRef;
use crate::cluster::remote::registry::Remotes;
use crate::cluster::remote::{Handle, Link, Remote};
use crate::cluster::{Alike, Application, Options, PipelineKey, Reachability, Reading};
use crate::telemetry::Metrics;

/// A watch that nobody needs goes on for so long, so that an edit back and forth does not list everything again.
pub const GRACE: Duration = Duration::from_secs(30);

/// Capacity of the queue of pipelines. If it is full, the watches wait for the controller.
const WAKE_BUFFER: usize = 1024;

/// All caches, of the local cluster and of all others. A handle: clones share them.
#[derive(Clone)]
pub struct Caches {
    /// The dedicated client for the objects that represent other clusters. The task that opens a connection drives it, so these
    /// connections run on the remote runtime. No other call may use this client.
    apart: Client,
    shared: Arc<Shared>,
    /// The way to the local cluster.
    local: Arc<watch::Sender<Link>>,
}

/// How a feed comes to its cluster.
pub(in crate::cluster) struct Way {
    pub link: watch::Receiver<Link>,
    /// Notified when a watch fails; the local cluster is not probed.
    pub nudge: Option<Arc<Notify>>,
}

/// What the registry and its watches share.
pub(in crate::cluster) struct Shared {
    store: Mutex<Store>,
    wake: mpsc::Sender<PipelineKey>,
    tasks: Mutex<JoinSet<()>>,
    stop: CancellationToken,
    broken: CancellationToken,
    remotes: Remotes,
    pub metrics: Metrics,
    pub options: Options,
}

impl Shared {
    pub fn new(options: Options, metrics: Metrics) -> (Arc<Self>, mpsc::Receiver<PipelineKey>) {
        let (wake, woken) = mpsc::channel(WAKE_BUFFER);
        let store = Mutex::new(Store::new(options.scope.clone()));
        let (tasks, remotes) = (Mutex::default(), Remotes::default());
        let (stop, broken) = (CancellationToken::new(), CancellationToken::new());
        (Arc::new(Self { store, wake, tasks, stop, broken, remotes, metrics, options }), woken)
    }

    /// The store, for a moment. A panic elsewhere leaves it usable: every method leaves it whole.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over pipelines to look at; waits while the controller is behind. Nobody listening means the process is ending.
    pub async fn wake(&self, pipelines: Vec<PipelineKey>) {
        for pipeline in pipelines {
            if self.wake.send(pipeline).await.is_err() {
                return;
            }
        }
    }

    /// Tells how many caches there are, and how many objects they know.
    pub fn count(&self) {
        let (caches, objects) = self.store().counts();
        self.metrics.caches(caches, objects);
    }

    /// What ends all watches.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Begins a watch.
    pub fn begin(self: &Arc<Self>, id: CacheId, stop: CancellationToken, way: Way) {
        tracing::debug!(
            cluster = id.key.cluster.as_ref().map(ClusterRef::full_name),
            api_version = id.key.api_version,
            kind = id.key.kind,
            "watch begins"
        );
        let remote = id.key.cluster.is_some();
        let followed = Box::pin(Feed::new(self.clone(), id, way.nudge).run(way.link));
        let feed = async move {
            stop.run_until_cancelled(followed).await;
        };
        if remote { self.spawn_remote(feed) } else { self.spawn(feed) }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks().spawn(self.watched_over(task));
    }

    /// What has to do with another cluster takes its time on other threads, however much that cluster sends.
    fn spawn_remote(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.watched_over(task);
        match &self.options.remote {
            Some(runtime) => self.tasks().spawn_on(task, runtime),
            None => self.tasks().spawn(task),
        };
    }

    /// A task that panics would never update its objects again. So the process exits with it and restarts.
    fn watched_over(&self, task: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = ()> + Send + 'static {
        let broken = self.broken.clone();
        async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                tracing::error!("a watch of application objects or of a cluster panicked");
                broken.cancel();
            }
        }
    }

    /// Those that have ended are joined on the way.
    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks
    }
}

impl Caches {
    /// No caches yet. `client` and `apart` lead to the local cluster and share no connections. The receiver yields pipelines whose objects have changed, each maybe more than once; it must be drained.
    #[must_use]
    pub fn new(client: Client, apart: Client, options: Options, metrics: Metrics) -> (Self, mpsc::Receiver<PipelineKey>) {
        let (shared, woken) = Shared::new(options, metrics);
        let local = Arc::new(watch::Sender::new(Link::Up(client)));
        (Self { apart, shared, local }, woken)
    }

    /// Says which objects a pipeline needs from now on; an empty list forgets the pipeline. Returns the sequence number of now:
    /// what was seen before, on behalf of others, is at or below it.
    pub fn need(&self, pipeline: &PipelineKey, objects: HashSet<Application>) -> u64 {
        let (now, declared) = {
            let mut store = self.shared.store();
            if self.shared.stop.is_cancelled() {
                return store.seq();
            }
            (store.seq(), store.declare(pipeline, objects, &self.shared.stop))
        };
        self.begin(declared.started);
        for (id, mark) in declared.idle {
            self.shared.spawn(expire(self.shared.clone(), id, mark));
        }
        now
    }

    /// Restarts all watches, with a list: the state known here may be older than what another replica has seen and acted on.
    pub fn renew(&self) {
        let started = self.shared.store().renew(&self.shared.stop);
        self.begin(started);
    }

    fn begin(&self, watches: Vec<(CacheId, CancellationToken)>) {
        if !watches.is_empty() {
            self.shared.count();
        }
        for (id, stop) in watches {
            let way = self.way(id.key.cluster.as_ref());
            self.shared.begin(id, stop, way);
        }
    }

    /// The way to a cluster, whose task begins if it has none.
    fn way(&self, cluster: Option<&ClusterRef>) -> Way {
        let Some(cluster) = cluster else { return Way { link: self.local.subscribe(), nudge: None } };
        let Handle { link, nudge, .. } = self.shared.remotes.get(cluster, |ended| {
            let (remote, handle) = Remote::new(self.shared.clone(), cluster.clone(), self.apart.clone());
            let (stop, followed) = (self.shared.stop.clone(), Box::pin(remote.run()));
            self.shared.spawn_remote(async move {
                stop.run_until_cancelled(ended.run_until_cancelled(followed)).await;
            });
            handle
        });
        Way { link, nudge: Some(nudge) }
    }

    /// What an object says, and what it said after the sequence number `after` (0: all that is kept). Objects that the
    /// pipeline has not declared are read without their past.
    #[must_use]
    pub fn read(&self, object: &Application, after: u64) -> Reading {
        self.shared.store().read(object, after)
    }

    /// What there is instead of each of these objects, which do not exist.
    #[must_use]
    pub fn alike(&self, objects: &[Application]) -> Vec<Alike> {
        self.shared.store().alike(objects)
    }

    /// Whether a remote cluster can be reached; `cluster` has a namespace. Pipelines that need it are woken when that changes.
    #[must_use]
    pub fn reachability(&self, cluster: &ClusterRef) -> Reachability {
        self.shared.remotes.reachability(cluster)
    }

    /// Waits until a task has panicked.
    pub async fn broken(&self) {
        self.shared.broken.cancelled().await;
    }

    /// Ends all watches at once and waits until they have ended. Nothing begins after that.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
    }
}

/// Ends a cache after the grace period, unless somebody needs it again.
async fn expire(shared: Arc<Shared>, id: CacheId, mark: u64) {
    if shared.stop.run_until_cancelled(tokio::time::sleep(GRACE)).await.is_some() {
        let mut store = shared.store();
        let ended = store.expire(&id, mark);
        // Under the same lock: a cache of this cluster that is made later finds no task and begins one.
        if let Some(cluster) = id.key.cluster.filter(|cluster| ended && !store.has(cluster)) {
            shared.remotes.end(&cluster);
            store.forget(&cluster);
        }
        drop(store);
        shared.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_told_and_one_that_ends_is_not() {
        let (shared, _woken) = Shared::new(Options::default(), Metrics::new());
        shared.spawn(async {});
        while !shared.tasks().is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(!shared.broken.is_cancelled());
        shared.spawn_remote(async { panic!("on purpose") });
        shared.broken.cancelled().await;
    }
}
