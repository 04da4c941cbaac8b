//! Leader election, and the division of work among replicas, by a Kubernetes Lease
//! (<https://kubernetes.io/docs/concepts/architecture/leases/>).
//!
//! In: the Lease object, by a watch and by writes that name the version they replace. Out: [`Lease`], which every controller checks before
//! it acts: which objects are ours, and for how much longer.
//!
//! The uid of an object determines its [`Bucket`], one of 16. Each bucket has one holder at a time. The replicas of a controller are members of
//! one Lease, and divide the buckets evenly. [`table`](relaybook_core::leader::table) is the content
//! of the Lease, [`candidacy`](relaybook_core::leader::candidacy) decides, and `keeper` makes the calls.
//!
//! Each member declares in the Lease how long its membership lasts. It trusts its membership for that time from the moment *before* it sent the
//! renewal that was answered. Another replica removes it that time *after* it saw that renewal. So two replicas never hold one bucket at once, whatever their wall clocks are, if none starts work that can
//! outlast its membership: hence [`Lease::allows`]. A bucket that is given away becomes free when the work in progress has ended:
//! hence [`Lease::hold`].

mod assigned;
mod keeper;
mod needs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::{Notify, watch};

use assigned::Assigned;
pub use keeper::{Keeper, LeaseError, Named};
use needs::Needs;
use relaybook_api::values::shard::Sharding;
use relaybook_api::{Pipeline, since_boot};
use relaybook_core::leader::bucket::{Bucket, Buckets, COUNT};

/// Margin for clocks that run unevenly, and for the time between a decision and its action.
const MARGIN: Duration = Duration::from_secs(5);

/// A period in which this process holds the same buckets, or loses some of them. A bucket that it gains begins a new term, and so does a
/// raised epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadershipTerm {
    /// Sequence number of this term within the process, starting at 1.
    pub number: u64,
    /// `leaseTransitions`: higher than that of every earlier holder of each of its buckets.
    pub epoch: i32,
}

/// State that the keeper publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct View {
    term: Option<LeadershipTerm>,
    /// The buckets in which work can be started.
    buckets: Buckets,
    /// By bucket: the number of the term since which it has been ours without interruption.
    since: [u64; COUNT as usize],
    /// Time until which they are certainly ours, by [`since_boot`].
    until: Duration,
}

/// How much work is in progress in each bucket.
#[derive(Debug, Default)]
struct Uses {
    counts: [AtomicUsize; COUNT as usize],
    /// The buckets that are given away.
    given: AtomicU16,
    /// Notified when the last work in one of them has ended.
    ended: Notify,
}

impl Uses {
    /// Returns the buckets without work in progress.
    fn idle(&self) -> Buckets {
        Bucket::all().filter(|bucket| self.counts[bucket.index()].load(Ordering::SeqCst) == 0).collect()
    }
}

/// Work in progress in a bucket. The bucket is not handed over before this value is dropped.
#[derive(Debug)]
pub struct Busy {
    uses: Arc<Uses>,
    bucket: Bucket,
    /// The term in which the work was begun.
    term: u64,
}

impl Busy {
    /// Returns the number of the term in which the work was begun.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let is_last = self.uses.counts[self.bucket.index()].fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && Buckets::from_bits(self.uses.given.load(Ordering::SeqCst)).contains(self.bucket) {
            self.uses.ended.notify_one();
        }
    }
}

/// Access to the state of a Lease, and to the shards of its objects. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Lease {
    view: watch::Receiver<View>,
    term_numbers: watch::Receiver<Option<u64>>,
    above: watch::Sender<i32>,
    /// How many objects have come from other shards, and the highest epoch that the next term must exceed.
    came: watch::Sender<(u64, i32)>,
    uses: Arc<Uses>,
    sharding: Arc<Sharding>,
    assigned: Arc<Assigned>,
    needs: Arc<Needs>,
}

impl Lease {
    /// Returns the current term. `None`: this replica holds no bucket. It can have expired without notice, so [`Lease::allows`] must be
    /// checked before each action.
    #[must_use]
    pub fn term(&self) -> Option<LeadershipTerm> {
        self.view.borrow().term
    }

    /// Returns the buckets in which this replica can start work.
    #[must_use]
    pub fn buckets(&self) -> Buckets {
        self.view.borrow().buckets
    }

