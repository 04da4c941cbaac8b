//! The registry: begins a watch when some pipeline first needs it, and ends it a while after the last one has gone.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use super::store::{CacheId, Store};
use super::{PipelineKey, Reading, Scope};
use crate::api::refs::ClusterAppRef;
use crate::telemetry::Metrics;

/// A watch that nobody needs goes on for so long, so that an edit back and forth does not list everything again.
pub const GRACE: Duration = Duration::from_secs(30);

/// So many pipelines may wait to be looked at before the watches wait for the controller.
const WAKE_BUFFER: usize = 1024;

/// All caches of the local cluster. A handle: clones share them.
#[derive(Clone)]
pub struct Caches {
    client: Client,
    shared: Arc<Shared>,
}

/// What the registry and its watches share.
pub(super) struct Shared {
    store: Mutex<Store>,
    wake: mpsc::Sender<PipelineKey>,
    tasks: Mutex<JoinSet<()>>,
    stop: CancellationToken,
    pub metrics: Metrics,
}

impl Shared {
    pub fn new(cluster: String, scope: Scope, metrics: Metrics) -> (Arc<Self>, mpsc::Receiver<PipelineKey>) {
        let (wake, woken) = mpsc::channel(WAKE_BUFFER);
        let store = Mutex::new(Store::new(cluster, scope));
        (Arc::new(Self { store, wake, tasks: Mutex::default(), stop: CancellationToken::new(), metrics }), woken)
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

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

impl Caches {
    /// No caches yet. The receiver yields pipelines whose objects have changed, each maybe more than once; it must be drained.
    #[must_use]
    pub fn new(client: Client, cluster_name: &str, scope: Scope, metrics: Metrics) -> (Self, mpsc::Receiver<PipelineKey>) {
        let (shared, woken) = Shared::new(cluster_name.to_owned(), scope, metrics);
        (Self { client, shared }, woken)
    }

    /// Says which objects a pipeline needs from now on; an empty list forgets the pipeline. Returns the sequence number of now:
    /// what was seen before, on behalf of others, is at or below it.
    pub fn need(&self, pipeline: &PipelineKey, objects: HashSet<ClusterAppRef>) -> u64 {
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

    /// Begins all watches anew, with a list: what is known here may be older than what another replica has seen and acted on.
    pub fn renew(&self) {
        let started = self.shared.store().renew(&self.shared.stop);
        self.begin(started);
    }

    fn begin(&self, watches: Vec<(CacheId, CancellationToken)>) {
        for (id, stop) in watches {
            tracing::debug!(cluster = id.key.cluster, api_version = id.key.api_version, kind = id.key.kind, "watch begins");
            let feed = Feed::new(self.shared.clone(), id);
            let client = self.client.clone();
            let followed = Box::pin(feed.run(client));
            self.shared.spawn(async move {
                stop.run_until_cancelled(followed).await;
            });
        }
    }

    /// What an object says, and what it said after the sequence number `after` (0: all that is kept). Objects that the
    /// pipeline has not declared are read without their past.
    #[must_use]
    pub fn read(&self, object: &ClusterAppRef, after: u64) -> Reading {
        self.shared.store().read(object, after)
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
        shared.store().expire(&id, mark);
    }
}
