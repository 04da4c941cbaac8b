//! The engine's work besides sending: deliveries that later ones supersede, and redeliveries that users request.
//!
//! In: lanes with more deliveries than they can contain, settled deliveries with a new annotation. Out: tasks that write. The pure
//! functions of `supersede` and `redeliver` decide which deliveries are superseded or redelivered.

use super::Engine;
use super::effect::{Effect, Facts, Now, Task};
use super::writes::{Kind, Limit, Write};
use crate::outbox::attempt::decided::{Decided, Worked};
use crate::outbox::lane::redeliver::{noted, reopened, wanted};
use crate::outbox::lane::supersede::{BOUND, Why, statuses, victims};
use crate::outbox::lane::{Due, Place};
use crate::outbox::record::{LaneKey, Record};
use crate::outbox::send_gate::genuine::Sight;
use relaybook_api::{Age, Outcome};

impl Engine {
    /// Removes from a lane the deliveries that later ones supersede. Nothing of the lane is sent until their outcomes are written.
    pub(crate) fn supersede(&mut self, key: &LaneKey, facts: &Facts<'_>, now: Now) {
        let Some(slot) = self.lanes.get_mut(key).filter(|slot| slot.lane.count() > 1 && !slot.lane.is_marking()) else {
            return;
        };
        let Some(head) = slot.lane.head() else { return };
        let found = facts.pipelines.effective(&head.spec);
        // Deliveries of an earlier notification with the same name are canceled, not superseded.
        let Some(notification) = found.filter(|n| n.uid == head.spec.notification_uid) else { return };
        let why = match notification.delivery.supersede {
            true => Why::Wanted,
            false if slot.lane.count() > BOUND => Why::LaneFull,
            false => return,
        };
        if slot.marked && slot.lane.due(now.mono) == Due::Now {
            return;
        }
        let places = victims(&slot.lane, why);
        let known = |record: &Record, after| facts.delivery_index.replaced(record, after);
        let statuses = statuses(&slot.lane, &places, why, now.wall, known);
        slot.marked |= !places.is_empty();
        let superseded = slot.lane.supersede(&places).into_iter().zip(statuses).map(|(record, status)| {
            let status = noted(&record, status, now.wall);
            Decided::superseded(record, status)
        });
        slot.superseding = superseded.collect();
        self.write_superseded(key);
    }

    /// Starts the next write for the superseded deliveries of a lane. They are written one after the other, because each count contains
    /// those before it. So no stored count ever contains a delivery that is still pending.
    fn write_superseded(&mut self, key: &LaneKey) {
        if let Some(decided) = self.lanes.get_mut(key).and_then(|slot| slot.superseding.pop_front()) {
            self.start(Task::Write(Write::new(Kind::Superseded(key.clone()), decided, Limit::Outcomes)));
        }
    }

    /// Handles the end of the write for a superseded delivery. It is stored as Superseded, or another replica has written another state.
    pub(crate) fn on_superseded(&mut self, key: &LaneKey, worked: Worked, facts: &Facts<'_>, now: Now) {
        self.accept_written(&worked, false, facts, now);
        let is_superseded = worked.gone || worked.record.status.outcome == Some(Outcome::Superseded);
        // The counts of the others are wrong now, or this replica is no longer the leader.
        if !is_superseded || !self.decides(&key.pipeline, facts) || self.draining {
            self.lanes.keep_pending(key);
        }
        self.write_superseded(key);
        if let Some(slot) = self.lanes.get_mut(key) {
            slot.lane.superseded();
            if !worked.gone && worked.instead.is_none() && worked.record.status.outcome.is_none() {
                // Another replica has attempted it meanwhile, so it is still pending.
                slot.lane.insert(Place::from(&*worked.record.spec), worked.record);
                return self.moved(key, facts, now);
            }
        }
        self.lanes.settled(&worked.record.id);
        self.settled(worked, facts, now);
        self.moved(key, facts, now);
    }

    /// Stores the request of a user to redeliver a settled delivery, or removes it if there is none.
    pub(crate) fn asked(&mut self, record: Record, facts: &Facts<'_>, now: Now) {
        match wanted(&record) {
            // Those of other replicas are found in the list of the term in which their bucket is acquired.
            Some(_) if facts.is_ours(&record.spec.pipeline_ref.uid) => {
                self.asks.insert(record);
                self.reopen(facts, now);
            }
            _ => self.asks.remove_if_older(&record),
        }
    }

    /// Reopens deliveries for which users have requested a redelivery, a few at a time.
    pub(crate) fn reopen(&mut self, facts: &Facts<'_>, now: Now) {
        if self.draining || !self.is_judged(facts) {
            return;
        }
        // Not before the write of its outcome has ended: that write could be repeated, and would end the redelivery.
        while let Some(record) = self.asks.take_next(|record| self.lanes.is_at_work(record)) {
            // One that another client may have created can only be redelivered once the dispatcher has compared its content.
            let sight = if facts.delivery_index.is_doubtful(&record.id) { Sight::Watched } else { Sight::Listed };
            let Some(value) = wanted(&record).filter(|_| self.admit(&record, sight, facts, now)) else { continue };
            if !facts.is_ours(&record.spec.pipeline_ref.uid) {
                continue;
            }
            self.begin_beside(&record.spec.pipeline_ref.uid);
            self.asks.begin(&record.id.namespace);
            let status = reopened(&record.status, value, now.wall);
            let record = Record { not_found: 0, ..record };
            self.start(Task::Write(Write::new(Kind::Reopened, Decided::noted(record, status), Limit::Aside)));
        }
    }

    /// Handles the end of the write that reopens a delivery. The object may have changed or been deleted meanwhile.
    pub(crate) fn on_reopened(&mut self, worked: Worked, facts: &Facts<'_>, now: Now) {
        self.end_beside(&worked.record.spec.pipeline_ref.uid);
        self.asks.end(&worked.record.id.namespace);
        let Worked { mut record, gone, instead, is_written, .. } = worked;
        if gone {
            facts.delivery_index.forget(&record.id);
        } else {
            record.again = record.status.outcome.is_none();
            record.age = Age::new(record.since(), now.wall, now.boot);
            if is_written {
                self.effects.push(Effect::Reopened);
            }
            self.seen(record, facts, now);
        }
        if let Some(instead) = instead {
            self.seen(*instead, facts, now);
        }
        self.reopen(facts, now);
    }

    /// Checks a lane that no longer contains a delivery that was pending, and the lanes that waited for that delivery.
    pub(crate) fn moved(&mut self, key: &LaneKey, facts: &Facts<'_>, now: Now) {
        let behind = self.lanes.waiting_for(key);
        self.check(key, facts, now);
        for other in behind {
            self.changed(&other, false, facts, now);
        }
    }
}
