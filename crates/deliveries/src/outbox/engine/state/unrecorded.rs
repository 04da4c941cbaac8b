//! The deliveries of direct attempts that have no object yet: where each of them is, when it has to be recorded, and who waits for that. Pure.
//!
//! In: accepted offers, and how recording them went. Out: the commands to answer. The change of such a delivery is still in the log of its
//! pipeline, because the cursor waits for the answer. So a crash loses nothing: the next process derives the delivery again, with the same id.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::outbox::Answer;
use crate::outbox::engine::effect::Ticket;
use crate::outbox::store::journal::JournalError;
use relaybook_api::ObjectName;

/// How long a delivery can be without an object after it was offered. It is also the time within which a receiver must have answered its
/// last request. So a pass of the dispatcher waits no longer than this for receivers.
pub(crate) const DIRECT: Duration = Duration::from_millis(250);
/// Maximum number of deliveries that wait for their first write. A crash can repeat the requests of that many lanes.
pub(crate) const MOST: usize = 512;

/// Where a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It waits for a worker, or its request is under way.
    Attempted,
    /// It is being recorded as pending.
    Recording,
    /// The result of its attempt is being written.
    Written,
    /// An object records it. The write of its result finds the object.
    Recorded,
}

#[derive(Debug)]
struct Entry {
    stage: Stage,
    /// Until when it can be without an object.
    until: Instant,
    waiting: Vec<Ticket>,
    /// How its last write failed: the message, and whether the API server refused the write.
    failure: Option<(String, bool)>,
}

/// The deliveries without an object.
#[derive(Default)]
pub(crate) struct Unrecorded {
    entries: BTreeMap<ObjectName, Entry>,
    /// When these deliveries have to be recorded, the next one first. Some of them can be recorded already.
    queue: VecDeque<(Instant, ObjectName)>,
}

impl Unrecorded {
    /// Adds a delivery that waits for its attempt. Callers add deliveries in the order of `until`.
    pub(crate) fn add(&mut self, id: ObjectName, until: Instant, ticket: Ticket) {
        self.queue.push_back((until, id.clone()));
        let entry = Entry { stage: Stage::Attempted, until, waiting: vec![ticket], failure: None };
        self.entries.insert(id, entry);
    }

    pub(crate) fn get(&self, id: &ObjectName) -> Option<(Stage, Instant)> {
        self.entries.get(id).map(|entry| (entry.stage, entry.until))
    }

    /// Sets where a delivery is, if it has no object.
    pub(crate) fn set(&mut self, id: &ObjectName, stage: Stage) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.stage = stage;
        }
    }

    /// Answers an offer of a delivery that has been offered before: at once if it is recorded, or if its last write has failed and is
    /// repeated. Otherwise the offer waits for its next write.
    pub(crate) fn ask(&mut self, id: &ObjectName, ticket: Ticket) -> Option<Answer> {
        let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.stage != Stage::Recorded) else {
            return Some(Answer::Recorded);
        };
        if entry.stage == Stage::Attempted {
            // Another write starts for this offer.
            entry.failure = None;
        }
        if entry.failure.is_none() {
            entry.waiting.push(ticket);
        }
        entry.failure.as_ref().map(failed)
    }

    /// Notes that an object records a delivery, or that none ever will because nothing refers to it any more. Returns who waited for that.
    pub(crate) fn recorded(&mut self, id: &ObjectName) -> Vec<Ticket> {
        let Some(entry) = self.entries.get_mut(id) else { return Vec::new() };
        entry.stage = Stage::Recorded;
        std::mem::take(&mut entry.waiting)
    }

    /// Notes that a write has failed. Returns the answers for those who wait.
    pub(crate) fn failed(&mut self, id: &ObjectName, error: &JournalError) -> Vec<(Ticket, Answer)> {
        let Some(entry) = self.entries.get_mut(id) else { return Vec::new() };
        let failure = (error.detail(), error.is_refused());
        let waiting = std::mem::take(&mut entry.waiting);
        let answers = waiting.into_iter().map(|ticket| (ticket, failed(&failure))).collect();
        entry.failure = Some(failure);
        answers
    }

    /// Removes a delivery. Returns who waits, or `None` if it was not there.
    pub(crate) fn remove(&mut self, id: &ObjectName) -> Option<Vec<Ticket>> {
        self.entries.remove(id).map(|entry| entry.waiting)
    }

    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &ObjectName> {
        self.entries.keys()
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

fn failed((detail, is_refused): &(String, bool)) -> Answer {
    Answer::Failed(JournalError::OutcomePending { detail: detail.clone(), is_refused: *is_refused })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_offer_is_answered_once() {
        let (mut unrecorded, id) = (Unrecorded::default(), ObjectName::new("team-a", "d"));
        let [first, second, third, fourth] = [1, 2, 3, 4].map(Ticket);
        unrecorded.add(id.clone(), Instant::now(), first);
        unrecorded.set(&id, Stage::Written);
        let failed = unrecorded.failed(&id, &JournalError::Timeout);
        let is_pending =
            |answer: &Answer| matches!(answer, Answer::Failed(JournalError::OutcomePending { is_refused: false, .. }));
        assert!(matches!(&failed[..], [(ticket, answer)] if *ticket == first && is_pending(answer)));
        let again = unrecorded.ask(&id, second);
        assert!(
            again.as_ref().is_some_and(is_pending),
            "while the write is repeated, an offer gets the last failure at once"
        );
        unrecorded.set(&id, Stage::Attempted);
        assert!(unrecorded.ask(&id, third).is_none(), "another write starts for this offer");
        assert_eq!((unrecorded.recorded(&id), unrecorded.recorded(&id)), (vec![third], vec![]));
        assert!(matches!(unrecorded.ask(&id, fourth), Some(Answer::Recorded)), "its result is still being written");
        assert_eq!((unrecorded.remove(&id), unrecorded.remove(&id), unrecorded.count()), (Some(vec![]), None, 0));
        assert!(matches!(unrecorded.ask(&id, fourth), Some(Answer::Recorded)), "it was recorded between two passes");
    }
}
