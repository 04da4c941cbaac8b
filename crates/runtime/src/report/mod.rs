//! Kubernetes Events, and the status of Notifications.
//!
//! In: what the controllers report. Out: Events ([`events`]) and status patches ([`status`]), written to the API server. No caller waits
//! for an Event. Callers write a status only if it has changed.

pub mod events;
pub mod status;
