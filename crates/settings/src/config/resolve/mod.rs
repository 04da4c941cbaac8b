//! Resolves the fields of a Notification, field by field, into the values that the other modules use.
//!
//! In: a spec or the merged layers, and their context (`given`). Out: what is sent and where (`sending`, `template`, `path`), how
//! (`delivering`, `defaults`), which message it continues (`thread`, `find`), and how a receiver sees that it is a test (`marking`). Or a problem, also for contradicting fields
//! (`rules`) and for credentials that would go to a wrong receiver (`trust`).

mod credentials;
pub(super) mod defaults;
pub(super) mod delivering;
pub(super) mod find;
pub(super) mod given;
pub(super) mod marking;
pub(super) mod path;
pub(super) mod rendered;
pub(super) mod rules;
pub(super) mod sending;
pub(super) mod template;
pub(super) mod thread;
pub(super) mod trust;
