//! Targets that Fleet deploys: a cluster that joins, one that goes, one that moves, and a rollout over all of them.

use serde_json::json;

use super::hub::{Hub, env, environment};
use crate::support::receiver::Reply;
use crate::support::world::all_triggers;
use crate::support::{Oracle, eventually};

/// Two environments, each with one cluster that runs c1.
async fn two(ns: &str) -> Hub {
    let mut hub = Hub::new(ns, &["eu-1", "us-1", "eu-2"]).await;
    hub.bundle("web", "c1").await;
    for (cluster, of) in [("eu-1", "dev"), ("us-1", "prod")] {
        hub.join(cluster, json!({"env": of})).await;
        hub.run("web", cluster, "c1").await;
    }
    hub.pipeline(json!([environment("dev", env("dev"), json!({})), environment("prod", env("prod"), json!({}))])).await;
    let mut triggers = all_triggers();
    let list = triggers["triggers"].as_array_mut().expect("a list");
    list.push(json!({"type": "EnvironmentReady", "environments": ["dev", "prod"]}));
    triggers["endpoint"] = json!({"url": hub.receiver.url("/hook/{{default target.app.name \"none\"}}")});
    hub.start(triggers).await;
    hub.targets(&["dev/eu-1/web", "prod/us-1/web"]).await;
    hub
}

#[tokio::test]
async fn a_cluster_that_joins_is_followed_from_its_first_deployment_on() {
    let mut hub = two("gen-fleet-joins").await;
    hub.join("eu-2", json!({"env": "dev"})).await;
    hub.deploy("web", "eu-2", "c1").await;
    hub.receiver.wait("/hook/web-eu-2", 2).await;
    hub.applied("web", "eu-2", "c1").await;
    hub.runs("web", "eu-2", "c1").await;
    hub.bundle("api", "c1").await;
    // Meanwhile a bundle is deployed to it.
    hub.relaybook().stop().await;
    hub.deploy("api", "eu-2", "c1").await;
    hub.applied("api", "eu-2", "c1").await;
    hub.relaybook().start_again().await;
    hub.targets(&["dev/eu-1/web", "dev/eu-2/api", "dev/eu-2/web", "prod/us-1/web"]).await;
    hub.world.fence("shop", &["hook"]).await;
    Oracle::new(&hub.world, &hub.receiver)
        .lane("shop/hook/dev/web-eu-2", &["Added c1", "Progressing c1", "Deployed c1"])
        .lane("shop/hook/dev/api-eu-2", &["Added c1", "Deployed c1"])
        .check()
        .await;
}

#[tokio::test]
async fn a_cluster_that_is_deleted_is_removed_once() {
    let mut hub = two("gen-fleet-goes").await;
    // Fleet deletes the deployments of a cluster after the cluster.
    let ns = hub.world.ns.clone();
    hub.delete("Cluster", &ns, "eu-1").await;
    hub.world.fence("shop", &["hook"]).await;
    hub.targets(&["dev/eu-1/web", "prod/us-1/web"]).await;
    hub.undeploy("web", "eu-1").await;
    hub.targets(&["prod/us-1/web"]).await;
    hub.relaybook().stop().await;
    hub.delete("Cluster", &ns, "us-1").await;
    hub.relaybook().start_again().await;
    hub.world.fence("shop", &["hook"]).await;
    hub.targets(&["prod/us-1/web"]).await;
    hub.relaybook().stop().await;
    hub.undeploy("web", "us-1").await;
    hub.relaybook().start_again().await;
    hub.targets(&[]).await;
    hub.world.fence("shop", &["hook"]).await;
    Oracle::new(&hub.world, &hub.receiver)
        .lane("shop/hook/dev/web-eu-1", &["Removed"])
        .lane("shop/hook/prod/web-us-1", &["Removed"])
        .check()
        .await;
}

