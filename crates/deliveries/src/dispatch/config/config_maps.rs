//! The ConfigMaps that contain templates and CA certificates. Each one has its own watch.
//!
//! In: the names that notifications refer to. Out: the text of a key, and the names of the ConfigMaps that have changed.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::{Stream, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use tokio::sync::watch::Receiver;

use crate::outbox::WorkQueue;
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_api::{ObjectName, Time, now};
use relaybook_runtime::watch::{NamedWatches, Seen};
use relaybook_settings::config::Text;
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::Watch;

/// The ConfigMaps that notifications refer to.
pub(crate) struct ConfigMaps {
    watches: NamedWatches,
    known: Arc<Mutex<HashMap<ObjectName, Slot>>>,
    /// When this process last saw each ConfigMap change from a known state.
    edits: Arc<Mutex<HashMap<ObjectName, Time>>>,
    /// The ConfigMaps whose state has changed.
    changed: WorkQueue<ObjectName>,
}

/// The place where a watch stores what it sees. The slot of an unwanted ConfigMap is not in `known`, so a late event does not change any
/// known text.
type Slot = Arc<Mutex<State>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unknown,
    Unreadable,
    Missing,
    Present(BTreeMap<String, Arc<str>>),
}

impl ConfigMaps {
    /// Starts without watches. The client needs `list` and `watch` on the ConfigMaps that notifications can refer to.
    pub(crate) fn new(client: Client, terms: Receiver<Option<u64>>, metrics: Metrics) -> Self {
        let watches = NamedWatches::new(client, terms, Watch::ConfigMaps, metrics);
        Self { watches, known: Arc::default(), edits: Arc::default(), changed: WorkQueue::default() }
    }

    /// Returns the text of a key, or why it is not available.
    pub(crate) fn text(&self, key: &ConfigMapKey) -> Text {
        let slot = self.known.lock().get(&key.object()).cloned();
        let Some(slot) = slot else { return Text::Unknown };
        let state = slot.lock();
        match &*state {
            State::Unknown => Text::Unknown,
            State::Unreadable => Text::Unreadable,
            State::Missing => Text::NoConfigMap,
            State::Present(data) => data.get(&key.key).map_or(Text::NoKey, |text| Text::Found(Arc::clone(text))),
        }
    }

    /// Returns when this process last saw one of these ConfigMaps change from a known state. The first read is not a change.
    pub(crate) fn edited<'k>(&self, keys: impl IntoIterator<Item = &'k ConfigMapKey>) -> Option<Time> {
        let edits = self.edits.lock();
        keys.into_iter().filter_map(|key| edits.get(&key.object()).copied()).max()
    }

    /// Watches these ConfigMaps and no others; see [`NamedWatches::set_wanted`].
    pub(crate) fn set_wanted(&self, wanted: impl FnOnce() -> BTreeSet<ObjectName>) {
        let known = |name: &ObjectName, slot: Option<Slot>| {
            let mut known = self.known.lock();
            match slot {
                Some(slot) => known.insert(name.clone(), slot),
                None => known.remove(name),
            }
        };
        let begin = |name: &ObjectName| {
            let (name, changed, slot) = (name.clone(), self.changed.clone(), Slot::default());
            let edits = self.edits.clone();
            known(&name, Some(Arc::clone(&slot)));
            move |seen: Seen<ConfigMap>| {
                let was_known = is_known(&slot);
                if take(&slot, seen) {
                    if was_known && is_known(&slot) {
                        edits.lock().insert(name.clone(), now());
                    }
                    changed.wake(name.clone());
                }
            }
        };
        let end = |name: &ObjectName| {
            known(name, None);
            self.edits.lock().remove(name);
        };
        self.watches.set_wanted(wanted, begin, end);
    }

    /// Stores what a watch would see.
    #[cfg(test)]
    pub(super) fn see(&self, name: &ObjectName, seen: Seen<ConfigMap>) {
        take(self.known.lock().entry(name.clone()).or_default(), seen);
    }

    /// Returns the ConfigMaps whose state has changed. If a watch panics, so does the stream.
    pub(crate) fn changes(&self) -> impl Stream<Item = ObjectName> + Send + 'static {
        stream::select(self.changed.stream(), stream::once(self.watches.broken()))
    }

    /// Ends all watches and joins their tasks.
    pub(crate) async fn shutdown(&self) {
        self.watches.shutdown().await;
    }
}

fn is_known(slot: &Slot) -> bool {
    !matches!(*slot.lock(), State::Unknown | State::Unreadable)
}

/// Stores what a watch saw. Returns `true` if the state has changed.
fn take(slot: &Slot, seen: Seen<ConfigMap>) -> bool {
    let mut state = slot.lock();
    let new = match seen {
        Seen::Object(Some(object)) => State::Present(texts(object)),
        Seen::Object(None) => State::Missing,
        Seen::Begins => State::Unknown,
        // A state that was read is kept, as after any other error. If nothing was read yet, users must be notified.
        Seen::Forbidden if *state == State::Unknown => State::Unreadable,
        Seen::Forbidden => return false,
    };
    let is_news = *state != new;
    *state = new;
    is_news
}

/// Returns the data of a ConfigMap. Its size is at most 1 MiB, because the API server rejects larger ConfigMaps.
fn texts(object: ConfigMap) -> BTreeMap<String, Arc<str>> {
    object.data.unwrap_or_default().into_iter().map(|(key, text)| (key, Arc::from(text))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(data: &[(&str, &str)]) -> Seen<ConfigMap> {
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Seen::Object(Some(ConfigMap { data: Some(data), ..ConfigMap::default() }))
    }

    #[test]
    fn only_changes_of_a_config_map_are_announced_and_a_refusal_keeps_its_content() {
        let slot = Slot::default();
        for (told, news, state) in [
            (Seen::Begins, false, "Unknown"),
            (Seen::Forbidden, true, "Unreadable"),
            (Seen::Forbidden, false, "Unreadable"),
            (Seen::Object(None), true, "Missing"),
            (seen(&[("k", "1")]), true, "Present({\"k\": \"1\"})"),
            (seen(&[("k", "1")]), false, "Present({\"k\": \"1\"})"),
            (Seen::Forbidden, false, "Present({\"k\": \"1\"})"),
            (seen(&[("k", "2")]), true, "Present({\"k\": \"2\"})"),
            (Seen::Object(None), true, "Missing"),
            (Seen::Begins, true, "Unknown"),
        ] {
            assert_eq!(take(&slot, told), news, "{state}");
            assert_eq!(format!("{:?}", slot.lock()), state);
        }
    }
}
