//! From the fields of a Notification to values that the other rooms work with, field by field.
//!
//! In: a spec, or what layers come to; what it is resolved with (`given`). Out: the two halves of an effective notification: what is sent and
//! where (`sending`, `template`), and how (`delivering`, `defaults`); or a problem, also of fields that contradict each other (`rules`) and of
//! credentials that would go where they may not (`trust`).

pub(super) mod defaults;
pub(super) mod delivering;
pub(super) mod given;
pub(super) mod rules;
pub(super) mod sending;
pub(super) mod template;
pub(super) mod trust;
