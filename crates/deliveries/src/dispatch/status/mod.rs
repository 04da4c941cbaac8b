//! What the dispatcher reports about notifications and pipelines. Pure, except for `notification`, which writes, and for `refused` and
//! `written`, which keep state.
//!
//! In: facts about deliveries. Out: conditions and figures of a Notification's status, and the part of a pipeline's status that shows what
//! was last sent, and the problems.

pub mod figures;
pub mod given_up;
pub(super) mod notification;
mod reach;
pub(super) mod refused;
pub mod sent;
pub(super) mod troubles;
pub(super) mod written;
