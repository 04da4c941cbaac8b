//! Which lane gets the next worker: a bounded fair queue, shared fairly among the origins of the receivers. Pure.
//!
//! Origins take turns. No origin holds more than its share of the workers, and the shares leave room for one more origin. Within an origin,
//! its notifications take turns. So a notification with a thousand lanes does not delay one with a single message.
//!
//! What the queue learns about a receiver is kept for each notification, because timeouts and credentials belong to a notification. A
//! misconfigured notification must not slow down others at the same origin. Each starts with few workers, gets one more with each
//! response, and loses half with each unanswered attempt. So a hanging receiver occupies only a few workers until its timeouts, however
//! many lanes it has. If several connections in a row fail, one lane at a time probes the receiver, not before the time of its last
//! retry. The other lanes wait, without a failed attempt of their own.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::outbox::record::LaneKey;

/// The number of workers that a notification can use at first at an origin. It takes dozens of hanging notifications to occupy all workers.
/// It is also the most that all notifications of an origin with a lower limit hold together. Attempts without a response lower a limit.
const FIRST: usize = 8;
/// After this number of failed connections in a row, the origin is only probed.
const FAILURES: u32 = 3;
/// The longest time between two probes of an origin.
const LONGEST: Duration = Duration::from_secs(30);
/// What was learned is forgotten if it was not used for this time, which is longer than the longest gap between two attempts.
const FORGET: Duration = Duration::from_hours(1);
/// At most one failed probe in this time is written, so that users see it. The others cost the API server nothing.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// A notification: namespace and name.
pub type Owner = (String, String);

/// The notification that a lane belongs to.
pub fn owner(lane: &LaneKey) -> Owner {
    (lane.namespace.clone(), lane.notification.clone())
}

/// What an attempt shows about the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver responded.
    Answer,
    /// The receiver did not respond, but it may be reachable.
    Silence,
    /// The connection failed. `again`: when the lane would try again.
    NoConnection {
        /// By the monotonic clock.
        again: Instant,
    },
    /// Nothing: no request was made.
    Nothing,
}

/// A lane to work on. Its worker is held until [`FairQueue::release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The origin of its receiver.
    pub origin: String,
    /// The lane.
    pub lane: LaneKey,
    /// Whether the attempt only finds out if the origin is reachable. The failure of a probe need not be written, unless `tell` is set.
    pub probe: bool,
    /// Whether a failure should be written, so that users see it.
    pub tell: bool,
}

/// Lanes that can be sent, by origin and notification.
#[derive(Debug)]
pub struct FairQueue {
    pub(in crate::outbox) workers: usize,
    pub(in crate::outbox) busy: usize,
    /// Origins with a lane that is ready or at work.
    active: usize,
    origins: HashMap<String, Origin>,
    /// Origins with lanes that are ready, the next one first.
    turns: VecDeque<String>,
    /// The time until which an origin is not probed.
    asleep: BTreeSet<(Instant, String, Owner)>,
}

#[derive(Debug, Default)]
struct Origin {
    notifications: HashMap<Owner, Notification>,
    turns: VecDeque<Owner>,
    /// Number of workers that the origin holds.
    busy: usize,
    /// How many of these workers are held by doubtful notifications.
    doubtful: usize,
}

impl Origin {
    /// Whether it needs workers. An origin whose lanes all wait for a probe needs none, and must not make the shares of other origins
    /// smaller.
    fn is_active(&self) -> bool {
        self.busy > 0 || self.notifications.values().any(|n| n.probing.is_none() && !n.ready.is_empty())
    }
}

/// What is known of one notification at one origin.
#[derive(Debug)]
struct Notification {
    ready: VecDeque<LaneKey>,
    busy: usize,
    limit: usize,
    failures: u32,
    probing: Option<Probing>,
    used: Instant,
    /// When it was last freed because an attempt had reached the origin.
    freed: Option<Instant>,
    /// Whether it has its place in the turns.
    queued: bool,
}

/// The origin is unreachable at present.
#[derive(Debug)]
struct Probing {
    until: Instant,
    told: Instant,
}

impl Notification {
    fn new(now: Instant) -> Self {
        Self {
            ready: VecDeque::new(),
            busy: 0,
            limit: FIRST,
            failures: 0,
            probing: None,
            used: now,
            freed: None,
            queued: false,
        }
    }

