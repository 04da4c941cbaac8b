//! The loop of a controller: it takes events, and reconciles the keys that they wake.
//!
//! In: [`Sources`], and what the controller knows and does ([`Reconciler`]). Out: one reconcile at a time of each key, with a [`Tenure`].
//!
//! A reconcile first waits for a permit of its namespace. It starts if its bucket is ours, and if the lists are complete in the term in which its
//! tenure begins. So a reconcile that waits holds no bucket. A key that cannot start is not kept: with each new term all watches list again, and
//! each list wakes everything.
//!
//! If a source ends or a reconcile panics, the loop ends with an error, and the process must exit. So a controller never stands still unnoticed.

mod listing;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::leader::Lease;
use crate::limiter::{NamespaceLimiter, Permit};
use crate::queue::Queue;
use crate::tenure::Tenure;
pub use listing::Listing;
use relaybook_api::Backoff;
use relaybook_core::leader::bucket::Bucket;
pub use sources::Sources;
use sources::{Arrived, Watched};

/// Maximum wait for an event, if no reconcile is planned.
const IDLE: Duration = Duration::from_hours(1);
/// Maximum wait for the reconciles in progress, if the controller cannot continue.
const END: Duration = Duration::from_secs(20);

/// What a controller knows and does. The methods run in its loop, one after the other, so they must not block.
pub trait Reconciler: Send + 'static {
    /// What is reconciled.
    type Key: Clone + Debug + Eq + Hash + Ord + Send + 'static;
    /// An event of any of its sources.
    type Event: Send + 'static;
    /// The result of a reconcile.
    type Done: Send + 'static;

    /// Time from an event to the reconcile that it causes. Events in this time cause one reconcile.
    const GATHER: Duration = Duration::ZERO;
    /// The pauses after failures in a row.
    const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
    /// Whether a reconcile needs the lists of all namespaces, and not only those that can contain objects of its own.
    const NEEDS_ALL_LISTS: bool = false;

    /// Takes an event, and wakes the keys that must be reconciled.
    fn absorb(&mut self, event: Self::Event, wakes: &mut Wakes<Self::Key>);

    /// Wakes everything that is known, because a list is complete. It could not be reconciled before, or the list has ended what the watch has
    /// missed. `is_leading`: all lists are complete in the term of this replica. Not needed if [`Reconciler::absorb`] wakes all that is in the
    /// namespace of the list.
    fn listed(&mut self, _is_leading: bool, _wakes: &mut Wakes<Self::Key>) {}

    /// Called after each list if all lists are complete in this term of this replica. From then on, an unknown object does not exist.
    fn complete(&mut self, _term: u64, _wakes: &mut Wakes<Self::Key>) {}

    /// Returns where a key belongs. `None`: there is nothing to reconcile.
    fn place<'a>(&'a self, key: &'a Self::Key) -> Option<Place<'a>>;

    /// Whether another shard handles the object of a key, and a reconcile takes it over or hands it over. It needs only the bucket then.
    fn is_foreign(&self, _key: &Self::Key) -> bool {
        false
    }

    /// Called instead of a reconcile that must not start. `is_elsewhere`: another replica holds its bucket.
    fn stand_by(&mut self, _key: &Self::Key, _is_elsewhere: bool) {}

    /// Returns a reconcile, with all that it needs. `None`: there is nothing to do now.
    fn start(
        &mut self,
        key: &Self::Key,
        tenure: Tenure,
        wakes: &mut Wakes<Self::Key>,
    ) -> Option<BoxFuture<'static, Self::Done>>;

    /// Takes the result of a reconcile. Returns what follows.
    fn ended(&mut self, key: &Self::Key, done: Self::Done, wakes: &mut Wakes<Self::Key>) -> Next;

    /// Called after each change. `is_leading`: all lists are complete in the term of this replica.
    fn report(&mut self, _is_leading: bool) {}

    /// Spreads the pauses of many keys that fail at the same time.
    #[must_use]
    fn spread(pause: Duration) -> Duration {
        pause
    }

    /// Returns the last work of a controller that stops. No reconcile is in progress any more.
    fn last_work(&mut self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Where a key belongs.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The namespace that has the permit for it.
    pub namespace: &'a str,
    /// The uid that determines its bucket. `None`: it belongs to no single object.
    pub uid: Option<&'a str>,
}

/// What follows a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing before the next event, or before this time.
    Done(Option<Instant>),
    /// The same, but the API server has answered nothing that shows whether writes to the namespace hang.
    Idle(Option<Instant>),
    /// A pause, and the next try.
    Failed {
        /// Whether the API server did not answer.
        is_hung: bool,
    },
}

/// Plans reconciles.
#[derive(Debug)]
pub struct Wakes<K> {
    queue: Queue<K>,
    gather: Duration,
    /// Number of failures in a row.
    failures: HashMap<K, u32>,
    /// By number of a watch: the leadership term of its last complete list.
    listed: HashMap<usize, u64>,
}

