//! `BundleDeployment`, `Bundle` and `GitRepo` of Fleet (<https://fleet.rancher.io/ref-status-fields>,
//! <https://github.com/rancher/fleet/tree/main/pkg/apis/fleet.cattle.io/v1alpha1>).
//!
//! A `BundleDeployment` is one bundle on one cluster, and says exactly what it runs: read that one where you can. A `Bundle`
//! and a `GitRepo` count the states of theirs, and a commit runs when all of them are ready. What was modified in the cluster
//! is drift and no failure, though Fleet does not count it as ready.

use serde_json::Value;

use super::super::kstatus::{Verdict, unobserved};
use super::super::view::{Condition, View};
use super::{Reading, Rules};

const GROUP: &str = "fleet.cattle.io";

pub(super) static BUNDLE_DEPLOYMENT: Rules =
    Rules { group: GROUP, kind: "BundleDeployment", reader: "fleet-bundledeployment/1", read: bundle_deployment };

pub(super) static BUNDLE: Rules = Rules { group: GROUP, kind: "Bundle", reader: "fleet-bundle/1", read: bundle };

pub(super) static GIT_REPO: Rules = Rules { group: GROUP, kind: "GitRepo", reader: "fleet-gitrepo/1", read: git_repo };

/// The agent reports a dependency that is not ready as an error of the deployment, and only these words tell it from others.
const WAITS: &str = "dependent bundle(s) are not ready";

fn bundle_deployment(view: &View<'_>) -> Reading {
    let (applied, wanted) = (view.text("/status/appliedDeploymentID"), view.text("/spec/deploymentID"));
    let ready = view.flag("/status/ready");
    let watched = ready || !view.list("/status/modifiedStatus").is_empty();
    Reading::named(deployed(view, applied == wanted), applied, wanted)
        .drifted(applied == wanted && watched && !view.flag("/status/nonModified"))
        .suspended(view.flag("/spec/paused"))
}

/// As Fleet itself derives the state of a `BundleDeployment`, in that order.
fn deployed(view: &View<'_>, applied: bool) -> Verdict {
    if !view.has_status() {
        return Verdict::in_progress("NoStatus", "the agent of its cluster has not written a status yet");
    }
    let refused = view.condition("Deployed").filter(|c| !applied && c.is_false());
    match refused {
        Some(refused) if refused.message.contains(WAITS) => {
            return Verdict::in_progress("DependencyNotReady", refused.message);
        }
        Some(refused) => return Verdict::failed("ErrApplied", refused.message),
        None if !applied => return Verdict::in_progress("WaitApplied", "it is not applied yet"),
        None => {}
    }
    if let Some(blind) = view.condition("Monitored").filter(Condition::is_false) {
        return Verdict::in_progress("NotMonitored", blind.message);
    }
    if view.flag("/status/ready") {
        return Verdict::current();
    }
    let words = view.condition("Ready").map_or("", |c| c.message);
    let broken = |entry: &Value| {
        let flag = |key| entry.pointer(key).and_then(Value::as_bool).unwrap_or_default();
        flag("/summary/error") && !flag("/summary/transitioning")
    };
    if view.list("/status/nonReadyStatus").iter().any(broken) {
        return Verdict::failed("NotReady", words);
    }
    Verdict::in_progress("NotReady", words)
}

/// Its revision is the commit that it was made from; of one that no `GitRepo` has made, the sum of its resources.
fn bundle(view: &View<'_>) -> Reading {
    let commit = view.label("fleet.cattle.io/commit");
    let revision = if commit.is_empty() { view.text("/status/resourcesSha256Sum") } else { commit };
    summed(view, summary(view), revision)
}

fn git_repo(view: &View<'_>) -> Reading {
    let refused = view.condition("Accepted").filter(Condition::is_false);
    let stalled = view.condition_true("Stalled");
    let job = view.text("/status/gitJobStatus");
    let verdict = match (unobserved(view), stalled.or(refused)) {
        (Some(unobserved), _) => unobserved,
        (None, Some(failed)) => Verdict::failed_as(&failed),
        (None, None) if job == "Failed" => Verdict::failed("GitJobFailed", "the job that reads the repository has failed"),
        (None, None) if !["", "Current"].contains(&job) => {
            Verdict::in_progress("GitUpdating", "the job that reads the repository is not done")
        }
        (None, None) => summary(view),
    };
    summed(view, verdict, view.text("/status/commit"))
}

