//! One replica in the leader election: what it knows of the Lease, and what it does next. Pure.
//!
//! In: the content of the Lease (live reads, the watch, responses to writes) and the time since boot. Out: the next [`Step`].
//!
//! - A renewal that was answered makes the Lease ours for [`LASTS`], counted from before it was sent.
//! - The Lease of another replica is acquired if it has not changed for its own duration since we first saw it. Two live reads at least
//!   [`GRACE`] apart must confirm that. So after an outage of the API server, the holder can renew first.
//! - The holder recreates a deleted Lease at once. Other replicas recreate it after the time at which its holder stops.
//! - A Lease in our own name from an earlier process is acquired at once, but only at the start of a process. So a restarted container
//!   continues, and two processes of one name do not replace each other forever.

use std::time::Duration;

use crate::api::{Time, version};

/// Duration of a Lease after a renewal.
pub const LASTS: Duration = Duration::from_secs(90);
/// Time between two renewals.
pub const RENEW: Duration = Duration::from_secs(10);
/// Pause after a failed call.
pub const RETRY: Duration = Duration::from_secs(2);
/// Time for which an expired Lease is left to its holder while the API server responds.
pub const GRACE: Duration = Duration::from_secs(12);
/// Maximum duration that is accepted in the Lease of another replica.
const LONGEST: Duration = Duration::from_mins(10);

/// Content of a Lease object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `resourceVersion`.
    pub version: String,
    /// `holderIdentity`. Empty: there is no holder.
    pub holder: String,
    /// `leaseTransitions`.
    pub epoch: i32,
    /// `acquireTime`. Together with the name, it identifies the term of one process.
    pub acquired: Option<Time>,
    /// `leaseDurationSeconds`.
    pub lasts: Duration,
}

/// A write to perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The version that it replaces. `None`: it creates the Lease.
    pub over: Option<String>,
    /// Whether this replica becomes or remains the holder. `false`: the Lease is released.
    pub ours: bool,
    /// `leaseTransitions`.
    pub epoch: i32,
    /// `acquireTime`.
    pub acquired: Time,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the Lease.
    Look,
    /// Write it.
    Write(Write),
    /// Do nothing before this time, unless the watch delivers an event.
    Wait(Duration),
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// The write succeeded. Contains the stored Lease.
    Done(Seen),
    /// The stored Lease had another version.
    Conflict,
    /// The result is not known.
    Unknown,
}

/// State of this replica as the holder of the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// `leaseTransitions`.
    pub epoch: i32,
    /// `acquireTime`.
    pub acquired: Time,
    /// Time until which the Lease is certainly ours.
    pub until: Duration,
    renew: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// There is no Lease. The previous holder may continue until this time.
    Absent(Duration),
    There {
        seen: Seen,
        since: Duration,
        expired: Option<Duration>,
    },
}

/// State of one replica.
#[derive(Clone, Debug)]
pub struct Candidacy {
    identity: String,
    known: Known,
    held: Option<Held>,
    /// `acquireTime` of an acquisition whose result is not known.
    pending_acquire_time: Option<Time>,
    /// Whether a Lease in our own name can be acquired at once: only at the start of a process.
    fresh: bool,
    look: bool,
    /// Number of consecutive conflicts.
    conflicts: u32,
    not_before: Duration,
    raised: i32,
}

