//! With incomplete information nothing is promoted, and nothing is lost: a cluster that cannot be reached, a list that is not complete, a
//! status that is older than its spec, a watch that is stalled.

use std::time::Duration;

use relaybook_api::pipeline::EnvironmentStatus;
use relaybook_api::promotion::Phase;
use relaybook_api::{Pipeline, Status};
use serde_json::{Value, json};

use super::Stage;
use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::world::promotions::{by_notification, is, is_for, promoting};
use crate::support::{Fault, Proxy, Relaybook, World, control_plane};

/// Time limit until a cluster is called unreachable, and until it is observed again.
const TAKES: Duration = Duration::from_secs(90);

/// Creates the namespace on the other cluster.
async fn far(world: &World) -> World {
    // The start of a control plane blocks the thread.
    let remote = tokio::task::spawn_blocking(control_plane::remote).await.expect("started");
    World::on(remote, &world.ns).await
}

/// Creates the Secret `eu`, through which the other cluster is reached by a proxy.
async fn eu(world: &World, proxy: &Proxy) {
    let text = std::fs::read_to_string(&proxy.kubeconfig).expect("a kubeconfig");
    world.secret("eu", json!({"kubeconfig": text})).await;
}

/// Returns options that accept kubeconfigs with `http`, because the fault proxy uses `http`.
fn insecure(world: &World) -> Options {
    Options { args: vec!["--allow-insecure-clusters".to_owned()], ..Options::of(world) }
}

