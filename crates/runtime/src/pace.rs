//! How fast one namespace can cause writes, so that it does not take the time of the API server from others.
//!
//! In: the namespace of a write, and its size. Out: how long the write waits. Each namespace has a budget of bytes, which a pause fills again.
//! A write is paid when it becomes necessary, and waits until it and all earlier ones are covered. Each write gets another time. So the
//! objects of a namespace that owes something write one after the other, none of them waits without end, and no queue is needed.
//!
//! A namespace waits only while others are active. One that is alone can use the whole API server.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use relaybook_telemetry::Metrics;
use relaybook_telemetry::metrics::ApiWrite;

/// The pace of a namespace that writes all the time, in bytes a second. It is 32 small objects a second. A status costs the API server and the
/// watches up to 3 ms for each KiB, so it is about a third of one core.
const SUSTAINED: f64 = 128.0 * 1024.0;
/// The largest budget, in bytes. It is enough for 512 small objects.
const BURST: f64 = 2.0 * 1024.0 * 1024.0;
/// The least cost of a write, in bytes. It is also the cost of a delivery with all of its later writes.
pub const SMALL_OBJECT: usize = 4 * 1024;
/// No write waits longer than this.
const LONGEST: Duration = Duration::from_mins(5);
/// A namespace is active for this time after a write.
const ACTIVE: Duration = Duration::from_hours(1);
/// Minimum time between two warnings about one namespace.
const WARN_EVERY: Duration = Duration::from_mins(10);

/// The budgets of all namespaces for one kind of write. Cheap to clone.
#[derive(Clone)]
pub struct NamespacePace {
    kind: ApiWrite,
    metrics: Metrics,
    accounts: Arc<Mutex<HashMap<String, Account>>>,
}

/// The budget of one namespace.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// When the budget is full again.
    full: Instant,
    written: Instant,
    warned: Option<Instant>,
}

impl NamespacePace {
    /// Full budgets for all namespaces.
    #[must_use]
    pub fn new(kind: ApiWrite, metrics: Metrics) -> Self {
        Self { kind, metrics, accounts: Arc::default() }
    }

    /// Returns how long a write waits now.
    #[must_use]
    pub fn wait(&self, namespace: &str, now: Instant) -> Duration {
        let accounts = self.accounts.lock();
        accounts.get(namespace).map_or(Duration::ZERO, |account| account.wait(now))
    }

    /// Returns how many bytes can be written without a wait.
    #[must_use]
    pub fn left(&self, namespace: &str, now: Instant) -> usize {
        let accounts = self.accounts.lock();
        if is_alone(&accounts, namespace, now) {
            return usize::MAX;
        }
        let used = accounts.get(namespace).map_or(Duration::ZERO, |account| account.full.saturating_duration_since(now));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between zero and the budget")]
        let left = (BURST - used.as_secs_f64() * SUSTAINED).max(0.0) as usize;
        left
    }

    /// Pays for a write of this many bytes. Returns how long it waits.
    #[must_use]
    pub fn spend(&self, namespace: &str, bytes: usize, now: Instant) -> Duration {
        let (wait, warns) = {
            let mut accounts = self.accounts.lock();
            if !accounts.contains_key(namespace) {
                accounts.retain(|_, account| account.is_active(now));
                accounts.insert(namespace.to_owned(), Account { full: now, written: now, warned: None });
            }
            let is_alone = is_alone(&accounts, namespace, now);
            let Some(account) = accounts.get_mut(namespace) else { return Duration::ZERO };
            let wait = account.spend(bytes, is_alone, now);
            (wait, !wait.is_zero() && account.warns(now))
        };
        if !wait.is_zero() {
            self.metrics.api_write_paced(self.kind);
        }
        if warns {
            let kind = self.kind;
            tracing::warn!(namespace, ?kind, "the namespace causes more writes than its share, so its writes wait");
        }
        wait
    }
}

fn is_alone(accounts: &HashMap<String, Account>, namespace: &str, now: Instant) -> bool {
    !accounts.iter().any(|(other, account)| other != namespace && account.is_active(now))
}

impl Account {
    fn is_active(&self, now: Instant) -> bool {
        now < self.full || now.saturating_duration_since(self.written) < ACTIVE
    }

    fn spend(&mut self, bytes: usize, is_alone: bool, now: Instant) -> Duration {
        #[allow(clippy::cast_precision_loss, reason = "a write has far fewer than 2^52 bytes")]
        let lasts = Duration::from_secs_f64(bytes as f64 / SUSTAINED);
        let burst = Duration::from_secs_f64(BURST / SUSTAINED);
        let most = if is_alone { burst } else { burst + LONGEST };
        self.full = (self.full.max(now) + lasts).min(now + most);
        self.written = now;
        self.wait(now)
    }

