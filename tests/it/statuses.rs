//! Commit statuses of Applications of Argo CD: they are about the commit that was tried, and about one application.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::conditions::{ConditionStatus, get};
use relaybook_api::{Delivery, Outcome, Pipeline};
use serde_json::{Value, json};

use crate::support::{Oracle, Receiver, Relaybook, World, control_plane};

const A: &str = "9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21";
const B: &str = "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
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

/// Writes the status of an Application that has synced this revision: `{"revision": …}`, or `{"revisions": […]}` with several sources.
async fn synced(world: &World, revision: &Value) {
    let with = |fields: Value| {
        let mut entry = revision.clone();
        json_patch::merge(&mut entry, &fields);
        entry
    };
    let operation = json!({"phase": "Succeeded", "finishedAt": REFRESHED, "syncResult": revision, "message": "synced",
        "operation": null});
    report(
        world,
        json!({
            "sync": with(json!({"status": "Synced"})), "health": {"status": "Healthy"}, "reconciledAt": REFRESHED,
            "history": [with(json!({"id": 1}))], "operationState": operation,
        }),
    )
    .await;
}

/// Creates an Application that has synced a revision, its pipeline, and a notification of commit statuses.
async fn begin(world: &World, receiver: &Receiver, revision: &Value) {
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

/// The sync fails before its commit is known: the branch does not exist, or the repository does not answer.
#[tokio::test]
async fn a_failure_before_the_commit_is_known_is_not_posted_on_the_commit_that_runs() {
    let world = World::new("status-unknown").await;
    let receiver = Receiver::start();
    begin(&world, &receiver, &json!({"revision": A})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let failed = json!({
        "phase": "Error", "message": "ComparisonError: Failed to load target state", "finishedAt": REFRESHED,
        "syncResult": null, "operation": {"sync": {"revision": "main"}},
    });
    report(&world, json!({"sync": {"status": "Unknown"}, "operationState": failed})).await;
    let error = world.delivery("Failed", is_canceled).await.status.unwrap().error.unwrap_or_default();
    assert!(error.contains("the revision is not known") && !error.contains("Git source"), "{error}");
    synced(&world, &json!({"revision": B})).await;
    let sent = receiver.wait(&format!("/repos/acme/podinfo/statuses/{B}"), 1).await;
    Oracle::new(&world, &receiver)
        .lane("shop/status/dev/web", &["Failed [Canceled]", &format!("Deployed {B}")])
        .check()
        .await;
    assert_eq!(receiver.log().len(), 1, "nothing is posted on {A}");
    assert_eq!(sent[0].json()["state"], "success");
    let status = world.get_notification("status").await.status.unwrap();
    assert!(status.conditions.iter().all(|c| c.status == ConditionStatus::True), "{:?}", status.conditions);
    assert_eq!(status.parked, 0);
}

/// Without an operation, a source that cannot be read leaves everything else as it was.
#[tokio::test]
async fn a_source_that_cannot_be_compared_is_a_failure_of_no_commit() {
    let world = World::new("status-compared").await;
    let receiver = Receiver::start();
    begin(&world, &receiver, &json!({"revision": A})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let condition = json!({"type": "ComparisonError", "message": "Failed to load target state: no such chart"});
    report(&world, json!({"sync": {"status": "Unknown"}, "conditions": [condition]})).await;
    let delivery = world.delivery("Failed", is_canceled).await;
    assert_eq!(delivery.spec.to.message, "Failed to load target state: no such chart");
    report(&world, json!({"conditions": null})).await;
    synced(&world, &json!({"revision": B})).await;
    receiver.wait(&format!("/repos/acme/podinfo/statuses/{B}"), 1).await;
    let lane = ["Failed [Canceled]", &format!("Deployed {B}")];
    Oracle::new(&world, &receiver).lane("shop/status/dev/web", &lane).check().await;
    assert_eq!(receiver.log().len(), 1, "nothing is posted on {A}");
}

#[tokio::test]
async fn the_commit_of_an_application_with_a_chart_is_that_of_its_git_source() {
    let world = World::new("status-sources").await;
    let receiver = Receiver::start();
    begin(&world, &receiver, &json!({"revisions": ["6.5.0", A]})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    synced(&world, &json!({"revisions": ["6.5.0", B]})).await;
    receiver.wait(&format!("/repos/acme/podinfo/statuses/{B}"), 1).await;
    Oracle::new(&world, &receiver).lane("shop/status/dev/web", &[&format!("Deployed 6.5.0,{B}")]).check().await;
    let status = world.get_notification("status").await.status.unwrap();
    assert_eq!(get(&status.conditions, "Ready").unwrap().status, ConditionStatus::True);
}

/// Two pipelines deploy the same commit in environments of the same name.
#[tokio::test]
async fn the_statuses_of_two_applications_do_not_replace_each_other() {
    let world = World::new("status-context").await;
    let receiver = Receiver::start();
    for app in ["api", "web"] {
        world.kustomize(app, &format!("main@sha1:{A}")).await;
        let app_ref = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": app});
        let environments = json!([{"name": "dev", "targets": [{"namespace": world.ns}]}]);
        let spec = json!({"appRef": app_ref, "environments": environments});
        world.create::<Pipeline>(json!({"metadata": {"name": app}, "spec": spec})).await;
    }
    let template = json!({"builtin": "github-commit-status", "parameters": {"owner": "acme", "repository": "podinfo"}});
    world.builtin("status", &receiver, template, json!({"triggers": [{"type": "Deployed"}]})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    for app in ["api", "web"] {
        world.applied(app, &format!("main@sha1:{B}")).await;
    }
    let sent = receiver.wait(&format!("/repos/acme/podinfo/statuses/{B}"), 2).await;
    let deployed = format!("Deployed main@sha1:{B}");
    let both = Oracle::new(&world, &receiver).lane("api/status/dev/api", &[&deployed]);
    both.lane("web/status/dev/web", &[&deployed]).check().await;
    let mut contexts: Vec<_> = sent.iter().map(|request| request.json()["context"].clone()).collect();
    contexts.sort_by_key(ToString::to_string);
    let context = |app: &str| format!("relaybook/in-cluster/status-context/{app}/dev/status-context/Kustomization/{app}");
    assert_eq!(contexts, [context("api"), context("web")]);
}
