//! Decides which namespace's templates are compiled next. Each namespace has a time budget. Pure.
//!
//! In: work of namespaces, its cost, and the current time. Out: the next work. Namespaces take turns. A namespace that has spent its budget
//! waits until it has regained enough. The others continue.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

/// The time that a namespace can spend at once.
const BUDGET: Duration = Duration::from_secs(2);
/// A namespace regains the elapsed time divided by this number.
const PART: u32 = 4;

/// The work of all namespaces. All times are relative to one fixed moment.
#[derive(Debug)]
pub(crate) struct Turns<J> {
    accounts: BTreeMap<String, Account<J>>,
    /// The namespace that had the last turn.
    last: String,
}

/// The work and the budget of one namespace.
#[derive(Debug)]
struct Account<J> {
    work: VecDeque<J>,
    spent: Duration,
    /// The time of the last update of `spent`.
    at: Duration,
    waits: bool,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<J> {
    /// Do this work of this namespace.
    Work(String, J),
    /// Wait for this time.
    Wait(Duration),
    /// There is no work.
    Nothing,
}

impl<J> Default for Turns<J> {
    fn default() -> Self {
        Self { accounts: BTreeMap::new(), last: String::new() }
    }
}

impl<J> Turns<J> {
    /// Adds work behind the other work of the namespace.
    pub(crate) fn add(&mut self, namespace: &str, work: J, now: Duration) {
        self.account(namespace, now).work.push_back(work);
    }

    /// Puts back work that was started. It is the next work of its namespace.
    pub(crate) fn put_back(&mut self, namespace: &str, work: J, now: Duration) {
        self.account(namespace, now).work.push_front(work);
    }

    /// Returns the next work. Namespaces take turns.
    pub(crate) fn next(&mut self, now: Duration) -> Next<J> {
        self.accounts.retain(|_, account| {
            account.settle(now);
            account.waits &= !account.work.is_empty();
            !account.work.is_empty() || !account.spent.is_zero()
        });
        let may = |(_, account): &(&String, &Account<J>)| !account.work.is_empty() && account.left().is_zero();
        let after = self.accounts.range::<String, _>((Bound::Excluded(&self.last), Bound::Unbounded)).find(may);
        let Some(namespace) = after.or_else(|| self.accounts.iter().find(may)).map(|(namespace, _)| namespace.clone())
        else {
            let waiting = self.accounts.values().filter(|account| !account.work.is_empty());
            return waiting.map(Account::left).min().map_or(Next::Nothing, Next::Wait);
        };
        let work = self.accounts.get_mut(&namespace).and_then(|account| account.work.pop_front());
        self.last.clone_from(&namespace);
        work.map_or(Next::Nothing, |work| Next::Work(namespace, work))
    }

    /// Records the cost of work. Returns `true` if the remaining work of this namespace waits from now on.
    pub(crate) fn spend(&mut self, namespace: &str, cost: Duration, now: Duration) -> bool {
        let account = self.account(namespace, now);
        account.spent += cost;
        let begins = !account.waits && !account.work.is_empty() && !account.left().is_zero();
        account.waits |= begins;
        begins
    }

    /// Whether work of this namespace waits because its budget is spent.
    pub(crate) fn waits(&self, namespace: &str) -> bool {
        self.accounts.get(namespace).is_some_and(|account| account.waits)
    }

    fn account(&mut self, namespace: &str, now: Duration) -> &mut Account<J> {
        let new = || Account { work: VecDeque::new(), spent: Duration::ZERO, at: now, waits: false };
        let account = self.accounts.entry(namespace.to_owned()).or_insert_with(new);
        account.settle(now);
        account
    }
}

impl<J> Account<J> {
    /// Restores the part of the budget that the elapsed time gives back.
    fn settle(&mut self, now: Duration) {
        self.spent = self.spent.saturating_sub(now.saturating_sub(self.at) / PART);
        self.at = now;
    }

    /// Returns how long the namespace must wait.
    fn left(&self) -> Duration {
        self.spent.saturating_sub(BUDGET) * PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn work(namespace: &str, work: u8) -> Next<u8> {
        Next::Work(namespace.to_owned(), work)
    }

    #[test]
    fn namespaces_take_turns() {
        let mut turns = Turns::default();
        for (namespace, job) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5)] {
            turns.add(namespace, job, seconds(0));
        }
        for (namespace, job) in [("a", 1), ("b", 4), ("c", 5), ("a", 2)] {
            assert_eq!(turns.next(seconds(0)), work(namespace, job));
        }
        turns.put_back("a", 2, seconds(0));
        assert_eq!((turns.next(seconds(0)), turns.next(seconds(0))), (work("a", 2), work("a", 3)));
        assert_eq!(turns.next(seconds(0)), Next::Nothing);
    }

    #[test]
    fn a_namespace_that_has_used_its_budget_waits_and_others_do_not() {
        let mut turns = Turns::default();
        turns.add("a", 1, seconds(0));
        turns.add("a", 2, seconds(0));
        assert_eq!(turns.next(seconds(0)), work("a", 1));
        assert!(turns.spend("a", seconds(5), seconds(5)), "it begins to wait");
        assert!(!turns.spend("a", seconds(0), seconds(5)), "that is said once");
        assert!(turns.waits("a") && !turns.waits("b"));
        // Time spent beyond the budget is regained at a quarter of the elapsed time.
        assert_eq!(turns.next(seconds(5)), Next::Wait(seconds(12)));
        turns.add("b", 3, seconds(6));
        assert_eq!(turns.next(seconds(6)), work("b", 3));
        assert_eq!(turns.next(seconds(7)), Next::Wait(seconds(10)));
        assert_eq!(turns.next(seconds(17)), work("a", 2));
        assert!(turns.waits("a"), "until all is done");
        assert_eq!(turns.next(seconds(17)), Next::Nothing);
        assert!(!turns.waits("a"));
    }

    #[test]
    fn an_idle_namespace_is_forgotten_when_its_budget_is_full_again() {
        let mut turns = Turns::default();
        turns.add("a", 1, seconds(0));
        assert_eq!(turns.next(seconds(0)), work("a", 1));
        assert!(!turns.spend("a", seconds(3), seconds(3)), "nothing is left that could wait");
        for (at, known) in [(3, 1), (14, 1), (15, 0)] {
            assert_eq!((turns.next(seconds(at)), turns.accounts.len()), (Next::Nothing, known), "{at}");
        }
    }
}
