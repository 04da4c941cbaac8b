//! What is known about objects on clusters: the values that caches return and pipelines are computed from.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use relaybook_api::pipeline::Record;
use relaybook_api::values::refs::ClusterAppRef;

use crate::observe::Observation;

pub mod readable;
pub mod selection;

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

/// An application object, and what is read of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Application {
    /// The object. Its `cluster_ref` includes a namespace, so the reference does not depend on the namespace of the pipeline.
    pub object: ClusterAppRef,
    /// Path of the revision in the object. `None`: the default of its kind.
    pub revision_path: Option<String>,
    /// Path of the name of the cluster that the object is about, if it was found by a selection with such a path.
    pub cluster_path: Option<String>,
    /// What is recorded of it with a change.
    pub record: Option<Arc<Record>>,
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
#[expect(clippy::large_enum_variant, reason = "nearly all states are known, so a box is one allocation more for each")]
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
    /// Identifies the label of the object and what is staged, if the label is confirmed (see [`crate::observe::IfStaged`]).
    pub confirmed: String,
}

/// Maximum number of reported namespaces.
const NAMESPACES: usize = 3;
/// Maximum number of names. With more names of about the same length in a namespace, a suggestion does not help.
pub const NAMES: usize = 256;
/// Maximum length of a name that is compared.
const LONGEST: usize = 63;

/// Objects similar to one that does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimilarObjects {
    /// The first namespaces, by name, that contain an object of the same name.
    pub namespaces: BTreeSet<String>,
    /// Names of about the same length in its own namespace. Empty if there are more than the limit.
    pub names: BTreeSet<String>,
}

impl SimilarObjects {
    /// Adds an existing object, if it is similar to the missing one.
    pub fn note(&mut self, meant: &Application, namespace: &str, name: &str) {
        let meant = &meant.object;
        if !is_plain(namespace) || !is_plain(name) {
            return;
        }
        if name == meant.name && namespace != meant.namespace {
            self.namespaces.insert(namespace.to_owned());
            if self.namespaces.len() > NAMESPACES {
                self.namespaces.pop_last();
            }
        }
        let near = name.len().abs_diff(meant.name.len()) <= (name.len() / 3).max(1);
        let known = self.names.len() > NAMES;
        if namespace == meant.namespace && near && name.len().max(meant.name.len()) <= LONGEST && !known {
            self.names.insert(name.to_owned());
        }
    }

    /// Removes the names if there are too many.
    pub fn limit(&mut self) {
        if self.names.len() > NAMES {
            self.names.clear();
        }
    }
}

/// Whether the text is a plain name. It can come from an untrusted cluster.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
}

/// Whether two identities belong to the same cluster: the address is the same, or the CA certificates are the same and not those of the
/// system.
#[must_use]
pub fn is_same_cluster(one: &str, other: &str) -> bool {
    let (one, other) = (one.split_once('.').unwrap_or((one, "")), other.split_once('.').unwrap_or((other, "")));
    one.0 == other.0 || (one.1 == other.1 && !one.1.is_empty())
}
