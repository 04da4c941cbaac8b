//! The rules that hold for any kind, as kstatus has them
//! (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>).
//!
//! Two things differ. An object without any status is `InProgress`, for what is watched here has a controller that has not
//! come to it yet. And `Stalled` is looked at before `Reconciling`, whichever is listed first.

use super::view::{Condition, View};
use crate::api::Status;

/// The reason of what its controller has not looked at since its spec was edited.
const UNOBSERVED: &str = "LatestGenerationNotObserved";
/// The reason of what its controller has not looked at at all.
const NO_STATUS: &str = "NoStatus";

/// A status with its reason; both texts are empty when it is `Current`, but for the message of a workload, which says how many
/// replicas run.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) status: Status,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Verdict {
    pub(super) fn current() -> Self {
        Self { status: Status::Current, reason: String::new(), message: String::new() }
    }

    pub(super) fn in_progress(reason: &str, message: impl Into<String>) -> Self {
        Self { status: Status::InProgress, reason: reason.to_owned(), message: message.into() }
    }

    /// On its way, in the words of a condition.
    pub(super) fn in_progress_as(condition: &Condition<'_>) -> Self {
        Self::in_progress(condition.reason, condition.message)
    }

    pub(super) fn failed(reason: &str, message: &str) -> Self {
        Self { status: Status::Failed, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// Failed, in the words of a condition.
    pub(super) fn failed_as(condition: &Condition<'_>) -> Self {
        Self::failed(condition.reason, condition.message)
    }
}

/// The result of a deletion, which takes precedence over the rules of any kind.
pub(super) fn terminating(view: &View<'_>) -> Option<Verdict> {
    view.is_being_deleted().then(|| Verdict {
        status: Status::Terminating,
        reason: "Terminating".to_owned(),
        message: "the application object is being deleted".to_owned(),
    })
}

/// `InProgress` while the status speaks of another generation than the spec has. A status that names none is taken at its word.
pub(super) fn unobserved(view: &View<'_>) -> Option<Verdict> {
    let (generation, observed) = (view.generation()?, view.observed_generation()?);
    (generation != observed)
        .then(|| Verdict::in_progress(UNOBSERVED, "its controller has not observed the current spec yet"))
}

/// Whether these are the words of an object that its controller has not looked at yet.
pub(super) fn is_unobserved(status: Status, reason: &str) -> bool {
    status == Status::InProgress && [UNOBSERVED, NO_STATUS].contains(&reason)
}

/// The rules for a kind that has none of its own.
pub(super) fn general(view: &View<'_>) -> Verdict {
    if !view.has_status() {
        return Verdict::in_progress(NO_STATUS, "no controller has written a status yet");
    }
    if let Some(verdict) = unobserved(view) {
        return verdict;
    }
    if let Some(stalled) = view.condition_true("Stalled") {
        return Verdict::failed_as(&stalled);
    }
    if let Some(reconciling) = view.condition_true("Reconciling") {
        return Verdict::in_progress_as(&reconciling);
    }
    match view.condition("Ready") {
        Some(ready) if !ready.is_true() => Verdict::in_progress_as(&ready),
        _ => Verdict::current(),
    }
}

/// Whether a condition says that something else runs than was declared.
pub(super) fn drifted(view: &View<'_>) -> bool {
    ["Drifted", "Modified"].iter().any(|type_| view.condition_true(type_).is_some())
}
