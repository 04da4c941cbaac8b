//! The workloads of Kubernetes, by the replica counts of their controllers
//! (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/status/core.go>).
//!
//! Two rules are stricter than kstatus, because `Current` here means that the revision runs. A `StatefulSet` with strategy `OnDelete`, or
//! with a partition that includes all its pods, waits for pods of the new revision. The revision is that of the images in the pod template.
//! The images of init containers are its configuration.

use super::super::kstatus::{Verdict, unobserved};
use super::super::revision;
use super::super::view::{Condition, View};
use super::{Reading, Rules};

pub(super) static DEPLOYMENT: Rules = Rules {
    group: "apps",
    kind: "Deployment",
    reader: "deployment/2",
    read: |view| of_images(view, deployment(view)).suspended(view.flag("/spec/paused")),
};

pub(super) static STATEFUL_SET: Rules =
    Rules { group: "apps", kind: "StatefulSet", reader: "statefulset/1", read: |view| of_images(view, stateful_set(view)) };

pub(super) static DAEMON_SET: Rules =
    Rules { group: "apps", kind: "DaemonSet", reader: "daemonset/1", read: |view| of_images(view, daemon_set(view)) };

/// The progress deadline that means "no deadline". With this value, or without a deadline, the deployment controller writes no
/// `Progressing` condition.
const NO_DEADLINE: i64 = i32::MAX as i64;

fn of_images(view: &View<'_>, verdict: Verdict) -> Reading {
    Reading::declared(verdict, &revision::of_images(view)).with_init_images(view)
}

fn deployment(view: &View<'_>) -> Verdict {
    if let Some(verdict) = not_observed_yet(view) {
        return verdict;
    }
    let wanted = Wanted::replicas(view.int("/spec/replicas").unwrap_or(1));
    let replicas = count(view, "/status/replicas");
    let updated = count(view, "/status/updatedReplicas");
    let progressing = view.condition("Progressing");
    // `Available` is no sign of a completed rollout: the old pods keep it `True`.
    let exceeded = progressing.filter(|c| c.reason == "ProgressDeadlineExceeded");
    if let Some(c) = exceeded.filter(|_| is_failure_confirmed(view, replicas, updated)) {
        return timed_out(view, &c);
    }
    let short = wanted
        .fewer("LessReplicas", replicas, "created")
        .or_else(|| wanted.fewer("LessUpdated", updated, "updated"))
        .or_else(|| wanted.extra(replicas))
        .or_else(|| Wanted::replicas(updated).fewer("LessAvailable", count(view, "/status/availableReplicas"), "available"))
        .or_else(|| wanted.fewer("LessReady", count(view, "/status/readyReplicas"), "ready"));
    if let Some(verdict) = short {
        return verdict;
    }
    let rolled_out = match progressing {
        // The Deployment is paused, or was resumed a moment ago. The controller reports no result, so the replica counts decide.
        Some(c) => c.is_unknown() || (c.is_true() && c.reason == "NewReplicaSetAvailable"),
        None => view.int("/spec/progressDeadlineSeconds").unwrap_or(NO_DEADLINE) >= NO_DEADLINE,
    };
    if !rolled_out {
        return Verdict::in_progress("ReplicaSetNotAvailable", wanted.of(updated, "updated"));
    }
    if view.condition_true("Available").is_none() {
        return Verdict::in_progress("DeploymentNotAvailable", "fewer replicas are available than required");
    }
    wanted.reached(updated)
}

/// A rollout that exceeded its deadline. If pods were refused, for example by a quota or by Pod Security, the message says why.
fn timed_out(view: &View<'_>, exceeded: &Condition<'_>) -> Verdict {
    match view.condition_true("ReplicaFailure").map(|refused| refused.message).filter(|message| !message.is_empty()) {
        Some(refused) => Verdict::failed(exceeded.reason, &format!("{}: {refused}", exceeded.message.trim_end_matches('.'))),
        None => Verdict::failed_as(exceeded),
    }
}

/// Whether the pods confirm that this rollout has failed. When a spec returns to an earlier revision, the controller observes the new
/// generation and keeps the result of the previous one until the replicas change. A rollout that has failed itself has pods that are not
/// available, or its pods were refused, or it waits for the last old pod to end. It has no more pods than it wants; otherwise pods of the
/// previous rollout are about to end.
fn is_failure_confirmed(view: &View<'_>, replicas: i64, updated: i64) -> bool {
    let refused = view.condition_true("ReplicaFailure").is_some();
    let unavailable = count(view, "/status/unavailableReplicas");
    // The controller counts unavailable replicas as the wanted ones minus the available ones.
    let wanted = count(view, "/status/availableReplicas").saturating_add(unavailable);
    (replicas == 0 && !refused) || ((updated > 0 || refused) && unavailable > 0 && replicas <= wanted)
}

