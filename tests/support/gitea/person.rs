//! A user of Gitea, who acts over its API.

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use serde_json::{Value, json};

use super::{Gitea, Repository};

/// A user with a token. Belongs to the runtime in which it was created.
#[derive(Clone)]
pub struct Person {
    /// Their name.
    pub name: String,
    /// Their password. Git and the API accept it too, with Basic authentication.
    pub password: String,
    /// The token that [`Person::call`] uses.
    pub token: String,
    client: reqwest::Client,
    root: String,
}

/// An answer of the API.
#[derive(Debug)]
pub struct Answer {
    /// Its status code.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub text: String,
    /// Its body as JSON. `null`, if it is something else.
    pub body: Value,
}

impl Answer {
    /// Returns the body of a call that must have succeeded.
    pub fn done(self) -> Value {
        assert!((200..300).contains(&self.status), "Gitea refuses: {self:?}");
        self.body
    }
}

impl Person {
    pub(super) fn new(gitea: &Gitea, name: &str, token: &str) -> Self {
        let (name, token) = (name.to_owned(), token.to_owned());
        Self { name, password: String::new(), token, client: gitea.client(), root: gitea.url("") }
    }

    /// Returns the same user, with another token.
    pub fn with(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// Creates a token with these scopes, such as `write:repository`. `all` is all scopes.
    pub async fn token(&self, scopes: &[&str]) -> String {
        // Gitea creates a token only for someone who knows the password, and each has a name of its own.
        let name = format!("token {:x}", fastrand::u64(..));
        let request = self.client.post(format!("{}/api/v1/users/{}/tokens", self.root, self.name));
        let request = request.basic_auth(&self.name, Some(&self.password));
        let token = send(request, Some(json!({"name": name, "scopes": scopes}))).await.done();
        token["sha1"].as_str().expect("a token").to_owned()
    }

    /// Calls the API. `path` begins after `/api/v1`.
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let request = self.client.request(method, format!("{}/api/v1{path}", self.root));
        send(request.header(AUTHORIZATION, format!("token {}", self.token)), body).await
    }

    /// Gets something that must exist.
    pub async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, None).await.done()
    }

    /// Creates something, which must succeed.
    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.call(Method::POST, path, Some(body)).await.done()
    }

    /// Changes something, which must succeed.
    pub async fn patch(&self, path: &str, body: Value) -> Value {
        self.call(Method::PATCH, path, Some(body)).await.done()
    }

    /// Deletes something, which must exist.
    pub async fn delete(&self, path: &str) {
        self.call(Method::DELETE, path, None).await.done();
    }

    /// Creates a repository whose branch `main` has one commit with these files.
    pub async fn repository(&self, name: &str, files: &[(&str, &str)]) -> Repository {
        let body = json!({"name": name, "default_branch": "main", "auto_init": files.is_empty()});
        self.post("/user/repos", body).await;
        let repository = Repository::of(self, &self.name, name);
        if !files.is_empty() {
            let files: Vec<_> = files.iter().map(|(path, text)| (*path, Some(*text))).collect();
            repository.commit("main", "initial", &files).await;
        }
        repository
    }

    /// Returns a repository of another user, in which this user acts.
    pub fn at(&self, other: &Repository) -> Repository {
        Repository::of(self, &other.owner, &other.name)
    }

    /// Returns the URL of a path of the server.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.root)
    }
}

/// Sends a request with a body of JSON.
async fn send(request: reqwest::RequestBuilder, body: Option<Value>) -> Answer {
    let request = match body {
        Some(body) => request.header(CONTENT_TYPE, "application/json").body(body.to_string()),
        None => request,
    };
    let answer = request.send().await.expect("Gitea answers");
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let text = answer.text().await.expect("a whole answer");
    let body = serde_json::from_str(&text).unwrap_or_default();
    Answer { status, headers, text, body }
}