impl<K: Clone + Eq + Hash + Ord> Wakes<K> {
    /// Plans a reconcile after an event.
    pub fn wake(&mut self, key: K) {
        self.queue.wake(key, Instant::now() + self.gather);
    }

    /// Plans a reconcile at this time. An earlier one stays.
    pub fn wake_at(&mut self, key: K, at: Instant) {
        self.queue.wake(key, at);
    }

    /// Whether the list of the watch with this number is complete in this leadership term.
    #[must_use]
    pub fn has_listed(&self, watch: usize, term: u64) -> bool {
        self.listed.get(&watch) == Some(&term)
    }

    /// Forgets the failures of a key. If its object is gone, a new one of the same name begins without them.
    pub fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }
}

/// Why a controller cannot continue. This must never happen.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// A reconcile panicked.
    #[error("the reconcile of {key} panicked")]
    Panicked {
        /// What was reconciled.
        key: String,
        /// The message of the panic.
        #[source]
        cause: JoinError,
    },
    /// A source has ended.
    #[error("a watch, or another source of events, has ended")]
    Ended,
}

/// What a task has done.
enum Step<D> {
    /// It has waited for a permit.
    Permitted(Permit),
    /// It has reconciled a key.
    Reconciled(Permit, D),
}

/// The state of the loop.
struct Controller<R: Reconciler> {
    reconciler: R,
    lease: Lease,
    limiter: NamespaceLimiter,
    watched: Vec<Watched>,
    wakes: Wakes<R::Key>,
    tasks: JoinSet<Step<R::Done>>,
    /// The key of each task.
    keys: HashMap<Id, R::Key>,
    /// Called after the first list of every watch.
    ready: Option<Box<dyn FnOnce() + Send>>,
    /// After it, nothing is written.
    stop: CancellationToken,
}

/// Runs a controller until `shutdown`. Then it waits for the reconciles in progress, which start no further write, and does the last work.
/// `limiter` limits how many reconciles run at once. `ready` is called after the first list of every watch.
pub async fn run<R: Reconciler>(
    reconciler: R,
    sources: Sources<R::Event>,
    limiter: NamespaceLimiter,
    shutdown: CancellationToken,
    ready: impl FnOnce() + Send + 'static,
) -> Result<(), Broken> {
    let Sources { lease, watched, mut events, .. } = sources;
    let (mut changes, stop) = (lease.clone(), shutdown.child_token());
    let mut controller = Controller::new(reconciler, (lease, watched), limiter, stop, Box::new(ready));
    let result = loop {
        let due = controller.start_due();
        let result = tokio::select! {
            () = shutdown.cancelled() => break Ok(()),
            arrived = events.next() => match arrived.flatten() {
                Some(arrived) => {
                    controller.arrived(arrived);
                    Ok(())
                }
                // Some sources end when the process stops.
                None if shutdown.is_cancelled() => break Ok(()),
                None => Err(Broken::Ended),
            },
            Some(ended) = controller.tasks.join_next_with_id() => controller.stepped(ended),
            () = sleep_until(due.into()) => Ok(()),
            () = changes.changed() => Ok(()),
        };
        if result.is_err() {
            break result;
        }
    };
    controller.stop.cancel();
    match result {
        Ok(()) => {
            controller.end().await?;
            controller.reconciler.last_work().await;
            Ok(())
        }
        // A reconcile that hangs must not keep the process from exiting.
        Err(broken) => {
            let _ = timeout(END, controller.end()).await;
            Err(broken)
        }
    }
}

impl<R: Reconciler> Controller<R> {
    fn new(
        reconciler: R,
        (lease, watched): (Lease, Vec<Watched>),
        limiter: NamespaceLimiter,
        stop: CancellationToken,
        ready: Box<dyn FnOnce() + Send>,
    ) -> Self {
        let wakes = Wakes { queue: Queue::default(), gather: R::GATHER, failures: HashMap::new(), listed: HashMap::new() };
        let (tasks, keys) = (JoinSet::new(), HashMap::new());
        Self { reconciler, lease, limiter, watched, wakes, tasks, keys, ready: Some(ready), stop }
    }

    fn arrived(&mut self, Arrived { event, listed }: Arrived<R::Event>) {
        self.wakes.listed.extend(listed);
        self.reconciler.absorb(event, &mut self.wakes);
        let Some(_) = listed else { return };
        let leading = self.leading();
        if let Some(term) = leading {
            self.wakes.failures.clear();
            self.reconciler.complete(term, &mut self.wakes);
        }
        self.reconciler.listed(leading.is_some(), &mut self.wakes);
        if (0..self.watched.len()).all(|watch| self.wakes.listed.contains_key(&watch))
            && let Some(ready) = self.ready.take()
        {
            ready();
        }
    }

    /// Returns the term of this replica, if all lists are complete in it.
    fn leading(&self) -> Option<u64> {
        self.lease.term().map(|term| term.number).filter(|term| self.is_listed(*term, None))
    }

