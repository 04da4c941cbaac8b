//! Timers of transitions that are reported only after their state has lasted for the time that `for` of their trigger sets. Pure.
//!
//! In: the changes of a log, one after the other, and the current time. Out: the timers that are due, each at its place between the
//! changes, and the timers that continue. Only the times of the changes decide about a timer. The first change that ends its state before
//! the timer is due disarms the timer. Otherwise the timer becomes due. So it does not matter when or how often the log is processed. A
//! change waits as long as a timer of the same notification may be due before it.

use std::time::Duration;

use relaybook_api::notification::Ordering;
use relaybook_api::pipeline::RunningTimer;
use relaybook_api::{Change, ChangeLog, Time, TransitionType};
use relaybook_core::meaning::{ended_at, ends};

/// Maximum number of timers of one pipeline. If a notification needs another timer, its cursor waits.
pub const MOST: usize = 1000;
/// For this time after a timer is due, an earlier change can still arrive.
pub const SLACK: Duration = Duration::from_millis(500);
/// A change is from the future if its time is ahead of the dispatcher's clock by more than this. Then the wall clock of its writer was
/// wrong.
const AHEAD: Duration = Duration::from_mins(1);
/// A time until which changes can be held is at most this far away: twice the longest wait of a write, and a difference of clocks.
const FARTHEST: Duration = Duration::from_mins(11);

/// One timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer<'a> {
    /// The change that has armed it.
    pub change: &'a Change,
    /// The transition that the change means.
    pub type_: TransitionType,
    /// The time until which its state must last, by the times of the log.
    pub due: Time,
    /// The same time by the dispatcher's own clock. It differs from `due` only for a change from the future.
    pub fires: Time,
    /// The error, if the condition of its trigger cannot be evaluated.
    pub error: Option<String>,
    /// The ordering of lanes of its notification.
    pub ordering: Ordering,
}

/// The timers of one notification, at one place in the log.
#[derive(Debug)]
pub struct Timers<'a> {
    log: &'a ChangeLog,
    now: Time,
    /// Sorted by due time, the earliest first.
    running: Vec<Timer<'a>>,
}

impl<'a> Timers<'a> {
    /// Starts without timers.
    #[must_use]
    pub fn new(log: &'a ChangeLog, now: Time) -> Self {
        Self { log, now, running: Vec::new() }
    }

    /// Arms a timer.
    pub fn arm(&mut self, timer: Timer<'a>) {
        let place = |c: &Timer<'_>| (c.due, c.change.serial, c.type_);
        let at = self.running.partition_point(|other| place(other) < place(&timer));
        self.running.insert(at, timer);
    }

    /// Returns how many timers run.
    #[must_use]
    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Removes and returns the timers that are due before a change. The second value is `true` if another timer may be due, but this is not
    /// certain yet. Then the change must wait.
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
            // A change of the timer's own subject settles the timer. A change from the future does not wait for the timer: after the wall
            // clock was set back, the wait would be long.
            if !own && !self.is_past(timer.fires) && change.time <= self.now {
                return (due, true);
            }
            due.push(self.running.remove(at));
        }
        (due, false)
    }

    /// Disarms the timers whose state a change ends.
    pub fn pass(&mut self, change: &Change) {
        self.running.retain(|timer| {
            let own = timer.change.subject == change.subject && timer.change.serial < change.serial;
            !own || !ends(timer.type_, change)
        });
    }

    /// Removes and returns the timers that are due at the end of the log.
    pub fn rest(&mut self) -> Vec<Timer<'a>> {
        let (due, running) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|timer| self.is_past(timer.fires) && !self.is_ended(timer));
        self.running = running;
        due
    }

    /// Returns how long until a timer can be due.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        let fires = self.known(self.running.iter().map(|timer| timer.fires).min()?);
        let over = Duration::try_from(self.now.duration_since(fires)).unwrap_or_default();
        let until = Duration::try_from(fires.duration_since(self.now)).unwrap_or_default();
        Some((until + SLACK).saturating_sub(over))
    }

    /// Returns the timers that continue, in their persisted form.
    pub fn armed(&self, notification: &str) -> impl Iterator<Item = RunningTimer> {
        self.running.iter().map(|timer| RunningTimer {
            notification: notification.to_owned(),
            subject: timer.change.subject.clone(),
            serial: timer.change.serial,
            type_: timer.type_,
            due: timer.fires,
        })
    }

    /// Returns when all changes from before this time are in the log. A time that is too far away was written with a wrong clock.
    fn known(&self, due: Time) -> Time {
        let held = self.log.held_until.filter(|held| held.duration_since(self.now).unsigned_abs() <= FARTHEST);
        held.map_or(due, |held| held.max(due))
    }

    /// Whether no change from before this time can arrive any more.
    fn is_past(&self, due: Time) -> bool {
        Duration::try_from(self.now.duration_since(self.known(due))).is_ok_and(|over| over >= SLACK)
    }

    /// Whether a later change of the log ends the state of a timer before the timer is due. Such a timer never becomes due.
    #[must_use]
    pub fn is_ended(&self, timer: &Timer<'_>) -> bool {
        let later = self.log.changes.partition_point(|change| change.serial <= timer.change.serial);
        let mut own = self.log.changes.iter().skip(later).filter(|change| change.subject == timer.change.subject);
        let end = own.find(|change| ends(timer.type_, change));
        end.is_some_and(|end| ended_at(timer.type_, end) < timer.due)
    }
}

/// The number of running timers of one pipeline, while its notifications are processed one after the other.
#[derive(Clone, Copy, Debug)]
pub struct TimerQuota(usize);

impl TimerQuota {
    /// Starts with the number of running timers.
    #[must_use]
    pub fn new(running: usize) -> Self {
        Self(running)
    }

    /// Returns the number of timers that a notification can have. `own` is the number of its timers that run.
    #[must_use]
    pub fn limit(self, own: usize) -> usize {
        MOST.saturating_sub(self.0.saturating_sub(own))
    }

    /// Records that a notification was processed. It had `own` running timers before, and has `now` running timers after.
    pub fn put(&mut self, own: usize, now: usize) {
        self.0 = self.0.saturating_sub(own) + now;
    }
}

/// Returns when a state that started at `begun` has lasted for `hold`.
#[must_use]
pub fn due(begun: Time, hold: Option<Duration>) -> Time {
    hold.and_then(|hold| begun.checked_add(hold).ok()).unwrap_or(begun)
}

/// Returns the same time by the dispatcher's own clock. If `begun` is in the future, the time is counted from now. An earlier result
/// (`known`) is kept if it is sooner, because otherwise each reconcile would postpone the time.
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
