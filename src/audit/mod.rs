//! What was sent, when, and what the receiver said: for people and programs that ask afterwards.
//!
//! In: which deliveries ([`Filter`]), and a client that may list them. Out: [`Row`]s, a page of the API server at a time, or as
//! they change. Reads only.

mod filter;
mod list;
mod row;

pub use filter::{Filter, Wanted};
pub use list::{AuditError, changes, rows};
pub use row::Row;
