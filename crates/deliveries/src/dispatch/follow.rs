//! Follows Relaybook's own resources. Each watch event is applied first, and then its object is queued for a reconcile.
//!
//! In: watch events, and requests from other components to reconcile an object again. Out: a store, and the queue of objects to reconcile,
//! for kube's `applier`.

pub(super) mod global;
pub(super) mod notifications;
pub(super) mod pipelines;

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Context;
use relaybook_api::ObjectName;
use relaybook_runtime::watch::{Deleted, api_in, watch_by_term};
use relaybook_telemetry::metrics::Watch;

/// The key of a watch: its namespace, and the resource that it watches.
pub(super) type Watched = (Option<String>, &'static str);

/// A complete list: its watch, and the leadership term in which the list started.
pub(super) type Listed = (Watched, u64);

/// A resource of Relaybook that the dispatcher follows.
pub(super) trait Followed:
    Deleted + Resource<Scope = NamespaceResourceScope> + Clone + PartialEq + Debug + Send + Sync + 'static
{
    /// The name of the resource, for the keys of its watches.
    const WHAT: &'static str;
    /// The label of the watch in metrics.
    const WATCH: Watch;

    /// Applies one watch event.
    fn absorb(ctx: &Context, event: &watcher::Event<Self>) -> impl Future<Output = ()> + Send;

    /// Removes the objects that a list does not contain. Called when the list is complete. `namespace` is the namespace of the list, or
    /// `None` for all namespaces.
    fn sweep(ctx: &Context, namespace: Option<&str>, there: &[Arc<Self>]) -> impl Future<Output = ()> + Send;
}

/// Watches a resource in one namespace, or in all. `listed` receives a message after each list. `woken` yields each object to
/// reconcile again. Returns the store, and the queue of objects to reconcile.
pub(super) fn follow<K: Followed>(
    ctx: &Arc<Context>,
    namespace: Option<String>,
    listed: mpsc::Sender<Listed>,
    woken: impl Stream<Item = ObjectName> + Send + 'static,
    stop: &CancellationToken,
) -> (Store<K>, impl Stream<Item = Result<ObjectRef<K>, Infallible>> + Send + 'static) {
    let (reader, writer) = store::<K>();
    let api = api_in(&ctx.client, namespace.as_deref());
    let (term, events) = watch_by_term(api, ctx.lease.term_numbers());
    let (ctx, seen) = (ctx.clone(), reader.clone());
    let absorbed = events.reflect(writer).then(move |event| {
        let term = term.number();
        let (ctx, reader, scope, listed) = (ctx.clone(), seen.clone(), namespace.clone(), listed.clone());
        async move {
            let Some(event) = interrupted(&ctx, event) else { return Vec::new() };
            K::absorb(&ctx, &event).await;
            if matches!(event, watcher::Event::InitDone) {
                K::sweep(&ctx, scope.as_deref(), &reader.state()).await;
                // During shutdown, the receiver may be closed already.
                let _ = listed.send(((scope, K::WHAT), term)).await;
            }
            touched(&event, &reader)
        }
    });
    let woken = woken.map(|object| ObjectRef::new(&object.name).within(&object.namespace));
    let queue = stream::select(absorbed.flat_map(stream::iter).boxed(), woken.boxed());
    (reader, queue.map(Ok).take_until(stop.clone().cancelled_owned()))
}

fn interrupted<K: Followed>(ctx: &Context, event: watcher::Result<watcher::Event<K>>) -> Option<watcher::Event<K>> {
    event.inspect_err(|_| ctx.metrics.watch_error(K::WATCH)).ok()
}

/// Returns the objects to reconcile after an event. During a list it returns none, because the store still has the old content. After the
/// list, it returns all objects.
fn touched<K: Followed>(event: &watcher::Event<K>, reader: &Store<K>) -> Vec<ObjectRef<K>> {
    match event {
        watcher::Event::Apply(object) => vec![ObjectRef::from(object)],
        watcher::Event::InitDone => reader.state().iter().map(|object| ObjectRef::from(&**object)).collect(),
        watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitApply(_) => Vec::new(),
    }
}
