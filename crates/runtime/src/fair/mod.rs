//! Divides a fixed number of permits fairly among keys: namespaces, or persons.
//!
//! In: a key, and optionally a group, for example a server. Out: a [`Permit`], which counts until it is dropped. A caller either waits for it
//! ([`Permits::acquire`]), or gets it at once or not at all ([`Permits::try_acquire`]). Who is next is a pure decision (`turns`).
//!
//! A permit is sent to its caller through a channel. If the caller has stopped waiting, the channel drops the permit, and the next caller gets
//! it. So no permit is lost, whenever a caller stops.

mod turns;

use parking_lot::Mutex;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use relaybook_api::since_boot;
use turns::Turns;

/// How many permits there are.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of all permits.
    pub all: usize,
    /// Maximum number of permits of a key.
    pub of_key: usize,
    /// Maximum number of permits in a group.
    pub of_group: usize,
    /// Maximum number of permits of a key in a group.
    pub of_key_in_group: usize,
    /// How long a key can hold permits, in total, before it counts as slow. A quarter of the time that passes is added again. `None`: no
    /// key is slow.
    pub budget: Option<Duration>,
}

impl Limits {
    /// Limits without groups and without a budget.
    #[must_use]
    pub const fn new(all: usize, of_key: usize) -> Self {
        Self { all, of_key, of_group: all, of_key_in_group: of_key, budget: None }
    }

    /// Sets the budget.
    #[must_use]
    pub const fn with_budget(self, budget: Duration) -> Self {
        Self { budget: Some(budget), ..self }
    }
}

/// The permits. Cheap to clone.
pub struct Permits<K: Key, G: Key = ()>(Arc<Mutex<State<K, G>>>);

type State<K, G> = Turns<K, G, oneshot::Sender<Permit<K, G>>>;

/// One permit, or several that were given together.
pub struct Permit<K: Key, G: Key = ()> {
    permits: Permits<K, G>,
    key: K,
    group: G,
    count: usize,
}

/// What can be a key or a group.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Key for T {}

impl<K: Key, G: Key> Clone for Permits<K, G> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Key, G: Key> Permits<K, G> {
    /// Creates permits within these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(Turns::new(limits))))
    }

    /// Waits for the turn of a key. Drop the future to stop waiting.
    pub async fn acquire(&self, key: K, group: G) -> Permit<K, G> {
        let (sender, receiver) = oneshot::channel();
        self.change(|turns| turns.enter(key, group, sender));
        match receiver.await {
            Ok(permit) => permit,
            // A caller that waits is never removed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns this number of permits together, if they are free.
    #[must_use]
    pub fn try_acquire(&self, key: K, group: G, count: usize) -> Option<Permit<K, G>> {
        let is_taken = self.change(|turns| turns.take(&key, &group, count));
        is_taken.then(|| Permit { permits: self.clone(), key, group, count })
    }

    /// Changes the state, and sends the permits that are free now.
    fn change<R>(&self, change: impl FnOnce(&mut State<K, G>) -> R) -> R {
        let (result, next) = {
            let mut turns = self.0.lock();
            turns.pass(since_boot());
            let result = change(&mut turns);
            let next: Vec<_> = std::iter::from_fn(|| turns.next(oneshot::Sender::is_closed)).collect();
            (result, next)
        };
        for (key, group, caller) in next {
            let permit = Permit { permits: self.clone(), key, group, count: 1 };
            // Dropped here, without the lock, if the caller has just stopped waiting.
            drop(caller.send(permit));
        }
        result
    }
}

impl<K: Key, G: Key> Drop for Permit<K, G> {
    fn drop(&mut self) {
        let Self { permits, key, group, count } = self;
        permits.change(|turns| turns.release(key, group, *count));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    fn permits(all: usize) -> Permits<u8> {
        Permits::new(Limits::new(all, all))
    }

    proptest! {
        /// Callers begin to wait, are polled, stop waiting and release, in any order.
        #[test]
        fn no_permit_is_lost_or_given_twice(all in 1..4_usize, steps in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 0..60)) {
            let permits = permits(all);
            let (mut waiting, mut held) = (Vec::new(), Vec::new());
            for (what, which) in steps {
                match what {
                    0 => waiting.push(Box::pin(permits.acquire(u8::try_from(which.index(3)).unwrap(), ()))),
                    1 if !waiting.is_empty() => {
                        let at = which.index(waiting.len());
                        if let Some(permit) = waiting[at].as_mut().now_or_never() {
                            drop(waiting.remove(at));
                            held.push(permit);
                        }
                    }
                    2 if !waiting.is_empty() => drop(waiting.remove(which.index(waiting.len()))),
                    3 if !held.is_empty() => drop(held.remove(which.index(held.len()))),
                    _ => {}
                }
                prop_assert!(held.len() <= all);
            }
            drop((waiting, held));
            let again: Vec<_> = (0..all).filter_map(|_| permits.try_acquire(0, (), 1)).collect();
            prop_assert_eq!(again.len(), all.div_ceil(2).max(1), "all are free, and half of them is left for another key");
        }
    }

    #[tokio::test]
    async fn a_caller_that_stops_waiting_passes_its_permit_on() {
        let permits = permits(1);
        let held = permits.acquire(1, ()).await;
        let (mut first, mut second) = (Box::pin(permits.acquire(2, ())), Box::pin(permits.acquire(3, ())));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        drop(held);
        drop(first);
        drop(second.now_or_never().expect("its turn"));
        assert!(permits.try_acquire(1, (), 1).is_some());
    }

    #[test]
    fn several_permits_are_given_together_or_not_at_all() {
        let permits: Permits<u8> = Permits::new(Limits::new(10, 5));
        assert!(permits.try_acquire(1, (), 6).is_none(), "more than one key can have");
        let first = permits.try_acquire(1, (), 5);
        assert!(first.is_some() && permits.try_acquire(1, (), 1).is_none() && permits.try_acquire(2, (), 5).is_some());
    }
}
