//! What people do with promotions: start one, delete one, restore one from a backup, and look at them.

use kube::ResourceExt as _;
use relaybook_api::Promotion;
use relaybook_api::promotion::Phase;
use serde_json::json;

use super::Stage;
use crate::support::relaybook::items;
use crate::support::world::promotions::{by_notification, is, is_for};

#[tokio::test]
async fn a_deleted_promotion_is_created_again_only_on_request() {
    let stage = Stage::new("promotions-deleted").await;
    let world = &stage.world;
    stage.pipeline("shop", by_notification(json!({}))).await;
    stage.pipeline("waits", by_notification(json!({"manual": true}))).await;
    let mut relaybook = stage.relaybook().await;
    world.runs("shop/dev", "2").await;
    world.runs("waits/dev", "2").await;
    let open = stage.requested("shop/prod 2").await;
    let waits = world.promotion("waits/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    for promotion in [&open, &waits] {
        world.mirrored(promotion).await;
    }
    stage.receiver.wait("/hook/prod/PromotionRequested", 1).await;
    stage.receiver.wait("/hook/prod/PromotionPending", 1).await;
    for promotion in [&open, &waits] {
        world.delete::<Promotion>(&promotion.name_any()).await;
    }
    // Its name is still in the status of the environment, also after a restart.
    stage.fence("shop").await;
    relaybook.restart().await;
    world.settled().await;
    for name in ["shop", "waits"] {
        stage.fence(name).await;
    }
    assert!(world.promotions().await.is_empty());
    let shown = world.environment("shop/prod").await.promotion.expect("it is in the status");
    assert_eq!((shown.name, shown.taken), (open.name_any(), 1));
    assert_eq!(world.environment("waits/prod").await.waiting_approval, None, "nothing waits any more");

    let (code, out, words) = stage.world.command(&["promote", "shop", "prod"]).await;
    assert_eq!(code, Some(0), "{out}{words}");
    let again = stage.requested("shop/prod 2").await;
    assert_eq!((again.spec.request, again.spec.occasion), (1, open.spec.occasion));
    assert!(again.name_any() == format!("{}-r1", open.name_any()) && out.contains(&again.name_any()), "{out}");
    world.runs("shop/prod", "2").await;
    stage.finished("shop/prod 2").await;
    // There is nothing to promote.
    let (code, out, words) = stage.world.command(&["promote", "shop", "prod"]).await;
    assert!(code == Some(1) && words.contains("prod"), "{out}{words}");
    stage.fence("shop").await;
    stage
        .oracle()
        .promotions("shop", &["hook"], &["prod 2: Requested (deleted)", "prod 2: Requested, Finished"])
        .promotions("waits", &["hook"], &["prod 2: Pending (deleted)"])
        .check()
        .await;
}

#[tokio::test]
async fn a_restored_promotion_requests_nothing_a_second_time() {
    let stage = Stage::new("promotions-restored").await;
    let world = &stage.world;
    for name in ["open", "done"] {
        stage.pipeline(name, by_notification(json!({}))).await;
    }
    let mut relaybook = stage.relaybook().await;
    let mut saved = Vec::new();
    for name in ["open", "done"] {
        world.runs(&format!("{name}/dev"), "2").await;
        let requested = stage.requested(&format!("{name}/prod 2")).await;
        assert_eq!(requested.labels().get("velero.io/exclude-from-backup").map(String::as_str), Some("true"));
        saved.push(requested);
    }
    world.runs("done/prod", "2").await;
    let finished = stage.finished("done/prod 2").await;
    world.mirrored(&finished).await;
    world.mirrored(&saved[0]).await;
    stage.receiver.wait("/hook/prod/PromotionFinished", 1).await;
    stage.receiver.wait("/hook/prod/PromotionRequested", 2).await;

    relaybook.stop().await;
    for promotion in &saved {
        // A tool that does not restore the status creates a new object.
        world.delete::<Promotion>(&promotion.name_any()).await;
        let metadata = json!({"name": promotion.name_any(), "labels": promotion.labels()});
        world.create::<Promotion>(json!({"metadata": metadata, "spec": promotion.spec})).await;
    }
    relaybook.start_again().await;
    world.settled().await;
    for name in ["open", "done"] {
        world.promotion(&format!("{name}/prod 2"), is(Phase::Withdrawn)).await;
        stage.fence(name).await;
    }
    assert_eq!(stage.receiver.to("/hook/prod/PromotionRequested").len(), 2);
    stage
        .oracle()
        .promotions("open", &["hook"], &["prod 2: Requested (deleted)", "prod 2: rejected NotIndicated"])
        .promotions("done", &["hook"], &["prod 2: Requested, Finished (deleted)", "prod 2: rejected NotIndicated"])
        .check()
        .await;
}

#[tokio::test]
async fn the_commands_show_what_is_promoted_and_why() {
    let stage = Stage::new("promotions-shown").await;
    let world = &stage.world;
    stage.pipeline("shop", by_notification(json!({"manual": true, "timeout": "2h"}))).await;
    let _relaybook = stage.relaybook().await;
    let (code, out, words) = stage.world.command(&["promotions"]).await;
    assert!(code == Some(0) && out.lines().count() <= 1, "there are none: {out}{words}");
    world.runs("shop/dev", "2").await;
    let waits = world.promotion("shop/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    world.mirrored(&waits).await;

    let (code, out, words) = stage.world.command(&["promotions"]).await;
    let name = waits.name_any();
    let line = out.lines().find(|line| line.contains(&name)).unwrap_or_else(|| panic!("{out}{words}"));
    assert!(code == Some(0) && ["prod", "2", "Pending", "WaitingApproval"].iter().all(|word| line.contains(word)), "{out}");
    let (code, out, words) = stage.world.command(&["promotions", "pipeline/shop", "-o", "name"]).await;
    assert_eq!((code, out), (Some(0), format!("promotion.relaybook.dev/{name}\n")), "{words}");
    let (code, out, words) = stage.world.command(&["promotions", "-o", "json"]).await;
    let rows = items(out.as_bytes());
    assert_eq!((code, rows.len()), (Some(0), 1), "{words}");
    assert_eq!((&rows[0]["name"], &rows[0]["revision"], &rows[0]["phase"]), (&json!(name), &json!("2"), &json!("Pending")));
    let (code, out, words) = stage.world.command(&["explain", "shop"]).await;
    assert!(code == Some(0) && out.contains("promotion") && out.contains("2h"), "the policy of prod: {out}{words}");

    // What cannot be promoted or approved is refused with a reason.
    for (args, word, expected) in [
        (["promote", "shop", "dev"], "dev", 1),
        (["promote", "shop", "nowhere"], "nowhere", 1),
        (["promote", "nothing", "prod"], "nothing", 5),
        (["approve", "shop", "nowhere"], "nowhere", 1),
        (["approve", "nothing", "prod"], "nothing", 5),
    ] {
        let (code, out, words) = stage.world.command(&args).await;
        assert!(code == Some(expected) && words.contains(word), "{args:?}: {code:?} {out}{words}");
    }
    assert_eq!(world.promotions().await.len(), 1);
    let (code, out, words) = stage.world.command(&["approve", "pipeline/shop", "prod"]).await;
    assert!(code == Some(0) && out.contains(&name), "{out}{words}");
    stage.requested("shop/prod 2").await;
    stage.fence("shop").await;
    stage.oracle().promotions("shop", &["hook"], &["prod 2: Pending, Requested"]).check().await;
}
