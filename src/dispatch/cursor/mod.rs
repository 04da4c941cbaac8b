//! How far each notification has come in the log of a pipeline.
//!
//! In: the log, the notifications that apply, and what is persisted in `Pipeline.status.dispatched`. Out: cursors that only advance
//! ([`plan`]), what is known of them in memory (`state`), and guarded writes (`persist`).

pub mod aged;
pub(super) mod persist;
pub mod plan;
pub mod progress;
pub(super) mod state;
