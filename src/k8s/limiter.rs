//! How many calls are under way at once, of all and of each namespace.
//!
//! In: the namespace of a call, and whether it was answered. Out: permits. Admission webhooks and similar components can make the calls
//! of one namespace hang until their deadline. So each namespace starts with few permits, gains one with each answer, up to a part of
//! all, and loses one with each unanswered call. A hanging namespace blocks no other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a namespace begins with.
const FIRST: usize = 16;
/// What it may earn, as a part of all.
const PART: usize = 4;

/// The gate; cheap to clone.
#[derive(Clone, Debug)]
pub struct NamespaceLimiter {
    all: Arc<Semaphore>,
    most: usize,
    rooms: Arc<Mutex<HashMap<String, Room>>>,
}

/// One namespace that somebody calls, or waits to call.
#[derive(Debug)]
struct Room {
    turns: Arc<Semaphore>,
    limit: usize,
    users: usize,
}

/// The right to make one call. One that is dropped without a word has taught nothing.
#[derive(Debug)]
pub struct Turn {
    own: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
    visit: Visit,
}

/// Keeps a room as long as somebody is in it.
#[derive(Debug)]
struct Visit {
    limiter: NamespaceLimiter,
    namespace: String,
}

impl NamespaceLimiter {
    /// The limit of concurrent calls of all namespaces together.
    #[must_use]
    pub fn new(all: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all.max(1))), most: (all / PART).max(1), rooms: Arc::default() }
    }

    /// Waits for a turn: first among those of the namespace, then among all.
    pub async fn pass(&self, namespace: &str) -> Turn {
        let (turns, visit) = self.enter(namespace);
        // An error would mean that a semaphore was closed, which is never done.
        let own = turns.acquire_owned().await.ok();
        let of_all = self.all.clone().acquire_owned().await.ok();
        Turn { own, _of_all: of_all, visit }
    }

    fn enter(&self, namespace: &str) -> (Arc<Semaphore>, Visit) {
        let limit = FIRST.min(self.most);
        let new = || Room { turns: Arc::new(Semaphore::new(limit)), limit, users: 0 };
        let mut rooms = self.rooms();
        let room = rooms.entry(namespace.to_owned()).or_insert_with(new);
        room.users += 1;
        (room.turns.clone(), Visit { limiter: self.clone(), namespace: namespace.to_owned() })
    }

    /// The turns that a namespace has after a call. One that is lost is the caller's own, once.
    fn learn(&self, namespace: &str, answered: bool, own: &mut Option<OwnedSemaphorePermit>) {
        let mut rooms = self.rooms();
        let Some(room) = rooms.get_mut(namespace) else { return };
        if answered && room.limit < self.most {
            room.limit += 1;
            room.turns.add_permits(1);
        }
        if !answered
            && room.limit > 1
            && let Some(own) = own.take()
        {
            room.limit -= 1;
            own.forget();
        }
    }

    fn rooms(&self) -> MutexGuard<'_, HashMap<String, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// A call of this turn is over. `answered`: by whatever word.
    pub fn note(&mut self, answered: bool) {
        let Self { own, visit, .. } = self;
        visit.limiter.learn(&visit.namespace, answered, own);
    }

    /// The only call of this turn is over.
    pub fn over(mut self, answered: bool) {
        self.note(answered);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut rooms = self.limiter.rooms();
        let Some(room) = rooms.get_mut(&self.namespace) else { return };
        room.users -= 1;
        if room.users == 0 {
            rooms.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// All the turns that can be had at once.
    fn turns(limiter: &NamespaceLimiter, namespace: &str) -> Vec<Turn> {
        std::iter::from_fn(|| limiter.pass(namespace).now_or_never()).collect()
    }

    #[test]
    fn a_namespace_that_hangs_leaves_room_and_loses_its_turns() {
        let limiter = NamespaceLimiter::new(256);
        let held = turns(&limiter, "hangs");
        assert_eq!(held.len(), FIRST);
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(limiter.pass("hangs"))).collect();
        assert!(waiting.iter_mut().all(|pass| pass.now_or_never().is_none()));
        assert_eq!(turns(&limiter, "fine").len(), FIRST);
        for turn in held {
            turn.over(false);
        }
        let mut begun: Vec<_> = waiting.iter_mut().filter_map(FutureExt::now_or_never).collect();
        assert_eq!(begun.len(), 1, "one is always left");
        begun.pop().expect("it is there").over(true);
        let begun = waiting.iter_mut().skip(1).filter_map(FutureExt::now_or_never);
        assert_eq!(begun.count(), 2, "and an answer earns one more");
    }

    #[test]
    fn a_namespace_that_is_answered_earns_a_part_of_all() {
        let limiter = NamespaceLimiter::new(256);
        let mut held = turns(&limiter, "fine");
        for _ in 0..100 {
            held.pop().expect("it has some").over(true);
            held.extend(turns(&limiter, "fine"));
        }
        assert_eq!(held.len(), 64);
    }

    #[test]
    fn together_they_have_no_more_than_all() {
        let limiter = NamespaceLimiter::new(20);
        let names = ["a", "b", "c", "d", "e"];
        let mut held: Vec<_> = names.iter().flat_map(|namespace| turns(&limiter, namespace)).collect();
        assert_eq!(held.len(), 20);
        let mut late = Box::pin(limiter.pass("e"));
        assert!(late.as_mut().now_or_never().is_none());
        held.pop().expect("some are held").over(true);
        assert!(late.now_or_never().is_some());
    }

    #[test]
    fn nothing_is_kept_of_a_namespace_that_rests() {
        let limiter = NamespaceLimiter::new(8);
        let held = turns(&limiter, "a");
        assert_eq!(limiter.rooms().len(), 1);
        drop(held);
        assert!(limiter.rooms().is_empty());
        assert_eq!(turns(&limiter, "a").len(), 2, "whoever gave up waiting holds nothing");
    }
}
