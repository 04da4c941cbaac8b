//! Notifications whose deliveries cannot be recorded at present, because the API server does not take them or because too many timers
//! run, and when each is tried again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::delivery::PipelineRef;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Failures in a row after which people are told.
const LONG: u32 = 3;

/// What is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A create was refused, or could not be made.
    RecordRefused,
    /// As many timers as may run do, and another would have to.
    TooManyClocks,
}

impl Reason {
    /// As statuses and Events have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RecordRefused => "RecordRefused",
            Self::TooManyClocks => "TooManyClocks",
        }
    }
}

/// Why a delivery could not be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is in the way.
    pub reason: Reason,
    /// The API server understood and said no, or it is we who do, so a person must do something about it.
    pub refused: bool,
    /// Its words.
    pub detail: String,
}

#[derive(Debug)]
struct Entry {
    refusal: Refusal,
    times: u32,
    again: Instant,
}

/// All of them, by pipeline and notification; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Refused(Arc<Mutex<HashMap<(PipelineRef, String), Entry>>>);

impl Refused {
    fn book(&self) -> MutexGuard<'_, HashMap<(PipelineRef, String), Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is time to try. What costs no request may be tried at any time: timers that run must be looked at when they are due.
    #[must_use]
    pub fn may_try(&self, pipeline: &PipelineRef, notification: &str) -> bool {
        self.is_time(pipeline, notification) || self.reason(pipeline, notification) != Some(Reason::RecordRefused)
    }

    /// Whether the wait is over, or there is none.
    #[must_use]
    pub fn is_time(&self, pipeline: &PipelineRef, notification: &str) -> bool {
        self.retry_in(pipeline, notification).is_none_or(|left| left.is_zero())
    }

    /// What was in the way the last time.
    #[must_use]
    pub fn reason(&self, pipeline: &PipelineRef, notification: &str) -> Option<Reason> {
        let key = (pipeline.clone(), notification.to_owned());
        self.book().get(&key).map(|entry| entry.refusal.reason)
    }

    /// How long until it is tried again; `None` if nothing was refused.
    #[must_use]
    pub fn retry_in(&self, pipeline: &PipelineRef, notification: &str) -> Option<Duration> {
        let key = (pipeline.clone(), notification.to_owned());
        self.book().get(&key).map(|e| e.again.saturating_duration_since(Instant::now()))
    }

    /// Takes note; each time the wait doubles. What fails for long is a matter for people, whatever the API server says of it.
    /// Gives what was noted.
    pub fn note(&self, pipeline: &PipelineRef, notification: &str, refusal: Refusal) -> Refusal {
        let mut book = self.book();
        let key = (pipeline.clone(), notification.to_owned());
        let times = book.get(&key).map_or(0, |e| e.times);
        let wait = FIRST.saturating_mul(1 << times.min(6)).min(LONGEST);
        let refusal = Refusal { refused: refusal.refused || times >= LONG, ..refusal };
        let noted = refusal.clone();
        book.insert(key, Entry { refusal, times: times.saturating_add(1), again: Instant::now() + wait });
        noted
    }

    /// It works again.
    pub fn clear(&self, pipeline: &PipelineRef, notification: &str) -> bool {
        self.book().remove(&(pipeline.clone(), notification.to_owned())).is_some()
    }

    /// A pipeline is gone.
    pub fn forget(&self, uid: &str) {
        self.book().retain(|(pipeline, _), _| pipeline.uid != uid);
    }

    /// Drops what is noted of pipelines that are gone.
    pub fn tidy(&self, is_there: impl Fn(&str) -> bool) {
        self.book().retain(|(pipeline, _), _| is_there(&pipeline.uid));
    }

    /// What a notification must know: the first pipeline for which a person must do something.
    #[must_use]
    pub fn of(&self, namespace: &str, notification: &str) -> Option<(String, Refusal)> {
        let book = self.book();
        let here = |((pipeline, name), entry): &(&(PipelineRef, String), &Entry)| {
            pipeline.namespace == namespace && name == notification && entry.refusal.refused
        };
        let first = book.iter().filter(here).min_by(|a, b| a.0.cmp(b.0));
        first.map(|((pipeline, _), entry)| (pipeline.name.clone(), entry.refusal.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_end() {
        let refused = Refused::default();
        let p = PipelineRef { namespace: "a".into(), name: "p".into(), uid: "1".into() };
        assert!(refused.may_try(&p, "n"));
        let refusal = Refusal { reason: Reason::RecordRefused, refused: true, detail: "quota".into() };
        for _ in 0..9 {
            refused.note(&p, "n", refusal.clone());
        }
        assert!(!refused.may_try(&p, "n") && refused.may_try(&p, "other"));
        assert!(refused.retry_in(&p, "n").unwrap() <= LONGEST);
        assert_eq!(refused.of("a", "n"), Some(("p".to_owned(), refusal.clone())));
        assert!(refused.clear(&p, "n") && refused.of("a", "n").is_none());
        let crowded = Refusal { reason: Reason::TooManyClocks, ..refusal };
        refused.note(&p, "n", crowded.clone());
        assert!(refused.may_try(&p, "n") && !refused.is_time(&p, "n"), "its clocks go on");
        assert_eq!(refused.of("a", "n"), Some(("p".to_owned(), crowded.clone())));
        assert!(refused.clear(&p, "n"));
        let away = Refusal { reason: Reason::RecordRefused, refused: false, detail: "no answer".into() };
        for times in 0..5 {
            assert_eq!(refused.note(&p, "n", away.clone()).refused, times >= LONG);
        }
    }
}
