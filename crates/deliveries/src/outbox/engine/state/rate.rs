//! The rate at which one notification sends to one origin (`spec.delivery.rate`). Pure.
//!
//! In: lanes that are ready. Out: one of them at a time, and whether it can send now. So a thousand lanes that wait for the same second
//! cost one check. The permit is acquired when a worker is free, not before. Otherwise deliveries that waited for a hanging receiver would
//! all be sent at once.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use crate::outbox::record::LaneKey;
use relaybook_core::rate::Rate as Limiter;
use relaybook_settings::config::Rate;

/// This replica's part of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    rate: Rate,
    period: Duration,
    burst: NonZeroU32,
}

impl Pace {
    /// Returns a part of a rate: `ours` of `all`. The burst is at least 1, because nothing could be sent otherwise. If nothing is counted
    /// yet, it is the whole rate.
    #[must_use]
    pub fn new(rate: Rate, ours: usize, all: usize) -> Self {
        let [ours, all] = [ours, all].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let (ours, all) = if ours == 0 || ours >= all { (1, 1) } else { (ours, all) };
        let burst = u64::from(rate.burst.get()) * u64::from(ours) / u64::from(all);
        let burst = u32::try_from(burst).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        Self { rate, period: Duration::from_secs(1).saturating_mul(all) / rate.per_second.get().saturating_mul(ours), burst }
    }
}

/// The key of a shared rate: (namespace, notification, origin).
pub type Shared = (String, String, String);

/// All rates that are in use.
#[derive(Debug, Default)]
pub struct Rates {
    buckets: BTreeMap<Shared, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    pace: Pace,
    limiter: Limiter,
    /// The lane that has the turn: it is in the fair queue, or on its way there.
    turn: Option<LaneKey>,
    /// The lanes that wait behind it.
    waiting: VecDeque<LaneKey>,
    /// When the lane that has the turn can be sent.
    until: Option<Instant>,
    used: Instant,
}

/// Whether a lane can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// It can be sent.
    Go,
    /// It cannot be sent yet; [`Rates::take_due`] returns it when it can.
    Wait,
}

impl Rates {
    /// Adds a lane that is ready. Returns it if it has the turn. [`Rates::next`] returns the other lanes later.
    pub fn ready(&mut self, shared: Shared, pace: Pace, lane: LaneKey, now: Instant) -> Option<LaneKey> {
        let bucket = self.buckets.entry(shared).or_insert_with(|| Bucket::new(pace, now));
        bucket.used = now;
        if bucket.turn.is_some() {
            bucket.waiting.push_back(lane);
            return None;
        }
        bucket.turn = Some(lane.clone());
        Some(lane)
    }

    /// Returns whether no lane waits for this rate.
    #[must_use]
    pub fn is_free(&self, shared: &Shared) -> bool {
        self.buckets.get(shared).is_none_or(|bucket| bucket.turn.is_none())
    }

    /// Decides whether the lane that has the turn can be sent now, by the current part of the rate.
    pub fn permit(&mut self, shared: &Shared, pace: Pace, now: Instant) -> Permit {
        let Some(bucket) = self.buckets.get_mut(shared) else { return Permit::Go };
        bucket.follow(pace, now);
        bucket.used = now;
        match bucket.limiter.take(now) {
            Ok(()) => Permit::Go,
            Err(until) => {
                bucket.until = Some(until);
                Permit::Wait
            }
        }
    }

    /// Ends the turn of a lane, whatever its result was. Returns the next lane.
    pub fn next(&mut self, shared: &Shared) -> Option<LaneKey> {
        let bucket = self.buckets.get_mut(shared)?;
        bucket.until = None;
        bucket.turn = bucket.waiting.pop_front();
        bucket.turn.clone()
    }

    /// Returns when the next lane that has a turn can be sent.
    #[must_use]
    pub fn next_permit_time(&self) -> Option<Instant> {
        self.buckets.values().filter_map(|bucket| bucket.until).min()
    }

    /// Returns the lanes that can be sent now, each with the key of its rate.
    pub fn take_due(&mut self, now: Instant) -> Vec<(Shared, LaneKey)> {
        let due = self.buckets.iter_mut().filter(|(_, bucket)| bucket.until.is_some_and(|until| until <= now));
        due.filter_map(|(shared, bucket)| {
            bucket.until = None;
            bucket.turn.clone().map(|lane| (shared.clone(), lane))
        })
        .collect()
    }

    /// Returns how many lanes wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.buckets.values().map(|bucket| bucket.waiting.len() + usize::from(bucket.until.is_some())).sum()
    }

    /// Removes rates that have been unused for so long that their full burst is available again.
    pub fn tidy(&mut self, now: Instant) {
        self.buckets.retain(|_, bucket| {
            bucket.turn.is_some() || now.duration_since(bucket.used) < bucket.limiter.longest() + Duration::from_secs(2)
        });
    }
}

