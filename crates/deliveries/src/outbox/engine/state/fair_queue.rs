//! Which lane gets the next worker: a bounded queue, shared fairly among the origins of the receivers. Pure.
//!
//! Origins take turns. No origin uses more than its share of the workers, and one share is left for one more origin. Within an origin, its
//! notifications take turns. So a notification with a thousand lanes does not delay one with a single delivery.
//!
//! What the queue learns about a receiver is stored for each notification, because timeouts and credentials belong to a notification. A
//! misconfigured notification must not slow down others at the same origin. Each notification starts with a low limit of workers. A
//! response raises the limit by one, and an attempt without a response halves it. So a hanging receiver soon occupies only a few workers.
//! If several connections in a row fail, one lane at a time probes the receiver. The other lanes wait, without a failed attempt.
//!
//! A namespace can have many origins that hang. So its notifications that are not proven together use one more worker only while they use
//! fewer than are free.

mod origin;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::unrecorded::DIRECT;
use crate::outbox::record::LaneKey;
use origin::{Notification, Origin};
use relaybook_api::ObjectName;

/// Initial limit of workers for a notification at an origin. Attempts without a response lower a limit. All notifications of an origin with
/// a lower limit than this are doubtful. Together they can use at most this number of workers.
const FIRST: usize = 8;
/// What was learned about a notification is removed after this time without use. It is longer than the longest gap between two attempts:
/// the largest possible `retry.max`, and a fifth of it at random.
const FORGET: Duration = Duration::from_mins(75);
/// The last answer of a receiver shows for this time that it answers promptly.
const PROMPT: Duration = Duration::from_hours(1);

/// What an attempt shows about the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver responded.
    Answer,
    /// The receiver did not respond, but it may be reachable.
    Silence,
    /// The connection failed.
    NoConnection {
        /// When the lane would try again, by the monotonic clock.
        again: Instant,
    },
    /// No request was made, because the server that issues tokens did not answer. A worker has waited for it.
    NoToken,
    /// No request was made.
    Nothing,
}

/// A lane to work on. It occupies a worker until [`FairQueue::release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The origin of its receiver.
    pub origin: String,
    /// The lane.
    pub lane: LaneKey,
    /// Whether the attempt probes an origin that was unreachable.
    pub probe: bool,
    /// Whether the failure of a probe is written, so that users see it.
    pub write_failure: bool,
}

/// Lanes that can be sent, by origin and notification.
#[derive(Debug)]
pub struct FairQueue {
    pub(crate) workers: usize,
    pub(crate) busy: usize,
    active: usize,
    origins: HashMap<String, Origin>,
    /// How many workers the notifications that are not proven use, by namespace.
    unproven: HashMap<String, usize>,
    /// Origins with lanes that are ready, the next one first.
    turns: VecDeque<String>,
    /// Notifications that wait until they can probe an origin: (time, origin, notification).
    asleep: BTreeSet<(Instant, String, ObjectName)>,
}

