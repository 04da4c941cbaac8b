//! Since when the persisted position of a pipeline is out of date, and when it is written. Pure.
//!
//! In: the log of the pipeline, and its cursors. Out: the time of the next write.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use relaybook_api::ChangeLog;
use relaybook_core::changelog::MAX_PER_SUBJECT;

/// The minimum interval while cursors move. It is short, because changes below persisted cursors can leave the log, and each change in the
/// log adds to the cost of every write.
const PERSIST_EVERY: Duration = Duration::from_secs(1);
/// If only the persisted cursors keep this number of changes of one subject in the log, the cursors are written at once. The log of a subject
/// that changes often is then never full, so no changes are merged.
const CROWDED: usize = MAX_PER_SUBJECT * 2 / 3;
/// The interval while only last-sent times change. Under load, a write of the whole status each second would be a noticeable cost, and
/// these times need not be exact to the second.
const SENT_EVERY: Duration = Duration::from_secs(10);

/// Since when the persisted state is out of date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// The cursors, or something else that cannot wait.
    pub cursors: Option<Instant>,
    /// The last-sent times.
    pub sent: Option<Instant>,
}

impl Dirty {
    /// Returns when the next write is due. `persisted` is the time of the last write. `is_crowded`: see [`is_crowded`].
    pub fn due(self, persisted: Option<Instant>, is_crowded: impl FnOnce() -> bool) -> Option<Instant> {
        let cursors = self.cursors.map(|since| if is_crowded() { since } else { since + PERSIST_EVERY });
        let sent =
            self.sent.map(|since| since + PERSIST_EVERY).map(|soon| persisted.map_or(soon, |at| soon.max(at + SENT_EVERY)));
        cursors.into_iter().chain(sent).min()
    }
}

/// Returns whether a subject has many changes in the log that a write of the cursors would release: those above `persisted`, the lowest
/// persisted cursor, that all cursors have passed. `passed`: the lowest cursor.
pub fn is_crowded(log: &ChangeLog, persisted: i64, passed: i64) -> bool {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let released = log.changes.iter().filter(|change| change.serial > persisted && change.serial <= passed);
    released.into_iter().any(|change| {
        let count = counts.entry(&change.subject).or_default();
        *count += 1;
        *count >= CROWDED
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::Change;

    #[test]
    fn moved_cursors_are_persisted_after_one_second_and_sent_times_later() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let (moved, sent) = (Dirty { cursors: Some(now), sent: None }, Dirty { cursors: None, sent: Some(now) });
        for (dirty, persisted, due) in [
            (Dirty::default(), Some(now), None),
            (moved, Some(now), Some(after(1))),
            (sent, None, Some(after(1))),
            (sent, Some(now), Some(after(10))),
            (Dirty { cursors: Some(after(3)), ..sent }, Some(now), Some(after(4))),
            (Dirty { sent: Some(after(30)), ..Dirty::default() }, Some(now), Some(after(31))),
        ] {
            assert_eq!(dirty.due(persisted, || false), due, "{dirty:?}");
        }
        assert_eq!(moved.due(Some(now), || true), Some(now), "the log of a subject is almost full");
    }

    #[test]
    fn a_log_is_crowded_if_a_write_of_the_cursors_releases_many_changes_of_one_subject() {
        let change = |serial, subject: &str| Change { serial, subject: subject.to_owned(), ..Change::default() };
        let changes = (1..=10).map(|serial| change(serial, if serial % 2 == 0 { "target/a" } else { "target/b" }));
        let log = ChangeLog { changes: changes.collect(), ..ChangeLog::default() };
        for (persisted, passed, crowded) in
            [(0, 10, true), (0, 9, true), (0, 8, false), (1, 9, false), (1, 10, true), (9, 9, false)]
        {
            assert_eq!(is_crowded(&log, persisted, passed), crowded, "{persisted} {passed}");
        }
    }
}
