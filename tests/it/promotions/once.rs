//! Each revision that comes to an environment is promoted to the next one, once for each time that it came there.

use std::collections::BTreeSet;

use relaybook_api::promotion::Phase;
use relaybook_api::{Pipeline, Promotion};
use serde_json::{Value, json};

use super::Stage;
use crate::support::eventually;
use crate::support::world::promotions::{TRANSITIONS, by_notification, is};

#[tokio::test]
async fn a_revision_passes_through_the_environments_in_their_order() {
    let stage = Stage::new("promotions-once").await;
    let Stage { world, receiver, .. } = &stage;
    // The policy of the pipeline holds for each environment that has none. `{}` turns it off.
    let environments = [("dev", Value::Null), ("staging", Value::Null), ("prod", Value::Null)];
    world.promoting("shop", &environments).await;
    world.set_policy("shop/gate", json!({})).await;
    world.patch::<Pipeline>("shop", json!({"spec": {"promotion": by_notification(json!({}))}})).await;
    let triggers: Vec<_> = TRANSITIONS.iter().chain(&["Deployed"]).map(|type_| json!({"type": type_})).collect();
    world.promotion_notification("all", receiver, json!({"triggers": triggers})).await;
    let _relaybook = stage.relaybook().await;
    world.promotion_pending("shop", Some("UpToDate")).await;

    world.runs("shop/dev", "2").await;
    stage.requested("shop/staging 2").await;
    world.promotion_fence("shop", &["hook", "all"]).await;
    let accepted = |p: &Promotion| p.status.as_ref().is_some_and(|status| status.succeeded);
    let first = world.promotion("shop/staging 2", accepted).await;
    assert_eq!(world.promotions().await.len(), 1, "staging does not run the revision, so prod does not get it");
    let status = first.status.clone().unwrap();
    assert_eq!((status.attempts, status.succeeded, status.manual, status.step), (1, true, false, 1));
    assert_eq!(serde_json::to_value(status.strategy).unwrap(), json!({"notification": {}}));
    let shown = eventually("the pipeline shows that a receiver has accepted it", async || {
        let shown = world.mirrored(&first).await;
        if shown.succeeded { Ok(shown) } else { Err(format!("{shown:?}")) }
    })
    .await;
    assert_eq!((shown.revision.as_str(), shown.phase), ("2", Phase::Requested));
    assert_eq!((shown.occasion, shown.last_attempted_time), (first.spec.occasion, status.last_attempted_time));

    let name = first.metadata.name.clone().unwrap();
    let told = receiver.wait("/hook/staging/PromotionRequested", 1).await[0].json();
    let text = |field: &str| told[field].as_str().unwrap_or_default().to_owned();
    let said = ["promotion", "phase", "strategy", "from", "previous", "promoted", "revision", "target"].map(text);
    assert_eq!(said, [name.as_str(), "Requested", "notification", "dev", "1", "2", "2", "staging/"]);
    assert_eq!(Some(text("uid")), first.metadata.uid);
    // The change that caused the promotion is before it in the log.
    let deployed = world.delivery("Deployed 2", |d| d.spec.notification == "all").await;
    let requested = world.delivery("PromotionRequested 2", |d| d.spec.notification == "all").await;
    assert!(deployed.spec.serial <= first.spec.occasion && first.spec.occasion < requested.spec.serial);
    assert_eq!((requested.spec.lane.as_str(), requested.spec.subject.name.as_str()), ("promotion/staging", "staging"));

    world.runs("shop/staging", "2").await;
    stage.finished("shop/staging 2").await;
    let second = stage.requested("shop/prod 2").await;
    assert_eq!((second.spec.from.as_str(), second.spec.previous.as_deref()), ("staging", Some("1")));
    world.runs("shop/prod", "2").await;
    stage.finished("shop/prod 2").await;
    world.promotion_fence("shop", &["hook", "all"]).await;
    stage
        .oracle()
        .promotions("shop", &["hook", "all"], &["staging 2: Requested, Finished", "prod 2: Requested, Finished"])
        .lane("shop/all/dev/shop-dev", &["Deployed 2"])
        .lane("shop/all/staging/shop-staging", &["Deployed 2"])
        .lane("shop/all/prod/shop-prod", &["Deployed 2"])
        .check()
        .await;
}

