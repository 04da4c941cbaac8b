//! Several watches of one loop, each with its number.
//!
//! In: the watched namespaces, and watches by leadership term. Out: one stream of events ([`Arrived`]) for all of them.

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource};

use super::{Events, TermNumber};

/// An event of one watch, with its number and the leadership term in which its list started. `change`: `None` if the watch failed and is
/// restarted.
pub struct Arrived<C> {
    /// Number of the watch.
    pub watch: usize,
    /// The leadership term.
    pub term: u64,
    /// The event.
    pub change: Option<C>,
}

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

/// Gives a number to a watch. `failed` is called for each error.
pub fn numbered<K: Send + 'static, C: 'static>(
    watch: usize,
    (term, events): (TermNumber, Events<K>),
    failed: impl Fn() + Send + 'static,
    wrap: fn(Event<K>) -> C,
) -> BoxStream<'static, Arrived<C>> {
    let arrived = events.map(move |event| {
        let change = event.inspect_err(|_| failed()).ok().map(wrap);
        Arrived { watch, term: term.number(), change }
    });
    arrived.boxed()
}
