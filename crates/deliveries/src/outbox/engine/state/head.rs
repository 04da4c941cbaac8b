//! What happens with the first delivery of a lane when it is due. Pure.
//!
//! In: the delivery, and what is known about it ([`About`]). Out: a [`Decision`].

use std::sync::Arc;

use crate::outbox::record::Record;
use crate::outbox::send_gate::index::{Gone, PipelineFacts, SendDecision};
use relaybook_api::delivery::Reason;
use relaybook_settings::config::{EffectiveNotification, Retry};

/// What is known about the head of a lane.
pub(crate) struct About {
    /// Whether it is not yet proven that Relaybook has recorded it.
    pub(crate) is_unproven: bool,
    /// Whether another client may have created the delivery whose message it continues.
    pub(crate) is_message_doubtful: bool,
    /// Whether its receiver shows the newest object as the current state, and a later delivery about the same subject was delivered.
    pub(crate) is_outdated: bool,
    /// How many deliveries it replaces, if that number is not written yet.
    pub(crate) uncounted: Option<i64>,
    /// Whether the deliveries of other lanes, its pipeline and its notification allow it to be sent.
    pub(crate) sendable: SendDecision,
}

/// What happens with the head of a lane.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Send it, with this notification and these facts.
    Send(Arc<EffectiveNotification>, Arc<PipelineFacts>),
    /// Write how many deliveries it replaces. That is done before the first attempt, so every attempt sends the same number.
    Count(i64),
    /// Park it, because it was recorded with an error.
    Refuse,
    /// Supersede it. It would create an object that the receiver shows instead of that of a later delivery.
    Outdated,
    /// Write why it cannot be sent at present. `until`: the retry settings that limit the wait.
    Wait { reason: Reason, message: String, until: Option<Retry> },
    /// Wait until something changes.
    Hold,
    /// Wait until the dispatcher has compared the delivery whose message it continues. Sent before, it would begin another message.
    Compare,
    /// Cancel it. Unless `sure` is true, a live read must confirm that first.
    Cancel { what: Gone, sure: bool },
}

/// Decides about the head of a lane.
pub(crate) fn decide(head: &Record, about: About) -> Decision {
    match about.sendable {
        SendDecision::Gone { what, sure } => Decision::Cancel { what, sure },
        // Unless Relaybook is proven to have recorded it, a delivery can only be canceled.
        _ if about.is_unproven => Decision::Hold,
        SendDecision::NotYet => Decision::Hold,
        _ if head.refusal().is_some() => Decision::Refuse,
        SendDecision::Wait { reason, message, until } => Decision::Wait { reason, message, until },
        SendDecision::Send(..) if about.is_message_doubtful => Decision::Compare,
        SendDecision::Send(..) if about.is_outdated => Decision::Outdated,
        SendDecision::Send(notification, pipeline) => {
            about.uncounted.map_or(Decision::Send(notification, pipeline), Decision::Count)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::testing::{notification, record};

    #[test]
    fn the_decision_about_a_head_depends_on_order_proof_count_and_settings() {
        let gone = || SendDecision::Gone { what: Gone::Target, sure: true };
        let wait = || SendDecision::Wait { reason: Reason::Suspended, message: String::new(), until: None };
        let send = || SendDecision::Send(Arc::new(notification("n1")), Arc::default());
        let mut refused = record(1);
        Arc::make_mut(&mut refused.spec).error = Some("no such key".to_owned());
        let again = Record { again: true, ..refused.clone() };
        for (is_message_doubtful, sendable, expected) in [
            (true, send(), "Compare"),
            (true, wait(), "Wait"),
            (true, gone(), "Cancel"),
            (false, send(), "Outdated"),
            (false, wait(), "Wait"),
            (false, gone(), "Cancel"),
        ] {
            let asked = format!("{is_message_doubtful}, {sendable:?}");
            let about = About { is_unproven: false, is_message_doubtful, is_outdated: true, uncounted: Some(2), sendable };
            let decision = format!("{:?}", decide(&record(1), about));
            assert!(decision.starts_with(expected), "{asked}: {decision}, not {expected}");
        }
        // Each row: the head, whether it is unproven, the uncounted number, whether it can be sent, and the decision.
        for (head, is_unproven, uncounted, sendable, expected) in [
            (record(1), false, None, send(), "Send"),
            (record(1), false, Some(2), send(), "Count(2)"),
            (record(1), false, Some(2), wait(), "Wait"),
            (record(1), false, None, SendDecision::NotYet, "Hold"),
            (record(1), false, None, gone(), "Cancel"),
            (record(1), true, None, send(), "Hold"),
            (record(1), true, None, wait(), "Hold"),
            (record(1), true, None, gone(), "Cancel"),
            (refused.clone(), false, Some(2), send(), "Refuse"),
            (refused.clone(), false, None, wait(), "Refuse"),
            (refused.clone(), false, None, SendDecision::NotYet, "Hold"),
            (refused.clone(), false, None, gone(), "Cancel"),
            (refused.clone(), true, None, send(), "Hold"),
            (again, false, None, send(), "Send"),
        ] {
            let asked = format!("{is_unproven}, {uncounted:?}, {sendable:?}");
            let about = About { is_unproven, is_message_doubtful: false, is_outdated: false, uncounted, sendable };
            let decision = format!("{:?}", decide(&head, about));
            assert!(decision.starts_with(expected), "{asked}: {decision}, not {expected}");
        }
    }
}
