//! What is checked: each request when it starts, and the result at the end.
//!
//! In: the state of a history. Out: what is wrong.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::job::{self, Job};
use super::server::LANES;
use super::world::{Checked, World};
use crate::outbox::lane::redeliver::wanted;
use crate::outbox::record::{LaneKey, PIPELINE_LANE, Record};
use relaybook_api::{Outcome, State};

impl World<'_> {
    /// Checks a request that starts now.
    pub(super) fn requested(&mut self, n: usize, key: &LaneKey, record: &Record) -> Checked {
        let (server, process, serial) = (&self.server, &self.processes[n], record.spec.serial);
        prop_assert!(n == self.leader() && !process.is_stopped, "a process that may not send sends {serial}");
        prop_assert!(!process.is_short, "the Lease is too short for the request of {serial}");
        let is_derived = serial <= server.logged() && record.spec.to == State::default();
        prop_assert!(is_derived, "{serial} is sent, but Relaybook has not derived it");
        let paused = process.engine.paused.iter().map(job::lane);
        let is_busy = process.jobs.iter().map(Job::lane).chain(paused).any(|lane| lane == Some(key));
        prop_assert!(!is_busy, "the lane of {serial} is in progress already");
        let is_kept = serial > server.cursor || server.objects.contains_key(&serial) || server.deleted.contains_key(&serial);
        prop_assert!(is_kept, "{serial} is sent, but neither the log nor an object contains it");
        let of = usize::try_from(serial - 1).ok().and_then(|at| server.log.get(at)).copied();
        let is_whole = record.spec.lane == PIPELINE_LANE;
        let mut earlier = server.above(0).filter(|(other, lane)| *other < serial && (is_whole || Some(*lane) == of));
        let is_next = record.again || earlier.all(|(other, _)| server.is_settled(other));
        prop_assert!(is_next, "{serial} is sent before an earlier one of its lane is settled");
        self.reached.insert(if record.is_recorded() { "attempted" } else { "attempted directly" });
        Ok(())
    }

    /// Checks that nothing is lost, and that nothing waits.
    pub(super) fn finished(&self) -> Checked {
        let (server, leader) = (&self.server, &self.processes[self.leader()]);
        for (serial, _) in server.above(0).filter(|(serial, _)| !server.deleted.contains_key(serial)) {
            let object = server.objects.get(&serial);
            let outcome = object.and_then(|object| object.status.outcome);
            let is_dead = server.is_dead(serial);
            // Excluded: the notification was deleted, and perhaps created again, before the leader knew who has recorded the Delivery. The
            // dispatcher does not reach its change any more, so the origin stays undecided until the next term.
            let is_known = |object: &Record| leader.parts.delivery_index.contains(&object.id);
            let is_left = object.is_some_and(|object| server.is_of_other_notification(object) && !is_known(object));
            // Excluded: another client has created it as delivered, with the right content. A term can begin between the time when it counts as recorded and
            // its deletion. Only the admission policy prevents that.
            let is_suppressed = object.is_none() && server.forged.contains(&serial) && self.answered.contains(&serial);
            prop_assert!(
                outcome.is_some() || is_suppressed || (is_dead && (object.is_none() || is_left)),
                "{serial} has no outcome, and nothing is in progress: {object:?}"
            );
            let is_received = outcome != Some(Outcome::Delivered) || self.answered.contains(&serial);
            prop_assert!(is_received, "{serial} counts as delivered, and no receiver has accepted it");
            prop_assert!(outcome != Some(Outcome::Canceled) || is_dead, "{serial} is canceled, and nothing is gone");
            let is_derived = object.is_none_or(|object| object.spec.to == State::default());
            prop_assert!(is_derived || is_dead, "{serial} keeps foreign content");
            let is_reopened = object.and_then(wanted).is_none()
                || is_left
                || (is_dead && (server.forged.contains(&serial) || self.restarts > 0));
            prop_assert!(is_reopened, "the redelivery of {serial} is missing");
        }
        for process in &self.processes {
            prop_assert!(process.is_idle(server), "a dispatcher or an engine waits for ever");
        }
        if server.existing.has_pipeline && server.existing.notification.is_some() {
            prop_assert_eq!(server.cursor, server.logged());
        }
        for lane in 0..LANES {
            let changes = || server.above(0).filter(move |(_, of)| *of == lane).map(|(serial, _)| serial);
            let count = |of: &BTreeMap<i64, usize>, less: usize| -> usize {
                changes().filter_map(|serial| of.get(&serial)).map(|count| count.saturating_sub(less)).sum()
            };
            let repeated = count(&self.received, 1);
            // A user can delete a Delivery before the cursor is stored. After a crash it is recorded and sent again.
            let explained = self.restarts
                + count(&server.deleted, 0)
                + changes().filter(|serial| server.forged.contains(serial)).count();
            prop_assert!(repeated <= explained, "{repeated} requests of lane {lane} were repeated");
            let last = changes().last().and_then(|serial| server.objects.get(&serial)).map(|object| object.status.outcome);
            // Without the pipeline nothing is sent, and the origin of what other clients have created is not known.
            let is_replaced = server.existing.has_pipeline && last == Some(Some(Outcome::Superseded));
            prop_assert!(!is_replaced, "nothing later replaces the last one of lane {lane}");
        }
        Ok(())
    }
}
