//! What the watches have reported so far: which initial lists are complete, what a list contained, and which objects were deleted. Pure.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use relaybook_api::ObjectName;

/// Maximum delay of an event for a deleted object. Such an event is the response of a create, or comes from a list that started before the
/// deletion.
const LATE_EVENTS: Duration = Duration::from_mins(1);

/// What the watches have reported so far. Sources are numbered.
#[derive(Debug)]
pub struct InitialSync {
    lists: HashMap<usize, HashSet<ObjectName>>,
    /// By source: the leadership term of its last complete list.
    completed_terms: Vec<Option<u64>>,
    deletions: HashMap<String, Instant>,
}

impl InitialSync {
    /// Creates the state in which no source has completed its initial list.
    #[must_use]
    pub fn new(sources: usize) -> Self {
        Self { lists: HashMap::new(), completed_terms: vec![None; sources], deletions: HashMap::new() }
    }

    /// Returns the leadership term in which every source has completed its list.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        let first = self.completed_terms.first().copied().flatten();
        first.filter(|_| self.completed_terms.iter().all(|term| *term == first))
    }

    /// Starts the list of a source.
    pub fn begins(&mut self, source: usize) {
        self.lists.insert(source, HashSet::new());
    }

    /// Adds a record to the list of its source, if a list is in progress.
    pub fn seen(&mut self, source: usize, id: &ObjectName) {
        if let Some(list) = self.lists.get_mut(&source) {
            list.insert(id.clone());
        }
    }

    /// Ends the list of a source, and returns it, if one was in progress. Objects that the list did not contain may be gone.
    pub fn ends(&mut self, source: usize) -> Option<HashSet<ObjectName>> {
        self.lists.remove(&source)
    }

    /// Marks the list of a source as complete: all objects that the list did not contain were checked. Returns `true` if now, for the first
    /// time, every source is complete in this leadership term.
    pub fn complete(&mut self, source: usize, term: u64) -> bool {
        let before = self.term();
        if let Some(completed) = self.completed_terms.get_mut(source) {
            // The check of a list from an earlier leadership term can take a long time.
            *completed = (*completed).max(Some(term));
        }
        self.term() == Some(term) && before != Some(term)
    }

    /// Records that an object was deleted.
    pub fn record_deletion(&mut self, uid: String, now: Instant) {
        self.deletions.insert(uid, now);
    }

    /// Returns whether the object was deleted a short time ago. An event for it is then older than its deletion.
    #[must_use]
    pub fn was_deleted(&self, uid: &str) -> bool {
        self.deletions.contains_key(uid)
    }

    /// Removes deletions from which no late event can arrive any more.
    pub fn tidy(&mut self, now: Instant) {
        self.deletions.retain(|_, at| now.duration_since(*at) < LATE_EVENTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ObjectName {
        ObjectName::new("a", name)
    }

    #[test]
    fn the_initial_sync_is_complete_when_every_source_has_listed_in_the_term() {
        let mut initial_sync = InitialSync::new(2);
        assert_eq!(initial_sync.ends(0), None, "no list was begun");
        initial_sync.begins(0);
        initial_sync.seen(0, &id("x"));
        assert_eq!(initial_sync.ends(0), Some(HashSet::from([id("x")])));
        assert!(!initial_sync.complete(0, 1));
        assert!(!initial_sync.complete(0, 1), "a relist of one does not stand for the first list of another");
        assert_eq!(initial_sync.term(), None);
        assert!(initial_sync.complete(1, 1));
        assert!(!initial_sync.complete(1, 1));
        assert_eq!(initial_sync.term(), Some(1));
        assert!(!initial_sync.complete(0, 2));
        assert_eq!(initial_sync.term(), None, "a new term has begun");
        assert!(initial_sync.complete(1, 2));
    }

    #[test]
    fn a_deletion_is_remembered_while_late_events_can_arrive() {
        let (mut initial_sync, now) = (InitialSync::new(0), Instant::now());
        initial_sync.record_deletion("u".into(), now);
        initial_sync.tidy(now + LATE_EVENTS / 2);
        assert!(initial_sync.was_deleted("u") && !initial_sync.was_deleted("v"));
        initial_sync.tidy(now + LATE_EVENTS);
        assert!(!initial_sync.was_deleted("u"));
    }
}
