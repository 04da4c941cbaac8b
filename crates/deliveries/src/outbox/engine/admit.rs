//! Decides which Deliveries the engine accepts, and deletes those that Relaybook did not record.
//!
//! In: records from the API server. Out: whether they get a lane; tasks that delete foreign Deliveries. The decisions come
//! from `genuine`. Until everything was listed in a leadership term, nothing is decided and nothing is sent.

use std::time::Duration;

use super::Engine;
use super::effect::{Effect, Facts, Now, Task};
use super::state::admission::{Admission, Foreign, Undecided};
use crate::outbox::lane::redeliver::wanted;
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::genuine::{Origin, Sight, judge};
use crate::outbox::store::journal::DEADLINE;
use relaybook_api::ObjectName;
use relaybook_api::version;
use relaybook_settings::config::EffectiveNotification;

/// Maximum number of concurrent deletions.
const DELETIONS: usize = 8;
/// Pause after a failed deletion.
const REST: Duration = Duration::from_secs(10);
/// Maximum number of foreign Deliveries that wait for deletion, and of undecided ones. Undecided Deliveries beyond it count as foreign at
/// once.
const MOST: usize = 10_000;
/// How long after the begin of a term deliveries wait for the dispatcher to compare the one whose message they continue. It does so within seconds, unless
/// the API server refuses its requests. Then they are sent, and begin another message.
const COMPARED: Duration = Duration::from_secs(30);
/// Minimum time between two log lines for the same namespace.
const REPORT: Duration = Duration::from_mins(1);

impl Engine {
    /// Returns the leadership term, if this replica is the leader and everything was listed in that term.
    fn term(&self, facts: &Facts<'_>) -> Option<u64> {
        self.acting(facts).then(|| self.initial_sync.term()).flatten()
    }

    /// Returns whether the origin of all listed Deliveries was determined in this term.
    pub(crate) fn is_judged(&self, facts: &Facts<'_>) -> bool {
        self.term(facts).is_some_and(|term| self.admission.term == Some(term))
    }

    /// Determines the origin of the listed Deliveries, once in each term.
    pub(crate) fn judge_listed(&mut self, facts: &Facts<'_>, now: Now) {
        let Some(term) = self.term(facts).filter(|term| self.admission.term != Some(*term)) else { return };
        self.admission = Admission { term: Some(term), compared: Some(now.mono + COMPARED), ..Admission::default() };
        self.drop_unrecorded(|_| true);
        facts.delivery_index.doubt(|pipeline| facts.pipelines.recorded_until(pipeline));
        let ours = self.lanes.iter().filter(|(key, _)| facts.is_ours(&key.pipeline));
        let pending: Vec<Record> = ours.flat_map(|(_, slot)| slot.lane.iter().map(|(_, r)| r.clone())).collect();
        for record in pending.into_iter().filter(Record::is_recorded) {
            if self.admit(&record, Sight::Listed, facts, now) {
                facts.delivery_index.prove(&record, self.admission.proven.contains(&record.uid));
            } else {
                self.remove_from_lane(&record.id, facts);
            }
        }
        for key in self.lanes.keys(|_| true) {
            self.check(&key, facts, now);
        }
        self.reopen(facts, now);
    }

