//! The screens: values in, HTML out. Pure. [`read`](super::read) makes the values.

pub(super) mod delivery;
pub(super) mod given_up;
pub(super) mod notification;
pub(super) mod overview;
pub(super) mod pipeline;
pub(super) mod receivers;
pub(super) mod search;
pub(super) mod simple;
pub(super) mod table;
