//! Kustomization of Flux (<https://fluxcd.io/flux/components/kustomize/kustomizations/>), with the rules of [`super::flux`].

use super::super::view::View;
use super::{Reading, Rules, flux};

pub(super) static KUSTOMIZATION: Rules =
    Rules { group: "kustomize.toolkit.fluxcd.io", kind: "Kustomization", reader: "kustomization/1", read };

fn read(view: &View<'_>) -> Reading {
    let (running, tried) = (view.text("/status/lastAppliedRevision"), view.text("/status/lastAttemptedRevision"));
    flux::revised(view, flux::verdict(view), running, tried)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    /// A Kustomization with generation 2 that runs `a`.
    fn kustomization(observed: i64, attempted: &str, conditions: &Value) -> super::super::super::Observation {
        let status = json!({"observedGeneration": observed, "lastAppliedRevision": "a", "lastAttemptedRevision": attempted,
            "conditions": conditions});
        read(KUSTOMIZATION, json!({}), status)
    }

    #[test]
    fn a_kustomization_fails_by_its_ready_condition() {
        let ready = |status, reason, generation| condition("Ready", status, reason, generation);
        let reconciling = |reason| condition("Reconciling", "True", reason, 2);
        let retry = || reconciling("ProgressingWithRetry");
        for (name, observed, attempted, conditions, want) in [
            ("done", 2, "a", json!([ready("True", "ReconciliationSucceeded", 2)]), Current),
            ("applied is written later", 2, "b", json!([ready("True", "ReconciliationSucceeded", 2)]), InProgress),
            ("done, of the spec before", 1, "a", json!([ready("True", "ReconciliationSucceeded", 1)]), InProgress),
            ("interval", 2, "a", json!([reconciling("Progressing"), ready("Unknown", "Progressing", 2)]), InProgress),
            ("fails", 2, "b", json!([ready("False", "BuildFailed", 2)]), Failed),
            ("fails and will retry", 2, "b", json!([retry(), ready("False", "BuildFailed", 2)]), Failed),
            ("fails while something runs", 2, "b", json!([reconciling("Progressing"), ready("False", "X", 2)]), Failed),
            ("fails, never having succeeded", -1, "b", json!([retry(), ready("False", "BuildFailed", 2)]), Failed),
            ("failed, of the spec before", 1, "b", json!([retry(), ready("False", "BuildFailed", 1)]), InProgress),
            ("retries", 2, "b", json!([reconciling("Progressing"), ready("Unknown", "Progressing", 2)]), InProgress),
            ("waits for a dependency", 2, "a", json!([ready("False", "DependencyNotReady", 2)]), InProgress),
            ("has only begun", 2, "a", json!([ready("False", "Progressing", 2)]), InProgress),
            ("is begun anew", 2, "b", json!([retry(), ready("False", "HealthCheckCanceled", 2)]), InProgress),
            ("its source is not there yet", -1, "", json!([ready("False", "ArtifactFailed", 2)]), InProgress),
            ("its source has gone", 2, "a", json!([ready("False", "ArtifactFailed", 2)]), Failed),
            ("its source lacks the path", -1, "", json!([retry(), ready("False", "ArtifactFailed", 2)]), Failed),
            ("stalled", 1, "a", json!([condition("Stalled", "True", "InvalidSpec", 2)]), Failed),
            ("stalled, of the spec before", 1, "a", json!([condition("Stalled", "True", "InvalidSpec", 1)]), InProgress),
        ] {
            assert_eq!(summary(&kustomization(observed, attempted, &conditions)), (want, "a", attempted), "{name}");
        }
    }

    #[test]
    fn failures_have_the_message_of_the_controller() {
        let failed = kustomization(
            2,
            "b",
            &json!([
                condition("Reconciling", "True", "ProgressingWithRetry", 2),
                {"type": "Ready", "status": "False", "reason": "BuildFailed", "message": "no such file", "observedGeneration": 2},
            ]),
        );
        assert_eq!((failed.reason.as_str(), failed.message.as_str()), ("BuildFailed", "no such file"));
    }
}
