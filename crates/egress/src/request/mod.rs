//! One request, from the rendered parts to its result.
//!
//! In: an [`Outgoing`](outgoing::Outgoing) or a [`ForgeRequest`](forge::ForgeRequest), with credentials by reference. Out: an
//! [`Attempt`](super::Attempt), or an [`Answer`](forge::Answer). This module reads the values of Secrets, puts them into headers or a
//! signature, and masks them in the shown part of the answer.

mod ask;
pub(super) mod body;
pub(super) mod compose;
mod converse;
pub(super) mod exchange;
pub(super) mod forge;
pub(super) mod headers;
pub(super) mod outgoing;
pub(super) mod sender;
pub(super) mod signing;
pub(super) mod timely;
