//! Rules of every kind over small objects.
// The tables write their JSON in place.
#![allow(clippy::needless_pass_by_value)]

use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

use super::*;
use Status::{Current, Failed, InProgress, NotFound, Terminating};

mod properties;

const KUSTOMIZATION: (&str, &str) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
const HELM_RELEASE: (&str, &str) = ("helm.toolkit.fluxcd.io/v2", "HelmRelease");
const GIT_REPOSITORY: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "GitRepository");
const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const STATEFUL_SET: (&str, &str) = ("apps/v1", "StatefulSet");
const DAEMON_SET: (&str, &str) = ("apps/v1", "DaemonSet");
const JOB: (&str, &str) = ("batch/v1", "Job");
const OTHER: (&str, &str) = ("acme.example/v1", "Widget");
const ALL: [(&str, &str); 8] =
    [KUSTOMIZATION, HELM_RELEASE, GIT_REPOSITORY, DEPLOYMENT, STATEFUL_SET, DAEMON_SET, JOB, OTHER];

/// An object of generation 2.
fn object((api_version, kind): (&str, &str), spec: &Value, status: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "generation": 2, "labels": {"app.kubernetes.io/version": "v7"}},
        "spec": spec,
        "status": status,
    }))
    .unwrap()
}

fn look(kind: (&str, &str), spec: Value, status: Value) -> Observation {
    observe(Some(&object(kind, &spec, &status)))
}

/// Status, what runs and what is tried.
fn summary(o: &Observation) -> (Status, &str, &str) {
    (o.status, o.revision.as_str(), o.attempted_revision.as_str())
}

/// A condition that speaks of a generation.
fn condition(type_: &str, status: &str, reason: &str, generation: i64) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "why", "observedGeneration": generation})
}

#[test]
fn what_is_not_there_is_not_found() {
    let seen = observe(None);
    assert_eq!(summary(&seen), (NotFound, "", ""));
    assert!(!seen.message.is_empty());
}

#[test]
fn deletion_goes_before_every_rule() {
    for kind in ALL {
        let mut object = object(kind, &json!({}), &json!({"conditions": [condition("Ready", "True", "Done", 2)]}));
        object.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(observe(Some(&object)).status, Terminating, "{kind:?}");
    }
}

#[test]
fn without_status_everything_is_in_progress() {
    for kind in ALL {
        for status in [Value::Null, json!({})] {
            assert_eq!(look(kind, json!({"replicas": 0}), status).status, InProgress, "{kind:?}");
        }
    }
}

#[test]
fn other_kinds_go_by_the_general_rules() {
    let ready = |status, generation| condition("Ready", status, "Because", generation);
    for (name, status, want) in [
        ("no conditions", json!({"phase": "Running"}), Current),
        ("ready", json!({"conditions": [ready("True", 2)]}), Current),
        ("not ready", json!({"conditions": [ready("False", 2)]}), InProgress),
        ("ready unknown", json!({"conditions": [ready("Unknown", 2)]}), InProgress),
        ("behind", json!({"observedGeneration": 1, "conditions": [ready("True", 2)]}), InProgress),
        ("ahead", json!({"observedGeneration": 3, "conditions": [ready("True", 2)]}), InProgress),
        ("the condition is behind", json!({"conditions": [ready("True", 1)]}), InProgress),
        ("the status decides", json!({"observedGeneration": 2, "conditions": [ready("True", 1)]}), Current),
        (
            "stalled",
            json!({"conditions": [condition("Reconciling", "True", "R", 2), condition("Stalled", "True", "S", 2)]}),
            Failed,
        ),
        (
            "stalled of old",
            json!({"observedGeneration": 1, "conditions": [condition("Stalled", "True", "S", 1)]}),
            InProgress,
        ),
        ("not stalled", json!({"conditions": [condition("Stalled", "False", "S", 2), ready("True", 2)]}), Current),
        ("reconciling", json!({"conditions": [ready("True", 2), condition("Reconciling", "True", "R", 2)]}), InProgress),
    ] {
        let seen = look(OTHER, json!({}), status);
        let runs = if want == Current { "v7" } else { "" };
        assert_eq!(summary(&seen), (want, runs, "v7"), "{name}");
        assert_eq!(seen.message.is_empty(), want == Current, "{name}");
        assert_eq!(seen.reason.is_empty(), want == Current, "{name}");
    }
}

#[test]
fn drift_is_a_condition_of_any_kind() {
    for kind in ALL {
        for (type_, status, want) in
            [("Drifted", "True", true), ("Modified", "True", true), ("Drifted", "False", false), ("Ready", "True", false)]
        {
            let seen = look(kind, json!({}), json!({"conditions": [condition(type_, status, "Diff", 2)]}));
            assert_eq!(seen.drifted, want, "{kind:?} {type_}={status}");
        }
    }
}

/// A Kustomization of generation 2 that runs `a`.
fn kustomization(observed: i64, attempted: &str, conditions: Value) -> Observation {
    let status = json!({"observedGeneration": observed, "lastAppliedRevision": "a", "lastAttemptedRevision": attempted,
        "conditions": conditions});
    look(KUSTOMIZATION, json!({}), status)
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
        assert_eq!(summary(&kustomization(observed, attempted, conditions)), (want, "a", attempted), "{name}");
    }
}

