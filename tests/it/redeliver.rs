//! Redelivery: a new value of the annotation `relaybook.dev/redeliver`, or the command `relaybook redeliver`, sends a delivery again.

use kube::ResourceExt as _;
use relaybook_api::{Delivery, Outcome};
use serde_json::json;

use crate::support::receiver::Gate;
use crate::support::relaybook::command;
use crate::support::{Receiver, Relaybook, Reply, World, eventually};

/// Starts Relaybook with the pipeline `shop`, its target `dev/web`, and the notification `hook`.
async fn stage(ns: &str, replies: Vec<Reply>) -> (World, Receiver, Relaybook) {
    let world = World::new(ns).await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", replies);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({"endpoint": {"timeout": "60s"}})).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;
    (world, receiver, relaybook)
}

async fn annotate(world: &World, delivery: &Delivery, value: &str) {
    let patch = json!({"metadata": {"annotations": {"relaybook.dev/redeliver": value}}});
    world.patch::<Delivery>(&delivery.name_any(), patch).await;
}

/// Waits until a delivery has this outcome, and `status.redelivered` has this value of the annotation.
async fn settled(world: &World, what: &str, outcome: Outcome, value: Option<&str>) -> Delivery {
    world
        .delivery(what, |d| {
            let status = d.status.clone().unwrap_or_default();
            status.outcome == Some(outcome) && status.redelivered.as_ref().map(|r| r.value.as_str()) == value
        })
        .await
}

