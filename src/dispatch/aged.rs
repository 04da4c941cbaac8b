//! What a held cursor passes because it has grown too old to be recorded. Pure.
//!
//! In: the log, where the cursor stands, its clocks, and `maxAge`. Out: up to where it may go, and the clocks that go on.

use std::time::Duration;

use crate::api::pipeline::Armed;
use crate::api::{Change, ChangeLog, Time};
use crate::trigger::ends;

/// What is passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The cursor may go up to here.
    pub serial: i64,
    /// The clocks that go on.
    pub armed: Vec<Armed>,
    /// How many transitions are never reported for that: changes, and clocks that had been due.
    pub count: usize,
}

/// Passes what is older than `max_age`: changes after the cursor, and clocks that were due. A clock whose state a passed change
/// ends goes with it, for nothing else would ever tell that it has ended.
#[must_use]
pub fn pass(log: &ChangeLog, after: i64, armed: &[Armed], max_age: Duration, now: Time) -> Passed {
    let is_old = |time: Time| Duration::try_from(now.duration_since(time)).is_ok_and(|age| age > max_age);
    let changes = log.changes.iter().filter(|change| change.serial > after);
    let changes: Vec<&Change> = changes.take_while(|change| is_old(change.time)).collect();
    let is_ended = |clock: &Armed| {
        let own = |change: &&&Change| change.subject == clock.subject && change.serial > clock.serial;
        changes.iter().filter(own).any(|change| ends(clock.type_, change))
    };
    let (old, young): (Vec<_>, Vec<_>) = armed.iter().partition(|clock| is_old(clock.due));
    Passed {
        serial: changes.last().map_or(after, |change| change.serial),
        armed: young.into_iter().filter(|clock| !is_ended(clock)).cloned().collect(),
        count: changes.len() + old.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{State, Status, TransitionType};

    fn at(second: i64) -> Time {
        Time::from_second(second).unwrap()
    }

    fn change(serial: i64, subject: &str, status: Status) -> Change {
        let to = State { status, ..State::default() };
        Change { serial, subject: subject.to_owned(), time: at(serial), to, ..Change::default() }
    }

    fn clock(serial: i64, subject: &str, due: i64) -> Armed {
        let (notification, subject) = ("n".to_owned(), subject.to_owned());
        Armed { notification, subject, serial, type_: TransitionType::Failed, due: at(due) }
    }

    fn log() -> ChangeLog {
        let (a, b) = ("target/dev/c/a", "target/prod/c/a");
        let changes = [change(9, a, Status::Failed), change(10, b, Status::Failed), change(11, a, Status::Current)];
        let changes = changes.into_iter().chain([change(12, "target/x", Status::Current), change(13, b, Status::Current)]);
        ChangeLog { epoch: 0, first: 8, serial: 13, changes: changes.collect() }
    }

    #[test]
    fn held_cursors_pass_what_is_too_old() {
        let passed = |after, now| {
            let passed = pass(&log(), after, &[], Duration::from_secs(10), at(now));
            (passed.serial, passed.count)
        };
        assert_eq!([passed(10, 20), passed(10, 23), passed(12, 99)], [(10, 0), (12, 2), (13, 1)]);
    }

    #[test]
    fn clocks_go_with_what_ends_their_state() {
        let armed = [clock(9, "target/dev/c/a", 1000), clock(10, "target/prod/c/a", 1000), clock(9, "target/y", 12)];
        let serials = |now| {
            let passed = pass(&log(), 10, &armed, Duration::from_secs(10), at(now));
            (passed.armed.iter().map(|clock| clock.serial).collect::<Vec<_>>(), passed.count)
        };
        assert_eq!(serials(21), (vec![9, 10, 9], 0));
        assert_eq!(serials(22), (vec![10, 9], 1), "of the target that is well again");
        assert_eq!(serials(23), (vec![10], 3), "and one that was due");
        assert_eq!(serials(24), (vec![], 4));
    }
}
