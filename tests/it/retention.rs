//! Retention of settled deliveries: which ones are deleted, and that a deleted delivery is not recorded or sent again.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::DeleteParams;
use relaybook_api::{Delivery, Outcome};
use serde_json::json;

use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::{Receiver, Relaybook, Reply, World, eventually};

/// Time limit for the deletion. A settled delivery is kept for at least one minute.
const LIMIT: Duration = Duration::from_mins(3);

/// Returns revision and outcome of the kept deliveries, except those of the fence.
async fn kept(world: &World, notification: &str) -> Vec<String> {
    let mut all: Vec<Delivery> = world.deliveries().await;
    all.retain(|d| d.spec.notification == notification && d.spec.subject.environment == "dev");
    all.sort_by_key(|d| d.spec.serial);
    let outcome = |d: &Delivery| d.status.as_ref().and_then(|s| s.outcome).map_or("pending", Outcome::as_str);
    all.iter().map(|d| format!("{} {}", d.spec.to.revision, outcome(d))).collect()
}

/// Waits until so many deliveries are counted as deleted for this reason.
async fn removed(relaybook: &Relaybook, reason: &str, expected: f64) {
    eventually(&format!("{expected} deletions are counted"), async || {
        let count = relaybook.metrics().await[&format!("relaybook_deliveries_removed_total{{reason=\"{reason}\"}}")];
        if count == expected { Ok(()) } else { Err(format!("{count}")) }
    })
    .await;
}

#[tokio::test]
async fn the_newest_deliveries_of_a_lane_are_kept_and_parked_ones_longer() {
    let world = World::new("retain").await;
    let receiver = Receiver::start();
    receiver.script("/few/web", [Reply::status(400)]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("few", &receiver, json!({"delivery": {"retain": {"perLane": 2}}})).await;
    world.notification("many", &receiver, json!({})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    for tag in ["2", "3", "4", "5", "6"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    world.fence("shop", &["few", "many"]).await;
    within(LIMIT, "only the newest two and the parked one are kept", async || {
        let kept = kept(&world, "few").await;
        if kept == ["2 Parked", "5 Delivered", "6 Delivered"] { Ok(()) } else { Err(format!("{kept:?}")) }
    })
    .await;
    assert_eq!(kept(&world, "many").await.len(), 5);
    removed(&relaybook, "per_lane", 2.0).await;
    // Deleted deliveries are not recorded again, even after a crash.
    relaybook.kill9();
    relaybook.start_again().await;
    world.settled().await;
    world.fence("shop", &["few", "many"]).await;
    assert_eq!(receiver.to("/few/web").len(), 5);
    assert_eq!(kept(&world, "few").await, ["2 Parked", "5 Delivered", "6 Delivered"]);
}

#[tokio::test]
async fn the_cluster_has_a_limit_and_parked_deliveries_are_deleted_last() {
    let world = World::new("cap").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(400)]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({"triggers": [{"type": "Deployed", "environments": ["dev"]}]})).await;
    let args = vec!["--keep-deliveries".to_owned(), "2".to_owned()];
    let relaybook = Relaybook::with(&world, Options { args, ..Options::of(&world) }).await;
    world.settled().await;
    for tag in ["2", "3", "4", "5"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    within(LIMIT, "two are kept", async || {
        let kept = kept(&world, "hook").await;
        if kept == ["2 Parked", "5 Delivered"] { Ok(()) } else { Err(format!("{kept:?}")) }
    })
    .await;
    removed(&relaybook, "cap", 2.0).await;
}

/// Nothing else shows that a controller keeps the audit longer than its retention.
#[tokio::test]
async fn deleted_deliveries_that_a_finalizer_keeps_are_counted() {
    let world = World::new("kept").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    let sent = world.deliveries().await.into_iter().find(|d| d.spec.subject.environment == "dev").expect("it is recorded");
    world.patch::<Delivery>(&sent.name_any(), json!({"metadata": {"finalizers": ["example.com/kept"]}})).await;
    world.api::<Delivery>().delete(&sent.name_any(), &DeleteParams::default()).await.expect("deleted");
    let overdue = async |relaybook: &Relaybook, expected: f64| {
        eventually(&format!("{expected} deliveries are overdue"), async || {
            let count = relaybook.metrics().await["relaybook_deliveries_overdue"];
            if count == expected { Ok(()) } else { Err(format!("{count}")) }
        })
        .await;
    };
    overdue(&relaybook, 1.0).await;
    relaybook.restart().await;
    overdue(&relaybook, 1.0).await;
    world.patch::<Delivery>(&sent.name_any(), json!({"metadata": {"finalizers": null}})).await;
    overdue(&relaybook, 0.0).await;
}
