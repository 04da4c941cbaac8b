//! Which lane gets the next worker: a bounded fair queue, shared fairly among the origins of the receivers. Pure.
//!
//! Origins take turns, and none holds more than its share of the workers, which leaves room for one more. Within an origin its
//! notifications take turns, so that one with a thousand lanes does not stand before one with a single message.
//!
//! What is learnt of a receiver is kept for each notification apart, for timeouts and credentials are a notification's own: one
//! that is set up badly must not be the ruin of others at the same origin. Each begins with few workers, earns one more with
//! each answer, and loses half with each attempt that nobody answers. So a receiver that hangs ties up a handful of workers
//! until its timeouts, however many lanes it has. One to which several connections in a row fail is only probed: by one lane at
//! a time, and not before the time at which the last one would have tried again. The other lanes wait, and nothing is held
//! against them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::outbox::record::LaneKey;

/// What a notification begins with at an origin: enough not to be slow, little enough that it takes dozens of hung ones to fill
/// the fair queue. Also the most that all those of an origin hold together which have answered less than that of late.
const FIRST: usize = 8;
/// So many failed connections in a row, and the origin is only probed.
const FAILURES: u32 = 3;
/// The longest time between two probes.
const LONGEST: Duration = Duration::from_secs(30);
/// What was learnt is forgotten when it was not used for so long: later than the longest gap between two tries.
const FORGET: Duration = Duration::from_hours(1);
/// Of failed probes, one in so long is written, so that people see it; the others cost the API server nothing.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// A notification: namespace and name.
pub type Owner = (String, String);

/// Whose a lane is.
pub fn owner(lane: &LaneKey) -> Owner {
    (lane.namespace.clone(), lane.notification.clone())
}

/// What was learnt from an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver spoke.
    Answer,
    /// It did not, though there may be somebody.
    Silence,
    /// There was no connection. `again`: when the lane would try again.
    NoConnection {
        /// By the monotonic clock.
        again: Instant,
    },
    /// Nothing: no request was made.
    Nothing,
}

/// A lane to work on; its worker is held until [`FairQueue::release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Where its receiver is.
    pub origin: String,
    /// The lane.
    pub lane: LaneKey,
    /// Whether it only finds out if anybody is there. A failure of such a one need not be written, unless `tell`.
    pub probe: bool,
    /// A failure should be written, so that people see it.
    pub tell: bool,
}

/// Lanes that may be sent, by origin and notification.
#[derive(Debug)]
pub struct FairQueue {
    pub(in crate::outbox) workers: usize,
    pub(in crate::outbox) busy: usize,
    /// Origins with a lane that is ready or at work.
    active: usize,
    origins: HashMap<String, Origin>,
    /// Origins with lanes whose turn it is; whoever is next stands first.
    turns: VecDeque<String>,
    /// Until when an origin is not probed.
    asleep: BTreeSet<(Instant, String, Owner)>,
}

#[derive(Debug, Default)]
struct Origin {
    notifications: HashMap<Owner, Notification>,
    turns: VecDeque<Owner>,
    /// Workers held.
    busy: usize,
    /// Those of them held by notifications that have little trust.
    doubtful: usize,
}

impl Origin {
    /// Whether it has use for workers. One whose lanes all wait for a probe has none, and must not make the others' shares small.
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
    /// When it was last told by another that somebody is there.
    freed: Option<Instant>,
    /// Has its place in the turns.
    queued: bool,
}

/// Nobody is there at present.
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

    /// Whether it may take a turn as far as it is concerned.
    fn may(&self, now: Instant) -> bool {
        let most = match &self.probing {
            Some(probing) if probing.until > now => 0,
            Some(_) => 1,
            None => self.limit,
        };
        !self.ready.is_empty() && self.busy < most
    }

    /// Whether it comes back to the turns by itself: when it wakes up, or its probe is over, or a lane is ready.
    fn comes_back(&self, now: Instant) -> bool {
        self.ready.is_empty() || self.probing.as_ref().is_some_and(|probing| self.busy > 0 || probing.until > now)
    }
}

/// Until when an owner is probed no more, and the owners that may go on.
type Released = (Option<Instant>, Vec<Owner>);

impl FairQueue {
    /// A fair queue of so many workers, at least two.
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

    /// Changes an origin, and keeps count.
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

    /// A lane is ready to be sent to `origin`. A lane is put in once until it comes out.
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

    /// Gives a notification its place in the turns, if it has none.
    fn queue(&mut self, origin: &str, owner: Owner) {
        let Some(entry) = self.origins.get_mut(origin) else { return };
        let Some(notification) = entry.notifications.get_mut(&owner).filter(|n| !n.queued) else { return };
        notification.queued = true;
        if entry.turns.is_empty() {
            self.turns.push_back(origin.to_owned());
        }
        entry.turns.push_back(owner);
    }

    /// The most workers that one origin may hold: an equal share, with one share left for an origin that wakes up.
    fn share(&self) -> usize {
        (self.workers / (self.active + 1)).max(1)
    }

    /// When a lane that waits for a probe has its turn, if no other comes before.
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

    /// What [`FairQueue::next`] gave cannot be begun at present: lane and worker as before.
    pub fn put_back(&mut self, turn: Turn, now: Instant) {
        self.release(&turn.origin, &turn.lane, AttemptOutcome::Nothing, now);
        self.enter(&turn.origin, turn.lane, now, true);
    }

    /// The worker that a lane held is free. Gives the notifications whose lanes waited because the origin was not there: it is
    /// there again, and they may try.
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

    /// How many lanes wait for an origin that is not there.
    #[must_use]
    pub fn unreachable(&self) -> usize {
        let notifications = self.origins.values().flat_map(|o| o.notifications.values());
        notifications.filter(|n| n.probing.is_some()).map(|n| n.ready.len()).sum()
    }

    /// Forgets what was learnt of origins that are no longer used.
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

    /// The next lane, in turns among the notifications.
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

    /// Takes note of what was heard. Gives until when the notification sleeps, if it does, and which ones the news sets free.
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

    /// Somebody has reached the origin: those who were told that nobody is there may try. What one can reach another perhaps
    /// cannot, with its own timeouts, so others are believed only from time to time.
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
