//! What of a watch is news.
//!
//! Whoever applies an object as it stands has the API server tell of it, with another version and nothing else. Nobody need look at
//! that: what is written is guarded by tests of its own, and whoever tests a version reads it live when the test fails.

use std::future::ready;

use futures::{Stream, StreamExt as _};
use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};

/// Leaves out events of objects that are as `store` has them, but for their version. To be put before what fills the store.
pub fn news<K>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    store: Store<K>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource<DynamicType = ()> + PartialEq + Clone + Send + Sync + 'static,
{
    events.filter_map(move |event| {
        let news = match event {
            Ok(Event::Apply(mut new)) => {
                let old = store.get(&ObjectRef::from_obj(&new));
                let same = old.is_some_and(|old| is_same(&*old, &mut new));
                (!same).then_some(Ok(Event::Apply(new)))
            }
            other => Some(other),
        };
        ready(news)
    })
}

/// Whether only the version differs. `new` is as it was afterwards.
fn is_same<K: Resource<DynamicType = ()> + PartialEq>(old: &K, new: &mut K) -> bool {
    let version = std::mem::replace(&mut new.meta_mut().resource_version, old.meta().resource_version.clone());
    let same = old == new;
    new.meta_mut().resource_version = version;
    same
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::ResourceExt as _;
    use kube::runtime::{WatchStreamExt as _, reflector};
    use serde_json::json;

    use super::*;
    use crate::api::Pipeline;

    fn pipeline(version: &str, over: &serde_json::Value) -> Pipeline {
        let mut object = json!({
            "apiVersion": "pennant.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1, "resourceVersion": version},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "environments": []},
        });
        json_patch::merge(&mut object, over);
        serde_json::from_value(object).unwrap()
    }

    #[tokio::test]
    async fn another_version_alone_is_none() {
        let (store, writer) = reflector::store::<Pipeline>();
        let apply = |version, over| Ok(Event::Apply(pipeline(version, &over)));
        let none = || json!({});
        let events = stream::iter([
            Ok(Event::Init),
            Ok(Event::InitApply(pipeline("1", &none()))),
            Ok(Event::InitDone),
            apply("2", none()),
            apply("3", json!({"metadata": {"labels": {"a": "b"}}})),
            apply("4", json!({"metadata": {"labels": {"a": "b"}}})),
            apply("5", none()),
            apply("6", json!({"status": {"readyTargets": "1/1"}})),
            apply("7", json!({"metadata": {"uid": "another"}})),
            Ok(Event::Delete(pipeline("8", &none()))),
            apply("9", none()),
            apply("10", none()),
        ]);
        let seen: Vec<_> = news(events, store)
            .reflect(writer)
            .filter_map(async |event| match event.unwrap() {
                Event::Apply(p) | Event::Delete(p) => p.resource_version(),
                Event::Init | Event::InitApply(_) | Event::InitDone => None,
            })
            .collect()
            .await;
        assert_eq!(seen, ["3", "5", "6", "7", "8", "9"], "with the version that each came with");
    }
}
