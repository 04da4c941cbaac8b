//! Edits of layers while deliveries are pending: the deliveries follow the edits in order, and none is lost or repeated.

use relaybook_api::Outcome;
use serde_json::json;

use super::{begun, own, reason, relay, shop, start, to, told};
use crate::support::receiver::Gate;
use crate::support::{Oracle, Receiver, Reply, World};

#[tokio::test]
async fn pending_deliveries_follow_added_edited_and_removed_layers() {
    let world = World::new("layers-follow").await;
    let all: Vec<_> = (0..4).map(|_| Receiver::start()).collect();
    let [first, second, base, last] = &all[..] else { unreachable!("four") };
    for receiver in [first, second] {
        receiver.always("/hook/web", Reply::status(503));
    }
    world.deploy("web", "1").await;
    world.deploy("api", "1").await;
    // By its schedule, a failed attempt would be retried after ten minutes. An edit retries it at once.
    world.notification("hook", base, json!({"delivery": {"retry": {"initial": "10m", "max": "10m"}}})).await;
    shop(&world, &["dev/web", "dev/api"], &[("dev/web", to("hook", first, "/hook/web"))]).await;
    let _relaybook = start(&world).await;
    let ship = async |tag: &str| {
        for app in ["web", "api"] {
            world.ship(app, tag).await;
            world.observed_at("shop", tag, &[app]).await;
        }
    };
    ship("2").await;
    ship("3").await;
    first.wait("/hook/web", 1).await;
    relay(&world, "dev/web", to("hook", second, "/hook/web")).await;
    second.wait("/hook/web", 1).await;
    ship("4").await;
    relay(&world, "dev/web", json!([])).await;
    base.wait("/hook/web", 3).await;
    base.script("/hook/web", [Reply::status(503)]);
    ship("5").await;
    ship("6").await;
    base.wait("/hook/web", 4).await;
    relay(&world, "dev/web", to("hook", last, "/hook/web")).await;
    last.wait("/hook/web", 2).await;
    world.fence("shop", &["hook"]).await;
    let steps = ["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5", "Deployed 6"];
    let oracle = Oracle::new(&world, first).and(second).and(base).and(last);
    oracle.lane("shop/hook/dev/web", &steps).lane("shop/hook/dev/api", &steps).check().await;
    assert_eq!(all.iter().map(|r| r.to("/hook/web").len()).collect::<Vec<_>>(), [1, 1, 4, 2]);
}

#[tokio::test]
async fn a_suspending_layer_holds_and_a_silencing_layer_does_not_record() {
    let world = World::new("layers-hold").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.deploy("api", "1").await;
    world.notification("hook", &receiver, json!({})).await;
    shop(&world, &["dev/web", "dev/api"], &[("dev/web", json!([{"name": "hook", "suspend": true}]))]).await;
    let _relaybook = start(&world).await;
    world.ship("web", "2").await;
    world.ship("api", "2").await;
    told(&world, "hook", "web", "Deployed 2", |d| reason(d) == "Suspended").await;
    world.fence("shop", &["hook"]).await;
    assert!(receiver.to("/hook/web").is_empty());

    // A delivery that was recorded before is still sent.
    relay(&world, "dev/web", json!([{"name": "hook", "triggers": []}])).await;
    receiver.wait("/hook/web", 1).await;
    world.ship("web", "3").await;
    world.fence("shop", &["hook"]).await;
    relay(&world, "dev/web", json!([])).await;
    world.ship("web", "4").await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver).lane("shop/hook/dev/api", &["Deployed 2"]);
    oracle.lane("shop/hook/dev/web", &["Deployed 2", "Deployed 4"]).check().await;
}

