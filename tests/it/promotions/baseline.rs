//! What was so at first sight is not promoted: not at the first installation, not after a status or a pipeline was lost, and not after an
//! upgrade from a version without promotions. A person can start such a promotion.

use kube::api::{Api, Patch, PatchParams};
use relaybook_api::promotion::Phase;
use relaybook_api::{Pipeline, Promotion};
use serde_json::{Value, json};

use super::Stage;
use crate::support::Relaybook;
use crate::support::relaybook::Options;
use crate::support::world::promotions::{by_notification, is, is_for, promoting};

#[tokio::test]
async fn a_difference_at_the_first_installation_is_promoted_only_on_request() {
    let stage = Stage::new("promotions-first").await;
    let world = &stage.world;
    stage.pipeline("shop", by_notification(json!({}))).await;
    world.ship("shop-dev", "2").await;
    let _relaybook = stage.relaybook().await;
    let pending = world.promotion_pending("shop", Some("Baseline")).await.expect("it is present");
    assert!(pending.message.contains("relaybook promote shop prod"), "{}", pending.message);
    stage.fence("shop").await;
    assert!(world.promotions().await.is_empty());

    let (code, out, words) = stage.world.command(&["promote", "shop", "prod"]).await;
    assert_eq!(code, Some(0), "{out}{words}");
    let asked = stage.requested("shop/prod 2").await;
    assert_eq!((asked.spec.request, asked.spec.occasion), (1, 0));
    let name = asked.metadata.name.unwrap();
    assert!(name.starts_with("shop-prod-") && name.ends_with("-0-r1") && out.contains(&name), "{name}: {out}");
    world.runs("shop/prod", "2").await;
    stage.finished("shop/prod 2").await;
    // What changes from now on is promoted.
    world.runs("shop/dev", "3").await;
    stage.requested("shop/prod 3").await;
    stage.fence("shop").await;
    let lines = ["prod 2: Requested, Finished", "prod 3: Requested"];
    stage.oracle().promotions("shop", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_lost_status_or_pipeline_promotes_nothing_and_withdraws_nothing_at_the_same_revision() {
    let stage = Stage::new("promotions-lost-status").await;
    let world = &stage.world;
    for name in ["open", "ahead", "again"] {
        stage.pipeline(name, by_notification(json!({}))).await;
    }
    let mut relaybook = stage.relaybook().await;
    for name in ["open", "ahead", "again"] {
        world.runs(&format!("{name}/dev"), "2").await;
        let requested = stage.requested(&format!("{name}/prod 2")).await;
        world.mirrored(&requested).await;
    }
    world.runs("ahead/prod", "2").await;
    let finished = stage.finished("ahead/prod 2").await;
    world.mirrored(&finished).await;
    stage.receiver.wait("/hook/prod/PromotionFinished", 1).await;
    stage.receiver.wait("/hook/prod/PromotionRequested", 3).await;

    relaybook.stop().await;
    world.ship("ahead-dev", "3").await;
    let nothing = Patch::Merge(json!({"status": null}));
    for name in ["open", "ahead"] {
        world.api::<Pipeline>().patch_status(name, &PatchParams::default(), &nothing).await.expect("taken");
    }
    // This pipeline is restored from a backup: it is a new object with the same name, and has no status.
    world.delete::<Pipeline>("again").await;
    let environments = [("dev", Value::Null), ("prod", by_notification(json!({})))];
    world.create::<Pipeline>(promoting(&world.ns, "again", &environments)).await;
    relaybook.start_again().await;
    world.settled().await;

    for name in ["ahead", "again"] {
        let pending = world.promotion_pending(name, Some("Baseline")).await.expect("it is present");
        assert!(pending.message.contains(&format!("relaybook promote {name} prod")), "{}", pending.message);
    }
    world.promotion("again/prod 2", is_for(Phase::Withdrawn, "PipelineGone")).await;
    let open = world.promotion("open/prod 2", is(Phase::Requested)).await;
    assert_eq!(world.mirrored(&open).await.taken, 1, "its steps count as taken");
    for name in ["open", "ahead", "again"] {
        stage.fence(name).await;
    }
    assert_eq!(stage.receiver.to("/hook/prod/PromotionRequested").len(), 3, "nothing is requested again");
    world.runs("open/prod", "2").await;
    stage.finished("open/prod 2").await;
    stage.fence("open").await;
    stage
        .oracle()
        .promotions("open", &["hook"], &["prod 2: Requested, Finished"])
        .promotions("ahead", &["hook"], &["prod 2: Requested, Finished"])
        .promotions("again", &["hook"], &["prod 2: Requested, Withdrawn/PipelineGone"])
        .check()
        .await;
}

#[tokio::test]
async fn an_upgrade_promotes_nothing_of_the_past_and_a_rollback_keeps_promotions() {
    let stage = Stage::new("promotions-upgrade").await;
    let world = &stage.world;
    let triggers = json!([{"type": "Deployed"}, {"type": "PromotionRequested"}, {"type": "PromotionFinished"}]);
    world.promotion_notification("all", &stage.receiver, json!({"triggers": triggers})).await;
    stage.pipeline("shop", by_notification(json!({}))).await;
    let before = Options { controllers: "pipeline,dispatch", ..Options::of(world) };
    let mut old = Relaybook::with(world, before.clone()).await;
    world.settled().await;
    world.cursor("shop", "all").await;
    old.stop().await;
    // A change that the dispatcher has not read when the new version starts.
    let mut observer = Relaybook::with(world, Options { controllers: "pipeline", ..Options::of(world) }).await;
    world.runs("shop/dev", "2").await;
    observer.stop().await;
    forget(world.api(), "shop").await;

    let mut new = stage.relaybook().await;
    world.promotion_pending("shop", Some("Baseline")).await;
    world.delivery("Deployed 2", |d| d.spec.subject.environment == "dev").await;
    world.promotion_fence("shop", &["hook", "all"]).await;
    assert!(world.promotions().await.is_empty());
    world.runs("shop/dev", "3").await;
    stage.requested("shop/prod 3").await;
    // The receiver has accepted the request, so nothing more is written.
    let requested = world.promotion("shop/prod 3", |p| p.status.as_ref().is_some_and(|status| status.succeeded)).await;
    world.mirrored(&requested).await;
    new.stop().await;

    // The version before keeps the promotions, and does nothing with them.
    let mut old = Relaybook::with(world, before).await;
    world.settled().await;
    world.runs("shop/prod", "3").await;
    world.runs("shop/dev", "4").await;
    world.fence("shop", &["hook", "all"]).await;
    let kept = world.api::<Promotion>().get(requested.metadata.name.as_deref().unwrap()).await.expect("it is kept");
    assert_eq!((kept.status, world.promotions().await.len()), (requested.status, 1));
    old.stop().await;

    let _new = stage.relaybook().await;
    // This was observed by the version with promotions in the log, so it counts.
    stage.requested("shop/prod 4").await;
    world.promotion("shop/prod 3", |p| p.status.as_ref().is_some_and(|s| s.phase.is_some_and(Phase::is_ended))).await;
    world.promotion_fence("shop", &["hook", "all"]).await;
    stage
        .oracle()
        .any_promotions("shop", &["hook", "all"])
        .lane("shop/all/dev/shop-dev", &["Deployed 2", "Deployed 3", "Deployed 4"])
        .lane("shop/all/prod/shop-prod", &["Deployed 3"])
        .check()
        .await;
}

/// Removes what a version without promotions does not write from the status of a pipeline.
async fn forget(api: Api<Pipeline>, name: &str) {
    let status = api.get(name).await.expect("the pipeline is there").status.expect("it was observed");
    let mut status = serde_json::to_value(status).expect("JSON");
    for environment in status["environments"].as_array_mut().expect("a list") {
        for field in ["promotion", "waitingApproval"] {
            environment.as_object_mut().expect("an object").remove(field);
        }
        if let Some(settled) = environment["settled"].as_object_mut() {
            for field in ["reached", "members"] {
                settled.remove(field);
            }
        }
    }
    let conditions = status["conditions"].as_array().expect("a list").iter();
    let conditions: Vec<_> = conditions.filter(|c| c["type"] != "PromotionPending").cloned().collect();
    let fields = json!({
        "environments": status["environments"], "conditions": conditions, "settled": {"reached": null, "members": null},
    });
    let patch = Patch::Merge(json!({"status": fields}));
    api.patch_status(name, &PatchParams::default(), &patch).await.expect("status patched");
}
