//! People who ask the page, with their tokens, and the page on the own machine.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use reqwest::header::HeaderMap;
use serde_json::json;

use crate::support::World;

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

/// Creates an account with these verbs on all kinds of Pennant in the namespace of the world. Returns its token.
pub async fn token(world: &World, name: &str, verbs: &[&str]) -> String {
    world
        .api::<ServiceAccount>()
        .create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": name}})).unwrap())
        .await
        .expect("a new account");
    if !verbs.is_empty() {
        let rules = json!([{"apiGroups": ["pennant.dev"], "resources": ["*"], "verbs": verbs}]);
        world.create::<Role>(json!({"metadata": {"name": name}, "rules": rules})).await;
        world
            .create::<RoleBinding>(json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": world.ns}],
            }))
            .await;
    }
    let asked = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let answer = world.api::<ServiceAccount>().create_token_request(name, &PostParams::default(), &asked).await;
    answer.expect("a token").status.and_then(|status| status.token).expect("answered")
}

/// A process that ends with the test.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `pennant page`, and the cookie of the browser that opened it.
pub struct OwnPage {
    _child: Process,
    pub origin: String,
    pub cookie: String,
}

impl OwnPage {
    /// Starts it with this kubeconfig, and opens its first address.
    pub async fn start(kubeconfig: &Path, args: &[&str]) -> Self {
        let (child, first) = Self::begin(kubeconfig, args);
        let entered = ask(&first, &[], None).await;
        assert_eq!(entered.status, 303, "{entered:?}");
        let cookie = entered.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let origin = first[..first.find("/enter").unwrap()].to_owned();
        Self { _child: child, origin, cookie }
    }

    /// Starts it. Returns its first address.
    pub fn begin(kubeconfig: &Path, args: &[&str]) -> (Process, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pennant"))
            .args(["page", "--no-open"])
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the built program");
        let mut first = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut first).expect("an address");
        let first = first.trim();
        (Process(child), first.to_owned())
    }

    /// Reads a path.
    pub async fn get(&self, path: &str) -> Seen {
        ask(&format!("{}{path}", self.origin), &[("cookie", &self.cookie)], None).await
    }
}

/// Returns the URL of a path of the page that a Pennant serves.
pub fn url(address: SocketAddr, path: &str) -> String {
    format!("http://{address}{path}")
}
