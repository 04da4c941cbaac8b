//! A slow API server, and one that is unreachable when Relaybook starts.

use std::time::Duration;

use relaybook_api::Outcome;
use serde_json::{Value, json};

use super::Stage;
use crate::support::receiver::Gate;
use crate::support::{Fault, Oracle, Relaybook, Reply, eventually};

const STEPS: [&str; 3] = ["Deployed 2", "Deployed 3", "Deployed 4"];

#[tokio::test]
async fn with_a_slow_api_server_everything_arrives() {
    tokio::join!(slow("slow-300ms", Duration::from_millis(300)), slow("slow-2s", Duration::from_secs(2)));
}

/// Delays every call by this time, including those for the Leases.
async fn slow(ns: &str, by: Duration) {
    let apps = ["web", "api", "db"];
    let stage = Stage::new(ns, &apps, json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    receiver.script("/hook/api", [500, 200, 503].map(Reply::status));
    proxy.rule(|_| true, Fault::Late(by));
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    for tag in ["2", "3", "4"] {
        stage.ship(tag).await;
    }
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(world, receiver);
    apps.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &STEPS)).check().await;
    assert_eq!(stage.requests(), 3 * apps.len() + 2);
}

#[tokio::test]
async fn a_start_waits_for_an_absent_api_server() {
    let (held, gate) = (Gate::new(), Gate::new());
    held.open();
    tokio::join!(
        away("away-closed", Fault::LoseRequest, &held),
        away("away-refused", Fault::Refuse(503), &held),
        away("away-forbidden", Fault::Refuse(403), &held),
        away("away-mute", Fault::HoldRequest(gate.clone()), &gate),
    );
}

/// Starts Relaybook while every call has this fault. `gate` releases the calls that are held.
async fn away(ns: &str, fault: Fault, gate: &Gate) {
    let stage = Stage::new(ns, &["web"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let mut relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    stage.ship("2").await;
    world.fence("shop", &["hook"]).await;
    // The fence has a lane of its own, so the outcome of this one may still be missing. A kill would then repeat its request.
    world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered))).await;
    relaybook.kill9();
    world.ship("web", "3").await;

    let away = proxy.rule(|_| true, fault);
    relaybook.launch();
    proxy.hit(away, 2).await;
    eventually("the log contains the error", async || {
        let log = relaybook.log();
        let last = log.rfind("--- started").unwrap_or(0);
        let lines = log[last..].lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut warnings = lines.filter(|line| line["level"] == "WARN" && line["error"].is_string());
        warnings.next().map(drop).ok_or_else(|| log[last..].to_owned())
    })
    .await;
    assert_eq!(relaybook.has_ended(), None, "Relaybook waits and does not exit");
    proxy.remove(away);
    gate.open();
    relaybook.wait_ready().await;
    // A state that ends before Relaybook reads the object again cannot be observed.
    world.observed_at("shop", "3", &["web"]).await;
    stage.ship("4").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(world, receiver).lane("shop/hook/dev/web", &STEPS).check().await;
    assert_eq!(stage.requests(), 3);
}
