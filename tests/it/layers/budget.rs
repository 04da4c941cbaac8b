//! Templates that compile slowly delay only their own namespace.

use std::time::Duration;

use pennant::api::{Notification, Pipeline};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{shop, to};
use crate::support::pennant::Options;
use crate::support::wait::heavy;
use crate::support::world::{self, apps::Kind};
use crate::support::{Oracle, Pennant, Receiver, World, eventually};

const NOTIFICATIONS: usize = 16;
const ENVIRONMENTS: usize = 4;
const TARGETS: usize = 64;
/// Number of deliveries of the other namespace that are measured meanwhile.
const ROUNDS: usize = 3;
/// Minimum of the limit, because a busy machine can be slow for other reasons.
const FLOOR: Duration = Duration::from_secs(10);
const FACTOR: u32 = 5;

/// A template of the maximum size.
fn body() -> String {
    let text = format!("{{{{id}}}}{}", "x".repeat(115)).repeat(500);
    format!(r#"{{"text": "{text}"}}"#)
}

/// A pipeline in which every target has a layer for every notification.
fn crowd(ns: &str) -> Value {
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
    let mut pipeline = world::pipeline(ns, "crowd", Kind::Deployment, &[]);
    pipeline["spec"]["environments"] = (0..ENVIRONMENTS).map(environment).collect();
    pipeline
}

/// Returns the time from a change to its request at the receiver.
async fn delivered(world: &World, receiver: &Receiver, path: &str, tag: &str) -> Duration {
    let (begun, before) = (Instant::now(), receiver.to(path).len());
    world.ship("web", tag).await;
    eventually(&format!("{path} {tag}"), async || {
        let count = receiver.to(path).len();
        if count > before { Ok(()) } else { Err(format!("{count} requests")) }
    })
    .await;
    begun.elapsed()
}

#[tokio::test]
async fn slow_layers_delay_no_other_namespace() {
    let _alone = heavy().await;
    let (crowded, other) = (World::new("layers-crowded").await, World::new("layers-beside-crowd").await);
    let receiver = Receiver::start();
    other.deploy("web", "1").await;
    other.notification("hook", &receiver, json!({})).await;
    shop(&other, &["dev/web"], &[("", to("hook", &receiver, "/first/{{target.app.name}}"))]).await;
    let watch = vec![crowded.ns.clone(), other.ns.clone()];
    let _pennant = Pennant::with(&other, Options { watch, ..Options::of(&other) }).await;
    other.settled().await;
    other.cursor("shop", "hook").await;
    let alone = delivered(&other, &receiver, "/first/web", "2").await;

    let template = json!({"triggers": [{"type": "Failed"}], "template": {"inline": {"body": body()}}});
    for n in 0..NOTIFICATIONS {
        let url = receiver.url("/crowd");
        crowded.create::<Notification>(world::notification(&format!("n{n}"), &url, template.clone())).await;
    }
    crowded.create::<Pipeline>(crowd(&crowded.ns)).await;
    eventually("the crowd is observed", async || {
        let status = crowded.get_pipeline("crowd").await.status.unwrap_or_default();
        let count = status.environments.iter().map(|e| e.targets.len()).sum::<usize>();
        if count == ENVIRONMENTS * TARGETS { Ok(()) } else { Err(format!("{count} targets")) }
    })
    .await;
    let limit = FLOOR.max(alone * FACTOR);
    for round in 0..ROUNDS {
        let took = delivered(&other, &receiver, "/first/web", &format!("{}", 3 + round)).await;
        assert!(took < limit, "{took:?}, without the crowd {alone:?}");
    }
    // Meanwhile, the layers of the other namespace are merged, too.
    super::relay(&other, "", to("hook", &receiver, "/second/{{target.app.name}}")).await;
    let took = delivered(&other, &receiver, "/second/web", "9").await;
    assert!(took < limit, "{took:?}, without the crowd {alone:?}");
    let first: Vec<_> = (2..3 + ROUNDS).map(|tag| format!("Deployed {tag}")).collect();
    let all: Vec<_> = first.iter().map(String::as_str).chain(["Deployed 9"]).collect();
    Oracle::new(&other, &receiver).lane("shop/hook/dev/web", &all).check().await;
    // The blocked notifications report the reason.
    eventually("the crowd reports why it waits", async || {
        let dispatched = crowded.get_pipeline("crowd").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        let reasons: Vec<_> = dispatched.notifications.iter().map(|n| n.reason.as_str()).collect();
        if reasons.contains(&"TemplatesCompiling") { Ok(()) } else { Err(format!("{reasons:?}")) }
    })
    .await;
}
