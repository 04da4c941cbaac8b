//! Tests the built-in templates and their parameters, and templates in ConfigMaps.

use k8s_openapi::api::core::v1::ConfigMap;
use relaybook_api::conditions::{ConditionStatus, get};
use relaybook_api::{Delivery, Notification, Outcome, Pipeline};
use serde_json::{Value, json};

use crate::support::world::BODY;
use crate::support::world::apps::condition;
use crate::support::{Oracle, Receiver, Relaybook, World};

const OLD: &str = "main@sha1:9c1e1fd35d2e0b7a4a1bd2ae8e0a2b6a0f4f3e21";
const NEW: &str = "main@sha1:5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";

/// Returns triggers of these types for `dev` only, because the revision of the fence is not a commit.
fn in_dev(types: &[&str]) -> Value {
    types.iter().map(|type_| json!({"type": type_, "environments": ["dev"]})).collect()
}

#[tokio::test]
async fn a_commit_status_is_posted_on_the_commit_of_the_change() {
    let world = World::new("commit-status").await;
    let receiver = Receiver::start();
    world.kustomize("web", OLD).await;
    world.kustomize("fence", "0").await;
    world.flux_pipeline("shop", &["dev/web"]).await;
    world.secret("github", json!({"token": "ghp_1234567890"})).await;
    let template = json!({
        "builtin": "github-commit-status",
        "parameters": {"owner": "acme", "repository": "podinfo", "context": "deploy/{{environment}}"},
    });
    let over = json!({
        "triggers": in_dev(&["Progressing", "Deployed", "Failed", "Recovered"]),
        "endpoint": {"auth": {"token": {"secretKeyRef": {"name": "github", "key": "token"}}}},
    });
    world.builtin("hook", &receiver, template, over).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let revisions = json!({"lastAppliedRevision": OLD, "lastAttemptedRevision": NEW});
    let reconciling = condition("Reconciling", "True", "Progressing", "building");
    let unknown = condition("Ready", "Unknown", "Progressing", "reconciling");
    world.flux("web", vec![reconciling, unknown], revisions.clone()).await;
    let path = format!("/repos/acme/podinfo/statuses/{}", &NEW[10..]);
    receiver.wait(&path, 1).await;
    let why = "a \"quoted\" line\nand another";
    world.flux("web", vec![condition("Ready", "False", "HealthCheckFailed", why)], revisions).await;
    receiver.wait(&path, 2).await;
    world.applied("web", NEW).await;
    let requests = receiver.wait(&path, 3).await;
    let steps = ["Progressing", "Failed", "Deployed"].map(|type_| format!("{type_} {NEW}"));
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &steps.each_ref().map(String::as_str)).check().await;

    let states: Vec<_> = requests.iter().map(|r| r.json()["state"].clone()).collect();
    assert_eq!(states, ["pending", "failure", "success"]);
    assert!(requests[1].json()["description"].as_str().unwrap().contains(why), "{}", requests[1].json());
    for request in &requests {
        assert_eq!((request.method.as_str(), request.json()["context"].as_str()), ("POST", Some("deploy/dev")));
        assert_eq!(request.header("accept"), "application/vnd.github+json");
        assert_eq!(request.header("authorization"), "Bearer ghp_1234567890");
    }
}

fn has_no_commit(delivery: &Delivery) -> bool {
    let status = delivery.status.clone().unwrap_or_default();
    status.outcome == Some(Outcome::Canceled) && status.reason.as_deref() == Some("CommitMissing")
}

