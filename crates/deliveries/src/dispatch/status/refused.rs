//! Notifications whose deliveries cannot be recorded at present, and when each is retried. Either the API server does not accept the
//! deliveries, or too many timers run.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use relaybook_api::Backoff;
use relaybook_api::delivery::{PipelineRef, Reason, is_same_notification};

const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
/// Failures in a row after which users are notified.
const LONG: u32 = 3;

/// Why deliveries cannot be recorded.
pub const REASONS: [Reason; 2] = [Reason::RecordRefused, Reason::TooManyClocks];

/// Why a delivery could not be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why deliveries cannot be recorded.
    pub reason: Reason,
    /// Whether a user must act, because the API server or Relaybook's own limit rejects the delivery.
    pub refused: bool,
    /// The human-readable details.
    pub detail: String,
}

#[derive(Debug)]
struct Entry {
    /// The uid of the notification. Another one of the same name has no refusal.
    uid: String,
    refusal: Refusal,
    times: u32,
    again: Instant,
}

/// All refusals, by pipeline and notification. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Refused(Arc<Mutex<HashMap<(PipelineRef, String), Entry>>>);

impl Refused {
    /// Whether a retry is allowed now. A retry that costs no request is always allowed, because running timers must be processed when they
    /// are due.
    #[must_use]
    pub fn may_try(&self, pipeline: &PipelineRef, notification: &str) -> bool {
        self.is_time(pipeline, notification) || self.reason(pipeline, notification) != Some(Reason::RecordRefused)
    }

    /// Whether the wait is over, or there is no wait.
    #[must_use]
    pub fn is_time(&self, pipeline: &PipelineRef, notification: &str) -> bool {
        self.retry_in(pipeline, notification).is_none_or(|left| left.is_zero())
    }

    /// Returns why deliveries could not be recorded the last time.
    #[must_use]
    pub fn reason(&self, pipeline: &PipelineRef, notification: &str) -> Option<Reason> {
        let key = (pipeline.clone(), notification.to_owned());
        self.0.lock().get(&key).map(|entry| entry.refusal.reason)
    }

    /// Returns how long until the next retry. `None` if nothing was refused.
    #[must_use]
    pub fn retry_in(&self, pipeline: &PipelineRef, notification: &str) -> Option<Duration> {
        let key = (pipeline.clone(), notification.to_owned());
        self.0.lock().get(&key).map(|e| e.again.saturating_duration_since(Instant::now()))
    }

    /// Records a refusal of the notification with this name and uid. The wait doubles each time, up to a limit. After several failures in a
    /// row, a user must act, whatever the API server reports. Returns the recorded refusal.
    pub fn note(&self, pipeline: &PipelineRef, notification: &str, uid: &str, refusal: Refusal) -> Refusal {
        let mut book = self.0.lock();
        let key = (pipeline.clone(), notification.to_owned());
        let mut times = book.get(&key).filter(|e| is_same_notification(&e.uid, uid)).map_or(0, |e| e.times);
        let refusal = Refusal { refused: refusal.refused || times >= LONG, ..refusal };
        let noted = refusal.clone();
        let again = Instant::now() + PAUSES.next(&mut times);
        book.insert(key, Entry { uid: uid.to_owned(), refusal, times, again });
        noted
    }

    /// Removes the refusal, because recording works again. Returns `true` if there was one.
    pub fn clear(&self, pipeline: &PipelineRef, notification: &str) -> bool {
        self.0.lock().remove(&(pipeline.clone(), notification.to_owned())).is_some()
    }

    /// Removes the refusals of a deleted pipeline.
    pub fn forget(&self, uid: &str) {
        self.0.lock().retain(|(pipeline, _), _| pipeline.uid != uid);
    }

    /// Drops the refusals of pipelines that do not exist any more.
    pub fn tidy(&self, is_there: impl Fn(&str) -> bool) {
        self.0.lock().retain(|(pipeline, _), _| is_there(&pipeline.uid));
    }

