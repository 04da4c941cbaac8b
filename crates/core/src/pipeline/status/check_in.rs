//! Pure: whether a cluster of Fleet is online, by the reports of its agent.
//!
//! In: when the agent last reported, and what the status has recorded. Out: the reachability, and when to check again.
//!
//! Fleet registers a cluster by its agent, so Relaybook has no connection to it. The hub only has the time that the agent wrote last. The clock
//! of the agent can be wrong by hours. So what counts is how long this time has not changed, by our own clock. After a start, that is counted
//! from the start, and a cluster that was offline stays offline until its agent reports.

use std::time::Duration;

use crate::reading::Reachability;
use crate::reading::selection::CheckIn;
use relaybook_api::pipeline::ClusterStatus;

/// The shortest default of `offlineAfter`: three times Fleet's default interval of 15 minutes
/// (<https://github.com/rancher/fleet/blob/main/pkg/durations/durations.go>).
const SHORTEST: Duration = Duration::from_mins(45);
/// The default is this number of intervals between two reports.
const INTERVALS: u32 = 3;
/// A time that is this much older than `offlineAfter` is no wrong clock.
const SURE: Duration = Duration::from_hours(24);

/// Returns whether the cluster is online, and how long this stays true without a report.
pub fn reachability(
    before: Option<&ClusterStatus>,
    check_in: Option<CheckIn>,
    offline_after: Option<Duration>,
) -> (Reachability, Option<Duration>) {
    let Some(CheckIn { since, age_before, interval }) = check_in else { return (Reachability::Unknown, None) };
    let longest = interval.map_or(SHORTEST, |interval| SHORTEST.max(interval * INTERVALS));
    let limit = offline_after.unwrap_or(longest);
    let was_offline = before.is_some_and(|before| !before.reachable);
    let is_old = before.is_none() && age_before.is_some_and(|age| age >= limit + SURE);
    let stays_offline = age_before.is_some() && (was_offline || is_old);
    if stays_offline || since >= limit {
        return (Reachability::Offline, None);
    }
    (Reachability::Online, Some(limit.saturating_sub(since)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::pipeline::source::FleetCluster;

    const MINUTE: u64 = 60;

    #[test]
    fn a_cluster_is_offline_when_its_agent_has_not_reported_for_the_limit() {
        use Reachability::{Offline, Online};
        let was = |reachable| ClusterStatus {
            cluster_ref: FleetCluster { namespace: "n".into(), name: "c".into() }.reference(),
            reachable,
            since: None,
            serial: 0,
        };
        let minutes = |minutes: u64| Duration::from_secs(minutes * MINUTE);
        let hours = |hours: u64| minutes(60 * hours);
        let (on, off) = (was(true), was(false));
        for (name, before, since, age, interval, after, want) in [
            ("it has just reported", Some(&on), minutes(0), None, None, None, (Online, Some(minutes(45)))),
            ("for a while", Some(&on), minutes(44), None, None, None, (Online, Some(minutes(1)))),
            ("for too long", Some(&on), minutes(45), None, None, None, (Offline, None)),
            ("a slow agent", Some(&on), minutes(100), None, Some(minutes(60)), None, (Online, Some(minutes(80)))),
            ("a limit", Some(&on), minutes(5), None, Some(minutes(60)), Some(minutes(5)), (Offline, None)),
            ("it reports again", Some(&off), minutes(0), None, None, None, (Online, Some(minutes(45)))),
            (
                "after a start, with a clock that is behind",
                Some(&on),
                minutes(1),
                Some(hours(2)),
                None,
                None,
                (Online, Some(minutes(44))),
            ),
            ("after a start, it stays offline", Some(&off), minutes(1), Some(minutes(1)), None, None, (Offline, None)),
            ("first seen", None, minutes(0), Some(hours(2)), None, None, (Online, Some(minutes(45)))),
            ("first seen, long dead", None, minutes(0), Some(hours(25)), None, None, (Offline, None)),
        ] {
            let check_in = CheckIn { since, age_before: age, interval };
            assert_eq!(reachability(before, Some(check_in), after), want, "{name}");
        }
        assert_eq!(reachability(Some(&on), None, None), (Reachability::Unknown, None), "it never reported");
    }
}
