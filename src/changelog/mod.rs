//! Pure: what counts as a change of a target, and the log in which changes wait for their consumers.
//!
//! In: the settled state of a target and what is observed of it now ([`settle()`]); a [`crate::api::ChangeLog`] and the cursors
//! of those who read it, and what of it they still wait for.
//! Out: a [`Verdict`], of a target or of many together ([`together`]); a log whose serials only rise ([`open`], [`append`]), that forgets what everyone has taken ([`prune`]),
//! and that stays small while nobody comes ([`compact`], [`fit()`]).
//!
//! No clock and no I/O: `now` is an argument, and whoever calls decides when a log is written.

mod fit;
mod group;
mod log;
#[cfg(test)]
mod properties;
mod settle;

pub use fit::{LEAST_LOG, MAX_MESSAGE, MAX_STATUS, cut, fit, is_cut_of};
pub use group::{Part, Together, cluster_state, settle_group, together};
pub use log::{MAX_PER_SUBJECT, append, compact, kept, open, prune};
pub use settle::{Verdict, settle};
