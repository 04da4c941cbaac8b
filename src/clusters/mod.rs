//! The only room that watches application objects: it follows every kind that some pipeline refers to, and remembers what each
//! object said.
//!
//! In: what each pipeline needs ([`Caches::need`]); watch events of the clusters.
//! Out: on a channel, the pipelines to look at again; when they are looked at, a [`Reading`] of each object: what it says now,
//! and what it said in between, so that a state that came and went before a status could be written is still seen.
//!
//! One cache is one watch of one kind on one cluster, in one namespace or in all. It is made when first needed, stopped a
//! while after nobody needs it, and tried again without end while the kind is missing, forbidden or out of reach. Objects are
//! not kept, only what [`crate::observe`] makes of them. No lock is held across I/O.

mod caches;
mod feed;
mod store;

use std::collections::BTreeSet;

pub use caches::{Caches, GRACE};

use crate::observe::Observation;

/// A pipeline, by its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipelineKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
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
    /// The cluster does not know the kind, or not in namespaces.
    KindNotFound,
    /// The controller may not list or watch it.
    Forbidden,
    /// The cluster does not answer.
    Unreachable,
    /// Its namespace is not among those that are watched.
    NamespaceNotWatched,
}

impl Reason {
    /// The word in a status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheNotSynced => "CacheNotSynced",
            Self::KindNotFound => "KindNotFound",
            Self::Forbidden => "Forbidden",
            Self::Unreachable => "Unreachable",
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
    /// What it said after the given sequence number, oldest first: each differs from the one before in more than words.
    pub observations: Vec<(u64, Observation)>,
    /// What it says now.
    pub now: Now,
    /// Sequence number of what it says now: ask for what comes after it next time. 0 while nothing has been seen of it.
    pub seq: u64,
    /// Whether it said more after the given sequence number than could be kept.
    pub overflowed: bool,
}
