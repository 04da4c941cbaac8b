//! HelmRelease of Flux (<https://fluxcd.io/flux/components/helm/helmreleases/>), with the rules of [`super::flux`].
//!
//! `v2` and `v2beta2` keep a history of releases, the newest first. The newest deployed one runs: the first entry may have failed, and
//! after a rollback it is a new release of the old chart. `v2beta1` (<https://v2-1.docs.fluxcd.io/flux/components/helm/api/v2beta1/>) has
//! no history except `lastAppliedRevision`, which changes only with a success. Its `lastReleaseRevision` counts Helm's releases and names
//! no chart.
//!
//! The revision is the version of the chart. The digests of the values, of the post-renderers and of the common metadata are its
//! configuration. Each environment can have other values, so they are no part of the revision: otherwise two environments would never run
//! the same one.
//!
//! Flux writes the digest of the values before an attempt. It writes the other two only after a success, so only then they are known.

use serde_json::Value;

use super::super::kstatus::{Verdict, is_about_present};
use super::super::revision::short_digest;
use super::super::view::{Condition, View};
use super::{Reading, Rules, flux};
use relaybook_api::Status;
use relaybook_api::values::configuration::VALUES;

pub(super) static HELM_RELEASE: Rules =
    Rules { group: "helm.toolkit.fluxcd.io", kind: "HelmRelease", reader: "helmrelease/3", read };

/// Reasons with which `Ready=False` says that a remediation has succeeded, and not why it was necessary.
const REMEDIATED: [&str; 2] = ["RollbackSucceeded", "UninstallSucceeded"];
/// The conditions that can contain the cause of a remediation.
const CAUSES: [&str; 2] = ["Released", "TestSuccess"];

/// A release of a chart: the version of the chart, and the digest of the values.
struct Release<'a> {
    revision: &'a str,
    values: String,
}

fn read(view: &View<'_>) -> Reading {
    let (mut verdict, tried) = (cause(view, flux::verdict(view)), tried(view));
    let running = running(view, &tried, verdict.status);
    // As with the revision: `Ready=True` is written one patch before the history.
    if verdict.status == Status::Current && are_other_values(&running.values, &tried.values) {
        verdict = Verdict::in_progress("RevisionNotApplied", "the new values are not recorded as applied yet");
    }
    let (configuration, tried_configuration) = (configuration(view, &running.values), configuration(view, &tried.values));
    flux::revised(view, verdict, running.revision, tried.revision).configured(configuration, tried_configuration)
}

/// After a remediation, `Ready` reports that it has succeeded. Returns the failure that was its cause, if the status still contains it.
fn cause(view: &View<'_>, verdict: Verdict) -> Verdict {
    if verdict.status != Status::Failed || !REMEDIATED.contains(&verdict.reason.as_str()) {
        return verdict;
    }
    let failed = |condition: &Condition<'_>| condition.is_false() && is_about_present(view, condition);
    let cause = CAUSES.into_iter().filter_map(|type_| view.condition(type_)).find(failed);
    cause.map_or(verdict, |cause| Verdict::failed_as(&cause))
}

fn tried<'a>(view: &View<'a>) -> Release<'a> {
    let values = match (view.text("/status/lastAttemptedConfigDigest"), view.text("/status/lastAttemptedValuesChecksum")) {
        ("", "") => String::new(),
        ("", checksum) => format!("sha1:{checksum}"),
        (digest, _) => digest.to_owned(),
    };
    Release { revision: view.text("/status/lastAttemptedRevision"), values }
}

/// Returns the release that runs. Without a history, the values that were tried run once it is `Current` with the revision that was tried.
fn running<'a>(view: &View<'a>, tried: &Release<'a>, status: Status) -> Release<'a> {
    let history = view.list("/status/history");
    if history.is_empty() {
        let revision = view.text("/status/lastAppliedRevision");
        let is_done = status == Status::Current && revision == tried.revision;
        return Release { revision, values: if is_done { tried.values.clone() } else { String::new() } };
    }
    let text = |entry: &'a Value, key| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let deployed = history.iter().find(|entry| text(entry, "status") == "deployed");
    let text = |key| deployed.map_or("", |entry| text(entry, key));
    Release { revision: text("chartVersion"), values: text("configDigest").to_owned() }
}

/// Whether two digests are known to be about different values. Digests of different algorithms cannot be compared.
fn are_other_values(a: &str, b: &str) -> bool {
    let algorithm = |digest: &str| digest.split_once(':').map(|(algorithm, _)| algorithm.to_owned());
    a != b && algorithm(a).is_some() && algorithm(a) == algorithm(b)
}

