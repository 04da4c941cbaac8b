//! What templates (and `when` expressions) see of a transition.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::delivery::{AppObject, PipelineRef, Subject, SubjectTarget};
use crate::api::{DeliverySpec, State, Status, Time, TransitionType};

/// The data of one transition. All fields are always there, empty where something is unknown, so that a template that
/// compiles finds what it names; only labels and annotations need not have an entry. `docs/templates.md` lists them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Data {
    /// The `webhook-id`: the same in every attempt.
    pub id: String,
    /// Serial of the change that is reported.
    pub serial: i64,
    /// What the change means.
    #[serde(rename = "type")]
    pub type_: TransitionType,
    /// When the change was observed.
    pub time: Time,
    /// How much it matters.
    pub severity: Severity,
    /// The pipeline.
    pub pipeline: PipelineData,
    /// Name of the environment.
    pub environment: String,
    /// The target.
    pub target: TargetData,
    /// The revision that the status is about: what runs when `Current`, what was tried when `InProgress` or `Failed`.
    pub revision: String,
    /// The revision that runs; empty before the first and after the application object is gone.
    pub running_revision: String,
    /// The revision that ran before; empty before the first.
    pub previous_revision: String,
    /// kstatus.
    pub status: Status,
    /// kstatus before.
    pub previous_status: Status,
    /// One word on why; often empty.
    pub reason: String,
    /// A sentence on why, from the cluster, with any characters in it; often empty.
    pub message: String,
    /// Whether the target runs something else than was declared.
    pub drifted: bool,
    /// Whether several changes were made one before this was recorded.
    pub coalesced: bool,
    /// The notification.
    pub notification: NotificationData,
}

/// How much a transition matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Info,
    /// Somebody should look.
    Error,
}

impl Severity {
    /// The severity of a type of transition.
    #[must_use]
    pub const fn of(type_: TransitionType) -> Self {
        match type_ {
            TransitionType::Failed => Self::Error,
            TransitionType::Deployed | TransitionType::Progressing | TransitionType::Recovered | TransitionType::Removed => {
                Self::Info
            }
        }
    }
}

/// The pipeline of a transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PipelineData {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// Its labels now.
    pub labels: BTreeMap<String, String>,
    /// Its annotations now.
    pub annotations: BTreeMap<String, String>,
}

/// The target of a transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetData {
    /// `ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` where the target names another.
    pub name: String,
    /// The namespace of the application object.
    pub namespace: String,
    /// The cluster.
    pub cluster: ClusterData,
    /// The application object.
    pub app: AppObject,
}

/// The cluster of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterData {
    /// Its name.
    pub name: String,
    /// Namespace of the object that stands for it; empty for the local cluster.
    pub namespace: String,
    /// Kind of that object; empty for the local cluster.
    pub kind: String,
}

/// The notification that reports a transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotificationData {
    /// Its name.
    pub name: String,
    /// Namespace of the Notification, or of the pipeline that defines it.
    pub namespace: String,
}

impl Data {
    /// The data of a recorded transition. `id` is its `webhook-id`; `labels` and `annotations` are the pipeline's.
    #[must_use]
    pub fn new(
        id: &str,
        spec: &DeliverySpec,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        notification_namespace: &str,
    ) -> Self {
        let target = spec.subject.target.clone().unwrap_or_default();
        Self {
            id: id.to_owned(),
            serial: spec.serial,
            type_: spec.type_,
            time: spec.time,
            severity: Severity::of(spec.type_),
            pipeline: PipelineData {
                name: spec.pipeline_ref.name.clone(),
                namespace: spec.pipeline_ref.namespace.clone(),
                uid: spec.pipeline_ref.uid.clone(),
                labels: labels.clone(),
                annotations: annotations.clone(),
            },
            environment: spec.subject.environment.clone(),
            target: TargetData {
                name: spec.subject.name.clone(),
                namespace: target.namespace,
                cluster: ClusterData { name: target.cluster, ..ClusterData::default() },
                app: target.app,
            },
            revision: spec.to.revision.clone(),
            running_revision: spec.to.current.clone().unwrap_or_default(),
            previous_revision: spec.from.current.clone().unwrap_or_default(),
            status: spec.to.status,
            previous_status: spec.from.status,
            reason: spec.to.reason.clone(),
            message: spec.to.message.clone(),
            drifted: spec.to.drifted,
            coalesced: spec.coalesced,
            notification: NotificationData { name: spec.notification.clone(), namespace: notification_namespace.to_owned() },
        }
    }

