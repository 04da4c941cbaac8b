//! The pipeline controller: what is observed at the targets of each pipeline becomes its status and its change log.
//!
//! In: the pipelines of the cluster, by a watch of its own; the application objects, through [`crate::cluster`].
//! Out: `Pipeline.status`, all but `dispatched`, written only when something but time has changed, and only by the replica that
//! holds the Lease; the others keep their caches warm. A status update is the record of a change: what has been written is told
//! to the world by others, who read it from the API.
//!
//! One look at a pipeline goes `plan` (is the spec understood?) → `gather` (what do the objects say?) → `status` (what follows
//! from that?) → `write` (one guarded JSON Patch). Its `tracker` keeps what must survive between two looks: a write whose answer was
//! lost, and how far observations were taken into the log.

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

/// What can go wrong. The variant is what metrics and Events name; the words are for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not take a status, or it is not known whether it did. Retried later, after a live read.
    #[error("the status could not be written")]
    Write(#[source] kube::Error),
    /// A pipeline could not be read after a write of unknown fate. Retried later.
    #[error("the pipeline could not be read")]
    Read(#[source] kube::Error),
    /// The API server did not answer in time. Retried later.
    #[error("the API server did not answer in time")]
    Deadline,
    /// A status has no JSON form; a programming error.
    #[error("the status could not be encoded")]
    Encode(#[source] serde_json::Error),
    /// A watch of pipelines ended by itself, which it never should.
    #[error("the watch of pipelines has ended")]
    Ended,
}

/// How the controller works.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the local cluster is called in the names of targets.
    pub cluster_name: String,
    /// The namespaces whose pipelines are followed; none means all.
    pub watch_namespaces: Vec<String>,
    /// Whether a target may be in another namespace than its pipeline.
    pub cross_namespace_refs: bool,
    /// At most so many pipelines are looked at at once, and a part of them in one namespace.
    pub looks: usize,
    /// Who takes spans.
    pub tracer: Tracer,
}

/// What the controller works with.
pub struct Context {
    client: Client,
    lease: Lease,
    caches: Caches,
    options: Options,
    limiter: NamespaceLimiter,
    events: Events,
    metrics: Metrics,
    memories: Mutex<HashMap<PipelineKey, WriteTracker>>,
    /// By watched namespace, or `None` for all: the turn in which its pipelines were last listed.
    listed: Mutex<HashMap<Option<String>, u64>>,
    /// The latest turn in which something was looked at.
    begun: Mutex<u64>,
    stop: CancellationToken,
}

impl Context {
    /// A controller that has not looked at anything yet.
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
