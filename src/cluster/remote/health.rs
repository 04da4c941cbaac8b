//! Whether a cluster answers: what the probes of one cluster come to.
//!
//! In: how each probe ended, and when. Out: what to believe of the watches ([`Health::is_lost`]), and whether the cluster is
//! online or offline ([`Health::reachability`]). No clock of its own.

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Reachability;

/// After this number of unanswered probes in a row, the data of the watches no longer count.
const LOST_AFTER: u32 = 3;
/// And for so long: an API server that is restarted refuses connections for some seconds.
const RESTART: Duration = Duration::from_secs(15);
/// Or nothing has answered for so long.
const LOST_SILENCE: Duration = Duration::from_secs(30);
/// Between two probes; jitter adds up to a fifth.
const PAUSE: Duration = Duration::from_secs(10);
/// The same while it is about to be lost.
const DOUBT: Duration = Duration::from_secs(2);

/// What the probes of one cluster come to.
#[derive(Debug)]
pub(in crate::cluster) struct Health {
    grace: Duration,
    answered: bool,
    /// Since when nothing has answered, and how often it was asked since.
    silent: Option<(Instant, u32)>,
}

impl Health {
    /// Nothing is known yet. `grace` is how long a cluster may say nothing until it is offline.
    pub fn new(grace: Duration) -> Self {
        Self { grace, answered: false, silent: None }
    }

    /// It has answered.
    pub fn answered(&mut self) {
        (self.answered, self.silent) = (true, None);
    }

    /// A probe that began then was not answered.
    pub fn failed(&mut self, began: Instant) {
        let (since, failures) = self.silent.unwrap_or((began, 0));
        self.silent = Some((since, failures + 1));
    }

    /// Whether watches that say nothing can no longer be taken to have nothing to say.
    pub fn is_lost(&self, now: Instant) -> bool {
        self.silent.is_some_and(|(since, failures)| {
            let silence = now.duration_since(since);
            silence >= LOST_SILENCE || (failures >= LOST_AFTER && silence >= RESTART)
        })
    }

    /// Whether nothing has answered since it was last asked.
    pub fn is_silent(&self) -> bool {
        self.silent.is_some()
    }

    /// Whether it can be reached.
    pub fn reachability(&self, now: Instant) -> Reachability {
        match self.silent {
            Some((since, _)) if now.duration_since(since) >= self.grace => Reachability::Offline,
            None if self.answered => Reachability::Online,
            _ => Reachability::Unknown,
        }
    }

    /// When it will be offline, if nothing answers.
    pub fn offline_at(&self, now: Instant) -> Option<Instant> {
        self.silent.map(|(since, _)| since + self.grace).filter(|at| *at > now)
    }

    /// How long to wait until it is asked again.
    pub fn pause(&self, now: Instant) -> Duration {
        if self.is_silent() && !self.is_lost(now) { DOUBT } else { PAUSE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_in_a_row_or_half_a_minute() {
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
    fn offline_after_the_grace_period_and_not_before() {
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