fn summed(view: &View<'_>, verdict: Verdict, revision: &str) -> Reading {
    Reading::declared(verdict, revision).drifted(count(view, "modified") > 0).suspended(view.flag("/spec/paused"))
}

/// What the states of all deployments come to.
fn summary(view: &View<'_>) -> Verdict {
    if !view.has_status() {
        return Verdict::in_progress("NoStatus", "its controller has not written a status yet");
    }
    if let Some(unobserved) = unobserved(view) {
        return unobserved;
    }
    let condition = view.condition("Ready");
    let words = condition.map_or("", |c| c.message);
    if count(view, "errApplied") > waiting(view) {
        return Verdict::failed("ErrApplied", words);
    }
    let (ready, modified) = (count(view, "ready"), count(view, "modified"));
    let desired = count(view, "desiredReady");
    if ready.saturating_add(modified) < desired {
        let message = if words.is_empty() { format!("{ready} of {desired}") } else { words.to_owned() };
        return Verdict::in_progress("NotReady", message);
    }
    match condition {
        // Something else than its deployments keeps it: what was modified is no reason.
        Some(ready) if !ready.is_true() && modified == 0 => Verdict::in_progress("NotReady", words),
        _ => Verdict::current(),
    }
}

/// How many of those with an error only wait for a dependency, as far as they are listed.
fn waiting(view: &View<'_>) -> i64 {
    let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let waits = |entry: &&Value| text(entry, "bundleState") == "ErrApplied" && text(entry, "message").contains(WAITS);
    i64::try_from(view.list("/status/summary/nonReadyResources").iter().filter(waits).count()).unwrap_or(i64::MAX)
}

