//! The next status of a pipeline.
//!
//! In: the spec and the status of a pipeline, a reading of each object, its promotions, and the keys of its hooks. Out: the list of targets
//! ([`plan()`](plan::plan), [`generate`]) and the next status with the changes that are new in its log ([`status`]). The pipeline controller reads and
//! writes.

pub mod generate;
pub mod hooks;
pub mod plan;
pub mod status;
