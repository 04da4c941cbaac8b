//! Decides which Deliveries the engine accepts, and deletes those that Relaybook did not record.
//!
//! In: records from the API server. Out: whether they get a lane; deletions of foreign Deliveries, in separate tasks. The decisions come
//! from `genuine`. Until everything was listed in a leadership term, nothing is decided and nothing is sent.

use std::time::{Duration, Instant};

use super::admission::{Admission, Foreign, Undecided};
use super::engine::{Done, Engine};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::genuine::{Origin, Sight, judge};
use crate::outbox::store::journal::DEADLINE;
use relaybook_api::ObjectName;
use relaybook_api::version;

/// Maximum number of concurrent deletions.
const DELETIONS: usize = 8;
/// Pause after a failed deletion.
const REST: Duration = Duration::from_secs(10);
/// Maximum number of foreign Deliveries that wait for deletion, and of undecided ones. Undecided Deliveries beyond it count as foreign at
/// once.
const MOST: usize = 10_000;
/// Minimum time between two log lines for the same namespace.
const REPORT: Duration = Duration::from_mins(1);

impl Engine {
    /// Returns the leadership term, if this replica is the leader and everything was listed in that term.
    fn term(&self) -> Option<u64> {
        self.acting().then(|| self.initial_sync.term()).flatten()
    }

    /// Returns whether the origin of all listed Deliveries was determined in this term.
    pub(crate) fn is_judged(&self) -> bool {
        self.term().is_some_and(|term| self.admission.term == Some(term))
    }

    /// Determines the origin of the listed Deliveries, once in each term.
    pub(crate) fn judge_listed(&mut self) {
        let Some(term) = self.term().filter(|term| self.admission.term != Some(*term)) else { return };
        self.admission = Admission { term: Some(term), ..Admission::default() };
        self.drop_unrecorded(|_| true);
        let pipelines = self.parts.pipeline_index.clone();
        self.parts.delivery_index.doubt(|pipeline| pipelines.recorded_until(pipeline));
        let ours = self.lanes.iter().filter(|(key, _)| self.is_ours(&key.pipeline));
        let pending: Vec<Record> = ours.flat_map(|(_, slot)| slot.lane.iter().map(|(_, r)| r.clone())).collect();
        for record in pending.into_iter().filter(Record::is_recorded) {
            if self.admit(&record, Sight::Listed) {
                self.parts.delivery_index.prove(&record, self.admission.proven.contains(&record.uid));
            } else {
                self.remove_from_lane(&record.id);
            }
        }
        let keys: Vec<LaneKey> = self.lanes.keys().cloned().collect();
        for key in keys {
            self.check(&key);
        }
        self.reopen();
    }

    /// Decides whether a Delivery gets a lane. Queues foreign Deliveries for deletion.
    pub(crate) fn admit(&mut self, record: &Record, sight: Sight) -> bool {
        let uid = &record.uid;
        if self.admission.proven.contains(uid) {
            return true;
        }
        if sight == Sight::Watched && self.parts.delivery_index.is_own(uid) {
            // The dispatcher passes it to the engine together with earlier ones, so that the lane gets them in order.
            return false;
        }
        match judge(record, &self.parts.pipeline_index.known_of(&record.spec), sight) {
            Origin::Recorded => {
                self.admission.unproven.remove(uid);
                self.admission.proven.insert(uid.clone())
            }
            Origin::NoPipeline => {
                self.admission.unproven.insert(uid.clone(), sight);
                true
            }
            Origin::Undecided if self.admission.undecided.len() < MOST => {
                self.admission.unproven.remove(uid);
                let undecided = Undecided {
                    uid: uid.clone(),
                    version: version(Some(&record.version)),
                    pipeline: record.spec.pipeline_ref.uid.clone(),
                    pipeline_name: record.spec.pipeline_ref.name.clone(),
                    notification: record.spec.notification.clone(),
                    serial: record.spec.serial,
                };
                self.admission.undecided.insert(record.id.clone(), undecided);
                false
            }
            Origin::Undecided => self.refuse(record, "TooMany"),
            Origin::Foreign(why) => self.refuse(record, why),
        }
    }

    /// Returns whether a settled Delivery was listed, or was recorded by this process.
    pub(crate) fn is_known(&self, record: &Record) -> bool {
        self.admission.proven.contains(&record.uid) || self.parts.delivery_index.contains(&record.id)
    }

    /// Marks a proven Delivery in the delivery index, so that the dispatcher does not record it again.
    pub(crate) fn say_proven(&self, record: &Record) {
        if self.admission.proven.contains(&record.uid) {
            self.parts.delivery_index.prove(record, true);
        }
    }

    /// Returns whether a Delivery has a lane although its origin is not determined yet.
    pub(crate) fn is_unproven(&self, record: &Record) -> bool {
        self.admission.unproven.contains_key(&record.uid)
    }

    /// Accepts a Delivery that the dispatcher has recorded.
    pub(crate) fn recorded(&mut self, record: Record) {
        self.prove(&record);
        self.take_object(&record);
        self.seen(record);
    }

    /// Notes that this process has recorded a Delivery.
    pub(crate) fn prove(&mut self, record: &Record) {
        let _ = self.parts.delivery_index.take_own(&record.uid);
        self.admission.proven.insert(record.uid.clone());
        self.admission.unproven.remove(&record.uid);
        self.admission.undecided.remove(&record.id);
    }