impl Candidacy {
    /// Returns the state at the start of a process.
    #[must_use]
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            known: Known::Nothing,
            held: None,
            pending_acquire_time: None,
            fresh: true,
            look: false,
            conflicts: 0,
            not_before: Duration::ZERO,
            raised: 0,
        }
    }

    /// Returns the state of this replica as the holder. `None`: the Lease is not ours.
    #[must_use]
    pub fn held(&self) -> Option<Held> {
        self.held
    }

    /// Returns the epoch of the Lease, for any holder. `None`: it is unknown, or there is no Lease.
    #[must_use]
    pub fn epoch(&self) -> Option<i32> {
        if let Known::There { seen, .. } = &self.known { Some(seen.epoch) } else { None }
    }

    /// Whether this or another replica is known to be the holder.
    #[must_use]
    pub fn decided(&self) -> bool {
        let others = |holder: &str| !holder.is_empty() && (holder != self.identity || !self.fresh);
        self.held.is_some() || matches!(&self.known, Known::There { seen, .. } if others(&seen.holder))
    }

    /// Applies an event of the watch. A deletion is not trusted, because the watch may lag behind our own write.
    pub fn on_watch_event(&mut self, seen: Option<Seen>, now: Duration) {
        match seen {
            None => self.look = !matches!(self.known, Known::Absent(_)),
            Some(seen) if self.is_older(&seen) => {}
            Some(seen) => self.see(seen, now),
        }
    }

    /// Applies the result of a live read.
    pub fn on_read(&mut self, seen: Option<Seen>, now: Duration) {
        self.look = false;
        match seen {
            None => {
                let others = match &self.known {
                    Known::There { seen, .. } if self.held.is_none() && !seen.holder.is_empty() => {
                        now + seen.lasts.min(LONGEST)
                    }
                    Known::Absent(until) => *until,
                    _ => now,
                };
                self.held = None;
                self.known = Known::Absent(others);
            }
            Some(seen) => {
                self.see(seen, now);
                if let Known::There { seen, since, expired } = &mut self.known
                    && now + GRACE >= *since + seen.lasts.min(LONGEST)
                {
                    expired.get_or_insert(now);
                }
            }
        }
    }

    /// Records that a live read failed.
    pub fn on_read_failed(&mut self, now: Duration) {
        self.look = true;
        self.unsure(now);
    }

    /// Applies the result of a write that was sent at `sent`.
    pub fn on_write_result(&mut self, write: &Write, sent: Duration, now: Duration, what: Wrote) {
        match what {
            Wrote::Done(seen) if write.ours => {
                self.conflicts = 0;
                (self.fresh, self.pending_acquire_time, self.look) = (false, None, false);
                self.held =
                    Some(Held { epoch: seen.epoch, acquired: write.acquired, until: sent + LASTS, renew: sent + RENEW });
                self.known = Known::There { seen, since: now, expired: None };
            }
            Wrote::Done(seen) => {
                self.held = None;
                self.known = Known::There { seen, since: now, expired: None };
            }
            Wrote::Conflict => {
                self.conflicts += 1;
                (self.fresh, self.look) = (false, true);
                if self.conflicts > 1 {
                    self.unsure(now);
                }
                // A client that retries on its own can conflict with its own first attempt.
                if self.held.is_none() && write.ours {
                    self.pending_acquire_time = Some(write.acquired);
                }
            }
            Wrote::Unknown => {
                self.look = true;
                self.unsure(now);
                if self.held.is_none() && write.ours {
                    self.pending_acquire_time = Some(write.acquired);
                }
            }
        }
    }

    /// Raises our epoch above one that was read elsewhere.
    pub fn raise(&mut self, above: i32) {
        self.raised = self.raised.max(above.saturating_add(1));
        if let Some(held) = self.held.as_mut().filter(|held| held.epoch < self.raised) {
            held.renew = Duration::ZERO;
        }
    }

    /// Returns the next step. `wall` is the wall-clock time.
    #[must_use]
    pub fn next(&self, now: Duration, wall: Time) -> Step {
        if now < self.not_before {
            return Step::Wait(self.not_before);
        }
        if self.look {
            return Step::Look;
        }
        match (&self.known, self.held) {
            (Known::Nothing, _) => Step::Look,
            (Known::There { seen, .. }, Some(held)) => {
                if now < held.renew {
                    return Step::Wait(held.renew);
                }
                let (over, epoch) = (Some(seen.version.clone()), held.epoch.max(self.raised));
                Step::Write(Write { over, ours: true, epoch, acquired: held.acquired })
            }
            (Known::Absent(until), _) if now < *until => Step::Wait(*until),
            (Known::Absent(_), _) => self.acquire(None, 0, wall),
            (Known::There { seen, since, expired }, None) => {
                let own = self.fresh && seen.holder == self.identity;
                if !seen.holder.is_empty() && !own {
                    let due = *since + seen.lasts.min(LONGEST);
                    let again = match expired {
                        None => due.saturating_sub(GRACE),
                        Some(looked) => due.max(*looked + GRACE),
                    };
                    if now < again {
                        return Step::Wait(again);
                    }
                    if expired.is_none() {
                        return Step::Look;
                    }
                }
                self.acquire(Some(seen.version.clone()), seen.epoch, wall)
            }
        }
    }

    /// Releases the Lease. From now on it is not ours, whatever the result of the write is.
    #[must_use]
    pub fn resign(&mut self) -> Option<Write> {
        let held = self.held.take()?;
        let Known::There { seen, .. } = &self.known else { return None };
        Some(Write { over: Some(seen.version.clone()), ours: false, epoch: held.epoch, acquired: held.acquired })
    }

    fn acquire(&self, over: Option<String>, epoch: i32, wall: Time) -> Step {
        Step::Write(Write { over, ours: true, epoch: epoch.saturating_add(1).max(self.raised), acquired: wall })
    }

    /// Delays the next step. An expiry that was observed before the API server became unavailable no longer counts.
    fn unsure(&mut self, now: Duration) {
        self.not_before = now + RETRY;
        if let Known::There { expired, .. } = &mut self.known {
            *expired = None;
        }
    }

    fn is_older(&self, seen: &Seen) -> bool {
        matches!(&self.known, Known::There { seen: known, .. } if version(Some(&seen.version)) < version(Some(&known.version)))
    }

    fn see(&mut self, seen: Seen, now: Duration) {
        if matches!(&self.known, Known::There { seen: known, .. } if known.version == seen.version) {
            return;
        }
        let term = self.held.map(|held| held.acquired).or(self.pending_acquire_time);
        let ours = seen.holder == self.identity && term.is_some() && seen.acquired == term;
        match &mut self.held {
            Some(held) if ours => held.epoch = seen.epoch,
            // The response of our acquisition was lost. The next answered renewal shows how long the Lease is ours.
            None if ours => {
                let acquired = seen.acquired.unwrap_or(Time::UNIX_EPOCH);
                (self.fresh, self.pending_acquire_time) = (false, None);
                self.held = Some(Held { epoch: seen.epoch, acquired, until: Duration::ZERO, renew: now });
            }
            _ => self.held = None,
        }
        self.fresh &= seen.holder == self.identity || seen.holder.is_empty();
        self.known = Known::There { seen, since: now, expired: None };
    }
}

#[cfg(test)]
mod tests;
