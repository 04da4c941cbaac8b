//! What the watches have told so far: which first lists are in, what a list has brought, what was deleted. Pure.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::record::RecordId;

/// Word of a deleted object may come so late: a create's answer, or a list that was begun before.
const BURIED: Duration = Duration::from_mins(1);

/// What the end of a list means.
#[derive(Debug, PartialEq, Eq)]
pub enum Listed {
    /// Other sources have not told everything yet, or no list was under way.
    NotAll,
    /// Now every source has told everything: the restart is complete.
    All,
    /// A later list; whatever it did not bring may be gone.
    Again(HashSet<RecordId>),
}

/// What the watches have told so far. Sources are numbered.
#[derive(Debug)]
pub struct Arrivals {
    lists: HashMap<usize, HashSet<RecordId>>,
    unread: HashSet<usize>,
    buried: HashMap<String, Instant>,
}

impl Arrivals {
    /// Nothing has been told by any of so many sources.
    #[must_use]
    pub fn new(sources: usize) -> Self {
        Self { lists: HashMap::new(), unread: (0..sources).collect(), buried: HashMap::new() }
    }

    /// Whether the first list of every source is in.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.unread.is_empty()
    }

    /// A source begins a list.
    pub fn begins(&mut self, source: usize) {
        self.lists.insert(source, HashSet::new());
    }

    /// A source tells of a record.
    pub fn seen(&mut self, source: usize, id: &RecordId) {
        if let Some(list) = self.lists.get_mut(&source) {
            list.insert(id.clone());
        }
    }

    /// A source has come to the end of its list.
    pub fn ends(&mut self, source: usize) -> Listed {
        let Some(list) = self.lists.remove(&source) else { return Listed::NotAll };
        if !self.unread.remove(&source) {
            return Listed::Again(list);
        }
        if self.unread.is_empty() { Listed::All } else { Listed::NotAll }
    }

    /// An object was deleted.
    pub fn bury(&mut self, uid: String, now: Instant) {
        self.buried.insert(uid, now);
    }

    /// Whether word of this object comes from before its end.
    #[must_use]
    pub fn is_buried(&self, uid: &str) -> bool {
        self.buried.contains_key(uid)
    }

    /// Forgets what was deleted long ago.
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
    fn a_relist_of_one_source_does_not_stand_for_the_first_list_of_another() {
        let mut arrivals = Arrivals::new(2);
        arrivals.begins(0);
        arrivals.seen(0, &id("x"));
        assert_eq!(arrivals.ends(0), Listed::NotAll);
        arrivals.begins(0);
        arrivals.seen(0, &id("y"));
        assert_eq!(arrivals.ends(0), Listed::Again(HashSet::from([id("y")])));
        assert!(!arrivals.complete());
        assert_eq!(arrivals.ends(1), Listed::NotAll, "no list was begun");
        arrivals.begins(1);
        assert_eq!(arrivals.ends(1), Listed::All);
        assert!(arrivals.complete());
    }

    #[test]
    fn what_is_deleted_is_remembered_for_a_while() {
        let (mut arrivals, now) = (Arrivals::new(0), Instant::now());
        arrivals.bury("u".into(), now);
        arrivals.tidy(now + BURIED / 2);
        assert!(arrivals.is_buried("u") && !arrivals.is_buried("v"));
        arrivals.tidy(now + BURIED);
        assert!(!arrivals.is_buried("u"));
    }
}
