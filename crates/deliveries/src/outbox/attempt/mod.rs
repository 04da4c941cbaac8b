//! The work on one delivery, from the time when the lane starts it until the outcome is stored.
//!
//! In: a record and an effective notification. Out: the request ([`request`]), what its response means for the delivery ([`decide`]), and
//! the status that was written ([`mod@write`]).

pub(super) mod decide;
pub(super) mod request;
pub(super) mod work;
pub(super) mod write;
