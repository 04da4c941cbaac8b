//! What every controller needs of the API server, and of the other replicas.
//!
//! In: an `Api`, and keys of objects. Out: watch events of the objects that parse ([`watch`]), which of them are ours ([`leader`]), proof of that
//! for writes ([`tenure`]), and permits for concurrent calls ([`limiter`], [`fair`]). Also how long writes wait ([`pace`]), and responses within a
//! deadline ([`mod@call`]), and calculations on threads of their own ([`mod@apart`]). Statuses are written by [`guarded`] patches. [`controller`] is the loop of a controller. [`report`] writes
//! Events, [`published`] the configuration of the running controllers, and [`installed`] compares the CRDs.
//! [`certificates`] verifies servers. A controller gets a [`Common`].
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod apart;
pub mod call;
pub mod certificates;
pub mod controller;
pub mod fair;
pub mod guarded;
pub mod installed;
pub mod leader;
pub mod limiter;
pub mod pace;
pub mod published;
mod queue;
pub mod report;
pub mod tenure;
pub mod watch;

use kube::Client;
use tokio_util::sync::CancellationToken;

use leader::Lease;
use relaybook_telemetry::Metrics;
use report::events::Events;

/// What every controller gets from the program.
pub struct Common {
    /// The client for the cluster that the controller runs in.
    pub client: Client,
    /// Says which objects the controller may write.
    pub lease: Lease,
    /// Writes Events for users.
    pub events: Events,
    /// The metrics.
    pub metrics: Metrics,
    /// Ends the controller.
    pub stop: CancellationToken,
}