#[tokio::test]
async fn a_removal_is_delivered_after_an_outage_of_the_receiver() {
    let mut hub = two("gen-fleet-outage").await;
    let path = "/hook/web-us-1";
    hub.receiver.always(path, Reply::status(503));
    hub.undeploy("web", "us-1").await;
    hub.receiver.wait(path, 1).await;
    let pending = format!("target/prod/{}.us-1/web", hub.world.ns);
    let waits = async |hub: &Hub| {
        eventually("the status has the target with its pending delivery", async || {
            let dispatched = hub.world.get_pipeline("shop").await.status.and_then(|status| status.dispatched);
            let found = dispatched.map(|dispatched| dispatched.pending_targets).unwrap_or_default();
            if found == [pending.as_str()] { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
        hub.world.fence("shop", &["hook"]).await;
        hub.targets(&["dev/eu-1/web", "prod/us-1/web"]).await;
    };
    waits(&hub).await;
    hub.relaybook().kill9();
    hub.relaybook().start_again().await;
    waits(&hub).await;
    hub.receiver.always(path, Reply::status(200));
    hub.targets(&["dev/eu-1/web"]).await;
    hub.world.fence("shop", &["hook"]).await;
    Oracle::new(&hub.world, &hub.receiver).after_a_crash().lane("shop/hook/prod/web-us-1", &["Removed"]).check().await;
    let left = hub.world.get_pipeline("shop").await.status.and_then(|status| status.dispatched).unwrap_or_default();
    assert!(left.pending_targets.is_empty(), "{:?}", left.pending_targets);
}

#[tokio::test]
async fn a_moved_cluster_is_reported_in_its_new_environment_with_the_next_commit() {
    let mut hub = two("gen-fleet-moves").await;
    hub.label("eu-1", json!({"env": "prod"})).await;
    hub.targets(&["prod/eu-1/web", "prod/us-1/web"]).await;
    // A cluster that no environment selected before.
    hub.join("eu-2", json!({"env": "lab"})).await;
    hub.run("web", "eu-2", "c1").await;
    hub.world.fence("shop", &["hook"]).await;
    hub.relaybook().stop().await;
    hub.label("us-1", json!({"env": "dev"})).await;
    hub.relaybook().start_again().await;
    hub.targets(&["dev/us-1/web", "prod/eu-1/web"]).await;
    hub.label("eu-2", json!({"env": "dev"})).await;
    hub.targets(&["dev/eu-2/web", "dev/us-1/web", "prod/eu-1/web"]).await;
    hub.world.fence("shop", &["hook"]).await;
    hub.roll_out("web", &["eu-1", "us-1", "eu-2"], "c2").await;
    hub.world.fence("shop", &["hook"]).await;
    let steps = &["Progressing c2", "Deployed c2"];
    Oracle::new(&hub.world, &hub.receiver)
        .lane("shop/hook/prod/", &["EnvironmentReady c2"])
        .lane("shop/hook/dev/", &["EnvironmentReady c2"])
        .lane("shop/hook/prod/web-eu-1", steps)
        .lane("shop/hook/dev/web-us-1", steps)
        .lane("shop/hook/dev/web-eu-2", steps)
        .check()
        .await;
}

#[tokio::test]
async fn an_environment_is_ready_when_all_clusters_run_the_commit() {
    let clusters = ["eu-1", "eu-2", "eu-3", "us-1", "us-2"];
    let mut hub = Hub::new("gen-fleet-rollout", &clusters).await;
    hub.bundle("web", "c1").await;
    for cluster in clusters {
        hub.join(cluster, json!({})).await;
        hub.run("web", cluster, "c1").await;
    }
    hub.pipeline(json!([environment("all", json!({}), json!({}))])).await;
    // Only clusters in Europe, and the environment. The URL contains the cluster.
    let url = hub.receiver.url("/hook/{{default target.cluster.name \"none\"}}");
    let triggers = json!([{"type": "Deployed", "clusters": ["eu-*"]}, {"type": "EnvironmentReady", "environments": ["all"]},
        {"type": "Deployed", "environments": ["fence"]}]);
    hub.start(json!({"triggers": triggers, "endpoint": {"url": url}})).await;
    for cluster in clusters {
        hub.runs("web", cluster, "c1").await;
    }
    hub.commit("web", "c2").await;
    for cluster in clusters {
        hub.stage("web", cluster, "c2").await;
    }
    for cluster in clusters {
        hub.applied("web", cluster, "c2").await;
        hub.runs("web", cluster, "c2").await;
    }
    hub.world.fence("shop", &["hook"]).await;
    for cluster in &clusters[..3] {
        hub.receiver.wait(&format!("/hook/{cluster}"), 1).await;
    }
    let all = hub.world.deliveries().await;
    let mut targets: Vec<_> = all.iter().filter(|d| d.spec.subject.environment == "all").collect();
    targets.sort_by_key(|d| d.spec.serial);
    let told: Vec<String> = targets.iter().map(|d| format!("{} {}", d.spec.type_.as_str(), d.spec.to.revision)).collect();
    assert_eq!(told, ["Deployed c2", "Deployed c2", "Deployed c2", "EnvironmentReady c2"]);
    let lanes: std::collections::BTreeSet<_> = targets[..3].iter().map(|d| d.spec.subject.name.clone()).collect();
    assert_eq!(lanes.len(), 3, "a lane for each cluster: {lanes:?}");
    let source = targets[0].spec.subject.target.as_ref().and_then(|target| target.source.clone()).expect("a source");
    assert_eq!((source.kind.as_str(), source.name.as_str()), ("GitRepo", "shop"));
    assert_eq!(source.repository, "https://github.com/acme/shop.git");
}

#[tokio::test]
async fn groups_and_globs_select_clusters_and_overrides_set_their_receivers() {
    let mut hub = Hub::new("gen-fleet-groups", &["eu-1", "us-1", "lab-1", "jp-1"]).await;
    let ns = hub.world.ns.clone();
    hub.bundle("web", "c1").await;
    for (cluster, region) in [("eu-1", "eu"), ("us-1", "us"), ("lab-1", "us"), ("jp-1", "jp")] {
        hub.join(cluster, json!({"region": region})).await;
        hub.run("web", cluster, "c1").await;
    }
    let group = json!({"selector": {"matchLabels": {"region": "us"}}});
    hub.create("ClusterGroup", &ns, "america", json!({}), group).await;
    let elsewhere = hub.receiver.url("/america/{{target.app.name}}");
    let over = json!({"overrides": [
        {"clusters": ["us-*"], "notifications": [{"name": "hook", "endpoint": {"url": elsewhere}}]},
        {"clusters": [format!("{ns}.lab-*")], "notifications": [{"name": "hook", "triggers": []}]},
    ]});
    hub.pipeline(json!([
        environment("grouped", json!({"clusterGroups": ["america", "asia"]}), over),
        environment("named", json!({"clusters": ["eu-?", "*.jp-1"]}), json!({})),
    ]))
    .await;
    hub.start(json!({})).await;
    hub.targets(&["grouped/lab-1/web", "grouped/us-1/web", "named/eu-1/web", "named/jp-1/web"]).await;
    let ready = hub.world.pipeline_condition("shop", "Ready", |c| c.reason == "ClusterGroupNotFound").await;
    assert_eq!(ready.message, "grouped/targetsFrom[0]: ClusterGroup asia does not exist");
    let group = json!({"selector": {"matchLabels": {"region": "jp"}}});
    hub.create("ClusterGroup", &ns, "asia", json!({}), group).await;
    hub.world.pipeline_condition("shop", "Ready", |c| c.reason == "Observed").await;
    let all = ["grouped/jp-1/web", "grouped/lab-1/web", "grouped/us-1/web", "named/eu-1/web", "named/jp-1/web"];
    hub.targets(&all).await;
    hub.roll_out("web", &["eu-1", "us-1", "lab-1"], "c2").await;
    hub.world.fence("shop", &["hook"]).await;
    hub.receiver.wait("/america/web-us-1", 1).await;
    hub.receiver.wait("/hook/web-eu-1", 1).await;
    Oracle::new(&hub.world, &hub.receiver)
        .lane("shop/hook/grouped/web-us-1", &["Deployed c2"])
        .lane("shop/hook/named/web-eu-1", &["Deployed c2"])
        .check()
        .await;
}