#[tokio::test]
async fn an_unreachable_cluster_decides_nothing() {
    let stage = Stage::new("promotions-unreachable").await;
    let world = &stage.world;
    let far = far(world).await;
    let proxy = Proxy::start(control_plane::remote(), "promotions-unreachable").await;
    eu(world, &proxy).await;
    for (name, policy) in [("shop", json!({})), ("held", json!({"manual": true}))] {
        let environments = [("dev", Value::Null), ("prod", by_notification(policy))];
        world.deploy_environments(name, &environments).await;
        far.deploy(&format!("{name}-prod"), "1").await;
        let mut object = promoting(&world.ns, name, &environments);
        object["spec"]["environments"][1]["targets"][0]["clusterRef"] = json!({"kind": "Secret", "name": "eu"});
        world.create::<Pipeline>(object).await;
    }
    let _relaybook = Relaybook::with(world, insecure(world)).await;
    world.settled().await;
    world.runs("held/dev", "2").await;
    world.promotion("held/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;

    proxy.cut();
    let target = |environment: &EnvironmentStatus| environment.targets[0].status;
    for name in ["shop", "held"] {
        within(TAKES, "prod cannot be observed", async || {
            let prod = world.environment(&format!("{name}/prod")).await;
            if target(&prod) == Status::Unknown { Ok(()) } else { Err(format!("{prod:?}")) }
        })
        .await;
    }
    world.runs("shop/dev", "2").await;
    let pending = world.promotion_pending("shop", Some("NotObserved")).await.expect("it is present");
    assert!(pending.message.contains("prod"), "{}", pending.message);
    // What waits keeps waiting, and an approval is not lost.
    let waits = world.promotion("held/prod 2", is_for(Phase::Pending, "NotObserved")).await;
    world.approve(&waits).await;
    world.promotion("held/prod 2", |p| p.status.as_ref().is_some_and(|s| s.approval.is_some())).await;
    for name in ["shop", "held"] {
        stage.fence(name).await;
    }
    let all = world.promotions().await;
    assert!(all.len() == 1 && is(Phase::Pending)(&all[0]), "{all:#?}");

    proxy.heal();
    for name in ["shop", "held"] {
        world.promotion_within(TAKES, &format!("{name}/prod 2"), is(Phase::Requested)).await;
    }
    for name in ["shop", "held"] {
        stage.fence(name).await;
    }
    stage
        .oracle()
        .promotions("shop", &["hook"], &["prod 2: Requested"])
        .promotions("held", &["hook"], &["prod 2: Pending, Requested"])
        .check()
        .await;
}

#[tokio::test]
async fn an_incomplete_list_decides_nothing() {
    let stage = Stage::new("promotions-unlisted").await;
    let world = &stage.world;
    let far = far(world).await;
    far.deploy("shop-prod", "1").await;
    stage.pipeline("other", by_notification(json!({}))).await;
    world.promoting("shop", &[("dev", Value::Null)]).await;
    let proxy = Proxy::start(control_plane::remote(), "promotions-unlisted").await;
    eu(world, &proxy).await;
    let gate = Gate::new();
    let list = |call: &Call| !call.is_watch() && call.path.ends_with("/deployments");
    let held = proxy.rule(list, Fault::HoldRequest(gate.clone()));
    let _relaybook = Relaybook::with(world, insecure(world)).await;
    world.settled().await;

    // An environment is added whose objects have not been listed yet.
    let mut environments = serde_json::to_value(world.get_pipeline("shop").await.spec.environments).unwrap();
    let target =
        json!({"namespace": world.ns, "appRef": {"name": "shop-prod"}, "clusterRef": {"kind": "Secret", "name": "eu"}});
    let prod = json!({"name": "prod", "targets": [target], "promotion": by_notification(json!({}))});
    environments.as_array_mut().unwrap().insert(1, prod);
    world.patch::<Pipeline>("shop", json!({"spec": {"environments": environments}})).await;
    proxy.hit(held, 1).await;
    world.runs("shop/dev", "2").await;
    stage.fence("other").await;
    stage.fence("other").await;
    assert!(world.promotions().await.is_empty());

    // The list is complete. Nothing else happens.
    proxy.remove(held);
    gate.open();
    world.promotion_within(TAKES, "shop/prod 2", is(Phase::Requested)).await;
    far.ship("shop-prod", "2").await;
    stage.finished("shop/prod 2").await;
    stage.fence("shop").await;
    let oracle = stage.oracle().promotions("shop", &["hook"], &["prod 2: Requested, Finished"]);
    oracle.promotions("other", &["hook"], &[]).check().await;
}

#[tokio::test]
async fn a_status_older_than_the_spec_causes_no_promotion() {
    let stage = Stage::new("promotions-older").await;
    let world = &stage.world;
    for name in ["shop", "other"] {
        stage.pipeline(name, by_notification(json!({}))).await;
    }
    let mut observer = Relaybook::with(world, Options { controllers: "pipeline,dispatch", ..Options::of(world) }).await;
    world.settled().await;
    for name in ["shop", "other"] {
        world.runs(&format!("{name}/dev"), "2").await;
    }
    observer.stop().await;
    // A second target in prod, which the status does not show yet.
    world.deploy("shop-more", "1").await;
    let mut environments = serde_json::to_value(world.get_pipeline("shop").await.spec.environments).unwrap();
    let more = json!({"namespace": world.ns, "appRef": {"name": "shop-more"}});
    environments[1]["targets"].as_array_mut().unwrap().push(more);
    world.patch::<Pipeline>("shop", json!({"spec": {"environments": environments}})).await;
    let _promoter = Relaybook::with(world, Options { controllers: "promote", ..Options::of(world) }).await;
    stage.requested("other/prod 2").await;
    let all = world.promotions().await;
    assert_eq!(all.len(), 1, "{all:#?}");

    observer.start_again().await;
    stage.requested("shop/prod 2").await;
    // One of two targets is not the environment.
    world.runs("shop/prod", "2").await;
    stage.fence("other").await;
    world.promotion("shop/prod 2", is(Phase::Requested)).await;
    world.ship("shop-more", "2").await;
    stage.finished("shop/prod 2").await;
    for name in ["shop", "other"] {
        stage.fence(name).await;
    }
    stage
        .oracle()
        .promotions("shop", &["hook"], &["prod 2: Requested, Finished"])
        .promotions("other", &["hook"], &["prod 2: Requested"])
        .check()
        .await;
}

#[tokio::test]
async fn a_stalled_watch_requests_nothing() {
    let stage = Stage::new("promotions-stalled").await;
    let world = &stage.world;
    for name in ["moved", "off", "same"] {
        stage.pipeline(name, by_notification(json!({"manual": true}))).await;
    }
    let _observer = Relaybook::with(world, Options { controllers: "pipeline,dispatch", ..Options::of(world) }).await;
    let proxy = Proxy::start(&world.kubeconfig, "promotions-stalled").await;
    let through = Options { controllers: "promote", kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(world) };
    let _promoter = Relaybook::with(world, through).await;
    world.settled().await;
    let mut waiting = Vec::new();
    for name in ["moved", "off", "same"] {
        world.runs(&format!("{name}/dev"), "2").await;
        waiting.push(world.promotion(&format!("{name}/prod 2"), is_for(Phase::Pending, "WaitingApproval")).await);
    }

    // The promotion controller does not receive what happens to pipelines any more.
    let gate = Gate::new();
    let watches = |call: &Call| call.is_watch() && call.path.ends_with("/pipelines");
    let deaf = proxy.rule(watches, Fault::HoldRequest(gate.clone()));
    proxy.reconnect().await;
    proxy.hit(deaf, 1).await;
    world.runs("moved/dev", "1").await;
    world.set_policy("off/prod", json!({})).await;
    world.observed("off").await;
    for promotion in &waiting {
        world.approve(promotion).await;
    }
    // The promotion whose pipeline has not changed is requested. The live read withdraws the others.
    stage.requested("same/prod 2").await;
    world.promotion("moved/prod 2", is_for(Phase::Withdrawn, "SourceMoved")).await;
    world.promotion("off/prod 2", is_for(Phase::Withdrawn, "NoStrategy")).await;
    gate.open();
    for name in ["moved", "off", "same"] {
        stage.fence(name).await;
    }
    stage
        .oracle()
        .promotions("moved", &["hook"], &["prod 2: Pending, Withdrawn/SourceMoved"])
        .promotions("off", &["hook"], &["prod 2: Pending, Withdrawn/NoStrategy"])
        .promotions("same", &["hook"], &["prod 2: Pending, Requested"])
        .check()
        .await;
}
