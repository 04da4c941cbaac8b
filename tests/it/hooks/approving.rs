//! Approvals that the hook accepts.

use k8s_openapi::api::core::v1::Secret;
use relaybook_api::promotion::Phase;
use serde_json::json;

use super::{KEY, Stage};
use crate::support::eventually;

#[tokio::test]
async fn a_signed_approval_starts_the_promotion() {
    let stage = Stage::new("hooks-approve").await;
    let (relaybook, hooks) = stage.relaybook().await;
    let waiting = stage.ship("2").await;
    let before = stage.promotion(&waiting.promotion).await;
    assert!(!before.spec.approved);
    stage.told(&["PromotionPending 2"]).await;

    let answer = stage.approve(hooks, &waiting, KEY).await;
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    let after = stage.promotion(&waiting.promotion).await;
    assert!(after.spec.approved, "it is written when the answer arrives");
    assert_eq!(after.metadata.annotations.unwrap()["relaybook.dev/approved-by"], "hook");
    let requested = stage.phase(&waiting.promotion, Phase::Requested).await;
    assert!(requested.status.unwrap().approval.is_some());
    stage.world.ship("live", "2").await;
    stage.phase(&waiting.promotion, Phase::Finished).await;
    stage.told(&["PromotionPending 2", "PromotionRequested 2", "PromotionFinished 2"]).await;
    let metrics = relaybook.metrics().await;
    assert_eq!(metrics["relaybook_hooks_total{kind=\"approval\",result=\"accepted\"}"], 1.0);
    assert_eq!(metrics["relaybook_api_writes_total{kind=\"promotion_hook\",result=\"ok\"}"], 1.0);
    for secret in [KEY, "sha256="] {
        assert!(!relaybook.log().contains(secret), "the log has {secret}");
    }
}

#[tokio::test]
async fn a_repeated_approval_is_answered_and_changes_nothing() {
    let stage = Stage::new("hooks-replay").await;
    let (_relaybook, hooks) = stage.relaybook().await;
    let first = stage.ship("2").await;
    let body = stage.body(&first);
    assert_eq!(stage.approve_with(hooks, &body, KEY).await.status, 204);
    stage.phase(&first.promotion, Phase::Requested).await;
    // The controller continues to write the phase of the promotion meanwhile.
    let approved = async || {
        let promotion = stage.promotion(&first.promotion).await;
        (promotion.metadata.generation, promotion.metadata.annotations, promotion.status.unwrap().approval)
    };
    let written = approved().await;
    assert_eq!(stage.approve_with(hooks, &body, KEY).await.status, 204);
    assert_eq!(approved().await, written);

    // The same revision waits again, for another occasion.
    stage.world.ship("web", "3").await;
    let other = stage.waits("shop", "3").await;
    stage.world.ship("web", "2").await;
    let second = stage.waits("shop", "2").await;
    assert_ne!(first.promotion, second.promotion);
    stage.refused(hooks, &body, &second).await;
    assert!(!stage.promotion(&second.promotion).await.spec.approved);
    let answer = stage.approve(hooks, &other, KEY).await;
    assert_eq!(answer.status, 409, "{answer:?}");
    stage.told(&["PromotionPending 2", "PromotionRequested 2", "PromotionPending 3", "PromotionPending 2"]).await;
}

#[tokio::test]
async fn keys_are_rotated_without_a_gap() {
    const NEW: &str = "a-new-key-of-32-bytes-0123456789";
    let stage = Stage::new("hooks-rotation").await;
    let (_relaybook, hooks) = stage.relaybook().await;
    let keys = async |patch: serde_json::Value| drop(stage.world.patch::<Secret>("approvals", patch).await);
    let waiting = stage.ship("2").await;
    assert_eq!(stage.approve(hooks, &waiting, NEW).await.status, 401);
    keys(json!({"stringData": {"hmac-key-2": NEW}})).await;
    // Approved by the new key.
    eventually("the new key is known", async || {
        let answer = stage.approve(hooks, &waiting, NEW).await;
        if answer.status == 204 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    assert_eq!(stage.approve(hooks, &waiting, KEY).await.status, 204, "the old key is right, too");
    keys(json!({"data": {"hmac-key": null}})).await;
    eventually("the old key is refused", async || {
        let answer = stage.approve(hooks, &waiting, KEY).await;
        if answer.status == 401 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    assert_eq!(stage.approve(hooks, &waiting, NEW).await.status, 204);
    // A key that is too short does not count.
    keys(json!({"data": null, "stringData": {"hmac-key": "0123456789abcde"}})).await;
    eventually("the new key is refused", async || {
        let answer = stage.approve(hooks, &waiting, NEW).await;
        if answer.status == 401 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    assert_eq!(stage.approve(hooks, &waiting, "0123456789abcde").await.status, 401);
    stage.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}
