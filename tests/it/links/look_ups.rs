//! Look-ups of commits at a real Gitea: a message has the author and the pull request, only for allowed repositories, and is sent without
//! them if the forge hangs.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, PostParams};
use relaybook_api::delivery::Outcome;
use serde_json::{Value, json};

use super::{applications, reported, synced, text};
use crate::support::forge_proxy::{ForgeProxy, Trouble};
use crate::support::gitea::repository::Style;
use crate::support::gitea::{Gitea, Person, Repository, shared};
use crate::support::receiver::Gate;
use crate::support::{Oracle, Receiver, Relaybook, World, control_plane};

const BODY: &str =
    r#"{"by": "{{git.author}}", "message": "{{git.message}}", "time": "{{git.time}}", "pull": {{json pullRequest}}}"#;

/// A namespace with an Application of Argo CD that runs the first commit of a repository at Gitea, and a notification about it.
struct Stage {
    world: World,
    receiver: Receiver,
    gitea: &'static Gitea,
    person: Person,
    repository: Repository,
    first: String,
}

impl Stage {
    async fn new(ns: &str) -> Self {
        let (world, receiver, gitea) = (World::new(ns).await, Receiver::start(), shared().await);
        let person = gitea.person(ns).await;
        let repository = person.repository("web", &[("README.md", "# web\n")]).await;
        let first = repository.head("main").await.expect("a commit");
        let token = person.token(&["read:repository"]).await;
        world.secret("forge", json!({"token": token})).await;
        world.secret("forge-ca", json!({"ca.crt": gitea.ca()})).await;
        let crd = control_plane::foreign("argoproj.io", "v1alpha1", "Application", "applications");
        control_plane::install(&world.client, &crd).await;
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "web"},
            "spec": {"source": {"repoURL": repository.url()}},
        }))
        .expect("an object");
        applications(&world).create(&PostParams::default(), &object).await.expect("created");
        synced(&world, &first, &repository.url()).await;
        reported(&world, &receiver, BODY).await;
        Self { world, receiver, gitea, person, repository, first }
    }

    /// Lets Relaybook ask Gitea about the repository `web` of the person. `over` is merged into the settings.
    async fn allow(&self, over: Value) {
        let mut look_up = json!({
            "secretRef": {"name": "forge"}, "repositories": [format!("{}/w*", self.person.name)],
            "caFrom": {"secretKeyRef": {"name": "forge-ca", "key": "ca.crt"}},
        });
        json_patch::merge(&mut look_up, &over);
        let config = json!({"forges": [{"host": self.gitea.host(), "type": "gitea", "lookUp": look_up}]});
        let config = json!({"metadata": {"name": "relaybook-config"}, "data": {"config.yaml": config.to_string()}});
        self.world.create::<ConfigMap>(config).await;
    }

    /// Merges a pull request with one change, and returns the commit.
    async fn merged(&self, title: &str) -> String {
        self.repository.branch("change", &self.first).await;
        self.repository.commit("change", title, &[("a.txt", Some("a\n"))]).await;
        let pull = self.repository.open("change", "main", title, "A description").await;
        let number = pull["number"].as_u64().expect("a number");
        self.repository.merge(number, Style::Squash).await;
        self.repository.head("main").await.expect("a commit")
    }

    async fn check(&self, revisions: &[&str]) {
        let lane: Vec<_> = revisions.iter().map(|revision| format!("Deployed {revision}")).collect();
        let lane: Vec<&str> = lane.iter().map(String::as_str).collect();
        Oracle::new(&self.world, &self.receiver).lane("shop/hook/dev/web", &lane).check().await;
    }
}

#[tokio::test]
async fn a_message_names_the_author_and_the_pull_request() {
    let stage = Stage::new("look-ups").await;
    let Stage { world, receiver, person, repository, .. } = &stage;
    let private = person.repository("private", &[("README.md", "# private\n")]).await;
    stage.allow(json!({})).await;
    let title = r#"Fix the "engine" <@everyone>"#;
    let merged = stage.merged(title).await;
    let direct = repository.commit("main", "Directly\n\nWithout a review", &[("b.txt", Some("b\n"))]).await;
    let _relaybook = Relaybook::start(world).await;
    world.settled().await;

    synced(world, &merged, &repository.url()).await;
    let sent = receiver.wait("/hook", 1).await[0].json();
    assert!(text(&sent, "message").starts_with(title), "{sent}");
    assert_eq!(text(&sent, "by"), person.name, "only the name");
    assert!(text(&sent, "time").ends_with('Z'), "{sent}");
    let expected = json!({"number": "1", "title": title, "author": person.name,
        "url": format!("{}/pulls/1", repository.url().trim_end_matches(".git"))});
    assert_eq!(sent["pull"], expected);

    let nothing = json!({"number": "", "title": "", "author": "", "url": ""});
    synced(world, &direct, &repository.url()).await;
    let sent = receiver.wait("/hook", 2).await[1].json();
    assert_eq!([text(&sent, "by"), text(&sent, "message")], [person.name.as_str(), "Directly"]);
    assert_eq!(sent["pull"], nothing, "it came without one");

    // The token can read this repository, but the global configuration does not allow it.
    let other = private.head("main").await.expect("a commit");
    synced(world, &other, &private.url()).await;
    let sent = receiver.wait("/hook", 3).await[2].json();
    assert_eq!([text(&sent, "by"), text(&sent, "message"), text(&sent, "time")], ["", "", ""]);
    assert_eq!(sent["pull"], nothing);

    stage.check(&[&merged, &direct, &other]).await;
    let stored = serde_json::to_string(&(world.deliveries().await, world.get_pipeline("shop").await)).expect("JSON");
    assert!(!stored.contains("engine") && !stored.contains("Directly"), "an answer of a forge is stored nowhere");
}

#[tokio::test]
async fn a_forge_that_hangs_does_not_hold_a_message() {
    let stage = Stage::new("look-ups-hang").await;
    let Stage { world, receiver, repository, .. } = &stage;
    let proxy = ForgeProxy::start(&stage.gitea.url(""), stage.gitea.client());
    let gate = Gate::new();
    let held = proxy.rule(|asked| asked.path.contains("/commits/"), Trouble::HoldRequest(gate.clone()));
    stage.allow(json!({"apiUrl": proxy.url("/api/v1"), "caFrom": null})).await;
    let commit = repository.commit("main", "A change", &[("a.txt", Some("a\n"))]).await;
    let _relaybook = Relaybook::start(world).await;
    world.settled().await;

    // The message arrives while the forge holds both requests.
    synced(world, &commit, &repository.url()).await;
    let sent = receiver.wait("/hook", 1).await[0].json();
    assert_eq!([text(&sent, "by"), text(&sent, "message")], ["", ""]);
    assert_eq!(proxy.hits(held), 2, "it was asked for the commit and for the pull request");
    let what = format!("Deployed {commit}");
    let delivery = world.delivery(&what, |of| of.status.as_ref().is_some_and(|status| status.attempts == 1)).await;
    let status = delivery.status.expect("a status");
    assert_eq!((status.outcome, status.error), (Some(Outcome::Delivered), None));
    gate.open();
    stage.check(&[&commit]).await;
}
