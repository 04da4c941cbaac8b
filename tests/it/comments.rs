//! Comments on the merged pull request of a commit, at a real Gitea: one for each rollout, which is edited in place.

use relaybook_api::{Delivery, Outcome};
use serde_json::json;

use crate::support::forge_proxy::{Asked, ForgeProxy, Trouble};
use crate::support::gitea::repository::Style;
use crate::support::gitea::{Person, Repository, shared};
use crate::support::receiver::Gate;
use crate::support::world::apps::condition;
use crate::support::{Receiver, Relaybook, World};

/// A repository with a merged pull request, and a notification that comments on it through a proxy.
struct Stage {
    world: World,
    other: Person,
    repository: Repository,
    proxy: ForgeProxy,
    /// The commit before it, that of the merge, and its number.
    old: String,
    merged: String,
    number: u64,
    _receiver: Receiver,
}

impl Stage {
    async fn new(name: &str) -> Self {
        let gitea = shared().await;
        let (person, other) = (gitea.person(name).await, gitea.person(&format!("{name}-other")).await);
        let repository = person.repository("podinfo", &[("app.yaml", "version: 1")]).await;
        let old = repository.head("main").await.unwrap();
        repository.branch("next", "main").await;
        repository.commit("next", "the second version", &[("app.yaml", Some("version: 2"))]).await;
        let number = repository.open("next", "main", "Version 2", "").await["number"].as_u64().unwrap();
        repository.merge(number, Style::Squash).await;
        let merged = repository.head("main").await.unwrap();

        let proxy = ForgeProxy::start(&gitea.url(""), gitea.client());
        let (world, receiver) = (World::new(name).await, Receiver::start());
        world.kustomize("web", &revision(&old)).await;
        world.flux_pipeline("shop", &["dev/web"]).await;
        world.secret("gitea", json!({"token": person.token})).await;
        let parameters = json!({"owner": repository.owner, "repository": repository.name});
        let template = json!({"builtin": "gitea-pull-request-comment", "parameters": parameters});
        let types = ["Progressing", "Deployed", "Failed", "Recovered"].map(|type_| json!({"type": type_}));
        let auth = json!({"token": {"secretKeyRef": {"name": "gitea", "key": "token"}, "scheme": "token"}});
        let over = json!({"triggers": types, "endpoint": {"url": proxy.url(""), "auth": auth}});
        world.builtin("comments", &receiver, template, over).await;
        Self { world, other, repository, proxy, old, merged, number, _receiver: receiver }
    }

    /// The application begins to roll out the merged commit.
    async fn progresses(&self) {
        let revisions = json!({"lastAppliedRevision": revision(&self.old), "lastAttemptedRevision": revision(&self.merged)});
        let reconciling = condition("Reconciling", "True", "Progressing", "building");
        let unknown = condition("Ready", "Unknown", "Progressing", "reconciling");
        self.world.flux("web", vec![reconciling, unknown], revisions).await;
    }

    /// Waits until the delivery of this type and commit has this outcome.
    async fn ended(&self, type_: &str, commit: &str, outcome: Outcome) -> Delivery {
        let has_ended = |delivery: &Delivery| delivery.status.as_ref().and_then(|s| s.outcome) == Some(outcome);
        self.world.delivery(&format!("{type_} {}", revision(commit)), has_ended).await
    }

    /// The methods and the ends of the paths of all requests.
    fn requests(&self) -> Vec<String> {
        let base = format!("/api/v1/repos/{}/{}", self.repository.owner, self.repository.name);
        let named = |asked: &Asked| {
            let path = asked.path.trim_start_matches(&base).replace(&self.merged, "MERGED").replace(&self.old, "OLD");
            let path = path.trim_end_matches(|c: char| c.is_ascii_digit());
            format!("{} {path}", asked.method)
        };
        self.proxy.log().iter().map(named).collect()
    }
}

fn revision(commit: &str) -> String {
    format!("main@sha1:{commit}")
}

/// Returns the headline of a comment.
fn headline(comment: &str) -> &str {
    comment.lines().next().unwrap_or_default().rsplit(": ").next().unwrap_or_default()
}

#[tokio::test]
async fn a_rollout_has_one_comment_that_is_edited_also_after_a_kill() {
    let stage = Stage::new("comments").await;
    let Stage { world, repository, number, .. } = &stage;
    let mut relaybook = Relaybook::start(world).await;
    world.settled().await;

    // Gitea has created the comment, and Relaybook is killed before it has the answer.
    let is_create = |asked: &Asked| asked.method == "POST" && asked.path.ends_with("/comments");
    let held = stage.proxy.rule(is_create, Trouble::HoldAnswer(Gate::new()).once());
    stage.progresses().await;
    stage.proxy.hit(held, 1).await;
    stage.proxy.forwarded(held, 1).await;
    relaybook.kill9();
    // Somebody copies the comment with its identity.
    let first = repository.comments(*number).await;
    assert_eq!(first.len(), 1);
    repository.share(&stage.other, "write").await;
    let copy = Repository { person: stage.other.clone(), ..repository.clone() };
    copy.comment(*number, &first[0]).await;
    relaybook.start_again().await;
    stage.ended("Progressing", &stage.merged, Outcome::Delivered).await;
    world.applied("web", &revision(&stage.merged)).await;
    let deployed = stage.ended("Deployed", &stage.merged, Outcome::Delivered).await;

    let comments = repository.comments(*number).await;
    let headlines: Vec<_> = comments.iter().map(|comment| headline(comment)).collect();
    assert_eq!(headlines, ["Deployed in dev", "Progressing in dev"], "{comments:?}");
    let issue = format!("/issues/{number}/comments");
    let (look, list, create) = ("GET /commits/MERGED/pull", format!("GET {issue}"), format!("POST {issue}"));
    let edit = "PATCH /issues/comments/";
    assert_eq!(stage.requests(), [look, &list, &create, look, &list, edit, edit]);

    // The thread names the comment, and nothing has the token.
    let thread = deployed.status.unwrap().thread.unwrap();
    assert!(comments[0].contains(&format!("<!-- relaybook {} -->", thread.id)), "{comments:?}");
    let text = serde_json::to_string(&world.deliveries().await).unwrap();
    assert!(!text.contains(&repository.person.token), "the token is in a Delivery");
}

#[tokio::test]
async fn a_commit_without_a_pull_request_is_not_commented_on() {
    let stage = Stage::new("comments-none").await;
    let Stage { world, repository, .. } = &stage;
    let _relaybook = Relaybook::start(world).await;
    world.settled().await;
    let pushed = repository.commit("main", "a push", &[("app.yaml", Some("version: 3"))]).await;
    world.applied("web", &revision(&pushed)).await;
    let canceled = stage.ended("Deployed", &pushed, Outcome::Canceled).await.status.unwrap();
    assert_eq!(canceled.reason.as_deref(), Some("PullRequestMissing"));
    assert_eq!(canceled.attempts, 3);
    let said = "the search for the pull request: 404 Not Found: no open or merged pull request has the commit, so there is nothing to comment on";
    assert_eq!(canceled.error.as_deref(), Some(said));
    // The next one is sent.
    world.applied("web", &revision(&stage.merged)).await;
    stage.ended("Deployed", &stage.merged, Outcome::Delivered).await;
    assert_eq!(repository.comments(stage.number).await.len(), 1);
}
