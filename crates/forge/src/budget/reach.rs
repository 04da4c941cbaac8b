//! Pure: whether an origin answers. An origin that does not answer is probed by one request at a time, for each Secret.

use std::time::Duration;

use super::Quota;
use relaybook_api::{Backoff, Time};

/// The pauses between probes.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };

/// Whether an origin answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// Requests without an answer, one after the other.
    failures: u32,
    /// Number of running requests.
    running: u32,
    /// When the next probe is allowed.
    next: Option<Time>,
}

impl Reach {
    /// Whether a request may be made, as far as the origin is concerned.
    pub(super) fn ask(&self, now: Time) -> Quota {
        if self.failures == 0 {
            return Quota::Now;
        }
        match self.next.filter(|next| *next > now) {
            Some(next) => Quota::Wait(next),
            None if self.running > 0 => Quota::Wait(super::after(now, PAUSES.first)),
            None => Quota::Now,
        }
    }

    pub(super) const fn start(&mut self) {
        self.running = self.running.saturating_add(1);
    }

    pub(super) fn end(&mut self, is_answered: bool, now: Time) {
        self.running = self.running.saturating_sub(1);
        if is_answered {
            (self.failures, self.next) = (0, None);
            return;
        }
        // Requests that started together fail together. They count once.
        if self.failures == 0 || self.next.is_none_or(|next| next <= now) {
            self.next = Some(super::after(now, PAUSES.next(&mut self.failures)));
        }
    }

    /// Whether a new value would be the same.
    pub(super) const fn is_idle(&self) -> bool {
        self.failures == 0 && self.running == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_without_answers_is_probed_by_one_request_at_a_time() {
        let mut now = Time::from_second(1_700_000_000).unwrap();
        let mut reach = Reach::default();
        for _ in 0..4 {
            assert_eq!(reach.ask(now), Quota::Now);
            reach.start();
        }
        for _ in 0..4 {
            reach.end(false, now);
        }
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let Quota::Wait(next) = reach.ask(now) else { panic!("must wait") };
            pauses.push(next.duration_since(now).as_secs());
            now = next;
            assert_eq!(reach.ask(now), Quota::Now);
            reach.start();
            assert!(matches!(reach.ask(now), Quota::Wait(_)), "a second probe");
            now += Duration::from_secs(10);
            reach.end(false, now);
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        reach.start();
        reach.end(true, now);
        assert_eq!(reach.ask(now), Quota::Now);
        assert!(reach.is_idle());
    }
}
