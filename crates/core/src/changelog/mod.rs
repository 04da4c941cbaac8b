//! Pure: what counts as a change of a target, and the log in which changes wait for their consumers.
//!
//! In: the settled state of a target and its current observation ([`believe()`], then [`settle()`]); the promotions of an environment; a
//! [`relaybook_api::ChangeLog`], the cursors of its readers, and their running timers.
//! Out: a [`Verdict`] on a target or on a group ([`group_state`]), with the Git repositories of its revisions ([`with_repository`]). A log whose
//! serials only increase ([`open`], [`append`], and [`take_steps`] for promotions). [`prune`] removes from the log what every reader has passed.
//! [`compact`] and [`fit()`] keep it small while it is not read.
//!
//! No clock and no I/O: `now` is an argument, and the caller decides when a log is written.

mod believe;
mod fit;
mod group;
mod log;
mod promotion;
#[cfg(test)]
mod properties;
mod repository;
mod settle;

pub use believe::believe;
pub use fit::{LEAST_LOG, MAX_MESSAGE, MAX_STATUS, fit, is_cut_of};
pub use group::{GroupId, GroupState, Part, arrives, cluster_state, group_state, is_edited, settle_group};
pub use log::{MAX_PER_SUBJECT, append, compact, kept, open, prune};
pub use promotion::take_steps;
pub use repository::{add_repository, with_repository};
pub use settle::{Verdict, settle};
