//! Waits until an environment of a pipeline runs a revision.
//!
//! In: what a person asks ([`Asked`]), and the successive states of one Pipeline, as a watch returns them ([`Watching`]). Out: after each
//! state, whether the environment runs the revision ([`Answer`]). [`Wait`] decides, and is given the time. Only [`Watching`] uses the API
//! server. It needs `get` and `watch` for that one Pipeline.

mod fold;
mod known;
mod revision;
#[cfg(test)]
mod tests;
mod watch;
mod words;

use std::time::Duration;

pub use fold::Wait;
use relaybook_api::{ObjectName, Time};
pub use revision::{Requested, RevisionError};
pub use watch::{Event, ReadError, Watching};

/// What a person asks.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The Pipeline.
    pub pipeline: ObjectName,
    /// The environment. `None`: the last one of the spec, when the wait begins.
    pub environment: Option<String>,
    /// The revision.
    pub revision: Requested,
    /// The environment must have come to run the revision during the wait, or within this time before it.
    pub since: Option<Duration>,
    /// How long a target must stay failed before the answer is that it has failed. It is counted from when the wait first sees the failure.
    pub failed_for: Duration,
    /// Whether all notifications must have read the change, too.
    pub notified: bool,
}

/// Whether the environment runs the revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All targets run it.
    Runs {
        /// When the last target came to run it. `None`: that is not known.
        since: Option<Time>,
        /// When the status of a target last changed. The environment may run the revision for longer.
        changed: Option<Time>,
    },
    /// A target has failed to run it.
    Failed {
        /// The target.
        target: String,
        /// How long it tried. `None`: it tried before the wait began.
        after: Option<Duration>,
        /// Why it failed, or to what it was rolled back.
        why: String,
    },
    /// A target that tried or ran it tries or runs another revision.
    Replaced {
        /// The target.
        target: String,
        /// The other revision.
        by: String,
    },
    /// The environment does not run it yet.
    NotYet {
        /// What happens now, in a few words.
        now: String,
        /// Why this is not enough. It is the reason if the time ends here.
        why: String,
    },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The pipeline has no environment of this name.
    #[error("Pipeline {pipeline} has no environment {environment}; it has {known}")]
    NoEnvironment {
        /// The pipeline.
        pipeline: ObjectName,
        /// The requested environment.
        environment: String,
        /// The existing ones.
        known: String,
    },
    /// The environment cannot run anything.
    #[error(
        "environment {environment} of Pipeline {pipeline} has no target, so it never runs a revision; set its targets or targetsFrom"
    )]
    NoTarget {
        /// The pipeline.
        pipeline: ObjectName,
        /// The environment.
        environment: String,
    },
    /// The pipeline is deleted, or another one has its name now.
    #[error("Pipeline {0} was deleted")]
    Deleted(ObjectName),
    /// The requested text is not the revision of anything.
    #[error(transparent)]
    Revision(#[from] RevisionError),
}

impl WaitError {
    /// Whether the arguments are wrong. Otherwise, what they name does not exist.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Revision(_))
    }
}
