//! The parts of the engine's state, each with its own rules. Values only.
//!
//! In: what the engine notes. Out: what it asks: the next lane, the next time, what waits.

pub(crate) mod admission;
pub(crate) mod asks;
pub(crate) mod fair_queue;
pub(crate) mod head;
pub(crate) mod initial_sync;
pub(crate) mod lanes;
pub(crate) mod rate;
pub(crate) mod unrecorded;
