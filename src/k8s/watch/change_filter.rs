//! What of a watch is news.
//!
//! Whoever applies an object as it stands has the API server tell of it, with another version and nothing else. Nobody need look at
//! that, nor even parse it: what is written is guarded by tests of its own, and whoever tests a version reads it live when the test
//! fails. Of each object the hash of its text is kept, under a key of this process, so that nobody can make two texts of one hash.

use std::collections::HashMap;
use std::future::ready;
use std::hash::{BuildHasher as _, RandomState};

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, Event};

use super::Guarded;

/// Hashes of the texts last seen, by namespace and name.
#[derive(Default)]
struct Known {
    hashes: HashMap<(Option<String>, Option<String>), u64>,
    key: RandomState,
}

impl Known {
    fn place<K>(object: &Guarded<K>) -> (Option<String>, Option<String>) {
        let metadata = &object.lean.metadata;
        (metadata.namespace.clone(), metadata.name.clone())
    }

    /// Takes in an object. Returns whether it was another one, or none.
    fn learn<K>(&mut self, object: &Guarded<K>) -> bool {
        let hash = self.key.hash_one(&object.lean.text);
        self.hashes.insert(Self::place(object), hash) != Some(hash)
    }

    /// Whether the event need be heard.
    fn hears<K>(&mut self, event: &Event<Guarded<K>>) -> bool {
        match event {
            Event::Init => self.hashes.clear(),
            Event::InitApply(object) => drop(self.learn(object)),
            Event::InitDone => {}
            Event::Apply(object) => return self.learn(object),
            Event::Delete(object) => drop(self.hashes.remove(&Self::place(object))),
        }
        true
    }
}

/// Leaves out events of objects that are as they were, but for their version. What is listed is always heard.
pub(in crate::k8s::watch) fn news<K>(
    events: impl Stream<Item = watcher::Result<Event<Guarded<K>>>> + Send,
) -> impl Stream<Item = watcher::Result<Event<Guarded<K>>>> + Send {
    let mut known = Known::default();
    events.filter(move |event| ready(event.as_ref().map_or(true, |event| known.hears(event))))
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::Resource as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::Pipeline;

    fn pipeline(version: &str, over: &Value) -> Guarded<Pipeline> {
        let mut object = json!({
            "apiVersion": "pennant.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1, "resourceVersion": version},
            "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "environments": []},
        });
        json_patch::merge(&mut object, over);
        serde_json::from_str(&object.to_string()).unwrap()
    }

    async fn heard(
        events: impl IntoIterator<Item = watcher::Result<Event<Guarded<Pipeline>>>, IntoIter: Send>,
    ) -> Vec<String> {
        let version = async |event: watcher::Result<Event<Guarded<Pipeline>>>| match event {
            Ok(Event::Apply(p) | Event::Delete(p) | Event::InitApply(p)) => p.meta().resource_version.clone(),
            Ok(Event::Init | Event::InitDone) => None,
            Err(_) => Some("error".to_owned()),
        };
        news(stream::iter(events)).filter_map(version).collect().await
    }

    #[tokio::test]
    async fn another_version_alone_is_none() {
        let apply = |version, over| Ok(Event::Apply(pipeline(version, &over)));
        let none = || json!({});
        let seen = heard([
            Ok(Event::Init),
            Ok(Event::InitApply(pipeline("1", &none()))),
            Ok(Event::InitDone),
            apply("2", none()),
            apply("3", json!({"metadata": {"labels": {"a": "b"}}})),
            apply("4", json!({"metadata": {"labels": {"a": "b"}}})),
            apply("5", none()),
            apply("6", json!({"status": {"readyTargets": "1/1"}})),
            apply("7", json!({"metadata": {"uid": "another"}})),
            apply("8", json!({"metadata": {"uid": "another", "managedFields": [{"manager": "somebody"}]}})),
            apply("9", json!({"metadata": {"name": "q"}})),
            apply("10", json!({"metadata": {"namespace": "m"}})),
            Ok(Event::Delete(pipeline("11", &none()))),
            apply("12", none()),
            apply("13", none()),
        ]);
        assert_eq!(seen.await, ["1", "3", "5", "6", "7", "9", "10", "11", "12"], "with the version that each came with");
    }

    #[tokio::test]
    async fn a_list_is_heard_and_what_was_known_before_it_is_not() {
        let none = json!({});
        let list = |versions: &[&str]| {
            let mut events = vec![Ok(Event::Init)];
            events.extend(versions.iter().map(|version| Ok(Event::InitApply(pipeline(version, &none)))));
            events.push(Ok(Event::InitDone));
            events
        };
        let apply = |version| Ok(Event::Apply(pipeline(version, &none)));
        let mut events = list(&["1"]);
        events.extend([apply("2"), Err(watcher::Error::NoResourceVersion), apply("3")]);
        events.extend(list(&["4"]));
        events.push(apply("5"));
        // It was deleted meanwhile, and comes back as it was.
        events.extend(list(&[]));
        events.extend([apply("6"), apply("7")]);
        assert_eq!(heard(events).await, ["1", "error", "4", "6"]);
    }
}
