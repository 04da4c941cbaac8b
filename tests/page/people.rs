//! The people who look at the page: each has a ServiceAccount, and the permissions of a role.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use crate::support::account;

/// The namespace of the accounts.
const HOME: &str = "default";

/// Creates the people. Returns their tokens by name: `admin` reads and writes everything, `shop` and `payments` only the namespace with
/// their name, `reader` reads all of Relaybook, and `nobody` has no permission.
pub async fn tokens(client: &Client) -> Value {
    let write = json!([{"apiGroups": ["relaybook.dev"], "resources": ["*"], "verbs": ["get", "list", "watch", "patch"]}]);
    let read = json!([{"apiGroups": ["relaybook.dev"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    for (name, rules) in [("page-writer", write), ("page-reader", read)] {
        let role: ClusterRole = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &role).await.expect("a new role");
    }
    let mut tokens = Map::new();
    for (person, role, namespace) in [
        ("admin", Some("cluster-admin"), None),
        ("reader", Some("page-reader"), None),
        ("shop", Some("page-writer"), Some("shop")),
        ("payments", Some("page-writer"), Some("payments")),
        ("nobody", None, None),
    ] {
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": person}})).unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), HOME);
        accounts.create(&PostParams::default(), &account).await.expect("a new account");
        if let Some(role) = role {
            bind(client, person, role, namespace).await;
        }
        tokens.insert(person.to_owned(), json!(account::token(client, HOME, person).await));
    }
    tokens.into()
}

async fn bind(client: &Client, person: &str, role: &str, namespace: Option<&str>) {
    let object = json!({
        "metadata": {"name": format!("page-{person}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": person, "namespace": HOME}],
    });
    match namespace {
        Some(namespace) => {
            let binding: RoleBinding = serde_json::from_value(object).unwrap();
            let api = Api::namespaced(client.clone(), namespace);
            drop(api.create(&PostParams::default(), &binding).await.expect("bound"));
        }
        None => {
            let binding: ClusterRoleBinding = serde_json::from_value(object).unwrap();
            drop(Api::all(client.clone()).create(&PostParams::default(), &binding).await.expect("bound"));
        }
    }
}
