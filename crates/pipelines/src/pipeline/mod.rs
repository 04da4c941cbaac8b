//! The pipeline controller: turns the observations of the targets of each pipeline into a status and a change log.
//!
//! In: the pipelines and promotions of the cluster, from its own watches; the application objects, through [`relaybook_clusters`].
//! Out: `Pipeline.status` except `dispatched`. It is written only if something other than time has changed, and only by the
//! leader. Standby replicas also fill their caches. A status update is the record of a change: other components read it from the
//! API and report it. The steps of promotions are recorded in the same way.
//!
//! One reconcile of a pipeline runs `plan` → `gather` → `status` → `write`. `plan` validates the spec. `gather` reads the current state of
//! the objects; `generate` computes the targets that nobody lists. `status` computes the next status and the changes. `write` sends one
//! guarded JSON Patch. The `tracker` of `write` keeps the state that must survive between two reconciles: writes whose answer was lost, and up
//! to where observations were processed. `controller` decides when.

mod controller;
mod gather;
#[cfg(test)]
mod generate_properties;
mod promotions;
#[cfg(test)]
mod properties;
mod reconcile;
mod write;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use controller::run;

use relaybook_clusters::Caches;
use relaybook_egress::Secrets;
use relaybook_runtime::Common;
use relaybook_runtime::call::CallError;
use relaybook_runtime::leader::Lease;
use relaybook_runtime::pace::NamespacePace;
use relaybook_runtime::report::events::Events;
use relaybook_telemetry::metrics::ApiWrite;
use relaybook_telemetry::{Metrics, Tracer};

/// Errors of a reconcile of a pipeline. It is retried later.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The API server did not accept a status, or it is unknown whether it did. A live read follows.
    #[error("the status could not be written")]
    Write(#[source] CallError),
    /// A pipeline could not be read after a write with an unknown result.
    #[error("the pipeline could not be read")]
    Read(#[source] CallError),
    /// A pipeline that has come from another shard could not be written.
    #[error("a pipeline from another shard could not be taken over")]
    Claim(#[source] CallError),
}

impl Error {
    /// Returns why the call has no answer.
    fn call(&self) -> &CallError {
        let (Self::Write(source) | Self::Read(source) | Self::Claim(source)) = self;
        source
    }
}

/// Options of the controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the local cluster in the names of targets.
    pub cluster_name: String,
    /// The namespaces whose pipelines are watched. An empty list means all namespaces.
    pub watch_namespaces: Vec<String>,
    /// Whether targets in another namespace than their pipeline are allowed.
    pub cross_namespace_refs: bool,
    /// Maximum number of pipelines that are reconciled concurrently. One namespace gets only a part of this number.
    pub max_reconciles: usize,
    /// Where spans are sent.
    pub tracer: Tracer,
}

/// The dependencies of the controller.
pub struct Context {
    client: Client,
    lease: Lease,
    caches: Caches,
    options: Options,
    pace: NamespacePace,
    events: Events,
    metrics: Metrics,
    /// The Secrets with the keys of hooks, if this process answers hooks.
    hooks: Option<Secrets>,
    stop: CancellationToken,
}

impl Context {
    /// A controller that judges no keys of hooks.
    #[must_use]
    pub fn new(common: Common, caches: Caches, options: Options) -> Self {
        let Common { client, lease, events, metrics, stop } = common;
        let pace = NamespacePace::new(ApiWrite::PipelineStatus, metrics.clone());
        Self { client, lease, caches, options, pace, events, metrics, hooks: None, stop }
    }

    /// Judges the keys of hooks by these Secrets, which the hooks watch. Their changes must wake the pipelines.
    #[must_use]
    pub fn with_hooks(self, hooks: Option<Secrets>) -> Self {
        Self { hooks, ..self }
    }
}
