//! Starts a watch when a pipeline first needs it, and stops it [`GRACE`] after the last use.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cache::CacheId;
use super::kind_watcher::KindWatcher;
use super::store::{Declared, Store};
use crate::Options;
use crate::remote::registry::Remotes;
use crate::remote::{Handle, Link, Remote};
use relaybook_api::ObjectName;
use relaybook_api::values::refs::ClusterRef;
use relaybook_core::observe::Labels;
use relaybook_core::reading::selection::{CheckIn, Selecting, Selection, Sources};
use relaybook_core::reading::{Application, Follower, Reachability, Reading, SimilarObjects};
use relaybook_telemetry::Metrics;

/// Time that an unused watch continues to run, so that reverting an edit does not cause a new list.
pub const GRACE: Duration = Duration::from_secs(30);

/// Capacity of the queue of pipelines. If it is full, the watches wait for the controller.
const WAKE_BUFFER: usize = 1024;
/// Maximum number of remote clusters that are resolved for the first time at once. An API server executes 245 requests of service accounts at
/// once by default, and other components need their share.
const RESOLVED: usize = 64;

/// All caches, of the local cluster and of the remote clusters. Clones share the same caches.
#[derive(Clone)]
pub struct Caches {
    /// The dedicated client for the objects that represent other clusters. The task that opens a connection drives it, so these
    /// connections run on the remote runtime. No other call may use this client.
    dedicated: Client,
    shared: Arc<Shared>,
    /// The connection to the local cluster.
    local: Arc<watch::Sender<Link>>,
}

/// The connection to a cluster, as a watch uses it.
pub(crate) struct ClusterConnection {
    pub link: watch::Receiver<Link>,
    /// Notified when a watch fails. `None` for the local cluster, which is not probed.
    pub nudge: Option<Arc<Notify>>,
}

/// State that the registry and its watches share.
pub(crate) struct Shared {
    store: Mutex<Store>,
    wake: mpsc::Sender<Follower>,
    tasks: Mutex<JoinSet<()>>,
    stop: CancellationToken,
    broken: CancellationToken,
    remotes: Remotes,
    /// A permit for each remote cluster whose kubeconfig is read for the first time.
    pub resolving: Semaphore,
    /// The latest leadership term in which somebody acted on the data.
    last_term: Mutex<u64>,
    /// The labels of all objects that can be selected.
    labels: Mutex<Labels>,
    pub metrics: Metrics,
    pub options: Options,
}

impl Shared {
    pub fn new(options: Options, metrics: Metrics) -> (Arc<Self>, mpsc::Receiver<Follower>) {
        let (wake, woken) = mpsc::channel(WAKE_BUFFER);
        let store = Mutex::new(Store::new(options.scope.clone(), options.fleet_everywhere));
        let (tasks, remotes) = (Mutex::default(), Remotes::default());
        let (stop, broken) = (CancellationToken::new(), CancellationToken::new());
        let (last_term, labels) = (Mutex::default(), Mutex::default());
        let resolving = Semaphore::new(RESOLVED);
        let shared = Self { store, wake, tasks, stop, broken, remotes, resolving, last_term, labels, metrics, options };
        (Arc::new(shared), woken)
    }

    /// Locks the table of labels.
    pub fn labels(&self) -> MutexGuard<'_, Labels> {
        self.labels.lock()
    }

    /// Locks the store. A panic in another task leaves it usable, because each method keeps it consistent.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock()
    }

    /// Queues pipelines for a reconcile. Waits while the queue is full. A closed queue means that the process stops.
    pub async fn wake(&self, pipelines: Vec<Follower>) {
        for pipeline in pipelines {
            if self.wake.send(pipeline).await.is_err() {
                return;
            }
        }
    }

    /// Updates the metrics: number of caches and of objects.
    pub fn count(&self) {
        let (caches, objects) = self.store().counts();
        self.metrics.caches(caches, objects);
    }

    /// Returns the token that stops all watches.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Starts a watch.
    pub fn begin(self: &Arc<Self>, id: CacheId, stop: CancellationToken, connection: ClusterConnection) {
        tracing::debug!(
            cluster = id.key.cluster.as_ref().map(ClusterRef::full_name),
            api_version = id.key.kind.api_version(),
            kind = id.key.kind.kind(),
            "starting a watch"
        );
        let remote = id.key.cluster.is_some();
        let followed = Box::pin(KindWatcher::new(self.clone(), id, connection.nudge).run(connection.link));
        let task = async move {
            stop.run_until_cancelled(followed).await;
        };
        if remote { self.spawn_remote(task) } else { self.spawn(task) }
    }

    /// Starts and ends watches of another cluster, over this connection to it.
    pub fn rearrange(self: &Arc<Self>, declared: Declared, link: &watch::Receiver<Link>, nudge: Option<&Arc<Notify>>) {
        for (id, stop) in declared.started {
            self.begin(id, stop, ClusterConnection { link: link.clone(), nudge: nudge.cloned() });
        }
        for (id, mark) in declared.idle {
            self.spawn(expire(self.clone(), id, mark));
        }
        self.count();
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks().spawn(self.catch_panics(task));
    }

    /// Spawns a task of a remote cluster on the runtime of [`Options::remote`]. So the amount of data from that cluster cannot slow down
    /// other tasks.
    fn spawn_remote(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.catch_panics(task);
        match &self.options.remote {
            Some(runtime) => self.tasks().spawn_on(task, runtime),
            None => self.tasks().spawn(task),
        };
    }

    /// Wraps a task so that a panic stops the process. A task that panicked would never update its objects again, so a restart is needed.
    fn catch_panics(&self, task: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = ()> + Send + 'static {
        let broken = self.broken.clone();
        async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                tracing::error!("a watch of application objects or of a cluster panicked");
                broken.cancel();
            }
        }
    }

    /// Locks the set of tasks and joins the finished ones.
    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks
    }
}