#[tokio::test]
async fn a_removed_pipeline_notification_cancels_its_pending_deliveries() {
    let world = World::new("layers-own").await;
    let (base, other) = (Receiver::start(), Receiver::start());
    other.always("/own/web", Reply::status(503));
    other.always("/single/web", Reply::status(503));
    world.deploy("web", "1").await;
    world.notification("hook", &base, json!({})).await;
    let layers = [("", json!([own("own", &other)])), ("dev/web", json!([own("single", &other)]))];
    shop(&world, &["dev/web"], &layers).await;
    let mut relaybook = start(&world).await;
    begun(&world, "own").await;
    begun(&world, "single").await;
    for tag in ["2", "3"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    other.wait("/own/web", 1).await;
    other.wait("/single/web", 1).await;
    for name in ["own", "single"] {
        told(&world, name, "web", "Deployed 3", |_| true).await;
    }
    relay(&world, "", json!([])).await;
    relay(&world, "dev/web", json!([])).await;
    let gone = |d: &relaybook_api::Delivery| {
        reason(d) == "NotificationGone" && d.status.as_ref().and_then(|s| s.outcome) == Some(Outcome::Canceled)
    };
    for name in ["own", "single"] {
        for what in ["Deployed 2", "Deployed 3"] {
            told(&world, name, "web", what, gone).await;
        }
    }
    // Added again: the canceled deliveries are not sent, and later changes are reported, also after a restart.
    for path in ["/own/web", "/single/web"] {
        other.always(path, Reply::status(200));
    }
    world.ship("web", "4").await;
    world.fence("shop", &["hook"]).await;
    relay(&world, "", json!([own("own", &other)])).await;
    begun(&world, "own").await;
    relaybook.restart().await;
    world.ship("web", "5").await;
    world.fence("shop", &["hook", "own"]).await;
    let canceled = ["Deployed 2 [Canceled]", "Deployed 3 [Canceled]"];
    let oracle = Oracle::new(&world, &base).and(&other).lane("shop/single/dev/web", &canceled);
    let oracle = oracle.lane("shop/own/dev/web", &[canceled[0], canceled[1], "Deployed 5"]);
    oracle.lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5"]).check().await;
}

#[tokio::test]
async fn an_edit_in_flight_applies_to_the_next_attempt() {
    let world = World::new("layers-flight").await;
    let (base, there) = (Receiver::start(), Receiver::start());
    let gate = Gate::new();
    base.script("/hook/web", [Reply::status(503).behind(&gate)]);
    world.deploy("web", "1").await;
    world.notification("hook", &base, json!({"endpoint": {"timeout": "60s"}})).await;
    world.notification("other", &base, json!({})).await;
    shop(&world, &["dev/web"], &[]).await;
    let _relaybook = start(&world).await;
    for tag in ["2", "3"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    base.wait("/hook/web", 1).await;
    relay(&world, "dev/web", to("hook", &there, "/hook/web")).await;
    world.fence("shop", &["other"]).await;
    assert!(there.log().is_empty(), "the first request is still in flight");
    gate.open();
    there.wait("/hook/web", 2).await;
    world.fence("shop", &["hook", "other"]).await;
    let steps = ["Deployed 2", "Deployed 3"];
    let oracle = Oracle::new(&world, &base).and(&there).lane("shop/hook/dev/web", &steps);
    oracle.lane("shop/other/dev/web", &steps).check().await;
    assert_eq!(base.to("/hook/web").len(), 1);
}

#[tokio::test]
async fn an_edit_of_a_targets_ordering_keeps_earlier_deliveries_first() {
    let world = World::new("layers-order").await;
    let receiver = Receiver::start();
    let gate = Gate::new();
    receiver.script("/hook/web", [Reply::status(200).behind(&gate)]);
    world.deploy("web", "1").await;
    world.deploy("api", "1").await;
    world.notification("hook", &receiver, json!({"endpoint": {"timeout": "60s"}})).await;
    shop(&world, &["dev/web", "dev/api"], &[]).await;
    let _relaybook = start(&world).await;
    world.ship("web", "2").await;
    receiver.wait("/hook/web", 1).await;
    relay(&world, "dev/web", json!([{"name": "hook", "delivery": {"ordering": "Pipeline"}}])).await;
    world.ship("web", "3").await;
    world.ship("api", "2").await;
    let lane = async |app: &str, what: &str| told(&world, "hook", app, what, |_| true).await.spec.lane;
    assert_eq!(lane("web", "Deployed 3").await, "pipeline");
    assert!(lane("api", "Deployed 2").await.starts_with("target/"));
    // The other target has its own lane and continues.
    receiver.wait("/hook/api", 1).await;
    assert_eq!(receiver.to("/hook/web").len(), 1);
    gate.open();
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]);
    oracle.lane("shop/hook/dev/api", &["Deployed 2"]).check().await;
}
