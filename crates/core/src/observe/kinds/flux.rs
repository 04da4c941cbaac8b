//! Rules that all kinds of Flux share (<https://fluxcd.io/flux/components/>), and the kinds that need no other rules.
//!
//! Flux controllers write `Ready=Unknown` at every interval and keep `Reconciling=True` during a failure that they will retry. They update
//! `status.observedGeneration` only after a success. So `Ready=False` identifies a failure, whatever `Reconciling` contains, and even if
//! the generation seems unobserved. But the condition must describe the current generation.

use super::super::kstatus::{Verdict, is_about_present, unobserved};
use super::super::revision;
use super::super::view::{Condition, View};
use super::{Reading, Rules};
use relaybook_api::Status;

/// All other kinds of Flux. The controllers share a library, so they have the same conditions.
pub(super) static ANY: Rules = Rules { group: ".toolkit.fluxcd.io", kind: "", reader: "flux/1", read: of_label };

/// Reasons with which `Ready=False` means waiting and not a failure: the object has not started yet, or it restarts. For example, a
/// dependency or the chart does not exist yet, or a newer revision has interrupted the health checks.
const WAITING: [&str; 4] = ["Progressing", "DependencyNotReady", "SourceNotReady", "HealthCheckCanceled"];

/// Returns a reading for a kind whose revision is its version label.
pub(super) fn of_label(view: &View<'_>) -> Reading {
    Reading::declared(verdict(view), revision::of_label(view)).suspended(suspended(view))
}

/// Returns a reading for a kind whose status contains both revisions.
pub(super) fn revised(view: &View<'_>, mut verdict: Verdict, running: &str, tried: &str) -> Reading {
    // `Ready=True` is written one patch before the applied revision.
    if verdict.status == Status::Current && running != tried {
        verdict = Verdict::in_progress("RevisionNotApplied", format!("'{tried}' is not recorded as applied yet"));
    }
    Reading::named(verdict, running, tried).suspended(suspended(view))
}

fn suspended(view: &View<'_>) -> bool {
    view.flag("/spec/suspend")
}

/// Returns the status that follows from the conditions.
pub(super) fn verdict(view: &View<'_>) -> Verdict {
    let ready = view.condition("Ready");
    if let Some(ready) = ready.filter(|c| c.is_false() && is_about_present(view, c) && !waits(view, c)) {
        return Verdict::failed_as(&ready);
    }
    if let Some(stalled) = view.condition_true("Stalled").filter(|c| is_about_present(view, c)) {
        return Verdict::failed_as(&stalled);
    }
    if let Some(reconciling) = view.condition_true("Reconciling").filter(|c| is_about_present(view, c)) {
        return Verdict::in_progress_as(&reconciling);
    }
    if let Some(verdict) = unobserved(view) {
        return verdict;
    }
    match ready {
        Some(ready) if ready.is_true() => Verdict::current(),
        Some(ready) => Verdict::in_progress_as(&ready),
        None => Verdict::in_progress("NoStatus", "its controller has not written a Ready condition yet"),
    }
}

/// Whether `Ready=False` means waiting and not a failure.
fn waits(view: &View<'_>, ready: &Condition<'_>) -> bool {
    // A new object or spec can precede its source. With the same reason it is a failure in two cases. Either this generation has succeeded
    // before, so the source is gone. Or there was an artifact to try, and the controller announces a retry.
    let retries = || view.condition_true("Reconciling").is_some_and(|c| c.reason == "ProgressingWithRetry");
    WAITING.contains(&ready.reason) || (ready.reason == "ArtifactFailed" && unobserved(view).is_some() && !retries())
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    #[test]
    fn the_revision_of_other_flux_kinds_is_their_version_label() {
        let status = |status| json!({"observedGeneration": 2, "conditions": [condition("Ready", status, "Because", 2)]});
        assert_eq!(summary(&read(FLUX_RECEIVER, json!({}), status("True"))), (Current, "v7", "v7"));
        assert_eq!(summary(&read(FLUX_RECEIVER, json!({}), status("False"))), (Failed, "", "v7"));
    }

    #[test]
    fn a_failure_of_an_earlier_spec_gives_the_new_spec_no_message() {
        let failed = |generation| {
            let condition = |type_: &str, status: &str, reason: &str| {
                let message = "Helm upgrade failed for tag 2: ImagePullBackOff";
                json!({"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": generation})
            };
            json!({"observedGeneration": 0, "conditions": [
                condition("Reconciling", "True", "ProgressingWithRetry"), condition("Ready", "False", "UpgradeFailed")]})
        };
        for kind in [KUSTOMIZATION, HELM_RELEASE, GIT_REPOSITORY] {
            let seen = read(kind, json!({}), failed(2));
            assert_eq!((seen.status, seen.reason.as_str()), (Failed, "UpgradeFailed"), "{kind:?}");
            let seen = read(kind, json!({}), failed(1));
            assert!(seen.is_unobserved() && !seen.message.contains("tag 2"), "{kind:?}: {}", seen.message);
        }
        let begins = json!({"observedGeneration": 1, "conditions": [
            condition("Reconciling", "True", "Progressing", 2), condition("Ready", "False", "UpgradeFailed", 1)]});
        assert_eq!(
            read(HELM_RELEASE, json!({}), begins).reason,
            "Progressing",
            "the controller has begun with the new spec"
        );
    }

    #[test]
    fn suspension_is_reported_separately_from_the_status() {
        for kind in [KUSTOMIZATION, HELM_RELEASE, GIT_REPOSITORY] {
            assert!(read(kind, json!({"suspend": true}), json!({})).suspended, "{kind:?}");
            assert!(!read(kind, json!({"suspend": "true"}), json!({})).suspended, "{kind:?}");
        }
    }
}
