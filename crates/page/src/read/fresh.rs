//! Answers of the API server that are used again for half a minute.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::access::caller::{Caller, Person};
use crate::follow::room::surplus;

/// How long an answer is used again.
const FRESH: Duration = Duration::from_secs(30);
/// Maximum number of answers that are kept.
const MOST: usize = 256;

/// The answers that are kept. The key names the caller, because nobody sees the answer to another one.
pub(super) struct Fresh<K, V>(Mutex<HashMap<K, Answer<V>>>);

struct Answer<V> {
    person: Person,
    since: Instant,
    value: V,
}

impl<K, V> Default for Fresh<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Fresh<K, V> {
    /// Returns an answer that is not too old.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.0.lock().get(key).filter(|answer| answer.since.elapsed() < FRESH).map(|answer| answer.value.clone())
    }

    /// Keeps an answer to a person. If there are too many, the oldest one of the person with the most goes.
    pub(super) fn put(&self, person: Person, key: K, value: V) {
        let mut all = self.0.lock();
        all.retain(|_, answer| answer.since.elapsed() < FRESH);
        if all.len() >= MOST && !all.contains_key(&key) {
            let answers = all.iter().map(|(key, answer)| (key, answer.person.as_str(), answer.since));
            if let Some(oldest) = surplus(answers, &person).cloned() {
                all.remove(&oldest);
            }
        }
        all.insert(key, Answer { person, since: Instant::now(), value });
    }
}

/// What was read for callers, each about one subject. `None` is kept too: the caller may not read it.
pub(crate) struct Kept<S, T>(Fresh<([u8; 32], S), Option<Arc<T>>>);

impl<S, T> Default for Kept<S, T> {
    fn default() -> Self {
        Self(Fresh::default())
    }
}

impl<S: Eq + Hash + Clone, T> Kept<S, T> {
    /// Returns what is kept about a subject, or else what is read. The second value of `read` says whether it can be used again.
    pub(super) async fn or_read(
        &self,
        caller: &Caller,
        subject: S,
        read: impl Future<Output = (Option<T>, bool)>,
    ) -> Option<Arc<T>> {
        let key = (caller.key, subject);
        if let Some(kept) = self.0.get(&key) {
            return kept;
        }
        let (found, is_kept) = read.await;
        let found = found.map(Arc::new);
        if is_kept {
            self.0.put(caller.person(), key, found.clone());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_person_cannot_displace_the_answers_of_others() {
        let fresh = Fresh::default();
        let put = |person: &'static str, number: usize| fresh.put(person.to_owned(), (person, number), number);
        put("ann", 0);
        for number in 0..2 * MOST {
            put("bob", number);
        }
        let newest = 2 * MOST - 1;
        assert_eq!(fresh.get(&("ann", 0)), Some(0));
        assert_eq!((fresh.get(&("bob", 0)), fresh.get(&("bob", newest))), (None, Some(newest)));
        put("eve", 0);
        assert_eq!((fresh.get(&("ann", 0)), fresh.get(&("eve", 0)), fresh.0.lock().len()), (Some(0), Some(0), MOST));
    }
}
