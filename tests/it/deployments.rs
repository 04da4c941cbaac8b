//! Deployments at GitHub: one for each rollout of a target, also if Relaybook is killed before it can write the ID. Its status follows in the same
//! attempt.

use std::sync::{Arc, Mutex};

use kube::ResourceExt as _;
use relaybook_api::delivery::REDELIVER;
use relaybook_api::{Delivery, Outcome};
use serde_json::{Value, json};

use crate::support::receiver::Request;
use crate::support::world::apps::condition;
use crate::support::{Receiver, Relaybook, Reply, World};

const OLD: &str = "main@sha1:9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21";
const NEW: &str = "main@sha1:5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
const NEWEST: &str = "main@sha1:0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c5f3d2c1b";
const DEPLOYMENTS: &str = "/repos/acme/podinfo/deployments";

/// The deployments at a receiver that answers as GitHub does.
#[derive(Clone, Default)]
struct Hub(Arc<Mutex<Deployments>>);

#[derive(Default)]
struct Deployments {
    all: Vec<Value>,
    /// Each status that was sent, with the ID of its deployment.
    states: Vec<(usize, String)>,
    /// The answer to the next status, if it is not accepted.
    instead: Option<Reply>,
}

impl Hub {
    fn start() -> (Self, Receiver) {
        let (hub, receiver) = (Self::default(), Receiver::start());
        let book = hub.clone();
        receiver.decide(move |request| book.answer(request));
        (hub, receiver)
    }

    fn answer(&self, request: &Request) -> Reply {
        let mut hub = self.0.lock().unwrap();
        let said = |status, body: &Value| Reply::status(status).body(&body.to_string());
        let (path, query) = request.path.split_once('?').unwrap_or((request.path.as_str(), ""));
        match (request.method.as_str(), path.strip_prefix(DEPLOYMENTS)) {
            ("GET", Some("")) => {
                let task = query.split('&').find_map(|pair| pair.strip_prefix("task=")).unwrap().replace("%3A", ":");
                // Somebody has copied the task, for another commit.
                let copy = json!({"id": 0, "task": task, "ref": "next", "sha": "next", "original_environment": "dev"});
                let found = hub.all.iter().filter(|of| of["task"] == task.as_str()).rev().cloned().chain([copy]);
                said(200, &json!(found.collect::<Vec<_>>()))
            }
            ("POST", Some("")) => {
                let mut deployment = request.json();
                deployment["id"] = json!(hub.all.len() + 1);
                deployment["sha"] = deployment["ref"].clone();
                deployment["original_environment"] = deployment["environment"].clone();
                hub.all.push(deployment.clone());
                said(201, &deployment)
            }
            ("POST", Some(rest)) => {
                let id = rest.trim_start_matches('/').trim_end_matches("/statuses").parse().unwrap();
                hub.states.push((id, request.json()["state"].as_str().unwrap().to_owned()));
                hub.instead.take().unwrap_or_else(|| said(201, &json!({"id": 1})))
            }
            _ => said(404, &json!({"message": "Not Found"})),
        }
    }

    /// Answers the next status in this way.
    fn instead(&self, reply: Reply) {
        self.0.lock().unwrap().instead = Some(reply);
    }

    /// The commit of each deployment.
    fn commits(&self) -> Vec<String> {
        self.0.lock().unwrap().all.iter().map(|of| of["ref"].as_str().unwrap().to_owned()).collect()
    }

    fn states(&self) -> Vec<(usize, String)> {
        self.0.lock().unwrap().states.clone()
    }
}

/// Waits for the delivery of this type and revision.
async fn sent(world: &World, type_: &str, revision: &str) -> Delivery {
    let is_sent = |d: &Delivery| d.status.as_ref().and_then(|s| s.outcome) == Some(Outcome::Delivered);
    world.delivery(&format!("{type_} {revision}"), is_sent).await
}

/// The methods of all requests, in words.
fn methods(receiver: &Receiver) -> Vec<String> {
    let name = |request: Request| {
        let end = if request.path.ends_with("/statuses") { " status" } else { "" };
        format!("{}{end}", request.method)
    };
    receiver.log().into_iter().map(name).collect()
}

fn commit(revision: &str) -> String {
    revision.trim_start_matches("main@sha1:").to_owned()
}

