//! A repository of Gitea, as its users see and change it.

use k8s_openapi::ByteString;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::{Value, json};

use super::super::wait::eventually;
use super::{Answer, Person};

/// The longest page of Gitea's lists.
const PAGE: usize = 50;

/// A repository in which one user acts.
#[derive(Clone)]
pub struct Repository {
    /// The name of its owner.
    pub owner: String,
    /// Its name.
    pub name: String,
    /// The user who acts.
    pub person: Person,
}

/// How a pull request is merged.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// With a merge commit.
    Merge,
    /// As one commit on the base.
    Squash,
    /// With each commit on the base.
    Rebase,
}

impl Style {
    fn word(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Squash => "squash",
            Self::Rebase => "rebase",
        }
    }
}

impl Repository {
    pub(super) fn of(person: &Person, owner: &str, name: &str) -> Self {
        Self { owner: owner.to_owned(), name: name.to_owned(), person: person.clone() }
    }

    /// Returns its URL for Git.
    pub fn url(&self) -> String {
        self.person.url(&format!("/{}/{}.git", self.owner, self.name))
    }

    /// Returns the path of something in it, for [`Person::call`].
    pub fn path(&self, rest: &str) -> String {
        format!("/repos/{}/{}{rest}", self.owner, self.name)
    }

    /// Commits files to a branch, and returns the commit. `None` deletes a file. The branch must exist, or no branch at all.
    pub async fn commit(&self, branch: &str, message: &str, files: &[(&str, Option<&str>)]) -> String {
        let mut changes = Vec::new();
        for (path, text) in files {
            let found = self.path(&format!("/contents/{path}?ref={}", encoded(branch)));
            let found = self.person.call(Method::GET, &found, None).await;
            let mut change = match text {
                Some(text) => json!({"operation": "create", "path": path, "content": base64(text)}),
                None => json!({"operation": "delete", "path": path}),
            };
            if found.body["sha"].is_string() {
                change["sha"] = found.body["sha"].clone();
                if text.is_some() {
                    change["operation"] = "update".into();
                }
            }
            changes.push(change);
        }
        let body = json!({"branch": branch, "message": message, "files": changes});
        let answer = self.person.post(&self.path("/contents"), body).await;
        answer["commit"]["sha"].as_str().expect("a commit").to_owned()
    }

    /// Returns a file of a branch, or `None` if one of them does not exist.
    pub async fn file(&self, branch: &str, path: &str) -> Option<String> {
        let path = self.path(&format!("/raw/{path}?ref={}", encoded(branch)));
        let answer = self.person.call(Method::GET, &path, None).await;
        (answer.status == 200).then_some(answer.text)
    }

    /// Returns the commits of a branch, the newest first, each with the names of its files.
    pub async fn commits(&self, branch: &str) -> Vec<Value> {
        self.all("/commits", &format!("&sha={}&stat=false&verification=false&files=true", encoded(branch))).await
    }

