//! What all parts of the dispatcher share.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::notifications::{self, Written};
use super::refused::Refused;
use super::standing::Standing;
use crate::delivery::{Deliveries, Wakes};
use crate::report::events::Events;
use crate::send::SecretWatches;
use crate::telemetry::Metrics;

/// What the dispatcher is made of.
pub struct Given {
    /// The management cluster.
    pub client: Client,
    /// The name of the local cluster.
    pub cluster_name: String,
    /// Whether `http` is allowed everywhere.
    pub allow_http: bool,
    /// Where deliveries go.
    pub deliveries: Deliveries,
    /// The Secrets that are referred to.
    pub secrets: SecretWatches,
    /// What people are told.
    pub events: Events,
    /// What is counted.
    pub metrics: Metrics,
    /// Namespaces that are watched; one `None`: all.
    pub namespaces: Vec<Option<String>>,
}

/// Keys of one watched namespace that are to be looked at again: (namespace, name).
#[derive(Clone, Debug, Default)]
pub(super) struct Again {
    pub pipelines: Wakes<(String, String)>,
    pub notifications: Wakes<(String, String)>,
}

/// What all parts of the dispatcher share.
pub struct Context {
    pub(super) client: Client,
    pub(super) cluster_name: String,
    pub(super) allow_http: bool,
    pub(super) deliveries: Deliveries,
    pub(super) secrets: SecretWatches,
    pub(super) events: Events,
    pub(super) metrics: Metrics,
    pub(super) refused: Refused,
    pub(super) written: Written,
    scopes: Vec<(Option<String>, Again)>,
    standings: Mutex<HashMap<String, Standing>>,
    failures: Mutex<HashMap<String, u32>>,
    /// Turns true when every watch has brought its first list; nothing is decided before.
    pub(super) complete: watch::Sender<bool>,
    stop: CancellationToken,
}

impl Context {
    pub(super) fn new(given: Given, stop: CancellationToken) -> Self {
        Self {
            client: given.client,
            cluster_name: given.cluster_name,
            allow_http: given.allow_http,
            deliveries: given.deliveries,
            secrets: given.secrets,
            events: given.events,
            metrics: given.metrics,
            refused: Refused::default(),
            written: Written::default(),
            scopes: given.namespaces.into_iter().map(|ns| (ns, Again::default())).collect(),
            standings: Mutex::default(),
            failures: Mutex::default(),
            complete: watch::Sender::new(false),
            stop,
        }
    }

    /// Waits until every first list is in; `false` if the process is to stop before that. It is awaited within a look and not
    /// before the queue, so that the watches go on meanwhile.
    pub(super) async fn is_complete(&self) -> bool {
        let mut complete = self.complete.subscribe();
        self.stop.run_until_cancelled(complete.wait_for(|complete| *complete)).await.is_some()
    }

    pub(super) fn scopes(&self) -> impl Iterator<Item = &(Option<String>, Again)> {
        self.scopes.iter()
    }

    fn again(&self, namespace: &str) -> Option<&Again> {
        self.scopes.iter().find(|(ns, _)| ns.as_deref().is_none_or(|ns| ns == namespace)).map(|(_, again)| again)
    }

    pub(super) fn wake_pipeline(&self, namespace: &str, name: &str) {
        if let Some(again) = self.again(namespace) {
            again.pipelines.wake((namespace.to_owned(), name.to_owned()));
        }
    }

    pub(super) fn wake_notification(&self, namespace: &str, name: &str) {
        if let Some(again) = self.again(namespace) {
            again.notifications.wake((namespace.to_owned(), name.to_owned()));
        }
    }

    /// A Warning Event about a notification that is known by name.
    pub(super) fn warn(&self, namespace: &str, name: &str, reason: &str, action: &'static str, note: &str) {
        if let Some(regarding) = notifications::object_reference(self, namespace, name) {
            self.events.warn(regarding, reason, action, note);
        }
    }

    /// Takes where the dispatcher stands with a pipeline. Only one pass over a pipeline runs at a time, so nobody misses it;
    /// should the pass be lost, the next begins from what is persisted.
    pub(super) fn take_standing(&self, uid: &str) -> Standing {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner).remove(uid).unwrap_or_default()
    }

    pub(super) fn put_standing(&self, uid: &str, standing: Standing) {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), standing);
    }

    pub(super) fn forget(&self, uid: &str) {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        self.refused.forget(uid);
    }

    /// Counts a failure of an object's reconciliation; gives how many there were in a row before.
    pub(super) fn failed(&self, uid: &str) -> u32 {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(uid.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count - 1
    }

    pub(super) fn succeeded(&self, uid: &str) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}