#[test]
fn failures_speak_in_the_words_of_the_controller() {
    let failed = kustomization(
        2,
        "b",
        json!([
            condition("Reconciling", "True", "ProgressingWithRetry", 2),
            {"type": "Ready", "status": "False", "reason": "BuildFailed", "message": "no such file", "observedGeneration": 2},
        ]),
    );
    assert_eq!((failed.reason.as_str(), failed.message.as_str()), ("BuildFailed", "no such file"));
}

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
fn other_flux_kinds_go_by_their_label() {
    let status = |status| json!({"observedGeneration": 2, "conditions": [condition("Ready", status, "Because", 2)]});
    assert_eq!(summary(&look(GIT_REPOSITORY, json!({}), status("True"))), (Current, "v7", "v7"));
    assert_eq!(summary(&look(GIT_REPOSITORY, json!({}), status("False"))), (Failed, "", "v7"));
}

/// The spec of a workload with three replicas.
fn workload(more: Value) -> Value {
    let mut spec = json!({"replicas": 3, "template": {"spec": {
        "initContainers": [{"image": "init:9"}],
        "containers": [{"image": "reg:5000/web:2"}, {"image": "proxy@sha256:ab"}],
    }}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// `base` with the fields of `more` put over it.
fn with(base: &Value, more: Value) -> Value {
    let mut all: Map<String, Value> = base.as_object().unwrap().clone();
    all.extend(more.as_object().unwrap().clone());
    Value::Object(all)
}

#[test]
fn a_deployment_is_current_when_its_rollout_is_complete() {
    let conditions = |progressing: &str, reason: &str, available: &str| json!({"conditions": [condition("Available", available, "A", 0), condition("Progressing", progressing, reason, 0)]});
    let done = json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
        "conditions": conditions("True", "NewReplicaSetAvailable", "True")["conditions"]});
    let exceeded = |more: Value| with(&with(&done, conditions("False", "ProgressDeadlineExceeded", "True")), more);
    let refused = json!({"updatedReplicas": 0, "unavailableReplicas": 1, "conditions": [
        condition("Progressing", "False", "ProgressDeadlineExceeded", 0), condition("ReplicaFailure", "True", "Quota", 0)]});
    let available_only = json!([condition("Available", "True", "A", 0)]);
    for (name, spec, status, want) in [
        ("done", json!({}), done.clone(), Current),
        ("new spec", json!({}), with(&done, json!({"observedGeneration": 1})), InProgress),
        ("no generation", json!({}), with(&done, json!({"observedGeneration": null})), InProgress),
        ("failed", json!({}), exceeded(json!({"replicas": 4, "updatedReplicas": 1, "unavailableReplicas": 1})), Failed),
        ("failed to make any", json!({}), exceeded(refused), Failed),
        ("old ones never go", json!({}), exceeded(json!({"replicas": 0, "updatedReplicas": 0})), Failed),
        (
            "failed before the new spec",
            json!({}),
            exceeded(json!({"observedGeneration": 1, "unavailableReplicas": 1})),
            InProgress,
        ),
        ("failed before it went back", json!({}), exceeded(json!({"replicas": 4})), InProgress),
        (
            "failed before, goes back to nothing made",
            json!({}),
            exceeded(json!({"updatedReplicas": 0, "unavailableReplicas": 1})),
            InProgress,
        ),
        ("too few", json!({}), with(&done, json!({"replicas": 2})), InProgress),
        ("not all updated", json!({}), with(&done, json!({"updatedReplicas": 2})), InProgress),
        ("old ones left", json!({}), with(&done, json!({"replicas": 4})), InProgress),
        ("not all available", json!({}), with(&done, json!({"availableReplicas": 2})), InProgress),
        ("not all ready", json!({}), with(&done, json!({"readyReplicas": null})), InProgress),
        ("not declared", json!({}), with(&done, conditions("True", "ReplicaSetUpdated", "True")), InProgress),
        ("not available", json!({}), with(&done, conditions("True", "NewReplicaSetAvailable", "False")), InProgress),
        ("no deadline", json!({}), with(&done, json!({"conditions": available_only})), Current),
        (
            "deadline unmet",
            json!({"progressDeadlineSeconds": 5}),
            with(&done, json!({"conditions": available_only})),
            InProgress,
        ),
    ] {
        let seen = look(DEPLOYMENT, workload(spec), status);
        let runs = if want == Current { "2,sha256:ab" } else { "" };
        assert_eq!(summary(&seen), (want, runs, "2,sha256:ab"), "{name}");
        assert!(!seen.suspended);
    }
    let none = json!({"observedGeneration": 2, "conditions": done["conditions"]});
    assert_eq!(look(DEPLOYMENT, json!({"replicas": 0}), none).status, Current, "scaled to nothing");
    let paused = with(&done, conditions("Unknown", "DeploymentPaused", "True"));
    let seen = look(DEPLOYMENT, workload(json!({"paused": true})), paused);
    assert_eq!((seen.status, seen.suspended), (Current, true), "a first sight of a paused one has a baseline");
}

#[test]
fn a_stateful_set_is_current_when_its_pods_are_of_the_new_revision() {
    let done = json!({"observedGeneration": 2, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3,
        "currentRevision": "web-2", "updateRevision": "web-2"});
    let rolling = json!({"updatedReplicas": 1, "currentRevision": "web-1"});
    let held = json!({"updatedReplicas": 0, "currentRevision": "web-1"});
    let all_new = json!({"currentRevision": "web-1"});
    let partition = |n: i64| json!({"updateStrategy": {"rollingUpdate": {"partition": n}}});
    let on_delete = || json!({"updateStrategy": {"type": "OnDelete"}});
    for (name, spec, status, want) in [
        ("done", json!({}), done.clone(), Current),
        ("new spec", json!({}), with(&done, json!({"observedGeneration": 1})), InProgress),
        ("not all ready", json!({}), with(&done, json!({"readyReplicas": 2})), InProgress),
        ("too many", json!({}), with(&done, json!({"replicas": 4})), InProgress),
        ("rolling", json!({}), with(&done, rolling.clone()), InProgress),
        ("not declared", json!({}), with(&done, all_new.clone()), InProgress),
        ("partition reached", partition(2), with(&done, rolling.clone()), Current),
        ("partition not reached", partition(1), with(&done, rolling.clone()), InProgress),
        ("held back whole", partition(9), with(&done, held.clone()), InProgress),
        ("held back, nothing new", partition(3), done.clone(), Current),
        ("waits for deletions", on_delete(), with(&done, rolling), InProgress),
        ("all deleted once", on_delete(), with(&done, all_new), Current),
    ] {
        assert_eq!(look(STATEFUL_SET, workload(spec), status).status, want, "{name}");
    }
    let none = json!({"observedGeneration": 2});
    assert_eq!(look(STATEFUL_SET, json!({"replicas": 0}), none).status, Current, "scaled to nothing");
}

#[test]
fn a_daemon_set_is_current_when_every_node_has_the_new_pod() {
    let done = json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
        "updatedNumberScheduled": 3, "numberAvailable": 3, "numberReady": 3});
    assert_eq!(summary(&look(DAEMON_SET, workload(json!({})), done.clone())), (Current, "2,sha256:ab", "2,sha256:ab"));
    for field in ["currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"] {
        let seen = look(DAEMON_SET, workload(json!({})), with(&done, json!({field: 2})));
        assert_eq!((seen.status, seen.message.as_str()), (InProgress, "2 of 3"), "{field}");
    }
    for missing in ["desiredNumberScheduled", "observedGeneration"] {
        assert_eq!(look(DAEMON_SET, json!({}), with(&done, json!({missing: null}))).status, InProgress, "{missing}");
    }
}

