//! One watch for each object that something refers to, and none for any other.
//!
//! In: the wanted names, and the current term. Out: the state of each, sent to its consumer until it is no longer wanted. With each term
//! they restart, as all watches do, and earlier results no longer count.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use futures::{Stream, StreamExt as _};
use http::StatusCode;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use tokio::sync::watch::Receiver;
use tokio::task::{AbortHandle, JoinSet};

use super::{Deleted, Guarded, Pauses, Turn, matching_in_turns};
use crate::api::values::refs::ObjectName;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::Watch;

/// Watches of single objects of one kind.
pub struct NamedWatches {
    client: Client,
    turns: Receiver<Option<u64>>,
    label: Watch,
    metrics: Metrics,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    all: JoinSet<()>,
    running: HashMap<ObjectName, AbortHandle>,
    closed: bool,
}

/// What a watch told of its object.
#[derive(Debug)]
pub enum Seen<K> {
    /// A turn has begun: what was seen before may be out of date.
    Begins,
    /// It is this; or there is none.
    Object(Option<K>),
    /// It may not be read.
    Forbidden,
}

impl NamedWatches {
    /// No watch yet. The client needs `list` and `watch` on the objects that will be wanted.
    #[must_use]
    pub fn new(client: Client, turns: Receiver<Option<u64>>, label: Watch, metrics: Metrics) -> Self {
        Self { client, turns, label, metrics, tasks: Mutex::default() }
    }

    /// Starts a watch for each of these names that has none, and ends those of all others. The names are read while nobody else can set
    /// them, so an older result never replaces a newer one. `begin` creates the consumer of the watch, which is dropped with it; `end` is
    /// called for those that ended. Must be called within a tokio runtime.
    pub fn set_wanted<K, T>(
        &self,
        wanted: impl FnOnce() -> BTreeSet<ObjectName>,
        begin: impl Fn(&ObjectName) -> T,
        end: impl Fn(&ObjectName),
    ) where
        K: Deleted + Resource<Scope = NamespaceResourceScope> + Clone + Debug + Send + 'static,
        T: FnMut(Seen<K>) + Send + 'static,
    {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.closed {
            return;
        }
        let wanted = wanted();
        let Tasks { all, running, .. } = &mut *tasks;
        running.retain(|name, task| {
            let keep = wanted.contains(name);
            if !keep {
                task.abort();
                end(name);
            }
            keep
        });
        for name in wanted.iter().filter(|name| !running.contains_key(*name)).cloned().collect::<Vec<_>>() {
            let api: Api<Guarded<K>> = Api::namespaced(self.client.clone(), &name.namespace);
            let (turn, events) = matching_in_turns(api, Some(&name.name), Pauses::Long, self.turns.clone());
            let task = follow(events, turn, begin(&name), self.label, self.metrics.clone());
            running.insert(name, all.spawn(task));
        }
        // Those that were ended are joined here, and the last of them in `shutdown`.
        while all.try_join_next().is_some() {}
    }

    /// Ends all watches for good and joins their tasks.
    pub async fn shutdown(&self) {
        let closed = Tasks { closed: true, ..Tasks::default() };
        let tasks = std::mem::replace(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner), closed);
        let Tasks { mut all, .. } = tasks;
        all.shutdown().await;
    }

    /// The names of those that run.
    #[cfg(test)]
    pub(crate) fn running(&self) -> BTreeSet<ObjectName> {
        self.tasks.lock().unwrap().running.keys().cloned().collect()
    }
}

/// Tells what a watch sees. After an error what was seen stands, and the watch goes on by itself.
pub(crate) async fn follow<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    turn: Turn,
    mut tell: impl FnMut(Seen<K>),
    label: Watch,
    metrics: Metrics,
) {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let mut events = pin!(events);
    let (mut of, mut listed) = (None, None);
    while let Some(event) = events.next().await {
        let now = turn.number();
        if of.replace(now) != Some(now) {
            tell(Seen::Begins);
        }
        match event {
            Ok(Init) => listed = None,
            Ok(InitApply(object)) => listed = Some(object),
            Ok(InitDone) => tell(Seen::Object(listed.take())),
            Ok(Apply(object)) => tell(Seen::Object(Some(object))),
            Ok(Delete(_)) => tell(Seen::Object(None)),
            Err(error) => {
                metrics.watch_error(label);
                if is_forbidden(&error) {
                    tell(Seen::Forbidden);
                }
            }
        }
    }
}

/// Whether the API server does not let us.
pub(crate) fn is_forbidden(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code,
        _ => return false,
    };
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].iter().any(|forbidden| forbidden.as_u16() == code)
}
