//! The API server is unreachable for a while. Recorded deliveries may be sent, but no lane continues before its outcome is written.
//! Afterwards everything arrives, and nothing is sent twice.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::Stage;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::{Oracle, Proxy, Relaybook, Reply, eventually};

/// More applications than the initial number of concurrent requests: some lanes are in flight when the API server becomes unreachable, and
/// some are not.
const APPS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
/// Initial number of concurrent requests to one origin.
const AT_FIRST: usize = 8;

#[tokio::test]
async fn without_the_api_server_each_lane_sends_only_recorded_deliveries() {
    out_of_reach("reach-cut", Proxy::cut, 3).await;
}

#[tokio::test]
async fn with_hanging_calls_each_lane_sends_only_recorded_deliveries() {
    out_of_reach("reach-frozen", Proxy::freeze, 1).await;
}

/// `times`: minimum number of failed outcome writes of each lane before the API server is back.
async fn out_of_reach(ns: &str, goes: fn(&Proxy), times: usize) {
    let stage = Stage::new(ns, &APPS, json!({"endpoint": {"timeout": "40s"}})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let gate = Gate::new();
    for app in APPS {
        receiver.always(&format!("/hook/{app}"), Reply::status(200).behind(&gate));
    }
    // Another process observes without the proxy, so new changes keep arriving.
    let _observer = Relaybook::with(world, Options { controllers: "pipeline", ..Options::of(world) }).await;
    let dispatcher = Relaybook::with(world, Options { controllers: "dispatch", ..stage.options() }).await;
    world.settled().await;
    for tag in ["2", "3"] {
        stage.ship(tag).await;
    }
    stage.recorded(2 * APPS.len()).await;
    eventually("the first are in flight", async || {
        if stage.requests() == AT_FIRST { Ok(()) } else { Err(format!("{}", stage.requests())) }
    })
    .await;

    goes(proxy);
    gate.open();
    stage.ship("4").await;
    eventually("each lane has tried to write its outcome", async || {
        let tried = in_vain(&dispatcher);
        if tried.len() == APPS.len() && tried.values().all(|n| *n >= times) { Ok(()) } else { Err(format!("{tried:?}")) }
    })
    .await;
    assert_eq!(stage.requests(), APPS.len(), "one for each lane: its next recorded delivery");

    proxy.heal();
    // The pauses between retries can have become 30 s long.
    stage.passed().await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(world, receiver);
    let steps = ["Deployed 2", "Deployed 3", "Deployed 4"];
    APPS.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &steps)).check().await;
    assert_eq!(stage.requests(), 3 * APPS.len());
}

/// Returns the number of failed outcome writes by delivery.
fn in_vain(relaybook: &Relaybook) -> HashMap<String, usize> {
    let mut tried = HashMap::new();
    let log = relaybook.log();
    for line in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let failed = line["message"].as_str().is_some_and(|m| m.starts_with("could not write the Delivery status"));
        if let Some(name) = line["delivery"].as_str().filter(|_| failed) {
            *tried.entry(name.to_owned()).or_default() += 1;
        }
    }
    tried
}
