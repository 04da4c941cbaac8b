//! The pipeline controller: it turns the observations at the targets of each pipeline into its status and its change log.
//!
//! In: the pipelines of the cluster, from its own watch; the application objects, through [`crate::cluster`].
//! Out: `Pipeline.status` except `dispatched`. It is written only if something other than time has changed, and only by the
//! leader. Standby replicas keep their caches warm. A status update is the record of a change: other components read it from the
//! API and report it.
//!
//! One reconcile of a pipeline runs `plan` → `gather` → `status` → `write`. `plan` checks whether the spec is valid, `gather` reads
//! what the objects say, `status` computes what follows from that, and `write` sends one guarded JSON Patch. The `tracker` of
//! `write` keeps what must survive between two reconciles: writes whose answer was lost, and up to where observations were
//! processed.

mod controller;
pub mod plan;
#[cfg(test)]
mod properties;
mod reconcile;
mod status;
mod write;

use std::collections::HashMap;
use std::sync::Mutex;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use controller::run;

use crate::cluster::{Caches, PipelineKey};
use crate::k8s::limiter::NamespaceLimiter;
use crate::leader::Lease;
use crate::report::events::Events;
use crate::telemetry::{Metrics, Tracer};
use write::tracker::WriteTracker;

/// Errors of the pipeline controller. Metrics and Events name the variant; the message is human-readable.
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
    /// A status has no JSON form, which is a programming error.
    #[error("the status could not be encoded")]
    Encode(#[source] serde_json::Error),
    /// A watch of pipelines ended by itself, which must never happen.
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
    /// Whether a target is allowed in another namespace than its pipeline.
    pub cross_namespace_refs: bool,
    /// Maximum number of pipelines that are reconciled at once. One namespace gets only a part of it.
    pub looks: usize,
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
    events: Events,
    metrics: Metrics,
    memories: Mutex<HashMap<PipelineKey, WriteTracker>>,
    /// By watched namespace, or `None` for all namespaces: the leadership term in which its pipelines were last listed.
    listed: Mutex<HashMap<Option<String>, u64>>,
    /// The latest leadership term in which a pipeline was reconciled.
    begun: Mutex<u64>,
    stop: CancellationToken,
}

impl Context {
    /// A controller that has not reconciled any pipeline yet.
    #[must_use]
    pub fn new(
        client: Client,
        lease: Lease,
        caches: Caches,
        options: Options,
        events: Events,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        Self {
            client,
            lease,
            caches,
            limiter: NamespaceLimiter::new(options.looks),
            options,
            events,
            metrics,
            memories: Mutex::default(),
            listed: Mutex::default(),
            begun: Mutex::default(),
            stop,
        }
    }
}
