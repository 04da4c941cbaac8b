//! Which triggers match a transition.
//!
//! In: the type of a transition, where its subject is, and its template data; the triggers of one effective notification. Out: [`Triggers`] is the compiled list. It decides whether a transition is reported, and how long its state must last before. The
//! error for a list that does not compile names the entry and the field.
//!
//! `triggers` contains the globs, `when` the conditions, `seen` the data of the conditions.

mod seen;
mod triggers;
mod when;

pub(crate) use triggers::{Filter, Globs};
pub use triggers::{Place, TriggerError, Triggers, Wanted};
pub use when::When;
