//! How replicas divide the work.
//!
//! In: what a replica has seen of the Lease, and when. Out: the [`bucket`] of an object, the content of the Lease ([`table`]), and which buckets
//! a replica takes or gives away ([`candidacy`]). The runtime makes the calls, and has the argument for mutual exclusion.

pub mod bucket;
pub mod candidacy;
pub mod table;

/// The Lease of the pipeline controller. The ID of a shard follows after a dash.
pub const PIPELINE: &str = "relaybook-pipeline";
/// The Lease of the dispatcher.
pub const DISPATCH: &str = "relaybook-dispatch";
/// The Lease of the promotion controller.
pub const PROMOTE: &str = "relaybook-promote";
