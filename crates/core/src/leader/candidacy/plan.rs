//! What a replica writes to a Lease that exists, or to create it. Pure.
//!
//! In: the table, the memberships of other processes, and which buckets have no work in progress. Out: the next table, if something has to be
//! written; otherwise how long to wait.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Candidacy, GRACE, KEEP, Known, Mine, PATIENCE, RETRY, Sighting, Step};
use crate::leader::bucket::{Buckets, quota};
use crate::leader::table::{Content, Member, Table, UNKNOWN, Write};
use relaybook_api::Time;

impl Candidacy {
    /// Leaves: all our buckets become free. From now on we hold nothing, whatever the result of the write is. Returns the next step, until the
    /// Lease is known not to name us any more.
    #[must_use]
    pub fn resign(&mut self, now: Duration) -> Option<Step> {
        self.leaves = true;
        if now < self.not_before {
            return Some(Step::Wait(self.not_before));
        }
        if self.must_read {
            return Some(Step::Read);
        }
        let Known::There { seen, .. } = &self.known else { return None };
        let Content::Divided(table) = &seen.content else { return None };
        if !self.is_member_of(table) {
            return None;
        }
        let mut table = table.clone();
        table.remove(&self.identity);
        Some(Step::Write(Write { over: Some(seen.version.clone()), epoch: seen.epoch, table, giving: Buckets::NONE }))
    }

    /// Plans what to do with a Lease that exists. Marks the buckets that are given away from now on.
    pub(super) fn plan(&mut self, now: Duration, wall: Time, idle: Buckets) -> Step {
        let Known::There { seen, others } = &self.known else { return Step::Read };
        let Some((expired, again)) = self.expired(others, now) else { return Step::Read };
        let undivided = Table::empty();
        let old = match &seen.content {
            Content::Divided(table) => table,
            Content::Whole { .. } if others.len() > expired.len() && !self.is_left_by_ourselves(others) => {
                return Step::Wait(again.unwrap_or(now + RETRY));
            }
            Content::Whole { .. } => &undivided,
        };
        let is_member = self.is_member_of(old);
        let mut table = old.clone();
        for name in &expired {
            table.remove(name);
        }
        if !is_member && !self.fresh && table.members.contains_key(&self.identity) {
            // Another process has our name.
            return Step::Wait(again.unwrap_or(now + RETRY));
        }
        let inherits = !is_member && table.members.contains_key(&self.identity);
        let held = table.of(Some(&self.identity));
        let names = || table.members.keys().map(String::as_str).filter(|name| ![UNKNOWN, &self.identity].contains(name));
        let quota = quota(&self.identity, names().chain([self.identity.as_str()]));
        let before = self.mine.as_ref().map_or(Buckets::NONE, |mine| mine.giving).also_in(held);
        let busy = self.mine.as_mut().map_or(Buckets::NONE, |mine| mine.busy(idle, now));
        let giving = given_away(held, before, busy, quota);
        let kept = before.without(giving);
        let room = quota.saturating_sub(held.count());
        let ours = if now < self.reclaims.1 { self.reclaims.0 } else { Buckets::NONE };
        let reclaimed = table.of(Some(UNKNOWN)).also_in(ours);
        let taken = reclaimed.and(table.of(None).first(room.saturating_sub(reclaimed.count())));
        let freed = giving.also_in(idle);
        table.give(taken, Some(&self.identity));
        table.give(freed, None);
        if table.of(Some(UNKNOWN)).is_empty() {
            table.members.remove(UNKNOWN);
        }
        let known_epoch = table.members.get(&self.identity).filter(|_| is_member).map_or(0, |member| member.epoch);
        let acquires = inherits || !taken.is_empty() || !kept.is_empty();
        let next_epoch = seen.epoch.max(self.highest).saturating_add(1);
        let own_epoch = if acquires { next_epoch } else { known_epoch }.max(self.raised);
        let epoch = seen.epoch.max(own_epoch);
        table.members.insert(self.identity.clone(), self.entry(own_epoch, wall));
        let is_due = self.mine.as_ref().is_none_or(|mine| now >= mine.renew);
        let changes = acquires || !is_member || !freed.is_empty() || !expired.is_empty() || own_epoch != known_epoch;
        let write = Write { over: Some(seen.version.clone()), epoch, table, giving: giving.without(freed) };
        let Some(mine) = &mut self.mine else { return Step::Write(write) };
        mine.give(before.and(giving), now);
        if is_due || changes {
            Step::Write(write)
        } else {
            Step::Wait(again.map_or(mine.renew, |again| again.min(mine.renew)))
        }
    }

