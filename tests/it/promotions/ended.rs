//! How promotions end: the environment runs the revision, a later one replaces it, or what it belongs to is gone. A failed one can be
//! retried, and old ones are deleted.

use relaybook_api::promotion::{Phase, RETRY};
use relaybook_api::{Pipeline, Promotion};
use serde_json::json;

use super::Stage;
use crate::support::eventually;
use crate::support::world::promotions::{by_notification, is, is_for};

#[tokio::test]
async fn a_promotion_ends_with_its_environment_or_a_later_one() {
    let stage = Stage::new("promotions-ended").await;
    let world = &stage.world;
    let names = ["merged", "gone"];
    for name in names {
        stage.pipeline(name, by_notification(json!({"manual": true}))).await;
    }
    let _relaybook = stage.relaybook().await;
    for name in names {
        world.runs(&format!("{name}/dev"), "2").await;
        world.promotion(&format!("{name}/prod 2"), is_for(Phase::Pending, "WaitingApproval")).await;
    }
    stage.receiver.wait("/hook/prod/PromotionPending", names.len()).await;

    // Somebody declares the revision without an approval, and it does not run yet. Then a later revision comes.
    world.roll_out("merged-prod", "2").await;
    let merged = world.promotion("merged/prod 2", is_for(Phase::Merged, "AlreadyDeclared")).await;
    assert!(!merged.status.unwrap().succeeded, "it was not requested");
    world.runs("merged/dev", "3").await;
    world.promotion("merged/prod 2", is(Phase::Withdrawn)).await;
    // The environment is removed from the spec.
    let mut environments = serde_json::to_value(world.get_pipeline("gone").await.spec.environments).unwrap();
    environments.as_array_mut().unwrap().retain(|e| e["name"] != "prod");
    world.patch::<Pipeline>("gone", json!({"spec": {"environments": environments}})).await;
    world.promotion("gone/prod 2", is_for(Phase::Withdrawn, "EnvironmentGone")).await;
    for name in names {
        stage.fence(name).await;
    }
    // Steps that are no transition are Events.
    for (name, reason) in [("merged", "PromotionMerged"), ("merged", "PromotionWithdrawn"), ("gone", "PromotionWithdrawn")] {
        stage.event(name, reason).await;
    }
    stage
        .oracle()
        .promotions("merged", &["hook"], &["prod 2: Pending, Merged, Withdrawn", "prod 3: Pending"])
        .promotions("gone", &["hook"], &["prod 2: Pending, Withdrawn/EnvironmentGone"])
        .check()
        .await;
}

#[tokio::test]
async fn a_failed_promotion_is_retried_once_for_each_value_of_the_annotation() {
    let stage = Stage::new("promotions-retried").await;
    let Stage { world, receiver, .. } = &stage;
    stage.pipeline("shop", by_notification(json!({}))).await;
    let mut relaybook = stage.relaybook().await;
    world.runs("shop/dev", "2").await;
    let requested = stage.requested("shop/prod 2").await;
    world.mirrored(&requested).await;
    stage.world.grow_old(&requested).await;
    let failed = world.promotion("shop/prod 2", is_for(Phase::Failed, "NotRunning")).await;
    let message = failed.status.unwrap().message;
    assert!(message.contains("prod") && message.contains('1'), "it says what runs: {message}");
    receiver.wait("/hook/prod/PromotionFailed", 1).await;

    let retried = async |value: &str| {
        let failed = world.promotion("shop/prod 2", |_| true).await;
        world.annotate_promotion(&failed, RETRY, value).await;
        let acted_on = |p: &Promotion| p.status.as_ref().is_some_and(|s| s.retried.as_deref() == Some(value));
        world.promotion("shop/prod 2", |p| is(Phase::Requested)(p) && acted_on(p)).await
    };
    let again = retried("1").await;
    assert_eq!(again.status.as_ref().unwrap().attempts, 2);
    // The same value counts once, also after a restart.
    world.mirrored(&again).await;
    stage.world.grow_old(&again).await;
    let failed = world.promotion("shop/prod 2", is(Phase::Failed)).await;
    world.annotate_promotion(&failed, RETRY, "1").await;
    relaybook.restart().await;
    world.settled().await;
    stage.fence("shop").await;
    world.promotion("shop/prod 2", is(Phase::Failed)).await;
    retried("2").await;
    world.runs("shop/prod", "2").await;
    stage.finished("shop/prod 2").await;
    stage.fence("shop").await;
    let shop = "prod 2: Requested, Failed/NotRunning, Requested, Failed/NotRunning, Requested, Finished";
    stage.oracle().promotions("shop", &["hook"], &[shop]).check().await;
}

#[tokio::test]
async fn the_newest_ended_promotions_of_an_environment_are_kept() {
    let stage = Stage::new("promotions-kept").await;
    let world = &stage.world;
    stage.pipeline("shop", by_notification(json!({"retain": {"perEnvironment": 2}}))).await;
    let mut relaybook = stage.relaybook().await;
    for tag in ["2", "3", "4"] {
        world.runs("shop/dev", tag).await;
        stage.requested(&format!("shop/prod {tag}")).await;
        world.runs("shop/prod", tag).await;
        stage.finished(&format!("shop/prod {tag}")).await;
    }
    eventually("two are kept", async || {
        let kept: Vec<String> = world.promotions().await.into_iter().map(|p| p.spec.revision).collect();
        if kept == ["3", "4"] { Ok(()) } else { Err(format!("{kept:?}")) }
    })
    .await;
    // A deleted promotion is not created again.
    relaybook.kill9();
    relaybook.start_again().await;
    world.settled().await;
    stage.fence("shop").await;
    let lines = ["prod 2: Requested, Finished (deleted)", "prod 3: Requested, Finished", "prod 4: Requested, Finished"];
    stage.oracle().after_a_crash().promotions("shop", &["hook"], &lines).check().await;
}
