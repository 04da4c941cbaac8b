//! How many requests are accepted. Pure.
//!
//! In: requests, by the address of their source before they are verified, and by pipeline after that. Out: whether there is room, or when
//! there will be. A request with a right signature costs its source nothing. A request without one costs nothing but that of its source. So
//! unsigned requests take nothing from a pipeline, and little from sources that sign.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use relaybook_telemetry::metrics::Hook;

/// The rate of requests of one source that are not verified yet, or have no right signature.
const UNVERIFIED: Rate = Rate { burst: 100, interval: Duration::from_millis(100) };
/// The rate of requests with a right signature, for each hook of a pipeline: 20 in 30 s.
const VERIFIED: Rate = Rate { burst: 20, interval: Duration::from_millis(1500) };
/// Maximum number of keys whose rates are kept. All others share one.
const KEPT: usize = 10_000;
/// Rates that are not used any more are removed at most once in this time.
const SWEEP: Duration = Duration::from_secs(1);

/// Where a request comes from: an IPv4 address, or the 64 bits of a network of IPv6, in which one client has all addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(u64);

impl Source {
    /// Returns the source with this IPv4 address.
    #[must_use]
    pub fn v4(address: u32) -> Self {
        Self(u64::from(address))
    }

    /// Returns the source with this IPv6 address.
    #[must_use]
    pub fn v6(address: u128) -> Self {
        Self(u64::try_from(address >> 64).unwrap_or_default())
    }
}

/// All limits.
#[derive(Debug)]
pub(super) struct Limits {
    unverified: Buckets<Source>,
    verified: Buckets<(Hook, String)>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { unverified: Buckets::new(UNVERIFIED), verified: Buckets::new(VERIFIED) }
    }
}

impl Limits {
    /// Counts a request that is not verified yet. The error is the time until there is room.
    pub fn unverified(&mut self, source: Source, now: Duration) -> Result<(), Duration> {
        self.unverified.take(source, now)
    }

    /// Counts a request with a right signature for this hook of the pipeline with this uid. It costs its source nothing. The error is the
    /// time until there is room.
    pub fn verified(&mut self, source: Source, hook: Hook, uid: &str, now: Duration) -> Result<(), Duration> {
        self.unverified.give_back(&source);
        self.verified.take((hook, uid.to_owned()), now)
    }
}

/// A number of requests at once, and one more in each interval.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    interval: Duration,
}

/// A rate for each key, by the generic cell rate algorithm: all that is kept of a key is when its bucket is full again.
#[derive(Debug)]
struct Buckets<K> {
    rate: Rate,
    full_at: HashMap<K, Duration>,
    /// Of all keys for which there is no room.
    others: Duration,
    swept: Duration,
}

impl<K: Eq + Hash> Buckets<K> {
    fn new(rate: Rate) -> Self {
        Self { rate, full_at: HashMap::new(), others: Duration::ZERO, swept: Duration::ZERO }
    }

    fn take(&mut self, key: K, now: Duration) -> Result<(), Duration> {
        if self.full_at.len() >= KEPT && now.saturating_sub(self.swept) >= SWEEP {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.swept = now;
        }
        let Rate { burst, interval } = self.rate;
        let full_at = if self.full_at.len() < KEPT || self.full_at.contains_key(&key) {
            self.full_at.entry(key).or_default()
        } else {
            &mut self.others
        };
        let next = (*full_at).max(now) + interval;
        let missing = next.saturating_sub(now + interval * burst);
        if !missing.is_zero() {
            return Err(missing);
        }
        *full_at = next;
        Ok(())
    }

    fn give_back(&mut self, key: &K) {
        let interval = self.rate.interval;
        let full_at = self.full_at.get_mut(key).unwrap_or(&mut self.others);
        *full_at = full_at.saturating_sub(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn taken<K: Eq + Hash + Clone>(buckets: &mut Buckets<K>, key: &K, now: Duration) -> usize {
        std::iter::repeat_with(|| buckets.take(key.clone(), now)).take_while(Result::is_ok).count()
    }

    #[test]
    fn a_bucket_has_a_burst_and_fills_again() {
        let mut buckets = Buckets::new(Rate { burst: 3, interval: Duration::from_secs(2) });
        assert_eq!(taken(&mut buckets, &1, NOW), 3);
        assert_eq!(buckets.take(1, NOW), Err(Duration::from_secs(2)));
        assert_eq!(buckets.take(1, NOW + Duration::from_millis(500)), Err(Duration::from_millis(1500)));
        assert_eq!(taken(&mut buckets, &2, NOW), 3, "each key has its own");
        assert_eq!(taken(&mut buckets, &1, NOW + Duration::from_secs(2)), 1);
        assert_eq!(taken(&mut buckets, &1, NOW + Duration::from_mins(1)), 3, "it is full, and not fuller");
        buckets.give_back(&1);
        assert_eq!(taken(&mut buckets, &1, NOW + Duration::from_mins(1)), 1);
    }

    #[test]
    fn the_number_of_buckets_is_bounded_and_further_keys_share_one() {
        let mut buckets = Buckets::new(Rate { burst: 1, interval: Duration::from_secs(2) });
        for key in 0..KEPT {
            assert!(buckets.take(key, NOW).is_ok());
        }
        assert!(buckets.take(KEPT, NOW).is_ok());
        assert!(buckets.take(KEPT + 1, NOW).is_err(), "it shares the bucket of the others");
        assert!(buckets.take(0, NOW).is_err(), "a known key has its own");
        assert_eq!(buckets.full_at.len(), KEPT);
        let later = NOW + Duration::from_secs(3);
        assert!(buckets.take(KEPT + 1, later).is_ok());
        assert_eq!(buckets.full_at.len(), 1);
    }

    #[test]
    fn valid_signatures_use_no_limit_of_a_source_and_invalid_ones_none_of_a_pipeline() {
        let mut limits = Limits::default();
        let (proxy, other) = (Source::v4(1), Source::v4(2));
        for n in 0..1000 {
            let now = NOW + Duration::from_millis(1) * n;
            assert!(limits.unverified(proxy, now).is_ok(), "{n}");
            let _ = limits.verified(proxy, Hook::Look, "u", now);
        }
        let refused = (0..1000).filter(|_| limits.unverified(other, NOW).is_err()).count();
        assert_eq!(refused, 900);
        assert!(limits.verified(other, Hook::Approval, "u", NOW).is_ok(), "looks take nothing from approvals");
        let right = (0..100).filter(|_| limits.verified(proxy, Hook::Look, "v", NOW).is_ok()).count();
        assert_eq!(right, 20);
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        assert_eq!(Source::v6((1 << 64) + 1), Source::v6((1 << 64) + 2));
        assert_ne!(Source::v6(1 << 64), Source::v6(2 << 64));
    }
}
