//! Limits concurrent calls, in total and for each namespace.
//!
//! In: the namespace of a call, and whether it was answered. Out: permits. Admission webhooks and similar components can make the calls of
//! one namespace hang until their deadline. So each namespace starts with few permits. It gains one with each response, up to a quarter of
//! the total, and loses one with each unanswered call. A hanging namespace blocks no other. What an idle namespace has lost is
//! remembered.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Initial number of permits of a namespace.
const FIRST: usize = 16;
/// A namespace can have at most the total divided by this number.
const PART: usize = 4;
/// Maximum number of idle namespaces whose lost permits are remembered. Above it, all losses are forgotten.
const REMEMBERED: usize = 1024;

/// The limiter. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct NamespaceLimiter {
    all: Arc<Semaphore>,
    most: usize,
    entries: Arc<Mutex<HashMap<String, NamespaceEntry>>>,
}

/// One namespace with calls in flight or waiting, or with lost permits.
#[derive(Debug)]
struct NamespaceEntry {
    permits: Arc<Semaphore>,
    limit: usize,
    users: usize,
}

/// Permit for one call. Dropping it without a result does not change the limit.
#[derive(Debug)]
pub struct Permit {
    own: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
    guard: EntryGuard,
}

/// A use of the entry of a namespace.
#[derive(Debug)]
struct EntryGuard {
    limiter: NamespaceLimiter,
    namespace: String,
}

impl NamespaceLimiter {
    /// Creates a limiter with this total number of concurrent calls.
    #[must_use]
    pub fn new(all: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all.max(1))), most: (all / PART).max(1), entries: Arc::default() }
    }

    /// Waits for a permit of the namespace, and then for one of the total.
    pub async fn acquire(&self, namespace: &str) -> Permit {
        let (permits, guard) = self.enter(namespace);
        // An error would mean that a semaphore is closed, which never happens.
        let own = permits.acquire_owned().await.ok();
        let of_all = self.all.clone().acquire_owned().await.ok();
        Permit { own, _of_all: of_all, guard }
    }

    fn enter(&self, namespace: &str) -> (Arc<Semaphore>, EntryGuard) {
        let limit = self.first();
        let new = || NamespaceEntry { permits: Arc::new(Semaphore::new(limit)), limit, users: 0 };
        let mut entries = self.entries();
        let entry = entries.entry(namespace.to_owned()).or_insert_with(new);
        entry.users += 1;
        (entry.permits.clone(), EntryGuard { limiter: self.clone(), namespace: namespace.to_owned() })
    }

    fn first(&self) -> usize {
        FIRST.min(self.most)
    }

    /// Adjusts the limit of a namespace after a call. A lost permit is that of the caller.
    fn adjust_limit(&self, namespace: &str, answered: bool, own: Option<OwnedSemaphorePermit>) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(namespace) else { return };
        if answered && entry.limit < self.most {
            entry.limit += 1;
            entry.permits.add_permits(1);
        }
        if !answered
            && entry.limit > 1
            && let Some(own) = own
        {
            entry.limit -= 1;
            own.forget();
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, NamespaceEntry>> {
        self.entries.lock()
    }
}

impl Permit {
    /// Records the result of the call, and releases the permit. An error response counts as answered, too.
    pub fn finish(self, answered: bool) {
        let Self { own, guard, .. } = self;
        guard.limiter.adjust_limit(&guard.namespace, answered, own);
    }
}

impl Drop for EntryGuard {
    fn drop(&mut self) {
        let mut entries = self.limiter.entries();
        let Some(entry) = entries.get_mut(&self.namespace) else { return };
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        if entry.limit >= self.limiter.first() {
            entries.remove(&self.namespace);
        } else if entries.len() > REMEMBERED {
            entries.retain(|_, entry| entry.users > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Returns all permits that are available at once.
    fn permits(limiter: &NamespaceLimiter, namespace: &str) -> Vec<Permit> {
        std::iter::from_fn(|| limiter.acquire(namespace).now_or_never()).collect()
    }

    #[test]
    fn a_hanging_namespace_leaves_permits_for_others_and_loses_its_own() {
        let limiter = NamespaceLimiter::new(256);
        let held = permits(&limiter, "hangs");
        assert_eq!(held.len(), FIRST);
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(limiter.acquire("hangs"))).collect();
        assert!(waiting.iter_mut().all(|permit| permit.now_or_never().is_none()));
        assert_eq!(permits(&limiter, "fine").len(), FIRST);
        for permit in held {
            permit.finish(false);
        }
        let mut begun: Vec<_> = waiting.iter_mut().filter_map(FutureExt::now_or_never).collect();
        assert_eq!(begun.len(), 1, "one is always left");
        begun.pop().expect("it is there").finish(true);
        let begun = waiting.iter_mut().skip(1).filter_map(FutureExt::now_or_never);
        assert_eq!(begun.count(), 2, "and an answer earns one more");
    }

    #[test]
    fn a_namespace_that_gets_answers_earns_a_quarter_of_all_permits() {
        let limiter = NamespaceLimiter::new(256);
        let mut held = permits(&limiter, "fine");
        for _ in 0..100 {
            held.pop().expect("it has some").finish(true);
            held.extend(permits(&limiter, "fine"));
        }
        assert_eq!(held.len(), 64);
    }

    #[test]
    fn all_namespaces_together_have_no_more_than_all_permits() {
        let limiter = NamespaceLimiter::new(20);
        let names = ["a", "b", "c", "d", "e"];
        let mut held: Vec<_> = names.iter().flat_map(|namespace| permits(&limiter, namespace)).collect();
        assert_eq!(held.len(), 20);
        let mut late = Box::pin(limiter.acquire("e"));
        assert!(late.as_mut().now_or_never().is_none());
        held.pop().expect("some are held").finish(true);
        assert!(late.now_or_never().is_some());
    }

    #[test]
    fn an_idle_namespace_is_forgotten() {
        let limiter = NamespaceLimiter::new(8);
        let held = permits(&limiter, "a");
        assert_eq!(limiter.entries().len(), 1);
        drop(held);
        assert!(limiter.entries().is_empty());
        assert_eq!(permits(&limiter, "a").len(), 2, "a caller that stopped waiting has no permit");
    }

    #[test]
    fn lost_permits_of_an_idle_namespace_are_remembered_but_not_of_any_number_of_namespaces() {
        let limiter = NamespaceLimiter::new(12);
        let call = |namespace: &str, answered| {
            limiter.acquire(namespace).now_or_never().expect("one is always left").finish(answered);
        };
        for (answered, left) in [(false, 2), (false, 1), (false, 1), (true, 2), (true, 3)] {
            call("a", answered);
            assert_eq!(permits(&limiter, "a").len(), left);
        }
        assert!(limiter.entries().is_empty(), "it has all of them again");
        let held = limiter.acquire("a").now_or_never();
        for n in 0..2 * REMEMBERED {
            call(&format!("n{n}"), false);
            assert!(limiter.entries().len() <= REMEMBERED, "{n}");
        }
        assert!(limiter.entries().contains_key("a"), "it is in use");
        drop(held);
    }
}
