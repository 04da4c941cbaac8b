//! Which tests are in progress, and their results. Values only.
//!
//! In: tests that begin and end, by the uid of their Notification. Out: whether a test begins, whether it may send, and the last result
//! until the status has it.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use relaybook_api::notification::LastTest;
use relaybook_runtime::limiter::{NamespaceLimiter, Permit};

/// The maximum number of tests of one Notification in [`WINDOW`] that are sent.
pub(super) const MOST: usize = 6;
const WINDOW: Duration = Duration::from_mins(1);
/// The maximum number of tests in progress.
const PARALLEL: usize = 8;

/// Whether a test begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It begins.
    New,
    /// It is in progress or over, or another test of the Notification is in progress.
    Known,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    running: Option<String>,
    last: Option<LastTest>,
    sent: VecDeque<Instant>,
}

/// The tests of this replica.
#[derive(Debug)]
pub(crate) struct TestBook {
    entries: Mutex<HashMap<String, Entry>>,
    permits: NamespaceLimiter,
}

impl Default for TestBook {
    fn default() -> Self {
        Self { entries: Mutex::default(), permits: NamespaceLimiter::new(PARALLEL) }
    }
}

impl TestBook {
    /// Begins a test, unless it is known.
    pub(super) fn begin(&self, uid: &str, id: &str) -> Begun {
        let mut entries = self.entries.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        if entry.running.is_some() || entry.last.as_ref().is_some_and(|last| last.id == id) {
            return Begun::Known;
        }
        entry.running = Some(id.to_owned());
        Begun::New
    }

    /// Waits until fewer than [`PARALLEL`] tests are in progress, and only a part of them in the namespace.
    pub(super) async fn permit(&self, namespace: &str) -> Permit {
        self.permits.acquire(namespace).await
    }

    /// Returns whether one more test of a Notification may be sent now, and counts it.
    pub(super) fn may_send(&self, uid: &str) -> bool {
        self.may_send_at(uid, Instant::now())
    }

    fn may_send_at(&self, uid: &str, now: Instant) -> bool {
        let mut entries = self.entries.lock();
        let sent = &mut entries.entry(uid.to_owned()).or_default().sent;
        sent.retain(|at| now.duration_since(*at) < WINDOW);
        let may = sent.len() < MOST;
        if may {
            sent.push_back(now);
        }
        may
    }

    /// Ends a test. Without a result, this replica has not made it.
    pub(super) fn ended(&self, uid: &str, id: &str, result: Option<LastTest>) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        if entry.running.as_deref() == Some(id) {
            entry.running = None;
        }
        entry.last = result.or(entry.last.take());
    }

    /// Returns the result that the status must have: that of the requested test, or else the newer one. The clocks of replicas differ.
    pub(crate) fn newest(&self, uid: &str, written: Option<LastTest>, requested: Option<&str>) -> Option<LastTest> {
        let own = self.entries.lock().get(uid).and_then(|entry| entry.last.clone());
        let is_requested = |last: &LastTest| Some(last.id.as_str()) == requested;
        own.into_iter().chain(written).max_by_key(|last| (is_requested(last), last.time))
    }

    /// Drops the entries of deleted Notifications. Returns the number of remaining entries.
    pub(crate) fn tidy(&self, is_there: impl Fn(&str) -> bool) -> usize {
        let mut entries = self.entries.lock();
        entries.retain(|uid, _| is_there(uid));
        entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::notification::TestResult;

    fn result(id: &str, second: i64) -> LastTest {
        let time = relaybook_api::Time::from_second(second).unwrap();
        LastTest { time, ..super::super::last(id, TestResult::Accepted, "") }
    }

    #[test]
    fn a_test_begins_once_and_one_at_a_time() {
        let book = TestBook::default();
        assert_eq!(book.begin("n", "aaaa"), Begun::New);
        assert_eq!(
            (book.begin("n", "aaaa"), book.begin("n", "bbbb"), book.begin("m", "bbbb")),
            (Begun::Known, Begun::Known, Begun::New)
        );
        book.ended("n", "aaaa", Some(result("aaaa", 1)));
        assert_eq!((book.begin("n", "aaaa"), book.begin("n", "bbbb")), (Begun::Known, Begun::New));
        // Another replica makes it. If the bucket comes back, this one can.
        book.ended("n", "bbbb", None);
        assert_eq!(book.begin("n", "bbbb"), Begun::New);
    }

    #[test]
    fn six_tests_a_minute_are_sent_for_one_notification() {
        let (book, now) = (TestBook::default(), Instant::now());
        let sent = (0..100).filter(|_| book.may_send_at("n", now)).count();
        assert_eq!((sent, book.may_send_at("m", now)), (MOST, true));
        assert!(!book.may_send_at("n", now + WINDOW / 2) && book.may_send_at("n", now + WINDOW));
    }

    #[test]
    fn the_requested_or_the_newest_result_counts() {
        let book = TestBook::default();
        let newest = |written: Option<LastTest>, requested| book.newest("n", written, requested).map(|last| last.id);
        assert_eq!(newest(Some(result("a", 1)), None).as_deref(), Some("a"));
        book.ended("n", "b", Some(result("b", 2)));
        for (written, requested, expected) in [
            (result("a", 1), None, "b"),
            (result("c", 3), None, "c"),
            (result("c", 3), Some("b"), "b"),
            (result("a", 1), Some("a"), "a"),
        ] {
            assert_eq!(newest(Some(written), requested).as_deref(), Some(expected));
        }
        assert_eq!((book.tidy(|_| false), newest(None, None)), (0, None));
    }
}
