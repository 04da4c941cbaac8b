//! A cluster that becomes unreachable and returns is reported once each, and does not affect other clusters.

use std::time::Duration;

use relaybook_api::{Delivery, Outcome, Status};
use serde_json::json;

use crate::support::control_plane::ControlPlane;
use crate::support::relaybook::Options;
use crate::support::remote::{Remote, pipeline, second};
use crate::support::wait::within;
use crate::support::{Oracle, Receiver, Relaybook, World};

/// Maximum time until an outage is noticed: a probe can be in flight, and three must fail, each after its timeout.
const NOTICED: Duration = Duration::from_mins(2);

#[tokio::test]
async fn a_cluster_that_stops_or_hangs_is_reported_once_and_again_when_it_is_back() {
    let world = World::new("remote-offline").await;
    let mut plane = ControlPlane::start().expect("a control plane");
    let (gone, there) = (Remote::of(&world, &plane.kubeconfig, "gone").await, Remote::of(&world, second(), "there").await);
    let receiver = Receiver::start();
    gone.world.deploy("web", "1").await;
    there.world.deploy("api", "1").await;
    pipeline(&world, "shop", &[("prod/web", Some(&gone)), ("prod/api", Some(&there))]).await;
    let triggers = json!([{"type": "Deployed"}, {"type": "ClusterOffline"}, {"type": "ClusterOnline"}, {"type": "Removed"}]);
    world.notification("hook", &receiver, json!({"triggers": triggers, "endpoint": {"url": receiver.url("/hook")}})).await;
    let args = vec!["--cluster-grace".to_owned(), "3s".to_owned()];
    let mut relaybook = Relaybook::with(&world, Options { args, ..Options::of(&world) }).await;
    world.settled().await;
    cluster(&world, "gone", true).await;

    plane.kill_api_server();
    cluster(&world, "gone", false).await;
    it_is_stopped(&world, &there, &mut relaybook).await;
    plane.start_api_server();
    cluster(&world, "gone", true).await;
    gone.world.ship("web", "9").await;
    told(&world, "Deployed 9").await;
    clusters(&relaybook, "reachable", 2.0).await;

    plane.freeze_api_server();
    it_hangs(&world, &there).await;
    plane.thaw_api_server();
    cluster(&world, "gone", true).await;
    gone.world.ship("web", "10").await;
    told(&world, "Deployed 10").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook//gone", &["ClusterOffline", "ClusterOnline", "ClusterOffline", "ClusterOnline"])
        .lane("shop/hook/prod/api", &["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5", "Deployed 6"])
        .lane("shop/hook/prod/web", &["Deployed 9", "Deployed 10"])
        .check()
        .await;
}

/// The API server of `gone` refuses connections. The other cluster is not affected.
async fn it_is_stopped(world: &World, there: &Remote, relaybook: &mut Relaybook) {
    told(world, "ClusterOffline").await;
    there.world.ship("api", "2").await;
    told(world, "Deployed 2").await;
    let web = within(NOTICED, "its target is unknown", async || {
        let status = world.get_pipeline("shop").await.status.unwrap_or_default();
        let web = status.environments[0].targets[0].clone();
        if web.reason == "Unreachable" { Ok(web) } else { Err(format!("{web:?}")) }
    })
    .await;
    assert_eq!(web.status, Status::Unknown);
    assert_eq!(web.message, "cluster remote-offline.gone cannot be reached: the connection is refused");
    clusters(relaybook, "unreachable", 1.0).await;
    assert_eq!(relaybook.log().matches("has not answered for the grace period").count(), 1, "it is logged once");

    // A restart in the meantime reports nothing again.
    relaybook.restart().await;
    there.world.ship("api", "3").await;
    told(world, "Deployed 3").await;
    let status = world.get_pipeline("shop").await.status.unwrap();
    let web = &status.environments[0].targets[0];
    assert!(web.status == Status::Unknown || web.status == Status::Current, "{web:?}");
}

/// The API server of `gone` does not answer. The other cluster is not affected.
async fn it_hangs(world: &World, there: &Remote) {
    for tag in ["4", "5", "6"] {
        there.world.ship("api", tag).await;
        world.observed_at("shop", tag, &["api"]).await;
    }
    cluster(world, "gone", false).await;
}

/// Waits until this number of clusters has this state.
async fn clusters(relaybook: &Relaybook, state: &str, count: f64) {
    let name = format!(r#"relaybook_clusters{{state="{state}"}}"#);
    within(NOTICED, &format!("{count} clusters are {state}"), async || {
        let found = relaybook.metrics().await.get(&name).copied().unwrap_or_default();
        if (found - count).abs() < 0.5 { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

/// Waits until the pipeline's status reports this reachability of a cluster.
async fn cluster(world: &World, name: &str, reachable: bool) {
    within(NOTICED, &format!("cluster {name} is reachable: {reachable}"), async || {
        let clusters = world.get_pipeline("shop").await.status.unwrap_or_default().clusters;
        let found = clusters.iter().find(|c| c.cluster_ref.name == name).map(|c| c.reachable);
        if found == Some(reachable) { Ok(()) } else { Err(format!("{clusters:?}")) }
    })
    .await;
}

/// Waits until this step is delivered.
async fn told(world: &World, what: &str) {
    let delivered = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered));
    world.delivery(what, delivered).await;
}