    /// A transition as it could be, to try a template with before anything happens. Where real ones are awkward it is too:
    /// the message of a failure has quotes, a line break and a letter beyond ASCII, what was removed has no revision, and
    /// there are no labels and annotations.
    #[must_use]
    pub fn sample(type_: TransitionType) -> Self {
        const OLD: &str = "main@sha1:9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21";
        const NEW: &str = "main@sha1:5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
        let state = |status, revision: &str, current: &str| State {
            status,
            revision: revision.to_owned(),
            current: Some(current.to_owned()).filter(|current| !current.is_empty()),
            ..State::default()
        };
        let ran = state(Status::Current, OLD, OLD);
        let mut failed = State { failed: true, ..state(Status::Failed, NEW, OLD) };
        let (from, to) = match type_ {
            TransitionType::Deployed => (ran, state(Status::Current, NEW, NEW)),
            TransitionType::Progressing => (ran, state(Status::InProgress, NEW, OLD)),
            TransitionType::Recovered => (failed, state(Status::Current, OLD, OLD)),
            TransitionType::Removed => (ran, state(Status::NotFound, "", "")),
            TransitionType::Failed => {
                "HealthCheckFailed".clone_into(&mut failed.reason);
                "timeout waiting for \"Deployment/team-a/podinfo\":\n1 of 3 replicas – not ready"
                    .clone_into(&mut failed.message);
                (ran, failed)
            }
        };
        let spec = DeliverySpec {
            notification: "deploys".to_owned(),
            pipeline_ref: PipelineRef {
                namespace: "team-a".to_owned(),
                name: "podinfo".to_owned(),
                uid: "5ae9d0c4-6c1b-4f0f-9d53-0d8c0a3f7b11".to_owned(),
            },
            subject: Subject {
                name: "prod/in-cluster/podinfo".to_owned(),
                environment: "prod".to_owned(),
                target: Some(SubjectTarget {
                    namespace: "podinfo".to_owned(),
                    cluster: "in-cluster".to_owned(),
                    app: AppObject {
                        api_version: "kustomize.toolkit.fluxcd.io/v1".to_owned(),
                        kind: "Kustomization".to_owned(),
                        name: "podinfo".to_owned(),
                    },
                }),
                ..Subject::default()
            },
            lane: "target/prod/in-cluster/podinfo".to_owned(),
            order: 1_763_711_234_567,
            serial: 1_763_711_234_567,
            type_,
            time: Time::constant(1_763_711_234, 567_000_000),
            from,
            to,
            coalesced: false,
        };
        Self::new("msg_5f3d2c1b0a9e8d7c", &spec, &BTreeMap::new(), &BTreeMap::new(), "team-a")
    }

    /// A sample of each type of transition.
    pub fn samples() -> impl Iterator<Item = Self> {
        TransitionType::ALL.into_iter().map(Self::sample)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn revisions_come_from_the_states_that_they_belong_to() {
        let revisions = |type_| {
            let data = Data::sample(type_);
            [data.revision, data.running_revision, data.previous_revision]
                .map(|r| r.chars().skip(10).take(3).collect::<String>())
        };
        assert_eq!(revisions(TransitionType::Deployed), ["5f3", "5f3", "9c1"]);
        assert_eq!(revisions(TransitionType::Failed), ["5f3", "9c1", "9c1"]);
        assert_eq!(revisions(TransitionType::Removed), ["", "", "9c1"]);
    }

    #[test]
    fn the_words_are_those_of_the_wire() {
        let value = serde_json::to_value(Data::sample(TransitionType::Failed)).unwrap();
        assert_eq!(value["type"], "Failed");
        assert_eq!(value["severity"], "error");
        assert_eq!(value["time"], "2025-11-21T07:47:14.567Z");
        assert_eq!(value["previousStatus"], "Current");
        assert_eq!(value["target"]["cluster"], json!({"name": "in-cluster", "namespace": "", "kind": ""}));
        assert_eq!(value["target"]["app"]["apiVersion"], "kustomize.toolkit.fluxcd.io/v1");
    }

    #[test]
    fn a_subject_without_a_target_has_empty_fields() {
        let spec = DeliverySpec {
            notification: "n".to_owned(),
            pipeline_ref: PipelineRef::default(),
            subject: Subject::default(),
            lane: "l".to_owned(),
            order: 1,
            serial: 1,
            type_: TransitionType::Deployed,
            time: Time::UNIX_EPOCH,
            from: State::default(),
            to: State::default(),
            coalesced: true,
        };
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let data = Data::new("i", &spec, &labels, &BTreeMap::new(), "ns");
        assert_eq!((data.target.app.kind.as_str(), data.pipeline.labels["team"].as_str()), ("", "a"));
        assert!(data.coalesced && data.notification.namespace == "ns");
    }
}