impl FairQueue {
    /// Creates a fair queue with this number of workers, at least two.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(2),
            busy: 0,
            active: 0,
            origins: HashMap::new(),
            unproven: HashMap::new(),
            turns: VecDeque::new(),
            asleep: BTreeSet::new(),
        }
    }

    /// Changes an origin, and updates the number of active origins.
    fn change<T>(&mut self, origin: &str, change: impl FnOnce(&mut Origin) -> T) -> T {
        let entry = self.origins.entry(origin.to_owned()).or_default();
        let before = entry.is_active();
        let result = change(entry);
        match (before, entry.is_active()) {
            (false, true) => self.active += 1,
            (true, false) => self.active -= 1,
            _ => {}
        }
        result
    }

    /// Adds a lane that is ready to be sent to `origin`. Callers add a lane once, and add it again only after it was taken.
    pub fn ready(&mut self, origin: &str, lane: LaneKey, now: Instant) {
        self.enter(origin, lane, now, false);
    }

    fn enter(&mut self, origin: &str, lane: LaneKey, now: Instant, first: bool) {
        let owner = lane.owner();
        let sleeps = self.change(origin, |o| {
            let entry = o.notifications.entry(owner.clone()).or_insert_with(|| Notification::new(now));
            entry.used = now;
            o.ready += 1;
            if first {
                entry.ready.push_front(lane);
            } else {
                entry.ready.push_back(lane);
            }
            entry.probing.as_ref().map(|p| p.until).filter(|until| *until > now)
        });
        match sleeps {
            Some(until) => {
                self.asleep.insert((until, origin.to_owned(), owner));
            }
            None => self.queue(origin, owner),
        }
    }

    /// Adds a notification to the turns of its origin, if it is not there yet.
    fn queue(&mut self, origin: &str, owner: ObjectName) {
        let Some(entry) = self.origins.get_mut(origin) else { return };
        let Some(notification) = entry.notifications.get_mut(&owner).filter(|n| !n.queued) else { return };
        notification.queued = true;
        if entry.turns.is_empty() {
            self.turns.push_back(origin.to_owned());
        }
        entry.turns.push_back(owner);
    }

    /// Returns the maximum number of workers that one origin can use: an equal share, with one share left for an origin that becomes
    /// active.
    fn share(&self) -> usize {
        (self.workers / (self.active + 1)).max(1)
    }

    /// Returns when the next notification can probe its origin.
    #[must_use]
    pub fn next_probe(&self) -> Option<Instant> {
        self.asleep.first().map(|(until, ..)| *until)
    }

    fn wake(&mut self, now: Instant) {
        while self.asleep.first().is_some_and(|(until, ..)| *until <= now) {
            if let Some((_, origin, owner)) = self.asleep.pop_first() {
                self.queue(&origin, owner);
            }
        }
    }

    /// Takes a lane to work on, if there is a worker for it.
    pub fn next(&mut self, now: Instant) -> Option<Turn> {
        self.wake(now);
        if self.busy >= self.workers {
            return None;
        }
        let (unproven, free) = (std::mem::take(&mut self.unproven), self.workers - self.busy);
        let turn = self.take(|owner| has_room(&unproven, &owner.namespace, free), now);
        self.unproven = unproven;
        if let Some(turn) = &turn {
            self.busy += 1;
            let owner = turn.lane.owner();
            if self.count_unproven(&turn.origin, &owner) > 0 {
                *self.unproven.entry(owner.namespace).or_default() += 1;
            }
        }
        turn
    }

    fn take(&mut self, has_room: impl Fn(&ObjectName) -> bool, now: Instant) -> Option<Turn> {
        let share = self.share();
        for _ in 0..self.turns.len() {
            let origin = self.turns.pop_front()?;
            if !self.origins.contains_key(&origin) {
                continue;
            }
            let (turn, more) = self.change(&origin, |o| {
                let turn = if o.busy < share { o.next(share, &has_room, now) } else { None };
                (turn, !o.turns.is_empty())
            });
            if more {
                self.turns.push_back(origin.clone());
            }
            if let Some((lane, probe, write_failure)) = turn {
                return Some(Turn { origin, lane, probe, write_failure });
            }
        }
        None
    }

    /// Returns how many workers a notification that is not proven uses at an origin.
    fn count_unproven(&self, origin: &str, owner: &ObjectName) -> usize {
        let notification = self.origins.get(origin).and_then(|origin| origin.notifications.get(owner));
        notification.filter(|notification| !notification.is_proven()).map_or(0, |notification| notification.busy)
    }

    /// Puts back a turn that cannot start at present. The lane is the next of its notification again, and the worker is free.
    pub fn put_back(&mut self, turn: Turn, now: Instant) {
        self.release(&turn.origin, &turn.lane, AttemptOutcome::Nothing, now);
        self.enter(&turn.origin, turn.lane, now, true);
    }

    /// Releases the worker of a lane. If the attempt reached the origin, returns the notifications whose lanes waited because the origin
    /// was unreachable. They can try again now.
    pub fn release(&mut self, origin: &str, lane: &LaneKey, outcome: AttemptOutcome, now: Instant) -> Vec<ObjectName> {
        let (owner, most) = (lane.owner(), self.workers);
        self.busy = self.busy.saturating_sub(1);
        let before = self.count_unproven(origin, &owner);
        let (sleeps, freed) = self.change(origin, |o| o.release(&owner, outcome, most, now));
        let after = self.count_unproven(origin, &owner);
        let unproven = self.unproven.entry(owner.namespace.clone()).or_default();
        *unproven = (*unproven + after).saturating_sub(before);
        self.unproven.retain(|_, busy| *busy > 0);
        match sleeps {
            Some(until) => {
                self.asleep.insert((until, origin.to_owned(), owner));
            }
            None if self.origins.get(origin).is_some_and(|o| o.waits(&owner)) => self.queue(origin, owner),
            None => {}
        }
        for owner in &freed {
            self.asleep.retain(|(_, of, sleeper)| of != origin || sleeper != owner);
            self.queue(origin, owner.clone());
        }
        freed
    }

    /// Notes how long the last attempt of a lane took.
    pub fn took(&mut self, turn: &Turn, outcome: AttemptOutcome, took: Option<Duration>) {
        let origin = self.origins.get_mut(&turn.origin);
        if outcome != AttemptOutcome::Nothing
            && let Some(notification) = origin.and_then(|origin| origin.notifications.get_mut(&turn.lane.owner()))
        {
            notification.prompt = took.filter(|took| outcome == AttemptOutcome::Answer && *took <= DIRECT);
        }
    }

    /// Notes that a request of the lane's notification has not been answered promptly. No other delivery of it waits for that.
    pub fn is_slow(&mut self, lane: &LaneKey) {
        let owner = lane.owner();
        for notification in self.origins.values_mut().filter_map(|origin| origin.notifications.get_mut(&owner)) {
            notification.prompt = None;
        }
    }

    /// Returns whether a delivery of the lane is expected to be answered within [`DIRECT`], by the last request of its notification and by
    /// the lanes that wait before it.
    #[must_use]
    pub fn is_prompt(&self, origin: &str, lane: &LaneKey) -> bool {
        let free = self.workers.saturating_sub(self.busy);
        self.origins.get(origin).is_some_and(|origin| origin.is_prompt(&lane.owner(), self.share(), free))
    }

    /// Returns how many lanes wait for an unreachable origin.
    #[must_use]
    pub fn unreachable(&self) -> usize {
        let notifications = self.origins.values().flat_map(|o| o.notifications.values());
        notifications.filter(|n| n.probing.is_some()).map(|n| n.ready.len()).sum()
    }

    /// Removes what was learned about origins that are no longer used, or not used for a long time.
    pub fn tidy(&mut self, now: Instant) {
        self.origins.retain(|_, origin| {
            origin.notifications.retain(|_, n| {
                let unused = now.duration_since(n.used);
                if unused > PROMPT {
                    n.prompt = None;
                }
                let rests = n.ready.is_empty() && n.busy == 0;
                let plain = n.limit >= FIRST && n.probing.is_none() && n.prompt.is_none();
                !rests || !(plain || unused > FORGET)
            });
            !origin.notifications.is_empty()
        });
    }
}

/// Whether a namespace may use one more worker for a notification that is not proven.
fn has_room(unproven: &HashMap<String, usize>, namespace: &str, free: usize) -> bool {
    unproven.get(namespace).is_none_or(|busy| *busy < free)
}

#[cfg(test)]
mod tests;
