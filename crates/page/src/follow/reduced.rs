//! The parts of an object from which its findings are made. Pure.
//!
//! In: an object of the API server. Out: the same object with its name, its conditions, and the other parts of its status that
//! `relaybook_tools::diagnosis` reads. Messages are cut.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use relaybook_text::cut_chars;

use relaybook_api::conditions::Condition;
use relaybook_api::pipeline::{Dispatched, EnvironmentStatus, NotReadyNotification};
use relaybook_api::{Notification, NotificationSpec, NotificationStatus, Pipeline, PipelineSpec, PipelineStatus};

/// Maximum length of a message that is kept, in characters.
const LONGEST: usize = 300;

/// Returns a pipeline without the parts from which no finding is made.
pub(super) fn of_pipeline(pipeline: &Pipeline) -> Pipeline {
    let status = pipeline.status.as_ref().map(|status| PipelineStatus {
        conditions: conditions(&status.conditions),
        environments: status.environments.iter().filter_map(promoted).collect(),
        dispatched: status.dispatched.as_ref().map(dispatched),
        ..PipelineStatus::default()
    });
    Pipeline { metadata: metadata(&pipeline.metadata), spec: PipelineSpec::default(), status }
}

/// Returns a Notification without the parts from which no finding is made.
pub(super) fn of_notification(notification: &Notification) -> Notification {
    let status = notification.status.as_ref().map(|status| NotificationStatus {
        conditions: conditions(&status.conditions),
        pending: status.pending,
        ..NotificationStatus::default()
    });
    Notification { metadata: metadata(&notification.metadata), spec: NotificationSpec::default(), status }
}

fn metadata(all: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: all.name.clone(),
        namespace: all.namespace.clone(),
        creation_timestamp: all.creation_timestamp.clone(),
        ..ObjectMeta::default()
    }
}

fn conditions(all: &[Condition]) -> Vec<Condition> {
    all.iter().map(|one| Condition { message: short(&one.message), observed_generation: None, ..one.clone() }).collect()
}

/// Returns what is known of the promotions to an environment. `None`: there was none.
fn promoted(environment: &EnvironmentStatus) -> Option<EnvironmentStatus> {
    let EnvironmentStatus { name, promotion, waiting_approval, .. } = environment;
    if promotion.is_none() && waiting_approval.is_none() {
        return None;
    }
    Some(EnvironmentStatus {
        name: name.clone(),
        promotion: promotion.clone(),
        waiting_approval: waiting_approval.clone(),
        ..EnvironmentStatus::default()
    })
}

fn dispatched(all: &Dispatched) -> Dispatched {
    let cut = |one: &NotReadyNotification| NotReadyNotification { message: short(&one.message), ..one.clone() };
    Dispatched { notifications: all.notifications.iter().map(cut).collect(), ..Dispatched::default() }
}

/// Cuts a message.
pub(super) fn short(text: &str) -> String {
    cut_chars(text, LONGEST).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use relaybook_api::Time;
    use relaybook_tools::diagnosis;

    fn condition(type_: &str, reason: &str) -> serde_json::Value {
        json!({"type": type_, "status": "False", "reason": reason, "message": "why", "lastTransitionTime": "2026-03-01T12:00:00Z"})
    }

    #[test]
    fn what_is_kept_has_the_same_findings() {
        let now: Time = "2026-03-01T12:05:00Z".parse().unwrap();
        let metadata = json!({"name": "shop", "namespace": "team-a", "creationTimestamp": "2026-03-01T12:00:00Z"});
        let object = |kind: &str, spec: serde_json::Value, status: serde_json::Value| {
            let version = "relaybook.dev/v1alpha1";
            json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status})
        };
        let waiting = json!({"promotion": "p", "promotionUid": "u", "revision": "2", "since": "2026-03-01T12:00:00Z"});
        let failed = json!({"name": "p", "revision": "2", "phase": "Failed", "reason": "NotRunning"});
        let status = json!({
            "conditions": [condition("Ready", "KindNotFound"), condition("HooksReady", "SecretMissing")],
            "environments": [{"name": "dev"}, {"name": "test", "promotion": failed}, {"name": "prod", "waitingApproval": waiting}],
            "dispatched": {"notifications": [{"name": "chat", "ready": false, "reason": "SecretMissing", "message": "no Secret"}]},
        });
        for (status, expected) in [(status, 5), (json!(null), 1), (json!({}), 0)] {
            let pipeline: Pipeline =
                serde_json::from_value(object("Pipeline", json!({"environments": []}), status)).unwrap();
            let findings = diagnosis::of_pipeline(&pipeline, now);
            assert_eq!((diagnosis::of_pipeline(&of_pipeline(&pipeline), now), findings.len()), (findings, expected));
        }
        let status =
            json!({"pending": 3, "conditions": [condition("Ready", "SecretMissing"), condition("Delivering", "Timeout")]});
        for (status, expected) in [(status, 2), (json!(null), 1), (json!({}), 0)] {
            let all: Notification = serde_json::from_value(object("Notification", json!({}), status)).unwrap();
            let findings = diagnosis::of_notification(&all, now);
            assert_eq!((diagnosis::of_notification(&of_notification(&all), now), findings.len()), (findings, expected));
        }
    }
}