#[test]
fn a_job_is_current_when_it_is_complete() {
    let condition =
        |type_: &str| json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [condition(type_, "True", "R", 0)]});
    for (name, status, want) in [
        ("not started", json!({"ready": 0}), InProgress),
        ("started", json!({"startTime": "2026-01-01T00:00:00Z", "active": 1}), InProgress),
        ("complete", condition("Complete"), Current),
        ("failed", condition("Failed"), Failed),
        ("about to fail", condition("FailureTarget"), InProgress),
    ] {
        assert_eq!(look(JOB, workload(json!({})), status).status, want, "{name}");
    }
}

#[test]
fn suspension_is_told_beside_the_status() {
    for (kind, spec) in [
        (KUSTOMIZATION, json!({"suspend": true})),
        (HELM_RELEASE, json!({"suspend": true})),
        (GIT_REPOSITORY, json!({"suspend": true})),
        (JOB, json!({"suspend": true})),
        (DEPLOYMENT, json!({"paused": true})),
    ] {
        assert!(look(kind, spec, json!({})).suspended, "{kind:?}");
        assert!(!look(kind, json!({"suspend": "true", "paused": 1}), json!({})).suspended, "{kind:?}");
    }
}

#[test]
fn readers_differ_by_rules_and_not_by_version() {
    let readers: std::collections::BTreeSet<String> = ALL.iter().map(|(v, k)| reader(v, k)).collect();
    assert_eq!(readers.len(), ALL.len());
    assert_eq!(reader("helm.toolkit.fluxcd.io/v2", "HelmRelease"), reader("helm.toolkit.fluxcd.io/v2beta2", "HelmRelease"));
    assert_eq!(reader("v1", "ConfigMap"), reader("acme.example/v1", "Deployment"));
    assert_eq!(reader("toolkit.fluxcd.io", "Kustomization"), reader("", ""));
}

#[test]
fn messages_are_cut_between_characters() {
    let long = "é".repeat(MAX_MESSAGE);
    let status =
        json!({"conditions": [{"type": "Stalled", "status": "True", "reason": long, "message": format!("x{long}")}]});
    let seen = look(OTHER, json!({}), status);
    assert_eq!((seen.message.len(), seen.reason.len()), (MAX_MESSAGE - 1, MAX_REASON));
}
