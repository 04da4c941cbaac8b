//! When the agents of Fleet's `Clusters` last reported, by our clock. The clock of an agent can be wrong, so only a change of its time counts.
//!
//! In: `status.agent.lastSeen` of each `Cluster` that is recorded. Out: the [`CheckIn`] of a cluster, and the pipelines to wake when a cluster
//! reports again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::Store;
use relaybook_api::{ObjectName, Time, now};
use relaybook_core::reading::Follower;
use relaybook_core::reading::selection::CheckIn;

/// Number of intervals that are remembered.
const INTERVALS: usize = 4;

/// By namespace and name: when the agent of a `Cluster` last reported.
pub(super) type CheckIns = HashMap<ObjectName, Known>;

/// What is known about the reports of one agent.
pub(super) struct Known {
    /// The time as the agent wrote it. Empty: it never reported. `None`: the `Cluster` is not known.
    last: Option<String>,
    /// When this time was first seen.
    at: Instant,
    /// How long the agent had not reported then, by its own clock. `None`: its time has changed since Relaybook watches it.
    age: Option<Duration>,
    /// The times between the last reports, oldest first, by the clock of the agent.
    intervals: VecDeque<Duration>,
    /// Pipelines to wake with the next report.
    waiting: HashSet<Follower>,
}

impl Known {
    fn nothing() -> Self {
        let (intervals, waiting) = (VecDeque::new(), HashSet::new());
        Self { last: None, at: Instant::now(), age: None, intervals, waiting }
    }

    /// Notes the time between two reports.
    fn note_interval(&mut self, interval: Duration) {
        if self.intervals.len() == INTERVALS {
            self.intervals.pop_front();
        }
        self.intervals.push_back(interval);
    }

    /// Returns the usual time between two reports: the longest one, but not a single exception. An agent that was away has one long interval,
    /// and one that has just started has a short one.
    fn interval(&self) -> Option<Duration> {
        let mut all: Vec<Duration> = self.intervals.iter().copied().collect();
        all.sort_unstable();
        if all.len() > 2 {
            all.pop();
        }
        all.pop()
    }
}

impl Store {
    /// Notes what a `Cluster` says about its agent. Returns the pipelines that wait for a report.
    pub(super) fn note_check_in(&mut self, cluster: &ObjectName, last: &str) -> HashSet<Follower> {
        let known = self.check_ins.entry(cluster.clone()).or_insert_with(Known::nothing);
        let now = Some(last.to_owned());
        if known.last == now {
            return HashSet::new();
        }
        known.at = Instant::now();
        match std::mem::replace(&mut known.last, now) {
            None => known.age = Some(age(last)),
            Some(before) => {
                if let (Ok(before), Ok(last)) = (before.parse::<Time>(), last.parse::<Time>())
                    && let Ok(interval) = Duration::try_from(last.duration_since(before))
                {
                    known.note_interval(interval);
                }
                known.age = None;
            }
        }
        std::mem::take(&mut known.waiting)
    }

    /// Forgets a `Cluster` that is deleted. Returns the pipelines that waited for a report.
    pub(super) fn forget_check_in(&mut self, cluster: &ObjectName) -> HashSet<Follower> {
        self.check_ins.remove(cluster).map(|known| known.waiting).unwrap_or_default()
    }

    /// Returns when the agent of a `Cluster` last reported. `None`: it never did, or the `Cluster` is not known.
    pub fn check_in(&self, cluster: &ObjectName) -> Option<CheckIn> {
        let known = self.check_ins.get(cluster).filter(|known| known.last.as_ref().is_some_and(|last| !last.is_empty()))?;
        Some(CheckIn { since: known.at.elapsed(), age_before: known.age, interval: known.interval() })
    }

    /// Wakes a pipeline with the next report of a `Cluster`.
    pub fn await_check_in(&mut self, cluster: &ObjectName, pipeline: &Follower) {
        self.check_ins.entry(cluster.clone()).or_insert_with(Known::nothing).waiting.insert(pipeline.clone());
    }
}

/// Returns how old a time is. A time in the future, or one that cannot be read, is now.
fn age(last: &str) -> Duration {
    let age = last.parse::<Time>().map(|last| now().duration_since(last));
    age.ok().and_then(|age| Duration::try_from(age).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_exception_does_not_change_the_usual_interval() {
        let minutes = |all: &[u64]| {
            let mut known = Known::nothing();
            for minutes in all {
                known.note_interval(Duration::from_mins(*minutes));
            }
            known.interval().map(|usual| usual.as_secs() / 60)
        };
        for (name, all, usual) in [
            ("nothing is known", &[][..], None),
            ("one report", &[15], Some(15)),
            ("an agent that has just started", &[2, 60], Some(60)),
            ("an agent that was away", &[15, 15, 300, 15], Some(15)),
            ("another interval", &[15, 15, 60, 60], Some(60)),
            ("only the last ones count", &[60, 60, 15, 15, 15, 15], Some(15)),
        ] {
            assert_eq!(minutes(all), usual, "{name}");
        }
    }
}