    /// Returns what it allows now.
    #[must_use]
    pub fn look(&self) -> LeaseView<'_> {
        LeaseView { view: *self.view.borrow(), lease: self }
    }

    /// Whether work on the object with this uid can be started here. `allows` must be checked as well.
    #[must_use]
    pub fn owns(&self, uid: &str) -> bool {
        self.look().owns(uid)
    }

    /// Returns the shard of this process, and all shards.
    #[must_use]
    pub fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    /// Notes whether the shard of this process handles an object. If the object has come from another shard, a new term begins soon, and it is
    /// ours from then on. `above`: the epoch of that term is higher than this one.
    pub fn assign(&self, uid: &str, is_ours: bool, above: i32) {
        if !self.sharding.is_used() {
            return;
        }
        let term = self.term().filter(|_| self.buckets().contains(Bucket::of(uid)));
        if self.assigned.assign(uid, is_ours, term.map(|term| term.number)) {
            self.came.send_modify(|(count, epoch)| (*count, *epoch) = (count.wrapping_add(1), above.max(*epoch)));
        }
    }

    /// Notes which shard handles a pipeline. One that this shard has to hand over is handled as before, until that is done.
    pub fn assign_pipeline(&self, pipeline: &Pipeline) {
        if self.sharding.leaves(pipeline).is_none() {
            self.assign(pipeline.metadata.uid.as_deref().unwrap_or_default(), self.sharding.holds(pipeline), 0);
        }
    }

    /// Notes which shard handles an object with these labels.
    pub fn assign_labeled(&self, meta: &ObjectMeta) {
        let is_ours = self.sharding.of_labels(meta.labels.as_ref()) == self.sharding.id;
        self.assign(meta.uid.as_deref().unwrap_or_default(), is_ours, 0);
    }

    /// Whether another shard handled this object when it was last assigned.
    #[must_use]
    pub fn is_elsewhere(&self, uid: &str) -> bool {
        self.assigned.is_elsewhere(uid)
    }

    /// Notes that an object is deleted. For a while it still belongs to its shard.
    pub fn deleted(&self, uid: &str) {
        if self.sharding.is_used() {
            self.assigned.deleted(uid, since_boot());
        }
    }

    /// Whether this replica does the work that belongs to no single object. Of all shards, the one without an ID does it.
    #[must_use]
    pub fn owns_common(&self) -> bool {
        self.look().owns_common()
    }

    /// Whether the bucket of an object has been ours without interruption since the term with this number.
    #[must_use]
    pub fn has_kept(&self, uid: &str, term: u64) -> bool {
        let view = *self.view.borrow();
        let bucket = Bucket::of(uid);
        view.buckets.contains(bucket) && view.since[bucket.index()] <= term
    }

    /// Begins work on the object with this uid. `None`: its bucket is not ours, or is given away.
    #[must_use]
    pub fn begin(&self, uid: &str) -> Option<Busy> {
        self.hold(Bucket::of(uid)).filter(|_| self.owns(uid))
    }

    /// Begins work in a bucket. `None`: it is not ours, or is given away.
    #[must_use]
    pub fn hold(&self, bucket: Bucket) -> Option<Busy> {
        // Counted before the check: the keeper publishes that a bucket is given away before it looks at the count.
        self.uses.counts[bucket.index()].fetch_add(1, Ordering::SeqCst);
        let view = *self.view.borrow();
        let term = view.term.map_or(0, |term| term.number);
        let busy = Busy { uses: self.uses.clone(), bucket, term };
        view.buckets.contains(bucket).then_some(busy)
    }

    /// Whether an action in one of our buckets may start that takes at most this long.
    #[must_use]
    pub fn allows(&self, duration: Duration) -> bool {
        self.look().until(duration, Duration::ZERO, since_boot()).is_some()
    }

    /// Waits until an action may start that takes at most this long. Returns `false` if the term ends first.
    pub async fn wait(&self, duration: Duration) -> bool {
        let mut view = self.view.clone();
        loop {
            if self.allows(duration) {
                return true;
            }
            if view.borrow_and_update().term.is_none() || view.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Like `wait`, but returns `false` also if a later term than that of the work has begun. A replica that was removed and has joined again
    /// must not continue what it has begun before, because another one has held the bucket meanwhile.
    pub async fn wait_with(&self, busy: &Busy, duration: Duration) -> bool {
        self.wait(duration).await && self.is_current(busy)
    }

    /// Whether the term in which this work was begun continues.
    #[must_use]
    pub fn is_current(&self, busy: &Busy) -> bool {
        self.term().is_some_and(|term| term.number == busy.term)
    }

    /// Waits for the next update of the keeper: a term has started, was extended, or has ended, or buckets are given away.
    pub async fn changed(&mut self) {
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns the number of the latest term: 0 if there was none, `None` while the holders are not known. With each new number, all watches
    /// must list again, because the previous holder may have written something that a watch has not delivered yet.
    #[must_use]
    pub fn term_numbers(&self) -> watch::Receiver<Option<u64>> {
        self.term_numbers.clone()
    }

    /// Returns a Lease of which all buckets are ours for this time, in the first term, without a keeper.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn held(duration: Duration) -> Self {
        let term = Some(LeadershipTerm { number: 1, epoch: 1 });
        let until = since_boot() + duration;
        let (_, view) = watch::channel(View { term, buckets: Buckets::ALL, until, ..View::default() });
        let (_, term_numbers) = watch::channel(Some(1));
        let (above, came, uses) = (watch::Sender::new(1), watch::Sender::default(), Arc::default());
        Self {
            view,
            term_numbers,
            above,
            came,
            uses,
            sharding: Arc::default(),
            assigned: Arc::default(),
            needs: Arc::default(),
        }
    }

    /// Returns the same for a shard that has seen no objects yet.
    #[cfg(test)]
    pub(crate) fn of_shard(self, id: &str) -> Self {
        let sharding = Sharding { id: id.to_owned(), all: vec![id.to_owned()], ..Sharding::default() };
        Self { sharding: Arc::new(sharding), ..self }
    }

    /// Returns the same, and what changes it.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn renewable(duration: Duration) -> (Self, Renewal) {
        let lease = Self::held(duration);
        let (publish, view) = watch::channel(*lease.view.borrow());
        (Self { view, ..lease }, Renewal(publish))
    }

    /// Reports an epoch that is above ours. If the bucket is still ours, the Lease was deleted, or the epoch was read from another cluster. In
    /// both cases our epoch is raised above it. If the bucket is not ours any more, the next write detects that.
    pub fn raise(&self, above: i32) {
        self.above.send_if_modified(|known| std::mem::replace(known, above.max(*known)) < above);
    }
}