impl Bucket {
    fn new(pace: Pace, now: Instant) -> Self {
        let limiter = Limiter::new(pace.period, pace.burst);
        Self { pace, limiter, turn: None, waiting: VecDeque::new(), until: None, used: now }
    }

    /// Replaces the limiter if the rate has changed. The unused permits of the old rate are dropped. If only our part has changed, its burst
    /// has to be saved up first.
    fn follow(&mut self, pace: Pace, now: Instant) {
        if self.pace == pace {
            return;
        }
        let limiter = Limiter::new(pace.period, pace.burst);
        self.limiter = if self.pace.rate == pace.rate { limiter.spent(now) } else { limiter };
        self.pace = pace;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(n: usize) -> LaneKey {
        LaneKey { namespace: "ns".into(), pipeline: "p".into(), notification: "n".into(), lane: n.to_string() }
    }

    fn shared() -> Shared {
        ("ns".to_owned(), "n".to_owned(), "https://x:443".to_owned())
    }

    fn rate(per_second: u32, burst: u32) -> Pace {
        part(per_second, burst, (1, 1))
    }

    fn part(per_second: u32, burst: u32, (ours, all): (usize, usize)) -> Pace {
        let [per_second, burst] = [per_second, burst].map(|number| NonZeroU32::new(number).unwrap());
        Pace::new(Rate { per_second, burst }, ours, all)
    }

    #[test]
    fn the_rate_of_a_replica_is_its_part_of_the_whole_rate() {
        assert_eq!((part(10, 12, (3, 3)), part(10, 12, (0, 3))), (rate(10, 12), rate(10, 12)));
        let third = part(10, 12, (2, 6));
        assert_eq!((third.period, third.burst.get()), (Duration::from_millis(300), 4));
        assert_eq!(part(1, 1, (1, 100)).burst.get(), 1);
        // Another part is no reason for another burst.
        let (mut rates, now) = (Rates::default(), Instant::now());
        rates.ready(shared(), third, lane(0), now);
        assert_eq!(rates.permit(&shared(), part(10, 12, (3, 6)), now), Permit::Wait);
        assert_eq!(rates.permit(&shared(), part(20, 12, (3, 6)), now), Permit::Go, "a user has edited the rate");
    }

    #[test]
    fn lanes_of_one_rate_get_permits_one_after_the_other() {
        let mut rates = Rates::default();
        assert_eq!(rates.ready(shared(), rate(1, 2), lane(0), Instant::now()), Some(lane(0)));
        assert_eq!(rates.ready(shared(), rate(1, 2), lane(1), Instant::now()), None);
        assert_eq!(rates.ready(shared(), rate(1, 2), lane(2), Instant::now()), None);
        let now = Instant::now();
        assert_eq!(rates.permit(&shared(), rate(1, 2), now), Permit::Go);
        assert_eq!(rates.next(&shared()), Some(lane(1)));
        assert_eq!(rates.permit(&shared(), rate(1, 2), now), Permit::Go);
        assert_eq!(rates.next(&shared()), Some(lane(2)));
        assert_eq!(rates.permit(&shared(), rate(1, 2), now), Permit::Wait, "two at once");
        assert_eq!(rates.waiting(), 1);
        let until = rates.next_permit_time().unwrap();
        assert!(until > now && until <= now + Duration::from_secs(1));
        assert!(rates.take_due(now).is_empty());
        assert_eq!(rates.take_due(until), [(shared(), lane(2))]);
        assert_eq!((rates.next_permit_time(), rates.next(&shared())), (None, None));
        assert_eq!(rates.ready(shared(), rate(1, 2), lane(3), now), Some(lane(3)));
    }

    #[test]
    fn a_used_permit_counts_although_its_lane_waited_long_for_a_worker() {
        let mut rates = Rates::default();
        rates.ready(shared(), rate(1, 1), lane(0), Instant::now());
        let now = Instant::now() + Duration::from_mins(5);
        assert_eq!(rates.permit(&shared(), rate(1, 1), now), Permit::Go);
        rates.next(&shared());
        rates.tidy(now);
        rates.ready(shared(), rate(1, 1), lane(1), now);
        assert_eq!(rates.permit(&shared(), rate(1, 1), now), Permit::Wait);
    }

    #[test]
    fn an_edited_rate_applies_at_once_and_idle_rates_are_forgotten() {
        let mut rates = Rates::default();
        let now = Instant::now();
        rates.ready(shared(), rate(1, 1), lane(0), now);
        assert_eq!(
            (rates.permit(&shared(), rate(1, 1), now), rates.permit(&shared(), rate(1, 1), now)),
            (Permit::Go, Permit::Wait)
        );
        assert_eq!(rates.permit(&shared(), rate(100, 100), now), Permit::Go, "also for one that waits already");
        rates.next(&shared());
        rates.tidy(Instant::now());
        assert_eq!(rates.buckets.len(), 1);
        rates.tidy(Instant::now() + Duration::from_mins(1));
        assert!(rates.buckets.is_empty());
    }
}
