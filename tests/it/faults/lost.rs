//! Writes that are applied but whose responses are lost: no change is skipped, and no request is repeated.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::json;

use super::Stage;
use crate::support::proxy::Call;
use crate::support::{Fault, Oracle, Relaybook, Reply};

#[tokio::test]
async fn lost_responses_to_log_writes_skip_and_repeat_nothing() {
    half_are_lost("lost-pipeline", Call::is_pipeline_status).await;
}

#[tokio::test]
async fn lost_responses_to_cursor_writes_skip_and_repeat_nothing() {
    half_are_lost("lost-cursors", Call::is_cursors).await;
}

#[tokio::test]
async fn lost_responses_to_records_skip_and_repeat_nothing() {
    half_are_lost("lost-records", Call::is_create_delivery).await;
}

#[tokio::test]
async fn lost_responses_to_attempts_and_outcomes_skip_and_repeat_nothing() {
    half_are_lost("lost-outcomes", Call::is_delivery_status).await;
}

#[tokio::test]
async fn lost_responses_to_all_writes_skip_and_repeat_nothing() {
    half_are_lost("lost-all", |call| call.method != "GET" && !call.is_lease()).await;
}

/// Loses every second response to identical writes, starting with the first.
async fn half_are_lost(ns: &str, calls: fn(&Call) -> bool) {
    let stage = Stage::new(ns, &["web", "api"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    receiver.script("/hook/web", [200, 500, 200, 500, 500].map(Reply::status));
    let made: Mutex<HashMap<String, usize>> = Mutex::default();
    let second = move |call: &Call| {
        calls(call) && {
            let mut made = made.lock().unwrap();
            let count = made.entry(call.written()).or_default();
            *count += 1;
            !count.is_multiple_of(2)
        }
    };
    let lost = proxy.rule(second, Fault::LoseAnswer);
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;

    for tags in [["2", "3"], ["2", "4"]] {
        for tag in tags {
            stage.ship(tag).await;
        }
        // Cursors are written at most once a second. This wait makes sure that they are written more than once.
        stage.passed().await;
    }
    world.fence("shop", &["hook"]).await;
    assert!(proxy.hits(lost) > 1);
    let steps = ["Deployed 2", "Deployed 3", "Deployed 2", "Deployed 4"];
    let oracle = Oracle::new(world, receiver);
    oracle.lane("shop/hook/dev/web", &steps).lane("shop/hook/dev/api", &steps).check().await;
    assert_eq!(stage.requests(), 4 + 3 + 4, "three failed attempts are retried, and no request is repeated");
}
