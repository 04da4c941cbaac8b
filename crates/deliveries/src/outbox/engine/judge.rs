//! What is known about the head of a lane, for the decision about it.
//!
//! In: the head, the other lanes, and what others know. Out: a [`Decision`] of `head`.

use super::Engine;
use super::effect::{Facts, Now};
use super::state::head::{About, Decision, decide};
use super::state::lanes::Slot;
use crate::outbox::lane::Place;
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::index::SendDecision;
use relaybook_settings::config::EffectiveNotification;

impl Engine {
    /// Decides about a delivery that is, or would be, the head of a lane.
    pub(super) fn decision(&self, key: &LaneKey, head: &Record, facts: &Facts<'_>, now: Now) -> Decision {
        let is_behind = self.lanes.is_behind(key, head);
        let sendable = if is_behind { SendDecision::NotYet } else { facts.pipelines.find(&head.spec) };
        let uncounted = if matches!(sendable, SendDecision::Send(..)) { uncounted(head, facts) } else { None };
        let doubts = |notification| self.doubts_message(head, notification, facts, now);
        let is_message_doubtful = matches!(&sendable, SendDecision::Send(notification, _) if doubts(notification));
        let is_outdated =
            matches!(&sendable, SendDecision::Send(notification, _) if self.is_outdated(head, notification, facts));
        let is_unproven = self.is_unproven(head);
        decide(head, About { is_unproven, is_message_doubtful, is_outdated, uncounted, sendable })
    }

    /// Whether the receiver shows the newest object as the current state, and there is a newer one. A redelivery has a lane of its own. So it is behind
    /// each later delivery about the same subject that was delivered, is redelivered or waits. A comment has its time, and no receiver shows only the
    /// newest one.
    fn is_outdated(&self, head: &Record, notification: &EffectiveNotification, facts: &Facts<'_>) -> bool {
        let thread = notification.sending.as_ref().ok().and_then(|sending| sending.thread.as_ref());
        if !thread.is_some_and(|thread| thread.find.is_some() && thread.parent.is_none()) {
            return false;
        }
        let place = Place::from(&*head.spec);
        let waits = |slot: &Slot| slot.lane.iter().any(|(other, record)| other > place && record.about() == head.about());
        !facts.delivery_index.is_newest(head) || (head.again && self.lanes.get(&head.home()).is_some_and(waits))
    }
}

/// Returns how many deliveries the head replaces, if that number is not written yet.
fn uncounted(head: &Record, facts: &Facts<'_>) -> Option<i64> {
    let counts = head.status.attempts == 0 && !head.again;
    let replaced = if counts { facts.delivery_index.replaced(head, None) } else { 0 };
    Some(replaced).filter(|replaced| *replaced > head.status.superseded)
}