/// What a Lease allows, as its keeper had published it at one moment. Which shard handles an object is read at each question.
#[derive(Clone, Copy, Debug)]
pub struct LeaseView<'a> {
    view: View,
    lease: &'a Lease,
}

impl LeaseView<'_> {
    /// Returns the term. `None`: this replica holds no bucket.
    #[must_use]
    pub fn term(&self) -> Option<LeadershipTerm> {
        self.view.term
    }

    /// Returns the buckets in which this replica can start work.
    #[must_use]
    pub fn buckets(&self) -> Buckets {
        self.view.buckets
    }

    /// Whether work on the object with this uid can be started here. `until` must be checked as well.
    #[must_use]
    pub fn owns(&self, uid: &str) -> bool {
        let Lease { sharding, assigned, .. } = self.lease;
        let of_shard =
            |term: LeadershipTerm| !sharding.is_used() || assigned.allows(uid, term.number, sharding.id.is_empty());
        self.view.buckets.contains(Bucket::of(uid)) && self.view.term.is_some_and(of_shard)
    }

    /// Whether this replica does the work that belongs to no single object.
    #[must_use]
    pub fn owns_common(&self) -> bool {
        self.lease.sharding.id.is_empty() && self.view.buckets.contains(Bucket::COMMON)
    }

    /// Whether no other replica and no other shard has a part of the work.
    #[must_use]
    pub fn owns_all(&self) -> bool {
        self.view.buckets == Buckets::ALL && self.lease.sharding.all.is_empty()
    }

    /// Returns which part of some objects is ours: how many of them, and of how many.
    #[must_use]
    pub fn part<'u>(&self, uids: impl Iterator<Item = &'u str>) -> (usize, usize) {
        uids.fold((0, 0), |(ours, all), uid| (ours + usize::from(self.owns(uid)), all + 1))
    }

    /// Returns when an action that starts now must end: after `takes`, by [`since_boot`]. `None`: it may not start, because the membership does
    /// not last for it and for what follows within `after`. If no renewal lasts so long, the next ones do, for a while. `boot`: the time since
    /// boot, read once. So a process that is frozen afterwards does not extend the action.
    #[must_use]
    pub fn until(&self, takes: Duration, after: Duration, boot: Duration) -> Option<Duration> {
        self.lease.needs.ask(takes + after, boot);
        (self.view.term.is_some() && boot + takes + after + MARGIN < self.view.until).then_some(boot + takes)
    }
}

