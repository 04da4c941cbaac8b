//! The clocks. Pure modules get the time as an argument.

use std::time::Duration;

use jiff::SignedDuration;
use rustix::time::{ClockId, clock_gettime};

use crate::Time;

/// Returns the current time, truncated to milliseconds. So a time that is written and read back is equal to the original.
#[must_use]
pub fn now() -> Time {
    let now = Time::now();
    Time::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// Returns the time since this machine was started, including the time in which it was suspended. `std::time::Instant` does not
/// include that time on Linux. Promises to other replicas, such as "I am leader until then", are measured with this clock.
#[must_use]
pub fn since_boot() -> Duration {
    #[cfg(feature = "testing")]
    if let Some(played) = crate::testing::played_boot() {
        return played;
    }
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// The age of a thing. The wall clock is read only once, when the thing is first seen. After that only [`since_boot`] counts, so a jump
/// of the wall clock does not change the age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    first: SignedDuration,
    seen: Duration,
}

impl Age {
    /// Returns the age of a thing that began at `since` and is first seen when the clocks show `wall` and `boot`.
    #[must_use]
    pub fn new(since: Time, wall: Time, boot: Duration) -> Self {
        Self { first: wall.duration_since(since), seen: boot }
    }

    /// Returns the age at the time when [`since_boot`] returns `boot`. Zero for a thing that begins later.
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
    fn ages_grow_with_the_boot_clock() {
        let (at, secs) = (|second| Time::from_second(second).unwrap(), Duration::from_secs);
        for (what, since, wall, boots, ages) in [
            ("seen at once", 1000, 1000, [50, 50, 60], [0, 0, 10]),
            ("seen after a restart", 1000, 1600, [50, 51, 60], [600, 601, 610]),
            ("written by another clock that is ahead", 1000, 995, [50, 52, 60], [0, 0, 5]),
            ("a boot clock that seems to go back", 1000, 1600, [50, 40, 49], [600, 600, 600]),
            ("began long ago", 0, 4_000_000_000, [50, 51, 52], [4_000_000_000, 4_000_000_001, 4_000_000_002]),
        ] {
            let age = Age::new(at(since), at(wall), secs(boots[0]));
            assert_eq!(boots.map(|boot| age.at(secs(boot))), ages.map(secs), "{what}");
        }
    }

    #[test]
    fn the_boot_clock_runs_like_the_monotonic_clock() {
        // In this order, so that the span of the boot clock contains the span of the monotonic clock.
        let (boot, mono) = (since_boot(), std::time::Instant::now());
        while mono.elapsed() < Duration::from_millis(5) {
            std::thread::yield_now();
        }
        let (mono, boot) = (mono.elapsed(), since_boot().checked_sub(boot).unwrap());
        assert!(boot >= Duration::from_millis(5) && boot < mono + Duration::from_secs(5), "{boot:?}, {mono:?}");
    }
}
