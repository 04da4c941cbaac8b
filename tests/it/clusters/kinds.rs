//! Kinds that come late to another cluster, and kinds whose definition is deleted.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use pennant::api::{Change, Pipeline, Status};
use serde_json::json;

use super::{Stage, secret};
use crate::support::world::apps::condition;
use crate::support::{control_plane, eventually};

/// Makes the definition, and a widget that is up.
async fn widget(stage: &Stage) {
    let definition = control_plane::foreign("far.example.com", "v1", "Gadget", "gadgets");
    control_plane::install(&stage.remote.client, &definition).await;
    let kind = GroupVersionKind::gvk("far.example.com", "v1", "Gadget");
    let kind = ApiResource::from_gvk_with_plural(&kind, "gadgets");
    let api: Api<DynamicObject> = Api::namespaced_with(stage.remote.client.clone(), &stage.remote.ns, &kind);
    let object = json!({"apiVersion": "far.example.com/v1", "kind": "Gadget",
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/version": "1"}}, "spec": {}});
    let object = serde_json::from_value(object).unwrap();
    eventually("the gadget is made", async || {
        api.create(&PostParams::default(), &object).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    let ready = json!({"status": {"observedGeneration": 1, "conditions": [condition("Ready", "True", "Up", "")]}});
    api.patch_status("web", &PatchParams::default(), &Patch::Merge(ready)).await.expect("patched");
}

#[tokio::test]
async fn a_kind_that_comes_late_is_picked_up_and_one_that_goes_is_unknown() {
    let stage = Stage::new("clusters-kinds").await;
    stage.kubeconfig("eu", control_plane::remote()).await;
    let mut late = stage.spec("shop", &[secret("eu")]);
    late["spec"]["appRef"] = json!({"apiVersion": "far.example.com/v1", "kind": "Gadget", "name": "web"});
    stage.local.create::<Pipeline>(late).await;
    let _pennant = stage.pennant_with(&[]).await;
    let message = stage.unknown("shop", 0, "KindNotFound").await;
    assert_eq!(message, "cluster clusters-kinds.eu has no kind Gadget in far.example.com/v1");

    widget(&stage).await;
    stage.runs("shop", 0, "1").await;

    let definitions: Api<CustomResourceDefinition> = Api::all(stage.remote.client.clone());
    definitions.delete("gadgets.far.example.com", &DeleteParams::default()).await.expect("deleted");
    // The API server deletes all objects of the kind, and says so, before the kind is gone.
    stage.unknown("shop", 0, "KindNotFound").await;
    let status = stage.local.get_pipeline("shop").await.status.unwrap();
    let of_target = |c: &&Change| c.subject.starts_with("target/");
    let told: Vec<_> = status.log.unwrap().changes.iter().filter(of_target).map(|c| (c.from.status, c.to.status)).collect();
    assert_eq!(
        told.last(),
        Some(&(Status::Current, Status::NotFound)),
        "they were deleted; that the kind is gone is no change: {told:?}"
    );
    assert_eq!(told.iter().filter(|(_, to)| *to == Status::NotFound).count(), 1);

    eventually("the definition is gone", async || match definitions.get_opt("gadgets.far.example.com").await {
        Ok(None) => Ok(()),
        other => Err(format!("{}", other.is_ok())),
    })
    .await;
    widget(&stage).await;
    stage.runs("shop", 0, "1").await;
}
