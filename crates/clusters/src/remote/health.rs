//! State of a remote cluster, computed from the results of its probes.
//!
//! In: the result and time of each probe. Out: whether the data of the watches is still valid ([`Health::is_lost`]), and whether the
//! cluster is online or offline ([`Health::reachability`]). It reads no clock.

use std::time::Duration;

use tokio::time::Instant;

use relaybook_core::reading::Reachability;

/// Number of consecutive failed probes after which the data of the watches is no longer valid, if [`RESTART`] has passed, too.
const LOST_AFTER: u32 = 3;
/// Minimum time of these failures. An API server that is restarted refuses connections for some seconds.
const RESTART: Duration = Duration::from_secs(15);
/// Time without a response after which the data is no longer valid, no matter how many probes failed.
const LOST_SILENCE: Duration = Duration::from_secs(30);
/// Pause between two probes. Jitter adds up to a fifth.
const PAUSE: Duration = Duration::from_secs(10);
/// Pause between two probes while the cluster does not respond but is not lost yet.
const DOUBT: Duration = Duration::from_secs(2);

/// State of one cluster, computed from its probes.
#[derive(Debug)]
pub(crate) struct Health {
    grace: Duration,
    answered: bool,
    /// Start of the first probe without a response, and the number of failed probes since then.
    silent: Option<(Instant, u32)>,
}

impl Health {
    /// Returns the state before the first probe. `grace` is the time without a response after which the cluster is offline.
    pub fn new(grace: Duration) -> Self {
        Self { grace, answered: false, silent: None }
    }

    /// Records a response.
    pub fn answered(&mut self) {
        (self.answered, self.silent) = (true, None);
    }

    /// Records a failed probe that started at `began`.
    pub fn failed(&mut self, began: Instant) {
        let (since, failures) = self.silent.unwrap_or((began, 0));
        self.silent = Some((since, failures + 1));
    }

    /// Whether the data of the watches is no longer valid: their silence may mean that the cluster is unreachable.
    pub fn is_lost(&self, now: Instant) -> bool {
        self.silent.is_some_and(|(since, failures)| {
            let silence = now.duration_since(since);
            silence >= LOST_SILENCE || (failures >= LOST_AFTER && silence >= RESTART)
        })
    }

    /// Whether the latest probe failed.
    pub fn is_silent(&self) -> bool {
        self.silent.is_some()
    }

    /// Returns whether the cluster is reachable.
    pub fn reachability(&self, now: Instant) -> Reachability {
        match self.silent {
            Some((since, _)) if now.duration_since(since) >= self.grace => Reachability::Offline,
            None if self.answered => Reachability::Online,
            _ => Reachability::Unknown,
        }
    }

    /// Returns when the cluster becomes offline, if it does not respond before.
    pub fn offline_at(&self, now: Instant) -> Option<Instant> {
        self.silent.map(|(since, _)| since + self.grace).filter(|at| *at > now)
    }

    /// Returns the pause before the next probe.
    pub fn pause(&self, now: Instant) -> Duration {
        if self.is_silent() && !self.is_lost(now) { DOUBT } else { PAUSE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_lost_after_30_seconds_or_after_repeated_failures_in_15_seconds() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = Health::new(Duration::from_mins(2));
        assert_eq!((health.reachability(at(500)), health.pause(at(500))), (Reachability::Unknown, PAUSE));
        health.answered();
        assert_eq!((health.reachability(at(500)), health.is_silent()), (Reachability::Online, false));
        for second in [0, 2, 4, 6] {
            health.failed(at(second));
            assert!(!health.is_lost(at(second)) && health.is_silent());
            assert_eq!((health.reachability(at(second)), health.pause(at(second))), (Reachability::Unknown, DOUBT));
        }
        assert!(health.is_lost(at(15)));
        assert_eq!(health.pause(at(15)), PAUSE);
        health.answered();
        assert!(!health.is_lost(at(400)));
        assert_eq!(health.reachability(at(400)), Reachability::Online);
        health.failed(at(400));
        assert!(!health.is_lost(at(429)), "one may be by chance");
        assert!(health.is_lost(at(430)), "but not for ever");
    }

    #[test]
    fn a_cluster_is_offline_after_the_grace_period_and_not_before() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = Health::new(Duration::from_mins(2));
        assert_eq!(health.offline_at(at(0)), None);
        health.failed(at(10));
        health.failed(at(20));
        assert_eq!(health.offline_at(at(20)), Some(at(130)));
        assert_eq!(health.reachability(at(129)), Reachability::Unknown);
        assert_eq!(health.reachability(at(130)), Reachability::Offline);
        assert_eq!(health.offline_at(at(130)), None);
        health.answered();
        health.failed(at(200));
        assert_eq!(health.offline_at(at(200)), Some(at(320)), "an answer begins it anew");
    }
}
