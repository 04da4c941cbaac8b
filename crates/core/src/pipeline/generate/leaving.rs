//! Whether a recorded target stays although no selection contains its object. Pure.
//!
//! In: what is read of the object, and the status of the pipeline. Out: [`Stays`]. A target whose object is gone stays until `Removed` is
//! logged, all notifications have read that, and their deliveries are settled.

use crate::reading::Now;
use relaybook_api::{Change, PipelineStatus, Settled, Status};

/// Whether a target stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stays {
    /// It leaves.
    No,
    /// It stays.
    Yes,
    /// It stays until its deliveries are settled, unless another target needs its room or its name.
    WhilePending,
}

/// Decides about a target of a complete selection. `settled`: its last settled state.
pub(super) fn stays(subject: &str, now: &Now, settled: Option<&Settled>, status: &PipelineStatus) -> Stays {
    match now {
        Now::Known(observed) if observed.status == Status::NotFound => match settled {
            Some(settled) if settled.status != Status::NotFound || !is_passed(status, subject) => Stays::Yes,
            Some(_) if is_pending(status, subject) => Stays::WhilePending,
            Some(_) | None => Stays::No,
        },
        Now::Known(_) => Stays::No,
        Now::Unknown { .. } => Stays::Yes,
    }
}

/// Whether all cursors have passed the changes of a subject, and no timer of it is running.
fn is_passed(status: &PipelineStatus, subject: &str) -> bool {
    let changes = status.log.iter().flat_map(|log| &log.changes);
    let last = changes.filter(|change: &&Change| change.subject == subject).map(|change| change.serial).max();
    let Some(dispatched) = &status.dispatched else { return last.is_none() };
    let is_armed = dispatched.armed.iter().any(|timer| timer.subject == subject);
    !is_armed && last.is_none_or(|last| dispatched.cursors.iter().all(|cursor| cursor.serial >= last))
}

/// Whether a subject has pending deliveries.
fn is_pending(status: &PipelineStatus, subject: &str) -> bool {
    status.dispatched.iter().flat_map(|dispatched| &dispatched.pending_targets).any(|pending| pending == subject)
}
