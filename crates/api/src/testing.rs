//! Values for the tests of other crates.

use crate::delivery::{PipelineRef, Subject};
use crate::{DeliverySpec, State, Time, TransitionType};

/// Returns a transition of pipeline `p1`, notification `deploys`, target `prod/in-cluster/podinfo`.
#[must_use]
pub fn spec(serial: i64) -> DeliverySpec {
    DeliverySpec {
        notification: "deploys".into(),
        notification_uid: "n1".into(),
        pipeline_ref: PipelineRef { namespace: "team-a".into(), name: "podinfo".into(), uid: "p1".into() },
        subject: Subject { name: "prod/in-cluster/podinfo".into(), environment: "prod".into(), ..Subject::default() },
        lane: "target/prod/in-cluster/podinfo".into(),
        order: serial,
        serial,
        type_: TransitionType::Deployed,
        time: Time::UNIX_EPOCH,
        from: State::default(),
        to: State::default(),
        coalesced: false,
        due: None,
        error: None,
        test: false,
    }
}
