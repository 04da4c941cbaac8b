//! One way to watch our own resources: backed off, and never stopped by an object that does not parse.
//!
//! In: an `Api`. Out: watch events of the objects that parse; one that does not is logged with its name and passed over, for
//! a single bad object must not stop the stream of all others.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _};
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// Watches with back-off, over objects guarded against what does not parse.
pub fn guarded<K>(api: Api<DeserializeGuard<K>>) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(api, watcher::Config::default()).default_backoff().filter_map(|event| async { event.map(parsed).transpose() })
}

fn parsed<K>(event: watcher::Event<DeserializeGuard<K>>) -> Option<watcher::Event<K>>
where
    K: Resource<DynamicType = ()>,
{
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let open = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(object) => Some(object),
        Err(e) => {
            let (kind, name) = (K::kind(&()), e.metadata.name.clone().unwrap_or_default());
            let namespace = e.metadata.namespace.clone().unwrap_or_default();
            tracing::error!(%kind, %namespace, %name, error = %e.error, "object does not parse and is passed over; mend or delete it");
            None
        }
    };
    match event {
        Init => Some(Init),
        InitDone => Some(InitDone),
        Apply(g) => open(g).map(Apply),
        InitApply(g) => open(g).map(InitApply),
        Delete(g) => open(g).map(Delete),
    }
}
