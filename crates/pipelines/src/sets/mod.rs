//! `PipelineSets`: makes one pipeline for each source that a set selects, changes it with the set, and deletes it after its source.
//!
//! In: the sets, and the pipelines with their label, from its own watches; the sources, through [`relaybook_clusters`].
//! Out: `Pipelines`, by server-side apply; `PipelineSet.status`.
//!
//! One reconcile of a set runs `plan` → `expand` → `decide`. `plan` validates the spec. `expand` renders the template for each source
//! (`template`). `decide` compares the result with the pipelines that the set has (`made`). All of them are pure. `calls` makes the calls, and
//! `controller` decides when. It runs in the process of the pipeline controller, under its Lease and with its caches.
//!
//! A pipeline belongs to a set if its `spec.pipelineSet` names the set. The API server refuses to add this field to a pipeline that exists. So
//! an apply cannot take over another pipeline, whatever this process knows.

mod calls;
mod controller;
mod decide;
mod expand;
mod follow;
mod index;
mod made;
pub mod plan;
mod reconcile;
mod status;
mod template;
#[cfg(test)]
mod testing;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use controller::run;
pub use expand::{Settings, problem};
pub use follow::{Follow, Followed};

use relaybook_clusters::Caches;
use relaybook_runtime::call::{CallError, DEADLINE};
use relaybook_runtime::leader::Lease;
use relaybook_runtime::pace::NamespacePace;
use relaybook_runtime::tenure::Tenure;
use relaybook_telemetry::Metrics;

/// Errors of a reconcile of a set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A pipeline could not be made, changed or deleted. Retried later.
    #[error("the pipeline {name} could not be {what}")]
    Pipeline {
        /// Name of the pipeline.
        name: String,
        /// What was tried: `made`, `changed` or `deleted`.
        what: &'static str,
        /// The cause.
        #[source]
        source: CallError,
    },
    /// The status could not be written. Retried later.
    #[error("the status could not be written")]
    Status(#[source] CallError),
    /// The sets of `--follow` could not be made or deleted. Retried later.
    #[error("the sets of --follow could not be made or deleted")]
    Follow(#[source] CallError),
    /// This replica is not the leader any more, or the process stops.
    #[error("this replica is not the leader, or stops")]
    NotLeading,
}

impl Error {
    /// Whether the API server did not answer.
    fn is_timeout(&self) -> bool {
        matches!(self.call(), Some(CallError::Timeout))
    }

    /// Whether a write was not made, because the tenure did not allow it any more.
    fn is_not_held(&self) -> bool {
        matches!(self.call(), Some(CallError::NotHeld))
    }

    fn call(&self) -> Option<&CallError> {
        match self {
            Self::Pipeline { source, .. } | Self::Status(source) | Self::Follow(source) => Some(source),
            Self::NotLeading => None,
        }
    }
}

/// Options of the controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the local cluster in the names of targets.
    pub cluster_name: String,
    /// The namespace of the process, with the sets of `follow`.
    pub namespace: String,
    /// The namespaces whose sets are watched. An empty list means all namespaces.
    pub watch_namespaces: Vec<String>,
    /// Whether sources and targets in another namespace than their set are allowed.
    pub cross_namespace_refs: bool,
    /// Kinds of which every object has a pipeline.
    pub follow: Follow,
}

/// The dependencies of the controller.
pub struct Context {
    /// The client for sets and pipelines.
    pub client: Client,
    /// The Lease of the pipeline controller.
    pub lease: Lease,
    /// Its caches of application objects.
    pub caches: Caches,
    /// The options.
    pub options: Options,
    /// Limits how fast the sets of a namespace make and change pipelines.
    pub pace: NamespacePace,
    /// The metrics.
    pub metrics: Metrics,
    /// Ends the controller.
    pub stop: CancellationToken,
}

/// Waits until a call may start. `Err`: the work was begun in another term, or the process stops.
async fn may_write(tenure: &Tenure) -> Result<(), Error> {
    if tenure.wait(DEADLINE).await { Ok(()) } else { Err(Error::NotLeading) }
}
