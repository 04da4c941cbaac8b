//! Whether a delivery can be sent now, and with what.
//!
//! In: facts about pipelines and notifications, which the dispatcher stores here from its watches. Out: a
//! [decision](decision::SendDecision): send, wait, or gone. If an object is only absent from the index, a live read must confirm that it is
//! gone (`live_check`). The send gate also detects Deliveries that Relaybook has not recorded ([`genuine`]).

pub(super) mod decision;
pub(super) mod facts;
pub mod genuine;
pub mod index;
pub(super) mod live_check;
