//! The only module that watches application objects. It watches every kind that a pipeline refers to, and keeps the observed states of each
//! object.
//!
//! In: what each pipeline needs ([`Caches::need`]); watch events of the clusters.
//! Out: on a channel, the pipelines to reconcile. For each reconcile, a [`Reading`](relaybook_core::reading::Reading) of each object: its current state, and its states
//! since the last one. So a state that came and went before a status write is still seen.
//!
//! One cache is one watch of one kind on one cluster, in one namespace or in all. It is created when first needed, and stopped [`GRACE`]
//! after its last use. It retries without end while the kind is missing, forbidden or unreachable. It does not keep objects, only the
//! results of [`relaybook_core::observe`]. No lock is held across I/O.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

mod error;
mod objects;
mod remote;

use std::collections::BTreeSet;
use std::time::Duration;

pub use objects::caches::{Caches, GRACE};
pub use remote::deadline::Deadline;
pub use remote::kubeconfig::is_token;

/// Options of the caches.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the local cluster.
    pub cluster_name: String,
    /// Namespaces in which objects of the local cluster are watched. Objects of remote clusters are watched in all namespaces, or in those that
    /// are named if the credentials cover no more.
    pub scope: Scope,
    /// Whether the `BundleDeployments` of Fleet on the local cluster are watched in all namespaces, whatever the scope is.
    pub fleet_everywhere: bool,
    /// Time without a response after which a remote cluster is offline.
    pub cluster_grace: Duration,
    /// Whether connections to remote clusters may go without TLS, or without verification of the server certificate.
    pub insecure_clusters: bool,
    /// Runtime for all tasks of remote clusters. `None`: the current runtime.
    pub remote: Option<tokio::runtime::Handle>,
}

#[cfg(test)]
impl Default for Options {
    fn default() -> Self {
        let cluster_grace = Duration::from_mins(2);
        Self {
            cluster_name: "in-cluster".to_owned(),
            scope: Scope::All,
            fleet_everywhere: false,
            cluster_grace,
            insecure_clusters: false,
            remote: None,
        }
    }
}

/// Namespaces in which application objects are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One watch over all namespaces.
    All,
    /// One watch in each of these namespaces, because the permissions do not cover more.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// Returns the scope for a list of namespaces. An empty list means all namespaces.
    #[must_use]
    pub fn new(namespaces: &[String]) -> Self {
        if namespaces.is_empty() { Self::All } else { Self::Namespaces(namespaces.iter().cloned().collect()) }
    }
}
