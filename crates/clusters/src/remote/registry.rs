//! The tasks of remote clusters. In: caches that start and stop. Out: the [`Handle`] of each cluster that has a cache. The task of a
//! cluster starts with its first cache and stops with its last one.

use parking_lot::Mutex;
use std::collections::HashMap;

use tokio_util::sync::CancellationToken;

use super::Handle;
use relaybook_api::values::refs::ClusterRef;
use relaybook_core::reading::Reachability;

/// The tasks of remote clusters.
#[derive(Default)]
pub(crate) struct Remotes(Mutex<HashMap<ClusterRef, Followed>>);

struct Followed {
    handle: Handle,
    stop: CancellationToken,
}

impl Remotes {
    /// Returns the handle of a cluster. If there is none, `begin` creates it. Its argument is the token that stops the task.
    pub fn get(&self, cluster: &ClusterRef, begin: impl FnOnce(CancellationToken) -> Handle) -> Handle {
        let mut all = self.0.lock();
        if let Some(followed) = all.get(cluster) {
            return followed.handle.clone();
        }
        let stop = CancellationToken::new();
        let handle = begin(stop.clone());
        all.insert(cluster.clone(), Followed { handle: handle.clone(), stop });
        handle
    }

    /// Stops the task of a cluster that has no cache any more.
    pub fn end(&self, cluster: &ClusterRef) {
        if let Some(followed) = self.0.lock().remove(cluster) {
            followed.stop.cancel();
        }
    }

    /// Returns whether a cluster is reachable. `Unknown` for a cluster without a task.
    pub fn reachability(&self, cluster: &ClusterRef) -> Reachability {
        self.0.lock().get(cluster).map_or(Reachability::Unknown, |followed| *followed.handle.reachability.borrow())
    }
}
