//! How Pennant uses the API server: watches that go on whatever happens, and a limit on calls for each namespace.
//!
//! In: an `Api`, and keys of what is to be looked at. Out: watch events of the objects that parse ([`watch`]), permits for so many
//! calls at once ([`limiter`]), answers within a deadline ([`mod@call`]), and statuses that are written by [`guarded`] patches.

pub mod call;
pub mod guarded;
pub mod limiter;
pub mod watch;