    fn wait(&self, now: Instant) -> Duration {
        self.full.saturating_duration_since(now + Duration::from_secs_f64(BURST / SUSTAINED))
    }

    fn warns(&mut self, now: Instant) -> bool {
        let is_due = self.warned.is_none_or(|warned| now.saturating_duration_since(warned) >= WARN_EVERY);
        if is_due {
            self.warned = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;
    /// Seconds are rounded.
    const HALF: Duration = Duration::from_millis(500);

    fn account(now: Instant) -> Account {
        Account { full: now, written: now, warned: None }
    }

    #[test]
    fn writes_beyond_the_budget_wait_for_the_writes_before_them() {
        let now = Instant::now();
        let mut account = account(now);
        // Seconds since the start, bytes, and how long the write waits, in seconds.
        for (at, bytes, wait) in [
            (0, MIB, 0),
            (0, MIB, 0),
            (0, 128 * KIB, 1),
            (0, 128 * KIB, 2),
            (0, 256 * KIB, 4),
            (1, 128 * KIB, 4),
            (5, 0, 0),
            (6, 128 * KIB, 0),
            (6, 128 * KIB, 1),
            (200, 2 * MIB, 0),
            (200, 128 * KIB, 1),
            (201, 1024 * MIB, 300),
        ] {
            let got = account.spend(bytes, false, now + Duration::from_secs(at));
            assert_eq!((got + HALF).as_secs(), wait, "{bytes} bytes after {at} s");
        }
    }

    #[test]
    fn a_namespace_that_writes_alone_is_not_limited() {
        let (pace, now) = (NamespacePace::new(ApiWrite::PipelineStatus, Metrics::default()), Instant::now());
        assert_eq!(pace.spend("team-a", 1024 * MIB, now), Duration::ZERO);
        assert_eq!(pace.spend("team-b", 16 * KIB, now), Duration::ZERO);
        let wait = pace.spend("team-a", 128 * KIB, now);
        assert_eq!(pace.wait("team-a", now), wait);
        assert_eq!((wait + HALF).as_secs(), 1, "nothing of what it wrote before is owed");
        assert_eq!((pace.left("team-a", now), pace.left("team-b", now)), (0, 2 * MIB - 16 * KIB));
        assert_eq!(pace.spend("team-b", MIB, now), Duration::ZERO, "each namespace has its own budget");
        let later = now + ACTIVE;
        assert_eq!(pace.left("team-a", later), usize::MAX);
        assert_eq!(pace.spend("team-a", 1024 * MIB, later), Duration::ZERO, "the other has written nothing for long");
        assert_eq!(pace.spend("team-c", 1, later), Duration::ZERO);
        assert_eq!(pace.accounts.lock().len(), 2, "idle namespaces are forgotten");
    }

    #[test]
    fn a_warning_is_written_at_most_once_in_each_period() {
        let now = Instant::now();
        let mut account = account(now);
        assert!(account.warns(now) && !account.warns(now + WARN_EVERY / 2) && account.warns(now + WARN_EVERY));
    }

    proptest! {
        /// Objects that write whenever they can: together they write at the sustained pace, and each of them in turn.
        #[test]
        fn the_objects_of_a_namespace_together_keep_its_pace_and_alternate(sizes in prop::collection::vec(1_usize..512, 1..40)) {
            let start = Instant::now();
            let mut account = account(start);
            // When an object writes, and which one.
            let mut due: BinaryHeap<_> = (0..sizes.len()).map(|object| Reverse((start, object, false))).collect();
            let (mut bytes, mut writes) = (0, vec![0_u32; sizes.len()]);
            let end = start + Duration::from_hours(1);
            while let Some(Reverse((now, object, is_paid))) = due.pop().filter(|Reverse((now, ..))| *now < end) {
                let size = sizes[object] * KIB;
                if !is_paid {
                    due.push(Reverse((now + account.spend(size, false, now), object, true)));
                    continue;
                }
                bytes += size;
                writes[object] += 1;
                #[allow(clippy::cast_precision_loss, reason = "small enough")]
                let is_kept = bytes as f64 <= BURST + now.duration_since(start).as_secs_f64() * SUSTAINED + 1.0;
                prop_assert!(is_kept, "{bytes} bytes after {:?}", now.duration_since(start));
                // The next change comes after a moment.
                due.push(Reverse((now + Duration::from_millis(20), object, false)));
            }
            let (least, most) = (writes.iter().min().unwrap(), writes.iter().max().unwrap());
            prop_assert!(*least > 5 && *most <= least + least / 4 + 600, "{writes:?}");
        }
    }
}
