//! Pure: what counts as a change of a target, and the log in which changes wait for their consumers.
//!
//! In: the settled state of a target and its current observation ([`settle()`]); a [`crate::api::ChangeLog`], the cursors of its
//! readers, and their running timers.
//! Out: a [`Verdict`] on a target or on a group ([`together`]); a log whose serials only increase ([`open`], [`append`]). The log
//! forgets what every reader has passed ([`prune`]), and stays small while nobody reads it ([`compact`], [`fit()`]).
//!
//! No clock and no I/O: `now` is an argument, and the caller decides when a log is written.

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
