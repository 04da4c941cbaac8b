//! Writes a status to the API server, and reports the changes in it.
//!
//! In: a status that was computed from the readings. Out: a JSON Patch that tests what it replaces ([`patch`]), the state of writes whose
//! answer was lost ([`tracker`]), Events ([`events`]) and spans ([`trace`]).

pub(super) mod events;
pub(super) mod patch;
pub(super) mod trace;
pub(super) mod tracker;
