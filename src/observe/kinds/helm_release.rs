//! HelmRelease of Flux (<https://fluxcd.io/flux/components/helm/helmreleases/>), with the rules of [`super::flux`].
//!
//! `v2` and `v2beta2` keep a history of releases, the newest first. The newest deployed one runs: the first entry may have failed, and
//! after a rollback it is a new release of the old chart. `v2beta1` (<https://v2-1.docs.fluxcd.io/flux/components/helm/api/v2beta1/>) has
//! no history except `lastAppliedRevision`, which changes only with a success. Its `lastReleaseRevision` counts Helm's releases and names
//! no chart.

use serde_json::Value;

use super::super::view::View;
use super::{Reading, Rules, flux};

pub(super) static HELM_RELEASE: Rules =
    Rules { group: "helm.toolkit.fluxcd.io", kind: "HelmRelease", reader: "helmrelease/2", read };

fn read(view: &View<'_>) -> Reading {
    flux::revised(view, running(view), view.text("/status/lastAttemptedRevision"))
}

fn running<'a>(view: &View<'a>) -> &'a str {
    let history = view.list("/status/history");
    if history.is_empty() {
        return view.text("/status/lastAppliedRevision");
    }
    let text = |entry: &'a Value, key| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    history.iter().find(|entry| text(entry, "status") == "deployed").map_or("", |entry| text(entry, "chartVersion"))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    #[test]
    fn a_helm_release_runs_the_newest_deployed_chart() {
        let entry = |version: &str, status: &str| json!({"chartVersion": version, "status": status});
        let retry = condition("Reconciling", "True", "ProgressingWithRetry", 2);
        let ready = |status, reason| condition("Ready", status, reason, 2);
        let release = |attempted: &str, observed: i64, history: &[Value], conditions: Value| {
            look(
                HELM_RELEASE,
                json!({}),
                json!({"observedGeneration": observed, "lastAttemptedRevision": attempted, "history": history,
                    "conditions": conditions}),
            )
        };
        let (new, old) = (entry("2.0.0", "deployed"), entry("1.0.0", "superseded"));
        let seen = release("2.0.0", 2, &[new.clone(), old], json!([ready("True", "UpgradeSucceeded")]));
        assert_eq!(summary(&seen), (Current, "2.0.0", "2.0.0"));

        let failing = [entry("3.0.0", "failed"), new.clone()];
        let seen = release("3.0.0", 1, &failing, json!([retry, ready("False", "UpgradeFailed")]));
        assert_eq!(summary(&seen), (Failed, "2.0.0", "3.0.0"), "although the generation is written only with a success");

        let rolled_back = [new.clone(), entry("3.0.0", "failed")];
        let seen = release("3.0.0", 1, &rolled_back, json!([retry, ready("False", "RollbackSucceeded")]));
        assert_eq!(summary(&seen), (Failed, "2.0.0", "3.0.0"));

        let seen = release("3.0.0", 2, &rolled_back, json!([ready("True", "UpgradeSucceeded")]));
        assert_eq!(summary(&seen), (InProgress, "2.0.0", "3.0.0"));

        let fulfilling = condition("Reconciling", "True", "Progressing", 2);
        for reason in ["SourceNotReady", "ArtifactFailed", "DependencyNotReady"] {
            let seen = release("2.0.0", 1, std::slice::from_ref(&new), json!([fulfilling, ready("False", reason)]));
            assert_eq!(summary(&seen), (InProgress, "2.0.0", "2.0.0"), "the chart of a new spec comes after it: {reason}");
        }
        let legacy = json!({"observedGeneration": 2, "lastAttemptedRevision": "1.0.0", "lastAppliedRevision": "1.0.0",
            "conditions": [ready("True", "ReconciliationSucceeded")]});
        assert_eq!(summary(&look(HELM_RELEASE, json!({}), legacy)), (Current, "1.0.0", "1.0.0"));
    }

    #[test]
    fn before_there_was_a_history_the_applied_revision_runs() {
        const V2BETA1: (&str, &str) = ("helm.toolkit.fluxcd.io/v2beta1", "HelmRelease");
        // The conditions of this version contain no generation.
        let ready =
            |status: &str, reason: &str| json!([{"type": "Ready", "status": status, "reason": reason, "message": "why"}]);
        for (name, observed, attempted, conditions, want) in [
            ("done", 2, "1.0.0", ready("True", "ReconciliationSucceeded"), Current),
            ("applied is written later", 2, "2.0.0", ready("True", "ReconciliationSucceeded"), InProgress),
            ("of the spec before", 1, "1.0.0", ready("True", "ReconciliationSucceeded"), InProgress),
            ("runs", 2, "2.0.0", ready("Unknown", "Progressing"), InProgress),
            ("fails", 2, "2.0.0", ready("False", "UpgradeFailed"), Failed),
            ("fails and is rolled back", 2, "2.0.0", ready("False", "ReconciliationFailed"), Failed),
            ("failed, of the spec before", 1, "2.0.0", ready("False", "UpgradeFailed"), InProgress),
            ("waits for a dependency", 2, "1.0.0", ready("False", "DependencyNotReady"), InProgress),
            ("never reconciled", -1, "1.0.0", Value::Null, InProgress),
        ] {
            let status = json!({"observedGeneration": observed, "lastAppliedRevision": "1.0.0",
                "lastAttemptedRevision": attempted, "lastReleaseRevision": 7, "conditions": conditions});
            assert_eq!(summary(&look(V2BETA1, json!({}), status)), (want, "1.0.0", attempted), "{name}");
        }
    }

    #[test]
    fn with_a_history_the_applied_revision_says_nothing() {
        const V2BETA2: (&str, &str) = ("helm.toolkit.fluxcd.io/v2beta2", "HelmRelease");
        for (name, history, runs) in [
            ("deployed", json!([{"chartVersion": "2.0.0", "status": "deployed"}]), "2.0.0"),
            ("uninstalled after a failed install", json!([{"chartVersion": "2.0.0", "status": "uninstalled"}]), ""),
            ("of another shape", json!([7, {"status": "deployed"}]), ""),
        ] {
            let status = json!({"observedGeneration": 2, "lastAppliedRevision": "1.0.0", "lastAttemptedRevision": "2.0.0",
                "history": history, "conditions": [condition("Ready", "False", "InstallFailed", 2)]});
            assert_eq!(summary(&look(V2BETA2, json!({}), status)), (Failed, runs, "2.0.0"), "{name}");
        }
    }
}
