//! Rollout of Argo Rollouts (<https://argo-rollouts.readthedocs.io/en/stable/features/specification/>).
//!
//! `status.phase` combines the conditions, as the controller and its plugin for `kubectl` show it. `Healthy` means that all pods run the current
//! template, and that it is the stable one. `Paused` is a step of the rollout that waits, so it is in progress. After an abort, the old version
//! runs and the phase is `Degraded`. The controller writes `observedGeneration` as a text. With a `workloadRef`, it writes the generation of the
//! workload into an annotation, and into the status once it has observed it.

use super::super::kstatus::{Verdict, of_another_generation, unobserved};
use super::super::revision;
use super::super::view::View;
use super::{Reading, Rules};

pub(super) static ROLLOUT: Rules = Rules { group: "argoproj.io", kind: "Rollout", reader: "rollout/2", read };

/// The annotation with the generation of the workload that a Rollout refers to.
const WORKLOAD_GENERATION: &str = "rollout.argoproj.io/workload-generation";

fn read(view: &View<'_>) -> Reading {
    // A Rollout with a `workloadRef` has no template.
    let images = revision::of_images(view);
    let tried = if images.is_empty() { revision::of_label(view) } else { &images };
    Reading::declared(verdict(view), tried).with_init_images(view).suspended(view.flag("/spec/paused"))
}

fn verdict(view: &View<'_>) -> Verdict {
    if !view.has_status() {
        return Verdict::in_progress("NoStatus", "its controller has not written a status yet");
    }
    if let Some(verdict) = unobserved(view) {
        return verdict;
    }
    let workload = view.annotation(WORKLOAD_GENERATION);
    if view.at("/spec/workloadRef").is_some()
        && !workload.is_empty()
        && workload != view.text("/status/workloadObservedGeneration")
    {
        return of_another_generation();
    }
    let message = view.text("/status/message");
    match view.text("/status/phase") {
        "Healthy" if view.text("/status/stableRS") == view.text("/status/currentPodHash") => Verdict::current(),
        "Healthy" => Verdict::in_progress("NotStable", "the pods of the current template are not the stable ones yet"),
        "Degraded" => {
            let condition = view.condition_true("InvalidSpec").or_else(|| view.condition("Progressing"));
            let reason = condition.map(|c| c.reason).filter(|reason| !reason.is_empty()).unwrap_or("Degraded");
            let own = || condition.map(|c| c.message).unwrap_or_default();
            Verdict::failed(reason, if message.is_empty() { own() } else { message })
        }
        "" => Verdict::in_progress("NoPhase", "its controller has not written a phase yet"),
        phase => Verdict::in_progress(phase, message),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    /// The status of a complete rollout.
    fn healthy() -> Value {
        json!({"observedGeneration": "2", "phase": "Healthy", "stableRS": "a1", "currentPodHash": "a1", "replicas": 3})
    }

    #[test]
    fn the_phase_of_a_rollout_determines_its_status() {
        for (name, status, want) in [
            ("healthy", healthy(), Current),
            ("healthy, as a number", with(&healthy(), json!({"observedGeneration": 2})), Current),
            ("of the spec before", with(&healthy(), json!({"observedGeneration": "1"})), InProgress),
            ("a hash of early versions", with(&healthy(), json!({"observedGeneration": "6f7d9c"})), InProgress),
            ("not stable yet", with(&healthy(), json!({"currentPodHash": "b2"})), InProgress),
            ("progressing", with(&healthy(), json!({"phase": "Progressing", "message": "more replicas"})), InProgress),
            ("at a step", with(&healthy(), json!({"phase": "Paused", "message": "CanaryPauseStep"})), InProgress),
            ("degraded", with(&healthy(), json!({"phase": "Degraded", "message": "exceeded"})), Failed),
            (
                "degraded, of the spec before",
                with(&healthy(), json!({"phase": "Degraded", "observedGeneration": "1"})),
                InProgress,
            ),
            ("without a phase", with(&healthy(), json!({"phase": ""})), InProgress),
            ("a phase of another type", with(&healthy(), json!({"phase": {"name": "Healthy"}})), InProgress),
            ("an unknown phase", with(&healthy(), json!({"phase": "Fine"})), InProgress),
            ("never reconciled", json!({}), InProgress),
        ] {
            let seen = read(ROLLOUT, workload(json!({})), status);
            let runs = if want == Current { "2,sha256:ab" } else { "" };
            assert_eq!(summary(&seen), (want, runs, "2,sha256:ab"), "{name}");
            assert_eq!(seen.reason.is_empty(), want == Current, "{name}");
        }
        let reference = json!({"workloadRef": {"kind": "Deployment", "name": "web"}});
        assert_eq!(summary(&read(ROLLOUT, reference, healthy())), (Current, "v7", "v7"));
        assert!(read(ROLLOUT, workload(json!({"paused": true})), healthy()).suspended);
    }

    #[test]
    fn a_rollout_waits_until_its_workload_is_observed() {
        let reference = || json!({"workloadRef": {"kind": "Deployment", "name": "web"}});
        for (name, spec, generation, observed, want) in [
            ("observed", reference(), "7", json!("7"), Current),
            ("of the workload before", reference(), "7", json!("6"), InProgress),
            ("never observed", reference(), "7", Value::Null, InProgress),
            ("of another shape", reference(), "7", json!([7]), InProgress),
            ("of early versions", reference(), "", Value::Null, Current),
            ("without a reference", workload(json!({})), "7", json!("6"), Current),
        ] {
            let status = with(&healthy(), json!({"workloadObservedGeneration": observed}));
            let mut rollout = object(ROLLOUT, &spec, &status);
            let annotation =
                (!generation.is_empty()).then(|| (super::WORKLOAD_GENERATION.to_owned(), generation.to_owned()));
            rollout.metadata.annotations = Some(annotation.into_iter().collect());
            assert_eq!(seen(&rollout).status, want, "{name}");
        }
    }

    #[test]
    fn a_failure_has_the_reason_of_its_condition() {
        let told = |message: &str, conditions: Value| {
            let status = json!({"phase": "Degraded", "message": message, "conditions": conditions});
            let seen = read(ROLLOUT, workload(json!({})), with(&healthy(), status));
            (seen.reason, seen.message)
        };
        let of = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
        let aborted = json!([condition("Progressing", "False", "RolloutAborted", 0)]);
        assert_eq!(told("RolloutAborted: metric failed", aborted), of("RolloutAborted", "RolloutAborted: metric failed"));
        let invalid = json!([condition("Progressing", "True", "R", 0), condition("InvalidSpec", "True", "InvalidSpec", 0)]);
        assert_eq!(told("", invalid), of("InvalidSpec", "why"));
        assert_eq!(told("", json!("none")), of("Degraded", ""));
    }
}
