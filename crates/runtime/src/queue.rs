//! Pure: when each key is reconciled. Each key waits at most once, so repeated wake-ups cost one reconcile. Two reconciles of
//! one key never overlap.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Instant;

/// The keys that wait, by time, and the keys that are being reconciled.
#[derive(Debug)]
pub struct Queue<K> {
    due: HashMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
    /// The keys that are being reconciled, and when to reconcile again.
    running: HashMap<K, Option<Instant>>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { due: HashMap::new(), order: BTreeSet::new(), running: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Plans a reconcile at this time. An earlier reconcile stays.
    pub fn wake(&mut self, key: K, at: Instant) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = Some(again.map_or(at, |again| again.min(at)));
            return;
        }
        if let Some(due) = self.due.get(&key).copied() {
            if due <= at {
                return;
            }
            self.order.remove(&(due, key.clone()));
        }
        self.due.insert(key.clone(), at);
        self.order.insert((at, key));
    }

    /// Returns when the next reconcile is due.
    pub fn next_at(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Returns a key that is due, and notes that a reconcile begins.
    pub fn begin(&mut self, now: Instant) -> Option<K> {
        if self.next_at()? > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        self.running.insert(key.clone(), None);
        Some(key)
    }

    /// Notes that a reconcile has ended. The next reconcile is the earlier of `later` and what was planned during the reconcile.
    pub fn end(&mut self, key: K, later: Option<Instant>) {
        let planned = self.running.remove(&key).flatten();
        if let Some(at) = planned.into_iter().chain(later).min() {
            self.wake(key, at);
        }
    }

    /// Notes that a reconcile begins only now, because it had to wait. It sees what happened meanwhile, so it need not be repeated for that.
    pub fn restart(&mut self, key: &K) {
        if let Some(again) = self.running.get_mut(key) {
            *again = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_key_waits_once_until_its_earliest_time() {
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let mut queue = Queue::default();
        for (key, second) in [("a", 5), ("b", 3), ("a", 1), ("a", 9)] {
            queue.wake(key, at(second));
        }
        assert_eq!((queue.next_at(), queue.begin(at(0))), (Some(at(1)), None));
        assert_eq!((queue.begin(at(4)), queue.begin(at(4)), queue.begin(at(99))), (Some("a"), Some("b"), None));
        queue.wake("a", at(6));
        queue.wake("a", at(8));
        assert_eq!(queue.next_at(), None, "no second reconcile begins");
        queue.end("a", Some(at(7)));
        queue.end("b", None);
        assert_eq!((queue.next_at(), queue.begin(at(6)), queue.begin(at(99))), (Some(at(6)), Some("a"), None));
        queue.wake("a", at(6));
        queue.restart(&"a");
        assert_eq!((queue.next_at(), queue.begin(at(99))), (None, None), "the reconcile sees what has woken it");
        queue.wake("a", at(9));
        queue.end("a", None);
        assert_eq!(queue.next_at(), Some(at(9)));
    }
}
