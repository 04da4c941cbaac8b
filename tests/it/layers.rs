//! Tests the layers of a pipeline, its environments and its targets over notifications: what is sent where, what waits, and what is
//! reported about it.

mod budget;
mod edits;
mod folded;
mod namespace;
mod recreated;
mod schema;
mod storm;
mod trouble;

use kube::ResourceExt as _;
use relaybook_api::pipeline::NotReadyNotification;
use relaybook_api::{Delivery, Pipeline};
use serde_json::{Value, json};

use crate::support::world::apps::Kind;
use crate::support::world::{self, BODY};
use crate::support::{Receiver, Relaybook, World, eventually};

/// Returns the body that the oracle reads, with the name of the template's author.
fn body(by: &str) -> String {
    BODY.replacen('{', &format!(r#"{{"by": "{by}", "#), 1)
}

/// Returns an inline template with the name of its author.
fn template(by: &str) -> Value {
    json!({"inline": {"body": body(by)}})
}

/// Returns the authors of the requests to a path, in order.
fn signed(receiver: &Receiver, path: &str) -> Vec<String> {
    receiver.to(path).iter().map(|r| r.json()["by"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Returns layers with one entry that sets another URL.
fn to(name: &str, receiver: &Receiver, path: &str) -> Value {
    json!([{"name": name, "endpoint": {"url": receiver.url(path)}}])
}

/// Returns a layer that is a complete notification.
fn own(name: &str, receiver: &Receiver) -> Value {
    let url = receiver.url(&format!("/{name}/{{{{target.app.name}}}}"));
    let mut layer = world::notification(name, &url, json!({}))["spec"].take();
    layer["name"] = json!(name);
    layer
}

/// Sets these layers: with an empty `at` on the pipeline, with `dev` on an environment, with `dev/web` on a target.
fn lay(pipeline: &mut Value, at: &str, layers: Value) {
    let (environment, app) = at.split_once('/').unwrap_or((at, ""));
    let spec = &mut pipeline["spec"];
    if environment.is_empty() {
        spec["notifications"] = layers;
        return;
    }
    let environments = spec["environments"].as_array_mut().unwrap();
    let environment = environments.iter_mut().find(|e| e["name"] == environment).unwrap();
    if app.is_empty() {
        environment["notifications"] = layers;
        return;
    }
    let targets = environment["targets"].as_array_mut().unwrap();
    targets.iter_mut().find(|t| t["appRef"]["name"] == app).unwrap()["notifications"] = layers;
}

/// Creates pipeline `shop` with layers.
async fn shop(world: &World, targets: &[&str], layers: &[(&str, Value)]) -> Pipeline {
    let mut pipeline = world::pipeline(&world.ns, "shop", Kind::Deployment, targets);
    for (at, layer) in layers {
        lay(&mut pipeline, at, layer.clone());
    }
    world.create(pipeline).await
}

/// Edits the layers of pipeline `shop`, and waits until it is observed. The dispatcher sees later changes after the edit.
async fn relay(world: &World, at: &str, layers: Value) {
    let mut pipeline = serde_json::to_value(world.get_pipeline("shop").await).unwrap();
    lay(&mut pipeline, at, layers);
    world.patch::<Pipeline>("shop", json!({"spec": pipeline["spec"]})).await;
    world.observed("shop").await;
}

/// Returns `Pipeline.status.dispatched.notifications` of `shop`.
async fn troubles(world: &World) -> Vec<NotReadyNotification> {
    world.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default().notifications
}

/// Waits until a notification has a problem with this reason for an application, or for all targets (`None`). Returns the problem.
async fn trouble(world: &World, name: &str, app: Option<&str>, reason: &str) -> NotReadyNotification {
    eventually(&format!("{reason} of {name} for {app:?}"), async || {
        let all = troubles(world).await;
        let of = |t: &NotReadyNotification| match (app, &t.target) {
            (None, None) => true,
            (Some(app), Some(target)) => target.ends_with(&format!("/{app}")),
            _ => false,
        };
        let found = all.iter().find(|t| t.name == name && t.reason == reason && of(t));
        found.cloned().ok_or_else(|| format!("{all:?}"))
    })
    .await
}

/// Waits until no problem is reported.
async fn no_trouble(world: &World) {
    eventually("no problem is reported", async || {
        let all = troubles(world).await;
        if all.is_empty() { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
}

/// Waits until a notification that is defined in `shop` has its cursor. Later changes are recorded.
async fn begun(world: &World, name: &str) {
    let uid = world.get_pipeline("shop").await.uid().unwrap();
    eventually(&format!("the cursor of {name}"), async || {
        let dispatched = world.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        let ours = dispatched.cursors.iter().any(|c| c.notification == name && c.uid == uid);
        ours.then_some(()).ok_or_else(|| format!("{:?}", dispatched.cursors))
    })
    .await;
}

/// Waits for a delivery of a notification about an application for which `holds` is true.
async fn told(world: &World, name: &str, app: &str, what: &str, holds: impl Fn(&Delivery) -> bool) -> Delivery {
    let about = |d: &Delivery| {
        d.spec.notification == name && d.spec.subject.target.as_ref().is_some_and(|t| t.app.name == app) && holds(d)
    };
    world.delivery(what, about).await
}

fn reason(delivery: &Delivery) -> &str {
    delivery.status.as_ref().and_then(|s| s.reason.as_deref()).unwrap_or_default()
}

fn attempts(delivery: &Delivery) -> i64 {
    delivery.status.as_ref().map_or(0, |s| s.attempts)
}

/// Starts Relaybook, and waits until all pipelines are observed and all notifications are ready.
async fn start(world: &World) -> Relaybook {
    let relaybook = Relaybook::start(world).await;
    world.settled().await;
    relaybook
}
