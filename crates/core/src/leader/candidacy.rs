//! One replica among those that divide the buckets of a Lease: what it knows of the Lease, and what it does next. Pure.
//!
//! In: the content of the Lease (live reads, the watch, responses to writes), the time since boot, and which buckets have no work in progress.
//! Out: the next [`Step`].
//!
//! - Each member declares in the Lease how long its membership lasts after a renewal.
//! - A renewal that was answered makes our buckets ours for that time, counted from before it was sent.
//! - A member is removed if it was not renewed for the time that it has declared, since we first saw its last renewal. Two live reads at least
//!   [`GRACE`] apart must confirm that. So after an outage of the API server, it can renew first.
//! - A member that needs more time declares it, and waits for the answer. If it needs less, it first relies on less. It declares that after the
//!   time for which it could still rely on more.
//! - Each member has its quota. It takes free buckets up to that number. Of more it starts no work, and they become free when the work in
//!   progress has ended.
//!   If work does not end, because the API server refuses its result, the bucket is kept for a while, and another one is given away.
//! - The members of a deleted Lease recreate it at once, each with the buckets that are certainly its own. Other buckets stay reserved until
//!   their holders would have stopped.
//! - A membership in our own name from an earlier process is taken over at once, but only at the start of a process. So a restarted container
//!   continues, and two processes of one name do not replace each other forever.

mod plan;

use std::collections::BTreeMap;
use std::time::Duration;

use super::bucket::Buckets;
use super::table::{Content, LASTS, LONGEST, Member, Seen, Table, UNKNOWN, Write, declared};
use relaybook_api::{Time, version};

/// Time between two renewals.
pub const RENEW: Duration = Duration::from_secs(10);
/// Pause after a failed call.
pub const RETRY: Duration = Duration::from_secs(2);
/// Time for which an expired membership is left to its holder while the API server responds.
pub const GRACE: Duration = Duration::from_secs(12);
/// Time for which a bucket is given away, until it is kept because work in it does not end.
///
/// It is longer than the longest request, and the write after it.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Time for which such a bucket is kept.
pub const KEEP: Duration = Duration::from_mins(10);
/// Number of conflicts in a row that are normal while several replicas start or end.
const CONFLICTS: u32 = 6;
/// The pause after a conflict is up to this time, multiplied by their number.
const CONFLICT_PAUSE: Duration = Duration::from_millis(40);

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the Lease.
    Read,
    /// Write it.
    Write(Write),
    /// Do nothing before this time, unless the watch delivers an event or work in progress ends.
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

/// State of this replica as a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its epoch.
    pub epoch: i32,
    /// Its buckets.
    pub buckets: Buckets,
    /// Those of them that it gives away: no new work is started in them.
    pub giving: Buckets,
    /// Time until which the buckets are certainly ours.
    pub until: Duration,
}

/// What a member knows of itself besides the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mine {
    until: Duration,
    renew: Duration,
    giving: Buckets,
    /// Since when the same buckets are given away.
    since: Duration,
    /// Buckets whose work did not end, and until when they are not given away again.
    busy: (Buckets, Duration),
}

/// A membership of another process, as it was first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sighting {
    member: Option<Member>,
    lasts: Duration,
    since: Duration,
    /// When a live read confirmed that it is about to expire.
    confirmed: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// There is no Lease. Previous holders may continue until this time.
    Absent(Duration),
    There {
        seen: Seen,
        /// The memberships of other processes, by name.
        others: BTreeMap<String, Sighting>,
    },
}

/// State of one replica.
#[derive(Clone, Debug)]
pub struct Candidacy {
    identity: String,
    started: Time,
    known: Known,
    mine: Option<Mine>,
    /// Whether a membership in our own name can be taken over at once: only at the start of a process.
    fresh: bool,
    must_read: bool,
    /// Number of consecutive conflicts.
    conflicts: u32,
    not_before: Duration,
    raised: i32,
    /// The highest epoch that was seen.
    highest: i32,
    /// Buckets that were ours when the Lease was deleted, and until when they certainly are.
    reclaims: (Buckets, Duration),
    /// Whether this replica leaves.
    leaves: bool,
    /// How long a membership has to last after a renewal.
    lasts: Duration,
    /// How long it lasts according to the Lease, and until when it is not lowered.
    declared: (Duration, Duration),
}

impl Candidacy {
    /// Returns the state at the start of a process. `started`: the wall-clock time of that. `lasts`: how long a membership has to last.
    #[must_use]
    pub fn new(identity: &str, started: Time, lasts: Duration) -> Self {
        Self {
            identity: identity.to_owned(),
            started,
            known: Known::Nothing,
            mine: None,
            fresh: true,
            must_read: false,
            conflicts: 0,
            not_before: Duration::ZERO,
            raised: 0,
            highest: 0,
            reclaims: (Buckets::NONE, Duration::ZERO),
            leaves: false,
            lasts,
            declared: (lasts, Duration::ZERO),
        }
    }

