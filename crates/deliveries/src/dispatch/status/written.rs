//! The last written `Notification.status` of a notification, and when the next write is due.
//!
//! In: the desired status. Out: how long its write can still wait. Figures change continuously, and the wait keeps the number of writes
//! low.

use std::time::{Duration, Instant};

use relaybook_api::conditions::Condition;
use relaybook_api::{Notification, NotificationStatus};

/// After a pause, figures are written when they have been out of date for this time.
const WRITE_AFTER: Duration = Duration::from_secs(1);
/// The minimum interval while only figures change, and change continuously. With many notifications, more writes would be a noticeable part
/// of the cost.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// The status that was last written, or read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Last {
    pub(crate) version: u64,
    pub(crate) status: NotificationStatus,
    pub(crate) stale_since: Option<Instant>,
    pub(crate) written: Option<Instant>,
}

impl Last {
    /// Takes the status of an object from the watch, unless it is older than the last write.
    pub(crate) fn absorb(&mut self, notification: &Notification) {
        let version = relaybook_api::version(notification.metadata.resource_version.as_deref());
        if version >= self.version {
            (self.version, self.status) = (version, notification.status.clone().unwrap_or_default());
        }
    }

    /// Returns how long the write of `new` can still wait, if the first difference appeared at `since`.
    pub(crate) fn left(&self, new: &NotificationStatus, since: Instant, now: Instant) -> Duration {
        let soon = since + WRITE_AFTER;
        let said = |status: &NotificationStatus| -> Vec<_> {
            let said = status.conditions.iter().cloned().map(|c| Condition { message: String::new(), ..c });
            said.collect()
        };
        // The counts in a message are figures, too.
        let only_figures = said(&self.status) == said(new);
        let due = self.written.filter(|_| only_figures).map_or(soon, |at| soon.max(at + WRITE_EVERY));
        due.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::conditions::{ConditionStatus, DELIVERING, set};

    #[test]
    fn changed_conditions_are_written_after_one_second_and_counters_after_five() {
        let now = Instant::now();
        let (old, counted) =
            (NotificationStatus::default(), NotificationStatus { pending: 1, ..NotificationStatus::default() });
        let mut stuck = counted.clone();
        set(&mut stuck.conditions, DELIVERING, ConditionStatus::False, "R", "m", None, relaybook_api::now());
        let last = |written| Last { status: old.clone(), written, ..Last::default() };
        for (what, written, new, seconds) in [
            ("after a pause", None, &counted, 1),
            ("figures", Some(now), &counted, 5),
            ("a condition", Some(now), &stuck, 1),
        ] {
            assert_eq!(last(written).left(new, now, now), Duration::from_secs(seconds), "{what}");
        }
        assert_eq!(
            last(Some(now)).left(&counted, now + Duration::from_secs(9), now + Duration::from_secs(11)),
            Duration::ZERO
        );
    }
}
