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
async fn a_stopped_cluster_is_reported_once_and_again_when_it_is_back() {
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
    told(&world, "ClusterOffline").await;
    // The other cluster is not affected.
    there.world.ship("api", "2").await;
    told(&world, "Deployed 2").await;
    // A restart in the meantime reports nothing again.
    relaybook.restart().await;
    there.world.ship("api", "3").await;
    told(&world, "Deployed 3").await;
    let status = world.get_pipeline("shop").await.status.unwrap();
    let web = &status.environments[0].targets[0];
    assert!(web.status == Status::Unknown || web.status == Status::Current, "{web:?}");

    plane.start_api_server();
    cluster(&world, "gone", true).await;
    gone.world.ship("web", "9").await;
    told(&world, "Deployed 9").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook//gone", &["ClusterOffline", "ClusterOnline"])
        .lane("shop/hook/prod/api", &["Deployed 2", "Deployed 3"])
        .lane("shop/hook/prod/web", &["Deployed 9"])
        .check()
        .await;
}

#[tokio::test]
async fn a_hanging_cluster_is_reported_and_the_others_continue() {
    let world = World::new("remote-hung").await;
    let plane = ControlPlane::start().expect("a control plane");
    let (hung, there) = (Remote::of(&world, &plane.kubeconfig, "hung").await, Remote::of(&world, second(), "there").await);
    let receiver = Receiver::start();
    hung.world.deploy("web", "1").await;
    there.world.deploy("api", "1").await;
    pipeline(&world, "shop", &[("prod/web", Some(&hung)), ("prod/api", Some(&there))]).await;
    let triggers = json!([{"type": "Deployed"}, {"type": "ClusterOffline"}, {"type": "ClusterOnline"}]);
    world.notification("hook", &receiver, json!({"triggers": triggers, "endpoint": {"url": receiver.url("/hook")}})).await;
    let args = vec!["--cluster-grace".to_owned(), "5s".to_owned()];
    let _relaybook = Relaybook::with(&world, Options { args, ..Options::of(&world) }).await;
    world.settled().await;
    cluster(&world, "hung", true).await;

    plane.freeze_api_server();
    for tag in ["2", "3", "4"] {
        there.world.ship("api", tag).await;
        world.observed_at("shop", tag, &["api"]).await;
    }
    cluster(&world, "hung", false).await;
    plane.thaw_api_server();
    cluster(&world, "hung", true).await;
    hung.world.ship("web", "9").await;
    told(&world, "Deployed 9").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook//hung", &["ClusterOffline", "ClusterOnline"])
        .lane("shop/hook/prod/api", &["Deployed 2", "Deployed 3", "Deployed 4"])
        .lane("shop/hook/prod/web", &["Deployed 9"])
        .check()
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
