//! When the agents of Fleet's `Clusters` last reported, by our clock. The clock of an agent can be wrong, so only a change of its time counts.
//!
//! In: `status.agent.lastSeen` of each `Cluster` that is recorded. Out: the [`CheckIn`] of a cluster, and the pipelines to wake when a cluster
//! reports again.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::Store;
use crate::api::{Time, now};
use crate::cluster::selection::CheckIn;
use crate::cluster::{ObjectPlace, PipelineKey};

/// By namespace and name: when the agent of a `Cluster` last reported.
pub(super) type CheckIns = HashMap<ObjectPlace, Known>;

/// What is known about the reports of one agent.
pub(super) struct Known {
    /// The time as the agent wrote it. Empty: it never reported. `None`: the `Cluster` is not known.
    last: Option<String>,
    /// When this time was first seen.
    at: Instant,
    /// How long the agent had not reported then, by its own clock. `None`: its time has changed since Pennant looks at it.
    age: Option<Duration>,
    /// The shortest time between two reports.
    interval: Option<Duration>,
    /// Pipelines to wake with the next report.
    waiting: HashSet<PipelineKey>,
}

impl Known {
    fn nothing() -> Self {
        Self { last: None, at: Instant::now(), age: None, interval: None, waiting: HashSet::new() }
    }
}

impl Store {
    /// Notes what a `Cluster` says about its agent. Returns the pipelines that wait for a report.
    pub(super) fn note_check_in(&mut self, cluster: &ObjectPlace, last: &str) -> HashSet<PipelineKey> {
        let known = self.check_ins.entry(cluster.clone()).or_insert_with(Known::nothing);
        let now = Some(last.to_owned());
        if known.last == now {
            return HashSet::new();
        }
        known.at = Instant::now();
        match std::mem::replace(&mut known.last, now) {
            None => known.age = Some(age(last)),
            Some(before) => {
                if let (Ok(before), Ok(last)) = (before.parse::<Time>(), last.parse::<Time>()) {
                    let interval = Duration::try_from(last.duration_since(before)).ok();
                    known.interval = known.interval.into_iter().chain(interval).min();
                }
                known.age = None;
            }
        }
        std::mem::take(&mut known.waiting)
    }

    /// Forgets a `Cluster` that is deleted. Returns the pipelines that waited for a report.
    pub(super) fn forget_check_in(&mut self, cluster: &ObjectPlace) -> HashSet<PipelineKey> {
        self.check_ins.remove(cluster).map(|known| known.waiting).unwrap_or_default()
    }

    /// Returns when the agent of a `Cluster` last reported. `None`: it never did, or the `Cluster` is not known.
    pub fn check_in(&self, cluster: &ObjectPlace) -> Option<CheckIn> {
        let known = self.check_ins.get(cluster).filter(|known| known.last.as_ref().is_some_and(|last| !last.is_empty()))?;
        Some(CheckIn { since: known.at.elapsed(), age_before: known.age, interval: known.interval })
    }

    /// Wakes a pipeline with the next report of a `Cluster`.
    pub fn await_check_in(&mut self, cluster: &ObjectPlace, pipeline: &PipelineKey) {
        self.check_ins.entry(cluster.clone()).or_insert_with(Known::nothing).waiting.insert(pipeline.clone());
    }
}

/// Returns how old a time is. A time in the future, or one that cannot be read, is now.
fn age(last: &str) -> Duration {
    let age = last.parse::<Time>().map(|last| now().duration_since(last));
    age.ok().and_then(|age| Duration::try_from(age).ok()).unwrap_or_default()
}
