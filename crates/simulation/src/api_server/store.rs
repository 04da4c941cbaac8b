//! Pure: the objects of one kind, with the history of their changes.
//!
//! In: changes, each with a new version. Out: the objects as they were at a version, and the changes since.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::object::Object;

/// One change of an object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    key: String,
    pub(super) before: Option<Arc<Object>>,
    pub(super) after: Option<Arc<Object>>,
}

/// The objects of one kind.
#[derive(Debug, Default)]
pub(super) struct Collection {
    objects: BTreeMap<String, Arc<Object>>,
    /// The changes, oldest first.
    changes: Vec<Change>,
    /// The version of the newest change that is not in the history any more.
    pub(super) forgotten: u64,
}

impl Collection {
    pub(super) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Stores an object, or removes it.
    pub(super) fn set(&mut self, key: &str, version: u64, after: Option<Arc<Object>>) {
        let before = match &after {
            Some(object) => self.objects.insert(key.to_owned(), object.clone()),
            None => self.objects.remove(key),
        };
        self.changes.push(Change { version, key: key.to_owned(), before, after });
    }

    /// Returns the objects as they were at a version that is in the history, by key.
    pub(super) fn at(&self, version: u64) -> BTreeMap<&str, &Arc<Object>> {
        let mut objects: BTreeMap<&str, &Arc<Object>> =
            self.objects.iter().map(|(key, object)| (key.as_str(), object)).collect();
        for change in self.since(version).iter().rev() {
            match &change.before {
                Some(before) => _ = objects.insert(&change.key, before),
                None => _ = objects.remove(change.key.as_str()),
            }
        }
        objects
    }

    /// Returns the changes after a version, oldest first.
    pub(super) fn since(&self, version: u64) -> &[Change] {
        &self.changes[self.changes.partition_point(|change| change.version <= version)..]
    }

    /// Forgets the changes up to a version.
    pub(super) fn compact(&mut self, version: u64) {
        let kept = self.changes.partition_point(|change| change.version <= version);
        if let Some(last) = self.changes.drain(..kept).next_back() {
            self.forgotten = last.version;
        }
    }
}
