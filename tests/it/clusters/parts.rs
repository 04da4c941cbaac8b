//! An object whose state depends on objects of another kind, on a cluster that does not have that kind or denies access to it.

use relaybook_api::conditions::ConditionStatus;
use relaybook_api::{Pipeline, Status};
use serde_json::{Value, json};

use super::rights::{account, allow_kind};
use super::{Stage, secret};
use crate::fleet::{counted, create, of_repo, status_of};
use crate::support::{Receiver, control_plane};

#[tokio::test]
async fn a_repository_with_unreadable_bundles_is_unknown() {
    let stage = Stage::new("clusters-parts").await;
    let receiver = Receiver::start();
    let define = async |kind: &str, plural: &str| {
        let definition = control_plane::foreign("fleet.cattle.io", "v1alpha1", kind, plural);
        control_plane::install(&stage.remote.client, &definition).await;
    };
    let commit = async |commit: &str| {
        let status = json!({"commit": commit, "gitJobStatus": "Current", "summary": {"desiredReady": 1, "ready": 1}});
        status_of(&stage.remote, "GitRepo", "web", status).await;
    };
    define("GitRepo", "gitrepos").await;
    create(&stage.remote, "GitRepo", "web", json!({}), json!({})).await;
    commit("c1").await;
    let token = account(&stage, "reader").await;
    allow_kind(&stage, "reader", "fleet.cattle.io", "gitrepos").await;
    stage.kubeconfig_text("eu", &token).await;
    let mut shop: Value = stage.spec("shop", &[secret("eu")]);
    shop["spec"]["appRef"] = json!({"apiVersion": "fleet.cattle.io/v1alpha1", "kind": "GitRepo", "name": "web"});
    stage.local.create::<Pipeline>(shop).await;
    let _relaybook = stage.relaybook_with(&[]).await;
    let message = stage.unknown("shop", 0, "KindNotFound").await;
    let because = "the state also depends on objects of kind Bundle: cluster clusters-parts.eu";
    // Another test can have installed a kind with a similar name, which is then suggested.
    assert!(message.starts_with(&format!("{because} has no kind Bundle in fleet.cattle.io/v1alpha1")), "{message}");
    let says = |reason: &'static str| {
        move |c: &relaybook_api::conditions::Condition| c.status == ConditionStatus::False && c.reason == reason
    };
    stage.local.pipeline_condition("shop", "Ready", says("KindNotFound")).await;

    define("Bundle", "bundles").await;
    create(&stage.remote, "Bundle", "web", of_repo("web", "c1"), json!({})).await;
    status_of(&stage.remote, "Bundle", "web", counted(1, 1)).await;
    let message = stage.unknown("shop", 0, "Forbidden").await;
    let denied = format!("{because} denies access (403): bundles.fleet.cattle.io is forbidden");
    assert!(message.starts_with(&denied), "{message}");
    let ready = stage.local.pipeline_condition("shop", "Ready", says("Forbidden")).await;
    assert!(ready.message.contains("bundles.fleet.cattle.io"), "{}", ready.message);

    allow_kind(&stage, "reader", "fleet.cattle.io", "bundles").await;
    stage.runs("shop", 0, "c1").await;
    stage.witness("shop", &receiver).await;
    commit("c2").await;
    let waits = |t: &relaybook_api::pipeline::TargetStatus| t.status == Status::InProgress && t.reason == "BundleNotUpdated";
    stage.seen("shop", 0, "waits for its Bundle", waits).await;
    let labels = json!({"metadata": {"labels": of_repo("web", "c2")}});
    crate::fleet::patch(&stage.remote, "Bundle", "web", labels).await;
    stage.runs("shop", 0, "c2").await;
    stage.told("shop", &receiver, &[&["Deployed c2"]]).await;
}
