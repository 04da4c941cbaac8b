//! The deliveries of direct attempts that have no object yet: where each of them is, and when it has to be recorded. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use crate::outbox::direct::Stage;
use relaybook_api::ObjectName;

/// The deliveries without an object.
#[derive(Default)]
pub(crate) struct Unrecorded {
    /// Where each of them is, and until when it can be without an object.
    stages: BTreeMap<ObjectName, (Stage, Instant)>,
    /// When these deliveries have to be recorded, the next one first. Some of them can be recorded already.
    queue: VecDeque<(Instant, ObjectName)>,
}

impl Unrecorded {
    /// Adds a delivery that waits for its attempt. Callers add deliveries in the order of `until`.
    pub(crate) fn add(&mut self, id: ObjectName, until: Instant) {
        self.queue.push_back((until, id.clone()));
        self.stages.insert(id, (Stage::Attempted, until));
    }

    pub(crate) fn get(&self, id: &ObjectName) -> Option<(Stage, Instant)> {
        self.stages.get(id).copied()
    }

    /// Sets where a delivery is, if it has no object.
    pub(crate) fn set(&mut self, id: &ObjectName, stage: Stage) {
        if let Some((known, _)) = self.stages.get_mut(id) {
            *known = stage;
        }
    }

    /// Removes a delivery. Returns whether it was there.
    pub(crate) fn remove(&mut self, id: &ObjectName) -> bool {
        self.stages.remove(id).is_some()
    }

    pub(crate) fn count(&self) -> usize {
        self.stages.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &ObjectName> {
        self.stages.keys()
    }

    /// Returns when the next delivery has to be recorded.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        self.queue.front().map(|(until, _)| *until)
    }

    /// Returns a delivery that has been without an object for the longest allowed time, once for each. It can be recorded already.
    pub(crate) fn take_overdue(&mut self, now: Instant) -> Option<ObjectName> {
        self.next_time().filter(|until| *until <= now)?;
        self.queue.pop_front().map(|(_, id)| id)
    }
}
