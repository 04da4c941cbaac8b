//! `relaybook test`: the controller sends a sample that says that it is a test, once, and that changes nothing at the receiver. It is
//! recorded, and is in no lane, no order and no count.

mod killed;

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use relaybook_api::delivery::{TEST_LABEL, TEST_LANE};
use relaybook_api::notification::{LastTest, TEST, TestResult};
use relaybook_api::values::names::hash;
use relaybook_api::{Delivery, Notification, Outcome, Pipeline};
use serde_json::{Value, json};

use crate::support::receiver::{Gate, Request};
use crate::support::relaybook::Options;
use crate::support::world::apps::condition;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

/// Starts Relaybook with the pipeline `shop` and its target `dev/web`.
async fn stage(ns: &str) -> (World, Receiver, Relaybook) {
    let world = World::new(ns).await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    (world, receiver, relaybook)
}

fn tests(receiver: &Receiver) -> Vec<Request> {
    receiver.log().into_iter().filter(|request| request.headers.contains_key("relaybook-test")).collect()
}

async fn recorded(world: &World) -> Vec<Delivery> {
    world.deliveries().await.into_iter().filter(|delivery| delivery.spec.test).collect()
}

/// Waits for the result of another test than this one.
async fn result(world: &World, notification: &str, before: &str) -> LastTest {
    eventually("the result of a test", async || {
        let last = world.get_notification(notification).await.status.and_then(|status| status.last_test);
        last.filter(|last| last.id != before).ok_or_else(|| "no result".to_owned())
    })
    .await
}

/// Requests a test as the command does, without waiting.
async fn annotate(world: &World, notification: &str, id: &str) {
    let request = json!({"id": id, "time": relaybook_api::now(), "confirmed": true}).to_string();
    world.patch::<Notification>(notification, json!({"metadata": {"annotations": {TEST: request}}})).await;
}

#[tokio::test]
async fn a_test_is_sent_once_recorded_and_counted_nowhere() {
    let (world, receiver, _relaybook) = stage("tested").await;
    receiver.always("/", Reply::status(200).body("ok"));
    world.builtin("chat", &receiver, json!({"builtin": "slack"}), json!({})).await;
    world.ready("chat").await;
    let (code, out, err) = world.command(&["test", "notification/chat"]).await;
    assert_eq!(code, Some(0), "{out}{err}");
    let about = format!("dev/in-cluster/{}/web (Pipeline {}/shop)", world.ns, world.ns);
    let first = format!("Test of chat with Deployed of {about}: the receiver accepted it: 200 after ");
    assert!(out.starts_with(&first) && out.contains("How the receiver can see that it is a test: "), "{out}");
    let sent = tests(&receiver);
    assert_eq!((sent.len(), sent[0].header("relaybook-test")), (1, "true"));
    assert_eq!(sent[0].json()["text"], "✅ TEST: shop/web: Deployed in dev");

    let deliveries = recorded(&world).await;
    let [delivery] = deliveries.as_slice() else { panic!("{deliveries:?}") };
    let status = delivery.status.clone().unwrap();
    assert_eq!((status.outcome, status.attempts, status.status_code), (Some(Outcome::Delivered), 1, Some(200)));
    assert!(
        delivery.spec.lane.starts_with(TEST_LANE) && delivery.metadata.labels.as_ref().unwrap().contains_key(TEST_LABEL)
    );
    assert!(
        out.contains(&format!("Record: delivery/{} -n {}", delivery.metadata.name.as_ref().unwrap(), world.ns)),
        "{out}"
    );
    let notification = world.get_notification("chat").await;
    assert!(!notification.metadata.annotations.unwrap_or_default().contains_key(TEST), "the command removes its request");
    let status = notification.status.unwrap();
    assert_eq!((status.pending, status.delivered, status.parked), (0, 0, 0));
    assert!(status.last_sent_time.is_none() && status.last_attempt_time.is_none(), "{status:?}");

    // The receiver refuses the next one. That gives no reason to look at the notification.
    receiver.always("/", Reply::status(403).body("invalid_token"));
    let (code, out, err) = world.command(&["test", "chat", "--type", "Failed", "--pipeline", "shop"]).await;
    assert!(code == Some(1) && out.contains("with Failed of ") && out.contains("it failed: 403 Forbidden"), "{out}{err}");
    assert_eq!(tests(&receiver).len(), 2, "one attempt each");
    let status = world.get_notification("chat").await.status.unwrap();
    assert!(status.last_parked_time.is_none() && status.parked == 0, "{status:?}");
    let (_, out, _) = world.command(&["status"]).await;
    assert!(!out.contains("PROBLEM"), "{out}");

    // What is real is sent as always.
    receiver.always("/", Reply::status(200));
    world.ship("web", "2").await;
    world.fence("shop", &["chat"]).await;
    Oracle::new(&world, &receiver).lane("shop/chat/dev/web", &["Deployed 2"]).check().await;
}

