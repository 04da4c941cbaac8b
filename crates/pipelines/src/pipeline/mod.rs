//! The pipeline controller: turns the observations of the targets of each pipeline into a status and a change log.
//!
//! In: the pipelines and promotions of the cluster, from its own watches; the application objects, through [`relaybook_clusters`].
//! Out: `Pipeline.status` except `dispatched`. It is written only if something other than time has changed, and only by the
//! leader. Standby replicas also fill their caches. A status update is the record of a change: other components read it from the
//! API and report it. The steps of promotions are recorded in the same way.
//!
//! One reconcile of a pipeline runs `plan` → `gather` → `status` → `write`. `plan` validates the spec. `gather` reads the current state of
//! the objects; `generate` computes the targets that nobody lists. `status` computes the next status and the changes. `write` sends one guarded JSON Patch. The `tracker` of `write` keeps the
//! state that must survive between two reconciles: writes whose answer was lost, and up to where observations were processed.

mod controller;
mod gather;
#[cfg(test)]
mod generate_properties;
mod promotions;
#[cfg(test)]
mod properties;
mod reconcile;
mod write;

use parking_lot::Mutex;
use std::collections::HashMap;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use controller::run;

use promotions::Promotions;
use relaybook_clusters::Caches;
use relaybook_core::reading::Follower;
use relaybook_egress::Secrets;
use relaybook_runtime::Common;
use relaybook_runtime::call::CallError;
use relaybook_runtime::leader::Lease;
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_runtime::pace::NamespacePace;
use relaybook_runtime::report::events::Events;
use relaybook_telemetry::metrics::ApiWrite;
use relaybook_telemetry::{Metrics, Tracer};
use write::tracker::WriteTracker;

/// Errors of the pipeline controller. The messages are human-readable.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not accept a status, or it is unknown whether it did. Retried later, after a live read.
    #[error("the status could not be written")]
    Write(#[source] kube::Error),
    /// A pipeline could not be read after a write with an unknown result. Retried later.
    #[error("the pipeline could not be read")]
    Read(#[source] kube::Error),
    /// The API server did not answer in time. Retried later.
    #[error("the API server did not answer in time")]
    Deadline,
    /// A pipeline that has come from another shard could not be written. Retried later.
    #[error("a pipeline from another shard could not be taken over")]
    Claim(#[source] CallError),
    /// A status cannot be encoded as JSON, which is a programming error.
    #[error("the status could not be encoded")]
    Encode(#[source] serde_json::Error),
    /// An essential task, such as a watch of pipelines, ended although the controller was not stopped. This must never happen.
    #[error("the watch of pipelines has ended")]
    Ended,
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

/// The dependencies and the state of the controller.
pub struct Context {
    client: Client,
    lease: Lease,
    caches: Caches,
    options: Options,
    limiter: NamespaceLimiter,
    pace: NamespacePace,
    events: Events,
    metrics: Metrics,
    trackers: Mutex<HashMap<Follower, WriteTracker>>,
    promotions: Promotions,
    /// The Secrets with the keys of hooks, if this process answers hooks.
    hooks: Option<Secrets>,
    /// Leadership term in which pipelines were last listed, by watched namespace. The key `None` means all namespaces.
    listed: Mutex<HashMap<Option<String>, u64>>,
    stop: CancellationToken,
}

impl Context {
    /// A controller that has not reconciled any pipeline yet.
    #[must_use]
    pub fn new(common: Common, caches: Caches, options: Options) -> Self {
        let Common { client, lease, events, metrics, stop } = common;
        Self {
            client,
            lease,
            caches,
            limiter: NamespaceLimiter::new(options.max_reconciles),
            pace: NamespacePace::new(ApiWrite::PipelineStatus, metrics.clone()),
            options,
            events,
            metrics,
            trackers: Mutex::default(),
            promotions: Promotions::default(),
            hooks: None,
            listed: Mutex::default(),
            stop,
        }
    }

    /// Judges the keys of hooks by these Secrets, which the hooks watch. Their changes must wake the pipelines.
    #[must_use]
    pub fn with_hooks(self, hooks: Option<Secrets>) -> Self {
        Self { hooks, ..self }
    }
}
