//! Access to the API server: watches that recover from every error, and a limit on calls for each namespace.
//!
//! In: an `Api`, and keys of objects. Out: watch events of the objects that parse ([`watch`]), permits for concurrent calls
//! ([`limiter`]), how long writes wait ([`pace`]), and responses within a deadline ([`mod@call`]). Statuses are written by [`guarded`]
//! patches. [`queue`] plans when each key is looked at. [`stopping`] ends reconciles.

pub mod call;
pub mod guarded;
pub mod limiter;
pub mod pace;
pub mod queue;
pub mod stopping;
pub mod watch;
