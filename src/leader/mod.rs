//! Leader election: one of any number of replicas is the leader, by a Kubernetes Lease
//! (<https://kubernetes.io/docs/concepts/architecture/leases/>).
//!
//! In: the Lease object, by a watch and by writes that name the version they replace. Out: [`Lease`], which every controller checks before
//! it acts: whether the Lease is ours, and for how much longer.
//!
//! `candidacy` decides and is pure; `keeper` makes the calls. A holder trusts its Lease for 90 s from the moment *before* it sent the
//! renewal that was answered. Another replica acquires it 90 s *after* it saw that renewal. So two replicas never lead at once, whatever
//! their wall clocks are, if none starts work that can outlast its Lease: hence [`Lease::allows`].

mod candidacy;
mod keeper;

use std::time::Duration;

use tokio::sync::watch;

use crate::api::since_boot;
pub use keeper::{Keeper, LeaseError, Named};

/// Margin for clocks that run unevenly, and for the time between a decision and its action.
const MARGIN: Duration = Duration::from_secs(5);

/// A period in which this process holds the Lease without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadershipTerm {
    /// Sequence number of this term within the process, starting at 1.
    pub number: u64,
    /// `leaseTransitions`: higher than that of every earlier holder.
    pub epoch: i32,
}

/// State that the keeper publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct View {
    term: Option<LeadershipTerm>,
    /// Time until which the Lease is certainly ours, by [`since_boot`].
    until: Duration,
}

/// Access to the state of a Lease. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Lease {
    view: watch::Receiver<View>,
    term_numbers: watch::Receiver<Option<u64>>,
    above: watch::Sender<i32>,
}

impl Lease {
    /// Returns the current term. It can have expired without notice, so [`Lease::allows`] must be checked before each action.
    #[must_use]
    pub fn term(&self) -> Option<LeadershipTerm> {
        self.view.borrow().term
    }

    /// Whether an action may start that takes at most this long.
    #[must_use]
    pub fn allows(&self, duration: Duration) -> bool {
        let view = *self.view.borrow();
        view.term.is_some() && since_boot() + duration + MARGIN < view.until
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

    /// Waits for the next update of the keeper: a term has started, was extended, or has ended.
    pub async fn changed(&mut self) {
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns the number of the latest term: 0 if there was none, `None` while the holder is not known. With each new number, all watches
    /// must list again, because the previous leader may have written something that a watch has not delivered yet.
    #[must_use]
    pub fn term_numbers(&self) -> watch::Receiver<Option<u64>> {
        self.term_numbers.clone()
    }

    /// Returns a Lease that is ours for this time, in the first term, without a keeper.
    #[cfg(test)]
    pub(crate) fn held(duration: Duration) -> Self {
        let view = View { term: Some(LeadershipTerm { number: 1, epoch: 1 }), until: since_boot() + duration };
        let (_, view) = watch::channel(view);
        let (_, term_numbers) = watch::channel(Some(1));
        Self { view, term_numbers, above: watch::Sender::new(1) }
    }

    /// Reports an epoch that is above ours. If the Lease is still ours, it was deleted, or the epoch was read from another cluster. In both
    /// cases our epoch is raised above it. If the Lease is not ours any more, the next write detects that.
    pub fn raise(&self, above: i32) {
        self.above.send_if_modified(|known| std::mem::replace(known, above.max(*known)) < above);
    }
}
