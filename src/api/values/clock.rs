//! The clocks. Pure rooms take what these say as an argument.

use std::time::Duration;

use jiff::SignedDuration;
use rustix::time::{ClockId, clock_gettime};

use crate::api::Time;

/// Now, cut to milliseconds: what is written is then what is compared after reading it back.
#[must_use]
pub fn now() -> Time {
    let now = Time::now();
    Time::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// Time since this machine was started, the time in which it was suspended included, which `std::time::Instant` leaves out on
/// Linux. Promises to others, such as "I act until then", are counted by it.
#[must_use]
pub fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// How old something is. The wall clock counts once, when it is first seen; after that only [`since_boot`] counts, so that a wall
/// clock that jumps makes nothing older or younger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    first: SignedDuration,
    seen: Duration,
}

impl Age {
    /// Of what began at `since`, and is first seen when the clocks say `wall` and `boot`.
    #[must_use]
    pub fn new(since: Time, wall: Time, boot: Duration) -> Self {
        Self { first: wall.duration_since(since), seen: boot }
    }

    /// When [`since_boot`] says `boot`; zero for what begins later.
    #[must_use]
    pub fn at(self, boot: Duration) -> Duration {
        let passed = SignedDuration::try_from(boot.saturating_sub(self.seen)).unwrap_or(SignedDuration::MAX);
        Duration::try_from(self.first.saturating_add(passed)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_grow_with_the_clock_that_only_goes_forward() {
        let (at, secs) = (|second| Time::from_second(second).unwrap(), Duration::from_secs);
        for (what, since, wall, boots, ages) in [
            ("seen at once", 1000, 1000, [50, 50, 60], [0, 0, 10]),
            ("seen after a restart", 1000, 1600, [50, 51, 60], [600, 601, 610]),
            ("of another clock, which is ahead", 1000, 995, [50, 52, 60], [0, 0, 5]),
            ("a boot clock that seems to go back", 1000, 1600, [50, 40, 49], [600, 600, 600]),
            ("of a time long ago", 0, 4_000_000_000, [50, 51, 52], [4_000_000_000, 4_000_000_001, 4_000_000_002]),
        ] {
            let age = Age::new(at(since), at(wall), secs(boots[0]));
            assert_eq!(boots.map(|boot| age.at(secs(boot))), ages.map(secs), "{what}");
        }
    }

    #[test]
    fn the_clock_runs_as_others_do() {
        // In this order, so that the span of the one holds that of the other.
        let (boot, mono) = (since_boot(), std::time::Instant::now());
        while mono.elapsed() < Duration::from_millis(5) {
            std::thread::yield_now();
        }
        let (mono, boot) = (mono.elapsed(), since_boot().checked_sub(boot).unwrap());
        assert!(boot >= Duration::from_millis(5) && boot < mono + Duration::from_secs(5), "{boot:?}, {mono:?}");
    }
}
