//! When to try again. Pure: the caller passes the clock and the random value.

use std::time::Duration;

use relaybook_api::{Backoff, Time};
use relaybook_settings::config::Retry;

/// Maximum wait that a persisted `nextAttemptTime` can cause. A wrong clock must not block a lane for longer.
pub const FURTHEST: Duration = Duration::from_hours(1);

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try again after this time.
    After(Duration),
    /// The delivery is too old.
    GiveUp,
}

/// Returns the gap before the next attempt after `failures` consecutive failed attempts (at least one). The gap grows exponentially from
/// `initial` to `max`. Jitter only adds to it. `chance` is in 0..1; at 1, the jitter adds a fifth.
#[must_use]
pub fn gap(retry: &Retry, failures: u32, chance: f64) -> Duration {
    let base = Backoff { first: retry.initial, longest: retry.max }.after(failures);
    base + base.mul_f64(0.2 * chance.clamp(0.0, 1.0))
}

/// Plans the next attempt. It is never before `asked` (the receiver's `Retry-After`, already capped). A gap that would end after `maxAge`
/// is cut. So the last attempt is made at the end of `maxAge` and not long before it.
#[must_use]
pub fn next(retry: &Retry, failures: u32, age: Duration, asked: Option<Duration>, chance: f64) -> Next {
    let Some(left) = retry.max_age.checked_sub(age).filter(|left| !left.is_zero()) else { return Next::GiveUp };
    Next::After(gap(retry, failures, chance).min(left).max(asked.unwrap_or_default()))
}

/// Returns how long a lane waits after a restart, according to the stored object.
#[must_use]
pub fn resume(next_attempt: Option<Time>, now: Time) -> Duration {
    let Some(at) = next_attempt else { return Duration::ZERO };
    Duration::try_from(at.duration_since(now)).unwrap_or_default().min(FURTHEST)
}

/// Returns whether the receiver must have requested a persisted time, because the schedule's own time would be earlier.
#[must_use]
pub fn was_asked(retry: &Retry, failures: u32, last: Option<Time>, next: Time) -> bool {
    let Some(last) = last else { return false };
    // The span starts with the last attempt, which itself can last a minute.
    let longest = gap(retry, failures, 1.0) + Duration::from_mins(1);
    Duration::try_from(next.duration_since(last)).is_ok_and(|span| span > longest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn at(s: i64) -> Time {
        Time::from_second(s).unwrap()
    }

    #[test]
    fn the_next_attempt_respects_the_schedule_the_receiver_and_the_maximum_age() {
        let retry = Retry { initial: secs(5), max: secs(60), max_age: secs(100) };
        let table = [
            ("first failure", 1, 0, None, Next::After(secs(5))),
            ("receiver asks for more", 1, 0, Some(secs(30)), Next::After(secs(30))),
            ("receiver asks for less", 4, 0, Some(secs(1)), Next::After(secs(40))),
            ("cut at the age", 5, 90, None, Next::After(secs(10))),
            ("asked beyond the age", 1, 90, Some(secs(50)), Next::After(secs(50))),
            ("too old", 1, 100, None, Next::GiveUp),
        ];
        for (what, failures, age, asked, expected) in table {
            assert_eq!(next(&retry, failures, secs(age), asked, 0.0), expected, "{what}");
        }
    }

    #[test]
    fn a_time_requested_by_the_receiver_is_distinguished_from_the_schedule() {
        let retry = Retry { initial: secs(5), max: secs(60), max_age: secs(3600) };
        let asked = |failures, next| was_asked(&retry, failures, Some(at(0)), at(next));
        assert_eq!(
            (asked(1, 5), asked(1, 66), asked(1, 67), asked(9, 132), asked(9, 600)),
            (false, false, true, false, true)
        );
        assert!(!was_asked(&retry, 1, None, at(600)));
    }

    #[test]
    fn a_stored_attempt_is_resumed_within_an_hour() {
        assert_eq!(resume(None, at(0)), Duration::ZERO);
        assert_eq!(resume(Some(at(-5)), at(0)), Duration::ZERO);
        assert_eq!(resume(Some(at(7)), at(0)), secs(7));
        assert_eq!(resume(Some(at(999_999)), at(0)), FURTHEST);
    }

    proptest! {
        #[test]
        fn jitter_adds_at_most_a_fifth_to_the_time_between_attempts(failures in 1u32..40, chance in 0.0f64..1.0) {
            let retry = Retry { initial: secs(5), max: secs(600), max_age: secs(3600) };
            let plain = gap(&retry, failures, 0.0);
            let with = gap(&retry, failures, chance);
            prop_assert!(with >= plain && with <= plain.mul_f64(1.2001));
        }
    }
}
