//! No step is lost: while the pipeline controller is down, a promotion makes no more steps than its status can hold. Later all of them are
//! in the log, in order.

use relaybook_api::Promotion;
use relaybook_api::promotion::{MAX_STEPS, Phase, RETRY};
use serde_json::json;

use super::Stage;
use crate::support::Relaybook;
use crate::support::relaybook::Options;
use crate::support::world::promotions::{by_notification, is};

#[tokio::test]
async fn a_promotion_waits_until_its_oldest_step_is_in_the_log() {
    let stage = Stage::new("promotions-steps").await;
    let world = &stage.world;
    stage.pipeline("shop", by_notification(json!({}))).await;
    stage.pipeline("other", by_notification(json!({}))).await;
    let _dispatcher = Relaybook::with(world, Options { controllers: "dispatch", ..Options::of(world) }).await;
    let mut observer = Relaybook::with(world, Options { controllers: "pipeline", ..Options::of(world) }).await;
    let mut promoter = Relaybook::with(world, Options { controllers: "promote", ..Options::of(world) }).await;
    world.settled().await;
    world.runs("shop/dev", "2").await;
    let first = stage.requested("shop/prod 2").await;
    world.mirrored(&first).await;
    // This pipeline shows later that the controller has looked at everything.
    promoter.stop().await;
    world.runs("other/dev", "2").await;
    observer.stop().await;
    promoter.start_again().await;
    stage.requested("other/prod 2").await;

    // Step 1 is in the log. Steps 2 to 9 are not.
    let at = |step: usize| move |p: &Promotion| p.status.as_ref().is_some_and(|s| usize::try_from(s.step) == Ok(step));
    for round in 1..=MAX_STEPS / 2 {
        let requested = world.promotion("shop/prod 2", is(Phase::Requested)).await;
        stage.world.grow_old(&requested).await;
        let failed = world.promotion("shop/prod 2", at(2 * round)).await;
        assert!(is(Phase::Failed)(&failed), "{failed:#?}");
        world.annotate_promotion(&failed, RETRY, &round.to_string()).await;
        world.promotion("shop/prod 2", at(2 * round + 1)).await;
    }
    let full = world.promotion("shop/prod 2", at(MAX_STEPS + 1)).await;
    // The next step would remove step 2, which is not in the log yet.
    stage.world.grow_old(&full).await;
    promoter.restart().await;
    let other = world.promotion("other/prod 2", is(Phase::Requested)).await;
    stage.world.grow_old(&other).await;
    world.promotion("other/prod 2", is(Phase::Failed)).await;
    let waits = world.promotion("shop/prod 2", |_| true).await;
    let status = waits.status.as_ref().unwrap();
    assert_eq!((status.phase, status.steps[0].step), (Some(Phase::Requested), 2), "{status:?}");

    // The pipeline controller is back: everything is in the log, and the promotion continues.
    observer.start_again().await;
    let failed = world.promotion("shop/prod 2", at(MAX_STEPS + 2)).await;
    assert!(is(Phase::Failed)(&failed));
    world.mirrored(&failed).await;
    for name in ["shop", "other"] {
        stage.fence(name).await;
    }
    let line = format!("prod 2: {}", ["Requested, Failed"; MAX_STEPS / 2 + 1].join(", "));
    stage
        .oracle()
        .promotions("shop", &["hook"], &[line.as_str()])
        .promotions("other", &["hook"], &["prod 2: Requested, Failed"])
        .check()
        .await;
}
