//! The screens. Pure.
//!
//! In: the values that [`read`](crate::read) makes. Out: HTML.

pub(super) mod approvals;
pub(super) mod asset;
pub(super) mod chart;
pub(super) mod delivery;
pub(super) mod findings;
pub(super) mod names;
pub(super) mod notification;
pub(super) mod overview;
pub(super) mod parts;
pub(super) mod pipeline;
pub(super) mod receivers;
pub(super) mod recent;
pub(super) mod search;
pub(super) mod send_test;
pub(super) mod simple;
pub(super) mod table;
pub(super) mod timeline;
pub(super) mod undelivered;
