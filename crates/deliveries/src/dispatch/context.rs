//! The data that all parts of the dispatcher share.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::controller::Action;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::by_uid::ByUid;
use super::config::config_maps::ConfigMaps;
use super::config::configuration::Configuration;
use super::cursor::state::CursorState;
use super::references;
use super::status::refused::Refused;
use super::status::written::Written;
use super::test_send::book::TestBook;
use crate::outbox::{Deliveries, PipelineFacts, WorkQueue};
use relaybook_api::ObjectName;
use relaybook_api::delivery::PipelineRef;
use relaybook_egress::{Policy, SecretWatches};
use relaybook_runtime::Common;
use relaybook_runtime::leader::Lease;
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_runtime::pace::NamespacePace;
use relaybook_runtime::report::events::Events;
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::ApiWrite;

/// The maximum duration of a call.
pub(super) const CALL: Duration = Duration::from_secs(10);

/// After shutdown starts, a reconcile can continue for this time.
const LAST_WORK: Duration = Duration::from_secs(5);

/// Maximum number of concurrent reconciles of pipelines and notifications.
const LOOKS: usize = 64;

/// What the dispatcher needs to start.
pub struct Given {
    /// What every controller gets.
    pub common: Common,
    /// The name of the local cluster.
    pub cluster_name: String,
    /// Whether Notifications of another namespace can be layers of a pipeline.
    pub cross_namespace_refs: bool,
    /// Records the deliveries and hands them over for sending.
    pub deliveries: Deliveries,
    /// The Secrets that notifications refer to.
    pub secrets: SecretWatches,
    /// The egress policy of requests.
    pub policy: Policy,
    /// The watched namespaces. A single `None` means all namespaces.
    pub namespaces: Vec<Option<String>>,
    /// The ConfigMap with the global configuration.
    pub config_map: ObjectName,
}

/// The objects of one watched namespace to reconcile again.
#[derive(Clone, Debug, Default)]
pub(super) struct Again {
    pub pipelines: WorkQueue<ObjectName>,
    pub notifications: WorkQueue<ObjectName>,
}

/// The data that all parts of the dispatcher share.
pub struct Context {
    pub(super) client: Client,
    pub(super) lease: Lease,
    pub(super) cluster_name: String,
    pub(super) deliveries: Deliveries,
    pub(super) secrets: SecretWatches,
    pub(super) policy: Policy,
    pub(super) config: Configuration,
    pub(super) events: Events,
    pub(super) metrics: Metrics,
    pub(super) refused: Refused,
    /// Limits how many reconciles of pipelines and notifications run at once.
    pub(super) limiter: NamespaceLimiter,
    /// Limits how fast a namespace records deliveries and moves cursors.
    pub(super) pace: NamespacePace,
    pub(super) written: Written,
    pub(super) tests: TestBook,
    scopes: Vec<(Option<String>, Again)>,
    cursor_states: ByUid<CursorState>,
    /// By uid: the number of failures in a row.
    failures: ByUid<u32>,
    /// The leadership term in which every watch has delivered its list. Before that, nothing is decided in a term.
    pub(super) complete: watch::Sender<Option<u64>>,
    stop: CancellationToken,
}

impl Context {
    pub(super) fn new(given: Given) -> Self {
        let Common { client, lease, events, metrics, stop } = given.common;
        let pace = NamespacePace::new(ApiWrite::DeliveryCreate, metrics.clone());
        Self {
            config: Configuration::new(
                given.config_map,
                ConfigMaps::new(client.clone(), lease.term_numbers(), metrics.clone()),
                given.deliveries.pipeline_index.clone(),
                given.cluster_name.clone(),
                given.policy.allow_http,
                given.cross_namespace_refs,
            ),
            client,
            lease,
            cluster_name: given.cluster_name,
            deliveries: given.deliveries,
            secrets: given.secrets,
            policy: given.policy,
            events,
            metrics,
            refused: Refused::default(),
            limiter: NamespaceLimiter::new(LOOKS),
            pace,
            written: Written::default(),
            tests: TestBook::default(),
            scopes: given.namespaces.into_iter().map(|ns| (ns, Again::default())).collect(),
            cursor_states: ByUid::default(),
            failures: ByUid::default(),
            complete: watch::Sender::new(None),
            stop,
        }
    }

    /// Waits until this replica can act as the leader. Then its Lease lasts longer than the deadline of a call, and every watch has
    /// delivered its list in this leadership term. Returns the number of the term, or what the reconcile does instead. After a wait the
    /// object is reconciled again, because it may be out of date. If another replica becomes the leader, or the process stops, nothing
    /// is done: everything is reconciled when that changes.
    ///
    /// Each reconcile awaits it, instead of the queue, so that the watches continue in the meantime.
    pub(super) async fn leadership(&self) -> Result<u64, Action> {
        let Some(term) = self.lease.term() else { return Err(Action::await_change()) };
        if *self.complete.borrow() == Some(term.number) && self.lease.allows(CALL) {
            return Ok(term.number);
        }
        let mut complete = self.complete.subscribe();
        let ready = async {
            let listed = complete.wait_for(|listed| *listed >= Some(term.number)).await.is_ok();
            listed && self.lease.wait(CALL).await
        };
        match self.stop.run_until_cancelled(ready).await {
            Some(true) => Err(Action::requeue(Duration::ZERO)),
            _ => Err(Action::await_change()),
        }
    }

