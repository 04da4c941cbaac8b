//! Who may act: of any number of replicas one, as a Kubernetes Lease says (<https://kubernetes.io/docs/concepts/architecture/leases/>).
//!
//! In: the Lease object, by a watch and by writes that name the version they replace. Out: [`Lease`], which whoever acts asks
//! first: is it ours, and for how much longer?
//!
//! `candidacy` decides and is pure; `keeper` does the calls. A holder believes in its Lease for 90 s from the moment *before*
//! it sent the renewal that was answered; another replica takes it over 90 s *after* it saw that renewal. So two never act at
//! once, whatever their wall clocks say, as long as none begins what may outlast its belief: hence [`Lease::may`].

mod candidacy;
mod keeper;

use std::time::Duration;

use tokio::sync::watch;

use crate::api::since_boot;
pub use keeper::{Keeper, LeaseError, Named};

/// For clocks that run unevenly, and for what is between a decision and its deed.
const MARGIN: Duration = Duration::from_secs(5);

/// The time in which this process holds the Lease without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadershipTerm {
    /// The how-manieth of this process, from 1.
    pub turn: u64,
    /// `leaseTransitions`: higher than that of every holder before.
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

    /// Waits for the next word of the keeper: a term has begun, was prolonged, or has ended.
    pub async fn changed(&mut self) {
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The number of the latest term, 0 while there was none, `None` while nothing is known. With each new number everything
    /// must be listed anew: whoever acted before may have written what a watch has not told yet.
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
