//! What all parts of the dispatcher share.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::by_uid::ByUid;
use super::config::config_maps::ConfigMaps;
use super::config::configuration::Configuration;
use super::cursor::state::CursorState;
use super::references;
use super::status::refused::Refused;
use super::status::written::Written;
use crate::api::delivery::PipelineRef;
use crate::api::values::refs::ObjectName;
use crate::k8s::limiter::NamespaceLimiter;
use crate::leader::Lease;
use crate::outbox::{Deliveries, PipelineFacts, WorkQueue};
use crate::report::events::Events;
use crate::telemetry::Metrics;
use crate::webhook::SecretWatches;

/// No call takes longer.
pub(super) const CALL: Duration = Duration::from_secs(10);

/// After the order to stop, a pass may go on for so long.
const LAST_WORK: Duration = Duration::from_secs(5);

/// Pipelines and notifications that are gone over at once.
const LOOKS: usize = 64;

/// Whether a look may do something.
pub(super) enum Acts {
    /// It may, in this turn.
    Yes(u64),
    /// It may, after it was brought what is so now.
    Again,
    /// It may not; when that changes, everything is looked at.
    No,
}

/// What the dispatcher is made of.
pub struct Given {
    /// The management cluster.
    pub client: Client,
    /// Whether this replica may act.
    pub lease: Lease,
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
    /// The ConfigMap with the global configuration.
    pub config_map: ObjectName,
}

/// Keys of one watched namespace that are to be looked at again: (namespace, name).
#[derive(Clone, Debug, Default)]
pub(super) struct Again {
    pub pipelines: WorkQueue<(String, String)>,
    pub notifications: WorkQueue<(String, String)>,
}

/// What all parts of the dispatcher share.
pub struct Context {
    pub(super) client: Client,
    pub(super) lease: Lease,
    pub(super) cluster_name: String,
    pub(super) deliveries: Deliveries,
    pub(super) secrets: SecretWatches,
    pub(super) config: Configuration,
    pub(super) events: Events,
    pub(super) metrics: Metrics,
    pub(super) refused: Refused,
    /// Passes, and statuses of notifications, that are under way at once.
    pub(super) limiter: NamespaceLimiter,
    pub(super) written: Written,
    scopes: Vec<(Option<String>, Again)>,
    cursor_states: ByUid<CursorState>,
    /// Failures in a row.
    failures: ByUid<u32>,
    /// The turn in which every watch has brought its list; nothing is decided in it before.
    pub(super) complete: watch::Sender<Option<u64>>,
    stop: CancellationToken,
}

impl Context {
    pub(super) fn new(given: Given, stop: CancellationToken) -> Self {
        let config_maps = ConfigMaps::new(given.client.clone(), given.lease.turns(), given.metrics.clone());
        let (pipeline_index, local) =
            (given.deliveries.pipeline_index.clone(), (given.cluster_name.clone(), given.allow_http));
        Self {
            config: Configuration::new(given.config_map, config_maps, pipeline_index, local),
            client: given.client,
            lease: given.lease,
            cluster_name: given.cluster_name,
            deliveries: given.deliveries,
            secrets: given.secrets,
            events: given.events,
            metrics: given.metrics,
            refused: Refused::default(),
            limiter: NamespaceLimiter::new(LOOKS),
            written: Written::default(),
            scopes: given.namespaces.into_iter().map(|ns| (ns, Again::default())).collect(),
            cursor_states: ByUid::default(),
            failures: ByUid::default(),
            complete: watch::Sender::new(None),
            stop,
        }
    }

    /// The turn in which this replica acts: the Lease is its own for longer than a call takes, and since then everything was
    /// listed. `None` while another replica acts, and when the process is to stop. What was brought to a look that had to wait
    /// may be out of date.
    ///
    /// It is awaited within a look and not before the queue, so that the watches go on meanwhile.
    pub(super) async fn acts(&self) -> Acts {
        let Some(term) = self.lease.term() else { return Acts::No };
        if *self.complete.borrow() == Some(term.turn) && self.lease.may(CALL) {
            return Acts::Yes(term.turn);
        }
        let mut complete = self.complete.subscribe();
        let ready = async {
            let listed = complete.wait_for(|turn| *turn >= Some(term.turn)).await.is_ok();
            listed && self.lease.wait(CALL).await
        };
        match self.stop.run_until_cancelled(ready).await {
            Some(true) => Acts::Again,
            _ => Acts::No,
        }
    }

