//! The way of a status to the API server, and what is told of it.
//!
//! In: a status that follows from what was read. Out: a JSON Patch that tests what it replaces ([`patch`]), what is known of writes whose answer
//! was lost ([`tracker`]), Events ([`events`]) and spans ([`trace`]).

pub(super) mod events;
pub(super) mod patch;
pub(super) mod trace;
pub(super) mod tracker;