fn count(view: &View<'_>, state: &str) -> i64 {
    view.int(&format!("/status/summary/{state}")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    fn says(type_: &str, status: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "message": message})
    }

    #[test]
    fn a_bundle_deployment_runs_what_was_applied() {
        let ready =
            || json!({"appliedDeploymentID": "s-1:o-1", "ready": true, "nonModified": true, "display": {"state": "Ready"}});
        let not_ready = |summary: Value| {
            json!({"appliedDeploymentID": "s-1:o-1", "nonModified": true, "nonReadyStatus": [{"kind": "Deployment", "summary": summary}],
                "conditions": [says("Ready", "False", "deployment.apps web/web [progressing]")]})
        };
        let refused = |words: &str| {
            with(&ready(), json!({"conditions": [says("Deployed", "False", words), says("Installed", "True", "")]}))
        };
        let broken = json!({"error": true, "message": ["deadline exceeded"]});
        let moving = json!({"error": true, "transitioning": true});
        let modified = || json!({"appliedDeploymentID": "s-1:o-1", "ready": true, "modifiedStatus": [{"kind": "Service", "patch": "{}"}]});
        let not_monitored = with(&ready(), json!({"conditions": [says("Monitored", "False", "no such kind")]}));
        let (one, two) = ("s-1:o-1", "s-2:o-2");
        for (name, wanted, status, want, drifted) in [
            ("ready", one, ready(), Current, false),
            ("never looked at", one, json!({}), InProgress, false),
            ("never applied", one, json!({"display": {"state": "WaitApplied"}}), InProgress, false),
            ("waits to be applied", two, ready(), InProgress, false),
            ("cannot be applied", two, refused("chart requires kubeVersion"), Failed, false),
            ("waits for a dependency", two, refused("dependent bundle(s) are not ready: [db]"), InProgress, false),
            ("an error of before", one, refused("chart requires kubeVersion"), Current, false),
            ("a resource is on its way", one, not_ready(moving), InProgress, false),
            ("a resource is broken", one, not_ready(broken), Failed, false),
            ("modified", one, modified(), Current, true),
            ("modified, and of a new spec", two, modified(), InProgress, false),
            ("modified and not ready", one, with(&modified(), json!({"ready": false})), InProgress, true),
            ("not monitored", one, not_monitored, InProgress, false),
        ] {
            let runs = status["appliedDeploymentID"].as_str().unwrap_or_default().to_owned();
            let seen = look(BUNDLE_DEPLOYMENT, json!({"deploymentID": wanted}), status);
            assert_eq!((summary(&seen), seen.drifted), ((want, runs.as_str(), wanted), drifted), "{name}");
        }
        let paused = json!({"deploymentID": two, "stagedDeploymentID": "s-3:o-3", "paused": true});
        assert!(look(BUNDLE_DEPLOYMENT, paused, ready()).suspended);
    }

    /// A summary of three deployments, and the condition that Fleet makes of it.
    fn summed(counts: Value, ready: &str, more: Value) -> Value {
        let status = json!({"observedGeneration": 2, "resourcesSha256Sum": "sum", "commit": "c0ffee", "gitJobStatus": "Current",
            "summary": with(&json!({"desiredReady": 3, "ready": 0}), counts), "conditions": [says("Ready", ready, "words")]});
        with(&status, more)
    }

    #[test]
    fn a_bundle_and_a_repository_count_their_deployments() {
        let waits = json!([{"bundleState": "ErrApplied", "message": "dependent bundle(s) are not ready: [db]"}]);
        for (name, status, want, drifted) in [
            ("all ready", summed(json!({"ready": 3}), "True", json!({})), Current, false),
            ("no clusters", summed(json!({"desiredReady": 0}), "True", json!({})), Current, false),
            ("one to go", summed(json!({"ready": 2, "notReady": 1}), "False", json!({})), InProgress, false),
            ("one waits", summed(json!({"ready": 2, "waitApplied": 1}), "False", json!({})), InProgress, false),
            ("one fails", summed(json!({"ready": 2, "errApplied": 1}), "False", json!({})), Failed, false),
            (
                "one waits for a dependency",
                summed(json!({"ready": 2, "errApplied": 1, "nonReadyResources": waits}), "False", json!({})),
                InProgress,
                false,
            ),
            (
                "one waits and one fails",
                summed(json!({"ready": 1, "errApplied": 2, "nonReadyResources": waits}), "False", json!({})),
                Failed,
                false,
            ),
            ("one was modified", summed(json!({"ready": 2, "modified": 1}), "False", json!({})), Current, true),
            ("kept by something else", summed(json!({"ready": 3}), "False", json!({})), InProgress, false),
            ("of the spec before", summed(json!({"ready": 3}), "True", json!({"observedGeneration": 1})), InProgress, false),
            ("never looked at", json!({}), InProgress, false),
        ] {
            for kind in [BUNDLE, GIT_REPO] {
                let seen = look(kind, json!({}), status.clone());
                assert_eq!((seen.status, seen.drifted), (want, drifted), "{name}");
                let runs = if want == Current { seen.attempted_revision.as_str() } else { "" };
                assert_eq!(seen.revision, runs, "{name}");
                assert!(look(kind, json!({"paused": true}), status.clone()).suspended, "{name}");
            }
        }
    }

    #[test]
    fn a_repository_goes_by_its_job_too() {
        let repository = |more: Value| summary_of(look(GIT_REPO, json!({}), summed(json!({"ready": 3}), "True", more)));
        let condition = |type_: &str, status: &str| json!({"conditions": [says(type_, status, "words")]});
        for (name, more, want) in [
            ("done", json!({}), Current),
            ("reads a new commit", json!({"gitJobStatus": "InProgress"}), InProgress),
            ("cannot read it", json!({"gitJobStatus": "Failed"}), Failed),
            ("stalled", condition("Stalled", "True"), Failed),
            ("not accepted", condition("Accepted", "False"), Failed),
            (
                "stalled, of the spec before",
                with(&condition("Stalled", "True"), json!({"observedGeneration": 1})),
                InProgress,
            ),
        ] {
            assert_eq!(repository(more), (want, "c0ffee".to_owned()), "{name}");
        }
    }

    fn summary_of(seen: super::super::super::Observation) -> (Status, String) {
        (seen.status, seen.attempted_revision)
    }

    #[test]
    fn a_bundle_is_known_by_its_commit() {
        let status = summed(json!({"ready": 3}), "True", json!({}));
        let mut made = object(BUNDLE, &json!({}), &status);
        assert_eq!(summary(&seen(&made)), (Current, "sum", "sum"), "of one that no repository has made");
        made.metadata.labels = Some([("fleet.cattle.io/commit".to_owned(), "c0ffee".to_owned())].into());
        assert_eq!(summary(&seen(&made)), (Current, "c0ffee", "c0ffee"));
    }
}
