//! Direct attempts: deliveries that are sent before they are recorded, so that one write records them together with their outcome.
//!
//! In: from the dispatcher, the deliveries that it offers to the engine; from the engine and its tasks, how recording them went. Out: one
//! [`Answer`] for each offer. The change of such a delivery is still in the log of its pipeline, because the cursor waits for the answer. So
//! a crash loses nothing: the next process derives the delivery again, with the same id.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::record::Record;
use super::store::journal::JournalError;
use relaybook_api::{DeliverySpec, ObjectName};

/// How long a delivery can be without an object after it was offered. It is also the time within which a receiver must have answered its
/// last request. So a pass of the dispatcher waits no longer than this for receivers.
pub const DIRECT: Duration = Duration::from_millis(250);
/// Maximum number of deliveries that wait for their first write. A crash can repeat the requests of that many lanes.
pub const MOST: usize = 512;

/// A delivery that the dispatcher offers to the engine.
#[derive(Debug)]
pub struct Offer {
    /// The namespace in which it has to be stored.
    pub namespace: String,
    /// What the delivery reports.
    pub spec: Arc<DeliverySpec>,
    /// Receives the answer.
    pub answer: oneshot::Sender<Answer>,
}

/// The answer to an offer.
#[derive(Debug)]
pub enum Answer {
    /// The delivery is recorded, with or without an outcome. The engine knows it.
    Recorded,
    /// The engine does not attempt it now. The dispatcher has to record it first.
    Declined,
    /// The delivery could not be recorded. Its lane in the engine keeps it, and it can be offered again.
    Failed(JournalError),
}

#[derive(Debug, Default)]
struct Entry {
    answer: Option<oneshot::Sender<Answer>>,
    /// How the last write failed.
    failure: Option<(String, bool)>,
}

/// The deliveries that are not recorded yet, with those who wait for that; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Direct(Arc<Mutex<HashMap<ObjectName, Entry>>>);

impl Direct {
    /// Returns how many deliveries are not recorded yet.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns whether a delivery is not recorded yet.
    #[must_use]
    pub fn contains(&self, id: &ObjectName) -> bool {
        self.0.lock().contains_key(id)
    }

    /// Adds a delivery whose first write is awaited.
    pub fn add(&self, id: &ObjectName, answer: oneshot::Sender<Answer>) {
        self.0.lock().insert(id.clone(), Entry { answer: Some(answer), failure: None });
    }

    /// Answers an offer of a delivery that is already being attempted: with the failure of its last write, or later, after its next write.
    pub fn ask_again(&self, id: &ObjectName, answer: oneshot::Sender<Answer>) {
        let mut entries = self.0.lock();
        let Some(entry) = entries.get_mut(id) else {
            let _ = answer.send(Answer::Recorded);
            return;
        };
        match entry.failure.clone() {
            Some((detail, is_refused)) => {
                let _ = answer.send(Answer::Failed(JournalError::OutcomePending { detail, is_refused }));
            }
            None => entry.answer = Some(answer),
        }
    }

    /// Notes that a delivery is recorded, or that it never will be because nothing refers to it any more.
    pub fn recorded(&self, id: &ObjectName) {
        if let Some(answer) = self.0.lock().remove(id).and_then(|entry| entry.answer) {
            // The dispatcher may have ended its pass. Then its next pass finds the delivery.
            let _ = answer.send(Answer::Recorded);
        }
    }

    /// Notes that a write has failed and is repeated.
    pub fn failed(&self, id: &ObjectName, error: &JournalError) {
        if let Some(entry) = self.0.lock().get_mut(id) {
            let (detail, is_refused) = (error.detail(), error.is_refused());
            if let Some(answer) = entry.answer.take() {
                let _ = answer.send(Answer::Failed(JournalError::OutcomePending { detail: detail.clone(), is_refused }));
            }
            entry.failure = Some((detail, is_refused));
        }
    }

    /// Forgets that the last write has failed, because another one starts for this offer.
    pub fn retried(&self, id: &ObjectName, answer: oneshot::Sender<Answer>) {
        if let Some(entry) = self.0.lock().get_mut(id) {
            *entry = Entry { answer: Some(answer), failure: None };
        }
    }

    /// Forgets a delivery that was not attempted. The dispatcher records it first.
    pub fn forget(&self, id: &ObjectName) {
        if let Some(answer) = self.0.lock().remove(id).and_then(|entry| entry.answer) {
            let _ = answer.send(Answer::Declined);
        }
    }

    /// Drops everyone who waits, because the engine has ended.
    pub fn close(&self) {
        self.0.lock().clear();
    }
}

/// Where a delivery without an object is in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for a worker, or its request is under way.
    Attempted,
    /// It is being recorded as pending.
    Recording,
    /// The result of its attempt is being written.
    Written,
}

impl Record {
    /// Takes over the identity of the object that now records this delivery.
    pub(super) fn adopt(&mut self, stored: &Self) {
        self.uid.clone_from(&stored.uid);
        self.version.clone_from(&stored.version);
        self.recorded = stored.recorded;
        self.asked.clone_from(&stored.asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ObjectName {
        ObjectName::new("team-a", "d")
    }

    #[test]
    fn each_offer_is_answered_once() {
        let direct = Direct::default();
        let (answer, mut first) = oneshot::channel();
        direct.add(&id(), answer);
        assert!(first.try_recv().is_err());
        direct.failed(&id(), &JournalError::Timeout);
        assert!(matches!(first.try_recv(), Ok(Answer::Failed(JournalError::OutcomePending { is_refused: false, .. }))));
        // While the write is repeated, an offer gets the last failure at once.
        let (answer, mut second) = oneshot::channel();
        direct.ask_again(&id(), answer);
        assert!(matches!(second.try_recv(), Ok(Answer::Failed(_))));
        let (answer, mut third) = oneshot::channel();
        direct.retried(&id(), answer);
        direct.recorded(&id());
        assert!(matches!(third.try_recv(), Ok(Answer::Recorded)));
        assert_eq!(direct.count(), 0);
        let (answer, mut fourth) = oneshot::channel();
        direct.ask_again(&id(), answer);
        assert!(matches!(fourth.try_recv(), Ok(Answer::Recorded)), "it was recorded between two passes");
    }

    #[test]
    fn an_offer_that_was_not_attempted_is_declined() {
        let direct = Direct::default();
        let (answer, mut declined) = oneshot::channel();
        direct.add(&id(), answer);
        direct.forget(&id());
        assert!(matches!(declined.try_recv(), Ok(Answer::Declined)));
    }
}
