//! The data that all parts of the dispatcher share.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::config::config_maps::ConfigMaps;
use super::config::configuration::Configuration;
use super::follow::Key;
use super::references;
use super::status::refused::Refused;
use super::test_send::book::TestBook;
use crate::outbox::{Deliveries, PipelineFacts, Scope, WorkQueue};
use relaybook_api::ObjectName;
use relaybook_api::delivery::PipelineRef;
use relaybook_egress::{Policy, SecretWatches};
use relaybook_runtime::Common;
use relaybook_runtime::leader::Lease;
use relaybook_runtime::pace::NamespacePace;
use relaybook_runtime::report::events::Events;
use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::ApiWrite;

/// After shutdown starts, a reconcile can continue for this time.
const LAST_WORK: Duration = Duration::from_secs(5);

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
    /// Limits how fast a namespace records deliveries and moves cursors.
    pub(super) pace: NamespacePace,
    pub(super) tests: TestBook,
    /// What to reconcile again.
    pub(super) again: WorkQueue<Key>,
    /// What the engine has to check again.
    pub(super) checks: WorkQueue<Scope>,
    /// The leadership term in which the global configuration was last listed.
    pub(super) global_listed: watch::Sender<Option<u64>>,
    pub(super) stop: CancellationToken,
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
            pace,
            tests: TestBook::default(),
            again: WorkQueue::default(),
            checks: WorkQueue::default(),
            global_listed: watch::Sender::new(None),
            stop,
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

    /// Makes the engine check lanes again. Does not wait.
    pub(super) fn check(&self, scope: Scope) {
        self.checks.wake(scope);
    }

    /// Queues a reconcile.
    pub(super) fn wake(&self, key: Key) {
        self.again.wake(key);
    }

    /// Queues a reconcile of all pipelines for which `wanted` returns true.
    pub(super) fn wake_pipelines(&self, wanted: impl Fn(&PipelineFacts) -> bool) {
        for (_, pipeline) in self.deliveries.pipeline_index.pipelines_but(|_| false) {
            if wanted(&pipeline) {
                self.wake(Key::Pipeline(ObjectName::new(&pipeline.namespace, &pipeline.name)));
            }
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

    /// Drops the data of deleted pipelines and notifications. A reconcile that was running at the deletion may have stored the data again.
    /// Returns the number of remaining entries.
    pub(super) fn tidy(&self) -> usize {
        let uids = self.config.uids();
        // The maps are locked while they ask, so the pipeline index is locked before them.
        let known = self.deliveries.pipeline_index.read();
        let pipelines = |uid: &str| known.pipeline(uid).is_some();
        self.refused.tidy(pipelines);
        self.deliveries.delivery_index.tidy(pipelines);
        self.tests.tidy(|uid| uids.contains(uid)) + self.deliveries.delivery_index.entries().into_iter().sum::<usize>()
    }
}
