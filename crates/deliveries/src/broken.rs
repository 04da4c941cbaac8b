//! Breaks guarantees on purpose, to prove that `make chaos` and the simulation detect it. This is compiled only with the feature `broken`, which no
//! release has. `RELAYBOOK_BROKEN` then selects the guarantee to break. If it is not set, no guarantee is broken.
//!
//! In: the environment. Out: whether a place in the code breaks its guarantee.

use std::sync::LazyLock;

use relaybook_api::{DeliveryStatus, Outcome, now};

/// The guarantee that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A Delivery is recorded as Delivered before its request is sent.
    OutcomeBeforeRequest,
    /// A lane continues before the outcome of its head is written.
    NextBeforeOutcome,
    /// A cursor is persisted before the Deliveries of the changes that it has passed are created.
    CursorBeforeCreate,
    /// A cursor is persisted while a Delivery that was sent is not recorded yet.
    CursorBeforeOutcome,
    /// A write that was not answered counts as carried out.
    UnansweredIsWritten,
    /// A delivery that is retried is not seen in a list, so nobody continues it after a hand-over.
    RetriedIsForgotten,
    /// A cursor passes a change although the create of its Delivery was refused.
    RefusedIsRecorded,
}

static CHOSEN: LazyLock<Option<Wrong>> = LazyLock::new(|| match std::env::var("RELAYBOOK_BROKEN").as_deref() {
    Ok("outcome-before-request") => Some(Wrong::OutcomeBeforeRequest),
    Ok("next-before-outcome") => Some(Wrong::NextBeforeOutcome),
    Ok("cursor-before-create") => Some(Wrong::CursorBeforeCreate),
    Ok("cursor-before-outcome") => Some(Wrong::CursorBeforeOutcome),
    Ok("unanswered-is-written") => Some(Wrong::UnansweredIsWritten),
    Ok("retried-is-forgotten") => Some(Wrong::RetriedIsForgotten),
    Ok("refused-is-recorded") => Some(Wrong::RefusedIsRecorded),
    _ => None,
});

/// Whether this guarantee is broken.
pub fn is(wrong: Wrong) -> bool {
    *CHOSEN == Some(wrong)
}

/// The status of a Delivery after one more attempt, which the receiver accepted.
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