    /// Sets how long a membership has to last after a renewal, no longer than [`LASTS`].
    pub fn set_lasts(&mut self, lasts: Duration, now: Duration) {
        if lasts > self.lasts {
            self.mine.iter_mut().for_each(|mine| mine.renew = now);
        } else if lasts < self.lasts {
            // Work that began before can rely on the longer time.
            self.declared.1 = self.declared.1.max(now + self.lasts);
            self.mine.iter_mut().for_each(|mine| mine.until = mine.until.min(now + lasts));
        }
        (self.lasts, self.declared.0) = (lasts, self.declared.0.max(lasts));
    }

    /// Returns the state of this replica as a member. `None`: it is not one.
    #[must_use]
    pub fn held(&self) -> Option<Held> {
        let (mine, table) = (self.mine.as_ref().filter(|_| !self.leaves)?, self.table()?);
        let (epoch, buckets) = (table.members.get(&self.identity)?.epoch, table.of(Some(&self.identity)));
        Some(Held { epoch, buckets, giving: mine.giving, until: mine.until })
    }

    /// Returns the epoch of the Lease, for any holder. `None`: it is unknown, or there is no Lease.
    #[must_use]
    pub fn epoch(&self) -> Option<i32> {
        if let Known::There { seen, .. } = &self.known { Some(seen.epoch) } else { None }
    }

    /// Whether this or another replica is known to hold the buckets.
    #[must_use]
    pub fn decided(&self) -> bool {
        let Known::There { seen, .. } = &self.known else { return false };
        let other = |name: &str| name != UNKNOWN && (name != self.identity || !self.fresh);
        self.mine.is_some()
            || match &seen.content {
                Content::Whole { holder, .. } => other(holder),
                Content::Divided(table) => table.members.keys().any(|name| other(name)),
            }
    }

    /// Applies an event of the watch. A deletion is not trusted, because the watch may lag behind our own write.
    pub fn on_watch_event(&mut self, seen: Option<Seen>, now: Duration) {
        match seen {
            None => self.must_read = !matches!(self.known, Known::Absent(_)),
            Some(seen) if self.is_older(&seen) => {}
            Some(seen) => self.see(seen, now),
        }
    }

    /// Applies the result of a live read.
    pub fn on_read(&mut self, seen: Option<Seen>, now: Duration) {
        self.must_read = false;
        let Some(seen) = seen else { return self.is_absent(now) };
        self.see(seen, now);
        self.confirm(now);
    }

    /// Records that a live read failed.
    pub fn on_read_failed(&mut self, now: Duration) {
        self.must_read = true;
        self.unsure(now);
    }

    /// Applies the result of a write that was sent at `sent`.
    pub fn on_write_result(&mut self, write: &Write, sent: Duration, now: Duration, what: Wrote) {
        match what {
            Wrote::Done(seen) => {
                (self.conflicts, self.must_read) = (0, false);
                self.see(seen, now);
                self.confirm(now);
                if self.mine.is_some() && self.is_member_of(&write.table) {
                    let declared = write.table.members.get(&self.identity).map_or(Duration::ZERO, Member::lasts);
                    let is_renewed = declared >= self.lasts;
                    if let Some(mine) = &mut self.mine {
                        mine.until = sent + declared.min(self.lasts);
                        (mine.renew, mine.giving) = (if is_renewed { sent + RENEW } else { now }, write.giving);
                    }
                    self.reclaims.0 = Buckets::NONE;
                } else if !self.leaves {
                    // Something else changes what is written.
                    self.not_before = now + RETRY;
                }
            }
            // A client that retries on its own can conflict with its own first attempt. The next read shows that.
            Wrote::Conflict => {
                (self.conflicts, self.must_read) = (self.conflicts.saturating_add(1), true);
                if self.conflicts > CONFLICTS {
                    self.unsure(now);
                } else if self.conflicts > 1 {
                    self.not_before = now + CONFLICT_PAUSE * self.conflicts * self.slot() / 16;
                }
            }
            Wrote::Unknown => {
                self.must_read = true;
                self.unsure(now);
            }
        }
    }

    /// Raises our epoch above one that was read elsewhere.
    pub fn raise(&mut self, above: i32) {
        self.raised = self.raised.max(above.saturating_add(1));
    }

    /// Returns the next step. `wall`: the wall-clock time. `idle`: buckets without work in progress.
    #[must_use]
    pub fn next(&mut self, now: Duration, wall: Time, idle: Buckets) -> Step {
        if now < self.not_before {
            return Step::Wait(self.not_before);
        }
        if self.must_read {
            return Step::Read;
        }
        if now >= self.declared.1 {
            self.declared.0 = self.lasts;
        }
        match &self.known {
            Known::Nothing => Step::Read,
            Known::Absent(until) if now < *until => Step::Wait(*until),
            Known::Absent(_) if !self.reclaims.0.is_empty() && now >= self.reclaims.1 => {
                // It was paused since it has read that, and another replica may have taken its buckets.
                (self.reclaims.0, self.known) = (Buckets::NONE, Known::Absent(now + LASTS));
                Step::Wait(now + LASTS)
            }
            Known::Absent(_) => Step::Write(self.create(now, wall)),
            Known::There { .. } => self.plan(now, wall, idle),
        }
    }

