//! The rules that apply to every kind, as in kstatus (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>).
//!
//! There are two differences. An object without a status is `InProgress`, because each watched object has a controller that has not
//! processed it yet. And `Stalled` is checked before `Reconciling`, in whatever order the conditions are listed.

use super::view::{Condition, UnknownShape, View};
use relaybook_api::Status;

/// The reason for an object whose controller has not observed the current spec yet.
const UNOBSERVED: &str = "LatestGenerationNotObserved";
/// The reason for an object that its controller has not processed at all.
const NO_STATUS: &str = "NoStatus";

/// A status with its reason and message. Both texts are empty if it is `Current`, except that the message of a workload contains the number
/// of replicas that run.
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

    /// `InProgress`, with the reason and message of a condition.
    pub(super) fn in_progress_as(condition: &Condition<'_>) -> Self {
        Self::in_progress(condition.reason, condition.message)
    }

    pub(super) fn failed(reason: &str, message: &str) -> Self {
        Self { status: Status::Failed, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// `Failed`, with the reason and message of a condition.
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

/// Returns `InProgress` while the status describes another generation than that of the spec. A status without a generation counts as
/// current. One that is not a number does not.
pub(super) fn unobserved(view: &View<'_>) -> Option<Verdict> {
    let generation = view.generation()?;
    match view.observed_generation() {
        Ok(None) => None,
        Ok(Some(observed)) if observed == generation => None,
        Ok(Some(_)) => Some(of_another_generation()),
        Err(UnknownShape) => Some(Verdict::in_progress(UNOBSERVED, "status.observedGeneration is not a number")),
    }
}

/// `InProgress`, because everything in the status is about another spec. Its texts are not repeated.
pub(super) fn of_another_generation() -> Verdict {
    Verdict::in_progress(UNOBSERVED, "its controller has not observed the current spec yet")
}

/// Whether a condition describes the current spec. If `status.observedGeneration` is current, so are all conditions. Otherwise the generation of
/// the condition itself decides.
pub(super) fn is_about_present(view: &View<'_>, condition: &Condition<'_>) -> bool {
    let unobserved = unobserved(view).is_some();
    let is_counted = view.at("/status/observedGeneration").is_some_and(|generation| !generation.is_null());
    match condition.observed_generation {
        Some(of) if unobserved || !is_counted => view.generation().is_none_or(|generation| of == generation),
        _ => !unobserved,
    }
}

/// Whether this status and reason mean that the controller has not processed the object or its current spec yet.
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
    if !view.has_known_conditions() {
        return Verdict::in_progress("UnknownConditions", "status.conditions is not a list of conditions");
    }
    let (stalled, reconciling) = (view.condition_true("Stalled"), view.condition_true("Reconciling"));
    let present = |condition: &Condition<'_>| is_about_present(view, condition);
    if let Some(stalled) = stalled.filter(present) {
        return Verdict::failed_as(&stalled);
    }
    if let Some(reconciling) = reconciling.filter(present) {
        return Verdict::in_progress_as(&reconciling);
    }
    match view.condition("Ready") {
        Some(ready) if !ready.is_true() => Verdict::in_progress_as(&ready),
        None if stalled.or(reconciling).is_some() => of_another_generation(),
        _ => Verdict::current(),
    }
}

/// Whether a condition reports that the cluster differs from what was declared.
pub(super) fn drifted(view: &View<'_>) -> bool {
    ["Drifted", "Modified"].iter().any(|type_| view.condition_true(type_).is_some())
}
