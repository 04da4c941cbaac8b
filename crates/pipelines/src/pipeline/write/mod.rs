//! Writes a status to the API server, and reports the changes in it.
//!
//! In: a status that was computed from the readings. Out: a JSON Patch that tests what it replaces ([`patch`]), Events
//! ([`events`]) and spans ([`trace`]). It also keeps the state of writes whose answer was lost ([`tracker`]), and the pace ([`pace`]).

pub(super) mod events;
pub(super) mod pace;
pub(super) mod patch;
pub(super) mod trace;
pub(super) mod tracker;
