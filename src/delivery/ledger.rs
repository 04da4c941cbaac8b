//! What is known of all deliveries, settled ones included: a few words each, for counts and for "was this recorded?".
//!
//! In: what the engine sees and does. Out: the figures of `Notification.status`, the times of `Pipeline.status.dispatched`,
//! whether a name is taken, so that a transition that is recorded already costs no call, and what has been kept long enough.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::kept::{Kept, Overdue, Rules};
use super::lane::Place;
use super::record::{LaneKey, Record, RecordId};
use super::wakes::Wakes;
use crate::api::delivery::PipelineRef;
use crate::api::{Outcome, Time, version};
use crate::telemetry::metrics::Share;

/// The status with which a receiver says that it is gone for good (RFC 9110, section 15.5.11).
const GONE: u16 = 410;

/// (namespace of the pipeline, name of the notification).
pub type Owner = (String, String);

/// What a delivery is about, within its pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic {
    /// The subject, as in the change log.
    pub subject: String,
    /// Name of the notification.
    pub notification: String,
}

/// Why a lane does not move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// For machines.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// The figures of one notification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// On their way.
    pub pending: i64,
    /// Kept, delivered.
    pub delivered: i64,
    /// Kept, parked.
    pub parked: i64,
    /// The last 2xx.
    pub last_sent: Option<Time>,
    /// The last attempt.
    pub last_attempt: Option<Time>,
    /// Its error, if it was one.
    pub last_error: Option<String>,
    /// When the receiver last said that it is gone for good (410).
    pub gone: Option<Time>,
    /// Lanes that do not move, in order.
    pub troubles: BTreeMap<LaneKey, Trouble>,
}

/// One delivery.
#[derive(Clone, Debug)]
struct Entry {
    lane: Arc<LaneKey>,
    place: Place,
    outcome: Option<Outcome>,
    version: u64,
}

#[derive(Debug, Default)]
struct Book {
    entries: HashMap<RecordId, Entry>,
    kept: Kept,
    figures: HashMap<Owner, Figures>,
    sent: HashMap<String, BTreeMap<Topic, Time>>,
}

/// The ledger; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    book: Arc<Mutex<Book>>,
    /// Notifications whose figures have changed.
    pub changed: Wakes<Owner>,
    /// Pipelines of which something was sent.
    pub sent: Wakes<PipelineRef>,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(record: &Record) -> Owner {
        (record.spec.pipeline_ref.namespace.clone(), record.spec.notification.clone())
    }

    /// Takes note of a record as it stands.
    pub fn note(&self, record: &Record) {
        let owner = Self::owner(record);
        {
            let mut book = self.book();
            if !book.put(record) {
                return;
            }
            let status = &record.status;
            let figures = book.figures.entry(owner.clone()).or_default();
            // After a restart these are all that is left of what happened before.
            if status.last_attempt_time > figures.last_attempt {
                figures.last_attempt = status.last_attempt_time;
                figures.last_error.clone_from(&status.error);
            }
            match status.outcome {
                Some(Outcome::Delivered) => {
                    figures.last_sent = figures.last_sent.max(status.last_attempt_time);
                    status.last_attempt_time.into_iter().for_each(|at| book.sent_at(record, at));
                }
                Some(Outcome::Parked) if status.status_code == Some(GONE) => {
                    figures.gone = figures.gone.max(status.last_attempt_time);
                }
                _ => {}
            }
        }
        self.changed.wake(owner);
    }

    /// Forgets a record that was deleted; `true` if it was known.
    pub fn forget(&self, id: &RecordId) -> bool {
        let owner = {
            let mut book = self.book();
            let Some(entry) = book.take(id) else { return false };
            (entry.lane.namespace.clone(), entry.lane.notification.clone())
        };
        self.changed.wake(owner);
        true
    }

    /// Whether this name is taken.
    #[must_use]
    pub fn knows(&self, id: &RecordId) -> bool {
        self.book().entries.contains_key(id)
    }

    /// Whether a copy is older than one that is known to be settled: an event from before the outcome.
    #[must_use]
    pub fn has_settled(&self, record: &Record) -> bool {
        let book = self.book();
        let newer = |entry: &&Entry| entry.outcome.is_some() && entry.version >= version(Some(&record.version));
        book.entries.get(&record.id).is_some_and(|entry| newer(&entry))
    }

    /// How many earlier deliveries this one stands for, by what is settled; see `Kept::replaced`.
    #[must_use]
    pub fn replaced(&self, record: &Record, after: Option<Place>) -> i64 {
        self.book().kept.replaced(record, after)
    }

    /// How many settled deliveries are kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.book().kept.count()
    }

    /// Settled deliveries that have been kept long enough, the first `most` by name; see `Kept::overdue`.
    pub fn overdue<'a>(&self, rules: impl Fn(&LaneKey) -> Rules<'a>, cap: usize, most: usize, now: Time) -> Overdue {
        self.book().kept.overdue(rules, cap, most, now)
    }

    /// All names.
    #[must_use]
    pub fn ids(&self) -> Vec<RecordId> {
        self.book().entries.keys().cloned().collect()
    }

    /// Takes note of an attempt: `error` is absent after a 2xx.
    pub fn attempted(&self, record: &Record, at: Time, error: Option<&str>) {
        let owner = Self::owner(record);
        {
            let mut book = self.book();
            let figures = book.figures.entry(owner.clone()).or_default();
            figures.last_attempt = figures.last_attempt.max(Some(at));
            figures.last_error = error.map(str::to_owned);
            if error.is_none() {
                figures.last_sent = figures.last_sent.max(Some(at));
                book.sent_at(record, at);
            }
        }
        self.changed.wake(owner);
        if error.is_none() {
            self.sent.wake(record.spec.pipeline_ref.clone());
        }
    }

    /// Says why a lane does not move, or that it does.
    pub fn trouble(&self, lane: &LaneKey, trouble: Option<Trouble>) {
        let owner = (lane.namespace.clone(), lane.notification.clone());
        {
            let mut book = self.book();
            let troubles = &mut book.figures.entry(owner.clone()).or_default().troubles;
            if troubles.get(lane) == trouble.as_ref() {
                return;
            }
            match trouble {
                Some(trouble) => troubles.insert(lane.clone(), trouble),
                None => troubles.remove(lane),
            };
        }
        self.changed.wake(owner);
    }

    /// The figures of one notification.
    #[must_use]
    pub fn figures(&self, owner: &Owner) -> Figures {
        self.book().figures.get(owner).cloned().unwrap_or_default()
    }

    /// The notifications that have something pending or parked, those with the most of it first.
    #[must_use]
    pub fn shares(&self) -> Vec<Share> {
        let book = self.book();
        let stands = |figures: &Figures| figures.pending + figures.parked;
        let mut some: Vec<_> = book.figures.iter().filter(|(_, figures)| stands(figures) > 0).collect();
        some.sort_unstable_by_key(|(owner, figures)| (Reverse(stands(figures)), *owner));
        let share = |((namespace, notification), figures): (&Owner, &Figures)| Share {
            namespace: namespace.clone(),
            notification: notification.clone(),
            pending: figures.pending,
            parked: figures.parked,
        };
        some.into_iter().take(Share::MOST).map(share).collect()
    }

    /// The last successful deliveries of a pipeline that were not given here before. After a restart these are all that are kept, so
    /// that a time that the process before could not persist is not lost.
    #[must_use]
    pub fn take_sent(&self, pipeline_uid: &str) -> BTreeMap<Topic, Time> {
        self.book().sent.remove(pipeline_uid).unwrap_or_default()
    }
}

