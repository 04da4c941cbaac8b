//! How far the log of a pipeline was processed for each notification.
//!
//! In: the log, the notifications that apply, and the persisted `Pipeline.status.dispatched`. Out: cursors that only advance ([`plan`]),
//! their state in memory (`state`), and guarded writes (`persist`).

pub mod aged;
mod dirty;
pub(super) mod persist;
pub mod plan;
pub mod progress;
pub(super) mod state;
