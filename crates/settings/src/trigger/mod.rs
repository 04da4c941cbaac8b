//! What a change means, and which triggers match it: pure, no clock, no I/O.
//!
//! In: one [`Change`](relaybook_api::Change) of the change log, where its subject is, and the template data of the transition; the
//! triggers of one effective notification.
//! Out: [`transitions`] returns the transitions of a change. [`ends`] returns whether a change ends the state of an earlier one.
//! [`Triggers`] is the compiled list. It decides whether a transition is reported, and how long its state must last before. The
//! error for a list that does not compile names the entry and the field.
//!
//! `meaning` contains the table of transitions, `triggers` the globs, `when` and `kinds` the conditions, `seen` the data of the
//! conditions.

mod kinds;
mod meaning;
mod seen;
mod triggers;
mod when;

pub use meaning::{ended_at, ends, kind, transitions};
pub use triggers::{Place, TriggerError, Triggers, Wanted};
pub use when::{Undecided, When, WhenError};
