//! What happens in pipelines, as values: what an object says, which changes count, and what is promoted.
//!
//! In: application objects, and the resources of the API. Out: observations ([`observe`]), the change log and the status that it settles
//! ([`changelog`]), and the next step of each promotion ([`promotion`]). Pure: `now` is an argument, and nothing is awaited.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod changelog;
pub mod observe;
pub mod promotion;
