//! What a change means, and who wants to know: pure, no clock, no I/O.
//!
//! In: one [`Change`](crate::api::Change) of the change log, as it stands there; the triggers of one effective notification,
//! as a user wrote them.
//! Out: [`transition`] says which transition a change is, if any; [`Triggers`] is the compiled list, whose only question is
//! whether it wants a transition of an environment. A list that does not compile names the entry and the glob.
//!
//! `meaning` holds the table of transitions, `triggers` the globs.

mod meaning;
mod triggers;

pub use meaning::transition;
pub use triggers::{TriggerError, Triggers};
