//! Templates that compile slowly delay only their own namespace.

use relaybook_api::{Notification, Pipeline};
use serde_json::{Value, json};

use super::{shop, to};
use crate::support::relaybook::Options;
use crate::support::wait::heavy;
use crate::support::world::{self, apps::Kind};
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// The layers of both wait for about a minute.
const CROWDS: [&str; 2] = ["crowd-a", "crowd-b"];
const NOTIFICATIONS: usize = 16;
const ENVIRONMENTS: usize = 4;
const TARGETS: usize = 64;
/// The reason of a notification that waits until its layers are compiled.
const COMPILING: &str = "TemplatesCompiling";

/// A template of the maximum size.
fn body() -> String {
    let text = format!("{{{{id}}}}{}", "x".repeat(115)).repeat(500);
    format!(r#"{{"text": "{text}"}}"#)
}

/// A pipeline in which every target has a layer for every notification.
fn crowd(ns: &str, name: &str) -> Value {
    let layer =
        |n: usize, target: usize| json!({"name": format!("n{n}"), "template": {"parameters": {format!("p{target}"): "x"}}});
    let target = |t: usize| {
        let layers: Vec<_> = (0..NOTIFICATIONS).map(|n| layer(n, t)).collect();
        json!({"namespace": ns, "appRef": {"name": format!("app{t}")}, "notifications": layers})
    };
    let environment = |e: usize| {
        let targets: Vec<_> = (e * TARGETS..(e + 1) * TARGETS).map(target).collect();
        json!({"name": format!("e{e}"), "targets": targets})
    };
    let mut pipeline = world::pipeline(ns, name, Kind::Deployment, &[]);
    pipeline["spec"]["environments"] = (0..ENVIRONMENTS).map(environment).collect();
    pipeline
}

/// Changes the revision of `web`, and waits for the request about it.
async fn delivered(world: &World, receiver: &Receiver, path: &str, tag: &str) {
    let before = receiver.to(path).len();
    world.ship("web", tag).await;
    eventually(&format!("{path} {tag}"), async || {
        let count = receiver.to(path).len();
        if count > before { Ok(()) } else { Err(format!("{count} requests")) }
    })
    .await;
}

/// Checks that layers of the crowd wait for their turn.
async fn crowd_waits(crowded: &World) -> Result<(), String> {
    let mut reasons = Vec::new();
    for crowd in CROWDS {
        let dispatched = crowded.get_pipeline(crowd).await.status.and_then(|s| s.dispatched).unwrap_or_default();
        reasons.extend(dispatched.notifications.into_iter().map(|n| n.reason));
    }
    if reasons.iter().any(|reason| reason == COMPILING) { Ok(()) } else { Err(format!("{reasons:?}")) }
}

/// No delay is measured, because a busy machine delays everything. A namespace that waited for the layers of the crowd would have its
/// deliveries only after the crowd no longer waits.
#[tokio::test]
async fn slow_layers_delay_no_other_namespace() {
    let _alone = heavy().await;
    let (crowded, other) = (World::new("layers-crowded").await, World::new("layers-beside-crowd").await);
    let receiver = Receiver::start();
    other.deploy("web", "1").await;
    other.notification("hook", &receiver, json!({})).await;
    shop(&other, &["dev/web"], &[("", to("hook", &receiver, "/first/{{target.app.name}}"))]).await;
    let watch = vec![crowded.ns.clone(), other.ns.clone()];
    let _relaybook = Relaybook::with(&other, Options { watch, ..Options::of(&other) }).await;
    other.settled().await;
    other.cursor("shop", "hook").await;
    delivered(&other, &receiver, "/first/web", "2").await;

    let template = json!({"triggers": [{"type": "Failed"}], "template": {"inline": {"body": body()}}});
    for n in 0..NOTIFICATIONS {
        let url = receiver.url("/crowd");
        crowded.create::<Notification>(world::notification(&format!("n{n}"), &url, template.clone())).await;
    }
    for name in CROWDS {
        crowded.create::<Pipeline>(crowd(&crowded.ns, name)).await;
    }
    eventually("the crowd reports why it waits", async || crowd_waits(&crowded).await).await;
    delivered(&other, &receiver, "/first/web", "3").await;
    // Meanwhile, the layers of the other namespace are merged, too.
    super::relay(&other, "", to("hook", &receiver, "/second/{{target.app.name}}")).await;
    delivered(&other, &receiver, "/second/web", "4").await;
    crowd_waits(&crowded).await.expect("the crowd waited until then");

    let all = ["2", "3", "4"].map(|tag| format!("Deployed {tag}"));
    Oracle::new(&other, &receiver).lane("shop/hook/dev/web", &all.each_ref().map(String::as_str)).check().await;
}