    /// Whether the lists that can contain objects of this namespace are complete in this term. `None`: all lists.
    fn is_listed(&self, term: u64, namespace: Option<&str>) -> bool {
        let contains = |watched: &Watched| match (namespace, &watched.namespace) {
            (Some(namespace), Some(of)) => namespace == of,
            _ => true,
        };
        let needed = self.watched.iter().enumerate().filter(|(_, watched)| watched.is_needed && contains(watched));
        needed.map(|(watch, _)| watch).all(|watch| self.wakes.has_listed(watch, term))
    }

    /// Begins work on a key. Returns its namespace, too. `None`: there is nothing to do, or not here, or not yet.
    fn begin(&mut self, key: &R::Key) -> Option<(String, Tenure)> {
        let begun = self.reconciler.place(key).map(|place| {
            let tenure = match place.uid.filter(|_| self.reconciler.is_foreign(key)) {
                Some(uid) => Tenure::hold(&self.lease, Bucket::of(uid), &self.stop),
                None => Tenure::begin(&self.lease, place.uid, &self.stop),
            };
            let is_elsewhere = tenure.is_none() && self.lease.term().is_some();
            let needed = (!R::NEEDS_ALL_LISTS).then_some(place.namespace);
            let tenure = tenure.filter(|tenure| self.is_listed(tenure.term(), needed));
            tenure.map(|tenure| (place.namespace.to_owned(), tenure)).ok_or(is_elsewhere)
        });
        match begun {
            Some(Ok(begun)) => return Some(begun),
            Some(Err(is_elsewhere)) => self.reconciler.stand_by(key, is_elsewhere),
            None => {}
        }
        self.wakes.forget(key);
        None
    }

    /// Lets the keys that are due wait for permits. Returns when the next one is due.
    fn start_due(&mut self) -> Instant {
        self.reconciler.report(self.leading().is_some());
        let now = Instant::now();
        while let Some(key) = self.wakes.queue.begin(now) {
            if let Some((namespace, _)) = self.begin(&key) {
                let limiter = self.limiter.clone();
                self.spawn(key, async move { Step::Permitted(limiter.acquire(&namespace).await) });
            } else {
                self.wakes.queue.end(key, None);
            }
        }
        self.wakes.queue.next_at().unwrap_or(now + IDLE)
    }

    fn spawn(&mut self, key: R::Key, task: impl Future<Output = Step<R::Done>> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.keys.insert(id, key);
    }

    /// Takes the result of a task.
    fn stepped(&mut self, ended: Result<(Id, Step<R::Done>), JoinError>) -> Result<(), Broken> {
        let (id, step) = ended.map_err(|cause| self.panicked(cause))?;
        let Some(key) = self.keys.remove(&id) else { return Ok(()) };
        match step {
            Step::Permitted(permit) => self.start(key, permit),
            Step::Reconciled(permit, done) => self.ended(key, permit, done),
        }
        Ok(())
    }

    fn start(&mut self, key: R::Key, permit: Permit) {
        self.wakes.queue.restart(&key);
        if let Some((_, tenure)) = self.begin(&key)
            && let Some(reconcile) = self.reconciler.start(&key, tenure, &mut self.wakes)
        {
            self.spawn(key, async move { Step::Reconciled(permit, reconcile.await) });
        } else {
            self.wakes.queue.end(key, None);
        }
    }

    fn ended(&mut self, key: R::Key, permit: Permit, done: R::Done) {
        let next = self.reconciler.ended(&key, done, &mut self.wakes);
        if !matches!(next, Next::Idle(_)) {
            permit.finish(next != Next::Failed { is_hung: true });
        }
        let again = match next {
            Next::Done(again) | Next::Idle(again) => {
                self.wakes.forget(&key);
                again
            }
            Next::Failed { .. } => {
                let pause = R::spread(R::PAUSES.next(self.wakes.failures.entry(key.clone()).or_default()));
                Some(Instant::now() + pause)
            }
        };
        self.wakes.queue.end(key, again);
    }

    fn panicked(&self, cause: JoinError) -> Broken {
        let key = self.keys.get(&cause.id()).map(|key| format!("{key:?}")).unwrap_or_default();
        Broken::Panicked { key, cause }
    }

    /// Waits for the tasks in progress, and takes their results. Returns the first panic.
    async fn end(&mut self) -> Result<(), Broken> {
        let mut result = Ok(());
        while let Some(ended) = self.tasks.join_next_with_id().await {
            match ended {
                Ok((id, Step::Reconciled(permit, done))) => {
                    if let Some(key) = self.keys.remove(&id) {
                        self.ended(key, permit, done);
                    }
                }
                // Nothing is started any more.
                Ok((_, Step::Permitted(_))) => {}
                Err(cause) => result = result.and(Err(self.panicked(cause))),
            }
        }
        result
    }
}
