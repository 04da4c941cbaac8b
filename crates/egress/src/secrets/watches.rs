//! Watches of the referenced Secrets, one watch for each.

use std::collections::BTreeSet;

use futures::{Stream, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use tokio::sync::watch::Receiver;

use super::{Secrets, Slot};
use relaybook_api::ObjectName;
use relaybook_runtime::watch::{NamedWatches, Seen};
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::Watch;

/// Keeps [`Secrets`] in sync with the API server.
pub struct SecretWatches {
    secrets: Secrets,
    watches: NamedWatches,
}

impl SecretWatches {
    /// Creates an instance without watches. The client needs `list` and `watch` on the Secrets that will be watched.
    #[must_use]
    pub fn new(client: Client, terms: Receiver<Option<u64>>, metrics: Metrics) -> Self {
        Self { secrets: Secrets::unknown(), watches: NamedWatches::new(client, terms, Watch::Secrets, metrics) }
    }

    /// Returns the values that the watches have read.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        self.secrets.clone()
    }

    /// Returns the Secrets whose values change from now on. If a watch panics, so does the stream.
    pub fn changes(&self) -> impl Stream<Item = ObjectName> + Send + 'static {
        let changes =
            stream::unfold(self.secrets.changes(), |mut changes| async move { Some((changes.next().await, changes)) });
        stream::select(changes, stream::once(self.broken()))
    }

    /// Panics as soon as a watch has panicked, with its cause. Ends in no other way.
    pub fn broken<T>(&self) -> impl Future<Output = T> + Send + use<T> {
        self.watches.broken()
    }

    /// Watches only these Secrets; see [`NamedWatches::set_wanted`].
    pub fn set_wanted(&self, wanted: impl FnOnce() -> BTreeSet<ObjectName>) {
        let begin = |name: &ObjectName| write_to_slot(name.clone(), self.secrets.add(name.clone()), self.secrets.clone());
        self.watches.set_wanted(wanted, begin, |name| self.secrets.remove(name));
    }

    /// Ends all watches and joins their tasks. The values stay readable.
    pub async fn shutdown(&self) {
        self.watches.shutdown().await;
    }
}

/// Writes the events of a watch to its slot. After an error the last value is kept.
fn write_to_slot(name: ObjectName, slot: Slot, secrets: Secrets) -> impl FnMut(Seen<Secret>) {
    move |seen| match seen {
        Seen::Begins => Secrets::forget_value(&slot),
        Seen::Object(secret) => secrets.put(&name, &slot, secret),
        Seen::Forbidden => secrets.put_unreadable(&name, &slot),
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;
    use kube::runtime::watcher;

    use super::*;
    use crate::secrets::tests::{secret, token};
    use crate::{NotSent, Policy};
    use relaybook_api::notification::credentials::SecretKey;
    use relaybook_runtime::watch::{TermNumber, follow};

    #[tokio::test]
    async fn the_last_value_is_kept_when_the_watch_fails() {
        let secrets = Secrets::unknown();
        let key = SecretKey::new("a", "b", "k");
        let name = key.secret();
        let slot = secrets.add(name.clone());
        let metrics = Metrics::new();
        let mut changes = secrets.changes();
        let (sender, receiver) = mpsc::unbounded();
        let write = write_to_slot(name.clone(), slot, secrets.clone());
        let task = tokio::spawn(follow(receiver, TermNumber::default(), write, Watch::Secrets, metrics.clone()));

        sender.unbounded_send(Ok(watcher::Event::Apply(secret(&[("k", "1")])))).unwrap();
        assert_eq!(changes.next().await, name);
        sender.unbounded_send(Err(watcher::Error::NoResourceVersion)).unwrap();
        drop(sender);
        task.await.unwrap();
        assert_eq!(secrets.check(&[token(key)], &Policy::default()), Ok(()));
        assert!(metrics.encode().unwrap().contains("relaybook_watch_errors_total{watch=\"secrets\"} 1\n"));
    }

    #[tokio::test]
    async fn a_secret_that_is_no_longer_required_is_removed() {
        // No process listens on port 1, so no watch ever reports anything.
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let watches =
            SecretWatches::new(Client::try_from(config).unwrap(), tokio::sync::watch::channel(Some(1)).1, Metrics::new());
        let (one, two) = (SecretKey::new("a", "one", "k"), SecretKey::new("a", "two", "k"));
        watches.set_wanted(|| BTreeSet::from([one.secret(), two.secret()]));
        let secrets = watches.secrets();
        assert_eq!(watches.watches.running(), BTreeSet::from([one.secret(), two.secret()]));

        let late = secrets.add(one.secret());
        watches.set_wanted(|| BTreeSet::from([two.secret()]));
        assert_eq!(watches.watches.running(), BTreeSet::from([two.secret()]));
        secrets.put(&one.secret(), &late, Some(secret(&[("k", "late")])));
        assert_eq!(
            secrets.check(&[token(one.clone())], &Policy::default()),
            Err(NotSent::SecretUnknown(one.secret())),
            "a late event has no effect"
        );

        watches.shutdown().await;
        assert!(watches.watches.running().is_empty());
    }
}