    /// Gives something a little time after the order to stop; a create that hangs must not keep the Lease from others.
    pub(super) async fn before_the_end<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let late = async {
            self.stop.cancelled().await;
            tokio::time::sleep(LAST_WORK).await;
        };
        tokio::select! {
            done = work => Some(done),
            () = late => None,
        }
    }

    /// Whether this replica acts now, without waiting for it: for the last writes.
    pub(super) fn acts_now(&self) -> Option<u64> {
        let turn = self.lease.term().map(|term| term.turn).filter(|_| self.lease.may(CALL));
        turn.filter(|turn| *self.complete.borrow() == Some(*turn))
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

    /// Has all pipelines looked at of which this is so.
    pub(super) fn wake_pipelines(&self, wanted: impl Fn(&PipelineFacts) -> bool) {
        for (_, pipeline) in self.deliveries.pipeline_index.pipelines_but(|_| false) {
            if wanted(&pipeline) {
                self.wake_pipeline(&pipeline.namespace, &pipeline.name);
            }
        }
    }

    pub(super) fn wake_notification(&self, namespace: &str, name: &str) {
        if let Some(again) = self.again(namespace) {
            again.notifications.wake((namespace.to_owned(), name.to_owned()));
        }
    }

    /// A Warning Event about a notification of a pipeline: regarding the object that defines it, or the pipeline itself.
    pub(super) fn warn(&self, of: &PipelineRef, name: &str, reason: &str, action: &'static str, note: &str) {
        let regarding = match self.config.notification(&of.namespace, name) {
            Some(notification) => Some(notification.object_ref(&())),
            None => self.config.global().global().get(name).map(|_| self.global_reference(None)),
        };
        self.events.warn(regarding.unwrap_or_else(|| references::regarding(of)), reason, action, note);
    }

    /// The ConfigMap with the global configuration, for Events; of this version, so that what is wrong with the next is told apart.
    pub(super) fn global_reference(&self, version: Option<String>) -> ObjectReference {
        ObjectReference {
            resource_version: version,
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: Some(self.config.global_map.namespace.clone()),
            name: Some(self.config.global_map.name.clone()),
            ..ObjectReference::default()
        }
    }

    /// Takes where the dispatcher stands with a pipeline. Only one pass over a pipeline runs at a time, so nobody misses it;
    /// should the pass be lost, or another replica have acted since, the next begins from what is persisted.
    pub(super) fn take_cursor_state(&self, uid: &str, turn: u64) -> CursorState {
        let known = self.cursor_states.take(uid);
        known.filter(|cursor_state| cursor_state.turn == turn).unwrap_or_else(|| CursorState::new(turn))
    }

    pub(super) fn put_cursor_state(&self, uid: &str, cursor_state: CursorState) {
        self.cursor_states.put(uid, cursor_state);
    }

    pub(super) fn forget(&self, uid: &str) {
        self.cursor_states.take(uid);
        self.failures.take(uid);
        self.refused.forget(uid);
    }

    /// Drops what is kept of pipelines and notifications that are gone: a look that was under way then has put it back. Gives how
    /// many entries are left.
    pub(super) fn tidy(&self) -> usize {
        let pipelines = |uid: &str| self.deliveries.pipeline_index.pipeline(uid).is_some();
        let uids = self.config.uids();
        let notifications = |uid: &str| uids.contains(uid);
        self.refused.tidy(pipelines);
        self.deliveries.delivery_index.tidy(pipelines);
        let failures = self.failures.tidy(|uid| notifications(uid) || pipelines(uid));
        let kept = self.cursor_states.tidy(pipelines) + self.written.tidy(notifications) + failures;
        kept + self.deliveries.delivery_index.entries().into_iter().sum::<usize>()
    }

    /// Counts a failure of an object's reconciliation; gives how many there were in a row before.
    pub(super) fn failed(&self, uid: &str) -> u32 {
        self.failures.replace(uid, |count| count.saturating_add(1))
    }

    pub(super) fn succeeded(&self, uid: &str) {
        self.failures.take(uid);
    }
}