impl Caches {
    /// Creates an empty registry. `client` and `dedicated` connect to the local cluster and share no connections. The receiver yields
    /// pipelines whose objects have changed, possibly more than once. It must be drained.
    #[must_use]
    pub fn new(client: Client, dedicated: Client, options: Options, metrics: Metrics) -> (Self, mpsc::Receiver<Follower>) {
        let (shared, woken) = Shared::new(options, metrics);
        let local = Arc::new(watch::Sender::new(Link::Up(client)));
        (Self { dedicated, shared, local }, woken)
    }

    /// Replaces the list of objects that a pipeline needs. An empty list removes the pipeline. Returns the current sequence number:
    /// observations that were made earlier, for other pipelines, are at or below it.
    pub fn need(&self, pipeline: &Follower, objects: HashSet<Application>) -> u64 {
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

    /// Replaces the selections of a pipeline.
    pub fn select(&self, pipeline: &Follower, selections: HashSet<Arc<Selection>>) {
        let declared = {
            let mut store = self.shared.store();
            if self.shared.stop.is_cancelled() {
                return;
            }
            store.select(pipeline, selections, &self.shared.stop)
        };
        self.begin(declared.started);
        for (id, mark) in declared.idle {
            self.shared.spawn(expire(self.shared.clone(), id, mark));
        }
    }

    /// Returns the objects of a selection: all that are `known`, by namespace and name, and some hundred others.
    #[must_use]
    pub fn selected(&self, selection: &Arc<Selection>, known: &BTreeSet<ObjectName>) -> Selecting {
        self.shared.store().selected(selection, known)
    }

    /// Returns the objects of a selection of a `PipelineSet`, at most `most`.
    #[must_use]
    pub fn sources(&self, selection: &Arc<Selection>, most: usize) -> Sources {
        self.shared.store().sources(selection, most)
    }

    /// Whether a selection contains an object now.
    #[must_use]
    pub fn is_source(&self, selection: &Arc<Selection>, object: &Application) -> bool {
        self.shared.store().is_source(selection, object)
    }

    /// Returns when the agent of a `Cluster` of Fleet, by namespace and name, last reported. `None`: it never did.
    #[must_use]
    pub fn check_in(&self, cluster: &ObjectName) -> Option<CheckIn> {
        self.shared.store().check_in(cluster)
    }

    /// Wakes a pipeline with the next report of such an agent.
    pub fn await_check_in(&self, cluster: &ObjectName, pipeline: &Follower) {
        self.shared.store().await_check_in(cluster, pipeline);
    }

    /// Notes that somebody acts on the data in this leadership term. The first time, all watches restart with a list, because the data may be
    /// older than what another replica has observed and acted on. At the start of the process there are no watches yet.
    pub fn begin_term(&self, term: u64) {
        let mut last = self.shared.last_term.lock();
        if term > *last {
            *last = term;
            self.renew();
        }
    }

    fn renew(&self) {
        let started = self.shared.store().renew(&self.shared.stop);
        self.begin(started);
    }

    fn begin(&self, watches: Vec<(CacheId, CancellationToken)>) {
        if !watches.is_empty() {
            self.shared.count();
        }
        for (id, stop) in watches {
            let connection = self.connection(id.key.cluster.as_ref());
            self.shared.begin(id, stop, connection);
        }
    }

    /// Returns the connection to a cluster. Starts the task of the cluster if there is none.
    fn connection(&self, cluster: Option<&ClusterRef>) -> ClusterConnection {
        let Some(cluster) = cluster else { return ClusterConnection { link: self.local.subscribe(), nudge: None } };
        let Handle { link, nudge, .. } = self.shared.remotes.get(cluster, |ended| {
            let (remote, handle) = Remote::new(self.shared.clone(), cluster.clone(), self.dedicated.clone());
            let (stop, followed) = (self.shared.stop.clone(), Box::pin(remote.run()));
            self.shared.spawn_remote(async move {
                stop.run_until_cancelled(ended.run_until_cancelled(followed)).await;
            });
            handle
        });
        ClusterConnection { link, nudge: Some(nudge) }
    }

    /// Returns the current state of an object, and its observations after the sequence number `after`. 0 returns all that are kept. An
    /// object that no pipeline has declared is read without its past.
    #[must_use]
    pub fn read(&self, object: &Application, after: u64) -> Reading {
        self.shared.store().read(object, after)
    }

    /// Returns similar objects for each of these objects, which do not exist.
    #[must_use]
    pub fn similar_to(&self, objects: &[Application]) -> Vec<SimilarObjects> {
        self.shared.store().similar_to(objects)
    }

    /// Returns whether a remote cluster is reachable. `cluster` must have a namespace. Pipelines that depend on it are woken on each
    /// change.
    #[must_use]
    pub fn reachability(&self, cluster: &ClusterRef) -> Reachability {
        self.shared.remotes.reachability(cluster)
    }

    /// Waits until a task has panicked.
    pub async fn broken(&self) {
        self.shared.broken.cancelled().await;
    }

    /// Stops all watches at once and waits until they have ended. No watch starts after that.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.shared.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}

/// Stops a cache after the grace period, unless it is needed again.
async fn expire(shared: Arc<Shared>, id: CacheId, mark: u64) {
    if shared.stop.run_until_cancelled(tokio::time::sleep(GRACE)).await.is_some() {
        let mut store = shared.store();
        let ended = store.expire(&id, mark);
        // Under the same lock: a cache of this cluster that is created later finds no task and starts one.
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
    async fn a_panic_of_a_task_is_signaled_and_a_normal_end_is_not() {
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
