//! People who ask the page, with their tokens, and the page on the own machine.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, PostParams};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::support::{World, account, eventually, own_page};

/// An answer of the page.
#[derive(Debug)]
pub struct Seen {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

/// A client that follows no redirect, and keeps no cookie.
pub fn client() -> reqwest::Client {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
    client.build().expect("a client")
}

/// Sends a request with these headers. A body makes it a POST of a form.
pub async fn ask(url: &str, headers: &[(&str, &str)], form: Option<&str>) -> Seen {
    let request = match form {
        Some(form) => client().post(url).header("content-type", "application/x-www-form-urlencoded").body(form.to_owned()),
        None => client().get(url),
    };
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = request.send().await.expect("an answer");
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    Seen { status, headers, body: answer.text().await.expect("a body") }
}

/// Creates an account with these verbs on all kinds of Relaybook in the namespace of the world. Returns its token.
pub async fn token(world: &World, name: &str, verbs: &[&str]) -> String {
    world
        .api::<ServiceAccount>()
        .create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": name}})).unwrap())
        .await
        .expect("a new account");
    if !verbs.is_empty() {
        let rules = json!([{"apiGroups": ["relaybook.dev"], "resources": ["*"], "verbs": verbs}]);
        allow(world, name, name, &rules).await;
    }
    account::token(&world.client, &world.ns, name).await
}

/// Gives an account of the namespace of the world these rules there, in a Role with this name. Waits until they apply.
pub async fn allow(world: &World, account: &str, role: &str, rules: &Value) {
    world.create::<Role>(json!({"metadata": {"name": role}, "rules": rules})).await;
    world
        .create::<RoleBinding>(json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": world.ns}],
        }))
        .await;
    // The API server learns of a new RoleBinding from its own watch.
    for rule in rules.as_array().expect("a list") {
        applies(world, account, rule).await;
    }
}

/// Waits until an account of the namespace of the world may do what a rule grants first.
async fn applies(world: &World, account: &str, rule: &Value) {
    let first = |field: &str| rule[field][0].as_str().expect("a text");
    let (group, verb) = (first("apiGroups"), first("verbs"));
    let resource = if first("resources") == "*" { "pipelines" } else { first("resources") };
    let user = format!("system:serviceaccount:{}:{account}", world.ns);
    let asked = json!({"namespace": world.ns, "verb": verb, "group": group, "resource": resource});
    let review = json!({"spec": {"user": user, "resourceAttributes": asked}});
    let review: SubjectAccessReview = serde_json::from_value(review).expect("a review");
    let api: Api<SubjectAccessReview> = Api::all(world.client.clone());
    eventually(&format!("{account} may {verb} {resource}"), async || {
        let answer = api.create(&PostParams::default(), &review).await.map_err(|e| e.to_string())?;
        let status = answer.status.unwrap_or_default();
        if status.allowed { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
}

/// `relaybook page`, and the cookie of the browser that opened it.
pub struct OwnPage {
    _running: own_page::OwnPage,
    pub origin: String,
    pub cookie: String,
}

impl OwnPage {
    /// Starts it with this kubeconfig, and opens its first address.
    pub async fn start(kubeconfig: &Path, args: &[&str]) -> Self {
        let running = own_page::OwnPage::start(kubeconfig, args);
        let (origin, cookie) = (running.origin().to_owned(), running.enter().await);
        Self { _running: running, origin, cookie }
    }

    /// Reads a path.
    pub async fn get(&self, path: &str) -> Seen {
        ask(&format!("{}{path}", self.origin), &[("cookie", &self.cookie)], None).await
    }
}

/// An open stream of events.
pub struct Events(reqwest::Response);

impl Events {
    /// Opens the stream of a screen.
    pub async fn open(page: &OwnPage, path: &str) -> Self {
        Self::at(&page.origin, path, &page.cookie).await
    }

    /// Opens the stream of a screen of the page at this origin.
    pub async fn at(origin: &str, path: &str, cookie: &str) -> Self {
        let url = format!("{origin}/events?for={}", path.replace('?', "%3F").replace('=', "%3D"));
        let answer = client().get(url).header("cookie", cookie).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "text/event-stream", "{path}");
        Self(answer)
    }

    /// Returns whether the server has ended the stream. What it has sent until now is lost.
    pub async fn has_ended(&mut self) -> bool {
        let ends = async { while let Ok(Some(_)) = self.0.chunk().await {} };
        tokio::time::timeout(Duration::from_millis(300), ends).await.is_ok()
    }

    /// Returns whether a change is signaled within this time.
    pub async fn change(&mut self, time: Duration) -> bool {
        let mut text = String::new();
        let changed = async {
            while let Ok(Some(chunk)) = self.0.chunk().await {
                text.push_str(&String::from_utf8_lossy(&chunk));
                if text.contains("event: change") {
                    return true;
                }
            }
            false
        };
        tokio::time::timeout(time, changed).await.unwrap_or(false)
    }
}

/// Returns the URL of a path of the page that a Relaybook serves.
pub fn url(address: SocketAddr, path: &str) -> String {
    format!("http://{address}{path}")
}
