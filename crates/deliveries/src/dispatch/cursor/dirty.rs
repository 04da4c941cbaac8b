//! Since when the persisted position of a pipeline is out of date, and when it is written. Pure.

use std::time::{Duration, Instant};

/// The minimum interval while cursors move. It is short, because changes below persisted cursors can leave the log, and each change in the
/// log adds to the cost of every write.
const PERSIST_EVERY: Duration = Duration::from_secs(1);
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
    /// Returns when the next write is due. `persisted` is the time of the last write.
    pub fn due(self, persisted: Option<Instant>) -> Option<Instant> {
        let cursors = self.cursors.map(|since| since + PERSIST_EVERY);
        let sent =
            self.sent.map(|since| since + PERSIST_EVERY).map(|soon| persisted.map_or(soon, |at| soon.max(at + SENT_EVERY)));
        cursors.into_iter().chain(sent).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(dirty.due(persisted), due, "{dirty:?}");
        }
    }
}
