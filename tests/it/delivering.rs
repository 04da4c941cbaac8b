//! Tests how long a Notification reports blocked and parked deliveries: over restarts and failovers, until one is delivered or a user acts.
//! Also tests that a Notification reports that it selects no pipeline.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, WatchEvent, WatchParams};
use relaybook_api::conditions::{Condition, ConditionStatus, get};
use relaybook_api::{Delivery, Notification, Pipeline};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::world::OF_SECOND;
use crate::support::{Receiver, Relaybook, Reply, World, eventually};

/// All versions of a condition of a notification, from the start of the recording.
struct History {
    seen: Arc<Mutex<Vec<Condition>>>,
    watch: JoinHandle<()>,
}

impl History {
    async fn of(world: &World, notification: &str, type_: &'static str) -> Self {
        let api = world.api::<Notification>();
        let now = api.get(notification).await.unwrap();
        let version = now.resource_version().unwrap();
        let params = WatchParams::default().fields(&format!("metadata.name={notification}"));
        let mut events = api.watch(&params, &version).await.unwrap().boxed();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (put, take) = (seen.clone(), move |n: Notification, put: &Mutex<Vec<Condition>>| {
            let found = n.status.as_ref().and_then(|status| get(&status.conditions, type_)).cloned();
            put.lock().unwrap().extend(found);
        });
        take(now, &put);
        let watch = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event.expect("the watch goes on") {
                    WatchEvent::Added(n) | WatchEvent::Modified(n) => take(n, &put),
                    _ => {}
                }
            }
        });
        Self { seen, watch }
    }

    /// Ends the recording. Returns all versions.
    fn end(self) -> Vec<Condition> {
        assert!(!self.watch.is_finished(), "the watch has ended");
        self.watch.abort();
        self.seen.lock().unwrap().clone()
    }
}

/// Asserts that the condition was always `False`, without a transition.
fn always_false(history: &[Condition]) {
    let first = &history[0];
    let same = |c: &Condition| (c.status, c.last_transition_time) == (ConditionStatus::False, first.last_transition_time);
    assert!(history.iter().all(same), "{history:#?}");
}

/// Returns type and count of the Events about a notification with this reason.
async fn events(world: &World, notification: &str, reason: &str) -> Vec<(String, i32)> {
    let all = world.api::<Event>().list(&ListParams::default()).await.unwrap();
    let about = |e: &Event| {
        let regarding = e.regarding.as_ref().filter(|r| r.kind.as_deref() == Some("Notification"));
        e.reason.as_deref() == Some(reason) && regarding.is_some_and(|r| r.name.as_deref() == Some(notification))
    };
    let count = |e: &Event| e.series.as_ref().map_or(1, |s| s.count);
    all.iter().filter(|e| about(e)).map(|e| (e.type_.clone().unwrap_or_default(), count(e))).collect()
}

