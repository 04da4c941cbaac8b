//! From the change log to the receiver: what is sent, in which order, and what became of it.
//!
//! In: pipelines with their log, notifications, layers, and the Deliveries that are recorded. Out: Deliveries with their outcome, cursors, and
//! the status of notifications. [`dispatch`] derives deliveries from changes and has them recorded. [`outbox`] decides what is sent now, makes
//! the attempts, and is the only writer of Deliveries.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

#[cfg(feature = "broken")]
pub mod broken;
pub mod dispatch;
pub mod outbox;