    /// Returns the notifications of a pipeline for which a user must act, with their refusals.
    #[must_use]
    pub fn of_pipeline(&self, pipeline: &PipelineRef) -> Vec<(String, Refusal)> {
        let book = self.0.lock();
        let here = book.iter().filter(|((of, _), entry)| of == pipeline && entry.refusal.refused);
        let mut all: Vec<_> = here.map(|((_, name), entry)| (name.clone(), entry.refusal.clone())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Returns what the status of a notification must show: the first pipeline for which a user must act, and its refusal. Only pipelines of
    /// this replica count, by uid.
    #[must_use]
    pub fn of(
        &self,
        namespace: &str,
        notification: &str,
        uid: &str,
        is_ours: impl Fn(&str) -> bool,
    ) -> Option<(String, Refusal)> {
        let book = self.0.lock();
        let here = |((pipeline, name), entry): &(&(PipelineRef, String), &Entry)| {
            let is_same = pipeline.namespace == namespace && name == notification && is_same_notification(&entry.uid, uid);
            is_same && entry.refusal.refused && is_ours(&pipeline.uid)
        };
        let first = book.iter().filter(here).min_by(|a, b| a.0.cmp(b.0));
        first.map(|((pipeline, _), entry)| (pipeline.name.clone(), entry.refusal.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::delivery::GLOBAL;

    #[test]
    fn the_wait_after_a_refusal_grows_to_a_maximum_and_ends_when_it_is_cleared() {
        let refused = Refused::default();
        let p = PipelineRef { namespace: "a".into(), name: "p".into(), uid: "1".into() };
        assert!(refused.may_try(&p, "n"));
        let refusal = Refusal { reason: Reason::RecordRefused, refused: true, detail: "quota".into() };
        for _ in 0..9 {
            refused.note(&p, "n", "n1", refusal.clone());
        }
        assert!(!refused.may_try(&p, "n") && refused.may_try(&p, "other"));
        assert!(refused.retry_in(&p, "n").unwrap() <= PAUSES.longest);
        assert_eq!(refused.of("a", "n", "n1", |_| true), Some(("p".to_owned(), refusal.clone())));
        assert!(refused.clear(&p, "n") && refused.of("a", "n", "n1", |_| true).is_none());
        let crowded = Refusal { reason: Reason::TooManyClocks, ..refusal };
        refused.note(&p, "n", "n1", crowded.clone());
        assert!(refused.may_try(&p, "n") && !refused.is_time(&p, "n"), "its clocks go on");
        assert_eq!(refused.of("a", "n", "n1", |_| true), Some(("p".to_owned(), crowded.clone())));
        assert!(refused.clear(&p, "n"));
        let away = Refusal { reason: Reason::RecordRefused, refused: false, detail: "no answer".into() };
        for times in 0..5 {
            assert_eq!(refused.note(&p, "n", "n1", away.clone()).refused, times >= LONG);
        }
    }

    #[test]
    fn a_notification_that_is_created_again_has_no_refusal() {
        let refused = Refused::default();
        let p = PipelineRef { namespace: "a".into(), name: "p".into(), uid: "1".into() };
        let away = Refusal { reason: Reason::RecordRefused, refused: false, detail: "no answer".into() };
        for _ in 0..=LONG {
            refused.note(&p, "n", "n1", away.clone());
        }
        assert!(refused.of("a", "n", "n1", |_| true).is_some());
        // The next pass of the pipeline clears the entry, but the status of the new Notification can be computed before that.
        assert_eq!(refused.of("a", "n", "n2", |_| true), None);
        assert!(refused.of("a", "n", GLOBAL, |_| true).is_some(), "the name is that of a cluster-wide notification");
        assert!(!refused.note(&p, "n", "n2", away).refused, "it is the first failure of the new one");
        assert_eq!(refused.of("a", "n", "n1", |_| true), None);
    }
}
