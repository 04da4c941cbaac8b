//! Writes that the API server rejects: no result is lost, and no request is repeated because a write failed.

use relaybook_api::Delivery;
use serde_json::json;

use super::Stage;
use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::{Fault, Oracle, Relaybook};

#[tokio::test]
async fn a_rejected_outcome_is_written_later_without_a_second_request() {
    let codes = [403, 404, 409, 422, 429, 500, 503];
    let stage = Stage::new("refused-outcome", &["web"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let names: Vec<_> = codes.iter().map(|code| format!("n{code}")).collect();
    for name in &names {
        world.notification(name, receiver, json!({})).await;
    }
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    let rules = codes.map(|code| {
        let of = format!("-n{code}-");
        let refused = Fault::Times(3, Box::new(Fault::Refuse(code)));
        proxy.rule(move |call| call.is_outcome() && call.path.contains(&of), refused)
    });

    stage.ship("2").await;
    stage.ship("3").await;
    let all: Vec<_> = names.iter().map(String::as_str).chain(["hook"]).collect();
    world.fence("shop", &all).await;
    let oracle = Oracle::new(world, receiver);
    let oracle = all.iter().fold(oracle, |o, n| o.lane(&format!("shop/{n}/dev/web"), &["Deployed 2", "Deployed 3"]));
    oracle.check().await;
    for (rule, name) in rules.into_iter().zip(&names) {
        assert!(proxy.hits(rule) > 3, "{name} was refused and then written");
        assert_eq!(receiver.to(&format!("/{name}/web")).len(), 2, "{name}");
    }
}

#[tokio::test]
async fn a_rejected_outcome_is_retried_with_backoff() {
    let stage = Stage::new("refused-long", &["web"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    // The response says that the object has changed or is gone, which is not true.
    let codes = [404, 409];
    for code in codes {
        world.notification(&format!("n{code}"), receiver, json!({})).await;
    }
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    let refuse = |name: String, code| {
        let of = format!("-{name}-");
        proxy.rule(move |call| call.is_outcome() && call.path.contains(&of), Fault::Refuse(code))
    };
    let [gone, conflict] = codes.map(|code| refuse(format!("n{code}"), code));
    let plain = refuse("hook".to_owned(), 403);

    stage.ship("2").await;
    proxy.hit(plain, 5).await;
    for rule in [gone, conflict] {
        assert!(proxy.hits(rule) < 30, "{} times in the time of {}", proxy.hits(rule), proxy.hits(plain));
    }
    for rule in [gone, conflict, plain] {
        proxy.remove(rule);
    }
    world.fence("shop", &["hook", "n404", "n409"]).await;
    let oracle = Oracle::new(world, receiver);
    let names = ["hook", "n404", "n409"];
    names.iter().fold(oracle, |o, name| o.lane(&format!("shop/{name}/dev/web"), &["Deployed 2"])).check().await;
}

#[tokio::test]
async fn a_delivery_that_is_deleted_during_its_outcome_write_is_finished() {
    let stage = Stage::new("refused-deleted", &["web"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    let gate = Gate::new();
    let held = proxy.rule(Call::is_outcome, Fault::HoldRequest(gate.clone()));

    stage.ship("2").await;
    proxy.hit(held, 1).await;
    stage.ship("3").await;
    let recorded = stage.recorded(2).await;
    let first = recorded.iter().find(|d| super::is(d, "Deployed 2")).and_then(|d| d.metadata.name.clone());
    world.delete::<Delivery>(&first.unwrap()).await;
    gate.open();
    world.fence("shop", &["hook"]).await;
    let steps = ["Deployed 2", "Deployed 3"];
    Oracle::new(world, receiver).lane("shop/hook/dev/web", &steps).without_audit().check().await;
    assert_eq!(stage.requests(), 2);
    assert_eq!(stage.recorded(1).await.len(), 1, "a deleted delivery is not created again");
}

#[tokio::test]
async fn a_rejected_record_is_created_later_and_once() {
    let codes = [403, 409, 429, 500, 504];
    let stage = Stage::new("refused-record", &["web", "api"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let names: Vec<_> = codes.iter().map(|code| format!("n{code}")).collect();
    for name in &names {
        world.notification(name, receiver, json!({})).await;
    }
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    let rules = codes.map(|code| {
        let of = format!("n{code}");
        let refused = Fault::Times(3, Box::new(Fault::Refuse(code)));
        proxy.rule(move |call| call.is_create_delivery() && notification(call) == of, refused)
    });

    for tag in ["2", "3"] {
        stage.ship(tag).await;
    }
    let all: Vec<_> = names.iter().map(String::as_str).chain(["hook"]).collect();
    world.fence("shop", &all).await;
    let mut oracle = Oracle::new(world, receiver);
    for name in &all {
        for app in ["web", "api"] {
            oracle = oracle.lane(&format!("shop/{name}/dev/{app}"), &["Deployed 2", "Deployed 3"]);
        }
    }
    oracle.check().await;
    for (rule, name) in rules.into_iter().zip(&names) {
        assert!(proxy.hits(rule) > 3, "{name} was refused and then recorded");
        assert_eq!(receiver.to(&format!("/{name}/web")).len(), 2, "{name}");
    }
}

/// Returns the notification whose delivery is created.
fn notification(call: &Call) -> String {
    let delivery: serde_json::Value = serde_json::from_slice(&call.body).unwrap_or_default();
    delivery["spec"]["notification"].as_str().unwrap_or_default().to_owned()
}
