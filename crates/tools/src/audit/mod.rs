//! Queries what was sent, when, and what the receiver answered.
//!
//! In: a [`Filter`], and a client that can list deliveries. Out: [`Row`]s, read from the API server page by page, or streamed as they
//! change, and [`Entry`]s, which also have the recorded transition. This module only reads, with two exceptions: [`redeliver()`] writes the
//! annotation with which a user requests a redelivery, and [`delete_pending()`] deletes what a user does not want to be sent.

mod delete;
mod entry;
mod filter;
mod list;
mod redeliver;
mod row;

pub use delete::{DeleteError, delete_pending};
pub use entry::{Entry, Page, entry, one_touched, page, touched};
pub use filter::{Filter, StateFilter};
pub use list::{AuditError, changes, rows};
pub use redeliver::{RedeliverError, redeliver};
pub use row::{Row, newest_first};
