//! A crash, a graceful stop or a restart of the API server loses nothing. A crash repeats at most the one request that was in flight in
//! each lane.
#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

use std::time::Instant;

use futures::future::join_all;
use kube::ResourceExt as _;
use kube::api::ListParams;
use relaybook_api::{Delivery, Notification, Outcome, Pipeline, Time};
use serde_json::json;

use crate::support::control_plane::ControlPlane;
use crate::support::receiver::Gate;
use crate::support::wait::heavy;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World};

#[tokio::test]
async fn a_delivery_that_waits_for_a_retry_survives_a_kill() {
    let world = World::new("restart-waiting").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(503)]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let slow = json!({"delivery": {"retry": {"initial": "20s", "max": "20s"}}});
    world.notification("hook", &receiver, slow).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    let waiting = world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.next_attempt_time.is_some())).await;
    relaybook.kill9();
    let due = waiting.status.unwrap().next_attempt_time.unwrap();
    relaybook.start_again().await;
    let requests = receiver.wait("/hook/web", 2).await;
    let (wall, mono) = (Time::now(), Instant::now());
    let second = wall.checked_sub(mono - requests[1].at).unwrap();
    // The status contains the time cut to whole milliseconds.
    assert!(second.as_millisecond() >= due.as_millisecond(), "{second} is before {due}");
    assert_eq!(requests[0].id(), requests[1].id());
    assert_eq!(requests[0].body, requests[1].body);
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
}

#[tokio::test]
async fn a_request_in_flight_is_repeated_at_most_once_after_a_kill() {
    let world = World::new("restart-in-flight").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(200).behind(&Gate::new())]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({"endpoint": {"timeout": "60s"}})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    world.ship("web", "3").await;
    receiver.wait("/hook/web", 1).await;
    relaybook.kill9();
    relaybook.start_again().await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]).after_a_crash().check().await;
    let requests = receiver.to("/hook/web");
    assert_eq!(requests.len(), 3);
    assert_eq!((requests[0].id(), &requests[0].body), (requests[1].id(), &requests[1].body));
}

#[tokio::test]
async fn a_graceful_stop_finishes_requests_in_flight_and_a_restart_is_silent() {
    let world = World::new("restart-orderly").await;
    let receiver = Receiver::start();
    let gate = Gate::new();
    receiver.script("/hook/web", [Reply::status(200).behind(&gate)]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({"endpoint": {"timeout": "60s"}})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    receiver.wait("/hook/web", 1).await;
    relaybook.ask_to_stop();
    crate::support::eventually("Relaybook has received SIGTERM", async || {
        if relaybook.log().contains("stopping: no new work is started") { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    gate.open();
    assert!(relaybook.ended().await.success());
    world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered))).await;
    let status = world.get_pipeline("shop").await.status.unwrap();
    let (log, dispatched) = (status.log.unwrap(), status.dispatched.unwrap());
    assert_eq!(dispatched.cursors[0].serial, log.serial, "the cursors were flushed");
    assert_eq!(dispatched.last_sent.len(), 1);

    // The next start updates the counts of the Notification. After that, there is nothing to write.
    relaybook.start_again().await;
    let counted = |n: &Notification| n.status.as_ref().is_some_and(|s| s.pending == 0 && s.delivered == 1);
    crate::support::eventually("the counts follow", async || {
        let n = world.get_notification("hook").await;
        if counted(&n) { Ok(()) } else { Err(format!("{:?}", n.status)) }
    })
    .await;
    relaybook.stop().await;

    let before = versions(&world).await;
    relaybook.start_again().await;
    assert_eq!((relaybook.writes().await, relaybook.attempts().await), (0.0, 0.0));
    assert_eq!(versions(&world).await, before);
    let old = world.delivery("Deployed 2", |_| true).await.resource_version();
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
    assert_eq!(relaybook.attempts().await, 1.0, "the request of the fence");
    assert_eq!(world.delivery("Deployed 2", |_| true).await.resource_version(), old);
}

#[tokio::test]
async fn a_restart_of_the_api_server_loses_nothing() {
    let _alone = heavy().await;
    let mut control_plane = tokio::task::spawn_blocking(ControlPlane::start).await.unwrap().unwrap();
    let world = World::on(&control_plane.kubeconfig, "restart-api").await;
    let receiver = Receiver::start();
    let apps = ["a", "b", "c"];
    for app in apps {
        world.deploy(app, "1").await;
        // The retries cause status writes while the API server is down.
        receiver.script(&format!("/hook/{app}"), [500, 200, 500, 500, 500].map(Reply::status));
    }
    world.pipeline("shop", &["dev/a", "dev/b", "dev/c"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    for tag in ["2", "3", "4"] {
        join_all(apps.map(|app| world.ship(app, tag))).await;
        world.observed_at("shop", tag, &apps).await;
    }
    control_plane = tokio::task::spawn_blocking(move || {
        control_plane.restart_api_server();
        control_plane
    })
    .await
    .unwrap();
    // Changes between two watches can be missed. The fence proves that the watches are open again.
    world.fence("shop", &["hook"]).await;
    for tag in ["5", "6"] {
        join_all(apps.map(|app| world.ship(app, tag))).await;
    }
    world.fence("shop", &["hook"]).await;
    let steps = ["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5", "Deployed 6"];
    let oracle = Oracle::new(&world, &receiver);
    apps.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &steps)).check().await;
    drop(control_plane);
}

/// Returns names and resource versions of all Pipelines, Notifications and Deliveries.
async fn versions(world: &World) -> Vec<(String, Option<String>)> {
    async fn of<K>(world: &World) -> Vec<(String, Option<String>)>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let all = world.api::<K>().list(&ListParams::default()).await.expect("listed");
        all.iter().map(|o| (o.name_any(), o.resource_version())).collect()
    }
    [of::<Pipeline>(world).await, of::<Notification>(world).await, of::<Delivery>(world).await].concat()
}
