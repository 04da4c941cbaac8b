//! Pipelines of one name in two namespaces, one of which is deleted and created again.

use relaybook_api::Pipeline;
use serde_json::json;

use super::{Stage, everywhere};
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

#[tokio::test]
async fn pipelines_with_one_name_in_two_namespaces_are_independent() {
    let stage = Stage::new("global-twins").await;
    let Stage { system, team } = &stage;
    let twin = World::beside("global-twins-b", system).await;
    for app in ["web", "api"] {
        twin.deploy(app, "1").await;
    }
    let receiver = Receiver::start();
    stage.configure(&json!({"notifications": [everywhere("audit", &receiver, json!({}))]})).await;
    for world in [team, &twin] {
        world.pipeline("shop", &["dev/web", "prod/api"]).await;
    }
    let mut options = stage.options();
    options.watch.push(twin.ns.clone());
    let _relaybook = Relaybook::with(system, options).await;
    for world in [team, &twin] {
        world.settled().await;
        begun(world).await;
    }
    ship(&[team, &twin], "2").await;
    for world in [team, &twin] {
        world.fence("shop", &["audit"]).await;
    }
    // One of the pipelines is deleted and created again.
    twin.delete::<Pipeline>("shop").await;
    ship(&[team, &twin], "3").await;
    team.fence("shop", &["audit"]).await;
    twin.pipeline("shop", &["dev/web", "prod/api"]).await;
    twin.settled().await;
    begun(&twin).await;
    ship(&[team, &twin], "4").await;
    for world in [team, &twin] {
        world.fence("shop", &["audit"]).await;
    }
    let mut oracle = Oracle::new(team, &receiver);
    for target in ["dev/web", "prod/api"] {
        let path = format!("shop/audit/{target}");
        oracle = oracle.lane(&path, &["Deployed 2", "Deployed 3", "Deployed 4"]);
        oracle = oracle.lane_in(&twin.ns, &path, &["Deployed 2", "Deployed 4"]);
    }
    oracle.check().await;
}

/// Waits until pipeline `shop` has its cursor.
async fn begun(world: &World) {
    eventually("the cursor of audit", async || {
        let dispatched = world.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        if dispatched.cursors.len() == 1 { Ok(()) } else { Err(format!("{:?}", dispatched.cursors)) }
    })
    .await;
}

async fn ship(worlds: &[&World], tag: &str) {
    for world in worlds {
        for app in ["web", "api"] {
            world.ship(app, tag).await;
        }
        if world.api::<Pipeline>().get_opt("shop").await.unwrap().is_some() {
            world.observed_at("shop", tag, &["web", "api"]).await;
        }
    }
}
