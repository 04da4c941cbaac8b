//! Decides which delivery is sent next. The engine owns all lanes and assigns work to a limited number of workers.
//!
//! In: recorded deliveries, from the dispatcher and the watch of the [store](super::store) (`admit`); deliveries without an object that the
//! dispatcher offers (`offers`). Also events after which a lane must be checked, and results of earlier work. Out: deliveries to send now
//! (`workers`), fairly among receivers (`fair_queue`) and no faster than the configured rate (`rate`). The engine decides, and `driver`
//! carries out its effects (`effect`), with `tasks` for calls and requests.

pub(super) mod admission;
pub(super) mod admit;
pub(super) mod asks;
pub(super) mod driver;
pub(super) mod effect;
pub(super) mod engine;
pub(super) mod fair_queue;
pub(super) mod gauges;
pub(super) mod head;
pub(super) mod initial_sync;
pub(super) mod lanes;
pub(super) mod offers;
pub(super) mod ours;
pub(super) mod parts;
pub(super) mod rate;
pub(super) mod side_work;
pub(super) mod tasks;
pub(super) mod unrecorded;
pub mod work_queue;
pub(super) mod workers;
pub(super) mod writes;

#[cfg(test)]
mod properties;
