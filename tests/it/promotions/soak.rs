//! With `after`, a promotion waits until the environment before has been ready for that long without interruption.

use std::time::Duration;

use relaybook_api::promotion::Phase;
use relaybook_api::{Promotion, Time};
use serde_json::json;

use super::Stage;
use crate::support::eventually;
use crate::support::world::promotions::{by_notification, is, is_for};

/// Maximum time until a promotion that soaks is requested.
const LONG: Duration = Duration::from_mins(3);

/// Returns when the promotion was requested.
fn requested_at(promotion: &Promotion) -> Time {
    let steps = promotion.status.as_ref().map(|s| s.steps.clone()).unwrap_or_default();
    steps.iter().find(|s| s.phase == Phase::Requested).expect("it was requested").time
}

/// Returns whether the first step of a promotion was to soak.
fn has_soaked(promotion: &Promotion) -> bool {
    let first = promotion.status.as_ref().and_then(|s| s.steps.first());
    first.is_some_and(|s| s.phase == Phase::Pending && s.reason == "Soaking")
}

#[tokio::test]
async fn a_promotion_soaks_without_interruption() {
    let stage = Stage::new("promotions-soak").await;
    let world = &stage.world;
    stage.pipeline("plain", by_notification(json!({"after": "8s"}))).await;
    // Longer, so that it still soaks when it is interrupted.
    stage.pipeline("broken", by_notification(json!({"after": "45s"}))).await;
    stage.pipeline("both", by_notification(json!({"after": "8s", "manual": true}))).await;
    stage.pipeline("later", by_notification(json!({"after": "1h"}))).await;
    let mut relaybook = stage.relaybook().await;
    for name in ["plain", "broken", "both", "later"] {
        world.ship(&format!("{name}-dev"), "2").await;
    }
    let soaks = world.promotion("broken/prod 2", is_for(Phase::Pending, "Soaking")).await;
    assert!(soaks.status.is_some_and(|s| s.step == 1 && !s.succeeded));
    // An interruption starts the time again.
    world.fail("broken-dev", "no pods").await;
    eventually("dev is not ready", async || {
        let ready = world.environment("broken/dev").await.targets[0].ready;
        if ready { Err("ready".to_owned()) } else { Ok(()) }
    })
    .await;
    world.promotion("plain/prod 2", has_soaked).await;
    let waits = world.promotion("both/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    world.promotion("later/prod 2", is_for(Phase::Pending, "Soaking")).await;
    // The time continues while Relaybook is stopped.
    relaybook.restart().await;
    world.finish("broken-dev").await;
    for (name, after) in [("plain", 8), ("broken", 45)] {
        let requested = world.promotion_within(LONG, &format!("{name}/prod 2"), is(Phase::Requested)).await;
        let dev = world.environment(&format!("{name}/dev")).await;
        let ready = dev.targets[0].last_transition_time.expect("it became ready");
        let soaked = requested_at(&requested).duration_since(ready);
        assert!(soaked.as_secs() >= after, "{name} soaked for {soaked}");
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