#[tokio::test]
async fn each_new_value_redelivers_once_with_the_same_id() {
    let (world, receiver, mut relaybook) = stage("redeliver", vec![Reply::status(400)]).await;
    world.ship("web", "2").await;
    let parked = settled(&world, "Deployed 2", Outcome::Parked, None).await;
    annotate(&world, &parked, "1").await;
    let delivered = settled(&world, "Deployed 2", Outcome::Delivered, Some("1")).await;
    let status = delivered.status.clone().unwrap();
    assert_eq!((status.attempts, status.status_code, status.reason), (2, Some(200), None));
    assert!(status.redelivered.unwrap().time <= status.settled_time.unwrap());
    annotate(&world, &delivered, "2").await;
    settled(&world, "Deployed 2", Outcome::Delivered, Some("2")).await;
    annotate(&world, &delivered, "2").await;
    world.fence("shop", &["hook"]).await;
    relaybook.restart().await;
    world.settled().await;
    world.fence("shop", &["hook"]).await;
    let requests = receiver.to("/hook/web");
    assert_eq!(requests.len(), 3, "one for the change, one for each value");
    assert!(requests.iter().all(|r| r.id() == requests[0].id() && r.body == requests[0].body));
    eventually("the counts follow", async || {
        let status = world.get_notification("hook").await.status.unwrap_or_default();
        let counts = (status.pending, status.parked);
        if counts == (0, 0) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    assert_eq!(relaybook.metrics().await["relaybook_redeliveries_total"], 0.0, "since the restart");
    // A redelivery that is requested while Relaybook is stopped is sent after the next start.
    relaybook.stop().await;
    annotate(&world, &delivered, "3").await;
    relaybook.start_again().await;
    settled(&world, "Deployed 2", Outcome::Delivered, Some("3")).await;
    assert_eq!(receiver.to("/hook/web").len(), 4);
}

#[tokio::test]
async fn a_redelivery_is_outside_the_order_of_its_lane() {
    let (gate, again) = (Gate::new(), Gate::new());
    let replies = vec![Reply::status(200), Reply::status(200).behind(&gate), Reply::status(200).behind(&again)];
    let (world, receiver, mut relaybook) = stage("outside", replies).await;
    world.ship("web", "2").await;
    let first = settled(&world, "Deployed 2", Outcome::Delivered, None).await;
    world.ship("web", "3").await;
    receiver.wait("/hook/web", 2).await;
    annotate(&world, &first, "x").await;
    let requests = receiver.wait("/hook/web", 3).await;
    assert_eq!(requests[2].id(), requests[0].id(), "the redelivery is sent while a request of the lane is in flight");
    // The lane does not wait for the redelivery either.
    gate.open();
    world.ship("web", "4").await;
    settled(&world, "Deployed 4", Outcome::Delivered, None).await;
    // A redelivery that is in flight when the process is killed is repeated after the restart, again outside the order of the lane.
    relaybook.kill9();
    again.open();
    relaybook.start_again().await;
    settled(&world, "Deployed 2", Outcome::Delivered, Some("x")).await;
    world.fence("shop", &["hook"]).await;
    let ids: Vec<_> = receiver.to("/hook/web").iter().map(|r| r.id().to_owned()).collect();
    assert_eq!(ids.iter().filter(|id| **id == ids[0]).count(), 3, "{ids:?}");
    assert_eq!(ids.len(), 5, "{ids:?}");
}

#[tokio::test]
async fn a_redelivery_of_a_pending_delivery_sends_it_once() {
    let gate = Gate::new();
    let (world, receiver, _relaybook) = stage("pending-again", vec![Reply::status(200).behind(&gate)]).await;
    world.ship("web", "2").await;
    receiver.wait("/hook/web", 1).await;
    world.ship("web", "3").await;
    let waits = world.delivery("Deployed 3", |d| d.status.as_ref().is_none_or(|s| s.outcome.is_none())).await;
    let in_flight = world.delivery("Deployed 2", |d| d.status.as_ref().is_none_or(|s| s.outcome.is_none())).await;
    for pending in [&in_flight, &waits] {
        annotate(&world, pending, "x").await;
    }
    let output = command(&world, &["redeliver", "-n", &world.ns, &waits.name_any()]).await;
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && words.contains("is pending"), "{words}");
    gate.open();
    // The request that was in flight when the annotation was set also counts as the redelivery.
    for what in ["Deployed 2", "Deployed 3"] {
        settled(&world, what, Outcome::Delivered, Some("x")).await;
    }
    world.fence("shop", &["hook"]).await;
    assert_eq!(receiver.to("/hook/web").len(), 2);
}

#[tokio::test]
async fn the_command_redelivers_by_name_and_all_parked_deliveries() {
    let (world, receiver, _relaybook) = stage("redeliver-cli", vec![Reply::status(400), Reply::status(422)]).await;
    for tag in ["2", "3", "4"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    let last = settled(&world, "Deployed 4", Outcome::Delivered, None).await;
    let ns = world.ns.clone();
    let run = async |args: &[&str]| {
        let output = command(&world, &[&["redeliver", "-n", &ns], args].concat()).await;
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, out, _) = run(&["--parked", "--dry-run"]).await;
    assert_eq!((code, out.lines().count()), (Some(0), 2));
    let (code, out, err) = run(&["--parked", "--notification", "hook", "--since", "1h"]).await;
    assert_eq!((code, out.lines().count()), (Some(0), 2), "{err}");
    eventually("both are delivered", async || {
        let parked = world
            .deliveries()
            .await
            .iter()
            .filter(|d| d.status.as_ref().unwrap().outcome != Some(Outcome::Delivered))
            .count();
        if parked == 0 { Ok(()) } else { Err(format!("{parked} are not")) }
    })
    .await;
    assert_eq!(receiver.to("/hook/web").len(), 5);
    let (code, out, err) = run(&["--parked"]).await;
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    let (code, out, err) = run(&[&format!("dlv/{}", last.name_any()), "nobody"]).await;
    assert!(code == Some(1) && out.contains(&last.name_any()) && err.contains("there is no delivery nobody"), "{out}{err}");
    receiver.wait("/hook/web", 6).await;
    // The command accepts the names that it prints.
    let again =
        |d: &Delivery| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered) && s.redelivered.is_some());
    world.delivery("Deployed 4", again).await;
    let printed = out.split_whitespace().next().unwrap();
    let (code, out, err) = run(&[printed, "--dry-run"]).await;
    assert!(code == Some(0) && out.starts_with(&format!("delivery.relaybook.dev/{} ", last.name_any())), "{out}{err}");
    let (code, _, err) = run(&["pipeline/shop"]).await;
    assert!(code == Some(2) && err.contains("this names a Pipeline, not a Delivery; write NAME or delivery/NAME"), "{err}");
    assert_eq!(run(&[]).await.0, Some(2));
}
