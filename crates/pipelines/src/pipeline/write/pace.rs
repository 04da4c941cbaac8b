//! Pure: how long the next write of a pipeline's status waits. The wait depends on the sizes of the writes so far, and on the pauses
//! between them.
//!
//! The cost of a write for the API server is proportional to the size of the status. It is 9 ms without a log, and 22 ms with 42 changes
//! in it (19 KiB). So a write counts at least as one of 16 KiB, and a pipeline that changes all the time must be slow. Changes that happen
//! during the wait are part of the next write, so under load there are fewer and larger writes. But a rollout to many targets must not wait
//! for its own log. A status of 200 targets has about 175 KiB while the log contains one change of each. At 64 KiB a second, one write of it
//! delays the next by almost three seconds. So each pipeline has a budget that grows while it is not written, and a rollout after a pause
//! uses this budget.

use std::time::Duration;

/// The pace of a pipeline that changes all the time, in bytes a second. The budget grows at this rate.
const SUSTAINED: f64 = 64.0 * 1024.0;
/// The pace of large statuses while the budget lasts, in bytes a second. Without such a limit, a rollout would use the budget for many
/// writes in a row, each with a few changes. A write of 175 KiB costs the API server as much as some 20 deliveries, and at this pace such a
/// write is made three times a second.
const FASTEST: f64 = 512.0 * 1024.0;
/// The part of each write for which the next one does not wait while the budget lasts, in bytes. It is also the least that a write counts. Most
/// statuses are smaller. Changes that follow each other are steps of one process, such as a rollout and the promotion that it causes, and each
/// wait would delay its next step. So 128 small writes need no wait, and then there are four a second.
const SMALL: usize = 16 * 1024;
/// The largest budget, in bytes. It lasts four seconds for writes of 175 KiB, which is enough for two waves of changes of 200 targets
/// (`InProgress`, then `Current`). When it is used up, it is full again after 32 s without writes.
const BURST: f64 = 2.0 * 1024.0 * 1024.0;

/// How many bytes can be written before the pace falls to the sustained one. Negative: this number of bytes is owed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Budget(f64);

impl Default for Budget {
    /// The full budget, for a pipeline that was not written yet.
    fn default() -> Self {
        Self(BURST)
    }
}

impl Budget {
    /// Returns the budget after a write of this many bytes, and how long the next write waits. `rested`: the time since the write before.
    ///
    /// The wait is never longer than at the sustained pace without a budget. A write that did not wait, because a timer could fire, owes
    /// only its own bytes. Otherwise several such writes would delay a later one for minutes.
    #[must_use]
    pub fn after(self, bytes: usize, rested: Duration) -> (Self, Duration) {
        #[allow(clippy::cast_precision_loss, reason = "a status has far fewer than 2^52 bytes")]
        let (cost, more) = (bytes.max(SMALL) as f64, bytes.saturating_sub(SMALL) as f64);
        let left = (self.0 + rested.as_secs_f64() * SUSTAINED).clamp(0.0, BURST) - cost;
        let wait = (more / FASTEST).max(-left / SUSTAINED).max(0.0);
        (Self(left), Duration::from_secs_f64(wait))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIB: f64 = 1024.0;

    #[test]
    fn writes_use_up_the_budget_before_the_sustained_pace_delays_them() {
        // Budget and write in KiB, pause and wait in milliseconds.
        for (what, left, rested, write, after, wait) in [
            ("after a rest", 2048.0, 0, 80, 1968.0, 125),
            ("a small status", 2048.0, 0, 16, 2032.0, 0),
            ("a smaller one counts as much", 2048.0, 0, 1, 2032.0, 0),
            ("a stream of small ones", 0.0, 250, 1, 0.0, 0),
            ("a stream of small ones that is too fast", 0.0, 0, 1, -16.0, 250),
            ("the largest status after a rest", 2048.0, 0, 528, 1520.0, 1000),
            ("the budget has a maximum", 1984.0, 1_000_000, 80, 1968.0, 125),
            ("it grows by 64 KiB a second", 0.0, 2000, 80, 48.0, 125),
            ("the last of the budget", 80.0, 0, 80, 0.0, 125),
            ("the last of the budget for a small status", 16.0, 0, 16, 0.0, 0),
            ("a small status without a budget", 0.0, 0, 16, -16.0, 250),
            ("a part of the write is owed", 32.0, 0, 64, -32.0, 500),
            ("little is owed, so the fastest pace counts", 76.0, 0, 80, -4.0, 125),
            ("no budget", 0.0, 0, 64, -64.0, 1000),
            ("a steady stream", -64.0, 1000, 64, -64.0, 1000),
            ("a write that did not wait", -512.0, 0, 512, -512.0, 8000),
        ] {
            let got = Budget(left * KIB).after(write * 1024, Duration::from_millis(rested));
            assert_eq!(got, (Budget(after * KIB), Duration::from_millis(wait)), "{what}");
        }
    }

    #[test]
    fn a_rollout_of_two_hundred_targets_is_written_without_long_waits() {
        // In KiB: the status without changes in its log, and with one change of each target.
        let (empty, full) = (100, 175);
        let (mut budget, mut at, mut waits) = (Budget::default(), Duration::ZERO, Vec::<Duration>::new());
        while at < Duration::from_millis(3500) {
            let size = if at.is_zero() { empty } else { full };
            let (next, wait) = budget.after(size * 1024, waits.last().copied().unwrap_or_default());
            (budget, at) = (next, at + wait);
            waits.push(wait);
        }
        assert!(waits.iter().all(|wait| *wait < Duration::from_millis(350)), "{waits:?}");
        assert!(waits.len() < 16, "{waits:?}");
    }

    proptest! {
        /// Whatever the sizes and pauses are: no more is written than the budget and 64 KiB a second, plus the last write.
        #[test]
        fn writes_never_exceed_the_budget_and_the_sustained_pace(writes in prop::collection::vec((1..600_000_u32, 0..20_000_u64), 1..200)) {
            let (mut budget, mut pause) = (Budget::default(), Duration::ZERO);
            let (mut bytes, mut lasted) = (0.0, Duration::ZERO);
            for (size, more) in writes {
                let (next, wait) = budget.after(usize::try_from(size).unwrap(), pause);
                let size = f64::from(size);
                (bytes, lasted) = (bytes + size, lasted + pause);
                let most = BURST + lasted.as_secs_f64() * SUSTAINED + size;
                prop_assert!(bytes <= most + 1.0, "{bytes} bytes in {lasted:?}");
                let longest = size.max(16.0 * KIB) / SUSTAINED + 1e-6;
                prop_assert!(wait.as_secs_f64() <= longest, "{size} bytes delay the next write by {wait:?}");
                // Half of the writes wait no longer than they must.
                (budget, pause) = (next, wait + Duration::from_millis(if more < 10_000 { 0 } else { more }));
            }
        }
    }
}
