//! The only module that watches application objects. It watches every kind that a pipeline refers to, and keeps the observed states of each
//! object.
//!
//! In: what each pipeline needs ([`Caches::need`]); watch events of the clusters.
//! Out: on a channel, the pipelines to reconcile. For each reconcile, a [`Reading`] of each object: its current state, and its states
//! since the last one. So a state that came and went before a status write is still seen.
//!
//! One cache is one watch of one kind on one cluster, in one namespace or in all. It is created when first needed, and stopped [`GRACE`]
//! after its last use. It retries without end while the kind is missing, forbidden or unreachable. It does not keep objects, only the
//! results of [`relaybook_core::observe`]. No lock is held across I/O.

mod error;
mod objects;
pub mod readable;
mod remote;
pub mod selection;

use std::collections::BTreeSet;
use std::time::Duration;

pub use objects::caches::{Caches, GRACE};
pub use objects::similar::SimilarObjects;
pub use remote::deadline::Deadline;
pub use remote::kubeconfig::{is_same_cluster, is_token};

use relaybook_api::values::refs::ClusterAppRef;
use relaybook_core::observe::Observation;
use tokio::time::Instant;

/// What follows objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Follower {
    /// Its kind.
    pub kind: FollowerKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The kinds of objects that follow others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FollowerKind {
    /// A `Pipeline`: its targets.
    Pipeline,
    /// A `PipelineSet`: its sources.
    PipelineSet,
}

impl Follower {
    /// Returns the pipeline of this name.
    #[must_use]
    pub fn pipeline(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: FollowerKind::Pipeline, namespace: namespace.into(), name: name.into() }
    }

    /// Returns the `PipelineSet` of this name.
    #[must_use]
    pub fn set(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: FollowerKind::PipelineSet, namespace: namespace.into(), name: name.into() }
    }
}

/// Namespace and name of an object.
pub type ObjectPlace = (String, String);

/// An application object, and the path at which its revision is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Application {
    /// The object. Its `cluster_ref` includes a namespace, so the reference does not depend on the namespace of the pipeline.
    pub object: ClusterAppRef,
    /// Path of the revision in the object. `None`: the default of its kind.
    pub revision_path: Option<String>,
    /// Path of the name of the cluster that the object is about, if it was found by a selection with such a path.
    pub cluster_path: Option<String>,
}

impl Application {
    /// Adds a missing namespace to the reference of the cluster: the namespace of the pipeline.
    #[must_use]
    pub fn seen_from(mut self, namespace: &str) -> Self {
        self.object.cluster_ref = self.object.cluster_ref.map(|cluster| cluster.seen_from(namespace));
        self
    }
}

/// Whether the API server of a cluster responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// Not known yet, or the cluster has not responded for less than the grace period. The last known states remain valid.
    Unknown,
    /// The cluster responds. A rejected call counts as a response.
    Online,
    /// The cluster has not responded for the grace period.
    Offline,
}

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

/// Why an object cannot be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The initial list of its cache is not complete.
    CacheNotSynced,
    /// The initial list of its cache is slow or has a temporary problem. A pipeline that has not observed the object before can continue
    /// without it.
    CacheSlow,
    /// The cluster does not have the kind, or the kind is not namespaced.
    KindNotFound,
    /// The object that represents the cluster does not exist, or its kind does not.
    ClusterNotFound,
    /// The Secret with the kubeconfig of the cluster does not exist, or has none of the expected keys.
    KubeconfigMissing,
    /// The type of the Secret reserves it for the keys of hooks.
    SecretReserved,
    /// The kubeconfig is invalid or is refused.
    KubeconfigInvalid,
    /// The cluster does not accept the credentials.
    Unauthorized,
    /// The controller has no permission to list or watch the kind.
    Forbidden,
    /// Objects of the kind are never read.
    ForbiddenKind,
    /// The cluster accepts connections but does not respond in time.
    Timeout,
    /// The cluster is unreachable, or its responses are unusable.
    Unreachable,
    /// The number of objects of the kind exceeds the limit.
    TooManyObjects,
    /// The object exists but cannot be parsed.
    Unreadable,
    /// Its namespace is not one of the watched namespaces.
    NamespaceNotWatched,
}

impl Reason {
    /// Whether the initial list of the cache is not complete. Objects can be missing from it.
    #[must_use]
    pub const fn is_filling(self) -> bool {
        matches!(self, Self::CacheNotSynced | Self::CacheSlow)
    }

    /// Returns the reason as it appears in a status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheNotSynced | Self::CacheSlow => "CacheNotSynced",
            Self::KindNotFound => "KindNotFound",
            Self::ClusterNotFound => "ClusterNotFound",
            Self::KubeconfigMissing => "KubeconfigMissing",
            Self::SecretReserved => "SecretReserved",
            Self::KubeconfigInvalid => "KubeconfigInvalid",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::ForbiddenKind => "ForbiddenKind",
            Self::Timeout => "Timeout",
            Self::Unreachable => "Unreachable",
            Self::TooManyObjects => "TooManyObjects",
            Self::Unreadable => "Unreadable",
            Self::NamespaceNotWatched => "NamespaceNotWatched",
        }
    }
}

/// The current state of an object, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Now {
    /// The object was observed, or is known not to exist.
    Known(Observation),
    /// The object cannot be observed.
    Unknown {
        /// The machine-readable reason.
        reason: Reason,
        /// The human-readable reason. It does not change while the problem is the same.
        message: String,
    },
}

/// The current state of an object, and its states since the last reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Observations after the given sequence number, oldest first. Each differs from the previous one in more than reason and message. A
    /// sequence number is the time of the observation in microseconds of Unix time, or the previous number plus one if that is larger.
    pub observations: Vec<(u64, Observation)>,
    /// The current state.
    pub now: Now,
    /// Sequence number of the current state, for the next reading. 0: the object was never observed.
    pub seq: u64,
    /// Time at which the current state was observed. `None`: not after the given sequence number.
    pub changed_at: Option<Instant>,
    /// Whether observations after the given sequence number were dropped because the ring was full.
    pub overflowed: bool,
    /// Identity of the remote cluster, if it is known. If the same reference resolves to another cluster, the object is another one.
    pub cluster: String,
    /// Identifies the label of the object and what is staged, if the label is confirmed (see [`relaybook_core::observe::IfStaged`]).
    pub confirmed: String,
}
