//! Who may act: of any number of replicas one, as a Kubernetes Lease says (<https://kubernetes.io/docs/concepts/architecture/leases/>).
//!
//! In: the Lease object, by a watch and by writes that name the version they replace. Out: [`Lease`], which every controller checks
//! first: whether it is ours, and for how much longer.
//!
//! `candidacy` decides and is pure; `keeper` makes the calls. A holder trusts its Lease for 90 s from the moment *before* it sent the
//! renewal that was answered. Another replica acquires it 90 s *after* it saw that renewal. So two replicas never lead at once, whatever
//! their wall clocks are, if none starts work that can outlast its Lease: hence [`Lease::may`].

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
    pub turn: u64,
    /// `leaseTransitions`: higher than that of every earlier holder.
    pub epoch: i32,
}

/// What the keeper says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct View {
    term: Option<LeadershipTerm>,
    /// Until then it is ours for sure; by [`since_boot`].
    until: Duration,
}

/// What may be asked of a Lease; cheap to clone.
#[derive(Clone, Debug)]
pub struct Lease {
    view: watch::Receiver<View>,
    turns: watch::Receiver<Option<u64>>,
    above: watch::Sender<i32>,
}

impl Lease {
    /// The present term. It may have run out unnoticed: before a deed, ask [`Lease::may`].
    #[must_use]
    pub fn term(&self) -> Option<LeadershipTerm> {
        self.view.borrow().term
    }

    /// Whether something may be begun that takes this long at most.
    #[must_use]
    pub fn may(&self, take: Duration) -> bool {
        let view = *self.view.borrow();
        view.term.is_some() && since_boot() + take + MARGIN < view.until
    }

    /// Waits until something may be begun that takes this long; `false` when the term has ended instead.
    pub async fn wait(&self, take: Duration) -> bool {
        let mut view = self.view.clone();
        loop {
            if self.may(take) {
                return true;
            }
            if view.borrow_and_update().term.is_none() || view.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Waits for the next change of the keeper: a term has started, was prolonged, or has ended.
    pub async fn changed(&mut self) {
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The number of the latest term, 0 if there was none, `None` while nothing is known. With each new number everything must be listed
    /// again: the previous leader may have written something that a watch has not shown yet.
    #[must_use]
    pub fn turns(&self) -> watch::Receiver<Option<u64>> {
        self.turns.clone()
    }

    /// An epoch was read that is above ours. If the Lease is still ours, it was deleted, or what was read comes from another
    /// cluster: then ours is raised above it. If it is not, that is found out.
    pub fn raise(&self, above: i32) {
        self.above.send_if_modified(|known| std::mem::replace(known, above.max(*known)) < above);
    }
}
