//! Computes what a held cursor skips because it is too old to be recorded. A cursor is held while deliveries of its notification cannot be
//! recorded. Pure.
//!
//! In: the log, the serial of the cursor, its timers, `maxAge`, and the ages of changes and timers. Out: the serial to which the cursor can
//! advance, and the timers that continue.

use std::collections::BTreeMap;
use std::time::Duration;

use relaybook_api::pipeline::RunningTimer;
use relaybook_api::{Age, Change, ChangeLog, Time};
use relaybook_core::meaning::ends;

/// What the cursor skips.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The cursor can advance to this serial.
    pub serial: i64,
    /// The timers that continue.
    pub armed: Vec<RunningTimer>,
    /// The number of skipped changes and due timers. Their transitions are never reported.
    pub count: usize,
}

/// How old the changes and timers of one pipeline are, counted from when this process first saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ages(BTreeMap<Time, Age>);

impl Ages {
    /// Notes the times of all changes and timers, and forgets other times. `wall` is the current time of the wall clock, and `boot` the
    /// current time since boot.
    pub fn note(&mut self, log: &ChangeLog, armed: &[&RunningTimer], wall: Time, boot: Duration) {
        let times = log.changes.iter().map(|change| change.time).chain(armed.iter().map(|timer| timer.due));
        let age = |time| self.0.get(&time).copied().unwrap_or_else(|| Age::new(time, wall, boot));
        self.0 = times.map(|time| (time, age(time))).collect();
    }

    /// Forgets all times, because no cursor is held any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn is_older(&self, time: Time, max_age: Duration, boot: Duration) -> bool {
        self.0.get(&time).is_some_and(|age| age.at(boot) > max_age)
    }
}

/// Skips what is older than `max_age`: changes after the cursor, and timers that were due. Also drops timers whose state a skipped change
/// ends, because nothing else would ever disarm them.
#[must_use]
pub fn pass(log: &ChangeLog, after: i64, armed: &[RunningTimer], max_age: Duration, ages: &Ages, boot: Duration) -> Passed {
    let is_old = |time: Time| ages.is_older(time, max_age, boot);
    let changes = log.changes.iter().filter(|change| change.serial > after);
    let changes: Vec<&Change> = changes.take_while(|change| is_old(change.time)).collect();
    let is_ended = |timer: &RunningTimer| {
        let own = |change: &&&Change| change.subject == timer.subject && change.serial > timer.serial;
        changes.iter().filter(own).any(|change| ends(timer.type_, change))
    };
    let (old, young): (Vec<_>, Vec<_>) = armed.iter().partition(|timer| is_old(timer.due));
    Passed {
        serial: changes.last().map_or(after, |change| change.serial),
        armed: young.into_iter().filter(|timer| !is_ended(timer)).cloned().collect(),
        count: changes.len() + old.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::{State, Status, TransitionType};

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn change(serial: i64, subject: &str, status: Status) -> Change {
        let to = State { status, ..State::default() };
        Change { serial, subject: subject.to_owned(), time: at(serial), to, ..Change::default() }
    }

    fn timer(serial: i64, subject: &str, due: i64) -> RunningTimer {
        let (notification, subject) = ("n".to_owned(), subject.to_owned());
        RunningTimer { notification, subject, serial, type_: TransitionType::Failed, due: at(due) }
    }

    fn log() -> ChangeLog {
        let (a, b) = ("target/dev/c/a", "target/prod/c/a");
        let changes = [change(9, a, Status::Failed), change(10, b, Status::Failed), change(11, a, Status::Current)];
        let changes = changes.into_iter().chain([change(12, "target/x", Status::Current), change(13, b, Status::Current)]);
        ChangeLog { epoch: 0, first: 8, serial: 13, held_until: None, changes: changes.collect() }
    }

    /// Returns the result if everything was seen when it happened.
    fn passed(after: i64, armed: &[RunningTimer], now: i64) -> Passed {
        let boot = |second| Duration::from_secs(1000 + u64::try_from(second).unwrap());
        let mut ages = Ages::default();
        ages.note(&log(), &armed.iter().collect::<Vec<_>>(), at(0), boot(0));
        pass(&log(), after, armed, Duration::from_secs(10), &ages, boot(now))
    }

    #[test]
    fn a_jump_of_the_wall_clock_makes_no_change_too_old() {
        let (max_age, boot) = (Duration::from_secs(10), |second: u64| Duration::from_secs(1000 + second));
        let mut ages = Ages::default();
        ages.note(&log(), &[], at(13), boot(0));
        // Reconciled again after the wall clock jumped by a year, when one more change is seen.
        let mut longer = log();
        longer.changes.push(change(14, "target/x", Status::Failed));
        longer.changes[5].time = at(31_536_001);
        for (boots, serial) in [(6, 8), (7, 9), (9, 11), (11, 13), (15, 13), (16, 14)] {
            ages.note(&longer, &[], at(31_536_001), boot(5));
            assert_eq!(pass(&longer, 8, &[], max_age, &ages, boot(boots)).serial, serial, "{boots}");
        }
        ages.clear();
        ages.note(&longer, &[], at(31_536_001), boot(5));
        assert_eq!(
            pass(&longer, 8, &[], max_age, &ages, boot(5)).serial,
            13,
            "a process that begins now has only the wall clock"
        );
    }

    #[test]
    fn a_held_cursor_passes_changes_that_are_too_old() {
        let counts = |after, now| {
            let passed = passed(after, &[], now);
            (passed.serial, passed.count)
        };
        assert_eq!([counts(10, 20), counts(10, 23), counts(12, 99)], [(10, 0), (12, 2), (13, 1)]);
    }

    #[test]
    fn timers_of_passed_changes_end_when_their_state_ends_or_they_are_due() {
        let armed = [timer(9, "target/dev/c/a", 1000), timer(10, "target/prod/c/a", 1000), timer(9, "target/y", 12)];
        let serials = |now| {
            let passed = passed(10, &armed, now);
            (passed.armed.iter().map(|timer| timer.serial).collect::<Vec<_>>(), passed.count)
        };
        assert_eq!(serials(21), (vec![9, 10, 9], 0));
        assert_eq!(serials(22), (vec![10, 9], 1), "of the target that is well again");
        assert_eq!(serials(23), (vec![10], 3), "and one that was due");
        assert_eq!(serials(24), (vec![], 4));
    }
}
