//! Tests triggers with a condition (`when`): matching transitions are sent, an invalid expression is reported, and a delivery whose
//! expression cannot be evaluated is parked.

use kube::ResourceExt as _;
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::{Delivery, Notification, Outcome, Pipeline};
use serde_json::{Value, json};

use crate::support::proxy::Call;
use crate::support::relaybook::Options;
use crate::support::{Fault, Oracle, Proxy, Receiver, Relaybook, World};

/// Returns triggers for deployments under a condition, and for the fence.
fn deployed_when(condition: &str) -> Value {
    json!({"triggers": [
        {"type": "Deployed", "environments": ["dev"], "when": condition},
        {"type": "Deployed", "environments": ["fence"]},
    ]})
}

/// Starts Relaybook with pipeline `shop` (`dev/web`) and these notifications.
async fn stage(ns: &str, notifications: &[(&str, &str)]) -> (World, Receiver, Relaybook) {
    let world = World::new(ns).await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    for (name, condition) in notifications {
        world.notification(name, &receiver, deployed_when(condition)).await;
    }
    let relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    for (name, _) in notifications {
        world.cursor("shop", name).await;
    }
    (world, receiver, relaybook)
}

#[tokio::test]
async fn only_matching_transitions_are_recorded_and_an_invalid_condition_blocks_only_its_notification() {
    let all = [("broken", "revison == '2'"), ("hook", "revision == '2'")];
    let (world, receiver, _relaybook) = stage("conditions-broken", &all).await;
    let ready = world.condition("broken", "Ready", |c| c.status == ConditionStatus::False).await;
    assert_eq!(ready.reason, "InvalidExpression");
    assert_eq!(ready.message, "spec.triggers[0].when: there is no revison; did you mean revision?");
    assert_eq!(world.warning("broken", "InvalidExpression").await, ready.message);
    world.ship("web", "2").await;
    receiver.wait("/hook/web", 1).await;
    // This transition does not match.
    world.ship("web", "3").await;
    world.observed_at("shop", "3", &["web"]).await;
    world.fence("shop", &["hook"]).await;
    assert!(receiver.to("/broken/web").is_empty());
    // Transitions that occurred in the meantime are sent after the expression is fixed.
    world.patch::<Notification>("broken", json!({"spec": deployed_when("revision == '2'")})).await;
    receiver.wait("/broken/web", 1).await;
    world.fence("shop", &["hook", "broken"]).await;
    let lanes = Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]);
    lanes.lane("shop/broken/dev/web", &["Deployed 2"]).check().await;
}

#[tokio::test]
async fn a_condition_that_cannot_be_evaluated_parks_the_delivery() {
    let world = World::new("conditions-parked").await;
    let (receiver, proxy) = (Receiver::start(), Proxy::start(&world.kubeconfig, "conditions-parked").await);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, deployed_when("pipeline.labels.team == 'red'")).await;
    let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(&world) };
    let mut relaybook = Relaybook::with(&world, options).await;
    world.settled().await;
    let error = r#"there is no "team"; check has() first"#;
    let is_parked = |d: &Delivery| {
        let status = d.status.clone().unwrap_or_default();
        status.outcome == Some(Outcome::Parked) && status.reason.as_deref() == Some("ExpressionFailed")
    };
    // Relaybook is killed between recording the delivery and parking it.
    let outcome = proxy.rule(Call::is_outcome, Fault::LoseRequest);
    world.ship("web", "2").await;
    proxy.hit(outcome, 1).await;
    world.delivery("Deployed 2", |d| d.status.as_ref().is_none_or(|s| s.outcome.is_none())).await;
    relaybook.kill9();
    proxy.remove(outcome);
    relaybook.start_again().await;
    let parked = world.delivery("Deployed 2", is_parked).await;
    let status = parked.status.clone().unwrap();
    assert_eq!((parked.spec.error.as_deref(), status.error.as_deref(), status.attempts), (Some(error), Some(error), 0));
    assert!(world.warning("hook", "DeliveryParked").await.contains(error));
    // With the label, the condition can be evaluated.
    world.patch::<Pipeline>("shop", json!({"metadata": {"labels": {"team": "red"}}})).await;
    world.settled().await;
    world.ship("web", "3").await;
    receiver.wait("/hook/web", 1).await;
    let annotation = json!({"metadata": {"annotations": {"relaybook.dev/redeliver": "1"}}});
    world.patch::<Delivery>(&parked.name_any(), annotation).await;
    let requests = receiver.wait("/hook/web", 2).await;
    assert_eq!(["3", "2"], [0, 1].map(|at| requests[at].json()["revision"].as_str().unwrap().to_owned()));
    world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered))).await;
    world.fence("shop", &["hook"]).await;
    assert_eq!(receiver.to("/hook/web").len(), 2);
}
