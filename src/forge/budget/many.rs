//! Pure: the budgets of all origins and Secrets.

use std::collections::HashMap;
use std::time::Duration;

use super::reach::Reach;
use super::{Budget, End, Priority, Turn};
use crate::api::Time;

/// The budgets of all origins and Secrets. `S` names a Secret: namespace and name.
#[derive(Clone, Debug)]
pub struct Budgets<S> {
    budgets: HashMap<(String, S), Budget>,
    origins: HashMap<String, Reach>,
}

impl<S> Default for Budgets<S> {
    fn default() -> Self {
        Self { budgets: HashMap::new(), origins: HashMap::new() }
    }
}

impl<S: Clone + Eq + std::hash::Hash> Budgets<S> {
    /// Asks whether a request may be made. After [`Turn::Now`], call [`Budgets::end`] once, whatever happens to the request.
    pub fn ask(&mut self, origin: &str, secret: &S, priority: Priority, now: Time) -> Turn {
        let reach = self.origins.entry(origin.to_owned()).or_default();
        if let Turn::Wait(until) = reach.turn(now) {
            return Turn::Wait(until);
        }
        let budget = self.budgets.entry((origin.to_owned(), secret.clone())).or_insert_with(|| Budget::new(now));
        let turn = budget.ask(priority, now);
        if turn == Turn::Now {
            reach.start();
        }
        turn
    }

    /// Reports that a request ended.
    pub fn end(&mut self, origin: &str, secret: &S, end: End, now: Time) {
        if let Some(reach) = self.origins.get_mut(origin) {
            reach.end(end != End::Unreachable, now);
        }
        if let Some(budget) = self.budgets.get_mut(&(origin.to_owned(), secret.clone())) {
            budget.end(end, now);
        }
    }

    /// Returns [`Budget::interval`] of a Secret at an origin.
    #[must_use]
    pub fn interval(&self, origin: &str, secret: &S, now: Time, asked: Duration, open: usize, requests: u32) -> Duration {
        let budget = self.budgets.get(&(origin.to_owned(), secret.clone()));
        budget.map_or_else(|| Budget::new(now).interval(asked, open, requests), |b| b.interval(asked, open, requests))
    }

    /// Forgets what is as if it were new. Call it from time to time.
    pub fn forget_idle(&mut self, now: Time) {
        self.budgets.retain(|_, budget| !budget.is_idle(now));
        self.origins.retain(|_, reach| !reach.is_idle());
    }

    /// Returns the number of budgets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.budgets.len()
    }

    /// Whether there are no budgets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.budgets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forge::limits::{Limits, When};

    const FINE: End = End::Answered {
        limits: Limits { limit: None, per_hour: None, remaining: None, reset: None, retry: None },
        limited: false,
    };

    #[test]
    fn a_limit_is_that_of_one_secret_and_an_outage_is_that_of_an_origin() {
        let now = Time::from_second(1_700_000_000).unwrap();
        let mut budgets = Budgets::default();
        assert_eq!(budgets.ask("a", &1, Priority::Prompt, now), Turn::Now);
        let limits = Limits { retry: Some(When::After(Duration::from_secs(90))), ..Limits::default() };
        budgets.end("a", &1, End::Answered { limits, limited: true }, now);
        let until = now + Duration::from_secs(90);
        assert_eq!(budgets.ask("a", &1, Priority::Prompt, now), Turn::Wait(until));
        assert_eq!(budgets.ask("a", &2, Priority::Prompt, now), Turn::Now);
        budgets.end("a", &2, End::Unreachable, now);
        assert!(matches!(budgets.ask("a", &3, Priority::Prompt, now), Turn::Wait(_)));
        assert_eq!(budgets.ask("b", &3, Priority::Prompt, now), Turn::Now);
        budgets.end("b", &3, FINE, now);
        let later = until + Duration::from_hours(1);
        budgets.forget_idle(later);
        assert!(budgets.is_empty());
        assert_eq!(budgets.origins.len(), 1, "an outage is remembered");
        assert_eq!(budgets.ask("a", &1, Priority::Prompt, later), Turn::Now);
        budgets.end("a", &1, FINE, later);
        assert_eq!(budgets.interval("a", &1, later, Duration::from_mins(1), 1, 1), Duration::from_mins(1));
        assert_eq!(budgets.interval("c", &1, later, Duration::from_mins(1), 1, 1), Duration::from_mins(1));
    }
}
