//! Pure: one replica's part in who holds the Lease. What is known of the object, and what to do next.
//!
//! In: what the Lease says (live reads, the watch, answers to writes) and the time since boot. Out: the next [`Step`].
//!
//! - An answered renewal makes the Lease ours for [`LASTS`] from before it was sent.
//! - Another replica's Lease is acquired if it has not changed for its own duration, counted from our first sight. Two live reads at least
//!   [`GRACE`] apart must confirm that. So after an outage of the API server the holder can renew first.
//! - The holder recreates a deleted Lease at once. Others recreate it when its holder would have stopped.
//! - A Lease in our own name of an earlier process is acquired at once, but only at the start of a process. So a restarted container
//!   continues, and two processes of one name do not replace each other forever.

use std::time::Duration;

use crate::api::{Time, version};

/// How long a renewal holds.
pub const LASTS: Duration = Duration::from_secs(90);
/// Between two renewals.
pub const RENEW: Duration = Duration::from_secs(10);
/// After a call that failed.
pub const RETRY: Duration = Duration::from_secs(2);
/// How long an expired Lease is left to its holder while the API server answers.
pub const GRACE: Duration = Duration::from_secs(12);
/// Another's Lease that claims more than this is not believed.
const LONGEST: Duration = Duration::from_mins(10);

/// What a Lease object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `resourceVersion`.
    pub version: String,
    /// `holderIdentity`; empty: nobody.
    pub holder: String,
    /// `leaseTransitions`.
    pub epoch: i32,
    /// `acquireTime`: with the name, it tells one process's term from another's.
    pub acquired: Option<Time>,
    /// `leaseDurationSeconds`.
    pub lasts: Duration,
}

/// A write to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The version that it replaces; `None`: it creates.
    pub over: Option<String>,
    /// Who is to hold it; `false`: nobody.
    pub ours: bool,
    /// `leaseTransitions`.
    pub epoch: i32,
    /// `acquireTime`.
    pub acquired: Time,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the Lease.
    Look,
    /// Write it.
    Write(Write),
    /// Nothing before then, unless the watch has news.
    Wait(Duration),
}

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// It is done, and this stands there now.
    Done(Seen),
    /// Something else stood there.
    Conflict,
    /// Nobody knows.
    Unknown,
}

/// This replica holds the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// `leaseTransitions`.
    pub epoch: i32,
    /// `acquireTime`.
    pub acquired: Time,
    /// Ours for sure until then.
    pub until: Duration,
    renew: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// The previous holder may continue until then.
    Absent(Duration),
    There {
        seen: Seen,
        since: Duration,
        expired: Option<Duration>,
    },
}

/// One replica's part.
#[derive(Clone, Debug)]
pub struct Candidacy {
    identity: String,
    known: Known,
    held: Option<Held>,
    /// When the acquisition began whose answer was lost.
    tried: Option<Time>,
    /// Whether the Lease of one's own name may be taken over: at the beginning only.
    fresh: bool,
    look: bool,
    /// In a row.
    conflicts: u32,
    not_before: Duration,
    raised: i32,
}

impl Candidacy {
    /// A process begins.
    #[must_use]
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            known: Known::Nothing,
            held: None,
            tried: None,
            fresh: true,
            look: false,
            conflicts: 0,
            not_before: Duration::ZERO,
            raised: 0,
        }
    }

    /// Whether it is ours, and until when.
    #[must_use]
    pub fn held(&self) -> Option<Held> {
        self.held
    }

    /// The epoch of the Lease, for any holder. `None`: it is unknown, or there is no Lease.
    #[must_use]
    pub fn epoch(&self) -> Option<i32> {
        if let Known::There { seen, .. } = &self.known { Some(seen.epoch) } else { None }
    }

    /// Whether it is known who holds it.
    #[must_use]
    pub fn decided(&self) -> bool {
        let others = |holder: &str| !holder.is_empty() && (holder != self.identity || !self.fresh);
        self.held.is_some() || matches!(&self.known, Known::There { seen, .. } if others(&seen.holder))
    }

    /// The watch says this. That the Lease is gone is not believed: the watch may be behind our own write.
    pub fn told(&mut self, seen: Option<Seen>, now: Duration) {
        match seen {
            None => self.look = !matches!(self.known, Known::Absent(_)),
            Some(seen) if self.is_older(&seen) => {}
            Some(seen) => self.see(seen, now),
        }
    }

    /// A live read says this.
    pub fn looked(&mut self, seen: Option<Seen>, now: Duration) {
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

    /// A live read was not answered.
    pub fn look_failed(&mut self, now: Duration) {
        self.look = true;
        self.unsure(now);
    }

    /// What came of a write that was sent at `sent`.
    pub fn wrote(&mut self, write: &Write, sent: Duration, now: Duration, what: Wrote) {
        match what {
            Wrote::Done(seen) if write.ours => {
                self.conflicts = 0;
                (self.fresh, self.tried, self.look) = (false, None, false);
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
                // A client that tries again by itself conflicts with its own first try.
                if self.held.is_none() && write.ours {
                    self.tried = Some(write.acquired);
                }
            }
            Wrote::Unknown => {
                self.look = true;
                self.unsure(now);
                if self.held.is_none() && write.ours {
                    self.tried = Some(write.acquired);
                }
            }
        }
    }

    /// An epoch was seen somewhere that must not be above ours.
    pub fn raise(&mut self, above: i32) {
        self.raised = self.raised.max(above.saturating_add(1));
        if let Some(held) = self.held.as_mut().filter(|held| held.epoch < self.raised) {
            held.renew = Duration::ZERO;
        }
    }

    /// What to do next. `wall` is the time on the wall.
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

    /// Releases it: from here on it is not ours, whatever the result of the write is.
    #[must_use]
    pub fn resign(&mut self) -> Option<Write> {
        let held = self.held.take()?;
        let Known::There { seen, .. } = &self.known else { return None };
        Some(Write { over: Some(seen.version.clone()), ours: false, epoch: held.epoch, acquired: held.acquired })
    }

    fn acquire(&self, over: Option<String>, epoch: i32, wall: Time) -> Step {
        Step::Write(Write { over, ours: true, epoch: epoch.saturating_add(1).max(self.raised), acquired: wall })
    }

    /// Whatever was seen of its expiry was seen before the API server was away.
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
        let term = self.held.map(|held| held.acquired).or(self.tried);
        let ours = seen.holder == self.identity && term.is_some() && seen.acquired == term;
        match &mut self.held {
            Some(held) if ours => held.epoch = seen.epoch,
            // The answer was lost; how long it holds is known when the next one is answered.
            None if ours => {
                let acquired = seen.acquired.unwrap_or(Time::UNIX_EPOCH);
                (self.fresh, self.tried) = (false, None);
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
