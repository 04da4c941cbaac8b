//! Answers of the API server that are used again for half a minute.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// How long an answer is used again.
const FRESH: Duration = Duration::from_secs(30);
/// Maximum number of answers that are kept.
const MOST: usize = 256;

/// The answers that are kept. The key names the caller, because nobody sees the answer to another one.
pub(super) struct Fresh<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Fresh<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Fresh<K, V> {
    /// Returns an answer that is not too old.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.0.lock().get(key).filter(|(since, _)| since.elapsed() < FRESH).map(|(_, answer)| answer.clone())
    }

    /// Keeps an answer, unless there are too many.
    pub(super) fn put(&self, key: K, answer: V) {
        let mut all = self.0.lock();
        all.retain(|_, (since, _)| since.elapsed() < FRESH);
        if all.len() < MOST {
            all.insert(key, (Instant::now(), answer));
        }
    }
}
