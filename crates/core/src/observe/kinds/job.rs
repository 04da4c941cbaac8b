//! Job (<https://kubernetes.io/docs/concepts/workloads/controllers/job/>).
//!
//! As in Flux, these rules are stricter than kstatus: a Job is `Current` when it is complete, not when it has started. A finished Job is no
//! longer suspended, whatever its spec contains.

use super::super::kstatus::Verdict;
use super::super::revision;
use super::super::view::View;
use super::{Reading, Rules};
use relaybook_api::Status;

pub(super) static JOB: Rules = Rules { group: "batch", kind: "Job", reader: "job/2", read };

fn read(view: &View<'_>) -> Reading {
    let verdict = verdict(view);
    let suspended = verdict.status == Status::InProgress && view.flag("/spec/suspend");
    Reading::declared(verdict, &revision::of_images(view)).suspended(suspended)
}

fn verdict(view: &View<'_>) -> Verdict {
    if let Some(failed) = view.condition_true("Failed") {
        return Verdict::failed_as(&failed);
    }
    if view.condition_true("Complete").is_some() {
        return Verdict::current();
    }
    if view.text("/status/startTime").is_empty() {
        return Verdict::in_progress("JobNotStarted", "the job has not started");
    }
    let (succeeded, active) = (view.int("/status/succeeded").unwrap_or(0), view.int("/status/active").unwrap_or(0));
    Verdict::in_progress("JobRunning", format!("succeeded: {succeeded}, active: {active}"))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    #[test]
    fn a_job_is_current_when_it_is_complete() {
        let over =
            |type_: &str| json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [condition(type_, "True", "R", 0)]});
        let suspended = || json!({"suspend": true});
        for (name, spec, status, want, held) in [
            ("never looked at", json!({}), json!({}), InProgress, false),
            ("not started", json!({}), json!({"ready": 0}), InProgress, false),
            ("started", json!({}), json!({"startTime": "2026-01-01T00:00:00Z", "active": 1}), InProgress, false),
            ("complete", json!({}), over("Complete"), Current, false),
            ("failed", json!({}), over("Failed"), Failed, false),
            ("about to fail", json!({}), over("FailureTarget"), InProgress, false),
            ("about to be complete", json!({}), over("SuccessCriteriaMet"), InProgress, false),
            ("suspended before it began", suspended(), json!({}), InProgress, true),
            ("suspended while it ran", suspended(), over("Suspended"), InProgress, true),
            ("complete before it was suspended", suspended(), over("Complete"), Current, false),
            ("failed before it was suspended", suspended(), over("Failed"), Failed, false),
        ] {
            let seen = read(JOB, workload(spec), status);
            let runs = if want == Current { "2,sha256:ab" } else { "" };
            assert_eq!((summary(&seen), seen.suspended), ((want, runs, "2,sha256:ab"), held), "{name}");
        }
    }
}
