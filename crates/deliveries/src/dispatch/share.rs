//! The share of a namespace in what is recorded: when a reconcile of one of its pipelines can record deliveries, and how many.
//!
//! In: what the namespace has written. Out: how long the reconcile waits, or what it can record. While it waits, its changes stay in the log of
//! the pipeline, which merges them if they become many.

use std::time::{Duration, Instant};

use relaybook_api::DeliverySpec;
use relaybook_runtime::pace::{NamespacePace, SMALL_OBJECT};

/// What is paid for a turn, in bytes. Smaller steps would need more reconciles.
const TURN: usize = 256 * 1024;

/// The share of one pipeline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// When its turn is, if the namespace causes more writes than its share. The turn is paid.
    turn: Option<Instant>,
}

impl Share {
    /// Returns how many bytes can be recorded now, and how many of them are paid. `Err`: how long to wait.
    pub fn turn(&mut self, pace: &NamespacePace, namespace: &str, now: Instant) -> Result<(usize, usize), Duration> {
        let turn = match self.turn {
            Some(turn) => turn,
            None if pace.wait(namespace, now).is_zero() => return Ok((pace.left(namespace, now).max(TURN), 0)),
            None => now + pace.spend(namespace, TURN, now),
        };
        let left = turn.saturating_duration_since(now);
        self.turn = Some(turn).filter(|_| !left.is_zero());
        if left.is_zero() { Ok((TURN, TURN)) } else { Err(left) }
    }
}

/// Returns how many of these lanes can be recorded, and subtracts their cost in bytes. A lane is begun as long as something is left.
pub(super) fn fits<'a>(lanes: impl Iterator<Item = &'a Vec<DeliverySpec>>, left: &mut usize) -> usize {
    let fitting = lanes.take_while(|lane| {
        let is_begun = *left > 0;
        *left = left.saturating_sub(lane.len() * SMALL_OBJECT);
        is_begun
    });
    fitting.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_telemetry::Metrics;
    use relaybook_telemetry::metrics::ApiWrite;

    #[test]
    fn a_step_of_a_pipeline_is_paid_once_and_waits_until_the_budget_covers_it() {
        let (pace, now) = (NamespacePace::new(ApiWrite::DeliveryCreate, Metrics::default()), Instant::now());
        let (mut share, mut other) = (Share::default(), Share::default());
        assert_eq!(share.turn(&pace, "team-a", now), Ok((usize::MAX, 0)), "it is alone");
        let _ = pace.spend("team-b", 1, now);
        let (before, _) = share.turn(&pace, "team-a", now).unwrap();
        let _ = pace.spend("team-a", before - 1, now);
        assert_eq!(share.turn(&pace, "team-a", now), Ok((TURN, 0)), "the last of the budget is enough for one step");
        let _ = pace.spend("team-a", TURN, now);
        let wait = share.turn(&pace, "team-a", now).unwrap_err();
        assert!(other.turn(&pace, "team-a", now).unwrap_err() > wait, "one after the other");
        assert_eq!(share.turn(&pace, "team-a", now), Err(wait), "paid once");
        assert_eq!(share.turn(&pace, "team-a", now + wait), Ok((TURN, TURN)));
        assert!(share.turn(&pace, "team-a", now + wait).is_err(), "the next turn");
        assert!(Share::default().turn(&pace, "team-b", now).is_ok());
    }

    #[test]
    fn lanes_are_started_while_budget_is_left() {
        let lanes: Vec<Vec<DeliverySpec>> = [1, 3, 2].map(|length| vec![DeliverySpec::default(); length]).into();
        for (left, fitting, after) in [(0, 0, 0), (1, 1, 0), (2, 2, 0), (4, 2, 0), (5, 3, 0), (9, 3, 3)] {
            let mut left = left * SMALL_OBJECT;
            assert_eq!((fits(lanes.iter(), &mut left), left), (fitting, after * SMALL_OBJECT));
        }
    }
}
