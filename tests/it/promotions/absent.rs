//! A promotion to an environment whose target does not exist goes on, and says so from the beginning. The target can appear later.

use relaybook_api::promotion::Phase;
use relaybook_api::{Pipeline, Promotion};
use serde_json::{Value, json};

use super::Stage;
use crate::support::relaybook::command;
use crate::support::world::promotions::{by_notification, is_for, promoting};

const MISSING: &str = "; a target is missing: Deployment shop-prd does not exist in namespace promotions-missing-target";

fn says(promotion: &Promotion) -> String {
    promotion.status.as_ref().map(|status| status.message.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_promotion_to_a_target_that_does_not_exist_says_so() {
    let stage = Stage::new("promotions-missing-target").await;
    let Stage { world, receiver, .. } = &stage;
    // The name in the spec is misspelt.
    let environments = [("dev", Value::Null), ("prod", by_notification(json!({"manual": true})))];
    world.deploy_environments("shop", &environments).await;
    let mut shop = promoting(&world.ns, "shop", &environments);
    shop["spec"]["environments"][1]["targets"][0]["appRef"]["name"] = json!("shop-prd");
    world.create::<Pipeline>(shop).await;
    let notification = json!({"spec": {"template": {"inline": {"body": r#"{"message": "{{message}}"}"#}}}});
    world.patch::<relaybook_api::Notification>("hook", notification).await;
    let relaybook = crate::support::Relaybook::start(world).await;
    world.observed("shop").await;

    world.ship("shop-dev", "2").await;
    let waits = world.promotion("shop/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    assert!(says(&waits).contains(MISSING), "{}", says(&waits));
    let condition = world.promotion_pending("shop", Some("WaitingApproval")).await.unwrap();
    assert!(condition.message.contains(MISSING), "{}", condition.message);
    let message = |request: &crate::support::receiver::Request| request.json()["message"].as_str().unwrap().to_owned();
    let absent = ". A target is missing: Deployment shop-prd does not exist in namespace promotions-missing-target";
    let asked = message(&receiver.wait("/hook/prod/PromotionPending", 1).await[0]);
    assert!(asked.contains(absent), "{asked}");
    let explained = command(world, &["explain", "shop", "-n", &world.ns, "--allow-http"]).await;
    let text = String::from_utf8(explained.stdout).unwrap();
    assert!(text.lines().any(|line| line.starts_with("# promotion from dev to prod") && line.contains(MISSING)), "{text}");

    world.approve(&waits).await;
    let requested = stage.requested("shop/prod 2").await;
    assert_eq!(requested.spec.previous, None, "nothing ran there");
    assert!(says(&requested).contains(MISSING), "{}", says(&requested));
    let told = message(&receiver.wait("/hook/prod/PromotionRequested", 1).await[0]);
    assert!(told.contains(absent), "{told}");
    // It appears, and runs another revision. Then nothing is missing, and the promotion finishes as usual.
    world.deploy("shop-prd", "1").await;
    world.promotion("shop/prod 2", |p| !says(p).contains("missing")).await;
    world.ship("shop-prd", "2").await;
    stage.finished("shop/prod 2").await;
    drop(relaybook);
}
