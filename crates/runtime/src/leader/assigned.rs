//! Which objects the shard of this process handles, and which have just come from another shard. Without shards, nothing is kept.
//!
//! In: which shard handles each object, from the watches of the controllers. Out: whether work on an object can be started. An object that
//! comes from another shard is ours from the next term on, because that term begins with new lists.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;

/// Time for which a deleted object still belongs to its shard: its last deliveries are canceled by then.
const LEFT: Duration = Duration::from_hours(1);

/// What is known of the objects.
#[derive(Debug, Default)]
pub(super) struct Assigned(Mutex<HashMap<String, Object>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    place: Place,
    /// When it was deleted, by the time since boot.
    deleted: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// This shard handles it.
    Here,
    /// Another shard handles it.
    Elsewhere,
    /// It has come in the term with this number.
    Came(u64),
}

impl Assigned {
    fn objects(&self) -> MutexGuard<'_, HashMap<String, Object>> {
        self.0.lock()
    }

    /// Notes whether this shard handles an object. `term`: the current one, if its bucket is ours. Returns `true` if it came from another shard
    /// just now, so that a new term must begin.
    pub(super) fn assign(&self, uid: &str, is_ours: bool, term: Option<u64>) -> bool {
        let mut objects = self.objects();
        let before = objects.get(uid).map(|object| object.place);
        let place = match (is_ours, before, term) {
            (false, ..) => Place::Elsewhere,
            (true, Some(Place::Elsewhere), Some(term)) => Place::Came(term),
            (true, Some(Place::Came(came)), Some(term)) if came >= term => Place::Came(came),
            // Without its bucket, the term in which it is ours will be a new one.
            (true, ..) => Place::Here,
        };
        objects.insert(uid.to_owned(), Object { place, deleted: None });
        place != before.unwrap_or(place) && matches!(place, Place::Came(_))
    }

    /// Whether another shard handled an object when it was last assigned.
    pub(super) fn is_elsewhere(&self, uid: &str) -> bool {
        self.objects().get(uid).is_some_and(|object| object.place == Place::Elsewhere)
    }

    /// Whether work on an object can be started in this term. `unknown`: whether this shard handles objects that it has never seen, such as
    /// the deliveries of a pipeline that is gone.
    pub(super) fn allows(&self, uid: &str, term: u64, unknown: bool) -> bool {
        match self.objects().get(uid).map(|object| object.place) {
            None => unknown,
            Some(Place::Here) => true,
            Some(Place::Elsewhere) => false,
            Some(Place::Came(came)) => term > came,
        }
    }

    /// Notes that an object is deleted.
    pub(super) fn deleted(&self, uid: &str, now: Duration) {
        let mut objects = self.objects();
        if let Some(object) = objects.get_mut(uid) {
            object.deleted = Some(now);
        }
        objects.retain(|_, object| object.deleted.is_none_or(|at| now < at + LEFT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_from_another_shard_waits_for_the_next_term() {
        let assigned = Assigned::default();
        assert!(assigned.allows("unknown", 1, true) && !assigned.allows("unknown", 1, false));
        assert!(!assigned.assign("own", true, Some(1)) && assigned.allows("own", 1, false));
        assert!(!assigned.assign("other", false, Some(1)));
        assert!(!assigned.allows("other", 1, true) && assigned.is_elsewhere("other"));
        assert!(assigned.assign("other", true, Some(1)), "it came");
        assert!(
            !assigned.allows("other", 1, false) && assigned.allows("other", 2, false) && !assigned.is_elsewhere("other")
        );
        assert!(!assigned.assign("other", true, Some(1)), "that is returned once");
        assert!(!assigned.assign("other", true, Some(2)) && assigned.allows("other", 2, false));
        assigned.assign("other", false, Some(2));
        assert!(!assigned.assign("other", true, None) && assigned.allows("other", 3, false), "a standby lists again anyway");
    }

    #[test]
    fn a_deleted_object_belongs_to_its_shard_until_it_is_forgotten() {
        let assigned = Assigned::default();
        assigned.assign("own", true, Some(1));
        assigned.assign("other", false, Some(1));
        for uid in ["own", "other"] {
            assigned.deleted(uid, Duration::ZERO);
        }
        assert!(assigned.allows("own", 1, false) && !assigned.allows("other", 1, true));
        assigned.deleted("third", LEFT);
        assert!(assigned.objects().is_empty());
    }
}
