//! One watch for each object that another object refers to.
//!
//! In: the wanted names, and the current leadership term. Out: the state of each object, sent to its consumer until the name is no longer
//! wanted. The watches restart with each term, as all watches do, and earlier results become invalid. A panic in a watch reaches who awaits
//! [`NamedWatches::broken`].

use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;

use futures::{FutureExt as _, Stream, StreamExt as _};
use http::StatusCode;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use tokio::sync::watch::Receiver;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Deleted, Guarded, Pauses, TermNumber, matching_by_term};
use relaybook_api::ObjectName;
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::Watch;

/// Watches of single objects of one kind.
pub struct NamedWatches {
    client: Client,
    terms: Receiver<Option<u64>>,
    label: Watch,
    metrics: Metrics,
    tasks: Mutex<Tasks>,
    panicked: Arc<Panicked>,
}

/// The first panic of a watch.
#[derive(Default)]
struct Panicked {
    has: CancellationToken,
    cause: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Default)]
struct Tasks {
    all: JoinSet<()>,
    running: HashMap<ObjectName, AbortHandle>,
    closed: bool,
}

/// What the consumer of a watch receives about its object.
#[derive(Debug)]
pub enum Seen<K> {
    /// A leadership term has started. Earlier states may be outdated.
    Begins,
    /// The current object, or `None` if it does not exist.
    Object(Option<K>),
    /// The permission to read the object is missing.
    Forbidden,
}

impl NamedWatches {
    /// Creates an empty set. The client needs `list` and `watch` permissions on all objects that will be wanted.
    #[must_use]
    pub fn new(client: Client, terms: Receiver<Option<u64>>, label: Watch, metrics: Metrics) -> Self {
        Self { client, terms, label, metrics, tasks: Mutex::default(), panicked: Arc::default() }
    }

    /// Starts a watch for each wanted name that has none, and stops the watches of unwanted names. `wanted` runs under the lock, so an
    /// older set never replaces a newer one. `begin` creates the consumer of a watch, which is dropped with the watch. `end` is called for
    /// each stopped watch. Must be called within a tokio runtime.
    pub fn set_wanted<K, T>(
        &self,
        wanted: impl FnOnce() -> BTreeSet<ObjectName>,
        begin: impl Fn(&ObjectName) -> T,
        end: impl Fn(&ObjectName),
    ) where
        K: Deleted + Resource<Scope = NamespaceResourceScope> + Clone + Debug + Send + 'static,
        T: FnMut(Seen<K>) + Send + 'static,
    {
        let mut tasks = self.tasks.lock();
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
            let only = watcher::Config::default().fields(&format!("metadata.name={}", name.name));
            let (term, events) = matching_by_term(api, only, Some(&name.name), Pauses::Long, self.terms.clone());
            let task = follow(events, term, begin(&name), self.label, self.metrics.clone());
            let panicked = self.panicked.clone();
            running.insert(
                name,
                all.spawn(async move {
                    if let Err(cause) = AssertUnwindSafe(task).catch_unwind().await {
                        panicked.cause.lock().get_or_insert(cause);
                        panicked.has.cancel();
                    }
                }),
            );
        }
        // Joins the tasks that were stopped. `shutdown` joins the last of them.
        while all.try_join_next().is_some() {}
    }

    /// Panics as soon as a watch has panicked, with its cause. Ends in no other way.
    pub fn broken<T>(&self) -> impl Future<Output = T> + Send + use<T> {
        let panicked = self.panicked.clone();
        async move {
            panicked.has.cancelled().await;
            let cause = panicked.cause.lock().take();
            resume_unwind(cause.unwrap_or_else(|| Box::new("a watch has panicked")))
        }
    }

    /// Stops all watches permanently and joins their tasks.
    pub async fn shutdown(&self) {
        let closed = Tasks { closed: true, ..Tasks::default() };
        let tasks = std::mem::replace(&mut *self.tasks.lock(), closed);
        let Tasks { mut all, .. } = tasks;
        all.shutdown().await;
    }

    /// Returns the names of the running watches.
    #[cfg(any(test, feature = "testing"))]
    pub fn running(&self) -> BTreeSet<ObjectName> {
        self.tasks.lock().running.keys().cloned().collect()
    }
}

/// Sends each state of an object to its consumer. After an error, the last state remains valid and the watch continues.
pub async fn follow<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    term: TermNumber,
    mut tell: impl FnMut(Seen<K>),
    label: Watch,
    metrics: Metrics,
) {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let mut events = pin!(events);
    let (mut of, mut listed) = (None, None);
    while let Some(event) = events.next().await {
        let now = term.number();
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

/// Whether the error means that a permission is missing.
pub fn is_forbidden(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code,
        _ => return false,
    };
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].iter().any(|forbidden| forbidden.as_u16() == code)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_watch_reaches_who_awaits_it() {
        let refuses =
            |_: http::Request<Body>| std::future::ready(Err::<http::Response<Body>, tower::BoxError>("down".into()));
        let client = Client::new(tower::service_fn(refuses), "default");
        let watches = NamedWatches::new(client, tokio::sync::watch::channel(Some(1)).1, Watch::ConfigMaps, Metrics::new());
        let ended = tokio::spawn(watches.broken::<()>());
        let tell = |_: &ObjectName| |_: Seen<ConfigMap>| assert_eq!(std::hint::black_box(1), 2, "no such index");
        watches.set_wanted(|| [ObjectName::new("a", "one")].into(), tell, |_| {});
        let error = ended.await.unwrap_err();
        assert!(error.to_string().contains("no such index"), "{error}");
        watches.shutdown().await;
    }
}
