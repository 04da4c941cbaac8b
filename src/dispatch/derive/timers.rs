//! Timers of transitions that are reported only when their state has held for as long as their trigger says (`for`). Pure.
//!
//! In: the changes of a log, one after the other, and now. Out: the timers that are due, each at its place between the changes, and
//! those that go on. A timer is decided by the times of the changes alone: it is disarmed by the first that ends its state before
//! it is due, and due otherwise. So it does not matter when it is looked at, nor how often: nothing of the notification is taken
//! past a timer that may be due before it.

use std::time::Duration;

use crate::api::notification::Ordering;
use crate::api::pipeline::Armed;
use crate::api::{Change, ChangeLog, Time, TransitionType};
use crate::trigger::{ended_at, ends};

/// At most so many run for one pipeline; then the cursor of a notification that would arm another waits.
pub const MOST: usize = 1000;
/// A change from before a timer was due may still be on its way for so long.
pub const SLACK: Duration = Duration::from_millis(500);
/// A change is from the future if its time is so much ahead of the dispatcher's: the wall clock of whoever wrote it was wrong.
const AHEAD: Duration = Duration::from_mins(1);

/// One timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer<'a> {
    /// The change that has armed it.
    pub change: &'a Change,
    /// What that means.
    pub type_: TransitionType,
    /// Until when its state must hold, by the times of the log.
    pub due: Time,
    /// When that is so by the dispatcher's own time: the same, but for a change from the future.
    pub fires: Time,
    /// Why its condition cannot be told.
    pub error: Option<String>,
    /// The lanes of its notification.
    pub ordering: Ordering,
}

/// Those of one notification, at one place in the log.
#[derive(Debug)]
pub struct Timers<'a> {
    log: &'a ChangeLog,
    now: Time,
    /// The first to be due first.
    running: Vec<Timer<'a>>,
}

impl<'a> Timers<'a> {
    /// None yet.
    #[must_use]
    pub fn new(log: &'a ChangeLog, now: Time) -> Self {
        Self { log, now, running: Vec::new() }
    }

    /// Arms one.
    pub fn arm(&mut self, timer: Timer<'a>) {
        let place = |c: &Timer<'_>| (c.due, c.change.serial, c.type_);
        let at = self.running.partition_point(|other| place(other) < place(&timer));
        self.running.insert(at, timer);
    }

    /// How many run.
    #[must_use]
    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Takes out those that are due before a change. `Err`: one may be, but that is not certain yet, so the change must wait.
    pub fn before(&mut self, change: &Change) -> (Vec<Timer<'a>>, bool) {
        let mut due = Vec::new();
        let mut at = 0;
        while let Some(timer) = self.running.get(at).filter(|timer| timer.due <= change.time) {
            let own = timer.change.subject == change.subject;
            let is_ended = || if own { ended_at(timer.type_, change) < timer.due } else { self.is_ended(timer) };
            if timer.change.serial >= change.serial || (!own && timer.due == change.time) || is_ended() {
                at += 1;
                continue;
            }
            // What a change of its own subject says of it is certain. A clock that was set back would make it wait for long.
            if !own && !self.is_past(timer.fires) && change.time <= self.now {
                return (due, true);
            }
            due.push(self.running.remove(at));
        }
        (due, false)
    }

    /// Disarms those whose state a change ends.
    pub fn pass(&mut self, change: &Change) {
        self.running.retain(|timer| {
            let own = timer.change.subject == change.subject && timer.change.serial < change.serial;
            !own || !ends(timer.type_, change)
        });
    }

    /// Takes out those that are due at the end of the log.
    pub fn rest(&mut self) -> Vec<Timer<'a>> {
        let (due, running) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|timer| self.is_past(timer.fires) && !self.is_ended(timer));
        self.running = running;
        due
    }

    /// How long until one may be due.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        let over = |timer: &Timer<'_>| Duration::try_from(self.now.duration_since(timer.fires)).unwrap_or_default();
        let until = |timer: &Timer<'_>| Duration::try_from(timer.fires.duration_since(self.now)).unwrap_or_default();
        self.running.iter().min_by_key(|timer| timer.fires).map(|timer| (until(timer) + SLACK).saturating_sub(over(timer)))
    }

    /// Those that go on, as they are persisted.
    pub fn armed(&self, notification: &str) -> impl Iterator<Item = Armed> {
        self.running.iter().map(|timer| Armed {
            notification: notification.to_owned(),
            subject: timer.change.subject.clone(),
            serial: timer.change.serial,
            type_: timer.type_,
            due: timer.fires,
        })
    }

    /// Whether no change from before then is on its way any more.
    fn is_past(&self, due: Time) -> bool {
        Duration::try_from(self.now.duration_since(due)).is_ok_and(|over| over >= SLACK)
    }

    /// Whether a later change of the log ends its state before it is due: then it never is.
    #[must_use]
    pub fn is_ended(&self, timer: &Timer<'_>) -> bool {
        let later = self.log.changes.partition_point(|change| change.serial <= timer.change.serial);
        let mut own = self.log.changes.iter().skip(later).filter(|change| change.subject == timer.change.subject);
        let end = own.find(|change| ends(timer.type_, change));
        end.is_some_and(|end| ended_at(timer.type_, end) < timer.due)
    }
}

/// The timers that run for one pipeline, while its notifications are gone through one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Places(usize);

impl Places {
    /// So many run.
    #[must_use]
    pub fn new(running: usize) -> Self {
        Self(running)
    }

    /// How many may run for a notification for which so many do.
    #[must_use]
    pub fn room(self, own: usize) -> usize {
        MOST.saturating_sub(self.0.saturating_sub(own))
    }

    /// It was gone through, and so many run for it now.
    pub fn put(&mut self, own: usize, now: usize) {
        self.0 = self.0.saturating_sub(own) + now;
    }
}

/// When a state that has begun then has held for so long.
#[must_use]
pub fn due(begun: Time, hold: Option<Duration>) -> Time {
    hold.and_then(|hold| begun.checked_add(hold).ok()).unwrap_or(begun)
}

/// When that is by the dispatcher's own time. What has begun in the future is counted from now, and what was `known` of that before
/// stands, or the time would move on with each look.
#[must_use]
pub fn fires(begun: Time, hold: Option<Duration>, now: Time, known: Option<Time>) -> Time {
    if Duration::try_from(begun.duration_since(now)).is_ok_and(|ahead| ahead > AHEAD) {
        let from_now = due(now, hold);
        return known.map_or(from_now, |known| known.min(from_now));
    }
    due(begun, hold)
}

#[cfg(test)]
mod tests;
