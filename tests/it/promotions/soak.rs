//! With `after`, a promotion waits until the environment before has been ready for that long without interruption.

use std::time::Duration;

use pennant::api::promotion::Phase;
use pennant::api::{Promotion, Time};
use serde_json::json;

use super::Stage;
use crate::support::eventually;
use crate::support::world::promotions::{by_notification, is_for};

/// The time for which the environment must be ready.
const AFTER: Duration = Duration::from_secs(8);

/// Returns when the promotion was requested.
fn requested_at(promotion: &Promotion) -> Time {
    let steps = promotion.status.as_ref().map(|s| s.steps.clone()).unwrap_or_default();
    steps.iter().find(|s| s.phase == Phase::Requested).expect("it was requested").time
}

#[tokio::test]
async fn a_promotion_soaks_without_interruption() {
    let stage = Stage::new("promotions-soak").await;
    let world = &stage.world;
    stage.pipeline("plain", by_notification(json!({"after": "8s"}))).await;
    stage.pipeline("broken", by_notification(json!({"after": "8s"}))).await;
    stage.pipeline("both", by_notification(json!({"after": "8s", "manual": true}))).await;
    stage.pipeline("later", by_notification(json!({"after": "1h"}))).await;
    let mut pennant = stage.pennant().await;
    for name in ["plain", "broken", "both", "later"] {
        world.ship(&format!("{name}-dev"), "2").await;
    }
    // The time continues while Pennant is stopped.
    let soaks = world.promotion("plain/prod 2", is_for(Phase::Pending, "Soaking")).await;
    assert!(soaks.status.is_some_and(|s| s.step == 1 && !s.succeeded));
    world.promotion("broken/prod 2", is_for(Phase::Pending, "Soaking")).await;
    let waits = world.promotion("both/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    world.promotion("later/prod 2", is_for(Phase::Pending, "Soaking")).await;
    pennant.restart().await;
    // An interruption starts the time again.
    world.fail("broken-dev", "no pods").await;
    eventually("dev is not ready", async || {
        let ready = world.environment("broken/dev").await.targets[0].ready;
        if ready { Err("ready".to_owned()) } else { Ok(()) }
    })
    .await;
    world.finish("broken-dev").await;
    for name in ["plain", "broken"] {
        let requested = stage.requested(&format!("{name}/prod 2")).await;
        let dev = world.environment(&format!("{name}/dev")).await;
        let ready = dev.targets[0].last_transition_time.expect("it became ready");
        let soaked = requested_at(&requested).duration_since(ready);
        assert!(soaked.as_millis() >= i128::try_from(AFTER.as_millis()).unwrap(), "{name} soaked for {soaked}");
    }
    // The approval comes first, and the time runs meanwhile.
    world.approve(&waits).await;
    stage.requested("both/prod 2").await;
    // A promotion that only soaks is not reported. If it then needs an approval, that is.
    world.set_policy("later/prod", by_notification(json!({"after": "1h", "manual": true}))).await;
    let waits = world.promotion("later/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    world.approve(&waits).await;
    world.promotion("later/prod 2", is_for(Phase::Pending, "Soaking")).await;
    world.promotion_pending("later", Some("Soaking")).await;
    for name in ["plain", "broken", "both", "later"] {
        stage.fence(name).await;
    }
    stage
        .oracle()
        .promotions("plain", &["hook"], &["prod 2: Pending/Soaking, Requested"])
        .promotions("broken", &["hook"], &["prod 2: Pending/Soaking, Requested"])
        .promotions("both", &["hook"], &["prod 2: Pending, Requested"])
        .promotions("later", &["hook"], &["prod 2: Pending/Soaking, Pending"])
        .check()
        .await;
}
