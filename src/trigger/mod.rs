//! What a change means, and who wants to know: pure, no clock, no I/O.
//!
//! In: one [`Change`](crate::api::Change) of the change log, as it stands there; the triggers of one effective notification,
//! as a user wrote them; where the subject of a change is, and what templates would see of it.
//! Out: [`transitions`] says which transitions a change is, and [`ends`] whether it ends what an earlier one began; [`Triggers`]
//! is the compiled list, whose only question is whether it wants a transition, and for how long its state must hold before. A
//! list that does not compile names the entry and the field.
//!
//! `meaning` holds the table of transitions, `triggers` the globs, `when` and `kinds` the conditions, `seen` what
//! those look at.

mod kinds;
mod meaning;
mod seen;
mod triggers;
mod when;

pub use meaning::{ended_at, ends, kind, transitions};
pub use triggers::{Place, TriggerError, Triggers, Wanted};
pub use when::{Undecided, When, WhenError};
