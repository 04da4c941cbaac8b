//! The audit page at the level of HTTP: who may ask, what is shown when something is missing, and what it costs the API server.
//!
//! `tests/page` looks at the same page with a browser.

mod access;
mod applications;
mod approve;
mod load;
mod missing;
pub mod person;
mod platform;
mod send_test;
mod shared;
mod shown;
