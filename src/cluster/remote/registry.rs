//! The tasks of remote clusters. In: caches that start and stop. Out: the [`Handle`] of each cluster that has a cache. The task of a
//! cluster starts with its first cache and stops with its last one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::Handle;
use crate::api::values::refs::ClusterRef;
use crate::cluster::Reachability;

/// The tasks of remote clusters.
#[derive(Default)]
pub(in crate::cluster) struct Remotes(Mutex<HashMap<ClusterRef, Followed>>);

struct Followed {
    handle: Handle,
    stop: CancellationToken,
}

impl Remotes {
    /// Returns the handle of a cluster. If there is none, `begin` creates it. Its argument is the token that stops the task.
    pub fn get(&self, cluster: &ClusterRef, begin: impl FnOnce(CancellationToken) -> Handle) -> Handle {
        let mut all = self.all();
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
        if let Some(followed) = self.all().remove(cluster) {
            followed.stop.cancel();
        }
    }

    /// Returns whether a cluster is reachable. `Unknown` for a cluster without a task.
    pub fn reachability(&self, cluster: &ClusterRef) -> Reachability {
        self.all().get(cluster).map_or(Reachability::Unknown, |followed| *followed.handle.reachability.borrow())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ClusterRef, Followed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
