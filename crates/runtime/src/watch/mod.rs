//! Watches of our own resources, and of the Secrets and ConfigMaps that they refer to. They have a backoff, and an object that cannot be
//! parsed does not stop them.
//!
//! In: an `Api`, and the number of the current leadership term. Out: watch events of the objects that can be parsed ([`watch_by_term`]), or
//! states of single objects ([`NamedWatches`], [`one`]). An object that cannot be parsed is logged with its name and skipped, so that it
//! does not stop the events of the others. Its deletion is passed on.
//!
//! With each new leadership term the watch restarts with a list of the current objects, because the previous leader may have written
//! something that this watch would deliver too late.

mod named;
mod raw_object;
mod steady;
mod touched;

use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

#[cfg(any(test, feature = "testing"))]
pub use named::follow;
pub use named::is_forbidden;
pub use named::{NamedWatches, Seen};
pub use raw_object::Lean;
pub use raw_object::{Deleted, Guarded};
use steady::{Logged, steady};
pub use touched::touched;

/// Pause after the first of consecutive errors.
const FIRST_PAUSE: Duration = Duration::from_millis(800);

/// Maximum pause before a failed watch is retried. Jitter can double it. After an outage that is longer than the watch cache of the API
/// server, the first retry fails, and only the second one lists. So events can be late by up to four times the pause.
#[derive(Clone, Copy, Debug)]
enum Pauses {
    /// For a whole kind: there are few such watches, and all work depends on them.
    Short,
    /// For a single object: there may be thousands, and the last state remains valid.
    Long,
}

impl Pauses {
    fn builder(self) -> backon::ExponentialBuilder {
        let longest = match self {
            Self::Short => Duration::from_secs(5),
            Self::Long => Duration::from_secs(30),
        };
        let pauses = backon::ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).with_max_delay(longest);
        pauses.with_factor(2.0).with_jitter().without_max_times()
    }
}

/// The leadership term in which the list of a watch was started, as of its last event.
#[derive(Clone, Debug, Default)]
pub struct TermNumber(Arc<AtomicU64>);

impl TermNumber {
    /// Returns the number of the term.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Events of a watch.
pub type Events<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;

/// Returns the namespaces to watch, each once. One `None` means all.
#[must_use]
pub fn scopes(namespaces: &[String]) -> Vec<Option<String>> {
    let mut scopes: Vec<Option<String>> = namespaces.iter().cloned().map(Some).collect();
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        scopes.push(None);
    }
    scopes
}

/// Returns the API of a kind in one namespace, or in all.
pub fn api_in<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Watches by leadership term: nothing before the first term, and a restart with each term.
pub fn watch_by_term<K>(api: Api<Guarded<K>>, terms: Receiver<Option<u64>>) -> (TermNumber, Events<K>)
where
    K: Deleted + Clone + Debug + Send + 'static,
{
    matching_by_term(api, watcher::Config::default(), None, Pauses::Short, terms)
}

/// Watches the objects with a label by leadership term.
pub fn watch_labeled_by_term<K>(api: Api<Guarded<K>>, label: &str, terms: Receiver<Option<u64>>) -> (TermNumber, Events<K>)
where
    K: Deleted + Clone + Debug + Send + 'static,
{
    matching_by_term(api, watcher::Config::default().labels(label), None, Pauses::Short, terms)
}

/// Watches the one object of this name by leadership term.
pub fn watch_one_by_term<K>(api: Api<Guarded<K>>, name: &str, terms: Receiver<Option<u64>>) -> (TermNumber, Events<K>)
where
    K: Deleted + Clone + Debug + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    matching_by_term(api, only, Some(name), Pauses::Short, terms)
}

/// Watches the one object of this name, independent of leadership, from now on and without end. The kind can be determined at run time.
pub fn one<K>(api: Api<K>, name: &str) -> BoxStream<'static, watcher::Result<watcher::Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    steady(name, move || watcher(api.clone(), only.clone()).boxed(), Pauses::Short).boxed()
}

