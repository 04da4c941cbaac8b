//! Commit statuses of Applications of Argo CD: they are about the commit that was tried.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::{Delivery, Outcome, Pipeline};
use serde_json::{Value, json};

use crate::support::{Oracle, Receiver, Relaybook, World, control_plane};

const A: &str = "9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21";
const B: &str = "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
const C: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567";
const REFRESHED: &str = "2026-11-26T05:00:00Z";

fn applications(world: &World) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Application");
    Api::namespaced_with(world.client.clone(), &world.ns, &ApiResource::from_gvk(&gvk))
}

/// Writes status fields of an Application. `null` removes a field.
async fn report(world: &World, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    applications(world).patch_status("web", &PatchParams::default(), &patch).await.expect("patched");
}

/// Writes the status of an Application that has synced this revision.
async fn synced(world: &World, revision: &str) {
    let operation = json!({"phase": "Succeeded", "finishedAt": REFRESHED, "syncResult": {"revision": revision},
        "message": "synced", "operation": null});
    report(
        world,
        json!({
            "sync": {"status": "Synced", "revision": revision}, "health": {"status": "Healthy"}, "reconciledAt": REFRESHED,
            "history": [{"id": 1, "revision": revision}], "operationState": operation,
        }),
    )
    .await;
}

/// Creates an Application that has synced a revision, its pipeline, and a notification of commit statuses.
async fn begin(world: &World, receiver: &Receiver, revision: &str) {
    let crd = control_plane::foreign("argoproj.io", "v1alpha1", "Application", "applications");
    control_plane::install(&world.client, &crd).await;
    let object =
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "web"}, "spec": {}});
    let object = serde_json::from_value(object).expect("an object");
    applications(world).create(&PostParams::default(), &object).await.expect("created");
    synced(world, revision).await;
    let app = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "name": "web"});
    let environments = json!([{"name": "dev", "targets": [{"namespace": world.ns}]}]);
    let spec = json!({"appRef": app, "environments": environments});
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    let template = json!({"builtin": "github-commit-status", "parameters": {"owner": "acme", "repository": "podinfo"}});
    let over = json!({"triggers": [{"type": "Deployed"}, {"type": "Failed"}]});
    world.builtin("status", receiver, template, over).await;
}

fn is_canceled(delivery: &Delivery) -> bool {
    let status = delivery.status.clone().unwrap_or_default();
    status.outcome == Some(Outcome::Canceled) && status.reason.as_deref() == Some("CommitMissing")
}

#[tokio::test]
async fn a_failure_before_the_commit_is_known_is_not_posted_on_the_commit_that_runs() {
    let world = World::new("status-unknown").await;
    let receiver = Receiver::start();
    begin(&world, &receiver, A).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    // The sync fails before its commit is known: the branch does not exist, or the repository does not answer.
    let failed = json!({
        "phase": "Error", "message": "ComparisonError: Failed to load target state", "finishedAt": REFRESHED,
        "syncResult": null, "operation": {"sync": {"revision": "main"}},
    });
    report(&world, json!({"sync": {"status": "Unknown"}, "operationState": failed})).await;
    let error = world.delivery("Failed", is_canceled).await.status.unwrap().error.unwrap_or_default();
    assert!(error.contains("the revision is not known") && !error.contains("Git source"), "{error}");
    synced(&world, B).await;
    let sent = receiver.wait(&format!("/repos/acme/podinfo/statuses/{B}"), 1).await;
    assert_eq!((sent[0].json()["state"].as_str(), receiver.log().len()), (Some("success"), 1), "nothing is posted on {A}");

    // Without an operation, a source that cannot be read leaves everything else as it was.
    let why = "Failed to load target state: no such chart";
    let condition = json!({"type": "ComparisonError", "message": why});
    report(&world, json!({"sync": {"status": "Unknown"}, "conditions": [condition]})).await;
    world.delivery("Failed", |d| is_canceled(d) && d.spec.to.message == why).await;
    report(&world, json!({"conditions": null})).await;
    synced(&world, C).await;
    receiver.wait(&format!("/repos/acme/podinfo/statuses/{C}"), 1).await;
    let deployed = [B, C].map(|commit| format!("Deployed {commit}"));
    let lane = ["Failed [Canceled]", &deployed[0], "Failed [Canceled]", &deployed[1]];
    Oracle::new(&world, &receiver).lane("shop/status/dev/web", &lane).check().await;
    assert_eq!(receiver.log().len(), 2, "nothing more is posted on {B}");
    let status = world.get_notification("status").await.status.unwrap();
    assert!(status.conditions.iter().all(|c| c.status == ConditionStatus::True), "{:?}", status.conditions);
    assert_eq!(status.parked, 0);
}
