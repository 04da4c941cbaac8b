//! Confirms with live reads which notifications are gone, before their cursors are dropped.
//!
//! In: the notifications that the watch does not show any more, and when the last check was. Out: those that are gone. Thousands of
//! notifications can be deleted one after the other, and each pipeline of their namespace can have a cursor of each. So a pipeline checks all
//! that are missing together, once a second at most. Until then, their cursors stay.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::cursor::state::{CursorState, PassContext, PassError};
use crate::outbox::gone_notifications;

/// Minimum time between two checks of one pipeline.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The checks of one pipeline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Missing {
    checked: Option<Instant>,
    /// When the next check is, if notifications are missing.
    due: Option<Instant>,
}

impl Missing {
    /// Returns whether a check begins now.
    fn begins(&mut self, is_any_missing: bool, now: Instant) -> bool {
        let due = self.checked.map_or(now, |checked| now.max(checked + CHECK_EVERY));
        self.due = Some(due).filter(|due| is_any_missing && *due > now);
        let begins = is_any_missing && self.due.is_none();
        if begins {
            self.checked = Some(now);
        }
        begins
    }

    /// Returns how long until the next check.
    pub(super) fn next(&self) -> Option<Duration> {
        Some(self.due?.saturating_duration_since(Instant::now()))
    }
}

/// Returns which of these notifications are gone.
pub(super) async fn gone(
    missing: &[String],
    cursor_state: &mut CursorState,
    PassContext { of, ctx, .. }: PassContext<'_>,
) -> Result<HashSet<String>, PassError> {
    if !cursor_state.missing.begins(!missing.is_empty(), Instant::now()) {
        return Ok(HashSet::new());
    }
    let cursors = &cursor_state.position.cursors;
    let uid = |name: &str| cursors.get(name).map_or("", |cursor| cursor.uid.as_str());
    let missing: Vec<_> = missing.iter().map(|name| (name.as_str(), uid(name))).collect();
    let index = &ctx.deliveries.pipeline_index;
    gone_notifications(&ctx.client, index, &of.namespace, &missing).await.map_err(PassError::Confirm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_is_checked_at_once_and_then_once_a_second() {
        let (mut missing, now) = (Missing::default(), Instant::now());
        assert!(!missing.begins(false, now) && missing.next().is_none());
        assert!(missing.begins(true, now) && missing.next().is_none());
        assert!(!missing.begins(true, now) && missing.next().is_some());
        assert!(!missing.begins(false, now) && missing.next().is_none(), "it is there again");
        assert!(!missing.begins(true, now + CHECK_EVERY / 2));
        assert!(missing.begins(true, now + CHECK_EVERY) && missing.next().is_none());
    }
}