    /// Returns the names of the branches.
    pub async fn branches(&self) -> Vec<String> {
        let all = self.all("/branches", "").await;
        all.iter().map(|branch| branch["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Returns the newest commit of a branch, or `None` if it does not exist.
    pub async fn head(&self, branch: &str) -> Option<String> {
        let path = self.path(&format!("/branches/{}", encoded(branch)));
        let answer = self.person.call(Method::GET, &path, None).await;
        (answer.status == 200).then(|| answer.body["commit"]["id"].as_str().expect("a commit").to_owned())
    }

    /// Creates a branch from another branch or a commit.
    pub async fn branch(&self, name: &str, from: &str) {
        self.person.post(&self.path("/branches"), json!({"new_branch_name": name, "old_ref_name": from})).await;
    }

    /// Deletes a branch. A moment later, Gitea closes the open pull requests from it.
    pub async fn delete_branch(&self, name: &str) {
        self.person.delete(&self.path(&format!("/branches/{}", encoded(name)))).await;
    }

    /// Protects the branches of a name or pattern. `rule` has more fields of Gitea's branch protection. Without them, nobody pushes.
    pub async fn protect(&self, branch: &str, rule: Value) {
        let mut body = json!({"rule_name": branch});
        json_patch::merge(&mut body, &rule);
        self.person.post(&self.path("/branch_protections"), body).await;
    }

    /// Removes the protection of a name or pattern.
    pub async fn unprotect(&self, branch: &str) {
        self.person.delete(&self.path(&format!("/branch_protections/{}", encoded(branch)))).await;
    }

    /// Lets another user `read`, `write` or `admin` it.
    pub async fn share(&self, with: &Person, permission: &str) {
        let path = self.path(&format!("/collaborators/{}", with.name));
        self.person.call(Method::PUT, &path, Some(json!({"permission": permission}))).await.done();
    }

    /// Reports a commit status: `pending`, `success`, `error`, `failure` or `warning`.
    pub async fn status(&self, commit: &str, context: &str, state: &str) {
        let path = self.path(&format!("/statuses/{commit}"));
        self.person.post(&path, json!({"context": context, "state": state})).await;
    }

    /// Adds a hook for these events, such as `push` and `pull_request`. Gitea signs its requests with the secret.
    pub async fn hook(&self, url: &str, secret: &str, events: &[&str]) {
        let config = json!({"url": url, "content_type": "json", "secret": secret});
        let body = json!({"type": "gitea", "active": true, "events": events, "config": config});
        self.person.post(&self.path("/hooks"), body).await;
    }

    /// Opens a pull request and returns it.
    pub async fn open(&self, head: &str, base: &str, title: &str, text: &str) -> Value {
        self.person.post(&self.path("/pulls"), json!({"head": head, "base": base, "title": title, "body": text})).await
    }

    /// Returns all pull requests in a state: `open`, `closed` or `all`. Merged ones are closed.
    pub async fn pulls(&self, state: &str) -> Vec<Value> {
        self.all("/pulls", &format!("&state={state}")).await
    }

    /// Returns a pull request.
    pub async fn pull(&self, number: u64) -> Value {
        self.person.get(&self.path(&format!("/pulls/{number}"))).await
    }

    /// Waits until Gitea has checked for conflicts, and returns the pull request. Until then, it is not mergeable.
    pub async fn mergeable(&self, number: u64) -> Value {
        eventually(&format!("pull request {number} is mergeable"), async || {
            let pull = self.pull(number).await;
            if pull["mergeable"] == true { Ok(pull) } else { Err(pull.to_string()) }
        })
        .await
    }

    /// Merges a pull request as soon as Gitea has checked it. A push to its base meanwhile begins the check again, and Gitea answers 405.
    pub async fn merge(&self, number: u64, style: Style) {
        self.mergeable(number).await;
        eventually(&format!("pull request {number} is merged"), async || {
            let answer = self.try_merge(number, json!({"Do": style.word()})).await;
            if answer.status == 405 { Err(answer.text) } else { Ok(answer.done()) }
        })
        .await;
    }

    /// Lets Gitea merge a pull request when all its checks succeed. It looks only when a status or a review arrives, so it never merges
    /// one without checks.
    pub async fn merge_when_checked(&self, number: u64, style: Style) {
        self.mergeable(number).await;
        self.try_merge(number, json!({"Do": style.word(), "merge_when_checks_succeed": true})).await.done();
    }

    /// Asks to merge a pull request, and returns the answer.
    pub async fn try_merge(&self, number: u64, body: Value) -> Answer {
        self.person.call(Method::POST, &self.path(&format!("/pulls/{number}/merge")), Some(body)).await
    }

    /// Closes a pull request without merging it.
    pub async fn close(&self, number: u64) {
        self.edit(number, json!({"state": "closed"})).await;
    }

    /// Opens a closed pull request again.
    pub async fn reopen(&self, number: u64) {
        self.edit(number, json!({"state": "open"})).await;
    }

    /// Edits a pull request: its `title`, `body`, `base` or `state`.
    pub async fn edit(&self, number: u64, change: Value) -> Value {
        self.person.patch(&self.path(&format!("/pulls/{number}")), change).await
    }

    /// Deletes a pull request. Its number is not used again.
    pub async fn delete_pull(&self, number: u64) {
        self.person.delete(&self.path(&format!("/issues/{number}"))).await;
    }

    /// Comments on a pull request.
    pub async fn comment(&self, number: u64, text: &str) {
        self.person.post(&self.path(&format!("/issues/{number}/comments")), json!({"body": text})).await;
    }

    /// Returns the texts of the comments on a pull request, the oldest first.
    pub async fn comments(&self, number: u64) -> Vec<String> {
        let all = self.person.get(&self.path(&format!("/issues/{number}/comments"))).await;
        let all = all.as_array().expect("a list").iter();
        all.map(|comment| comment["body"].as_str().expect("a text").to_owned()).collect()
    }

    /// Approves a pull request. The user must not be its author.
    pub async fn approve(&self, number: u64) {
        self.person.post(&self.path(&format!("/pulls/{number}/reviews")), json!({"event": "APPROVED"})).await;
    }

    /// Changes settings of the repository, such as `archived` or `default_delete_branch_after_merge`.
    pub async fn settings(&self, change: Value) {
        self.person.patch(&self.path(""), change).await;
    }

    /// Deletes the repository.
    pub async fn delete(&self) {
        self.person.delete(&self.path("")).await;
    }

    /// Returns all pages of a list.
    async fn all(&self, list: &str, query: &str) -> Vec<Value> {
        let mut all = Vec::new();
        for page in 1.. {
            let found = self.person.get(&self.path(&format!("{list}?page={page}&limit={PAGE}{query}"))).await;
            let found = found.as_array().expect("a list");
            all.extend_from_slice(found);
            if found.len() < PAGE {
                break;
            }
        }
        all
    }
}

fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

fn base64(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}