/// Returns the configuration with these values. It is empty if their digest is not known.
fn configuration(view: &View<'_>, values: &str) -> String {
    if !values.contains(':') {
        return String::new();
    }
    let all = [
        (VALUES, values),
        ("post-renderers ", view.text("/status/observedPostRenderersDigest")),
        ("common metadata ", view.text("/status/observedCommonMetadataDigest")),
    ];
    let known = all.into_iter().filter(|(_, digest)| !digest.is_empty());
    known.map(|(name, digest)| format!("{name}{}", short_digest(digest))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::super::Observation;
    use super::super::super::testing::*;

    #[test]
    fn a_helm_release_runs_the_newest_deployed_chart() {
        let entry = |version: &str, status: &str| json!({"chartVersion": version, "status": status});
        let retry = condition("Reconciling", "True", "ProgressingWithRetry", 2);
        let ready = |status, reason| condition("Ready", status, reason, 2);
        let release = |attempted: &str, observed: i64, history: &[Value], conditions: Value| {
            read(
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
        assert_eq!(summary(&read(HELM_RELEASE, json!({}), legacy)), (Current, "1.0.0", "1.0.0"));
    }

    #[test]
    fn without_a_history_the_applied_revision_is_the_running_one() {
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
            assert_eq!(summary(&read(V2BETA1, json!({}), status)), (want, "1.0.0", attempted), "{name}");
        }
    }

    #[test]
    fn with_a_history_the_applied_revision_is_ignored() {
        const V2BETA2: (&str, &str) = ("helm.toolkit.fluxcd.io/v2beta2", "HelmRelease");
        for (name, history, runs) in [
            ("deployed", json!([{"chartVersion": "2.0.0", "status": "deployed"}]), "2.0.0"),
            ("uninstalled after a failed install", json!([{"chartVersion": "2.0.0", "status": "uninstalled"}]), ""),
            ("of another shape", json!([7, {"status": "deployed"}]), ""),
        ] {
            let status = json!({"observedGeneration": 2, "lastAppliedRevision": "1.0.0", "lastAttemptedRevision": "2.0.0",
                "history": history, "conditions": [condition("Ready", "False", "InstallFailed", 2)]});
            assert_eq!(summary(&read(V2BETA2, json!({}), status)), (Failed, runs, "2.0.0"), "{name}");
        }
    }

    /// A digest of values that ends with these digits.
    fn digest(name: &str) -> String {
        format!("sha256:{name}{}", "0".repeat(64 - name.len()))
    }

    /// A status at generation 2 with these releases: status and values of each, the newest first.
    fn released(tried: &str, (ready, reason): (&str, &str), history: &[(&str, &str)]) -> Value {
        let entry = |(status, values): &(&str, &str)| json!({"chartVersion": "1.0.0", "status": status, "configDigest": digest(values)});
        json!({"observedGeneration": 2, "lastAttemptedRevision": "1.0.0", "lastAttemptedConfigDigest": digest(tried),
            "history": history.iter().map(entry).collect::<Vec<_>>(), "conditions": [condition("Ready", ready, reason, 2)]})
    }

    fn configurations(seen: &Observation) -> (&str, &str) {
        (&seen.configuration, &seen.attempted_configuration)
    }

    #[test]
    fn values_are_the_configuration_and_no_part_of_the_revision() {
        let (a, b) = ("values sha256:aa0000000000", "values sha256:bb0000000000");
        let (deployed, old, failed) = ("deployed", "superseded", "failed");
        for (name, status, want, running, tried) in [
            ("installed", released("aa", ("True", "InstallSucceeded"), &[(deployed, "aa")]), Current, a, a),
            ("upgrades", released("bb", ("Unknown", "Progressing"), &[(deployed, "aa")]), InProgress, a, b),
            ("is upgraded, before the history", released("bb", ("True", "U"), &[(deployed, "aa")]), InProgress, a, b),
            ("is upgraded", released("bb", ("True", "U"), &[(deployed, "bb"), (old, "aa")]), Current, b, b),
            ("fails", released("bb", ("False", "U"), &[(failed, "bb"), (deployed, "aa")]), Failed, a, b),
            ("is rolled back", released("bb", ("False", "R"), &[(deployed, "aa"), (failed, "bb")]), Failed, a, b),
            ("goes back", released("aa", ("True", "U"), &[(deployed, "aa"), (failed, "bb")]), Current, a, a),
            ("its install fails", released("aa", ("False", "I"), &[("uninstalled", "aa")]), Failed, "", a),
            ("its tests fail", released("bb", ("False", "T"), &[(deployed, "bb"), (old, "aa")]), Failed, b, b),
        ] {
            let seen = read(HELM_RELEASE, json!({}), status);
            assert_eq!((seen.status, configurations(&seen)), (want, (running, tried)), "{name}");
            assert_eq!(seen.attempted_revision, "1.0.0", "{name}");
        }
        let corrected = with(
            &released("aa", ("True", "UpgradeSucceeded"), &[(deployed, "aa")]),
            json!({"lastAttemptedReleaseAction": "upgrade", "lastReleaseRevision": 7}),
        );
        assert_eq!(configurations(&read(HELM_RELEASE, json!({}), corrected)), (a, a), "drift is corrected");
    }

    #[test]
    fn post_renderers_and_metadata_belong_to_the_configuration() {
        let base = released("aa", ("True", "UpgradeSucceeded"), &[("deployed", "aa")]);
        let more = json!({"observedPostRenderersDigest": digest("bb"), "observedCommonMetadataDigest": digest("cc")});
        let seen = read(HELM_RELEASE, json!({}), with(&base, more));
        let all = "values sha256:aa0000000000, post-renderers sha256:bb0000000000, common metadata sha256:cc0000000000";
        assert_eq!((seen.status, configurations(&seen)), (Current, (all, all)));
        let alone = with(&base, json!({"lastAttemptedConfigDigest": "", "observedPostRenderersDigest": digest("bb")}));
        assert_eq!(read(HELM_RELEASE, json!({}), alone).attempted_configuration, "", "the values are not known");
    }

    #[test]
    fn digests_that_cannot_be_compared_are_no_change_of_values() {
        let base = released("aa", ("True", "UpgradeSucceeded"), &[("deployed", "aa")]);
        for (name, digest, tried) in [
            ("of another algorithm", json!("sha512:bb"), "values sha512:bb"),
            ("none", Value::Null, ""),
            ("of another shape", json!(7), ""),
            ("without an algorithm", json!("bb"), ""),
        ] {
            let seen = read(HELM_RELEASE, json!({}), with(&base, json!({"lastAttemptedConfigDigest": digest})));
            assert_eq!((seen.status, seen.attempted_configuration.as_str()), (Current, tried), "{name}");
        }
        // `v2beta1` has a checksum of the values that were tried, and none of those that run.
        let old = |status: &str| {
            json!({"observedGeneration": 2, "lastAppliedRevision": "1.0.0", "lastAttemptedRevision": "1.0.0",
                "lastAttemptedValuesChecksum": "da39a3ee5e6b4b0d3255bfef95601890afd80709",
                "conditions": [{"type": "Ready", "status": status, "reason": "R", "message": "m"}]})
        };
        let values = "values sha1:da39a3ee5e6b";
        for (status, want, running) in [("True", Current, values), ("False", Failed, ""), ("Unknown", InProgress, "")] {
            let seen = read(HELM_RELEASE, json!({}), old(status));
            assert_eq!((seen.status, configurations(&seen)), (want, (running, values)), "{status}");
        }
    }

    #[test]
    fn after_a_remediation_the_message_is_the_cause() {
        let of = |type_: &str, status: &str, reason: &str, message: &str, generation: i64| {
            json!({"type": type_, "status": status, "reason": reason, "message": message,
                "observedGeneration": generation})
        };
        let ready = |reason: &str| of("Ready", "False", reason, "Helm rollback to previous release succeeded", 2);
        let upgrade =
            |generation| of("Released", "False", "UpgradeFailed", "Helm upgrade failed: no such image", generation);
        let install = of("Released", "False", "InstallFailed", "Helm install failed: no such image", 2);
        let released = of("Released", "True", "UpgradeSucceeded", "Helm upgrade succeeded", 2);
        let tested = of("TestSuccess", "False", "TestFailed", "Helm test failed: timeout", 2);
        let rollback = ("RollbackSucceeded", "Helm rollback to previous release succeeded");
        for (name, conditions, want) in [
            ("upgrade", json!([ready(rollback.0), upgrade(2)]), ("UpgradeFailed", "Helm upgrade failed: no such image")),
            (
                "install",
                json!([ready("UninstallSucceeded"), install]),
                ("InstallFailed", "Helm install failed: no such image"),
            ),
            ("test", json!([ready(rollback.0), released, tested]), ("TestFailed", "Helm test failed: timeout")),
            ("of the spec before", json!([ready(rollback.0), upgrade(1)]), rollback),
            ("none", json!([ready(rollback.0)]), rollback),
            (
                "the rollback itself fails",
                json!([ready("RollbackFailed"), upgrade(2)]),
                ("RollbackFailed", "Helm rollback to previous release succeeded"),
            ),
        ] {
            let seen = read(HELM_RELEASE, json!({}), json!({"observedGeneration": 1, "conditions": conditions}));
            assert_eq!((seen.status, seen.reason.as_str(), seen.message.as_str()), (Failed, want.0, want.1), "{name}");
        }
    }
}
