//! Stores deliveries, and indexes all of them.
//!
//! In: transitions to record, with or without an outcome; outcomes to write. Out: objects in the API server ([`journal`]); counts, and
//! whether a transition was recorded ([`delivery_index`]); deletes of settled deliveries that have been kept for long enough (`retention`).

pub mod delivery_index;
pub mod figures;
pub mod journal;
mod pending_lanes;
pub(super) mod retention;
pub(super) mod retention_index;
