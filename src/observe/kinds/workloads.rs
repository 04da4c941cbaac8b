//! Kubernetes' own workloads, by the replicas that their controllers count
//! (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/status/core.go>).
//!
//! Three rules are stricter than kstatus, for `Current` here says that the revision runs: a `StatefulSet` of strategy
//! `OnDelete`, or held back whole by its partition, waits for pods of the new revision; and a `Job` is `Current` when it is
//! complete, not when it has started, as Flux has it too.

use super::super::kstatus::{Verdict, unobserved};
use super::super::view::View;

/// The deployment controller writes no `Progressing` condition where the deadline is this or left out.
const NO_DEADLINE: i64 = i32::MAX as i64;

pub(super) fn deployment(view: &View<'_>) -> Verdict {
    if let Some(verdict) = untouched(view) {
        return verdict;
    }
    let wanted = view.int("/spec/replicas").unwrap_or(1);
    let replicas = count(view, "/status/replicas");
    let updated = count(view, "/status/updatedReplicas");
    let progressing = view.condition("Progressing");
    // `Available` says nothing of a rollout: the old pods keep it True.
    if let Some(c) = progressing.filter(|c| c.reason == "ProgressDeadlineExceeded" && borne_out(view, replicas, updated)) {
        return Verdict::failed_as(&c);
    }
    let short = fewer("LessReplicas", replicas, wanted)
        .or_else(|| fewer("LessUpdated", updated, wanted))
        .or_else(|| extra(replicas, wanted))
        .or_else(|| fewer("LessAvailable", count(view, "/status/availableReplicas"), updated))
        .or_else(|| fewer("LessReady", count(view, "/status/readyReplicas"), wanted));
    if let Some(verdict) = short {
        return verdict;
    }
    let rolled_out = match progressing {
        // Paused, or resumed a moment ago: the controller withholds its judgement, the replicas have spoken.
        Some(c) => c.is_unknown() || (c.is_true() && c.reason == "NewReplicaSetAvailable"),
        None => view.int("/spec/progressDeadlineSeconds").unwrap_or(NO_DEADLINE) >= NO_DEADLINE,
    };
    if !rolled_out {
        return Verdict::in_progress("ReplicaSetNotAvailable", "the rollout has not been declared complete");
    }
    if view.condition_true("Available").is_none() {
        return Verdict::in_progress("DeploymentNotAvailable", "fewer replicas are available than must be");
    }
    Verdict::current()
}

/// Whether the pods bear out that it is this rollout which has failed. When a spec goes back to an earlier revision, the controller observes
/// the new generation and leaves the verdict on the one before standing, until the replicas move. A rollout that has failed
/// itself wants pods that are not available, and has made some or was refused them (or waits for the last old one to go).
fn borne_out(view: &View<'_>, replicas: i64, updated: i64) -> bool {
    let tried = updated > 0 || view.condition_true("ReplicaFailure").is_some();
    replicas == 0 || (tried && count(view, "/status/unavailableReplicas") > 0)
}

pub(super) fn stateful_set(view: &View<'_>) -> Verdict {
    if let Some(verdict) = untouched(view) {
        return verdict;
    }
    let wanted = view.int("/spec/replicas").unwrap_or(1).max(0);
    let partition = view.int("/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0).clamp(0, wanted);
    // A partition may hold pods back for good, but at least one must run the revision that is called Current.
    let moved = (wanted - partition).max(wanted.min(1));
    let replicas = count(view, "/status/replicas");
    let short = fewer("LessReplicas", replicas, wanted)
        .or_else(|| fewer("LessReady", count(view, "/status/readyReplicas"), wanted))
        .or_else(|| extra(replicas, wanted))
        .or_else(|| fewer("LessUpdated", count(view, "/status/updatedReplicas"), moved));
    if let Some(verdict) = short {
        return verdict;
    }
    // With OnDelete the controller never moves currentRevision on.
    let rolls_all = partition == 0 && view.text("/spec/updateStrategy/type") != "OnDelete";
    if rolls_all && view.text("/status/currentRevision") != view.text("/status/updateRevision") {
        return Verdict::in_progress("RevisionMismatch", "the rollout has not been declared complete");
    }
    Verdict::current()
}

pub(super) fn daemon_set(view: &View<'_>) -> Verdict {
    if let Some(verdict) = untouched(view) {
        return verdict;
    }
    let Some(wanted) = view.int("/status/desiredNumberScheduled") else {
        return Verdict::in_progress("NoDesiredNumber", "the number of nodes is not known yet");
    };
    fewer("LessCurrent", count(view, "/status/currentNumberScheduled"), wanted)
        .or_else(|| fewer("LessUpdated", count(view, "/status/updatedNumberScheduled"), wanted))
        .or_else(|| fewer("LessAvailable", count(view, "/status/numberAvailable"), wanted))
        .or_else(|| fewer("LessReady", count(view, "/status/numberReady"), wanted))
        .unwrap_or_else(Verdict::current)
}

pub(super) fn job(view: &View<'_>) -> Verdict {
    if let Some(failed) = view.condition_true("Failed") {
        return Verdict::failed_as(&failed);
    }
    if view.condition_true("Complete").is_some() {
        return Verdict::current();
    }
    if view.text("/status/startTime").is_empty() {
        return Verdict::in_progress("JobNotStarted", "the job has not started");
    }
    let (succeeded, active) = (count(view, "/status/succeeded"), count(view, "/status/active"));
    Verdict::in_progress("JobRunning", format!("succeeded: {succeeded}, active: {active}"))
}

/// `InProgress` until the controller has counted for this generation: before, a count that is missing is not zero.
fn untouched(view: &View<'_>) -> Option<Verdict> {
    if view.int("/status/observedGeneration").is_none() {
        return Some(Verdict::in_progress("NoStatus", "its controller has not written a status yet"));
    }
    unobserved(view)
}

/// Zero counts are left out of a status.
fn count(view: &View<'_>, pointer: &str) -> i64 {
    view.int(pointer).unwrap_or(0)
}

fn fewer(reason: &str, have: i64, want: i64) -> Option<Verdict> {
    (have < want).then(|| Verdict::in_progress(reason, format!("{have} of {want}")))
}

fn extra(have: i64, want: i64) -> Option<Verdict> {
    (have > want).then(|| Verdict::in_progress("ExtraPods", format!("{have} of {want}, the others have yet to go")))
}