impl Book {
    /// A receiver answered 2xx to this record.
    fn sent_at(&mut self, record: &Record, at: Time) {
        let topic =
            Topic { subject: super::directory::subject(&record.spec), notification: record.spec.notification.clone() };
        let known = self.sent.entry(record.spec.pipeline_ref.uid.clone()).or_default().entry(topic).or_insert(at);
        *known = at.max(*known);
    }

    /// Takes over one as it stands; `false` if it stands as before.
    fn put(&mut self, record: &Record) -> bool {
        let outcome = record.status.outcome;
        let (known, place) = (self.entries.get(&record.id), Place::from(&*record.spec));
        let same = known.is_some_and(|entry| entry.outcome == outcome);
        if same && outcome.is_none() {
            return false;
        }
        if same && let Some(entry) = self.entries.get_mut(&record.id) {
            // Its annotations or its count have changed.
            entry.version = version(Some(&record.version));
            self.kept.put(&entry.lane, record);
            return false;
        }
        self.take(&record.id);
        let lane = self.kept.lane(record.home());
        self.kept.put(&lane, record);
        let owner = (lane.namespace.clone(), lane.notification.clone());
        count(self.figures.entry(owner).or_default(), outcome, 1);
        let entry = Entry { lane, place, outcome, version: version(Some(&record.version)) };
        self.entries.insert(record.id.clone(), entry);
        true
    }

    fn take(&mut self, id: &RecordId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        self.kept.take(&entry.lane, entry.place, entry.outcome);
        if let Some(figures) = self.figures.get_mut(&(entry.lane.namespace.clone(), entry.lane.notification.clone())) {
            count(figures, entry.outcome, -1);
        }
        Some(entry)
    }
}

fn count(figures: &mut Figures, outcome: Option<Outcome>, by: i64) {
    match outcome {
        None => figures.pending += by,
        Some(Outcome::Delivered) => figures.delivered += by,
        Some(Outcome::Parked) => figures.parked += by,
        Some(Outcome::Canceled | Outcome::Superseded) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::testing::record;

    #[test]
    fn counts_follow_the_records() {
        let ledger = Ledger::default();
        let owner = ("team-a".to_owned(), "deploys".to_owned());
        let mut r = record(9);
        ledger.note(&r);
        ledger.note(&r);
        assert!(ledger.knows(&r.id));
        assert_eq!(ledger.figures(&owner).pending, 1);
        let shares: Vec<_> =
            ledger.shares().into_iter().map(|s| (s.namespace, s.notification, s.pending, s.parked)).collect();
        assert_eq!(shares, [(owner.0.clone(), owner.1.clone(), 1, 0)]);
        ledger.attempted(&r, crate::api::Time::UNIX_EPOCH, None);
        r.status.outcome = Some(Outcome::Delivered);
        ledger.note(&r);
        let figures = ledger.figures(&owner);
        assert_eq!((figures.pending, figures.delivered, figures.parked), (0, 1, 0));
        assert_eq!(ledger.shares(), [], "it has nothing that waits");
        let restarted = Ledger::default();
        r.status.last_attempt_time = Some(crate::api::Time::UNIX_EPOCH);
        restarted.note(&r);
        assert!(ledger.has_settled(&record(9)) && !ledger.has_settled(&record(8)));
        assert_eq!(ledger.kept(), 1);
        assert_eq!(ledger.take_sent("p1").len(), 1);
        assert!(ledger.take_sent("p1").is_empty());
        let topics: Vec<_> = restarted.take_sent("p1").into_keys().map(|topic| topic.notification).collect();
        assert_eq!(topics, ["deploys"], "what is kept says when it was sent");
        assert!(ledger.forget(&r.id) && !ledger.forget(&r.id));
        assert_eq!(ledger.figures(&owner).delivered, 0);
    }
}
