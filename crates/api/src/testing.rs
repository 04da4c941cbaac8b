//! Values for the tests of other crates.

use std::cell::Cell;
use std::time::Duration;

use crate::delivery::{PipelineRef, Subject};
use crate::{DeliverySpec, State, Time, TransitionType};

thread_local! {
    static BOOT: Cell<Option<fn() -> Duration>> = const { Cell::new(None) };
}

/// Sets the clock of [`crate::since_boot`] for this thread. `None`: the clock of the system.
pub fn play_boot(clock: Option<fn() -> Duration>) {
    BOOT.set(clock);
}

pub(crate) fn played_boot() -> Option<Duration> {
    BOOT.get().map(|clock| clock())
}

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
