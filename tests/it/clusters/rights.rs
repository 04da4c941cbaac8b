//! The credentials for a cluster: a service account that can only read, one without permissions, and one that is deleted.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::Kubeconfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Stage, secret};
use crate::support::{Receiver, account, control_plane, eventually};

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

#[tokio::test]
async fn read_permissions_are_enough_and_a_revoked_token_is_detected() {
    let stage = Stage::new("clusters-token").await;
    let receiver = Receiver::start();
    let token = account(&stage, "reader").await;
    allow(&stage, "reader").await;
    stage.kubeconfig_text("eu", &token).await;
    stage.pipeline("shop", &[secret("eu")]).await;
    let pennant = stage.pennant_with(&[]).await;
    stage.runs("shop", 0, "1").await;
    stage.witness("shop", &receiver).await;
    stage.remote.ship("web", "2").await;
    stage.runs("shop", 0, "2").await;

    let accounts = stage.remote.api::<ServiceAccount>();
    accounts.delete("reader", &DeleteParams::default()).await.expect("deleted");
    let message = stage.unknown("shop", 0, "Unauthorized").await;
    assert_eq!(message, "cluster clusters-token.eu does not accept the credentials");
    assert_eq!(pennant.metrics().await[r#"pennant_clusters{state="unauthorized"}"#], 1.0);

    let token = account(&stage, "reader").await;
    stage.kubeconfig_text("eu", &token).await;
    stage.runs("shop", 0, "2").await;
    stage.remote.ship("web", "3").await;
    stage.runs("shop", 0, "3").await;
    stage.told("shop", &receiver, &[&["Deployed 2", "Deployed 3"]]).await;
    let log = pennant.log();
    let bearer: Value = serde_json::from_str(&token).unwrap();
    let bearer = bearer["users"][0]["user"]["token"].as_str().unwrap();
    assert!(!log.contains(bearer), "a token is logged");
}

#[tokio::test]
async fn unreadable_objects_are_forbidden_until_access_is_granted() {
    let stage = Stage::new("clusters-forbidden").await;
    let token = account(&stage, "stranger").await;
    stage.kubeconfig_text("eu", &token).await;
    stage.pipeline("shop", &[secret("eu")]).await;
    let pennant = stage.pennant_with(&[]).await;
    let message = stage.unknown("shop", 0, "Forbidden").await;
    eventually("it is counted", async || match pennant.metrics().await[r#"pennant_clusters{state="forbidden"}"#] {
        1.0 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    let denied = "cluster clusters-forbidden.eu denies access (403): deployments.apps is forbidden";
    assert!(message.starts_with(denied), "{message}");
    allow(&stage, "stranger").await;
    stage.runs("shop", 0, "1").await;
}
