//! Whether a recorded delivery may be sent now, and with what.
//!
//! In: facts about pipelines and notifications, put here by the dispatcher as its watches bring them. Out: a
//! [decision](decision::SendDecision): send, wait, or gone; what is only absent from the index is confirmed by a read of the API server
//! (`live_check`). What Pennant has not recorded is found out here, too ([`genuine`]).

pub(super) mod decision;
pub(super) mod facts;
pub mod genuine;
pub mod index;
pub(super) mod live_check;
