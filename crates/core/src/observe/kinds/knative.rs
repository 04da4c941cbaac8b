//! Service of Knative Serving (<https://knative.dev/docs/serving/reference/serving-api/>,
//! <https://github.com/knative/specs/blob/main/specs/serving/knative-api-specification-1.0.md#error-signalling>).
//!
//! `Ready` combines `ConfigurationsReady` and `RoutesReady`. `False` is final, so it is a failure. `Unknown` is in progress. The latest
//! revision that became ready runs. The latest created revision is the attempted one. A route that is pinned to an older revision is not
//! considered. For such a Service, set `revisionPath` to the field with the name of that revision, `.status.traffic[0].revisionName`.

use super::super::kstatus::{Verdict, unobserved};
use super::super::view::View;
use super::{Reading, Rules};
use relaybook_api::Status;

pub(super) static SERVICE: Rules =
    Rules { group: "serving.knative.dev", kind: "Service", reader: "knative-service/1", read };

fn read(view: &View<'_>) -> Reading {
    let (running, tried) = (view.text("/status/latestReadyRevisionName"), view.text("/status/latestCreatedRevisionName"));
    let mut verdict = verdict(view);
    if verdict.status == Status::Current && running != tried {
        verdict = Verdict::in_progress("RevisionNotReady", format!("'{tried}' is not the latest ready revision yet"));
    }
    Reading::named(verdict, running, tried)
}

fn verdict(view: &View<'_>) -> Verdict {
    if let Some(verdict) = unobserved(view) {
        return verdict;
    }
    match view.condition("Ready") {
        Some(ready) if ready.is_true() => Verdict::current(),
        Some(ready) if ready.is_false() => Verdict::failed_as(&ready),
        Some(ready) => Verdict::in_progress_as(&ready),
        None => Verdict::in_progress("NoStatus", "its controller has not written a Ready condition yet"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    #[test]
    fn a_service_runs_its_latest_ready_revision() {
        // The conditions of a Service contain no generation.
        let conditions = |ready: &str, configuration: &str, routes: &str| {
            let condition =
                |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "Because", "message": "why"});
            json!([
                condition("ConfigurationsReady", configuration),
                condition("Ready", ready),
                condition("RoutesReady", routes)
            ])
        };
        for (name, observed, created, conditions, want) in [
            ("ready", 2, "web-1", conditions("True", "True", "True"), Current),
            ("ready, of the spec before", 1, "web-1", conditions("True", "True", "True"), InProgress),
            ("the newest is not ready", 2, "web-2", conditions("True", "True", "True"), InProgress),
            ("a revision starts", 2, "web-2", conditions("Unknown", "Unknown", "True"), InProgress),
            ("routes are to follow", 2, "web-1", conditions("Unknown", "True", "Unknown"), InProgress),
            ("the revision fails", 2, "web-2", conditions("False", "False", "True"), Failed),
            ("the route fails", 2, "web-1", conditions("False", "True", "False"), Failed),
            ("failed, of the spec before", 1, "web-2", conditions("False", "False", "True"), InProgress),
            ("never reconciled", 0, "", Value::Null, InProgress),
            ("of another shape", 2, "web-1", json!("Ready"), InProgress),
        ] {
            let status = json!({"observedGeneration": observed, "latestReadyRevisionName": "web-1",
                "latestCreatedRevisionName": created, "conditions": conditions});
            assert_eq!(summary(&read(KNATIVE_SERVICE, json!({}), status)), (want, "web-1", created), "{name}");
        }
    }
}
