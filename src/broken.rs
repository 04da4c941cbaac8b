//! Promises broken on purpose, to prove that `make chaos` notices. Compiled only with the feature `broken`, which no release
//! has; `PENNANT_BROKEN` then says which one is broken, and without it none is.
//!
//! In: the environment. Out: whether a place in the code does the wrong thing.

use std::sync::LazyLock;

use crate::api::{DeliveryStatus, Outcome, now};

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A delivery is written down as delivered before its request is made.
    OutcomeBeforeRequest,
    /// A lane goes on before the outcome of its head is written.
    NextBeforeOutcome,
    /// A cursor is persisted before the deliveries of what it has passed are created.
    CursorBeforeCreate,
}

static CHOSEN: LazyLock<Option<Wrong>> = LazyLock::new(|| match std::env::var("PENNANT_BROKEN").as_deref() {
    Ok("outcome-before-request") => Some(Wrong::OutcomeBeforeRequest),
    Ok("next-before-outcome") => Some(Wrong::NextBeforeOutcome),
    Ok("cursor-before-create") => Some(Wrong::CursorBeforeCreate),
    _ => None,
});

/// Whether this is done wrong.
pub fn is(wrong: Wrong) -> bool {
    *CHOSEN == Some(wrong)
}

/// What a delivery says that has been taken at the first attempt.
#[must_use]
pub fn delivered(before: &DeliveryStatus) -> DeliveryStatus {
    let (attempts, time) = (before.attempts.saturating_add(1), Some(now()));
    DeliveryStatus {
        outcome: Some(Outcome::Delivered),
        attempts,
        status_code: Some(200),
        last_attempt_time: time,
        settled_time: time,
        ..DeliveryStatus::default()
    }
}
