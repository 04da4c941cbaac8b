//! The credentials for a cluster: a service account that can only read, one with permissions in one namespace, and one that is deleted.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::Kubeconfig;
use relaybook_api::conditions::{Condition, ConditionStatus};
use relaybook_api::{Pipeline, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Stage, secret};
use crate::support::{Receiver, World, account, control_plane, eventually};

/// Returns a kubeconfig for a new service account of this name in the other cluster's namespace.
pub(super) async fn account(stage: &Stage, name: &str) -> String {
    let _: ServiceAccount = stage.remote.create(json!({"metadata": {"name": name}})).await;
    let token = account::token(&stage.remote.client, &stage.remote.ns, name).await;
    let mut file = Kubeconfig::read_from(control_plane::remote()).expect("a kubeconfig");
    for user in file.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        *user = kube::config::AuthInfo { token: Some(token.clone().into()), ..kube::config::AuthInfo::default() };
    }
    serde_json::to_string(&file).expect("JSON is YAML")
}

async fn create<K>(stage: &Stage, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object");
    Api::<K>::all(stage.remote.client.clone()).create(&PostParams::default(), &object).await.expect("created");
}

/// Lets the service account read Deployments, and nothing else.
async fn allow(stage: &Stage, name: &str) {
    allow_kind(stage, name, "apps", "deployments").await;
}