#[tokio::test]
async fn nothing_is_sent_without_a_reason_that_the_user_reads() {
    let (world, receiver, _relaybook) = stage("tested-refused").await;
    world.notification("own", &receiver, json!({})).await;
    world.builtin("held", &receiver, json!({"builtin": "slack"}), json!({"suspend": true})).await;
    let nowhere = json!({"triggers": [{"type": "Failed", "environments": ["production"]}]});
    world.builtin("nowhere", &receiver, json!({"builtin": "slack"}), nowhere).await;
    let marked = json!({"template": {"inline": {"body": "{\"text\": \"{{#if test}}TEST {{/if}}{{pipeline.name}}\"}"}}});
    world.notification("marked", &receiver, marked).await;
    for name in ["own", "nowhere", "marked"] {
        world.ready(name).await;
    }
    for (args, code, words) in [
        (&["own"][..], 1, "neither the body nor the URL uses the field test"),
        (&["held"], 1, "Notification held is suspended; resume it first"),
        (&["nowhere"], 1, "no trigger of Notification nowhere matches a sample for Pipeline tested-refused/shop"),
        (&["marked", "--pipeline", "other"], 1, "Pipeline tested-refused/other does not exist, or Notification marked"),
        (&["marked", "--target", "dev/x"], 1, "Pipeline shop has no target dev/x; it has dev/in-cluster/"),
        (&["marked", "--type", "Drifted"], 1, "no trigger of Notification marked matches Drifted"),
        (&["missing"], 5, "Notification missing does not exist"),
        (&["marked", "--type", "Deploy"], 2, "must be one of Added, Deployed"),
    ] {
        let (found, out, err) = world.command(&[&["test"], args].concat()).await;
        assert!(found == Some(code) && format!("{out}{err}").contains(words), "{args:?}: {found:?} {out}{err}");
    }
    assert!(receiver.log().is_empty() && recorded(&world).await.is_empty());
    let (code, out, err) = world.command(&["test", "own", "--yes"]).await;
    assert!(code == Some(0) && out.contains("only the header Relaybook-Test says it"), "{out}{err}");
    let (code, out, err) = world.command(&["test", "marked"]).await;
    assert!(code == Some(0), "{out}{err}");
    assert_eq!(receiver.to("/marked/web")[0].json()["text"], "TEST shop");
    // A request from a backup, and one that is no request.
    for (value, words) in [
        (r#"{"id": "aaaa1111", "time": "2026-01-01T00:00:00Z"}"#, "a test must begin within 10 minutes"),
        ("yes", "annotation relaybook.dev/test: "),
    ] {
        let before = result(&world, "marked", "").await.id;
        world.patch::<Notification>("marked", json!({"metadata": {"annotations": {TEST: value}}})).await;
        let last = result(&world, "marked", &before).await;
        assert!(last.result == TestResult::Refused && last.message.contains(words), "{last:?}");
    }
    assert_eq!(tests(&receiver).len(), 2);
}

/// A receiver that keeps what statuses and alerts say, as GitHub and PagerDuty do.
fn states(requests: &[Request]) -> BTreeMap<String, String> {
    let mut states = BTreeMap::new();
    for body in requests.iter().map(Request::json) {
        let text = |field: &str| body[field].as_str().map(str::to_owned);
        if let Some((key, state)) =
            text("context").zip(text("state")).or_else(|| text("dedup_key").zip(text("event_action")))
        {
            states.insert(key, state);
        }
    }
    states
}

/// The three harms of earlier tests: a failed commit became green, an open incident was closed, and a workflow was started.
#[tokio::test]
async fn a_test_changes_no_status_no_alert_and_starts_nothing() {
    let world = World::new("tested-harmless").await;
    let receiver = Receiver::start();
    let (old, commit) = ("9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21", "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c");
    let [old, new] = [old, commit].map(|commit| format!("main@sha1:{commit}"));
    world.kustomize("web", &old).await;
    world.flux_pipeline("shop", &["dev/web"]).await;
    let repository = json!({"owner": "acme", "repository": "shop"});
    let with = |builtin: &str| json!({"builtin": builtin, "parameters": repository});
    world.builtin("status", &receiver, with("github-commit-status"), json!({})).await;
    world.builtin("pager", &receiver, json!({"builtin": "pagerduty"}), json!({})).await;
    let dispatch = json!({"triggers": [{"type": "Removed"}]});
    world.builtin("dispatch", &receiver, with("github-repository-dispatch"), dispatch).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let revisions = json!({"lastAppliedRevision": old, "lastAttemptedRevision": new});
    world.flux("web", vec![condition("Ready", "False", "HealthCheckFailed", "no such image")], revisions).await;
    let path = format!("/repos/acme/shop/statuses/{commit}");
    receiver.wait(&path, 1).await;
    receiver.wait("/v2/enqueue", 1).await;
    let before = states(&receiver.log());
    assert_eq!(before.values().collect::<Vec<_>>().len(), 2, "{before:?}");
    assert!(
        before.values().any(|state| state == "failure") && before.values().any(|state| state == "trigger"),
        "{before:?}"
    );

    for name in ["status", "pager"] {
        let (code, out, err) = world.command(&["test", name]).await;
        assert_eq!(code, Some(0), "{name}: {out}{err}");
    }
    let after = states(&receiver.log());
    for (key, state) in &before {
        assert_eq!(after.get(key), Some(state), "the truth is unchanged: {after:?}");
    }
    let new: Vec<_> = after.iter().filter(|(key, _)| !before.contains_key(*key)).map(|(_, state)| state.as_str()).collect();
    assert_eq!(new.iter().collect::<std::collections::BTreeSet<_>>(), ["resolve", "success"].iter().collect(), "{after:?}");
    let alerts: Vec<_> = tests(&receiver).into_iter().filter(|request| request.path == "/v2/enqueue").collect();
    let actions: Vec<Value> = alerts.iter().map(|request| request.json()["event_action"].clone()).collect();
    assert_eq!(actions, ["trigger", "resolve"], "a test closes the alert that it opens");

    let count = receiver.log().len();
    let (code, out, err) = world.command(&["test", "dispatch"]).await;
    assert!(code == Some(1) && out.contains("a test would start workflows") && err.contains("--yes"), "{out}{err}");
    assert_eq!(receiver.log().len(), count);
    let (code, out, err) = world.command(&["test", "dispatch", "--yes"]).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(receiver.to("/repos/acme/shop/dispatches")[0].json()["event_type"], "relaybook-test");
}

/// A Notification of another namespace must not make the controller send with settings and Secrets of this one.
#[tokio::test]
async fn a_test_is_about_pipelines_of_the_own_namespace_or_of_those_below_its_layer() {
    let (world, receiver, relaybook) = stage("tested-home").await;
    world.notification("chat", &receiver, json!({})).await;
    world.ready("chat").await;
    let other = World::beside("tested-other", &world).await;
    let thief = json!({"metadata": {"name": "chat"}, "spec": {"pipelineNamespaces": [world.ns]}});
    other.create::<Notification>(thief).await;
    let _both =
        Relaybook::with(&world, Options { watch: vec![world.ns.clone(), other.ns.clone()], ..Options::of(&world) }).await;
    drop(relaybook);
    let pipeline = format!("{}/shop", world.ns);
    let (code, out, err) = other.command(&["test", "chat", "--pipeline", &pipeline, "--yes"]).await;
    assert!(
        code == Some(1) && out.contains("nothing was sent: Pipeline tested-home/shop does not exist, or"),
        "{code:?} {out}{err}"
    );
    assert!(receiver.log().is_empty());
}

#[tokio::test]
async fn get_and_patch_on_notifications_are_enough_to_test() {
    let (world, receiver, _relaybook) = stage("tested-rights").await;
    world.builtin("chat", &receiver, json!({"builtin": "slack"}), json!({})).await;
    world.ready("chat").await;
    for (name, resource, verbs) in
        [("tester", "notifications", json!(["get", "patch"])), ("resender", "deliveries", json!(["get", "list", "patch"]))]
    {
        let rules = json!([{"apiGroups": ["relaybook.dev"], "resources": [resource], "verbs": verbs}]);
        world.create::<Role>(json!({"metadata": {"name": name}, "rules": rules})).await;
        let subjects = json!([{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}]);
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
        world.create::<RoleBinding>(json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects})).await;
    }
    eventually("the role is in force", async || {
        let (code, out, err) = world.command(&["test", "chat", "--as", "tester"]).await;
        if code == Some(0) { Ok(()) } else { Err(format!("{out}{err}")) }
    })
    .await;
    let count = receiver.log().len();
    let (code, _, err) = world.command(&["test", "chat", "--as", "resender"]).await;
    assert!(code == Some(5) && err.contains("cannot be tested"), "{code:?} {err}");
    assert_eq!(receiver.log().len(), count);
}

