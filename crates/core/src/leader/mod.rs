//! How replicas divide the work.
//!
//! In: what a replica has seen of the Lease, and when. Out: the [`bucket`] of an object, the content of the Lease ([`table`]), and which buckets
//! a replica takes or gives away ([`candidacy`]). The runtime makes the calls, and has the argument for mutual exclusion.

pub mod bucket;
pub mod candidacy;
pub mod table;