    /// Returns the members that have expired, and when to read the others again. `None`: a live read has to confirm it.
    fn expired(&self, others: &BTreeMap<String, Sighting>, now: Duration) -> Option<(Vec<String>, Option<Duration>)> {
        let (mut expired, mut again) = (Vec::new(), None::<Duration>);
        for (name, sighting) in others.iter().filter(|(name, _)| !(self.fresh && **name == self.identity)) {
            match sighting.expires(now) {
                Expiry::Read => return None,
                Expiry::Now => expired.push(name.clone()),
                Expiry::At(at) => again = Some(again.map_or(at, |again| again.min(at))),
            }
        }
        Some((expired, again))
    }

    /// Whether the only holder is an earlier process of our name.
    fn is_left_by_ourselves(&self, others: &BTreeMap<String, Sighting>) -> bool {
        self.fresh && others.keys().all(|name| *name == self.identity)
    }

    /// Returns the write that creates the Lease. If it was deleted, buckets that were not ours stay reserved for their holders.
    pub(super) fn create(&self, now: Duration, wall: Time) -> Write {
        let ours = if now < self.reclaims.1 { self.reclaims.0 } else { Buckets::NONE };
        let ours = if ours.is_empty() { Buckets::ALL } else { ours };
        let epoch = self.highest.saturating_add(1).max(self.raised);
        let mut table = Table::empty();
        let member = self.entry(epoch, wall);
        if ours != Buckets::ALL {
            table.members.insert(UNKNOWN.to_owned(), Member { lasts: None, ..member.clone() });
            table.give(Buckets::ALL, Some(UNKNOWN));
        }
        table.members.insert(self.identity.clone(), member);
        table.give(ours, Some(&self.identity));
        Write { over: None, epoch, table, giving: Buckets::NONE }
    }
}

/// Returns which of the buckets that are held are given away: first those that were given away before, and then the last ones. Those that are
/// `busy` are kept.
fn given_away(held: Buckets, before: Buckets, busy: Buckets, quota: usize) -> Buckets {
    let excess = held.count().saturating_sub(quota);
    let giving = before.without(busy).first(excess);
    giving.and(held.without(giving).without(busy).last(excess - giving.count()))
}

impl Mine {
    /// Returns the buckets whose work does not end. Adds those that have been given away for a long time.
    fn busy(&mut self, idle: Buckets, now: Duration) -> Buckets {
        let known = if now < self.busy.1 { self.busy.0 } else { Buckets::NONE };
        if self.giving.is_empty() || now < self.since + PATIENCE {
            return known;
        }
        (self.busy, self.since) = ((known.and(self.giving.without(idle)), now + KEEP), now);
        self.busy.0
    }

    /// Sets the buckets that are given away.
    fn give(&mut self, giving: Buckets, now: Duration) {
        if giving != self.giving {
            (self.giving, self.since) = (giving, now);
        }
    }
}

/// When a membership expires.
enum Expiry {
    /// It has expired.
    Now,
    /// A live read has to confirm it.
    Read,
    /// Not before this time.
    At(Duration),
}

impl Sighting {
    fn expires(&self, now: Duration) -> Expiry {
        let due = self.since + self.lasts;
        let again = self.confirmed.map_or(due.saturating_sub(GRACE), |confirmed| due.max(confirmed + GRACE));
        match self.confirmed {
            _ if now < again => Expiry::At(again),
            None => Expiry::Read,
            Some(_) => Expiry::Now,
        }
    }
}
