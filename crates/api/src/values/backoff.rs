//! Delays after failures in a row.

use std::time::Duration;

/// The delays after failures in a row: each one is twice as long as the one before, up to the longest. A caller that needs jitter adds it to
/// the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the delay after this number of failures. Before the first failure, it is the delay that the first one will have.
    #[must_use]
    pub fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(self.longest)
    }

    /// Counts a failure, and returns the delay after it. After a success, the caller sets the number to zero.
    pub fn next(self, failures: &mut u32) -> Duration {
        *failures = failures.saturating_add(1);
        self.after(*failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let seconds = Duration::from_secs;
        let millis = Duration::from_millis;
        for (first, longest, expected) in [
            (millis(500), seconds(60), [500, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]),
            (seconds(5), seconds(60), [5, 5, 10, 20, 40, 60, 60, 60, 60, 60].map(|n| n * 1000)),
            (seconds(3), seconds(3), [3000; 10]),
            (seconds(9), seconds(3), [3000; 10]),
            (Duration::ZERO, seconds(3), [0; 10]),
        ] {
            let backoff = Backoff { first, longest };
            let delays: Vec<_> = (0..10).map(|failures| backoff.after(failures).as_millis()).collect();
            assert_eq!(delays, expected, "{backoff:?}");
            let mut failures = 0;
            let delays: Vec<_> = (1..10).map(|_| backoff.next(&mut failures).as_millis()).collect();
            assert_eq!((&delays[..], failures), (&expected[1..], 9), "{backoff:?}");
        }
    }

    #[test]
    fn the_number_of_failures_has_no_limit() {
        let backoff = Backoff { first: Duration::from_millis(1), longest: Duration::from_mins(1) };
        for mut failures in [32, 33, 64, u32::MAX - 1, u32::MAX] {
            assert_eq!(backoff.after(failures), backoff.longest, "{failures}");
            assert_eq!(backoff.next(&mut failures), backoff.longest, "{failures}");
        }
        assert_eq!(Backoff { longest: Duration::MAX, ..backoff }.after(u32::MAX), Duration::from_millis(u32::MAX.into()));
    }
}
