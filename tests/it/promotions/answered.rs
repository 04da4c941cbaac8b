//! What receivers answer to the request of a promotion reaches the promotion: while the request is tried again, when no receiver accepts it,
//! and when one accepts it after all.

use kube::ResourceExt as _;
use kube::api::ListParams;
use relaybook_api::delivery::TransitionType;
use relaybook_api::promotion::Phase;
use relaybook_api::{Delivery, Notification, Promotion};
use serde_json::{Value, json};

use super::Stage;
use crate::support::World;
use crate::support::receiver::Reply;
use crate::support::relaybook::command;
use crate::support::world::promotions::{by_notification, is, is_for};

const REQUEST: &str = "/hook/prod/PromotionRequested";

/// Settings with which a request is tried again soon.
fn soon() -> Value {
    json!({"delivery": {"retry": {"initial": "1s", "max": "1s"}}})
}

/// Returns the Deliveries that request promotions to `prod`.
async fn requests(world: &World) -> Vec<Delivery> {
    let requests = ListParams::default().labels("relaybook.dev/type=PromotionRequested");
    let mut all = world.api::<Delivery>().list(&requests).await.expect("listed").items;
    all.retain(|d| d.spec.subject.environment == "prod" && d.spec.type_ == TransitionType::PromotionRequested);
    all
}

fn has_succeeded(promotion: &Promotion) -> bool {
    promotion.status.as_ref().is_some_and(|status| status.succeeded)
}

#[tokio::test]
async fn a_request_that_no_receiver_accepts_fails_its_promotion_at_once() {
    let stage = Stage::new("promotions-answered").await;
    let Stage { world, receiver, .. } = &stage;
    world.patch::<Notification>("hook", json!({"spec": soon()})).await;
    stage.pipeline("shop", by_notification(json!({}))).await;
    receiver.always(REQUEST, Reply::status(503).body("busy"));
    let mut relaybook = stage.relaybook().await;

    world.runs("shop/dev", "2").await;
    let retrying = world.promotion("shop/prod 2", is_for(Phase::Requested, "RequestRetrying")).await;
    let message = retrying.status.as_ref().unwrap().message.clone();
    assert!(message.contains("Notification hook: 503 Service Unavailable: busy"), "{message}");
    assert!(!has_succeeded(&retrying), "no receiver has accepted it");
    // The workflow does not exist.
    receiver.always(REQUEST, Reply::status(404).body("no such workflow"));
    let failed = world.promotion("shop/prod 2", is_for(Phase::Failed, "RequestFailed")).await;
    let message = failed.status.as_ref().unwrap().message.clone();
    assert!(message.contains("Notification hook: 404 Not Found: no such workflow"), "{message}");
    let reported = receiver.wait("/hook/prod/PromotionFailed", 1).await[0].json();
    assert_eq!((&reported["why"], &reported["phase"]), (&json!("RequestFailed"), &json!("Failed")));
    let shown = world.mirrored(&failed).await;
    assert_eq!((shown.phase, shown.reason.as_str(), shown.succeeded), (Phase::Failed, "RequestFailed", false));

    // Nothing more happens by itself, also after a restart.
    relaybook.restart().await;
    world.settled().await;
    stage.fence("shop").await;
    let still = world.promotion("shop/prod 2", is(Phase::Failed)).await;
    assert_eq!(still.resource_version(), failed.resource_version());
    let tried = receiver.to(REQUEST).len();
    assert_eq!(requests(world).await.len(), 1);

    // The workflow exists now, and a person sends the request again.
    receiver.always(REQUEST, Reply::status(204));
    let sent = command(world, &["redeliver", "-n", &world.ns, "--parked"]).await;
    assert!(sent.status.success(), "{sent:?}");
    let accepted = world.promotion("shop/prod 2", is_for(Phase::Requested, "RequestAccepted")).await;
    let status = accepted.status.as_ref().unwrap();
    assert_eq!((status.attempts, status.succeeded), (1, true));
    world.mirrored(&accepted).await;
    world.runs("shop/prod", "2").await;
    let finished = stage.finished("shop/prod 2").await;
    stage.fence("shop").await;
    let received = receiver.to(REQUEST);
    assert_eq!(received.len(), tried + 1, "the person has sent one more, and nobody else");
    assert!(received.iter().all(|request| request.id() == received[0].id()));
    assert_eq!(requests(world).await.len(), 1);
    let steps = finished.status.unwrap().steps.into_iter().map(|step| step.phase);
    assert_eq!(steps.collect::<Vec<_>>(), [Phase::Requested, Phase::Failed, Phase::Requested, Phase::Finished]);
}