/// Each deployment of a chart would otherwise count as parked.
#[tokio::test]
async fn a_revision_without_a_commit_is_canceled_at_once() {
    let world = World::new("no-commit").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let template = json!({"builtin": "github-commit-status", "parameters": {"owner": "acme", "repository": "podinfo"}});
    let over = json!({"triggers": in_dev(&["Deployed"])});
    world.builtin("hook", &receiver, template, over).await;
    let _relaybook = Relaybook::start(&world).await;
    // This is reported before the first change, because an image tag is not a commit.
    let told = world.condition("hook", "Ready", |c| c.status == ConditionStatus::False).await;
    assert_eq!(told.reason, "CommitMissing", "{told:?}");
    assert!(told.message.contains("appRef.revisionPath"), "{}", told.message);
    assert_eq!(world.warning("hook", "CommitMissing").await, told.message);
    world.cursor("shop", "hook").await;

    for tag in ["6.5.0", "6.6.0"] {
        world.ship("web", tag).await;
        let canceled = world.delivery(&format!("Deployed {tag}"), has_no_commit).await;
        let status = canceled.status.clone().unwrap();
        let error = status.error.unwrap_or_default();
        let words = ["github-commit-status, path", "no commit hash in `revision`", "appRef.revisionPath"];
        assert!(words.iter().all(|word| error.contains(word)) && !error.contains(tag), "{error}");
        assert_eq!(status.attempts, 0);
    }
    assert!(receiver.log().is_empty());

    // A tag that is a commit hash is sent. The canceled deliveries did not block the lane, and do not count as failures.
    world.ship("web", &NEW[10..]).await;
    receiver.wait(&format!("/repos/acme/podinfo/statuses/{}", &NEW[10..]), 1).await;
    world.ready("hook").await;
    let status = world.get_notification("hook").await.status.unwrap();
    let delivering = get(&status.conditions, "Delivering").unwrap();
    assert_eq!((delivering.status, delivering.message.as_str()), (ConditionStatus::True, "no lane is blocked"));
    assert_eq!((status.parked, status.last_parked_time), (0, None));
    assert!(world.events().await.iter().all(|(reason, _)| reason != "DeliveryParked"), "{:?}", world.events().await);
    // After the template is replaced, a redelivery sends what was canceled.
    let other = json!({"spec": {"template": {"builtin": "generic", "parameters": null}}});
    world.patch::<Notification>("hook", other).await;
    world.settled().await;
    let canceled = world.delivery("Deployed 6.5.0", has_no_commit).await;
    let again = json!({"metadata": {"annotations": {"relaybook.dev/redeliver": "1"}}});
    world.patch::<Delivery>(canceled.metadata.name.as_deref().unwrap(), again).await;
    let sent = receiver.wait("/", 1).await;
    assert_eq!(sent[0].json()["revision"], "6.5.0");
    let sent = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered));
    world.delivery("Deployed 6.5.0", sent).await;
}