/// Watches the objects that `config` selects by leadership term, with these pauses. `name`: of the only object, for log lines.
fn matching_by_term<K>(
    api: Api<Guarded<K>>,
    config: watcher::Config,
    name: Option<&str>,
    pauses: Pauses,
    terms: Receiver<Option<u64>>,
) -> (TermNumber, Events<K>)
where
    K: Deleted + Clone + Debug + Send + 'static,
{
    let term = TermNumber::default();
    let (namespace, name) = (api.namespace().map(str::to_owned), name.map(str::to_owned));
    let (last, watching) = (term.clone(), None::<(u64, Events<Guarded<K>>)>);
    let begin = move || {
        let (api, config) = (api.clone(), config.clone());
        steady(&K::kind(&()), move || watcher(api.clone(), config.clone()).boxed(), pauses).boxed()
    };
    let events = stream::unfold((begin, terms, watching, last), |(begin, mut terms, mut watching, last)| async move {
        loop {
            let term = *terms.borrow_and_update();
            if let Some(term) = term.filter(|term| watching.as_ref().is_none_or(|(of, _)| of != term)) {
                watching = Some((term, begin()));
            }
            let Some((term, events)) = &mut watching else {
                terms.changed().await.ok()?;
                continue;
            };
            tokio::select! {
                Ok(()) = terms.changed() => {}
                event = events.next() => {
                    last.0.store(*term, Ordering::Release);
                    return Some((event?, (begin, terms, watching, last)));
                }
            }
        }
    });
    let mut logged = Logged::default();
    let events = events.inspect(move |event| {
        if let Err(error) = event
            && let Some(error) = logged.if_new(error, Instant::now())
        {
            tracing::warn!(kind = %K::kind(&()), namespace, name, error, "watch failed; retrying");
        }
    });
    (term, parsed(events).boxed())
}

/// Returns the events without objects that cannot be parsed.
fn parsed<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<Guarded<K>>>> + Send,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Deleted + Send,
{
    events.filter_map(|event| ready(event.map(opened).transpose()))
}

fn opened<K>(event: watcher::Event<Guarded<K>>) -> Option<watcher::Event<K>>
where
    K: Deleted,
{
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let open = |guarded: &Guarded<K>| {
        let tell = |error: &serde_json::Error| {
            let metadata = guarded.meta();
            let (kind, name) = (K::kind(&()), metadata.name.as_deref().unwrap_or_default());
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            tracing::error!(%kind, namespace, name, %error, "skipping an object that cannot be parsed; correct or delete it");
        };
        guarded.open().inspect_err(tell).ok()
    };
    match event {
        Init => Some(Init),
        InitDone => Some(InitDone),
        Apply(g) => open(&g).map(Apply),
        InitApply(g) => open(&g).map(InitApply),
        // A deletion needs only the metadata, so it is passed on for an object that cannot be parsed, too.
        Delete(g) => Some(Delete(g.open().unwrap_or_else(|_| K::deleted(g.lean.metadata)))),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use relaybook_api::{Notification, Pipeline};

    async fn deleted<K: Deleted + Clone + Debug + Send + 'static>() -> (bool, Vec<watcher::Event<K>>) {
        let metadata = json!({"namespace": "n", "name": "o", "uid": "u", "resourceVersion": "7"});
        let object = json!({"metadata": metadata, "spec": 5, "data": 5}).to_string();
        let object: Guarded<K> = serde_json::from_str(&object).unwrap();
        let events = [watcher::Event::Apply(object.clone()), watcher::Event::Delete(object.clone())];
        let events = parsed(stream::iter(events.map(Ok))).map(Result::unwrap).collect().await;
        (object.open().is_ok(), events)
    }

    #[tokio::test]
    async fn the_deletion_of_an_object_that_does_not_parse_is_passed_on() {
        async fn check<K: Deleted + Clone + Debug + Send + 'static>() {
            let (parses, events) = deleted::<K>().await;
            let [watcher::Event::Delete(object)] = &events[..] else { panic!("{events:?}") };
            let metadata = object.meta();
            assert!(!parses);
            assert_eq!((metadata.namespace.as_deref(), metadata.name.as_deref()), (Some("n"), Some("o")));
            assert_eq!((metadata.uid.as_deref(), metadata.resource_version.as_deref()), (Some("u"), Some("7")));
        }
        check::<Notification>().await;
        check::<Pipeline>().await;
        check::<ConfigMap>().await;
    }
}
