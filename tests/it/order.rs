//! Deliveries of a lane stay in order if the receiver fails, a user suspends the notification, or the dispatcher is down.

use std::collections::BTreeMap;

use futures::future::join_all;
use relaybook_api::{Delivery, Outcome};
use serde_json::json;

use crate::support::lanes::{Lane, what};
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::wait::heavy;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

#[tokio::test]
async fn a_lane_waits_for_each_outcome_and_other_lanes_continue() {
    let world = World::new("order-waits").await;
    let receiver = Receiver::start();
    let gate = Gate::new();
    receiver.script("/hook/web", [Reply::status(500), Reply::status(500), Reply::status(200).behind(&gate)]);
    world.deploy("web", "1").await;
    world.deploy("api", "1").await;
    world.pipeline("shop", &["dev/web", "dev/api"]).await;
    world.notification("hook", &receiver, json!({"endpoint": {"timeout": "60s"}})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    world.ship("web", "3").await;
    receiver.wait("/hook/web", 3).await;
    world.delivery("Deployed 3", |d| d.status.as_ref().is_none_or(|s| s.attempts == 0)).await;
    world.ship("api", "2").await;
    world.ship("api", "3").await;
    receiver.wait("/hook/api", 2).await;
    world.fence("shop", &["hook"]).await;
    assert_eq!(receiver.to("/hook/web").len(), 3, "Deployed 3 waits, because Deployed 2 is still in flight");

    gate.open();
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"])
        .lane("shop/hook/dev/api", &["Deployed 2", "Deployed 3"])
        .check()
        .await;
}

#[tokio::test]
async fn a_receiver_gets_everything_in_order_after_an_outage() {
    let world = World::new("order-away").await;
    let mut away = Receiver::refusing();
    let there = Receiver::start();
    for app in ["web", "api"] {
        world.deploy(app, "1").await;
    }
    world.pipeline("shop", &["dev/web", "dev/api"]).await;
    world.notification("hook", &away, json!({})).await;
    world.notification("other", &there, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let tags = ["2", "3", "4", "5", "6"];
    for (number, tag) in tags.iter().enumerate() {
        world.ship("web", tag).await;
        world.ship("api", tag).await;
        // The absent receiver does not delay the other one.
        there.wait("/other/web", number + 1).await;
        there.wait("/other/api", number + 1).await;
    }
    world.fence("shop", &["other"]).await;
    world
        .delivery("Deployed 2", |d| d.spec.notification == "hook" && d.status.as_ref().is_some_and(|s| s.attempts > 1))
        .await;
    let condition = world.condition("hook", "Delivering", |c| c.reason == "ConnectionFailed").await;
    assert!(condition.message.contains("blocked"), "{}", condition.message);
    let is_queued = |d: &Delivery| d.status.as_ref().is_none_or(|s| s.attempts == 0 && s.outcome.is_none());
    for tag in &tags[1..] {
        world.delivery(&format!("Deployed {tag}"), |d| d.spec.notification == "hook" && is_queued(d)).await;
    }

    away.listen();
    world.fence("shop", &["hook", "other"]).await;
    let all = tags.map(|tag| format!("Deployed {tag}"));
    let all = all.each_ref().map(String::as_str);
    let mut oracle = Oracle::new(&world, &away).and(&there).with_attempts_unseen();
    for lane in ["hook/dev/web", "hook/dev/api", "other/dev/web", "other/dev/api"] {
        oracle = oracle.lane(&format!("shop/{lane}"), &all);
    }
    oracle.check().await;
    for (receiver, path) in [(&away, "/hook/web"), (&away, "/hook/api"), (&there, "/other/web"), (&there, "/other/api")] {
        assert_eq!(receiver.to(path).len(), tags.len(), "{path}");
    }
}

#[tokio::test]
async fn a_notification_that_is_resumed_while_it_is_held_continues() {
    let world = World::new("order-resumed").await;
    let receiver = Receiver::start();
    let apps: Vec<_> = (0..20).map(|n| format!("app-{n}")).collect();
    join_all(apps.iter().map(|app| world.deploy(app, "1"))).await;
    let targets: Vec<_> = apps.iter().map(|app| format!("dev/{app}")).collect();
    world.pipeline("shop", &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.notification("hook", &receiver, json!({"suspend": true})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    join_all(apps.iter().map(|app| world.ship(app, "2"))).await;
    // At this time, some deliveries already have the reason `Suspended`, and others are about to get it. All of them must resume.
    eventually("one delivery is suspended", async || {
        let held = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.reason.as_deref() == Some("Suspended"));
        world.deliveries().await.iter().any(held).then_some(()).ok_or_else(|| "none".to_owned())
    })
    .await;
    world.patch::<relaybook_api::Notification>("hook", json!({"spec": {"suspend": false}})).await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver);
    targets.iter().fold(oracle, |o, t| o.lane(&format!("shop/hook/{t}"), &["Deployed 2"])).check().await;
    // The fence is a target, too.
    assert_eq!(world.get_notification("hook").await.status.unwrap().targets, 21);
}

#[tokio::test]
async fn changes_while_the_dispatcher_is_down_are_sent_afterwards_and_the_oldest_are_merged() {
    let world = World::new("order-crowded").await;
    let receiver = Receiver::start();
    for app in ["few", "many"] {
        world.deploy(app, "0").await;
    }
    world.pipeline("shop", &["dev/few", "dev/many"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _observer = Relaybook::with(&world, Options { controllers: "pipeline", ..Options::of(&world) }).await;
    world.observed("shop").await;
    // A change and its reversal are two changes.
    for tag in ["b", "0"] {
        world.ship("few", tag).await;
    }
    for tag in 1..=12 {
        world.ship("many", &tag.to_string()).await;
        world.observed_at("shop", &tag.to_string(), &["many"]).await;
    }

    let _dispatcher = Relaybook::with(&world, Options { controllers: "dispatch", ..Options::of(&world) }).await;
    world.settled().await;
    world.fence("shop", &["hook"]).await;
    // The log keeps 8 changes of a target. The starts of rollouts are merged first, then the oldest changes. A merged change is marked.
    let steps: Vec<_> = (5..=12).map(|tag| format!("Deployed {tag}")).collect();
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    let oracle = Oracle::new(&world, &receiver).lane("shop/hook/dev/few", &["Deployed b", "Deployed 0"]);
    oracle.lane("shop/hook/dev/many", &steps).check().await;
    assert!(world.delivery("Deployed 5", |_| true).await.spec.coalesced);
}

#[tokio::test]
async fn under_many_changes_every_lane_is_complete_or_marked_as_coalesced() {
    let _alone = heavy().await;
    let world = World::new("order-storm").await;
    let receiver = Receiver::start();
    let apps: Vec<_> = (0..8).map(|n| format!("app-{n}")).collect();
    let targets: Vec<_> = apps.iter().map(|app| format!("dev/{app}")).collect();
    let notifications = ["one", "two", "three", "four"];
    join_all(apps.iter().map(|app| world.deploy(app, "0"))).await;
    world.pipeline("shop", &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for name in notifications {
        world.notification(name, &receiver, json!({})).await;
    }
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let tags: Vec<_> = (1..=6).map(|n| n.to_string()).collect();
    join_all(apps.iter().map(async |app| {
        for tag in &tags {
            world.ship(app, tag).await;
        }
    }))
    .await;
    world.fence("shop", &notifications).await;

    let mut lanes: BTreeMap<String, Vec<Delivery>> = BTreeMap::new();
    for delivery in world.deliveries().await.into_iter().filter(|d| !Lane::of(d).is_fence()) {
        lanes.entry(Lane::of(&delivery).path).or_default().push(delivery);
    }
    assert_eq!(lanes.len(), apps.len() * notifications.len());
    let mut oracle = Oracle::new(&world, &receiver);
    for (path, mut lane) in lanes {
        lane.sort_by_key(|d| d.spec.order);
        let steps: Vec<_> = lane.iter().map(|d| what(d.spec.type_.as_str(), &d.spec.to.revision)).collect();
        let whole: Vec<_> = tags.iter().map(|tag| format!("Deployed {tag}")).collect();
        let coalesced = lane.iter().any(|d| d.spec.coalesced);
        assert!(steps == whole || coalesced, "{path}: {steps:?}");
        assert_eq!(steps.last(), whole.last(), "{path} ends where its target is");
        oracle = oracle.lane(&path, &steps.iter().map(String::as_str).collect::<Vec<_>>());
    }
    oracle.check().await;
    let all = world.deliveries().await;
    assert!(all.iter().all(|d| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered))));
}
