//! What was sent, when, and what the receiver said: for people and programs that ask afterwards.
//!
//! In: which deliveries ([`Filter`]), and a client that may list them. Out: [`Row`]s, a page of the API server at a time, or as
//! they change. It reads, and writes only the mark with which a person asks for one to be sent again ([`redeliver()`]).

mod filter;
mod list;
mod redeliver;
mod row;

pub use filter::{Filter, Wanted};
pub use list::{AuditError, changes, rows};
pub use redeliver::{RedeliverError, redeliver};
pub use row::{Row, newest_first};
