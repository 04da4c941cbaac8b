//! Which addresses may be dialled, and how a receiver is named without giving anything away.
//!
//! In: the policy of the command line, and names to resolve. Out: addresses that were checked, and nothing else is dialled.

pub(super) mod origin;
pub(super) mod policy;
pub(super) mod resolver;
pub(super) mod rule;