    fn is_doubtful(&self) -> bool {
        self.limit < FIRST
    }

    /// Whether its own state allows it to take a turn.
    fn may(&self, now: Instant) -> bool {
        let most = match &self.probing {
            Some(probing) if probing.until > now => 0,
            Some(_) => 1,
            None => self.limit,
        };
        !self.ready.is_empty() && self.busy < most
    }

    /// Whether it returns to the turns by itself: when its wait ends, when its probe is over, or when a lane becomes ready.
    fn comes_back(&self, now: Instant) -> bool {
        self.ready.is_empty() || self.probing.as_ref().is_some_and(|probing| self.busy > 0 || probing.until > now)
    }
}

/// The time until which an owner is not probed, and the owners that can continue.
type Released = (Option<Instant>, Vec<Owner>);

impl FairQueue {
    /// A fair queue with this number of workers, at least two.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(2),
            busy: 0,
            active: 0,
            origins: HashMap::new(),
            turns: VecDeque::new(),
            asleep: BTreeSet::new(),
        }
    }

    /// Changes an origin, and keeps the count of active origins.
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

    /// A lane is ready to be sent to `origin`. Callers add a lane once, and add it again only after it was taken.
    pub fn ready(&mut self, origin: &str, lane: LaneKey, now: Instant) {
        self.enter(origin, lane, now, false);
    }

    fn enter(&mut self, origin: &str, lane: LaneKey, now: Instant, first: bool) {
        let owner = owner(&lane);
        let sleeps = self.change(origin, |o| {
            let entry = o.notifications.entry(owner.clone()).or_insert_with(|| Notification::new(now));
            entry.used = now;
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

    /// Gives a notification a place in the turns, if it has none.
    fn queue(&mut self, origin: &str, owner: Owner) {
        let Some(entry) = self.origins.get_mut(origin) else { return };
        let Some(notification) = entry.notifications.get_mut(&owner).filter(|n| !n.queued) else { return };
        notification.queued = true;
        if entry.turns.is_empty() {
            self.turns.push_back(origin.to_owned());
        }
        entry.turns.push_back(owner);
    }

    /// Maximum number of workers that one origin can hold: an equal share, with one share left for an origin that becomes active.
    fn share(&self) -> usize {
        (self.workers / (self.active + 1)).max(1)
    }

    /// When a lane that waits for a probe has its turn, if no other lane comes first.
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
        let share = self.share();
        for _ in 0..self.turns.len() {
            let origin = self.turns.pop_front()?;
            if !self.origins.contains_key(&origin) {
                continue;
            }
            let (turn, more) = self.change(&origin, |o| {
                let turn = if o.busy < share { o.next(share, now) } else { None };
                (turn, !o.turns.is_empty())
            });
            if more {
                self.turns.push_back(origin.clone());
            }
            if let Some((lane, probe, tell)) = turn {
                self.busy += 1;
                return Some(Turn { origin, lane, probe, tell });
            }
        }
        None
    }

    /// Puts back a turn that cannot start at present. The lane and the worker are as before.
    pub fn put_back(&mut self, turn: Turn, now: Instant) {
        self.release(&turn.origin, &turn.lane, AttemptOutcome::Nothing, now);
        self.enter(&turn.origin, turn.lane, now, true);
    }

    /// Releases the worker of a lane. If the attempt reached the origin, returns the notifications whose lanes waited because the origin
    /// was unreachable. They can try again now.
    pub fn release(&mut self, origin: &str, lane: &LaneKey, outcome: AttemptOutcome, now: Instant) -> Vec<Owner> {
        let (owner, most) = (owner(lane), self.workers);
        self.busy = self.busy.saturating_sub(1);
        let (sleeps, freed) = self.change(origin, |o| o.release(&owner, outcome, most, now));
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

    /// How many lanes wait for an unreachable origin.
    #[must_use]
    pub fn unreachable(&self) -> usize {
        let notifications = self.origins.values().flat_map(|o| o.notifications.values());
        notifications.filter(|n| n.probing.is_some()).map(|n| n.ready.len()).sum()
    }

    /// Forgets what was learned about origins that are no longer used.
    pub fn tidy(&mut self, now: Instant) {
        self.origins.retain(|_, origin| {
            origin.notifications.retain(|_, n| {
                let rests = n.ready.is_empty() && n.busy == 0;
                let plain = n.limit >= FIRST && n.probing.is_none();
                !rests || !(plain || now.duration_since(n.used) > FORGET)
            });
            !origin.notifications.is_empty()
        });
    }
}

impl Origin {
    fn waits(&self, owner: &Owner) -> bool {
        self.notifications.get(owner).is_some_and(|n| !n.ready.is_empty())
    }

    /// The next lane. The notifications take turns.
    fn next(&mut self, share: usize, now: Instant) -> Option<(LaneKey, bool, bool)> {
        for _ in 0..self.turns.len() {
            let owner = self.turns.pop_front()?;
            let Some(entry) = self.notifications.get_mut(&owner) else { continue };
            let trusted = !entry.is_doubtful() || self.doubtful < FIRST.min(share);
            if !entry.may(now) || !trusted {
                entry.queued = !entry.comes_back(now);
                if entry.queued {
                    self.turns.push_back(owner);
                }
                continue;
            }
            let lane = entry.ready.pop_front()?;
            entry.busy += 1;
            self.busy += 1;
            self.doubtful += usize::from(entry.is_doubtful());
            let probing = entry.probing.as_mut();
            let tell = probing.is_some_and(|p| {
                let due = now.duration_since(p.told) >= TELL_EVERY;
                if due {
                    p.told = now;
                }
                due
            });
            let probe = entry.probing.is_some();
            entry.queued = !probe && !entry.ready.is_empty();
            if entry.queued {
                self.turns.push_back(owner);
            }
            return Some((lane, probe, tell));
        }
        None
    }

    /// Records the result of an attempt. Returns the time until which the notification waits, if it does, and the notifications that can
    /// continue.
    fn release(&mut self, owner: &Owner, outcome: AttemptOutcome, most: usize, now: Instant) -> Released {
        let Some(entry) = self.notifications.get_mut(owner) else { return (None, Vec::new()) };
        self.busy = self.busy.saturating_sub(1);
        self.doubtful -= if entry.is_doubtful() { entry.busy } else { 0 };
        entry.busy = entry.busy.saturating_sub(1);
        entry.used = now;
        match outcome {
            AttemptOutcome::Answer => {
                entry.limit = (entry.limit + 1).min(most);
                entry.failures = 0;
            }
            AttemptOutcome::Silence | AttemptOutcome::NoConnection { .. } => entry.limit = (entry.limit / 2).max(1),
            AttemptOutcome::Nothing => {}
        }
        match outcome {
            AttemptOutcome::NoConnection { again } => {
                entry.failures = entry.failures.saturating_add(1);
                if entry.failures >= FAILURES {
                    let until = again.min(now + LONGEST);
                    let told = entry.probing.as_ref().map_or(now, |p| p.told);
                    entry.probing = Some(Probing { until, told });
                }
            }
            AttemptOutcome::Silence => entry.failures = 0,
            AttemptOutcome::Answer | AttemptOutcome::Nothing => {}
        }
        self.doubtful += if entry.is_doubtful() { entry.busy } else { 0 };
        let sleeps = entry.probing.as_ref().map(|p| p.until).filter(|until| *until > now && !entry.ready.is_empty());
        let is_there = matches!(outcome, AttemptOutcome::Answer | AttemptOutcome::Silence);
        if is_there { (None, self.free(owner, now)) } else { (sleeps, Vec::new()) }
    }

    /// A delivery has reached the origin: lanes that wait because it was unreachable can try. Others may still fail, because of their own
    /// timeouts, so they are retried only from time to time.
    fn free(&mut self, reached: &Owner, now: Instant) -> Vec<Owner> {
        let mut freed = Vec::new();
        for (owner, notification) in self.notifications.iter_mut().filter(|(_, n)| n.probing.is_some()) {
            let again = notification.freed.is_some_and(|at| now.duration_since(at) < LONGEST);
            if owner == reached || !again {
                (notification.probing, notification.failures, notification.freed) = (None, 0, Some(now));
                freed.push(owner.clone());
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests;
