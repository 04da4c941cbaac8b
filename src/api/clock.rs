//! The clocks. Pure rooms take what these say as an argument.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::Time;

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

#[cfg(test)]
mod tests {
    use super::*;

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