/// Lets the service account read objects of one more kind.
pub(super) async fn allow_kind(stage: &Stage, name: &str, group: &str, resource: &str) {
    let rules = json!([{"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}]);
    let named = json!({"name": format!("{}-{name}-{resource}", stage.remote.ns)});
    create::<ClusterRole>(stage, json!({"metadata": named, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": named["name"]});
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": stage.remote.ns});
    create::<ClusterRoleBinding>(stage, json!({"metadata": named, "roleRef": role, "subjects": [subject]})).await;
}

/// Lets the service account read the Deployments of one namespace by a Role.
async fn allow_in(stage: &Stage, world: &World, name: &str) {
    let rules = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "watch"]}]);
    world.create::<Role>(json!({"metadata": {"name": name}, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": stage.remote.ns});
    world.create::<RoleBinding>(json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})).await;
}

#[tokio::test]
async fn a_role_in_each_namespace_is_enough() {
    let stage = Stage::new("clusters-role").await;
    let other = World::on(control_plane::remote(), "clusters-role-b").await;
    other.deploy("web", "1").await;
    let receiver = Receiver::start();
    let token = account(&stage, "reader").await;
    allow_in(&stage, &stage.remote, "reader").await;
    stage.kubeconfig_text("eu", &token).await;
    let mut shop = stage.spec("shop", &[secret("eu"), secret("eu")]);
    shop["spec"]["environments"][1]["targets"][0]["namespace"] = json!(other.ns);
    stage.local.create::<Pipeline>(shop).await;
    let relaybook = stage.relaybook_with(&[]).await;
    stage.runs("shop", 0, "1").await;

    // A Role that is missing hides no other namespace, and the message says which one it is.
    let message = stage.unknown("shop", 1, "Forbidden").await;
    let denied = "cluster clusters-role.eu denies access (403): deployments.apps is forbidden";
    assert!(message.starts_with(denied), "{message}");
    let role = "by a Role in namespace clusters-role-b of that cluster, or by a ClusterRole";
    assert!(message.contains("kind Deployment (apps/v1)") && message.ends_with(role), "{message}");
    let is = |c: &Condition| c.status == ConditionStatus::False && c.reason == "Forbidden";
    let ready = stage.local.pipeline_condition("shop", "Ready", is).await;
    assert!(ready.message.contains(role), "{}", ready.message);
    clusters(&relaybook, "forbidden").await;

    // The permission is given later.
    allow_in(&stage, &other, "reader").await;
    stage.runs("shop", 1, "1").await;
    clusters(&relaybook, "reachable").await;
    stage.witness("shop", &receiver).await;
    for world in [&stage.remote, &other] {
        world.ship("web", "2").await;
    }
    stage.runs("shop", 0, "2").await;
    stage.runs("shop", 1, "2").await;
    stage.told("shop", &receiver, &[&["Deployed 2"], &["Deployed 2"]]).await;
}

/// Waits until the only cluster has this state.
async fn clusters(relaybook: &crate::support::Relaybook, state: &str) {
    eventually(&format!("the cluster is {state}"), async || {
        let metrics = relaybook.metrics().await;
        let of =
            |state: &str| metrics.get(&format!(r#"relaybook_clusters{{state="{state}"}}"#)).copied().unwrap_or_default();
        if (of(state) - 1.0).abs() < 0.5 { Ok(()) } else { Err(of(state).to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_selection_of_all_namespaces_requires_a_cluster_role_and_hides_no_target_with_a_role() {
    let stage = Stage::new("clusters-wide").await;
    let receiver = Receiver::start();
    stage.remote.deploy_with("api", "1", json!({"of": "clusters-wide"})).await;
    let token = account(&stage, "reader").await;
    allow_in(&stage, &stage.remote, "reader").await;
    stage.kubeconfig_text("eu", &token).await;
    stage.pipeline("shop", &[secret("eu")]).await;
    let labels = json!({"matchLabels": {"of": "clusters-wide"}});
    let objects = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespaces": ["*"], "selector": labels,
        "clusterRef": secret("eu")});
    let environments = json!([{"name": "e0", "targetsFrom": [{"objects": objects}]}]);
    stage.local.create::<Pipeline>(json!({"metadata": {"name": "all"}, "spec": {"environments": environments}})).await;
    let _relaybook = stage.relaybook_with(&[]).await;
    stage.runs("shop", 0, "1").await;
    stage.witness("shop", &receiver).await;
    let is = |c: &Condition| c.status == ConditionStatus::False && c.reason == "Forbidden";
    let ready = stage.local.pipeline_condition("all", "Ready", is).await;
    assert!(ready.message.contains("by a ClusterRole"), "{}", ready.message);
    stage.remote.ship("web", "2").await;
    stage.runs("shop", 0, "2").await;

    // With a ClusterRole one watch serves both, and nothing is reported because of that.
    allow(&stage, "reader").await;
    let runs = |t: &relaybook_api::pipeline::TargetStatus| t.status == Status::Current && t.revision == "1";
    stage.seen("all", 0, "api is selected", runs).await;
    stage.remote.ship("web", "3").await;
    stage.runs("shop", 0, "3").await;
    stage.told("shop", &receiver, &[&["Deployed 2", "Deployed 3"]]).await;
}

#[tokio::test]
async fn read_permissions_are_enough_and_a_revoked_token_is_detected() {
    let stage = Stage::new("clusters-token").await;
    let receiver = Receiver::start();
    let token = account(&stage, "reader").await;
    allow(&stage, "reader").await;
    stage.kubeconfig_text("eu", &token).await;
    stage.pipeline("shop", &[secret("eu")]).await;
    let relaybook = stage.relaybook_with(&[]).await;
    stage.runs("shop", 0, "1").await;
    stage.witness("shop", &receiver).await;
    stage.remote.ship("web", "2").await;
    stage.runs("shop", 0, "2").await;

    let accounts = stage.remote.api::<ServiceAccount>();
    accounts.delete("reader", &DeleteParams::default()).await.expect("deleted");
    let message = stage.unknown("shop", 0, "Unauthorized").await;
    assert_eq!(message, "cluster clusters-token.eu does not accept the credentials");
    assert_eq!(relaybook.metrics().await[r#"relaybook_clusters{state="unauthorized"}"#], 1.0);

    let token = account(&stage, "reader").await;
    stage.kubeconfig_text("eu", &token).await;
    stage.runs("shop", 0, "2").await;
    stage.remote.ship("web", "3").await;
    stage.runs("shop", 0, "3").await;
    stage.told("shop", &receiver, &[&["Deployed 2", "Deployed 3"]]).await;
    let log = relaybook.log();
    let bearer: Value = serde_json::from_str(&token).unwrap();
    let bearer = bearer["users"][0]["user"]["token"].as_str().unwrap();
    assert!(!log.contains(bearer), "a token is logged");
}
