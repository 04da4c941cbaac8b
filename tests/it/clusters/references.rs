//! References to clusters: each kind of object, and what is reported for a broken reference.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::Pipeline;
use relaybook_api::conditions::ConditionStatus;
use serde_json::{Value, json};

use super::{Stage, object, secret};
use crate::support::relaybook::Options;
use crate::support::{Relaybook, World, control_plane};

const GITOPS: &str = "gitops.weave.works/v1alpha1";
const CAPI: &str = "cluster.x-k8s.io/v1beta1";
const FLEET: &str = "fleet.cattle.io/v1alpha1";

fn api(world: &World, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap();
    let plural = format!("{}s", kind.to_lowercase());
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
    Api::namespaced_with(world.client.clone(), &world.ns, &kind)
}

async fn create(world: &World, api_version: &str, kind: &str, name: &str, spec: Value) {
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let object = serde_json::from_value(object).unwrap();
    api(world, api_version, kind).create(&PostParams::default(), &object).await.expect("created");
}

async fn define(world: &World, api_version: &str, kind: &str) {
    let (group, version) = api_version.split_once('/').unwrap();
    let plural = format!("{}s", kind.to_lowercase());
    control_plane::install(&world.client, &control_plane::foreign(group, version, kind, &plural)).await;
}

async fn value(world: &World, name: &str) {
    let text = std::fs::read_to_string(control_plane::remote()).unwrap();
    world.secret(name, json!({"value": text})).await;
}

#[tokio::test]
async fn each_kind_of_cluster_object_resolves_to_its_cluster() {
    let stage = Stage::new("clusters-kinds-of-refs").await;
    let local = &stage.local;
    define(local, GITOPS, "GitopsCluster").await;
    define(local, FLEET, "Cluster").await;
    value(local, "of-gitops").await;
    value(local, "of-capi-kubeconfig").await;
    value(local, "of-fleet").await;
    create(local, GITOPS, "GitopsCluster", "a", json!({"secretRef": {"name": "of-gitops"}})).await;
    create(local, GITOPS, "GitopsCluster", "b", json!({"capiClusterRef": {"name": "of-capi"}})).await;
    create(local, FLEET, "Cluster", "d", json!({"kubeConfigSecret": "of-fleet"})).await;
    let refs = [
        json!({"kind": "GitopsCluster", "name": "a"}),
        object(GITOPS, "GitopsCluster", "b"),
        object(CAPI, "Cluster", "of-capi"),
        object(FLEET, "Cluster", "d"),
    ];
    stage.pipeline("shop", &refs).await;
    let _relaybook = stage.relaybook_with(&[]).await;
    stage.runs("shop", 0, "1").await;
    stage.runs("shop", 3, "1").await;
    // No other test defines this kind.
    let message = stage.unknown("shop", 2, "ClusterNotFound").await;
    assert!(message.contains("no kind Cluster; install its CRD"), "{message}");
    define(local, CAPI, "Cluster").await;
    create(local, CAPI, "Cluster", "of-capi", json!({})).await;
    stage.runs("shop", 1, "1").await;
    stage.runs("shop", 2, "1").await;
    stage.remote.ship("web", "2").await;
    for environment in 0..4 {
        stage.runs("shop", environment, "2").await;
    }
    // A reference to another Secret applies, and a deleted object is reported.
    let patch = json!({"spec": {"secretRef": {"name": "gone"}}});
    api(local, GITOPS, "GitopsCluster").patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    let message = stage.unknown("shop", 0, "KubeconfigMissing").await;
    assert_eq!(message, "cluster clusters-kinds-of-refs.a: there is no Secret clusters-kinds-of-refs/gone");
    api(local, FLEET, "Cluster").delete("d", &DeleteParams::default()).await.expect("deleted");
    stage.unknown("shop", 3, "ClusterNotFound").await;
}

#[tokio::test]
async fn a_broken_cluster_reference_shows_the_remedy_and_recovers() {
    let stage = Stage::new("clusters-nowhere").await;
    stage.pipeline("shop", &[secret("eu")]).await;
    let _relaybook = stage.relaybook_with(&[]).await;
    let ready = async |reason: &str, words: &str| {
        let holds = |c: &relaybook_api::conditions::Condition| {
            c.status == ConditionStatus::False && c.reason == reason && c.message.contains(words)
        };
        stage.local.pipeline_condition("shop", "Ready", holds).await
    };
    ready("KubeconfigMissing", "there is no Secret clusters-nowhere/eu").await;
    let exec = "contexts: [{name: a, context: {cluster: c, user: u}}]\n\
                clusters: [{name: c, cluster: {server: 'https://10.0.0.1'}}]\n\
                users: [{name: u, user: {exec: {command: sesame}}}]";
    stage.kubeconfig_text("eu", exec).await;
    let told = ready("KubeconfigInvalid", "users[].user.exec runs a program, which is not allowed; use a token").await;
    assert!(told.message.contains("clusters-nowhere.eu") && !told.message.contains("sesame"), "{}", told.message);
    stage.kubeconfig("eu", control_plane::remote()).await;
    stage.runs("shop", 0, "1").await;
    // The last state is kept for a while, and then becomes unknown.
    stage.local.delete::<Secret>("eu").await;
    stage.unknown("shop", 0, "KubeconfigMissing").await;
}

#[tokio::test]
async fn cluster_objects_of_other_namespaces_work_unless_they_are_refused() {
    let stage = Stage::new("clusters-elsewhere").await;
    let infra = World::new("clusters-infra").await;
    define(&infra, GITOPS, "GitopsCluster").await;
    // The Secret is in the namespace of the cluster object. It is not looked for in the pipeline's namespace.
    value(&infra, "kubeconfig-of-eu").await;
    create(&infra, GITOPS, "GitopsCluster", "eu", json!({"secretRef": {"name": "kubeconfig-of-eu"}})).await;
    let there = json!({"kind": "GitopsCluster", "name": "eu", "namespace": infra.ns});
    stage.pipeline("shop", &[there]).await;
    {
        // An installation for some namespaces has permissions in the namespaces that it watches.
        let watch = vec![stage.local.ns.clone(), infra.ns.clone()];
        let _relaybook = Relaybook::with(&stage.local, Options { watch, ..Options::of(&stage.local) }).await;
        stage.runs("shop", 0, "1").await;
    }
    // The schema rejects a reference to a Secret in another namespace.
    let elsewhere = json!({"kind": "Secret", "name": "kubeconfig-of-eu", "namespace": infra.ns});
    let refused: Pipeline = serde_json::from_value(stage.spec("thief", &[elsewhere])).unwrap();
    let refused = stage.local.api::<Pipeline>().create(&PostParams::default(), &refused).await.unwrap_err();
    assert!(refused.to_string().contains("must be in the namespace of the pipeline"), "{refused}");

    let _relaybook = stage.relaybook_with(&["--no-cross-namespace-refs"]).await;
    let told = stage.local.pipeline_condition("shop", "Ready", |c| c.reason == "CrossNamespaceCluster").await;
    assert!(told.message.contains("GitopsCluster of target e0/clusters-infra.eu/clusters-elsewhere"), "{}", told.message);
}
