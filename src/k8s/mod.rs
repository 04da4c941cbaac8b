//! How Pennant uses the API server: watches that go on whatever happens, and a limit on calls for each namespace.
//!
//! In: an `Api`, and keys of what is to be looked at. Out: watch events of the objects that parse ([`watch`]), and permits for so many
//! calls at once ([`limiter`]).

pub mod limiter;
pub mod watch;