/// The delivery is not parked, because it could be sent with another label.
#[tokio::test]
async fn a_missing_label_blocks_deliveries_until_it_is_set() {
    let world = World::new("label-breaks").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let body = BODY.replacen('{', r#"{"sha": "{{#each pipeline.labels}}{{commit this}}{{/each}}", "#, 1);
    world.notification("hook", &receiver, json!({"template": {"inline": {"body": body}}})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let label = async |sha: &str| {
        world.patch::<Pipeline>("shop", json!({"metadata": {"labels": {"sha": sha}}})).await;
    };
    label("v1").await;
    world.ship("web", "2").await;
    let error = waits(&world, "Deployed 2", "TemplateInvalid").await;
    assert!(error.contains("no commit hash in `this`") && !error.contains("v1"), "{error}");
    assert_eq!(world.delivery("Deployed 2", |_| true).await.status.unwrap().outcome, None);
    label(&NEW[10..]).await;
    receiver.wait("/hook/web", 1).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
    assert_eq!(receiver.to("/hook/web")[0].json()["sha"], NEW[10..]);
}

/// Names are literal, so a wrong line is found before the first change, and the text of the cluster never makes one wrong.
#[tokio::test]
async fn fields_are_lines_of_a_message() {
    let world = World::new("fields").await;
    let receiver = Receiver::start();
    world.kustomize("web", OLD).await;
    world.flux_pipeline("shop", &["dev/web"]).await;
    let fields = "Team: {{default pipeline.labels.team \"\"}}\nSaid: {{message}}";
    let template = json!({"builtin": "mattermost", "parameters": {"fields": format!("{fields}\npayments")}});
    world.builtin("hook", &receiver, template, json!({"triggers": in_dev(&["Failed"])})).await;
    let _relaybook = Relaybook::start(&world).await;
    let refused = world.condition("hook", "Ready", |c| c.reason == "TemplateInvalid").await;
    let says = refused.message.contains("spec.template.parameters.fields: field 3 has no literal name");
    assert!(says, "{}", refused.message);
    world.patch::<Notification>("hook", json!({"spec": {"template": {"parameters": {"fields": fields}}}})).await;
    world.ready("hook").await;
    world.settled().await;
    let revisions = json!({"lastAppliedRevision": OLD, "lastAttemptedRevision": NEW});
    world.flux("web", vec![condition("Ready", "False", "HealthCheckFailed", "one\nTeam: b")], revisions).await;
    let sent = receiver.wait("/", 1).await[0].json();
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &[&format!("Failed {NEW}")]).check().await;
    let named = |name: &str| {
        let all = sent["attachments"][0]["fields"].as_array().unwrap();
        all.iter().filter(|field| field["title"] == name).map(|field| field["value"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((named("Team"), named("Said")), (vec![], vec![json!("one Team: b")]));
}

/// Waits until a delivery has this reason. Returns its error.
async fn waits(world: &World, what: &str, reason: &str) -> String {
    let is = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.reason.as_deref() == Some(reason));
    world.delivery(what, is).await.status.unwrap().error.unwrap_or_default()
}

#[tokio::test]
async fn a_template_in_a_config_map_is_used_and_its_edits_apply() {
    let world = World::new("config-map").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let template = json!({"inline": null, "configMapKeyRef": {"name": "texts", "key": "body"}});
    world.notification("hook", &receiver, json!({"template": template})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    let missing = async |word: &str| {
        let holds = |c: &relaybook_api::conditions::Condition| c.reason == "ConfigMapMissing" && c.message.contains(word);
        world.condition("hook", "Ready", holds).await
    };
    missing("does not exist").await;
    world.cursor("shop", "hook").await;
    world.ship("web", "2").await;
    assert!(waits(&world, "Deployed 2", "ConfigMapMissing").await.contains("/texts"));

    world.create::<ConfigMap>(json!({"metadata": {"name": "texts"}, "data": {"other": "{}"}})).await;
    missing("has no key body").await;
    let text = async |body: String| drop(world.patch::<ConfigMap>("texts", json!({"data": {"body": body}})).await);
    text(BODY.to_owned()).await;
    world.ready("hook").await;
    receiver.wait("/hook/web", 1).await;

    // An invalid edit blocks later deliveries. The next valid edit unblocks them, and they use its template.
    text(format!("\n  {{{{pipline.name}}}}{BODY}")).await;
    let broken = world.condition("hook", "Ready", |c| c.reason == "TemplateInvalid").await;
    assert!(
        broken.message.contains("/texts, key body: line 2, column 3") && broken.message.contains("`pipline.name`"),
        "{}",
        broken.message
    );
    world.ship("web", "3").await;
    assert!(waits(&world, "Deployed 3", "TemplateInvalid").await.contains("`pipline.name`"));
    text(BODY.replacen('{', r#"{"edited": {{json true}},"#, 1)).await;
    world.ready("hook").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]).check().await;
    let edited: Vec<_> = receiver.to("/hook/web").iter().map(|r| r.json()["edited"].clone()).collect();
    assert_eq!(edited, [Value::Null, json!(true)]);
}

#[tokio::test]
async fn a_restart_reads_the_template_before_it_evaluates_it() {
    let world = World::new("config-map-restart").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.create::<ConfigMap>(json!({"metadata": {"name": "texts"}, "data": {"body": BODY}})).await;
    let template = json!({"inline": null, "configMapKeyRef": {"name": "texts", "key": "body"}});
    world.notification("hook", &receiver, json!({"template": template})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    relaybook.restart().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    let conditions = world.get_notification("hook").await.status.unwrap().conditions;
    assert!(conditions.iter().all(|c| c.status == ConditionStatus::True), "{conditions:?}");
    assert_eq!(world.events().await, []);
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
}