#[tokio::test]
async fn a_rollout_has_one_deployment_also_after_a_kill_and_a_failed_status() {
    let (hub, receiver) = Hub::start();
    let world = World::new("deployments").await;
    world.kustomize("web", OLD).await;
    world.flux_pipeline("shop", &["dev/web"]).await;
    world.secret("github", json!({"token": "ghp_1234567890"})).await;
    let template = json!({"builtin": "github-deployment", "parameters": {"owner": "acme", "repository": "podinfo"}});
    let types = ["Progressing", "Deployed", "Failed", "Recovered", "Removed"].map(|type_| json!({"type": type_}));
    let auth = json!({"token": {"secretKeyRef": {"name": "github", "key": "token"}}});
    let over = json!({"triggers": types, "endpoint": {"auth": auth}});
    world.builtin("hub", &receiver, template, over).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    // The deployment is created, and Relaybook is killed before anything is written about it.
    hub.instead(Reply::Hang);
    let revisions = json!({"lastAppliedRevision": OLD, "lastAttemptedRevision": NEW});
    let reconciling = condition("Reconciling", "True", "Progressing", "building");
    let unknown = condition("Ready", "Unknown", "Progressing", "reconciling");
    world.flux("web", vec![reconciling, unknown], revisions).await;
    receiver.wait(&format!("{DEPLOYMENTS}/1/statuses"), 1).await;
    relaybook.kill9();
    relaybook.start_again().await;
    sent(&world, "Progressing", NEW).await;
    assert_eq!(hub.commits(), [commit(NEW)]);
    world.applied("web", NEW).await;
    sent(&world, "Deployed", NEW).await;
    assert_eq!(hub.commits(), [commit(NEW)]);
    let state = |id, state: &str| (id, state.to_owned());
    assert_eq!(hub.states(), [state(1, "in_progress"), state(1, "in_progress"), state(1, "success")]);
    let until_now = ["GET", "POST", "POST status", "GET", "POST status", "POST status"];
    assert_eq!(methods(&receiver), until_now, "the last one needs no search");

    // The status of a new deployment fails once.
    hub.instead(Reply::status(503));
    world.applied("web", NEWEST).await;
    let deployed = sent(&world, "Deployed", NEWEST).await;
    assert_eq!(deployed.status.as_ref().unwrap().attempts, 2);
    assert_eq!(hub.commits(), [commit(NEW), commit(NEWEST)]);
    assert_eq!(hub.states()[3..], [state(2, "success"), state(2, "success")]);
    assert_eq!(methods(&receiver)[6..], ["GET", "POST", "POST status", "GET", "POST status"]);

    // A redelivery is outside of the order. It changes no deployment, and its next attempt finds its own.
    hub.instead(Reply::status(503));
    let again = |value: &str| json!({"metadata": {"annotations": {(REDELIVER): value}}});
    world.patch::<Delivery>(&deployed.name_any(), again("1")).await;
    receiver.wait(&format!("{DEPLOYMENTS}/3/statuses"), 2).await;
    assert_eq!(methods(&receiver)[11..], ["GET", "POST", "POST status", "GET", "POST status"]);

    // A rollback has a deployment of its own. So GitHub shows the commit that runs.
    world.applied("web", NEW).await;
    let is_rollback = |d: &Delivery| d.spec.from.revision == NEWEST && d.status.as_ref().and_then(|s| s.outcome).is_some();
    let back = world.delivery(&format!("Deployed {NEW}"), is_rollback).await;
    assert_eq!(back.status.unwrap().outcome, Some(Outcome::Delivered));
    assert_eq!(hub.commits(), [NEW, NEWEST, NEWEST, NEW].map(commit));
    assert_eq!(methods(&receiver)[16..], ["GET", "POST", "POST status"]);

    // It would make the deployment of the rollback inactive.
    world.patch::<Delivery>(&deployed.name_any(), again("2")).await;
    let is_superseded = |d: &Delivery| d.status.as_ref().and_then(|s| s.outcome) == Some(Outcome::Superseded);
    let outdated = world.delivery(&format!("Deployed {NEWEST}"), is_superseded).await;
    assert_eq!(outdated.status.unwrap().reason.as_deref(), Some("NewerDelivered"));
    assert_eq!(methods(&receiver).len(), 19);
    let text = serde_json::to_string(&world.deliveries().await).unwrap();
    assert!(!text.contains("ghp_"), "the token is in a Delivery");
}
