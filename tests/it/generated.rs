//! Targets that no pipeline lists: `targetsFrom` selects objects, and each object is a target while it exists and is selected.

mod fleet;
pub mod hub;
mod kills;
mod kinds;
mod offline;
mod recorded;
mod selections;
mod takeover;
mod tenants;

use k8s_openapi::api::apps::v1::Deployment;
use relaybook_api::Pipeline;
use relaybook_api::conditions::ConditionStatus;
use serde_json::{Value, json};

use crate::support::world::all_triggers;
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// Creates pipeline `shop`, whose environments select Deployments by the label `env`, and a fence.
async fn selecting(world: &World, environments: &[&str]) {
    let select = |name: &&str| {
        let objects = json!({"apiVersion": "apps/v1", "kind": "Deployment", "selector": {"matchLabels": {"env": name}}});
        json!({"name": name, "targetsFrom": [{"objects": objects}]})
    };
    let fence = json!({"name": "fence", "targets": [{"namespace": world.ns}]});
    let environments: Vec<Value> = environments.iter().map(select).chain([fence]).collect();
    let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "fence"});
    world
        .create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": {"appRef": app, "environments": environments}}))
        .await;
}

/// Creates a Deployment with a label that runs this tag.
async fn deploy(world: &World, app: &str, env: &str, tag: &str) {
    world.deploy_with(app, tag, json!({"env": env})).await;
}

/// Sets or removes a label of a Deployment.
async fn label(world: &World, app: &str, env: Value) {
    world.patch::<Deployment>(app, json!({"metadata": {"labels": {"env": env}}})).await;
}

/// Waits until the pipeline has exactly these targets.
async fn targets(world: &World, wanted: &[&str]) {
    eventually(&format!("targets {wanted:?}"), async || {
        let status = world.get_pipeline("shop").await.status.unwrap_or_default();
        let all = status.environments.iter().flat_map(|e| &e.targets);
        let names: Vec<String> = all.filter_map(|t| t.generated.as_ref().map(|g| g.name.clone())).collect();
        if names == wanted { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

fn name(world: &World, environment: &str, app: &str) -> String {
    format!("{environment}/in-cluster/{}/{app}", world.ns)
}

#[tokio::test]
async fn only_objects_created_later_are_reported_as_added() {
    let world = World::new("gen-joins").await;
    let receiver = Receiver::start();
    deploy(&world, "old", "dev", "1").await;
    selecting(&world, &["dev"]).await;
    world.notification("hook", &receiver, all_triggers()).await;
    let mut relaybook = Relaybook::start(&world).await;
    targets(&world, &[&name(&world, "dev", "old")]).await;
    world.ready("hook").await;
    world.cursor("shop", "hook").await;

    deploy(&world, "new", "dev", "1").await;
    receiver.wait("/hook/new", 2).await;
    world.ship("old", "2").await;
    receiver.wait("/hook/old", 2).await;

    // Meanwhile one appears, one is deleted, and one changes.
    relaybook.stop().await;
    deploy(&world, "late", "dev", "1").await;
    world.delete::<Deployment>("new").await;
    world.ship("old", "3").await;
    relaybook.start_again().await;
    receiver.wait("/hook/late", 2).await;
    world.fence("shop", &["hook"]).await;
    targets(&world, &[&name(&world, "dev", "late"), &name(&world, "dev", "old")]).await;
    let ready = world.pipeline_condition("shop", "Ready", |c| c.status == ConditionStatus::True).await;
    assert_eq!(ready.message, "3 of 3 targets found, 3 ready");
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/old", &["Progressing 2", "Deployed 2", "Deployed 3"])
        .lane("shop/hook/dev/new", &["Added 1", "Progressing 1", "Deployed 1", "Removed"])
        .lane("shop/hook/dev/late", &["Added 1", "Deployed 1"])
        .check()
        .await;
}

#[tokio::test]
async fn an_object_that_moves_between_environments_is_not_reported() {
    let world = World::new("gen-moves").await;
    let receiver = Receiver::start();
    deploy(&world, "web", "dev", "1").await;
    deploy(&world, "api", "prod", "1").await;
    deploy(&world, "other", "none", "1").await;
    selecting(&world, &["dev", "prod"]).await;
    world.notification("hook", &receiver, all_triggers()).await;
    let mut relaybook = Relaybook::start(&world).await;
    targets(&world, &[&name(&world, "dev", "web"), &name(&world, "prod", "api")]).await;
    world.ready("hook").await;
    world.cursor("shop", "hook").await;

    label(&world, "web", json!("prod")).await;
    label(&world, "other", json!("prod")).await;
    let all = ["api", "other", "web"].map(|app| name(&world, "prod", app));
    targets(&world, &all.each_ref().map(String::as_str)).await;
    let ready = world.pipeline_condition("shop", "Ready", |c| c.message.contains("selects nothing")).await;
    assert_eq!(ready.message, "4 of 4 targets found, 4 ready; dev/targetsFrom[0] selects nothing");
    relaybook.stop().await;
    label(&world, "web", json!("dev")).await;
    relaybook.start_again().await;
    let all = [name(&world, "dev", "web"), name(&world, "prod", "api"), name(&world, "prod", "other")];
    targets(&world, &all.each_ref().map(String::as_str)).await;
    label(&world, "other", Value::Null).await;
    targets(&world, &[&all[0], &all[1]]).await;
    world.ship("other", "2").await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Progressing 2", "Deployed 2"]).check().await;
}