    /// Determines the origin of the heads of a lane whose pipeline was not known before. Removes those that Relaybook did not record.
    pub(crate) fn prove_head(&mut self, key: &LaneKey) {
        while let Some(head) = self.lanes.get(key).and_then(|slot| slot.lane.head()).cloned() {
            let Some(sight) = self.admission.unproven.get(&head.uid).copied() else { return };
            if self.admit(&head, sight) {
                return self.say_proven(&head);
            }
            self.remove_from_lane(&head.id);
        }
    }

    fn remove_from_lane(&mut self, id: &ObjectName) {
        self.parts.delivery_index.forget(id);
        if let Some((key, place)) = self.index.remove(id)
            && let Some(slot) = self.lanes.get_mut(&key)
        {
            slot.lane.remove(place);
        }
    }

    fn refuse(&mut self, record: &Record, why: &'static str) -> bool {
        self.admission.unproven.remove(&record.uid);
        self.admission.undecided.remove(&record.id);
        self.parts.metrics.foreign();
        self.report(&record.id, &record.spec.pipeline_ref.name, why);
        self.expel(record.id.clone(), version(Some(&record.version)), &record.spec.pipeline_ref.uid);
        false
    }

    fn expel(&mut self, id: ObjectName, version: u64, pipeline: &str) {
        if self.admission.foreign.len() < MOST {
            let foreign = Foreign { version, pipeline: pipeline.to_owned(), not_before: Instant::now() };
            self.admission.foreign.insert(id, foreign);
        }
        self.expel_next();
    }

    /// Starts deletions of foreign Deliveries, a few at a time. This continues during shutdown, because the next process knows less about
    /// them.
    fn expel_next(&mut self) {
        let now = Instant::now();
        // A replica that was paused can see what the next leader has recorded before it learns that it is not the leader any more.
        while self.admission.deleting.len() < DELETIONS && self.acting() && self.parts.lease.allows(DEADLINE) {
            let Some(id) = self.admission.foreign.iter().find(|(_, f)| f.not_before <= now).map(|(id, _)| id.clone()) else {
                return;
            };
            let Some(foreign) = self.admission.foreign.remove(&id) else { return };
            // Another replica decides about it now.
            let Some(busy) = self.parts.lease.begin(&foreign.pipeline) else { continue };
            self.begin_beside(&foreign.pipeline);
            self.admission.deleting.insert(id.clone());
            let journal = self.parts.journal.clone();
            self.work.spawn(async move {
                let failed = journal.delete(&id, foreign.version).await.err().map(|error| error.detail());
                drop(busy);
                Done::Expelled { id, foreign, failed }
            });
        }
    }

    /// Handles the result of a deletion. A failed deletion is retried after a pause.
    pub(crate) fn expelled(&mut self, id: ObjectName, foreign: Foreign, failed: Option<String>) {
        self.admission.deleting.remove(&id);
        self.end_beside(&foreign.pipeline);
        if let Some(error) = failed {
            tracing::warn!(%error, namespace = %id.namespace, delivery = %id.name, "could not delete a Delivery that Relaybook did not record");
            let foreign = Foreign { not_before: Instant::now() + REST, ..foreign };
            self.admission.foreign.entry(id).or_insert(foreign);
        }
        self.expel_next();
    }

    /// Checks undecided Deliveries. A Delivery is foreign if the cursor has passed its change without recording it, or if its pipeline is
    /// gone.
    pub(crate) fn settle_undecided(&mut self) {
        if !self.is_judged() {
            return;
        }
        let cursors = self.parts.pipeline_index.cursors();
        let is_passed = |u: &Undecided| {
            let Some(cursors) = cursors.get(&u.pipeline) else { return true };
            let taken = (**cursors).as_ref().and_then(|cursors| cursors.get(&u.notification));
            taken.is_some_and(|taken| taken.is_beyond(u.serial))
        };
        let passed: Vec<_> =
            self.admission.undecided.iter().filter(|(_, u)| is_passed(u)).map(|(id, _)| id.clone()).collect();
        for id in passed {
            let Some(undecided) = self.admission.undecided.remove(&id) else { continue };
            if !self.admission.proven.contains(&undecided.uid) && !self.parts.delivery_index.is_own(&undecided.uid) {
                self.parts.metrics.foreign();
                self.report(&id, &undecided.pipeline_name, "NotRecorded");
                self.expel(id, undecided.version, &undecided.pipeline);
            }
        }
        self.admission.reported.retain(|_, at| at.elapsed() < REPORT);
        self.expel_next();
    }

    /// Removes what is known about the origin of an object that is gone.
    pub(crate) fn forget_origin(&mut self, id: &ObjectName, uid: &str) {
        self.admission.proven.remove(uid);
        self.admission.unproven.remove(uid);
        self.admission.undecided.remove(id);
        self.admission.foreign.remove(id);
        self.parts.tests_kept.gone(id);
        let _ = self.parts.delivery_index.take_own(uid);
    }

    /// Logs that a foreign Delivery is deleted, at most once a minute for each namespace.
    fn report(&mut self, id: &ObjectName, pipeline: &str, why: &'static str) {
        if self.admission.reported.contains_key(&id.namespace) || self.admission.reported.len() >= MOST {
            return;
        }
        self.admission.reported.insert(id.namespace.clone(), Instant::now());
        tracing::warn!(
            namespace = %id.namespace,
            delivery = %id.name,
            %pipeline,
            reason = why,
            "deleting a Delivery that Relaybook did not record; it is not sent"
        );
    }
}
