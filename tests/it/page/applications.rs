//! Applications of Argo CD that one pipeline follows: messages and screens name each of them, and where it deploys to.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use super::person::OwnPage;
use crate::support::{Receiver, Relaybook, World, control_plane, eventually};

/// The API of Applications.
fn applications(world: &World) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Application");
    Api::namespaced_with(world.client.clone(), &world.ns, &ApiResource::from_gvk(&gvk))
}

/// Creates an Application of the set, which deploys to another cluster.
async fn create(world: &World, name: &str, destination: Value) {
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": name, "labels": {"set": "shop"}},
        "spec": {"project": "default", "source": {"repoURL": "https://github.com/acme/shop"}, "destination": destination},
    });
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    eventually(&format!("{name} is created"), async || {
        applications(world).create(&PostParams::default(), &object).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    sync(world, name, "c1").await;
}

/// Writes the status of an Application that runs a revision.
async fn sync(world: &World, name: &str, revision: &str) {
    let operation = json!({"phase": "Succeeded", "finishedAt": "2026-11-26T05:00:00Z", "syncResult": {"revision": revision},
        "operation": {"sync": {"revision": revision}}});
    let status = json!({
        "sync": {"status": "Synced", "revision": revision}, "health": {"status": "Healthy"}, "operationState": operation,
        "reconciledAt": "2026-11-26T05:00:00Z",
    });
    let patch = Patch::Merge(json!({"status": status}));
    applications(world).patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test]
async fn each_application_of_a_set_is_named_with_its_destination() {
    let world = World::new("page-argo").await;
    let crd = control_plane::foreign("argoproj.io", "v1alpha1", "Application", "applications");
    control_plane::install(&world.client, &crd).await;
    create(&world, "shop-eu", json!({"name": "eu-1"})).await;
    create(&world, "shop-us", json!({"server": "https://us-1.example.com"})).await;
    let selector = json!({"matchLabels": {"set": "shop"}});
    let objects = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "selector": selector});
    let spec = json!({"environments": [{"name": "prod", "targetsFrom": [{"objects": objects}]}]});
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    let receiver = Receiver::start();
    world.builtin("chat", &receiver, json!({"builtin": "slack"}), json!({"triggers": [{"type": "Deployed"}]})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.observed_at("shop", "c1", &["shop-eu", "shop-us"]).await;
    world.ready("chat").await;
    world.cursor("shop", "chat").await;
    sync(&world, "shop-eu", "c2").await;
    let sent = eventually("the message", async || receiver.log().into_iter().next().ok_or_else(String::new)).await;
    assert_eq!(sent.json()["text"], "✅ shop/shop-eu: Deployed in prod");

    let page = OwnPage::start(&world.kubeconfig, &["--controller-namespace", &world.ns]).await;
    for (path, parts) in [
        (
            format!("/?namespace={}", world.ns),
            vec!["Application shop-eu, shop-us", "<b>shop-eu</b> <span class=\"badge good\">Deployed</span>"],
        ),
        (
            format!("/pipelines/{}/shop", world.ns),
            vec![
                "It follows Application shop-eu, shop-us.",
                "prod/page-argo/shop-eu<span class=\"sub\">deploys to eu-1</span>",
                "prod/page-argo/shop-us<span class=\"sub\">deploys to https://us-1.example.com</span>",
                "Deployed prod/page-argo/shop-eu",
            ],
        ),
    ] {
        let seen = eventually(&path, async || {
            let seen = page.get(&path).await.body;
            if parts.iter().all(|part| seen.contains(part)) { Ok(seen) } else { Err(seen) }
        })
        .await;
        assert!(!seen.contains("prod/in-cluster/"), "{path}: {seen}");
    }
}
