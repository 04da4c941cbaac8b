//! The entries of the delivery index, and the counts that follow from them. Plain data behind one lock.
//!
//! In: the current state of each record. Out: one entry for each, the figures of its notification, and its place in the retention.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::outbox::lane::Place;
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::store::figures::{Figures, Topic};
use crate::outbox::store::pending_lanes::PendingLanes;
use crate::outbox::store::retention_index::RetentionIndex;
use relaybook_api::{ObjectName, Outcome, Time, version};

/// One delivery.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub lane: Arc<LaneKey>,
    pub place: Place,
    pub outcome: Option<Outcome>,
    pub version: u64,
    /// When the API server created it.
    pub recorded: Time,
    /// Whether the engine has proven that Relaybook has recorded it.
    pub is_proven: bool,
    /// Whether another client may have created it with its outcome.
    pub is_doubtful: bool,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    pub entries: HashMap<ObjectName, Entry>,
    pub kept: RetentionIndex,
    pub figures: HashMap<ObjectName, Figures>,
    /// Notifications that were idle at the last `tidy`.
    pub idle: HashSet<ObjectName>,
    pub sent: HashMap<String, BTreeMap<Topic, Time>>,
    /// Uids of Deliveries that this process has recorded and the engine has not accepted yet.
    pub own: HashSet<String>,
    /// By uid of the pipeline: when the newest Delivery was recorded.
    pub newest: HashMap<String, Time>,
    pub pending: PendingLanes,
    /// Deleted Deliveries that finalizers keep.
    pub terminating: HashSet<ObjectName>,
}

impl Book {
    /// Records that a receiver responded with 2xx to this record.
    pub fn sent_at(&mut self, record: &Record, at: Time) {
        let topic = Topic { subject: record.spec.log_subject().to_string(), notification: record.spec.notification.clone() };
        let known = self.sent.entry(record.spec.pipeline_ref.uid.clone()).or_default().entry(topic).or_insert(at);
        *known = at.max(*known);
    }

    /// Stores the current state of a record. Returns `false` if the outcome has not changed.
    pub fn put(&mut self, record: &Record) -> bool {
        let outcome = record.status.outcome;
        let (known, place) = (self.entries.get(&record.id), Place::from(&*record.spec));
        let same = known.is_some_and(|entry| entry.outcome == outcome);
        if same && outcome.is_none() {
            return false;
        }
        if same && let Some(entry) = self.entries.get_mut(&record.id) {
            // Its annotations or its count may have changed.
            entry.version = version(Some(&record.version));
            self.kept.put(&entry.lane, record);
            return false;
        }
        let known = self.take(&record.id);
        let (is_proven, is_doubtful) = known.map_or((false, false), |entry| (entry.is_proven, entry.is_doubtful));
        let lane = self.kept.lane(record.home());
        self.kept.put(&lane, record);
        if outcome.is_none() {
            self.pending.added(&lane);
        }
        count(self.figures.entry(lane.owner()).or_default(), outcome, 1);
        let version = version(Some(&record.version));
        let entry = Entry { lane, place, outcome, version, recorded: record.recorded, is_proven, is_doubtful };
        self.entries.insert(record.id.clone(), entry);
        true
    }

    pub fn raise(&mut self, pipeline_uid: &str, recorded: Time) {
        match self.newest.get_mut(pipeline_uid) {
            Some(newest) => *newest = recorded.max(*newest),
            None => drop(self.newest.insert(pipeline_uid.to_owned(), recorded)),
        }
    }

    pub fn take(&mut self, id: &ObjectName) -> Option<Entry> {
        self.pending.accepted(id);
        let entry = self.entries.remove(id)?;
        if entry.outcome.is_none() {
            self.pending.removed(&entry.lane);
        }
        self.kept.take(&entry.lane, entry.place, entry.outcome);
        if let Some(figures) = self.figures.get_mut(&entry.lane.owner()) {
            count(figures, entry.outcome, -1);
            figures.given_up.forget(id);
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
