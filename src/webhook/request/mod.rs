//! One request, from the rendered parts to its result.
//!
//! In: an [`Outgoing`](outgoing::Outgoing), with credentials by reference. Out: an [`Attempt`](super::Attempt). This module reads the
//! values of Secrets, puts them into headers or a signature, and masks them in the shown part of the answer.

pub(super) mod compose;
pub(super) mod outgoing;
pub(super) mod sender;
pub(super) mod signing;
pub(super) mod timely;
