//! How Pennant uses the API server: watches that go on whatever happens, and a limit on calls for each namespace.
//!
//! In: an `Api`, and keys of objects. Out: watch events of the objects that parse ([`watch`]), permits for concurrent calls
//! ([`limiter`]), answers within a deadline ([`mod@call`]), and statuses that are written by [`guarded`] patches.

pub mod call;
pub mod guarded;
pub mod limiter;
pub mod watch;