    /// Decides whether a Delivery gets a lane. Queues foreign Deliveries for deletion.
    pub(crate) fn admit(&mut self, record: &Record, sight: Sight, facts: &Facts<'_>, now: Now) -> bool {
        let uid = &record.uid;
        if self.admission.proven.contains(uid) {
            return true;
        }
        if sight == Sight::Watched && facts.delivery_index.is_own(uid) {
            // The dispatcher passes it to the engine together with earlier ones, so that the lane gets them in order. Or the engine has
            // created it with its outcome, and has not processed the answer yet.
            if wanted(record).is_some() && self.admission.undecided.len() < MOST {
                self.admission.undecided.insert(record.id.clone(), Undecided::of(record));
            }
            return false;
        }
        match judge(record, &facts.pipelines.known_of(&record.spec), sight) {
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
                self.admission.undecided.insert(record.id.clone(), Undecided::of(record));
                false
            }
            Origin::Undecided => self.refuse(record, "TooMany", facts, now),
            Origin::Foreign(why) => self.refuse(record, why, facts, now),
        }
    }

    /// Returns whether a settled Delivery was listed, or was recorded by this process.
    pub(crate) fn is_known(&self, record: &Record, facts: &Facts<'_>) -> bool {
        self.admission.proven.contains(&record.uid) || facts.delivery_index.contains(&record.id)
    }

    /// Marks a proven Delivery in the delivery index, so that the dispatcher does not record it again.
    pub(crate) fn say_proven(&self, record: &Record, facts: &Facts<'_>) {
        if self.admission.proven.contains(&record.uid) {
            facts.delivery_index.prove(record, true);
        }
    }

    /// Returns whether a delivery must wait until the dispatcher has compared the one whose message it continues. The dispatcher works in the order
    /// of the changes. So if it has reached this delivery, nobody will prove the other one, and a message of another client is not continued.
    pub(crate) fn doubts_message(
        &self,
        head: &Record,
        notification: &EffectiveNotification,
        facts: &Facts<'_>,
        now: Now,
    ) -> bool {
        let is_new_term = self.admission.compared.is_some_and(|until| now.mono < until);
        let has_thread = notification.sending.as_ref().is_ok_and(|sending| sending.thread.is_some());
        let is_reached = !head.is_recorded() || facts.pipelines.has_passed(&head.spec);
        is_new_term && has_thread && !is_reached && facts.delivery_index.doubts_message(head)
    }

    /// Returns whether a Delivery has a lane although its origin is not determined yet.
    pub(crate) fn is_unproven(&self, record: &Record) -> bool {
        self.admission.unproven.contains_key(&record.uid)
    }

    /// Accepts a Delivery that the dispatcher has recorded.
    pub(crate) fn recorded(&mut self, record: Record, facts: &Facts<'_>, now: Now) {
        self.prove(&record, facts);
        self.take_object(&record);
        self.seen(record, facts, now);
    }

    /// Notes that this process has recorded a Delivery.
    pub(crate) fn prove(&mut self, record: &Record, facts: &Facts<'_>) {
        let _ = facts.delivery_index.take_own(&record.uid);
        self.admission.proven.insert(record.uid.clone());
        self.admission.unproven.remove(&record.uid);
        let asked = self.admission.undecided.remove(&record.id).and_then(|undecided| undecided.asked);
        if let Some(asked) = asked.filter(|asked| asked.uid == record.uid) {
            self.asks.insert(*asked);
        }
    }

    /// Determines the origin of the heads of a lane whose pipeline was not known before. Removes those that Relaybook did not record.
    pub(crate) fn prove_head(&mut self, key: &LaneKey, facts: &Facts<'_>, now: Now) {
        let mut is_changed = false;
        while let Some(head) = self.lanes.head(key).cloned() {
            let Some(sight) = self.admission.unproven.get(&head.uid).copied() else { break };
            if self.admit(&head, sight, facts, now) {
                self.say_proven(&head, facts);
                break;
            }
            self.remove_from_lane(&head.id, facts);
            is_changed = true;
        }
        if is_changed {
            for other in self.lanes.waiting_for(key) {
                self.changed(&other, false, facts, now);
            }
        }
    }

    fn remove_from_lane(&mut self, id: &ObjectName, facts: &Facts<'_>) {
        facts.delivery_index.forget(id);
        self.lanes.remove(id);
    }

    fn refuse(&mut self, record: &Record, why: &'static str, facts: &Facts<'_>, now: Now) -> bool {
        self.admission.unproven.remove(&record.uid);
        self.admission.undecided.remove(&record.id);
        self.report(&record.id, &record.spec.pipeline_ref.name, why, now);
        self.expel(record.id.clone(), version(Some(&record.version)), &record.spec.pipeline_ref.uid, facts, now);
        false
    }

    fn expel(&mut self, id: ObjectName, version: u64, pipeline: &str, facts: &Facts<'_>, now: Now) {
        if self.admission.foreign.len() < MOST {
            let foreign = Foreign { version, pipeline: pipeline.to_owned(), not_before: now.mono };
            self.admission.foreign.insert(id, foreign);
        }
        self.expel_next(facts, now);
    }

    /// Starts deletions of foreign Deliveries, a few at a time. This continues during shutdown, because the next process knows less about
    /// them.
    fn expel_next(&mut self, facts: &Facts<'_>, now: Now) {
        // A replica that was paused can see what the next leader has recorded before it learns that it is not the leader any more.
        while self.admission.deleting.len() < DELETIONS && self.acting(facts) && facts.allows(DEADLINE, now) {
            let due = self.admission.foreign.iter().find(|(_, foreign)| foreign.not_before <= now.mono);
            let Some(id) = due.map(|(id, _)| id.clone()) else { return };
            let Some(foreign) = self.admission.foreign.remove(&id) else { return };
            // Another replica decides about it now.
            if !facts.is_ours(&foreign.pipeline) {
                continue;
            }
            self.begin_beside(&foreign.pipeline);
            self.admission.deleting.insert(id.clone());
            self.start(Task::Expel { id, foreign });
        }
    }

    /// Handles the result of a deletion. A failed deletion is retried after a pause.
    pub(crate) fn on_expelled(
        &mut self,
        id: ObjectName,
        foreign: Foreign,
        failed: Option<String>,
        facts: &Facts<'_>,
        now: Now,
    ) {
        self.admission.deleting.remove(&id);
        self.end_beside(&foreign.pipeline);
        if let Some(error) = failed {
            tracing::warn!(%error, namespace = %id.namespace, delivery = %id.name, "could not delete a Delivery that Relaybook did not record");
            let foreign = Foreign { not_before: now.mono + REST, ..foreign };
            self.admission.foreign.entry(id).or_insert(foreign);
        }
        self.expel_next(facts, now);
    }

    /// Checks undecided Deliveries. A Delivery is foreign if the cursor has passed its change without recording it, or if its pipeline is
    /// gone.
    pub(crate) fn settle_undecided(&mut self, facts: &Facts<'_>, now: Now) {
        if !self.is_judged(facts) {
            return;
        }
        let cursors = facts.pipelines.cursors();
        let is_passed = |u: &Undecided| {
            if facts.delivery_index.is_own(&u.uid) {
                return false;
            }
            let Some(cursors) = cursors.get(&u.pipeline) else { return true };
            let taken = (**cursors).as_ref().and_then(|cursors| cursors.get(&u.notification));
            taken.is_some_and(|taken| taken.is_beyond(u.serial))
        };
        let passed: Vec<_> =
            self.admission.undecided.iter().filter(|(_, u)| is_passed(u)).map(|(id, _)| id.clone()).collect();
        for id in passed {
            let Some(undecided) = self.admission.undecided.remove(&id) else { continue };
            if !self.admission.proven.contains(&undecided.uid) {
                self.report(&id, &undecided.pipeline_name, "NotRecorded", now);
                self.expel(id, undecided.version, &undecided.pipeline, facts, now);
            }
        }
        self.admission.reported.retain(|_, at| now.mono.duration_since(*at) < REPORT);
        self.expel_next(facts, now);
    }

    /// Removes what is known about the origin of an object that is gone.
    pub(crate) fn forget_origin(&mut self, id: &ObjectName, uid: &str, facts: &Facts<'_>) {
        self.admission.proven.remove(uid);
        self.admission.unproven.remove(uid);
        self.admission.undecided.remove(id);
        self.admission.foreign.remove(id);
        facts.tests_kept.gone(id);
        let _ = facts.delivery_index.take_own(uid);
    }

    /// Reports that a foreign Delivery is deleted. Logs that at most once a minute for each namespace.
    fn report(&mut self, id: &ObjectName, pipeline: &str, why: &'static str, now: Now) {
        self.effects.push(Effect::Foreign);
        if self.admission.reported.contains_key(&id.namespace) || self.admission.reported.len() >= MOST {
            return;
        }
        self.admission.reported.insert(id.namespace.clone(), now.mono);
        tracing::warn!(
            namespace = %id.namespace,
            delivery = %id.name,
            %pipeline,
            reason = why,
            "deleting a Delivery that Relaybook did not record; it is not sent"
        );
    }
}
