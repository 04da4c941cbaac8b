//! One watch for each object that something refers to, and none for any other.
//!
//! In: the names that are wanted. Out: what is seen of each, given to whoever wanted it, until it is no longer wanted.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use futures::{Stream, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::{AbortHandle, JoinSet};

use crate::api::refs::ObjectName;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::Watch;

/// Watches of single objects of one kind.
pub struct NamedWatches {
    client: Client,
    label: Watch,
    metrics: Metrics,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    all: JoinSet<()>,
    running: HashMap<ObjectName, AbortHandle>,
}

/// What a watch told of its object.
pub enum Seen<K> {
    /// It is this; or there is none.
    Object(Option<K>),
    /// The watch broke; it goes on by itself.
    Broken,
}

impl NamedWatches {
    /// No watch yet. The client needs `list` and `watch` on the objects that will be wanted.
    #[must_use]
    pub fn new(client: Client, label: Watch, metrics: Metrics) -> Self {
        Self { client, label, metrics, tasks: Mutex::default() }
    }

    /// Starts a watch for each of these that has none, and ends those of all others. The names are asked for when nobody else
    /// may set them, so that an older answer never takes the place of a newer. `begin` makes what the watch tells to, which is
    /// dropped with it; `end` is told of those that ended. Must be called within a tokio runtime.
    pub fn set_wanted<K, T>(
        &self,
        wanted: impl FnOnce() -> BTreeSet<ObjectName>,
        begin: impl Fn(&ObjectName) -> T,
        end: impl Fn(&ObjectName),
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + 'static,
        T: FnMut(Seen<K>) + Send + 'static,
    {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = wanted();
        let Tasks { all, running } = &mut *tasks;
        running.retain(|name, task| {
            let keep = wanted.contains(name);
            if !keep {
                task.abort();
                end(name);
            }
            keep
        });
        for name in wanted.iter().filter(|name| !running.contains_key(*name)).cloned().collect::<Vec<_>>() {
            let api: Api<K> = Api::namespaced(self.client.clone(), &name.namespace);
            let seen = watcher::watch_object(api, &name.name).default_backoff();
            let task = follow(seen, name.clone(), begin(&name), self.label, self.metrics.clone());
            running.insert(name, all.spawn(task));
        }
        // Those that were ended are joined here, and the last of them in `shutdown`.
        while all.try_join_next().is_some() {}
    }

    /// Ends all watches and joins their tasks.
    pub async fn shutdown(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let Tasks { mut all, .. } = tasks;
        all.shutdown().await;
    }

    /// The names of those that run.
    #[cfg(test)]
    pub(crate) fn running(&self) -> BTreeSet<ObjectName> {
        self.tasks.lock().unwrap().running.keys().cloned().collect()
    }
}

/// Tells what a watch sees. After an error it goes on by itself.
pub(crate) async fn follow<K: Resource<DynamicType = ()>>(
    seen: impl Stream<Item = watcher::Result<Option<K>>>,
    name: ObjectName,
    mut tell: impl FnMut(Seen<K>),
    label: Watch,
    metrics: Metrics,
) {
    let mut seen = pin!(seen);
    while let Some(event) = seen.next().await {
        match event {
            Ok(object) => tell(Seen::Object(object)),
            Err(error) => {
                metrics.watch_error(label);
                tracing::warn!(kind = %K::kind(&()), %name, error = &error as &dyn std::error::Error, "a watch broke; trying again");
                tell(Seen::Broken);
            }
        }
    }
}