#[tokio::test]
async fn at_most_six_tests_a_minute_are_sent_for_a_notification() {
    let (world, receiver, _relaybook) = stage("tested-often").await;
    world.builtin("chat", &receiver, json!({"builtin": "slack"}), json!({})).await;
    world.ready("chat").await;
    let mut last = String::new();
    let mut results = Vec::new();
    for number in 0..9 {
        annotate(&world, "chat", &format!("test{number}")).await;
        let found = result(&world, "chat", &last).await;
        results.push(found.result);
        last = found.id;
    }
    assert_eq!(results.iter().filter(|result| **result == TestResult::Accepted).count(), 6, "{results:?}");
    assert!(results[6..].iter().all(|result| *result == TestResult::Refused), "{results:?}");
    assert_eq!(tests(&receiver).len(), 6);
}

#[tokio::test]
async fn tests_do_not_wait_for_blocked_lanes_and_do_not_change_their_order() {
    let (world, receiver, _relaybook) = stage("tested-beside").await;
    world.builtin("chat", &receiver, json!({"builtin": "slack"}), json!({})).await;
    world.ready("chat").await;
    receiver.decide(
        |request| {
            if request.headers.contains_key("relaybook-test") { Reply::status(200) } else { Reply::status(503) }
        },
    );
    world.ship("web", "2").await;
    receiver.wait("/", 1).await;
    for tag in ["3", "4"] {
        let (code, out, err) = world.command(&["test", "chat"]).await;
        assert_eq!(code, Some(0), "{out}{err}");
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    assert_eq!(tests(&receiver).len(), 2);
    receiver.decide(|_| Reply::status(200));
    world.fence("shop", &["chat"]).await;
    let steps = ["Deployed 2", "Deployed 3", "Deployed 4"];
    Oracle::new(&world, &receiver).lane("shop/chat/dev/web", &steps).check().await;
}

#[tokio::test]
async fn a_test_whose_controller_is_killed_is_not_sent_again() {
    let (world, receiver, mut relaybook) = stage("tested-killed").await;
    let gate = Gate::new();
    receiver.always("/", Reply::status(200).behind(&gate));
    world.builtin("chat", &receiver, json!({"builtin": "slack"}), json!({})).await;
    world.ready("chat").await;
    annotate(&world, "chat", "killed01").await;
    receiver.wait("/", 1).await;
    let [delivery] = recorded(&world).await.try_into().unwrap();
    assert!(delivery.status.unwrap_or_default().outcome.is_none(), "it is recorded before it is sent");
    relaybook.kill9();
    relaybook.start_again().await;
    let last = result(&world, "chat", "").await;
    assert!(last.result == TestResult::Failed && last.message.contains("was stopped during the test"), "{last:?}");
    let [delivery] = recorded(&world).await.try_into().unwrap();
    let status = delivery.status.unwrap();
    assert_eq!((status.outcome, status.reason.as_deref()), (Some(Outcome::Canceled), Some("TestInterrupted")));
    gate.open();
    world.ship("web", "2").await;
    world.fence("shop", &["chat"]).await;
    assert_eq!(tests(&receiver).len(), 1);
    Oracle::new(&world, &receiver).lane("shop/chat/dev/web", &["Deployed 2"]).check().await;
}

#[tokio::test]
async fn a_test_that_another_client_has_created_is_never_sent() {
    let (world, receiver, _relaybook) = stage("tested-forged").await;
    world.builtin("chat", &receiver, json!({"builtin": "slack"}), json!({})).await;
    world.ready("chat").await;
    let pipeline: Pipeline = world.get_pipeline("shop").await;
    let reference = json!({"namespace": world.ns, "name": "shop", "uid": pipeline.metadata.uid});
    let state = json!({"status": "Current", "revision": "evil"});
    let lane = &hash(&[&world.ns, "chat", "aaaa1111"])[..16];
    let name = format!("chat-test-{lane}");
    let forged = |name: &str, test: bool| {
        json!({"metadata": {"name": name}, "spec": {"notification": "chat", "pipelineRef": reference, "test": test,
            "subject": {"kind": "Target", "name": "dev/in-cluster/x", "environment": "dev"}, "lane": format!("test/{lane}"),
            "order": 0, "serial": 0, "type": "Deployed", "time": "2026-01-01T00:00:00Z", "from": state, "to": state}})
    };
    world.create::<Delivery>(forged(&name, true)).await;
    // An API server with older CRDs drops the field.
    world.create::<Delivery>(forged("chat-test-bbbb2222", false)).await;
    eventually("the one without the field is deleted", async || {
        let left = world.api::<Delivery>().get_opt("chat-test-bbbb2222").await.unwrap();
        if left.is_none() { Ok(()) } else { Err("it is there".to_owned()) }
    })
    .await;
    annotate(&world, "chat", "aaaa1111").await;
    let last = result(&world, "chat", "").await;
    assert_eq!(last.result, TestResult::Failed, "{last:?}");
    let [delivery] = recorded(&world).await.try_into().unwrap();
    assert_eq!(delivery.status.unwrap().reason.as_deref(), Some("TestInterrupted"));
    world.ship("web", "2").await;
    world.fence("shop", &["chat"]).await;
    assert!(
        tests(&receiver).is_empty()
            && receiver.log().iter().all(|request| !String::from_utf8_lossy(&request.body).contains("evil"))
    );
}
