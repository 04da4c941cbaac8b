//! Pure: the budgets of all origins and Secrets.

use std::collections::HashMap;
use std::time::Duration;

use super::reach::Reach;
use super::{Budget, End, Priority, Quota};
use relaybook_api::Time;

/// The budgets of all origins and Secrets, and whether the origins answer. `S` names a namespace and its Secret. A namespace with a wrong CA
/// certificate or a repository that hangs gets no answer where others do. So each Secret knows an outage by itself.
#[derive(Clone, Debug)]
pub struct Budgets<S> {
    budgets: HashMap<(String, S), Budget>,
    reaches: HashMap<(String, S), Reach>,
}

impl<S> Default for Budgets<S> {
    fn default() -> Self {
        Self { budgets: HashMap::new(), reaches: HashMap::new() }
    }
}

impl<S: Clone + Eq + std::hash::Hash> Budgets<S> {
    /// Asks whether a request may be made. After [`Quota::Now`], call [`Budgets::end`] once, whatever happens to the request.
    pub fn ask(&mut self, origin: &str, secret: &S, priority: Priority, now: Time) -> Quota {
        let key = (origin.to_owned(), secret.clone());
        let reach = self.reaches.entry(key.clone()).or_default();
        if let Quota::Wait(until) = reach.ask(now) {
            return Quota::Wait(until);
        }
        let budget = self.budgets.entry(key).or_insert_with(|| Budget::new(now));
        let quota = budget.ask(priority, now);
        if quota == Quota::Now {
            reach.start();
        }
        quota
    }

    /// Reports that a request ended.
    pub fn end(&mut self, origin: &str, secret: &S, end: End, now: Time) {
        let key = (origin.to_owned(), secret.clone());
        if let Some(reach) = self.reaches.get_mut(&key) {
            reach.end(end != End::Unreachable, now);
        }
        if let Some(budget) = self.budgets.get_mut(&key) {
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
        self.reaches.retain(|_, reach| !reach.is_idle());
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
    use crate::limits::{Limits, When};

    const FINE: End = End::Answered {
        limits: Limits { limit: None, per_hour: None, remaining: None, reset: None, retry: None },
        limited: false,
    };

    #[test]
    fn a_rate_limit_and_an_outage_apply_to_one_secret_only() {
        let now = Time::from_second(1_700_000_000).unwrap();
        let mut budgets = Budgets::default();
        assert_eq!(budgets.ask("a", &1, Priority::Prompt, now), Quota::Now);
        let limits = Limits { retry: Some(When::After(Duration::from_secs(90))), ..Limits::default() };
        budgets.end("a", &1, End::Answered { limits, limited: true }, now);
        let until = now + Duration::from_secs(90);
        assert_eq!(budgets.ask("a", &1, Priority::Prompt, now), Quota::Wait(until));
        assert_eq!(budgets.ask("a", &2, Priority::Prompt, now), Quota::Now);
        budgets.end("a", &2, End::Unreachable, now);
        assert!(matches!(budgets.ask("a", &2, Priority::Prompt, now), Quota::Wait(_)));
        for origin in ["a", "b"] {
            assert_eq!(budgets.ask(origin, &3, Priority::Prompt, now), Quota::Now, "{origin}");
            budgets.end(origin, &3, FINE, now);
        }
        let later = until + Duration::from_hours(1);
        budgets.forget_idle(later);
        assert!(budgets.is_empty());
        assert_eq!(budgets.reaches.len(), 1, "an outage is remembered");
        assert_eq!(budgets.ask("a", &1, Priority::Prompt, later), Quota::Now);
        budgets.end("a", &1, FINE, later);
        assert_eq!(budgets.interval("a", &1, later, Duration::from_mins(1), 1, 1), Duration::from_mins(1));
        assert_eq!(budgets.interval("c", &1, later, Duration::from_mins(1), 1, 1), Duration::from_mins(1));
    }
}