/// Changes a Lease in a test.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug)]
pub struct Renewal(watch::Sender<View>);

#[cfg(any(test, feature = "testing"))]
impl Renewal {
    /// Sets how long the membership lasts from now on. `None`: all buckets are given away.
    pub fn set(&self, duration: Option<Duration>) {
        let until = since_boot() + duration.unwrap_or_default();
        let buckets = if duration.is_some() { Buckets::ALL } else { Buckets::default() };
        self.0.send_modify(|view| (view.until, view.buckets) = (until, buckets));
    }

    /// Begins the term with this number, or ends the term.
    pub fn set_term(&self, number: Option<u64>) {
        self.0.send_modify(|view| view.term = number.map(|number| LeadershipTerm { number, epoch: 1 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a Lease, and what its keeper publishes.
    fn lease(id: &str) -> (watch::Sender<View>, Lease) {
        let (publish, view) = watch::channel(View::default());
        let sharding = Sharding { id: id.to_owned(), all: vec!["eu".to_owned()], ..Sharding::default() };
        (publish, Lease { view, sharding: Arc::new(sharding), ..Lease::held(Duration::ZERO) })
    }

    fn view(number: u64, buckets: Buckets) -> View {
        let term = Some(LeadershipTerm { number, epoch: 1 });
        View { term, buckets, since: [number; COUNT as usize], until: since_boot() + Duration::from_mins(1) }
    }

    #[test]
    fn work_holds_its_bucket_and_no_work_begins_in_a_bucket_being_given_away() {
        let (publish, lease) = lease("");
        assert!(lease.begin("u").is_none() && !lease.owns("u"), "nothing is ours");
        publish.send_replace(view(3, Buckets::ALL));
        let (bucket, busy) = (Bucket::of("u"), lease.begin("u").unwrap());
        let only: Buckets = [bucket].into_iter().collect();
        assert_eq!(lease.uses.idle(), Buckets::ALL.without(only));
        publish.send_replace(View { since: [1; COUNT as usize], ..view(3, Buckets::ALL.without(only)) });
        assert!(lease.begin("u").is_none() && lease.hold(bucket).is_none() && !lease.has_kept("u", 3));
        assert_eq!(lease.uses.idle(), Buckets::ALL.without(only), "what was refused is not counted");
        assert!(lease.is_current(&busy) && busy.term() == 3);
        drop(busy);
        assert_eq!(lease.uses.idle(), Buckets::ALL);
    }

    #[tokio::test]
    async fn work_of_an_earlier_term_does_not_continue() {
        let (publish, lease) = lease("");
        publish.send_replace(view(1, Buckets::ALL));
        let busy = lease.begin("u").unwrap();
        assert!(lease.wait_with(&busy, Duration::from_secs(1)).await && lease.has_kept("u", 1));
        // The replica was removed, and has joined again.
        publish.send_replace(view(2, Buckets::ALL));
        assert!(lease.wait(Duration::from_secs(1)).await && !lease.wait_with(&busy, Duration::from_secs(1)).await);
        assert!(!lease.has_kept("u", 1));
        // Another bucket was gained.
        publish.send_replace(View { since: [2; COUNT as usize], ..view(3, Buckets::ALL) });
        assert!(lease.has_kept("u", 2) && !lease.is_current(&busy));
    }

    #[test]
    fn objects_of_another_shard_are_not_owned() {
        let ((publish, lease), (also, other)) = (lease(""), lease("eu"));
        for publish in [&publish, &also] {
            publish.send_replace(view(1, Buckets::ALL));
        }
        assert!(lease.owns("unknown") && !other.owns("unknown"));
        assert!(lease.owns_common() && !other.owns_common());
        lease.assign("u", false, 0);
        other.assign("u", true, 0);
        assert!(!lease.owns("u") && lease.begin("u").is_none() && other.owns("u"));
        assert_eq!(lease.look().part(["u", "v"].into_iter()), (1, 2));
        lease.assign("u", true, 7);
        assert_eq!((lease.owns("u"), *lease.came.borrow()), (false, (1, 7)), "the next term begins first");
        publish.send_replace(view(2, Buckets::ALL));
        assert!(lease.owns("u"));
        lease.deleted("u");
        assert!(lease.owns("u"), "its last deliveries are ours");
    }
}
