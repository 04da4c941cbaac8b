//! One watch for each Secret that something refers to, and none for any other.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::task::{AbortHandle, JoinSet};

use super::secrets::{Secrets, Slot};
use crate::api::credentials::SecretName;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::Watch;

/// Keeps [`Secrets`] as the API server has them.
pub struct SecretWatches {
    client: Client,
    secrets: Secrets,
    metrics: Metrics,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    all: JoinSet<()>,
    running: HashMap<SecretName, AbortHandle>,
}

impl SecretWatches {
    /// No watch yet. The client needs `list` and `watch` on the Secrets that will be wanted.
    #[must_use]
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, secrets: Secrets::unknown(), metrics, tasks: Mutex::default() }
    }

    /// What the watches see.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        self.secrets.clone()
    }

    /// Starts a watch for each of these that has none, and ends those of all others. They are asked for when nobody else may
    /// set them, so that an older answer never takes the place of a newer. Must be called within a tokio runtime.
    pub fn set_wanted(&self, wanted: impl FnOnce() -> BTreeSet<SecretName>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = wanted();
        let Tasks { all, running } = &mut *tasks;
        running.retain(|name, task| {
            let keep = wanted.contains(name);
            if !keep {
                task.abort();
                self.secrets.remove(name);
            }
            keep
        });
        for name in wanted.iter().filter(|name| !running.contains_key(*name)).cloned().collect::<Vec<_>>() {
            let slot = self.secrets.add(name.clone());
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &name.namespace);
            let seen = watcher::watch_object(api, &name.name).default_backoff();
            let task = follow(seen, name.clone(), slot, self.secrets.clone(), self.metrics.clone());
            running.insert(name, all.spawn(task));
        }
        // Those that were ended are joined here, and the last of them in `shutdown`.
        while all.try_join_next().is_some() {}
    }

    /// Ends all watches and joins their tasks. What was read stays readable.
    pub async fn shutdown(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let Tasks { mut all, .. } = tasks;
        all.shutdown().await;
    }
}

/// Puts what a watch sees into its slot. After an error the last value stands, and the watch goes on by itself.
async fn follow(
    seen: impl Stream<Item = watcher::Result<Option<Secret>>>,
    name: SecretName,
    slot: Slot,
    secrets: Secrets,
    metrics: Metrics,
) {
    let mut seen = pin!(seen);
    while let Some(event) = seen.next().await {
        match event {
            Ok(secret) => secrets.put(&name, &slot, secret),
            Err(error) => {
                metrics.watch_error(Watch::Secrets);
                tracing::warn!(secret = %name, error = &error as &dyn std::error::Error, "the watch of a Secret broke; trying again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;
    use crate::api::credentials::SecretKey;
    use crate::send::NotSent;
    use crate::send::secrets::tests::secret;

    #[tokio::test]
    async fn the_last_value_stands_when_the_watch_breaks() {
        let secrets = Secrets::unknown();
        let key = SecretKey::new("a", "b", "k");
        let name = key.secret();
        let slot = secrets.add(name.clone());
        let metrics = Metrics::new();
        let mut changes = secrets.changes();
        let (sender, receiver) = mpsc::unbounded();
        let task = tokio::spawn(follow(receiver, name.clone(), slot, secrets.clone(), metrics.clone()));

        sender.unbounded_send(Ok(Some(secret(&[("k", "1")])))).unwrap();
        assert_eq!(changes.recv().await.unwrap(), name);
        sender.unbounded_send(Err(watcher::Error::NoResourceVersion)).unwrap();
        drop(sender);
        task.await.unwrap();
        assert_eq!(secrets.check(&[key]), Ok(()));
        assert!(metrics.encode().unwrap().contains("pennant_watch_errors_total{watch=\"secrets\"} 1\n"));
    }

    #[tokio::test]
    async fn a_secret_that_is_no_longer_wanted_is_forgotten() {
        // Nothing listens on port 1, so no watch ever tells anything.
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let watches = SecretWatches::new(Client::try_from(config).unwrap(), Metrics::new());
        let (one, two) = (SecretKey::new("a", "one", "k"), SecretKey::new("a", "two", "k"));
        watches.set_wanted(|| BTreeSet::from([one.secret(), two.secret()]));
        let secrets = watches.secrets();
        let running = || watches.tasks.lock().unwrap().running.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(running(), BTreeSet::from([one.secret(), two.secret()]));

        let late = secrets.add(one.secret());
        watches.set_wanted(|| BTreeSet::from([two.secret()]));
        assert_eq!(running(), BTreeSet::from([two.secret()]));
        secrets.put(&one.secret(), &late, Some(secret(&[("k", "late")])));
        assert_eq!(secrets.check([&one]), Err(NotSent::SecretUnknown(one.secret())), "a late word is not heard");

        watches.shutdown().await;
        assert!(watches.tasks.lock().unwrap().all.is_empty());
    }
}
