//! What the queue knows about one origin and its notifications: which of them is next, how many workers each can use, and whether the
//! origin is only probed. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::{AttemptOutcome, FIRST};
use crate::outbox::engine::state::unrecorded::DIRECT;
use crate::outbox::record::LaneKey;
use relaybook_api::ObjectName;

/// Number of consecutive failed connections after which an origin is only probed.
pub(super) const FAILURES: u32 = 3;
/// Maximum time between two probes of an origin.
pub(super) const LONGEST: Duration = Duration::from_secs(30);
/// Minimum time between two failed probes that are written, so that users see that it fails. The others cost the API server nothing.
const WRITE_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Origin {
    pub(super) notifications: BTreeMap<ObjectName, Notification>,
    pub(super) turns: VecDeque<ObjectName>,
    /// Number of workers that the origin uses.
    pub(super) busy: usize,
    /// How many of these workers doubtful notifications use.
    pub(super) doubtful: usize,
    /// Number of lanes that are ready, of all its notifications.
    pub(super) ready: usize,
}

impl Origin {
    /// Returns whether it needs workers. An origin whose lanes all wait for a probe needs none, and must not make the shares of other
    /// origins smaller.
    pub(super) fn is_active(&self) -> bool {
        self.busy > 0 || self.notifications.values().any(|n| n.probing.is_none() && !n.ready.is_empty())
    }
}

/// State of one notification at one origin.
#[derive(Debug)]
pub(super) struct Notification {
    pub(super) ready: VecDeque<LaneKey>,
    pub(super) busy: usize,
    pub(super) limit: usize,
    pub(super) failures: u32,
    pub(super) probing: Option<Probing>,
    pub(super) used: Instant,
    /// When it last stopped probing because an attempt had reached the origin.
    pub(super) freed: Option<Instant>,
    /// Whether it is in the turns of its origin.
    pub(super) queued: bool,
    /// How long the receiver took to answer the last request, if that was within [`DIRECT`].
    pub(super) prompt: Option<Duration>,
}

/// State of a notification whose origin is unreachable at present.
#[derive(Debug)]
pub(super) struct Probing {
    pub(super) until: Instant,
    pub(super) last_written: Instant,
}

impl Notification {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            ready: VecDeque::new(),
            busy: 0,
            limit: FIRST,
            failures: 0,
            probing: None,
            used: now,
            freed: None,
            queued: false,
            prompt: None,
        }
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.limit < FIRST
    }

    /// Returns whether more of its last attempts were answered than not.
    pub(super) fn is_proven(&self) -> bool {
        self.limit > FIRST
    }

    /// Returns whether its own state allows it to take a turn now.
    pub(super) fn may(&self, now: Instant) -> bool {
        let most = match &self.probing {
            Some(probing) if probing.until > now => 0,
            Some(_) => 1,
            None => self.limit,
        };
        !self.ready.is_empty() && self.busy < most
    }

    /// Returns whether a later event puts it into the turns again: the end of its wait, the result of its probe, or a lane that becomes
    /// ready.
    pub(super) fn comes_back(&self, now: Instant) -> bool {
        self.ready.is_empty() || self.probing.as_ref().is_some_and(|probing| self.busy > 0 || probing.until > now)
    }
}

/// The time until which a notification waits for a probe, and the notifications that can continue.
pub(super) type Released = (Option<Instant>, Vec<ObjectName>);

