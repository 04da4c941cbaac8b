//! How long a membership has to last after a renewal, so that the work of a controller can start under it.
//!
//! In: how long the work takes that has to start. Out: the duration that the keeper declares. The shorter it is, the earlier other replicas continue
//! the work of a replica that was killed.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::MARGIN;
use relaybook_core::leader::candidacy::RENEW;
use relaybook_core::leader::table::LASTS;

/// Time for which a renewal can be late, before work waits for it.
const LATE: Duration = Duration::from_secs(5);
/// Time after the last need of a longer membership, until it is short again.
const KEEP: Duration = Duration::from_mins(10);

/// The needs of one controller.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// How long its usual work takes at most.
    usual: Duration,
    /// How long the longest other work takes, and when such work last had to start, by [`since_boot`](relaybook_api::since_boot).
    longer: Mutex<Option<(Duration, Duration)>>,
    /// Notified when a longer membership is needed.
    pub(super) grown: Notify,
}

impl Needs {
    /// Returns the needs of a controller whose usual work takes at most this long.
    pub(super) fn new(usual: Duration) -> Self {
        Self { usual, ..Self::default() }
    }

    /// Notes that work has to start that takes this long.
    pub(super) fn ask(&self, work: Duration, now: Duration) {
        if work <= self.usual {
            return;
        }
        let mut longer = self.longer.lock();
        let known = longer.filter(|(_, asked)| now < *asked + KEEP).map_or(Duration::ZERO, |(known, _)| known);
        *longer = Some((known.max(work), now));
        if work > known {
            self.grown.notify_one();
        }
    }

    /// Returns how long a membership has to last after a renewal.
    pub(super) fn lasts(&self, now: Duration) -> Duration {
        let longer = self.longer.lock().filter(|(_, asked)| now < *asked + KEEP);
        let work = longer.map_or(self.usual, |(work, _)| work);
        (work + MARGIN + RENEW + LATE).min(LASTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_membership_is_as_long_as_the_work_needs_and_short_again_some_time_after_it() {
        let secs = Duration::from_secs;
        let needs = Needs::new(secs(25));
        assert_eq!(needs.lasts(secs(1000)), secs(45));
        for (work, now, lasts) in [(20, 1000, 45), (40, 1010, 60), (30, 1020, 60), (70, 1030, 90), (500, 1040, 90)] {
            needs.ask(secs(work), secs(now));
            assert_eq!(needs.lasts(secs(now)), secs(lasts), "{work} at {now}");
        }
        assert_eq!((needs.lasts(secs(1639)), needs.lasts(secs(1640))), (secs(90), secs(45)));
        needs.ask(secs(30), secs(1700));
        assert_eq!(needs.lasts(secs(1700)), secs(50), "what was needed before is forgotten");
    }
}
