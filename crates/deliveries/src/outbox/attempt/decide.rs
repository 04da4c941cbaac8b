//! What an attempt means for a delivery: the status to write, and what the lane does next. Pure.

use std::time::Duration;

use crate::outbox::lane::schedule::{Next, gap, next};
use relaybook_api::delivery::Reason;
use relaybook_api::{DeliveryStatus, Outcome, Time};
use relaybook_egress::classify;
use relaybook_egress::{Attempt, AttemptResult, Verdict};
use relaybook_settings::config::Retry;

/// Maximum time after which a lane that cannot send checks again without an event.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// The time and the random value of a decision.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Wall clock.
    pub now: Time,
    /// Random, in 0..1.
    pub chance: f64,
}

/// What the lane does next. Durations count from the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The delivery is settled.
    Settle {
        /// Whether the receiver sent a final response.
        answered: bool,
    },
    /// Try again.
    Retry {
        /// After this time.
        after: Duration,
        /// Whether the receiver requested that time.
        asked: bool,
    },
    /// Nothing was sent: check again when something changes, or after this time.
    Hold {
        /// `None`: only when something changes.
        after: Option<Duration>,
    },
}

/// Decides what follows an attempt: the status, and what the lane does next. `age`: how long the delivery has been waiting to be sent.
/// `failures`: the number of consecutive failures before this attempt.
#[must_use]
pub fn attempted(
    before: &DeliveryStatus,
    attempt: &Attempt,
    earlier_404s: u32,
    retry: &Retry,
    age: Duration,
    failures: u32,
    at: At,
) -> (DeliveryStatus, Then) {
    let verdict = classify(&attempt.result, earlier_404s);
    if let Verdict::Blocked { reason: reason @ (Reason::SecretUnknown | Reason::SecretUnreadable) } = verdict {
        // The watch delivers the Secret later, possibly only after it got the permission. That event wakes the lane. So the delivery is not
        // parked, however old it is.
        let message = attempt.error().unwrap_or_default();
        let (status, _) = blocked(before, reason, &message, None, age, failures, at);
        return (status, Then::Hold { after: Some(LOOK_AGAIN) });
    }
    if let Verdict::Blocked { reason } = verdict {
        let message = attempt.error().unwrap_or_default();
        return blocked(before, reason, &message, Some(retry), age, failures, at);
    }
    let mut status = tried(before, attempt);
    let then = match verdict {
        Verdict::Delivered => {
            settle(&mut status, Outcome::Delivered, None, at.now);
            Then::Settle { answered: true }
        }
        Verdict::Parked { reason } => {
            settle(&mut status, Outcome::Parked, Some(reason), at.now);
            Then::Settle { answered: true }
        }
        Verdict::Canceled { reason } => {
            settle(&mut status, Outcome::Canceled, Some(reason), at.now);
            Then::Settle { answered: true }
        }
        Verdict::Retry { not_before, reason } => {
            match next(retry, failures.saturating_add(1), age, not_before, at.chance) {
                Next::GiveUp => {
                    settle(&mut status, Outcome::Parked, Some(reason), at.now);
                    Then::Settle { answered: false }
                }
                Next::After(after) => {
                    status.reason = Some(reason.as_str().to_owned());
                    status.next_attempt_time = later(at.now, after);
                    // The schedule can require a longer gap than the receiver does.
                    Then::Retry { after, asked: not_before.is_some_and(|wish| wish >= after) }
                }
            }
        }
        Verdict::Again { reason } => {
            status.reason = Some(reason.as_str().to_owned());
            status.next_attempt_time = Some(at.now);
            Then::Retry { after: Duration::ZERO, asked: false }
        }
        Verdict::Blocked { .. } => Then::Hold { after: None },
    };
    (status, then)
}