impl Origin {
    /// Returns whether a lane of a notification that becomes ready now is expected to be answered within [`DIRECT`]. The receiver must have
    /// answered the last request of the notification promptly. `free`: the number of workers that nobody uses.
    ///
    /// If the origin or the notification uses all workers that it can use, the lane waits until they have worked on the lanes before it. Half
    /// of [`DIRECT`] is allowed for that. If other origins use them, it is not known how long the lane waits.
    pub(super) fn is_prompt(&self, owner: &ObjectName, share: usize, free: usize) -> bool {
        let Some(entry) = self.notifications.get(owner).filter(|n| !n.is_doubtful() && n.probing.is_none()) else {
            return false;
        };
        let Some(took) = entry.prompt.filter(|_| free > 0 || self.busy >= share) else { return false };
        let wait = |busy: usize, ready: usize, most: usize| {
            let before = (busy + ready).saturating_sub(most.saturating_sub(1));
            took.saturating_mul(u32::try_from(before.div_ceil(most)).unwrap_or(u32::MAX))
        };
        wait(self.busy, self.ready, share).max(wait(entry.busy, entry.ready.len(), entry.limit)) <= DIRECT / 2
    }

    pub(super) fn waits(&self, owner: &ObjectName) -> bool {
        self.notifications.get(owner).is_some_and(|n| !n.ready.is_empty())
    }

    /// Takes the next lane. The notifications take turns. `has_room`: whether the namespace of one that is not proven may use one more worker.
    pub(super) fn next(
        &mut self,
        share: usize,
        has_room: impl Fn(&ObjectName) -> bool,
        now: Instant,
    ) -> Option<(LaneKey, bool, bool)> {
        for _ in 0..self.turns.len() {
            let owner = self.turns.pop_front()?;
            let Some(entry) = self.notifications.get_mut(&owner) else { continue };
            let trusted = !entry.is_doubtful() || self.doubtful < FIRST.min(share);
            if !entry.may(now) || !trusted || !(entry.is_proven() || has_room(&owner)) {
                entry.queued = !entry.comes_back(now);
                if entry.queued {
                    self.turns.push_back(owner);
                }
                continue;
            }
            let lane = entry.ready.pop_front()?;
            self.ready -= 1;
            entry.busy += 1;
            self.busy += 1;
            self.doubtful += usize::from(entry.is_doubtful());
            let probing = entry.probing.as_mut();
            let write_failure = probing.is_some_and(|p| {
                let due = now.duration_since(p.last_written) >= WRITE_EVERY;
                if due {
                    p.last_written = now;
                }
                due
            });
            let probe = entry.probing.is_some();
            entry.queued = !probe && !entry.ready.is_empty();
            if entry.queued {
                self.turns.push_back(owner);
            }
            return Some((lane, probe, write_failure));
        }
        None
    }

    /// Records the result of an attempt. Returns the time until which the notification waits for a probe, if it does, and the notifications
    /// that can continue.
    pub(super) fn release(&mut self, owner: &ObjectName, outcome: AttemptOutcome, most: usize, now: Instant) -> Released {
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
            AttemptOutcome::Silence | AttemptOutcome::NoConnection { .. } | AttemptOutcome::NoToken => {
                entry.limit = (entry.limit / 2).max(1);
            }
            AttemptOutcome::Nothing => {}
        }
        match outcome {
            AttemptOutcome::NoConnection { again } => {
                entry.failures = entry.failures.saturating_add(1);
                if entry.failures >= FAILURES {
                    let until = again.min(now + LONGEST);
                    let last_written = entry.probing.as_ref().map_or(now, |p| p.last_written);
                    entry.probing = Some(Probing { until, last_written });
                }
            }
            AttemptOutcome::Silence => entry.failures = 0,
            AttemptOutcome::Answer | AttemptOutcome::NoToken | AttemptOutcome::Nothing => {}
        }
        self.doubtful += if entry.is_doubtful() { entry.busy } else { 0 };
        let sleeps = entry.probing.as_ref().map(|p| p.until).filter(|until| *until > now && !entry.ready.is_empty());
        let is_there = matches!(outcome, AttemptOutcome::Answer | AttemptOutcome::Silence);
        if is_there { (None, self.free(owner, now)) } else { (sleeps, Vec::new()) }
    }

    /// Ends the probing of notifications, because an attempt has reached the origin. Another notification may still fail because of its own
    /// timeouts, so it is freed again only after some time.
    pub(super) fn free(&mut self, reached: &ObjectName, now: Instant) -> Vec<ObjectName> {
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
