//! A bounded work queue. Each key is queued at most once, so repeated wake-ups cost one reconcile. Keys keep their order, so a frequent key
//! does not delay others.

use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use futures::{Stream, stream};
use tokio::sync::Notify;

/// A queue of keys that have to be reconciled, for any number of writers and one reader.
#[derive(Debug)]
pub struct WorkQueue<K> {
    waiting: Arc<Mutex<Waiting<K>>>,
    notify: Arc<Notify>,
}

#[derive(Debug)]
struct Waiting<K> {
    order: VecDeque<K>,
    keys: HashSet<K>,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self { order: VecDeque::new(), keys: HashSet::new() }
    }
}

impl<K: Eq + Hash + Clone> Waiting<K> {
    fn push(&mut self, key: K) {
        if self.keys.insert(key.clone()) {
            self.order.push_back(key);
        }
    }

    fn pop(&mut self) -> Option<K> {
        let key = self.order.pop_front()?;
        self.keys.remove(&key);
        Some(key)
    }
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { waiting: self.waiting.clone(), notify: self.notify.clone() }
    }
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self { waiting: Arc::default(), notify: Arc::default() }
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> WorkQueue<K> {
    /// Queues `key` for a reconcile.
    pub fn wake(&self, key: K) {
        self.waiting.lock().push(key);
        self.notify.notify_one();
    }

    /// Returns the keys in the order in which they arrive. The stream never ends.
    pub fn stream(&self) -> impl Stream<Item = K> + Send + 'static {
        stream::unfold(self.clone(), |work_queue| async move {
            loop {
                let key = work_queue.waiting.lock().pop();
                match key {
                    Some(key) => return Some((key, work_queue)),
                    None => work_queue.notify.notified().await,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn a_key_that_is_woken_several_times_is_returned_once() {
        let work_queue = WorkQueue::default();
        for key in ["a", "b", "a", "a"] {
            work_queue.wake(key);
        }
        let mut stream = Box::pin(work_queue.stream());
        let mut got = vec![stream.next().await.unwrap(), stream.next().await.unwrap()];
        got.sort_unstable();
        assert_eq!(got, ["a", "b"]);
        assert!(futures::poll!(stream.next()).is_pending());
        work_queue.wake("a");
        assert_eq!(stream.next().await, Some("a"));
    }
}
