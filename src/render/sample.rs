//! Transitions as they could be, to try a template with before anything happens.

use std::collections::BTreeMap;

use super::Data;
use crate::api::delivery::{AppObject, PipelineRef, Subject, SubjectTarget};
use crate::api::{DeliverySpec, State, Status, Time, TransitionType};

const OLD: &str = "main@sha1:9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21";
const NEW: &str = "main@sha1:5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
const SERIAL: i64 = 1_763_711_234_567;

impl Data {
    /// A sample of this type. Where real transitions are awkward it is too: the message of a failure has quotes, a line break
    /// and a letter beyond ASCII, what was removed has no revision, and there are no labels and annotations.
    #[must_use]
    pub fn sample(type_: TransitionType) -> Self {
        let (from, to) = states(type_);
        let spec = DeliverySpec {
            notification: "deploys".to_owned(),
            notification_uid: String::new(),
            pipeline_ref: PipelineRef {
                namespace: "team-a".to_owned(),
                name: "podinfo".to_owned(),
                uid: "5ae9d0c4-6c1b-4f0f-9d53-0d8c0a3f7b11".to_owned(),
            },
            subject: subject(),
            lane: "target/prod/in-cluster/podinfo".to_owned(),
            order: SERIAL,
            serial: SERIAL,
            type_,
            time: Time::constant(SERIAL / 1000, 567_000_000),
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

fn subject() -> Subject {
    Subject {
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
    }
}

/// From where to where a transition of this type goes.
fn states(type_: TransitionType) -> (State, State) {
    let state = |status, revision: &str, current: &str| State {
        status,
        revision: revision.to_owned(),
        current: Some(current.to_owned()).filter(|current| !current.is_empty()),
        ..State::default()
    };
    let ran = state(Status::Current, OLD, OLD);
    let failed = State {
        failed: true,
        reason: "HealthCheckFailed".to_owned(),
        message: "timeout waiting for \"Deployment/team-a/podinfo\":\n1 of 3 replicas – not ready".to_owned(),
        ..state(Status::Failed, NEW, OLD)
    };
    match type_ {
        TransitionType::Deployed => (ran, state(Status::Current, NEW, NEW)),
        TransitionType::Progressing => (ran, state(Status::InProgress, NEW, OLD)),
        TransitionType::Failed => (ran, failed),
        TransitionType::Recovered => (failed, ran),
        TransitionType::Removed => (ran, state(Status::NotFound, "", "")),
    }
}

#[cfg(test)]
mod tests {
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
}