    /// Limits the time of some work after shutdown starts, because a hanging create must not keep the Lease from other replicas. Returns
    /// `None` if the work did not end in time.
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

    /// Returns the leadership term, if this replica can act as the leader now. Unlike `leadership`, it does not wait. The last writes use
    /// it.
    pub(super) fn leadership_now(&self) -> Option<u64> {
        let term = self.lease.term().map(|term| term.number).filter(|_| self.lease.allows(CALL));
        term.filter(|term| *self.complete.borrow() == Some(*term))
    }

    pub(super) fn scopes(&self) -> impl Iterator<Item = &(Option<String>, Again)> {
        self.scopes.iter()
    }

    fn again(&self, namespace: &str) -> Option<&Again> {
        self.scopes.iter().find(|(ns, _)| ns.as_deref().is_none_or(|ns| ns == namespace)).map(|(_, again)| again)
    }

    pub(super) fn wake_pipeline(&self, namespace: &str, name: &str) {
        if let Some(again) = self.again(namespace) {
            again.pipelines.wake(ObjectName::new(namespace, name));
        }
    }

    /// Queues a reconcile of all pipelines for which `wanted` returns true.
    pub(super) fn wake_pipelines(&self, wanted: impl Fn(&PipelineFacts) -> bool) {
        for (_, pipeline) in self.deliveries.pipeline_index.pipelines_but(|_| false) {
            if wanted(&pipeline) {
                self.wake_pipeline(&pipeline.namespace, &pipeline.name);
            }
        }
    }

    pub(super) fn wake_notification(&self, namespace: &str, name: &str) {
        if let Some(again) = self.again(namespace) {
            again.notifications.wake(ObjectName::new(namespace, name));
        }
    }

    /// Writes a Warning Event about a notification of a pipeline, with this name and uid. The Event refers to the object that defines the
    /// notification, or else to the pipeline.
    pub(super) fn warn(&self, of: &PipelineRef, name: &str, uid: &str, reason: &str, action: &'static str, note: &str) {
        let regarding = match self.config.notification(&of.namespace, name) {
            Some(found) => references::regarding_notification(&found, uid),
            None => self.config.global().global().get(name).map(|_| self.global_reference(None)),
        };
        self.events.warn(regarding.unwrap_or_else(|| references::regarding(of)), reason, action, note);
    }

    /// Returns the reference to the ConfigMap with the global configuration, for Events. It contains the version, so that an error of the
    /// next version is a new Event.
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

    /// Removes and returns the dispatcher's state of a pipeline. Only one reconcile of a pipeline runs at a time, so no other needs it. If
    /// the reconcile is lost, or another replica has held the bucket since, the next reconcile starts from the persisted state.
    pub(super) fn take_cursor_state(&self, uid: &str, term: u64) -> CursorState {
        let known = self.cursor_states.take(uid).filter(|known| self.lease.has_kept(uid, known.term));
        known.map_or_else(|| CursorState::new(term), |known| known.in_term(term))
    }

    pub(super) fn put_cursor_state(&self, uid: &str, cursor_state: CursorState) {
        self.cursor_states.put(uid, cursor_state);
    }

    pub(super) fn forget(&self, uid: &str) {
        self.cursor_states.take(uid);
        self.failures.take(uid);
        self.refused.forget(uid);
    }

    /// Drops the data of deleted pipelines and notifications. A reconcile that was running at the deletion may have stored the data again.
    /// Returns the number of remaining entries.
    pub(super) fn tidy(&self) -> usize {
        let uids = self.config.uids();
        // The maps are locked while they ask, so the pipeline index is locked before them.
        let known = self.deliveries.pipeline_index.read();
        let pipelines = |uid: &str| known.pipeline(uid).is_some();
        let notifications = |uid: &str| uids.contains(uid);
        self.refused.tidy(pipelines);
        self.deliveries.delivery_index.tidy(pipelines);
        let failures = self.failures.tidy(|uid| notifications(uid) || pipelines(uid));
        let kept = self.cursor_states.tidy(pipelines)
            + self.written.tidy(notifications)
            + self.tests.tidy(notifications)
            + failures;
        kept + self.deliveries.delivery_index.entries().into_iter().sum::<usize>()
    }

    /// Counts a failed reconcile of an object. Returns the number of failures in a row before it.
    pub(super) fn failed(&self, uid: &str) -> u32 {
        self.failures.replace(uid, |count| count.saturating_add(1))
    }

    pub(super) fn succeeded(&self, uid: &str) {
        self.failures.take(uid);
    }
}
