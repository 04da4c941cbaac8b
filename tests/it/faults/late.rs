//! Writes whose responses are late or never arrive, or that the API server applies long after their timeout, and objects that a person
//! edits meanwhile. Each request is sent once, and each result is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use relaybook_api::{Change, Delivery, Status};
use serde_json::json;

use super::Stage;
use crate::support::proxy::{Call, RuleId};
use crate::support::receiver::Gate;
use crate::support::{Fault, Oracle, Proxy, Relaybook, Reply, eventually};

/// Applies the fault to the first status write of this notification that reports a failed attempt, and to the first that reports an
/// outcome.
fn each_kind(proxy: &Proxy, notification: &str, fault: &Fault) -> [RuleId; 2] {
    [false, true].map(|settles| {
        let of = format!("-{notification}-");
        let matches =
            move |call: &Call| call.is_delivery_status() && call.is_outcome() == settles && call.path.contains(&of);
        proxy.rule(matches, Fault::Times(1, Box::new(fault.clone())))
    })
}

#[tokio::test]
async fn a_write_that_is_answered_late_or_never_repeats_no_request() {
    let stage = Stage::new("late-outcome", &["web"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let late = Gate::new();
    // Stays closed: these calls end with their timeout.
    let never = Gate::new();
    let faults = [
        ("late", Fault::HoldAnswer(late.clone())),
        ("mute", Fault::HoldAnswer(never.clone())),
        ("lost", Fault::HoldRequest(never.clone())),
        ("tardy", Fault::Late(Duration::from_secs(5))),
    ];
    for (name, _) in &faults {
        world.notification(name, receiver, json!({})).await;
        receiver.script(&format!("/{name}/web"), [Reply::status(500)]);
    }
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    let rules = faults.each_ref().map(|(name, fault)| each_kind(proxy, name, fault));

    stage.ship("2").await;
    proxy.hit(rules[0][0], 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(receiver.to("/late/web").len(), 1, "the result of the first request is not written yet");
    late.open();
    stage.ship("3").await;
    let names = faults.each_ref().map(|(name, _)| *name);
    world.fence("shop", &[&names[..], &["hook"]].concat()).await;
    let oracle = Oracle::new(world, receiver).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]);
    let steps = ["Deployed 2", "Deployed 3"];
    names.iter().fold(oracle, |o, name| o.lane(&format!("shop/{name}/dev/web"), &steps)).check().await;
    for (name, [attempt, outcome]) in names.iter().zip(rules) {
        assert!(proxy.hits(attempt) > 0 && proxy.hits(outcome) > 0, "{name}");
        assert_eq!(receiver.to(&format!("/{name}/web")).len(), 3, "{name}: one that failed, and one for each delivery");
    }
}

#[tokio::test]
async fn a_delivery_that_is_edited_in_flight_is_still_settled() {
    let stage = Stage::new("late-edited", &["web"], json!({"endpoint": {"timeout": "30s"}})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let gate = Gate::new();
    receiver.script("/hook/web", [500, 200].map(|code| Reply::status(code).behind(&gate)));
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    let held = Gate::new();
    // Retries after the timeout of the call are held, too.
    let outcome = proxy.rule(Call::is_outcome, Fault::HoldRequest(held.clone()));

    stage.ship("2").await;
    stage.ship("3").await;
    stage.recorded(2).await;
    receiver.wait("/hook/web", 1).await;
    let name = world.delivery("Deployed 2", |_| true).await.metadata.name.unwrap();
    // One edit while the request is in flight, and one while its outcome is being written.
    let note = |text: &str| json!({"metadata": {"annotations": {"who": text}, "labels": {"seen": text}}});
    world.patch::<Delivery>(&name, note("first")).await;
    gate.open();
    proxy.hit(outcome, 1).await;
    world.patch::<Delivery>(&name, note("second")).await;
    // Also an edit of the status, by a user who has the permission.
    let meddled = Patch::Merge(json!({"status": {"reason": "Meddled", "error": "by hand"}}));
    world.api::<Delivery>().patch(&name, &PatchParams::default(), &meddled).await.expect("patched");
    held.open();
    world.fence("shop", &["hook"]).await;
    Oracle::new(world, receiver).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]).check().await;
    assert_eq!(stage.requests(), 3);
    let edited = world.delivery("Deployed 2", |_| true).await;
    assert_eq!(edited.metadata.annotations.unwrap().get("who").map(String::as_str), Some("second"), "the edit is kept");
    let status = edited.status.unwrap();
    assert_eq!((status.attempts, status.reason, status.error), (2, None, None));
}

#[tokio::test]
async fn the_result_of_a_failed_attempt_is_written_before_the_next_attempt() {
    let codes = [403, 409, 429, 500];
    let stage = Stage::new("late-attempts", &["web"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let names = codes.map(|code| format!("n{code}"));
    for name in &names {
        world.notification(name, receiver, json!({})).await;
        receiver.script(&format!("/{name}/web"), [503, 503].map(Reply::status));
    }
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    let rules = codes.map(|code| {
        let of = format!("-n{code}-");
        proxy.rule(move |call| call.is_delivery_status() && call.path.contains(&of), Fault::Refuse(code))
    });

    stage.ship("2").await;
    stage.ship("3").await;
    for rule in rules {
        proxy.hit(rule, 4).await;
    }
    world.fence("shop", &["hook"]).await;
    for name in &names {
        assert_eq!(receiver.to(&format!("/{name}/web")).len(), 1, "{name}");
    }
    for rule in rules {
        proxy.remove(rule);
    }
    let all: Vec<_> = names.iter().map(String::as_str).chain(["hook"]).collect();
    world.fence("shop", &all).await;
    let oracle = Oracle::new(world, receiver);
    let steps = ["Deployed 2", "Deployed 3"];
    all.iter().fold(oracle, |o, name| o.lane(&format!("shop/{name}/dev/web"), &steps)).check().await;
    for name in &names {
        assert_eq!(receiver.to(&format!("/{name}/web")).len(), 4, "{name}: two that failed, and one for each delivery");
    }
}

#[tokio::test]
async fn a_status_write_that_is_applied_late_is_reported_once() {
    let stage = Stage::new("late-status", &["web"], json!({})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    // After `goes` is set, one write fails and is applied 2 s later, after Relaybook has looked for it. All other writes are lost.
    let goes = Arc::new(AtomicBool::new(false));
    let astray = goes.clone();
    let stray = proxy.rule(
        move |call| call.is_pipeline_status() && astray.swap(false, Ordering::SeqCst),
        Fault::Stray(Duration::from_secs(2)),
    );
    let lost = proxy.rule(Call::is_pipeline_status, Fault::LoseRequest);
    for tag in ["2", "1"] {
        world.ship("web", tag).await;
        proxy.hit(lost, proxy.hits(lost) + 4).await;
    }
    goes.store(true, Ordering::SeqCst);
    proxy.hit(stray, 1).await;
    eventually("it is applied", async || {
        let log = world.get_pipeline("shop").await.status.unwrap().log.unwrap();
        let is_last = |change: &&Change| change.subject.starts_with("target/dev/") && change.to.status == Status::Current;
        let told: Vec<_> = log.changes.iter().filter(is_last).map(|change| change.to.revision.clone()).collect();
        if told == ["2", "1"] { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    proxy.remove(lost);
    stage.ship("3").await;
    world.fence("shop", &["hook"]).await;
    let steps = ["Deployed 2", "Deployed 1", "Deployed 3"];
    Oracle::new(world, receiver).lane("shop/hook/dev/web", &steps).check().await;
}
