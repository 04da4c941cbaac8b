//! Kinds that are installed late on another cluster, kinds whose CRD is deleted, and deeply nested objects.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use super::{Stage, secret};
use crate::support::world::apps::condition;
use crate::support::{Receiver, control_plane, eventually};

/// Creates the CRD, and a gadget that is ready.
async fn widget(stage: &Stage) {
    let definition = control_plane::foreign("far.example.com", "v1", "Gadget", "gadgets");
    control_plane::install(&stage.remote.client, &definition).await;
    let kind = GroupVersionKind::gvk("far.example.com", "v1", "Gadget");
    let kind = ApiResource::from_gvk_with_plural(&kind, "gadgets");
    let api: Api<DynamicObject> = Api::namespaced_with(stage.remote.client.clone(), &stage.remote.ns, &kind);
    let object = json!({"apiVersion": "far.example.com/v1", "kind": "Gadget",
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/version": "1"}}, "spec": {}});
    let object = serde_json::from_value(object).unwrap();
    eventually("the gadget is created", async || {
        api.create(&PostParams::default(), &object).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    let ready = json!({"status": {"observedGeneration": 1, "conditions": [condition("Ready", "True", "Up", "")]}});
    api.patch_status("web", &PatchParams::default(), &Patch::Merge(ready)).await.expect("patched");
}

#[tokio::test]
async fn an_added_kind_is_observed_and_a_deleted_kind_is_unknown() {
    let stage = Stage::new("clusters-kinds").await;
    let receiver = Receiver::start();
    stage.kubeconfig("eu", control_plane::remote()).await;
    let mut late = stage.spec("shop", &[secret("eu")]);
    late["spec"]["appRef"] = json!({"apiVersion": "far.example.com/v1", "kind": "Gadget", "name": "web"});
    stage.local.create::<Pipeline>(late).await;
    let _relaybook = stage.relaybook_with(&[]).await;
    let message = stage.unknown("shop", 0, "KindNotFound").await;
    assert_eq!(message, "cluster clusters-kinds.eu has no kind Gadget in far.example.com/v1");

    widget(&stage).await;
    stage.runs("shop", 0, "1").await;
    stage.witness("shop", &receiver).await;

    let definitions: Api<CustomResourceDefinition> = Api::all(stage.remote.client.clone());
    definitions.delete("gadgets.far.example.com", &DeleteParams::default()).await.expect("deleted");
    // The API server deletes all objects of the kind, and reports each deletion, before the kind is gone.
    stage.unknown("shop", 0, "KindNotFound").await;
    eventually("the CRD is deleted", async || match definitions.get_opt("gadgets.far.example.com").await {
        Ok(None) => Ok(()),
        other => Err(format!("{}", other.is_ok())),
    })
    .await;
    widget(&stage).await;
    stage.runs("shop", 0, "1").await;
    // The deletion of the object is a change. That the kind is gone is not.
    stage.told("shop", &receiver, &[&["Removed", "Deployed 1"]]).await;
}

/// Calls the other cluster's API server about widgets. The response is not parsed, because it can be nested too deeply.
async fn call(stage: &Stage, method: &str, path: &str, body: Value) {
    let path = format!("/apis/deep.example.com/v1/namespaces/{}/widgets{path}", stage.remote.ns);
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    eventually(&format!("{method} {path}"), async || {
        let request = http::Request::builder().method(method).uri(&path).header("content-type", content);
        let request = request.body(body.to_string().into_bytes()).unwrap();
        stage.remote.client.request_text(request).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
}

#[tokio::test]
async fn a_deeply_nested_object_is_observed_and_hides_no_other() {
    let stage = Stage::new("clusters-deep").await;
    let receiver = Receiver::start();
    let definition = control_plane::foreign("deep.example.com", "v1", "Widget", "widgets");
    control_plane::install(&stage.remote.client, &definition).await;
    let deep = (0..200).fold(json!(1), |inner, _| json!({"b": inner}));
    for (name, values) in [("web", json!({})), ("deep", deep)] {
        let object = json!({"apiVersion": "deep.example.com/v1", "kind": "Widget",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/version": "1"}}, "spec": {"values": values}});
        call(&stage, "POST", "", object).await;
        let ready = json!({"status": {"observedGeneration": 1, "conditions": [condition("Ready", "True", "Up", "")]}});
        call(&stage, "PATCH", &format!("/{name}/status"), ready).await;
    }
    stage.kubeconfig("eu", control_plane::remote()).await;
    let mut shop = stage.spec("shop", &[secret("eu"), secret("eu")]);
    for (environment, name) in ["web", "deep"].iter().enumerate() {
        let app = json!({"apiVersion": "deep.example.com/v1", "kind": "Widget", "name": name});
        shop["spec"]["environments"][environment]["targets"][0]["appRef"] = app;
    }
    stage.local.create::<Pipeline>(shop).await;
    let hook = json!({"template": {"inline": {"body": "{{type}} {{revision}}", "contentType": "text/plain"}}});
    stage.local.notification("hook", &receiver, hook).await;
    let mut relaybook = stage.relaybook_with(&[]).await;
    for environment in 0..2 {
        stage.runs("shop", environment, "1").await;
    }
    stage.local.ready("hook").await;
    stage.local.cursor("shop", "hook").await;

    for (count, revision) in [(1, "2"), (2, "3")] {
        for name in ["web", "deep"] {
            let labels = json!({"metadata": {"labels": {"app.kubernetes.io/version": revision}}});
            call(&stage, "PATCH", &format!("/{name}"), labels).await;
            receiver.wait(&format!("/hook/{name}"), count).await;
        }
        relaybook.restart().await;
    }
    for name in ["web", "deep"] {
        let told: Vec<_> = receiver.to(&format!("/hook/{name}")).into_iter().map(|r| r.body).collect();
        assert_eq!(told, [&b"Deployed 2"[..], b"Deployed 3"], "{name}");
    }
}
