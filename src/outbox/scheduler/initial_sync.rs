//! What the watches have reported so far: which initial lists are complete, what a list contained, and what was deleted. Pure.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::outbox::record::RecordId;

/// How late an event of a deleted object can arrive: as the response of a create, or from a list that started before.
const BURIED: Duration = Duration::from_mins(1);

/// What the watches have reported so far. Sources are numbered.
#[derive(Debug)]
pub struct InitialSync {
    lists: HashMap<usize, HashSet<RecordId>>,
    /// By source: the leadership term of its last complete list.
    told: Vec<Option<u64>>,
    buried: HashMap<String, Instant>,
}

impl InitialSync {
    /// None of these sources has sent its initial list.
    #[must_use]
    pub fn new(sources: usize) -> Self {
        Self { lists: HashMap::new(), told: vec![None; sources], buried: HashMap::new() }
    }

    /// The leadership term in which every source has completed its list.
    #[must_use]
    pub fn turn(&self) -> Option<u64> {
        let first = self.told.first().copied().flatten();
        first.filter(|_| self.told.iter().all(|turn| *turn == first))
    }

    /// A source starts a list.
    pub fn begins(&mut self, source: usize) {
        self.lists.insert(source, HashSet::new());
    }

    /// A source sends a record.
    pub fn seen(&mut self, source: usize, id: &RecordId) {
        if let Some(list) = self.lists.get_mut(&source) {
            list.insert(id.clone());
        }
    }

    /// A source has completed its list, if one was in progress. Objects that the list did not contain may be gone.
    pub fn ends(&mut self, source: usize) -> Option<HashSet<RecordId>> {
        self.lists.remove(&source)
    }

    /// Everything that a source's list did not contain has been checked. Returns `true` if now, for the first time, every source is
    /// complete in this leadership term.
    pub fn complete(&mut self, source: usize, turn: u64) -> bool {
        let before = self.turn();
        if let Some(told) = self.told.get_mut(source) {
            // The check of a list from an earlier leadership term can take a long time.
            *told = (*told).max(Some(turn));
        }
        self.turn() == Some(turn) && before != Some(turn)
    }

    /// An object was deleted.
    pub fn bury(&mut self, uid: String, now: Instant) {
        self.buried.insert(uid, now);
    }

    /// Whether an event of this object is older than its deletion.
    #[must_use]
    pub fn is_buried(&self, uid: &str) -> bool {
        self.buried.contains_key(uid)
    }

    /// Forgets old deletions.
    pub fn tidy(&mut self, now: Instant) {
        self.buried.retain(|_, at| now.duration_since(*at) < BURIED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> RecordId {
        RecordId { namespace: "a".into(), name: name.into() }
    }

    #[test]
    fn a_turn_is_complete_when_every_source_has_listed_in_it() {
        let mut initial_sync = InitialSync::new(2);
        assert_eq!(initial_sync.ends(0), None, "no list was begun");
        initial_sync.begins(0);
        initial_sync.seen(0, &id("x"));
        assert_eq!(initial_sync.ends(0), Some(HashSet::from([id("x")])));
        assert!(!initial_sync.complete(0, 1));
        assert!(!initial_sync.complete(0, 1), "a relist of one does not stand for the first list of another");
        assert_eq!(initial_sync.turn(), None);
        assert!(initial_sync.complete(1, 1));
        assert!(!initial_sync.complete(1, 1));
        assert_eq!(initial_sync.turn(), Some(1));
        assert!(!initial_sync.complete(0, 2));
        assert_eq!(initial_sync.turn(), None, "a new turn has begun");
        assert!(initial_sync.complete(1, 2));
    }

    #[test]
    fn what_is_deleted_is_remembered_for_a_while() {
        let (mut initial_sync, now) = (InitialSync::new(0), Instant::now());
        initial_sync.bury("u".into(), now);
        initial_sync.tidy(now + BURIED / 2);
        assert!(initial_sync.is_buried("u") && !initial_sync.is_buried("v"));
        initial_sync.tidy(now + BURIED);
        assert!(!initial_sync.is_buried("u"));
    }
}
