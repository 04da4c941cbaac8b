//! The work on one delivery: its request, and what the response means. Pure.
//!
//! In: a record, an effective notification, the end of an attempt. Out: the request ([`request`]), what its response means for the delivery
//! ([`decide`]), and what has to be written ([`decided`]).

pub(super) mod decide;
pub(super) mod decided;
pub(super) mod request;
