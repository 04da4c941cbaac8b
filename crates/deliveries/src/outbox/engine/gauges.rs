//! Gauges of the engine, updated every few seconds: lanes, workers, and the notifications whose deliveries are not sent.
//!
//! Only the replica that works on a lane knows its state. On another one, a lane whose head waits looks as if its head could be sent. All know
//! the figures of notifications, and one of them exports them.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use super::Engine;
use super::effect::{Effect, Facts, Now};
use super::state::lanes::Slot;
use crate::outbox::lane::Due;
use relaybook_api::DeliveryStatus;
use relaybook_api::delivery::Reason;
use relaybook_telemetry::metrics::{LaneState, Share};

/// The numbers that the gauges show.
pub(crate) struct Gauges {
    pub(crate) pending: usize,
    pub(crate) lanes: BTreeMap<LaneState, usize>,
    pub(crate) unreachable: usize,
    pub(crate) busy: usize,
    pub(crate) idle: usize,
    pub(crate) shares: Vec<Share>,
}

impl Engine {
    pub(crate) fn on_measure(&mut self, facts: &Facts<'_>, now: Now) {
        self.initial_sync.tidy(now.mono);
        self.fair_queue.tidy(now.mono);
        self.rates.tidy(now.mono);
        self.tidy_parts(now.mono);
        self.settle_undecided(facts, now);
        let acting = self.acting(facts);
        let origins: HashSet<_> = self.lanes.iter().filter_map(|(_, slot)| slot.unreachable.as_deref()).collect();
        let reports = acting && facts.lease.owns_common();
        let gauges = Gauges {
            pending: self.lanes.count().saturating_sub(self.unrecorded.count()),
            lanes: if acting { self.states(facts, now.mono) } else { BTreeMap::new() },
            unreachable: if acting { origins.len() } else { 0 },
            busy: self.fair_queue.busy,
            idle: self.fair_queue.workers.saturating_sub(self.fair_queue.busy),
            shares: if reports { facts.delivery_index.shares() } else { Vec::new() },
        };
        self.effects.push(Effect::Measured(Box::new(gauges)));
    }

    /// Returns how many lanes are in each state.
    fn states(&self, facts: &Facts<'_>, now: Instant) -> BTreeMap<LaneState, usize> {
        let mut counts = BTreeMap::<_, usize>::new();
        let ours = self.lanes.iter().filter(|(key, _)| facts.is_ours(&key.pipeline));
        for state in ours.filter_map(|(_, slot)| state(slot, now)) {
            *counts.entry(state).or_default() += 1;
        }
        let (limited, unreachable) = (self.rates.waiting(), self.fair_queue.unreachable());
        // Lanes that are ready but wait for their rate, or for an unreachable origin, are counted there instead.
        if let Some(ready) = counts.get_mut(&LaneState::Ready) {
            *ready = ready.saturating_sub(limited + unreachable);
        }
        counts.extend([(LaneState::RateLimited, limited), (LaneState::Unreachable, unreachable)]);
        counts
    }
}

/// Returns the state of a lane. `None`: the lane is empty.
fn state(slot: &Slot, now: Instant) -> Option<LaneState> {
    match slot.lane.due(now) {
        Due::Empty => None,
        Due::Now => Some(LaneState::Ready),
        Due::Busy => Some(LaneState::InFlight),
        Due::At(_) | Due::Held => {
            let held = slot.lane.head().filter(|_| slot.lane.is_held());
            Some(held.map_or(LaneState::Waiting, |head| waits(&head.status)))
        }
    }
}

/// Returns the state of a lane whose head is held, by the head's status. If the head only waits for a watch, or for an older delivery in
/// another lane, no user must act. Its status can still contain the reason of an earlier wait, which is then returned.
fn waits(status: &DeliveryStatus) -> LaneState {
    match status.known_reason() {
        Some(Reason::Suspended) => LaneState::Suspended,
        _ if is_blocked(status) => LaneState::Blocked,
        _ => LaneState::Waiting,
    }
}

/// Returns whether a user must fix something before the delivery can be sent.
pub(crate) fn is_blocked(status: &DeliveryStatus) -> bool {
    // Suspended, or waiting until a watch has delivered the Secret: no user must act.
    let fine = matches!(status.known_reason(), Some(Reason::Suspended | Reason::SecretUnknown));
    status.outcome.is_none() && status.next_attempt_time.is_none() && status.reason.is_some() && !fine
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::{Outcome, Time};

    #[test]
    fn a_lane_that_a_user_must_fix_is_blocked_and_others_wait() {
        let with = |reason: Option<&str>, next: Option<Time>| DeliveryStatus {
            reason: reason.map(str::to_owned),
            next_attempt_time: next,
            ..DeliveryStatus::default()
        };
        let later = Some(Time::UNIX_EPOCH);
        for (status, state) in [
            (with(None, None), LaneState::Waiting),
            (with(Some("SecretMissing"), None), LaneState::Blocked),
            (with(Some("SecretUnknown"), None), LaneState::Waiting),
            (with(Some("ReceiverError"), later), LaneState::Waiting),
            (with(Some("Suspended"), None), LaneState::Suspended),
        ] {
            assert_eq!(waits(&status), state, "{status:?}");
        }
        let settled = DeliveryStatus { outcome: Some(Outcome::Parked), ..with(Some("SecretMissing"), None) };
        assert!(!is_blocked(&settled));
    }
}