/// Decides about a delivery that cannot be sent at present. If the reason and the message are unchanged, so is the status, and nothing is
/// written. `retry`: limits the wait by `maxAge`; `None`: no limit.
#[must_use]
pub fn blocked(
    before: &DeliveryStatus,
    reason: Reason,
    message: &str,
    retry: Option<&Retry>,
    age: Duration,
    failures: u32,
    at: At,
) -> (DeliveryStatus, Then) {
    let mut status = before.clone();
    status.reason = Some(reason.as_str().to_owned());
    status.error = Some(message.to_owned());
    status.next_attempt_time = None;
    let Some(retry) = retry else { return (status, Then::Hold { after: None }) };
    let wait = gap(retry, failures.saturating_add(1), at.chance).min(LOOK_AGAIN);
    match next(retry, 1, age, None, 0.0) {
        Next::GiveUp => {
            settle(&mut status, Outcome::Parked, Some(reason), at.now);
            (status, Then::Settle { answered: false })
        }
        Next::After(_) => (status, Then::Hold { after: Some(wait) }),
    }
}

/// Decides what the one attempt of a test means.
#[must_use]
pub fn tested(before: &DeliveryStatus, attempt: &Attempt, now: Time) -> DeliveryStatus {
    let mut status = tried(before, attempt);
    let (outcome, reason) = match classify(&attempt.result, 0) {
        Verdict::Delivered => (Outcome::Delivered, None),
        Verdict::Canceled { reason } => (Outcome::Canceled, Some(reason)),
        Verdict::Parked { reason } | Verdict::Retry { reason, .. } | Verdict::Again { reason } => {
            (Outcome::Parked, Some(reason))
        }
        Verdict::Blocked { reason } => {
            status.attempts = before.attempts;
            (Outcome::Parked, Some(reason))
        }
    };
    settle(&mut status, outcome, reason, now);
    status
}

/// Ends a delivery whose recorded data can never be sent, because the trigger's condition or the template fails with these data. The lane
/// continues with the next delivery.
#[must_use]
pub fn unsendable(
    before: &DeliveryStatus,
    outcome: Outcome,
    reason: Reason,
    error: &str,
    now: Time,
) -> (DeliveryStatus, Then) {
    let mut status = DeliveryStatus { error: Some(error.to_owned()), ..before.clone() };
    settle(&mut status, outcome, Some(reason), now);
    (status, Then::Settle { answered: false })
}

/// Returns the status of a delivery whose pipeline, target or notification is gone. An error from before is not why it was canceled.
#[must_use]
pub fn canceled(before: &DeliveryStatus, reason: Reason, now: Time) -> DeliveryStatus {
    let mut status = DeliveryStatus { error: None, ..before.clone() };
    settle(&mut status, Outcome::Canceled, Some(reason), now);
    status
}

fn tried(before: &DeliveryStatus, attempt: &Attempt) -> DeliveryStatus {
    let (status_code, response) = match &attempt.result {
        AttemptResult::Answered { status, body, .. } => (Some(*status), Some(body.clone()).filter(|b| !b.is_empty())),
        _ => (None, None),
    };
    DeliveryStatus {
        outcome: None,
        reason: None,
        attempts: before.attempts.saturating_add(1),
        status_code,
        last_attempt_time: Some(attempt.started),
        next_attempt_time: None,
        settled_time: None,
        last_duration_millis: i64::try_from(attempt.duration.as_millis()).ok(),
        error: attempt.error(),
        response,
        superseded: before.superseded,
        redelivered: before.redelivered.clone(),
        thread: before.thread.clone(),
    }
}

fn settle(status: &mut DeliveryStatus, outcome: Outcome, reason: Option<Reason>, now: Time) {
    status.outcome = Some(outcome);
    status.reason = reason.map(|reason| reason.as_str().to_owned());
    status.next_attempt_time = None;
    status.settled_time = Some(now);
}

