//! A rate with a burst: the [generic cell rate algorithm](https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm), as a value.
//!
//! In: the time. Out: whether a permit is left now, or when the next one is.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Permits that come back one by one, up to a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    period: Duration,
    burst: NonZeroU32,
    /// When all permits are there again. `None`: no permit was taken yet.
    full_at: Option<Instant>,
}

impl Rate {
    /// Returns a rate of one permit in each period, with all permits of the burst.
    #[must_use]
    pub const fn new(period: Duration, burst: NonZeroU32) -> Self {
        Self { period, burst, full_at: None }
    }

    /// Returns the same rate without any permit.
    #[must_use]
    pub fn spent(self, now: Instant) -> Self {
        Self { full_at: Some(now + self.longest()), ..self }
    }

    /// The time after which the burst is complete, whatever was taken.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.period.saturating_mul(self.burst.get())
    }

    /// Takes a permit. The error is the time of the next permit, which is later than `now`.
    pub fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let full_at = self.full_at.filter(|at| *at > now).unwrap_or(now) + self.period;
        match full_at.checked_duration_since(now + self.longest()) {
            None | Some(Duration::ZERO) => {
                self.full_at = Some(full_at);
                Ok(())
            }
            Some(wait) => Err(now + wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(period: u64, burst: u32) -> Rate {
        Rate::new(Duration::from_millis(period), NonZeroU32::new(burst).unwrap())
    }

    #[test]
    fn a_burst_is_followed_by_one_permit_in_each_period() {
        let (mut rate, now) = (rate(1000, 2), Instant::now());
        let at = |millis| now + Duration::from_millis(millis);
        assert_eq!([rate.take(now), rate.take(now), rate.take(now)], [Ok(()), Ok(()), Err(at(1000))]);
        assert_eq!([rate.take(at(999)), rate.take(at(1000)), rate.take(at(1000))], [Err(at(1000)), Ok(()), Err(at(2000))]);
        let later = at(10_000);
        assert_eq!([rate.take(later), rate.take(later)], [Ok(()), Ok(())]);
        assert_eq!(rate.spent(now).take(now), Err(at(1000)));
    }

    proptest! {
        /// In no window are more permits taken than the burst and those that came back in it, and a permit at the named time is granted.
        #[test]
        fn no_window_has_more_than_its_permits(period in 1_u64..50, burst in 1_u32..6, steps in prop::collection::vec(0_u64..60, 1..60)) {
            let (mut rate, start) = (rate(period, burst), Instant::now());
            let (mut now, mut taken): (u64, Vec<u64>) = (0, Vec::new());
            for step in steps {
                now += step;
                match rate.take(start + Duration::from_millis(now)) {
                    Ok(()) => taken.push(now),
                    Err(at) => {
                        prop_assert!(at > start + Duration::from_millis(now));
                        prop_assert_eq!(rate.clone().take(at), Ok(()));
                    }
                }
            }
            for (i, from) in taken.iter().enumerate() {
                for (count, to) in taken[i..].iter().enumerate() {
                    prop_assert!((count as u64) < u64::from(burst) + (to - from) / period);
                }
            }
        }
    }
}
