//! The controllers that write pipelines: their status, and the pipelines of sets.
//!
//! In: pipelines, `PipelineSets`, promotions, and readings of objects on clusters. Out: the status of each pipeline with its change log
//! ([`pipeline`]), and the pipelines of each set with the status of the set ([`sets`]).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod pipeline;
pub mod sets;
