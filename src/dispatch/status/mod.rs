//! What the dispatcher says of notifications and of pipelines. Pure, but for the counts that it reads.
//!
//! In: what is known of deliveries. Out: conditions and figures of a Notification's status, and the part of a pipeline's status that says
//! what was last sent and what is wrong.

pub mod figures;
pub mod given_up;
pub(super) mod notification;
pub(super) mod refused;
pub mod sent;
pub(super) mod troubles;
pub(super) mod written;