async fn has_events(world: &World, notification: &str, reason: &str, expected: &[(&str, i32)]) {
    eventually(&format!("Events {reason}: {expected:?}"), async || {
        let said = events(world, notification, reason).await;
        let same = said.iter().map(|(type_, count)| (type_.as_str(), *count)).eq(expected.iter().copied());
        if same { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await;
}

/// Returns the row of the only notification in the table that kubectl shows.
async fn row(world: &World) -> BTreeMap<String, Value> {
    let path = format!("/apis/relaybook.dev/v1alpha1/namespaces/{}/notifications", world.ns);
    let request = http::Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = world.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let names = table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap().to_owned());
    names.zip(table["rows"][0]["cells"].as_array().unwrap().iter().cloned()).collect()
}

/// Waits until the status counts this number of deliveries as delivered. All conditions were written with that count.
async fn delivered(world: &World, count: i64) {
    eventually(&format!("{count} delivered deliveries are counted"), async || {
        let status = world.get_notification("hook").await.status.unwrap_or_default();
        if status.delivered == count { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
}

/// Prepares a lane that waits 10 minutes after a 401, and another lane in which nothing was sent.
async fn waiting(ns: &str, receiver: &Receiver) -> World {
    let world = World::new(ns).await;
    world.only_for_first();
    receiver.always("/hook/web", Reply::status(401));
    for app in ["web", "api"] {
        world.deploy(app, "1").await;
    }
    world.pipeline("shop", &["dev/web", "dev/api"]).await;
    world.notification("hook", receiver, json!({"delivery": {"retry": {"initial": "10m", "max": "10m"}}})).await;
    world
}

#[tokio::test]
async fn a_blocked_lane_is_still_reported_after_a_restart() {
    let receiver = Receiver::start();
    let world = waiting("delivering-restart", &receiver).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    let before = world.condition("hook", "Delivering", |c| c.reason == "CredentialsRejected").await;
    has_events(&world, "hook", "CredentialsRejected", &[("Warning", 1)]).await;
    let history = History::of(&world, "hook", "Delivering").await;
    relaybook.kill9();
    relaybook.start_again().await;
    // A delivered delivery makes the new process write the counts, together with its own view of all lanes.
    world.ship("api", "2").await;
    delivered(&world, 1).await;
    relaybook.restart().await;
    world.ship("api", "3").await;
    delivered(&world, 2).await;
    let history = history.end();
    always_false(&history);
    let last = history.last().unwrap();
    assert_eq!((&last.reason, &last.message), (&before.reason, &before.message));
    assert_eq!(receiver.to("/hook/web").len(), 1, "no retry before its time");
    has_events(&world, "hook", "CredentialsRejected", &[("Warning", 1)]).await;
    assert_eq!(events(&world, "hook", "Delivering").await, []);
}

#[tokio::test]
async fn a_blocked_lane_is_still_reported_after_a_failover() {
    let receiver = Receiver::start();
    let world = waiting("delivering-take-over", &receiver).await;
    let replica = |pod| Relaybook::with(&world, Options { pod: Some(pod), ..Options::of(&world) });
    let mut first = replica("first").await;
    world.settled().await;
    let second = replica("second").await;
    second.holds("relaybook-dispatch", OF_SECOND).await;
    world.ship("web", "2").await;
    world.condition("hook", "Delivering", |c| c.reason == "CredentialsRejected").await;
    let history = History::of(&world, "hook", "Delivering").await;
    first.stop().await;
    world.ship("api", "2").await;
    delivered(&world, 1).await;
    always_false(&history.end());
    assert_eq!(receiver.to("/hook/web").len(), 1, "no retry before its time");
}

#[tokio::test]
async fn the_last_parked_delivery_is_reported_until_one_is_delivered() {
    let world = World::new("delivering-parked").await;
    let receiver = Receiver::start();
    receiver.always("/hook/web", Reply::status(404));
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
    for tag in ["2", "3", "4", "5"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    let all = "4 of the last 4 deliveries were rejected with 404";
    let told = world.condition("hook", "Delivering", |c| c.message.starts_with(all)).await;
    assert_eq!((told.status, told.reason.as_str()), (ConditionStatus::False, "ReceiverRejects"));
    assert!(told.message.contains("/web; check the URL"), "{}", told.message);
    let row = row(&world).await;
    assert_eq!(
        (&row["Reason"], &row["Status"], &row["Pipelines"]),
        (&json!("ReceiverRejects"), &json!(told.message), &json!(1))
    );

    let history = History::of(&world, "hook", "Delivering").await;
    relaybook.kill9();
    // Deleted as by retention.
    let gone = world.delivery("Deployed 2", |_| true).await;
    world.delete::<Delivery>(&gone.name_any()).await;
    relaybook.start_again().await;
    world.condition("hook", "Delivering", |c| c.message.starts_with("3 of the last 3 deliveries were rejected")).await;
    for delivery in world.deliveries().await {
        world.delete::<Delivery>(&delivery.name_any()).await;
    }
    relaybook.restart().await;
    eventually("no parked delivery is counted", async || {
        let status = world.get_notification("hook").await.status.unwrap();
        if status.parked == 0 { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    always_false(&history.end());

    receiver.always("/hook/web", Reply::status(200));
    world.ship("web", "6").await;
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
    has_events(&world, "hook", "Delivering", &[("Normal", 1)]).await;
    let wrong: i32 = events(&world, "hook", "ReceiverNotFound").await.iter().map(|(_, count)| count).sum();
    let rejects: i32 = events(&world, "hook", "ReceiverRejects").await.iter().map(|(_, count)| count).sum();
    assert_eq!(wrong + rejects, 1, "the failure is reported once");
}

/// The condition stays reset over a restart.
#[tokio::test]
async fn an_edit_of_a_secret_resets_the_parked_condition() {
    let world = World::new("delivering-secret").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [400, 400, 400].map(Reply::status));
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.secret("token", json!({"token": "old"})).await;
    let auth = json!({"endpoint": {"auth": {"token": {"secretKeyRef": {"name": "token", "key": "token"}}}}});
    world.notification("hook", &receiver, auth).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    for tag in ["2", "3", "4"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    world.condition("hook", "Delivering", |c| c.message.starts_with("3 of the last 3")).await;
    world.patch::<Secret>("token", json!({"stringData": {"token": "new"}})).await;
    let right = world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
    let history = History::of(&world, "hook", "Delivering").await;
    relaybook.kill9();
    relaybook.start_again().await;
    world.settled().await;
    // The new process writes its view of the condition with the next change of the counts.
    world.delete::<Delivery>(&world.delivery("Deployed 2", |_| true).await.name_any()).await;
    eventually("one delivery less is counted", async || {
        let status = world.get_notification("hook").await.status.unwrap();
        if status.parked + status.delivered == 2 { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    let history = history.end();
    assert!(history.iter().all(|c| c.last_transition_time == right.last_transition_time), "{history:#?}");
}

#[tokio::test]
async fn a_notification_without_pipelines_is_reported_after_the_initial_list() {
    let world = World::new("delivering-none").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let selector = json!({"pipelineSelector": {"matchLabels": {"team": "red"}}});
    world.notification("hook", &receiver, selector).await;
    let mut relaybook = Relaybook::start(&world).await;
    let none = world.condition("hook", "Ready", |c| c.reason == "NoPipeline").await;
    assert_eq!(none.status, ConditionStatus::True);
    assert!(none.message.contains("spec.pipelineSelector"), "{}", none.message);
    has_events(&world, "hook", "NoPipeline", &[("Normal", 1)]).await;
    // The namespace has a pipeline, so the selector is most likely wrong.
    let wrong = world.condition("hook", "Reachable", |c| c.reason == "NoMatch").await;
    assert!(wrong.message.starts_with("spec.pipelineSelector: selects no Pipeline"), "{}", wrong.message);
    let shown = row(&world).await;
    assert_eq!((&shown["Ready"], &shown["Reason"], &shown["Pipelines"]), (&json!("True"), &json!("NoMatch"), &json!(0)));

    // Before the first observation there is no cursor to store, so the notification would be `Configured` and then `Initializing`.
    world.observed_at("shop", "1", &["web"]).await;
    let labels = json!({"metadata": {"labels": {"team": "red"}}});
    world.patch::<Pipeline>("shop", labels).await;
    world.condition("hook", "Ready", |c| c.reason == "Configured").await;
    let history = History::of(&world, "hook", "Ready").await;
    relaybook.restart().await;
    world.ship("web", "2").await;
    delivered(&world, 1).await;
    let history = history.end();
    assert!(history.iter().all(|c| c.reason == "Configured"), "{history:#?}");
    has_events(&world, "hook", "NoPipeline", &[("Normal", 1)]).await;
}

#[tokio::test]
async fn pipelines_and_notifications_that_come_and_go_leave_nothing_in_memory() {
    let world = World::new("delivering-many").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let entries = async |expected: &str, holds: &dyn Fn(f64) -> bool| {
        within(std::time::Duration::from_mins(2), expected, async || {
            let entries = relaybook.metrics().await["relaybook_bookkeeping_entries"];
            if holds(entries) { Ok(entries) } else { Err(format!("{entries}")) }
        })
        .await
    };
    let before = entries("some bookkeeping entries exist", &|entries| entries >= 2.0).await;
    let names: Vec<_> = (0..7).map(|n| format!("n{n}")).collect();
    for name in &names {
        world.pipeline(name, &["dev/web"]).await;
        world.notification(name, &receiver, json!({})).await;
    }
    world.settled().await;
    world.ship("web", "2").await;
    within(std::time::Duration::from_mins(3), "all is delivered", async || {
        let all = world.deliveries().await;
        let done = all.iter().filter(|d| d.status.as_ref().is_some_and(|s| s.outcome.is_some())).count();
        if done == 8 * 8 { Ok(()) } else { Err(format!("{done} of {}", all.len())) }
    })
    .await;
    entries("14 more bookkeeping entries exist", &|entries| entries >= before + 14.0).await;
    join_all(names.iter().map(async |name| {
        world.delete::<Pipeline>(name).await;
        world.delete::<Notification>(name).await;
    }))
    .await;
    world.api::<Delivery>().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    entries("no more bookkeeping entries than before exist", &|entries| entries <= before).await;
}
