//! What people see.
//!
//! In: what the controllers have decided. Out: Kubernetes Events ([`events`]) and the status of Notifications ([`status`]).
//! Nobody waits for an Event; a status is written only when it says something new.

pub mod events;
pub mod status;
