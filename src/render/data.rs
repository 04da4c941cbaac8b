//! What templates (and `when` expressions) see of a transition.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::delivery::AppObject;
use crate::api::{DeliverySpec, Status, Time, TransitionType};

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
    /// How many earlier transitions of this target were not sent because this one was to follow.
    pub superseded: i64,
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
            superseded: 0,
            notification: NotificationData { name: spec.notification.clone(), namespace: notification_namespace.to_owned() },
        }
    }
}

#[cfg(test)]
impl Data {
    /// With no parameters.
    pub(super) fn values(&self) -> super::Values {
        super::Values::new(self, &super::Parameters::default()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::State;
    use crate::api::delivery::{PipelineRef, Subject};

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
            notification_uid: String::new(),
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
