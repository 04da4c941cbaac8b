//! Workspaces that must not see each other, and permissions of the chart.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use super::hub::{Hub, env, environment};
use crate::support::relaybook::Options;
use crate::support::world::all_triggers;
use crate::support::{Oracle, Relaybook, World, eventually};

/// Creates an object in a namespace.
async fn create(world: &World, namespace: &str, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    let types = object.types.clone().expect("types");
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
    let api = Api::namespaced_with(world.client.clone(), namespace, &resource);
    eventually("created", async || api.create(&PostParams::default(), &object).await.map(drop).map_err(|e| e.to_string()))
        .await;
}

#[tokio::test]
async fn no_workspace_selects_objects_of_another_workspace() {
    let mut hub = Hub::new("gen-tenant-a", &["eu-1", "attacker"]).await;
    hub.bundle("web", "c1").await;
    hub.join("eu-1", json!({"env": "dev"})).await;
    hub.run("web", "eu-1", "c1").await;
    hub.pipeline(json!([environment("dev", env("dev"), json!({}))])).await;
    let other = World::beside("gen-tenant-b", &hub.world).await;
    // The other team has a GitRepo, a Bundle, a group and a cluster of the same names.
    let fleet = |kind: &str, name: &str, labels: Value, spec: Value| json!({"apiVersion": "fleet.cattle.io/v1alpha1", "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec});
    for object in [
        fleet("GitRepo", "shop", json!({}), json!({"repo": "https://github.com/evil/shop"})),
        fleet("Cluster", "eu-1", json!({"env": "dev"}), json!({})),
        fleet("ClusterGroup", "all", json!({}), json!({"selector": {}})),
    ] {
        create(&other, "gen-tenant-b", object).await;
    }
    // Each way to select, of each name, with each restriction.
    let mut tries: Vec<Value> = Vec::new();
    for by in [json!({"gitRepo": "shop"}), json!({"bundle": "web"}), json!({"helmOp": "shop"})] {
        for which in [
            json!({}),
            json!({"clusters": ["*"]}),
            json!({"clusters": ["gen-tenant-a.eu-1"]}),
            json!({"clusters": ["*.*"]}),
            json!({"clusterGroups": ["all"]}),
            json!({"clusterSelector": {}}),
            json!({"clusterSelector": {"matchLabels": {"env": "dev"}}}),
            json!({"clusterSelector": {"matchExpressions": [{"key": "env", "operator": "Exists"}]}}),
            json!({"clusterSelector": {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}}),
            json!({"of": "Bundles"}),
        ] {
            let mut fleet = by.clone();
            json_patch::merge(&mut fleet, &which);
            tries.push(json!({"fleet": fleet}));
        }
    }
    let namespace = hub.namespace("eu-1");
    for kind in ["BundleDeployment", "Bundle", "GitRepo", "Cluster", "ClusterGroup"] {
        for over in [
            json!({"selector": {}}),
            json!({"selector": {"matchLabels": {"fleet.cattle.io/bundle-namespace": "gen-tenant-a"}}}),
            json!({"ownedBy": {"kind": "Bundle", "name": "web"}}),
            json!({"namespaces": ["gen-tenant-a"]}),
            json!({"namespaces": [namespace]}),
            json!({"namespaces": ["gen-tenant-a", "gen-tenant-b", namespace], "selector": {}}),
        ] {
            let mut objects = json!({"apiVersion": "fleet.cattle.io/v1alpha1", "kind": kind});
            json_patch::merge(&mut objects, &over);
            tries.push(json!({"objects": objects}));
        }
    }
    assert_eq!(tries.len(), 60);
    for (index, entry) in tries.iter().enumerate() {
        let spec = json!({"environments": [{"name": "dev", "targetsFrom": [entry]}]});
        let object = json!({"metadata": {"name": format!("try-{index}")}, "spec": spec});
        other.create::<Pipeline>(object).await;
    }
    let mut options = hub.options();
    options.watch.push("gen-tenant-b".to_owned());
    options.args.push("--no-cross-namespace-refs".to_owned());
    hub.world.notification("hook", &hub.receiver, all_triggers()).await;
    other.notification("spy", &hub.receiver, all_triggers()).await;
    hub.relaybook = Some(Relaybook::with(&hub.world, options).await);
    hub.world.ready("hook").await;
    hub.world.cursor("shop", "hook").await;
    hub.targets(&["dev/eu-1/web"]).await;
    hub.roll_out("web", &["eu-1"], "c2").await;
    hub.receiver.wait("/hook/web-eu-1", 2).await;
    let own = ["GitRepo", "Cluster", "ClusterGroup"];
    for (index, entry) in tries.iter().enumerate() {
        let found = eventually(&format!("try {index} is processed"), async || {
            let status = other.get_pipeline(&format!("try-{index}")).await.status.unwrap_or_default();
            if status.conditions.is_empty() { Err("no condition".to_owned()) } else { Ok(status) }
        })
        .await;
        for target in found.environments.iter().flat_map(|e| &e.targets) {
            let object = &target.cluster_app_ref;
            let is_own = object.namespace == "gen-tenant-b" && own.contains(&object.kind.as_str());
            assert!(is_own, "{entry} selects {object:?}");
        }
    }
    hub.world.fence("shop", &["hook"]).await;
    Oracle::new(&hub.world, &hub.receiver).lane("shop/hook/dev/web-eu-1", &["Progressing c2", "Deployed c2"]).check().await;
}

#[tokio::test]
async fn bundle_deployments_are_followed_outside_of_the_watched_namespaces() {
    let mut hub = Hub::new("gen-everywhere", &[]).await;
    hub.bundle("web", "c1").await;
    hub.join("eu-1", json!({"env": "dev"})).await;
    hub.run("web", "eu-1", "c1").await;
    hub.pipeline(json!([environment("dev", env("dev"), json!({}))])).await;
    hub.world.notification("hook", &hub.receiver, json!({})).await;
    let args = vec!["--fleet-everywhere".to_owned()];
    let options = Options { args, ..hub.options() };
    hub.relaybook = Some(Relaybook::with(&hub.world, options).await);
    hub.world.ready("hook").await;
    hub.world.cursor("shop", "hook").await;
    hub.targets(&["dev/eu-1/web"]).await;
    hub.roll_out("web", &["eu-1"], "c2").await;
    hub.world.fence("shop", &["hook"]).await;
    Oracle::new(&hub.world, &hub.receiver).lane("shop/hook/dev/web-eu-1", &["Deployed c2"]).check().await;
}
