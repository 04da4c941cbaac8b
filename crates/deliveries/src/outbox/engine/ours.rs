//! Which lanes this replica works on: those of the pipelines whose buckets it holds. The lanes of other replicas are only followed.
//!
//! In: the buckets of the Lease, and those that the driver holds. Out: which buckets are released, and how much of a rate is ours. A bucket
//! that is given away is held until no request and no write of its lanes is in progress, so that no other replica repeats them. That includes
//! the work beside the lanes, so no task holds a bucket.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::Engine;
use super::effect::{Effect, Facts, Now, Ticket};
use super::state::lanes::Slot;
use super::state::rate::Pace;
use crate::outbox::Answer;
use crate::outbox::audit_log::trouble;
use crate::outbox::record::LaneKey;
use relaybook_core::leader::bucket::{Bucket, Buckets};
use relaybook_settings::config::Rate;

/// How often the lanes of buckets that are given away are checked for work in progress.
const CHECK: Duration = Duration::from_millis(20);
/// How long the part of a rate is used before it is computed again.
const FRESH: Duration = Duration::from_secs(5);

/// What the engine knows about the buckets that the driver holds, and its parts of rates.
#[derive(Default)]
pub(crate) struct Ours {
    /// The buckets that were held in the last turn.
    held: Buckets,
    /// When to check again whether buckets can be handed over.
    check: Option<Instant>,
    /// By uid of the pipeline: writes and deletions of its Deliveries that are in progress and belong to no lane.
    pub(super) beside: HashMap<String, usize>,
    /// Pipelines that are handed over to another shard, by uid.
    drains: Vec<(String, Ticket)>,
    /// By namespace and notification: how many of its pipelines are ours, of how many, and when they were counted.
    parts: HashMap<(String, String), (usize, usize, Instant)>,
}

impl Ours {
    /// Returns when the engine has to check again whether buckets can be handed over.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.check
    }
}

impl Engine {
    /// Returns whether this replica decides about the Deliveries of a pipeline now: their origin, and whether they are sent.
    pub(crate) fn decides(&self, pipeline_uid: &str, facts: &Facts<'_>) -> bool {
        self.is_judged(facts) && facts.is_ours(pipeline_uid)
    }

    /// Releases the buckets that the Lease gives away, as soon as nothing is in progress in them.
    pub(crate) fn follow_buckets(&mut self, facts: &Facts<'_>, now: Now) {
        let before = std::mem::replace(&mut self.ours.held, facts.held);
        if !facts.held.without(before).is_empty() {
            self.ours.parts.clear();
        }
        let given = facts.held.without(facts.lease.buckets());
        if given.is_empty() {
            self.ours.check = None;
            return;
        }
        if self.ours.check.is_some_and(|check| now.mono < check) {
            return;
        }
        self.ours.parts.clear();
        self.drop_what_is_given(|uid| given.contains(Bucket::of(uid)));
        let waiting = given.also_in(self.in_progress());
        self.effects.extend(given.without(waiting).iter().map(Effect::Release));
        self.ours.check = (!waiting.is_empty()).then_some(now.mono + CHECK);
    }

    /// Removes what another replica decides from now on.
    fn drop_what_is_given(&mut self, is_given: impl Fn(&str) -> bool) {
        self.drop_unrecorded(&is_given);
        self.admission.undecided.retain(|_, undecided| !is_given(&undecided.pipeline));
        self.admission.foreign.retain(|_, foreign| !is_given(&foreign.pipeline));
        self.asks.retain(|record| !is_given(&record.spec.pipeline_ref.uid));
        for (_, slot) in self.lanes.iter_mut().filter(|(key, _)| is_given(&key.pipeline)) {
            slot.unreachable = None;
        }
    }

    /// Returns the buckets with requests or writes in progress.
    fn in_progress(&self) -> Buckets {
        self.busy_pipelines().map(Bucket::of).collect()
    }

    /// Returns the uids of the pipelines with requests or writes in progress. A uid can occur more than once.
    fn busy_pipelines(&self) -> impl Iterator<Item = &str> {
        let is_busy = |slot: &Slot| slot.lane.at_work().is_some() || slot.lane.is_marking();
        let busy = self.lanes.iter().filter(move |(_, slot)| is_busy(slot)).map(|(key, _)| key);
        let unrecorded = self.unrecorded.ids().filter_map(|id| self.lanes.find(id)).map(|(key, _)| key);
        busy.chain(unrecorded).map(|key| key.pipeline.as_str()).chain(self.ours.beside.keys().map(String::as_str))
    }

    /// Answers when nothing of a pipeline is in progress. It is not ours any more.
    pub(super) fn on_drain(&mut self, ticket: Ticket, pipeline_uid: String) {
        self.drop_what_is_given(|uid| uid == pipeline_uid);
        self.ours.parts.clear();
        self.ours.drains.push((pipeline_uid, ticket));
    }

    /// Answers for the pipelines of which nothing is in progress any more.
    pub(super) fn answer_drained(&mut self) {
        if self.ours.drains.is_empty() {
            return;
        }
        let drains = std::mem::take(&mut self.ours.drains);
        let leaves: HashSet<String> = drains.iter().map(|(uid, _)| uid.clone()).collect();
        self.drop_unrecorded(|uid| leaves.contains(uid));
        let busy: HashSet<&str> = self.busy_pipelines().collect();
        let (waiting, done): (Vec<_>, Vec<_>) = drains.into_iter().partition(|(uid, _)| busy.contains(uid.as_str()));
        self.ours.drains = waiting;
        self.effects.extend(done.into_iter().map(|(_, ticket)| Effect::Answer(ticket, Answer::Drained)));
    }

    /// Counts a write or a deletion that belongs to no lane.
    pub(super) fn begin_beside(&mut self, pipeline_uid: &str) {
        *self.ours.beside.entry(pipeline_uid.to_owned()).or_default() += 1;
    }

    /// Counts it less, because it has ended.
    pub(super) fn end_beside(&mut self, pipeline_uid: &str) {
        if let Some(count) = self.ours.beside.get_mut(pipeline_uid) {
            *count -= 1;
            if *count == 0 {
                self.ours.beside.remove(pipeline_uid);
            }
        }
    }

    /// Follows a lane of another replica: why it waits, according to its head.
    pub(super) fn follow_lane(&self, key: &LaneKey, facts: &Facts<'_>) {
        facts.delivery_index.trouble(key, self.lanes.head(key).and_then(trouble));
    }

    /// Returns this replica's part of a rate: as much as it has of the pipelines to which the notification applies.
    pub(super) fn part_of(&mut self, key: &LaneKey, rate: Rate, facts: &Facts<'_>, now: Instant) -> Pace {
        if facts.lease.owns_all() {
            return Pace::new(rate, 1, 1);
        }
        let of = (key.namespace.clone(), key.notification.clone());
        let known = self.ours.parts.get(&of).filter(|(_, _, at)| now.duration_since(*at) < FRESH);
        let (ours, all, known_at) = known.copied().unwrap_or_else(|| {
            let (ours, all) = facts.lease.part(facts.pipelines.pipelines_of(&of.0, &of.1));
            (ours, all, now)
        });
        self.ours.parts.insert(of, (ours, all, known_at));
        Pace::new(rate, ours, all)
    }

    /// Forgets parts of rates that were not used for a while.
    pub(super) fn tidy_parts(&mut self, now: Instant) {
        self.ours.parts.retain(|_, (_, _, at)| now.duration_since(*at) < FRESH);
    }
}