    /// Returns our entry for the table.
    fn entry(&self, epoch: i32, renewed: Time) -> Member {
        Member { started: self.started, renewed, epoch, lasts: declared(self.declared.0) }
    }

    fn table(&self) -> Option<&Table> {
        match &self.known {
            Known::There { seen: Seen { content: Content::Divided(table), .. }, .. } => Some(table),
            _ => None,
        }
    }

    fn is_member_of(&self, table: &Table) -> bool {
        table.members.get(&self.identity).is_some_and(|member| member.started == self.started)
    }

    /// Returns a number from 1 to 16 that differs between replicas, so that they do not conflict again and again.
    fn slot(&self) -> u32 {
        1 + u32::from(super::bucket::Bucket::of(&self.identity).number())
    }

    /// Delays the next step. An expiry that was observed before the API server became unavailable no longer counts.
    fn unsure(&mut self, now: Duration) {
        self.not_before = now + RETRY;
        if let Known::There { others, .. } = &mut self.known {
            for sighting in others.values_mut() {
                sighting.confirmed = None;
            }
        }
    }

    /// Notes that the API server has just returned the Lease: memberships that are about to expire were not renewed until now.
    fn confirm(&mut self, now: Duration) {
        if let Known::There { others, .. } = &mut self.known {
            for sighting in others.values_mut().filter(|sighting| now + GRACE >= sighting.since + sighting.lasts) {
                sighting.confirmed.get_or_insert(now);
            }
        }
    }

    fn is_older(&self, seen: &Seen) -> bool {
        matches!(&self.known, Known::There { seen: known, .. } if version(Some(&seen.version)) < version(Some(&known.version)))
    }

    /// Handles that there is no Lease.
    fn is_absent(&mut self, now: Duration) {
        let held = self.held().filter(|held| now < held.until && !held.buckets.is_empty());
        let until = match &self.known {
            Known::There { .. } if held.is_some() => now,
            Known::There { others, .. } => {
                // A member whose time has passed may have been replaced since.
                let replaced = self.mine.as_ref().map(|_| LASTS);
                now + others.values().map(|sighting| sighting.lasts).chain(replaced).max().unwrap_or(Duration::ZERO)
            }
            Known::Absent(until) => *until,
            Known::Nothing => now,
        };
        if let Some(held) = held {
            self.reclaims = (held.buckets, held.until);
        }
        self.mine = None;
        self.known = Known::Absent(until);
    }

    fn see(&mut self, seen: Seen, now: Duration) {
        let (before, earlier) = match &mut self.known {
            Known::There { seen: known, .. } if known.version == seen.version => return,
            Known::There { others, .. } => (std::mem::take(others), true),
            _ => (BTreeMap::new(), false),
        };
        let held = if earlier { self.held() } else { None };
        self.highest = self.highest.max(seen.epoch);
        let new = |name: &String, member: Option<&Member>, lasts: Duration| {
            let known = before.get(name).filter(|known| known.member.is_some() && known.member.as_ref() == member);
            let sighting = || Sighting { member: member.cloned(), lasts, since: now, confirmed: None };
            (name.clone(), known.cloned().unwrap_or_else(sighting))
        };
        let (others, is_member) = match &seen.content {
            Content::Whole { holder, .. } if holder.is_empty() => (BTreeMap::new(), false),
            Content::Whole { holder, lasts } => ([new(holder, None, (*lasts).min(LONGEST))].into(), false),
            Content::Divided(table) => {
                let is_member = self.is_member_of(table);
                let others = table.members.iter().filter(|(name, _)| !is_member || **name != self.identity);
                (others.map(|(name, member)| new(name, Some(member), member.lasts())).collect(), is_member)
            }
        };
        let is_recreated = matches!(&seen.content, Content::Divided(table) if table.members.contains_key(UNKNOWN));
        self.known = Known::There { seen, others };
        if is_member {
            self.fresh = false;
            let ours = self.table().map_or(Buckets::NONE, |table| table.of(Some(&self.identity)));
            // If the response of our write was lost, the next answered renewal shows how long the buckets are ours.
            let (until, giving, busy) = (Duration::ZERO, Buckets::NONE, (Buckets::NONE, now));
            let mine = self.mine.get_or_insert(Mine { until, renew: now, giving, since: now, busy });
            mine.giving = mine.giving.also_in(ours);
        } else {
            if let Some(held) = held.filter(|_| is_recreated) {
                self.reclaims = (held.buckets, held.until);
            }
            self.mine = None;
        }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
