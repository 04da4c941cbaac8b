//! The only room that watches application objects: it follows every kind that some pipeline refers to, and remembers what each
//! object said.
//!
//! In: what each pipeline needs ([`Caches::need`]); watch events of the clusters.
//! Out: on a channel, the pipelines to reconcile. For each reconcile, a [`Reading`] of each object: its current state, and its states
//! since the last one. So a state that came and went before a status write is still seen.
//!
//! One cache is one watch of one kind on one cluster, in one namespace or in all. It is created when first needed, and stopped a while
//! after its last use. It retries without end while the kind is missing, forbidden or unreachable. It does not keep objects, only the
//! results of [`crate::observe`]. No lock is held across I/O.

mod error;
mod objects;
mod remote;

use std::collections::BTreeSet;
use std::time::Duration;

pub use objects::caches::{Caches, GRACE};
pub use objects::similar::Alike;
pub use remote::deadline::Deadline;
pub use remote::kubeconfig::{is_same_cluster, is_token};

use crate::api::values::refs::ClusterAppRef;
use crate::observe::Observation;
use tokio::time::Instant;

/// A pipeline, by its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipelineKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// An application object, and how it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Application {
    /// The object; its `cluster_ref` has a namespace, so that it means the same from everywhere.
    pub object: ClusterAppRef,
    /// Where its revision stands, if not where its kind has it.
    pub revision_path: Option<String>,
}

impl Application {
    /// The same, seen from anywhere: a cluster without a namespace is in that of the pipeline.
    #[must_use]
    pub fn seen_from(mut self, namespace: &str) -> Self {
        self.object.cluster_ref = self.object.cluster_ref.map(|cluster| cluster.seen_from(namespace));
        self
    }
}

/// Whether the API server of a cluster answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// It is not known yet, or it has not answered for less than the grace period: what was known stands.
    Unknown,
    /// It answers, be it with a refusal.
    Online,
    /// It has not answered for the grace period.
    Offline,
}

/// How clusters are followed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the local cluster.
    pub cluster_name: String,
    /// Where objects of the local cluster are watched; those of others are everywhere.
    pub scope: Scope,
    /// A remote cluster that has not answered for so long is offline.
    pub cluster_grace: Duration,
    /// Remote clusters may be asked without TLS, or without a look at their certificates.
    pub insecure_clusters: bool,
    /// Where what has to do with remote clusters runs; `None`: where the rest does.
    pub remote: Option<tokio::runtime::Handle>,
}

#[cfg(test)]
impl Default for Options {
    fn default() -> Self {
        let cluster_grace = Duration::from_mins(2);
        Self {
            cluster_name: "in-cluster".to_owned(),
            scope: Scope::All,
            cluster_grace,
            insecure_clusters: false,
            remote: None,
        }
    }
}

/// Where application objects are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// With one watch over all namespaces.
    All,
    /// With a watch in each of these, for there is no right to more.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// The scope of a list of namespaces to watch, of which none means all.
    #[must_use]
    pub fn new(namespaces: &[String]) -> Self {
        if namespaces.is_empty() { Self::All } else { Self::Namespaces(namespaces.iter().cloned().collect()) }
    }
}

/// Why an object cannot be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its cache is being filled for the first time.
    CacheNotSynced,
    /// The same, and it takes long or has a temporary problem: a pipeline that observes the object for the first time need not wait for
    /// it.
    CacheSlow,
    /// The cluster does not know the kind, or not in namespaces.
    KindNotFound,
    /// The object that represents the cluster does not exist, or its kind does not.
    ClusterNotFound,
    /// The Secret with the cluster's kubeconfig is not there, or not under a key that is looked at.
    KubeconfigMissing,
    /// The kubeconfig cannot be used, or is refused.
    KubeconfigInvalid,
    /// The cluster does not accept the credentials.
    Unauthorized,
    /// The controller may not list or watch it.
    Forbidden,
    /// The cluster takes calls and does not answer, or not in time.
    Timeout,
    /// The cluster is unreachable, or its answers are unusable.
    Unreachable,
    /// There are more objects of the kind than are taken in.
    TooManyObjects,
    /// The object is there, and does not parse.
    Unreadable,
    /// Its namespace is not one of the watched namespaces.
    NamespaceNotWatched,
}

impl Reason {
    /// Whether the cache is still being filled for the first time: what it has seen so far is not all.
    #[must_use]
    pub const fn is_filling(self) -> bool {
        matches!(self, Self::CacheNotSynced | Self::CacheSlow)
    }

    /// The word in a status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheNotSynced | Self::CacheSlow => "CacheNotSynced",
            Self::KindNotFound => "KindNotFound",
            Self::ClusterNotFound => "ClusterNotFound",
            Self::KubeconfigMissing => "KubeconfigMissing",
            Self::KubeconfigInvalid => "KubeconfigInvalid",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::Timeout => "Timeout",
            Self::Unreachable => "Unreachable",
            Self::TooManyObjects => "TooManyObjects",
            Self::Unreadable => "Unreadable",
            Self::NamespaceNotWatched => "NamespaceNotWatched",
        }
    }
}

/// What is known of an object now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Now {
    /// It was seen, or seen to be absent.
    Known(Observation),
    /// It cannot be observed.
    Unknown {
        /// Why, for machines.
        reason: Reason,
        /// Why, for people; the same as long as the trouble is.
        message: String,
    },
}

/// What is known of an object, and what it said since it was last asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it said after the given sequence number, oldest first: each differs from the one before in more than words. A sequence
    /// number is the time at which it was observed, in microseconds of Unix time, or one more than the one before.
    pub observations: Vec<(u64, Observation)>,
    /// What it says now.
    pub now: Now,
    /// Sequence number of what it says now: ask for what comes after it next time. 0 while nothing has been seen of it.
    pub seq: u64,
    /// When it came to say that; `None` if it said it before the given sequence number.
    pub came: Option<Instant>,
    /// Whether it said more after the given sequence number than could be kept.
    pub overflowed: bool,
    /// Which remote cluster it is on, if that is known: where the same reference leads to another, the object is another.
    pub cluster: String,
}