fn stateful_set(view: &View<'_>) -> Verdict {
    if let Some(verdict) = not_observed_yet(view) {
        return verdict;
    }
    let wanted = view.int("/spec/replicas").unwrap_or(1).max(0);
    let partition = view.int("/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0).clamp(0, wanted);
    // A partition can keep pods at the old revision permanently. But at least one pod must run the revision before it counts as `Current`.
    let moved = (wanted - partition).max(wanted.min(1));
    let (wanted, moved) = (Wanted::replicas(wanted), Wanted::replicas(moved));
    let replicas = count(view, "/status/replicas");
    let updated = count(view, "/status/updatedReplicas");
    let short = wanted
        .fewer("LessReplicas", replicas, "created")
        .or_else(|| wanted.fewer("LessReady", count(view, "/status/readyReplicas"), "ready"))
        .or_else(|| wanted.extra(replicas))
        .or_else(|| moved.fewer("LessUpdated", updated, "updated"));
    if let Some(verdict) = short {
        return verdict;
    }
    // With `OnDelete` the controller never updates `currentRevision`.
    let rolls_all = partition == 0 && view.text("/spec/updateStrategy/type") != "OnDelete";
    if rolls_all && view.text("/status/currentRevision") != view.text("/status/updateRevision") {
        return Verdict::in_progress("RevisionMismatch", wanted.of(updated, "updated"));
    }
    wanted.reached(updated)
}

fn daemon_set(view: &View<'_>) -> Verdict {
    if let Some(verdict) = not_observed_yet(view) {
        return verdict;
    }
    let Some(wanted) = view.int("/status/desiredNumberScheduled") else {
        return Verdict::in_progress("NoDesiredNumber", "the number of nodes is not known yet");
    };
    let wanted = Wanted { count: wanted, noun: "pod" };
    let updated = count(view, "/status/updatedNumberScheduled");
    wanted
        .fewer("LessCurrent", count(view, "/status/currentNumberScheduled"), "created")
        .or_else(|| wanted.fewer("LessUpdated", updated, "updated"))
        .or_else(|| wanted.fewer("LessAvailable", count(view, "/status/numberAvailable"), "available"))
        .or_else(|| wanted.fewer("LessReady", count(view, "/status/numberReady"), "ready"))
        .unwrap_or_else(|| wanted.reached(updated))
}

/// Returns `InProgress` until the controller has observed this generation. Before that, a missing count does not mean zero.
fn not_observed_yet(view: &View<'_>) -> Option<Verdict> {
    if view.int("/status/observedGeneration").is_none() {
        return Some(Verdict::in_progress("NoStatus", "its controller has not written a status yet"));
    }
    unobserved(view)
}

/// Returns a count. A status omits counts that are zero.
fn count(view: &View<'_>, pointer: &str) -> i64 {
    view.int(pointer).unwrap_or(0)
}

/// The wanted number of pods, and the noun for them in messages.
struct Wanted {
    count: i64,
    noun: &'static str,
}

impl Wanted {
    fn replicas(count: i64) -> Self {
        Self { count, noun: "replica" }
    }

    /// Returns text such as `2 of 3 replicas updated`.
    fn of(&self, have: i64, what: &str) -> String {
        format!("{have} of {} {what}", self.counted(self.count))
    }

    fn counted(&self, count: i64) -> String {
        format!("{count} {}{}", self.noun, if count == 1 { "" } else { "s" })
    }

    fn fewer(&self, reason: &str, have: i64, what: &str) -> Option<Verdict> {
        (have < self.count).then(|| Verdict::in_progress(reason, self.of(have, what)))
    }

    fn extra(&self, have: i64) -> Option<Verdict> {
        let more = have.saturating_sub(self.count);
        let (plural, verb) = if more == 1 { ("", "is") } else { ("s", "are") };
        let message = format!("{more} extra {}{plural} {verb} still running", self.noun);
        (more > 0).then(|| Verdict::in_progress("ExtraPods", message))
    }

    /// Returns `Current`, with the number of pods that run. A partition can keep some of them at the previous revision.
    fn reached(&self, updated: i64) -> Verdict {
        let message = if updated < self.count { self.of(updated, "updated") } else { self.counted(self.count) };
        Verdict { message, ..Verdict::current() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    /// The conditions of a Deployment: status and reason of `Progressing`, and status of `Available`.
    fn conditions(progressing: &str, reason: &str, available: &str) -> Value {
        json!({"conditions": [condition("Available", available, "A", 0), condition("Progressing", progressing, reason, 0)]})
    }

    /// The status of a complete rollout with three replicas.
    fn done() -> Value {
        let counts = json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
            "availableReplicas": 3});
        with(&counts, conditions("True", "NewReplicaSetAvailable", "True"))
    }

    /// The status of a rollout whose deadline is exceeded. Its fields are overwritten by those of `more`.
    fn exceeded(more: Value) -> Value {
        with(&with(&done(), conditions("False", "ProgressDeadlineExceeded", "True")), more)
    }

    /// Fields of a rollout whose pods the API server refuses.
    fn refused() -> Value {
        json!({"updatedReplicas": 0, "unavailableReplicas": 1, "conditions": [
            condition("Progressing", "False", "ProgressDeadlineExceeded", 0), condition("ReplicaFailure", "True", "Quota", 0)]})
    }

    fn available_only() -> Value {
        json!({"conditions": [condition("Available", "True", "A", 0)]})
    }

    /// Checks cases of a Deployment: the name, more of the spec, the status, and the expected status.
    fn hold(cases: impl IntoIterator<Item = (&'static str, Value, Value, Status)>) {
        for (name, spec, status, want) in cases {
            let seen = read(DEPLOYMENT, workload(spec), status);
            let runs = if want == Current { "2,sha256:ab" } else { "" };
            assert_eq!(summary(&seen), (want, runs, "2,sha256:ab"), "{name}");
            assert!(!seen.suspended);
        }
    }

    #[test]
    fn a_deployment_is_current_when_its_rollout_is_complete() {
        hold([
            ("done", json!({}), done(), Current),
            ("new spec", json!({}), with(&done(), json!({"observedGeneration": 1})), InProgress),
            ("no generation", json!({}), with(&done(), json!({"observedGeneration": null})), InProgress),
            ("too few", json!({}), with(&done(), json!({"replicas": 2})), InProgress),
            ("not all updated", json!({}), with(&done(), json!({"updatedReplicas": 2})), InProgress),
            ("old ones left", json!({}), with(&done(), json!({"replicas": 4})), InProgress),
            ("not all available", json!({}), with(&done(), json!({"availableReplicas": 2})), InProgress),
            ("not all ready", json!({}), with(&done(), json!({"readyReplicas": null})), InProgress),
            ("not declared", json!({}), with(&done(), conditions("True", "ReplicaSetUpdated", "True")), InProgress),
            ("not available", json!({}), with(&done(), conditions("True", "NewReplicaSetAvailable", "False")), InProgress),
            ("no deadline", json!({}), with(&done(), available_only()), Current),
            ("deadline unmet", json!({"progressDeadlineSeconds": 5}), with(&done(), available_only()), InProgress),
        ]);
        let none = json!({"observedGeneration": 2, "conditions": done()["conditions"]});
        assert_eq!(read(DEPLOYMENT, json!({"replicas": 0}), none).status, Current, "scaled to nothing");
        let paused = with(&done(), conditions("Unknown", "DeploymentPaused", "True"));
        let seen = read(DEPLOYMENT, workload(json!({"paused": true})), paused);
        assert_eq!((seen.status, seen.suspended), (Current, true), "a first sight of a paused one has a baseline");
    }

    #[test]
    fn a_deployment_has_failed_when_the_deadline_of_the_wanted_rollout_is_exceeded() {
        hold([
            ("failed", json!({}), exceeded(json!({"replicas": 4, "updatedReplicas": 1, "unavailableReplicas": 1})), Failed),
            (
                "failed, with a count that no addition may exceed",
                json!({}),
                exceeded(
                    json!({"replicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1, "availableReplicas": i64::MAX}),
                ),
                Failed,
            ),
            ("failed to make any", json!({}), exceeded(refused()), Failed),
            ("old ones never go", json!({}), exceeded(json!({"replicas": 0, "updatedReplicas": 0})), Failed),
            (
                "failed before the new spec",
                json!({}),
                exceeded(json!({"observedGeneration": 1, "unavailableReplicas": 1})),
                InProgress,
            ),
            ("failed before it went back", json!({}), exceeded(json!({"replicas": 4})), InProgress),
            // The rollout back to the old revision has created a pod. The pods of the failed rollout still exist, but are no longer wanted.
            (
                "failed before it went back, and has begun",
                json!({}),
                exceeded(json!({"replicas": 4, "updatedReplicas": 1, "availableReplicas": 2, "unavailableReplicas": 1})),
                InProgress,
            ),
            // Strategy `Recreate`: the pods of the previous rollout were refused, and the pods of this rollout are not requested yet.
            (
                "failed before, recreates",
                json!({}),
                exceeded(with(&refused(), json!({"replicas": 0, "availableReplicas": 0, "unavailableReplicas": 0}))),
                InProgress,
            ),
            (
                "recreates and is refused all",
                json!({}),
                exceeded(with(&refused(), json!({"replicas": 0, "availableReplicas": 0, "unavailableReplicas": 3}))),
                Failed,
            ),
            (
                "failed before, goes back to nothing made",
                json!({}),
                exceeded(json!({"updatedReplicas": 0, "unavailableReplicas": 1})),
                InProgress,
            ),
        ]);
    }

    #[test]
    fn the_message_of_a_timeout_contains_the_refusal_that_caused_it() {
        let words = |type_: &str, status: &str, reason: &str, message: &str| json!({"type": type_, "status": status, "reason": reason, "message": message});
        let late =
            words("Progressing", "False", "ProgressDeadlineExceeded", "ReplicaSet \"web-1\" has timed out progressing.");
        let quota = "pods \"web-1-x\" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=2, limited: pods=2";
        for (name, failure, want) in [
            (
                "refused",
                words("ReplicaFailure", "True", "FailedCreate", quota),
                format!("ReplicaSet \"web-1\" has timed out progressing: {quota}"),
            ),
            (
                "not refused any more",
                words("ReplicaFailure", "False", "FailedCreate", quota),
                "ReplicaSet \"web-1\" has timed out progressing.".to_owned(),
            ),
            (
                "without words",
                words("ReplicaFailure", "True", "FailedCreate", ""),
                "ReplicaSet \"web-1\" has timed out progressing.".to_owned(),
            ),
        ] {
            let more = json!({"updatedReplicas": 1, "unavailableReplicas": 1, "conditions": [late, failure]});
            let seen = read(DEPLOYMENT, workload(json!({})), exceeded(more));
            assert_eq!((seen.status, seen.reason.as_str()), (Failed, "ProgressDeadlineExceeded"), "{name}");
            assert_eq!(seen.message, want, "{name}");
        }
    }

    #[test]
    fn images_of_init_containers_are_the_configuration() {
        let template = |init: Value| json!({"replicas": 3, "template": {"spec": {"initContainers": init, "containers": [{"image": "web:2"}]}}});
        let sidecar = json!([{"image": "init:9"},
            {"image": "proxy@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "restartPolicy": "Always"}]);
        for (name, init, want) in [
            ("none", Value::Null, ""),
            ("an empty list", json!([]), ""),
            ("of another shape", json!([7, {"image": 1}]), ""),
            ("one, and a native sidecar", sidecar, "init images 9,sha256:0123456789ab"),
        ] {
            for kind in [DEPLOYMENT, STATEFUL_SET, DAEMON_SET, ROLLOUT] {
                let begins = read(kind, template(init.clone()), json!({"observedGeneration": 1}));
                let seen = (begins.attempted_revision.as_str(), begins.configuration.as_str());
                assert_eq!((seen, begins.attempted_configuration.as_str()), (("2", ""), want), "{kind:?} {name}");
            }
            let done = read(DEPLOYMENT, template(init), done());
            assert_eq!((done.status, done.configuration.as_str()), (Current, want), "{name}");
        }
    }

    #[test]
    fn messages_of_workloads_count_their_replicas() {
        let conditions = |reason: &str, available: &str| {
            json!([condition("Available", available, "A", 0), condition("Progressing", "True", reason, 0)])
        };
        let deployment = json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
            "availableReplicas": 3, "conditions": conditions("NewReplicaSetAvailable", "True")});
        let set = json!({"observedGeneration": 2, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3,
            "currentRevision": "web-2", "updateRevision": "web-2"});
        let daemons = json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
            "updatedNumberScheduled": 3, "numberAvailable": 3, "numberReady": 3});
        let partition = json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}});
        let one = || json!({"replicas": 1});
        let kinds = [(DEPLOYMENT, &deployment), (STATEFUL_SET, &set), (DAEMON_SET, &daemons)];
        for (kind, spec, more, want) in [
            (0, json!({}), json!({}), "3 replicas"),
            (0, one(), json!({"replicas": 1, "updatedReplicas": 1}), "1 replica"),
            (0, json!({"replicas": 0}), json!({"replicas": 0, "updatedReplicas": 0}), "0 replicas"),
            (0, json!({}), json!({"replicas": 1, "updatedReplicas": null}), "1 of 3 replicas created"),
            (0, json!({}), json!({"replicas": 4, "updatedReplicas": 2}), "2 of 3 replicas updated"),
            (0, one(), json!({"updatedReplicas": null}), "0 of 1 replica updated"),
            (0, json!({}), json!({"replicas": 4}), "1 extra replica is still running"),
            (0, json!({}), json!({"replicas": 5}), "2 extra replicas are still running"),
            (0, json!({}), json!({"availableReplicas": 1}), "1 of 3 replicas available"),
            (0, json!({}), json!({"readyReplicas": 2}), "2 of 3 replicas ready"),
            (0, json!({}), json!({"conditions": conditions("ReplicaSetUpdated", "True")}), "3 of 3 replicas updated"),
            (
                0,
                json!({}),
                json!({"conditions": conditions("NewReplicaSetAvailable", "False")}),
                "fewer replicas are available than required",
            ),
            (1, json!({}), json!({}), "3 replicas"),
            (1, json!({}), json!({"replicas": 2}), "2 of 3 replicas created"),
            (1, json!({}), json!({"readyReplicas": null}), "0 of 3 replicas ready"),
            (1, json!({}), json!({"updatedReplicas": 2}), "2 of 3 replicas updated"),
            (1, json!({}), json!({"currentRevision": "web-1"}), "3 of 3 replicas updated"),
            (1, partition.clone(), json!({"updatedReplicas": 1, "currentRevision": "web-1"}), "1 of 3 replicas updated"),
            (1, partition, json!({"updatedReplicas": 0, "currentRevision": "web-1"}), "0 of 1 replica updated"),
            (2, json!({}), json!({}), "3 pods"),
            (2, json!({}), json!({"currentNumberScheduled": 2}), "2 of 3 pods created"),
            (2, json!({}), json!({"updatedNumberScheduled": 2}), "2 of 3 pods updated"),
            (2, json!({}), json!({"numberAvailable": 2}), "2 of 3 pods available"),
            (2, json!({}), json!({"numberReady": 2}), "2 of 3 pods ready"),
        ] {
            let (kind, done) = kinds[kind];
            let seen = read(kind, workload(spec), with(done, more));
            assert_eq!(seen.message, want, "{kind:?}");
            assert_eq!(seen.reason.is_empty(), seen.status == Current, "{want}");
            assert!(!seen.is_unobserved());
        }
        for (kind, done) in kinds {
            let behind = read(kind, workload(json!({})), with(done, json!({"observedGeneration": 1})));
            assert!(behind.is_unobserved() && !behind.message.contains(char::is_numeric), "{behind:?}");
            assert!(read(kind, workload(json!({})), Value::Null).is_unobserved());
        }
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
            assert_eq!(read(STATEFUL_SET, workload(spec), status).status, want, "{name}");
        }
        let none = json!({"observedGeneration": 2});
        assert_eq!(read(STATEFUL_SET, json!({"replicas": 0}), none).status, Current, "scaled to nothing");
    }

    #[test]
    fn a_daemon_set_is_current_when_every_node_has_the_new_pod() {
        let done = json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
            "updatedNumberScheduled": 3, "numberAvailable": 3, "numberReady": 3});
        assert_eq!(summary(&read(DAEMON_SET, workload(json!({})), done.clone())), (Current, "2,sha256:ab", "2,sha256:ab"));
        for field in ["currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"] {
            let seen = read(DAEMON_SET, workload(json!({})), with(&done, json!({field: 2})));
            assert_eq!(seen.status, InProgress, "{field}");
        }
        let behind = read(DAEMON_SET, workload(json!({})), with(&done, json!({"observedGeneration": 1})));
        assert_eq!(behind.status, InProgress, "its counts are of the spec before");
        let waits = json!({"updateStrategy": {"type": "OnDelete"}});
        let seen = read(DAEMON_SET, workload(waits), with(&done, json!({"updatedNumberScheduled": null})));
        assert_eq!(seen.status, InProgress, "until somebody deletes the old pods");
        for missing in ["desiredNumberScheduled", "observedGeneration"] {
            assert_eq!(read(DAEMON_SET, json!({}), with(&done, json!({missing: null}))).status, InProgress, "{missing}");
        }
    }
}