#[tokio::test]
async fn each_arrival_of_a_revision_is_one_occasion() {
    let stage = Stage::new("promotions-occasions").await;
    let names = ["storm", "back", "flap", "hand"];
    for name in names {
        stage.pipeline(name, by_notification(json!({}))).await;
    }
    let _relaybook = stage.relaybook().await;
    tokio::join!(storm(&stage), there_and_back(&stage), flapping(&stage), by_hand(&stage));
    for name in names {
        stage.fence(name).await;
    }
    stage
        .oracle()
        .any_promotions("storm", &["hook"])
        .promotions("back", &["hook"], &["prod 2: Requested, Withdrawn/SourceMoved", "prod 2: Requested"])
        .promotions("flap", &["hook"], &["prod 2: Requested"])
        .promotions("hand", &["hook"], &["prod 2: Requested, Finished"])
        .check()
        .await;
    let all = stage.world.promotions().await;
    let of = |name: &'static str| all.iter().filter(move |p| p.spec.pipeline_ref.name == name);
    let open = |p: &&Promotion| p.status.as_ref().and_then(|s| s.phase).is_none_or(|phase| !phase.is_ended());
    let left: Vec<_> = of("storm").filter(open).map(|p| p.spec.revision.as_str()).collect();
    assert_eq!(left, ["4"], "only the newest is open");
    let withdrawn = is(Phase::Withdrawn);
    assert!(of("storm").all(|p| p.spec.revision == "4" || withdrawn(p)), "{:#?}", of("storm").collect::<Vec<_>>());
    let occasions: BTreeSet<_> = of("back").map(|p| p.spec.occasion).collect();
    assert_eq!(occasions.len(), 2, "the revision came twice");
}

/// Three revisions within a second.
async fn storm(stage: &Stage) {
    for tag in ["2", "3", "4"] {
        stage.world.ship("storm-dev", tag).await;
    }
    stage.requested("storm/prod 4").await;
}

/// From 1 to 2, back to 1, and to 2 again.
async fn there_and_back(stage: &Stage) {
    let world = &stage.world;
    world.runs("back/dev", "2").await;
    let first = stage.requested("back/prod 2").await;
    world.runs("back/dev", "1").await;
    let withdrawn = world.promotion("back/prod 2", is(Phase::Withdrawn)).await;
    assert_eq!(withdrawn.metadata.uid, first.metadata.uid);
    world.runs("back/dev", "2").await;
    let second = stage.requested("back/prod 2").await;
    assert_ne!(second.metadata.name, first.metadata.name);
}

/// The revision fails and recovers ten times.
async fn flapping(stage: &Stage) {
    let world = &stage.world;
    world.runs("flap/dev", "2").await;
    stage.requested("flap/prod 2").await;
    for n in 0..10 {
        world.fail("flap-dev", &format!("no pods, {n}")).await;
        eventually("dev is not ready", async || {
            let dev = world.environment("flap/dev").await;
            if dev.targets[0].ready { Err(format!("{dev:?}")) } else { Ok(()) }
        })
        .await;
        world.finish("flap-dev").await;
        world.observed_at("flap", "2", &["flap-dev"]).await;
    }
}

/// Somebody rolls out another revision in the later environment.
async fn by_hand(stage: &Stage) {
    let world = &stage.world;
    world.runs("hand/dev", "2").await;
    stage.requested("hand/prod 2").await;
    world.runs("hand/prod", "2").await;
    stage.finished("hand/prod 2").await;
    world.runs("hand/prod", "3").await;
}
