//! What is promoted, and the next status of a Promotion.
//!
//! In: pipelines with their status, Promotions, the outcome of their requests, and what a person asks for on the command line ([`ask`]).
//! Out: which revision goes to which environment ([`plan`]), the next status of a Promotion ([`state`]) and what to do for it ([`action`]), and
//! the condition `PromotionPending` ([`condition`]). The promotion controller carries it out.
//!
//! The name of a Promotion is a function of what it is for ([`names`]), so creating it is the guard against doing the same thing twice.

pub mod action;
pub mod admission;
pub mod ask;
pub mod commits;
pub mod condition;
pub mod names;
pub mod pair;
pub mod plan;
pub mod policy;
pub mod progress;
pub mod reason;
pub mod sent;
pub mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
