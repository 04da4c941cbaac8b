//! What happens in pipelines, as values: what an object says, which changes count, and what is promoted.
//!
//! In: application objects, and the resources of the API. Out: observations ([`observe`]), the change log ([`changelog`]), and what a change
//! means ([`meaning`]). Also the next status of a pipeline ([`pipeline`]), the next step of each promotion ([`promotion`]), and how replicas divide
//! the work ([`leader`]). [`rate`] limits, and [`reading`] is what is known about objects on clusters. Pure: `now` is an argument, and nothing is awaited.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod changelog;
pub mod leader;
pub mod meaning;
pub mod observe;
pub mod pipeline;
pub mod promotion;
pub mod rate;
pub mod reading;
