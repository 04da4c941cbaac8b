//! One request, from what was rendered to what came of it.
//!
//! In: an [`Outgoing`](outgoing::Outgoing), with credentials by reference. Out: an [`Attempt`](super::Attempt). The values of Secrets are read
//! here, put into headers or a signature, and masked in what is shown of the answer.

pub(super) mod compose;
pub(super) mod outgoing;
pub(super) mod sender;
pub(super) mod signing;
pub(super) mod timely;