fn later(now: Time, after: Duration) -> Option<Time> {
    let at = now.checked_add(after).ok()?;
    Time::from_millisecond(at.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Retry =
        Retry { initial: Duration::from_secs(5), max: Duration::from_mins(1), max_age: Duration::from_mins(10) };

    fn time(s: i64) -> Time {
        Time::from_second(s).unwrap()
    }

    fn answered(status: u16) -> Attempt {
        let result = AttemptResult::Answered {
            status,
            judged: None,
            retry_after: None,
            redirect: None,
            body: "nope".into(),
            rotated: false,
        };
        Attempt { started: time(1), duration: Duration::from_millis(12), result, step: None, learned: None }
    }

    fn decide(status: u16, now: u64) -> (DeliveryStatus, Then) {
        let before = DeliveryStatus { reason: Some("ReceiverError".into()), attempts: 3, ..DeliveryStatus::default() };
        attempted(
            &before,
            &answered(status),
            0,
            &RETRY,
            Duration::from_secs(now),
            1,
            At { now: time(now.cast_signed()), chance: 0.0 },
        )
    }

    #[test]
    fn a_successful_delivery_shows_no_earlier_error() {
        let (status, then) = decide(204, 2);
        assert_eq!(then, Then::Settle { answered: true });
        assert_eq!((status.outcome, status.reason, status.error), (Some(Outcome::Delivered), None, None));
        assert_eq!((status.attempts, status.status_code, status.last_duration_millis), (4, Some(204), Some(12)));
        assert_eq!(status.settled_time, Some(time(2)));
    }

    #[test]
    fn a_rejected_delivery_is_parked_with_error_and_response() {
        let (status, then) = decide(400, 2);
        assert_eq!(then, Then::Settle { answered: true });
        assert_eq!((status.outcome, status.status_code), (Some(Outcome::Parked), Some(400)));
        assert_eq!((status.error.as_deref(), status.response.as_deref()), (Some("400 Bad Request"), Some("nope")));
    }

    #[test]
    fn a_failed_attempt_shows_its_next_attempt_and_is_parked_at_the_maximum_age() {
        let (status, then) = decide(500, 100);
        assert_eq!(then, Then::Retry { after: Duration::from_secs(10), asked: false });
        assert_eq!((status.outcome, status.next_attempt_time), (None, Some(time(110))));
        let (status, then) = decide(500, 600);
        assert_eq!((status.outcome, then), (Some(Outcome::Parked), Then::Settle { answered: false }));
    }

    #[test]
    fn an_unsendable_delivery_is_settled_with_its_error() {
        for (outcome, reason) in [
            (Outcome::Parked, Reason::ExpressionFailed),
            (Outcome::Parked, Reason::TemplateFailed),
            (Outcome::Canceled, Reason::CommitMissing),
        ] {
            let before = DeliveryStatus::default();
            let (status, then) = unsendable(&before, outcome, reason, "there is no \"team\"", time(3));
            assert_eq!((status.outcome, status.reason.as_deref()), (Some(outcome), Some(reason.as_str())));
            assert_eq!((status.error.as_deref(), status.attempts), (Some("there is no \"team\""), 0));
            assert_eq!((status.settled_time, then), (Some(time(3)), Then::Settle { answered: false }));
        }
    }

    #[test]
    fn a_canceled_delivery_does_not_show_an_earlier_error() {
        for attempts in [0, 3] {
            let error = Some("503 Service Unavailable".to_owned());
            let reason = Some("ReceiverError".to_owned());
            let before = DeliveryStatus { error, reason, attempts, status_code: Some(503), ..DeliveryStatus::default() };
            let status = canceled(&before, Reason::PipelineGone, time(3));
            assert_eq!((status.outcome, status.reason.as_deref()), (Some(Outcome::Canceled), Some("PipelineGone")));
            assert_eq!((status.error, status.status_code, status.attempts), (None, Some(503), attempts));
        }
    }

    #[test]
    fn a_blocked_delivery_is_held_and_parked_at_the_maximum_age() {
        let before = DeliveryStatus::default();
        let at = |s| At { now: time(s), chance: 0.0 };
        let (status, then) = blocked(&before, Reason::SecretMissing, "m", Some(&RETRY), Duration::from_secs(1), 0, at(1));
        assert_eq!(then, Then::Hold { after: Some(Duration::from_secs(5)) });
        assert_eq!((status.reason.as_deref(), status.attempts, status.outcome), (Some("SecretMissing"), 0, None));
        let again = blocked(&status, Reason::SecretMissing, "m", Some(&RETRY), Duration::from_secs(9), 0, at(9)).0;
        assert_eq!(again, status, "nothing new, nothing to write");
        let (status, _) = blocked(&before, Reason::SecretMissing, "m", Some(&RETRY), Duration::from_mins(10), 0, at(600));
        assert_eq!(status.outcome, Some(Outcome::Parked));
        let (status, then) = blocked(&before, Reason::Suspended, "m", None, Duration::from_secs(9999), 0, at(9999));
        assert_eq!((status.outcome, then), (None, Then::Hold { after: None }));
    }
}
