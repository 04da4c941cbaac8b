//! Tests triggers with `for`: a state is reported only after it has lasted that long.

use std::time::{Duration, Instant};

use relaybook_api::{Notification, Time, TransitionType};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::{Fault, Oracle, Proxy, Receiver, Relaybook, World, eventually};

/// Returns triggers for failures that last this long, and for the fence.
fn failed_for(time: &str) -> Value {
    json!({"triggers": [{"type": "Failed", "for": time}, {"type": "Deployed"}]})
}

/// Starts Relaybook with pipeline `shop` (`dev/one` and `dev/two`) and notification `hook`.
async fn stage(ns: &str, time: &str) -> (World, Receiver, Relaybook) {
    let world = World::new(ns).await;
    let receiver = Receiver::start();
    for app in ["one", "two"] {
        world.deploy(app, "1").await;
    }
    world.pipeline("shop", &["dev/one", "dev/two"]).await;
    world.notification("hook", &receiver, failed_for(time)).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;
    (world, receiver, relaybook)
}

/// Waits until exactly this number of timers is persisted.
async fn armed(world: &World, count: usize) {
    eventually(&format!("{count} timers run"), async || {
        let dispatched = world.get_pipeline("shop").await.status.unwrap_or_default().dispatched.unwrap_or_default();
        if dispatched.armed.len() == count { Ok(()) } else { Err(format!("{:?}", dispatched.armed)) }
    })
    .await;
}

/// Waits until an application is reported after a delay that takes most of a minute. Returns when.
async fn reported(receiver: &Receiver, path: &str) -> Instant {
    within(Duration::from_mins(2), &format!("a request to {path}"), async || {
        receiver.to(path).first().map(|request| request.at).ok_or_else(|| "none came".to_owned())
    })
    .await
}

#[tokio::test]
async fn a_for_trigger_fires_after_its_delay_and_not_before_also_over_a_kill() {
    const DELAY: Duration = Duration::from_secs(40);
    let (world, receiver, mut relaybook) = stage("clocks-kill", "40s").await;
    let began = Instant::now();
    world.break_("one", "2", "no").await;
    world.break_("two", "2", "no").await;
    armed(&world, 2).await;
    relaybook.kill9();
    // The failure of `one` ends before its timer would fire, and while Relaybook is stopped.
    world.ship("one", "3").await;
    relaybook.start_again().await;
    receiver.wait("/hook/one", 1).await;
    assert!(began.elapsed() < DELAY, "too slow for this test");
    let told = reported(&receiver, "/hook/two").await;
    assert!(told.duration_since(began) >= DELAY);
    let delivery = world.delivery("Failed 2", |d| d.status.is_some()).await;
    let (spec, due) = (&delivery.spec, delivery.spec.due.unwrap());
    assert_eq!(due.duration_since(spec.time).as_secs(), 40);
    assert!(spec.order > spec.serial, "queued behind the later change of the other target");
    armed(&world, 0).await;
    world.fence("shop", &["hook"]).await;
    let lanes = Oracle::new(&world, &receiver).lane("shop/hook/dev/one", &["Deployed 3"]);
    lanes.lane("shop/hook/dev/two", &["Failed 2"]).check().await;
}

#[tokio::test]
async fn an_edit_of_the_delay_applies_to_running_timers() {
    let (world, receiver, mut relaybook) = stage("clocks-edit", "1h").await;
    world.break_("one", "2", "no").await;
    armed(&world, 1).await;
    world.fence("shop", &["hook"]).await;
    assert!(receiver.to("/hook/one").is_empty());
    let edit = async |spec: Value| world.patch::<Notification>("hook", json!({"spec": spec})).await;
    edit(failed_for("1s")).await;
    receiver.wait("/hook/one", 1).await;
    armed(&world, 0).await;
    // If the trigger is removed, its timer ends. If it is added again, the timer does not come back.
    edit(failed_for("1h")).await;
    world.ready("hook").await;
    world.break_("two", "2", "no").await;
    armed(&world, 1).await;
    edit(json!({"triggers": [{"type": "Deployed"}]})).await;
    armed(&world, 0).await;
    edit(failed_for("1s")).await;
    world.ready("hook").await;
    // A trigger without `for` reports at once, even if a timer was started before a restart.
    edit(failed_for("1h")).await;
    world.ready("hook").await;
    world.break_("one", "3", "no").await;
    armed(&world, 1).await;
    relaybook.restart().await;
    edit(json!({"triggers": [{"type": "Failed"}, {"type": "Deployed"}]})).await;
    receiver.wait("/hook/one", 2).await;
    world.fence("shop", &["hook"]).await;
    let told = world.delivery("Failed 3", |d| d.spec.type_ == TransitionType::Failed).await;
    assert_eq!(told.spec.due, Some(told.spec.time));
    Oracle::new(&world, &receiver).lane("shop/hook/dev/one", &["Failed 2", "Failed 3"]).check().await;
}

#[tokio::test]
async fn an_object_that_was_deleted_unobserved_is_dated_by_its_observation() {
    let (world, receiver, mut relaybook) = stage("clocks-gone", "1h").await;
    world
        .patch::<Notification>(
            "hook",
            json!({"spec": {"triggers": [{"type": "Removed", "for": "5s"}, {"type": "Deployed"}]}}),
        )
        .await;
    world.ready("hook").await;
    relaybook.kill9();
    world.take_away("one").await;
    let (began, earliest) = (Instant::now(), Time::now());
    relaybook.start_again().await;
    let told = receiver.wait("/hook/one", 1).await;
    assert!(told[0].at.duration_since(began) >= Duration::from_secs(5), "the delay starts at the observation");
    let delivery = world.delivery("Removed", |_| true).await;
    assert!(delivery.spec.time > earliest, "dated before {}: {}", earliest, delivery.spec.time);
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/one", &["Removed"]).check().await;
}

#[tokio::test]
async fn a_timer_does_not_fire_because_of_a_stalled_watch() {
    let world = World::new("clocks-deaf").await;
    let receiver = Receiver::start();
    for app in ["one", "two"] {
        world.deploy(app, "1").await;
    }
    world.pipeline("shop", &["dev/one", "dev/two"]).await;
    world.notification("hook", &receiver, failed_for("45s")).await;
    let proxy = Proxy::start(&world.kubeconfig, "clocks-deaf").await;
    let _observer = Relaybook::with(&world, Options { controllers: "pipeline", ..Options::of(&world) }).await;
    let through = Options { controllers: "dispatch", kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(&world) };
    let _dispatcher = Relaybook::with(&world, through).await;
    world.settled().await;

    let began = Instant::now();
    world.break_("one", "2", "no").await;
    world.break_("two", "2", "no").await;
    armed(&world, 2).await;
    let gate = Gate::new();
    let watches = |call: &Call| call.is_watch() && call.path.ends_with("/pipelines");
    let deaf = proxy.rule(watches, Fault::HoldRequest(gate.clone()));
    proxy.reconnect().await;
    proxy.hit(deaf, 1).await;
    world.ship("one", "1").await;
    world.observed_at("shop", "1", &["one"]).await;
    assert!(began.elapsed() < Duration::from_secs(45), "too slow for this test");
    // The dispatcher does not see the recovery. Its timer of 45 s must not fire while the watch is stalled.
    sleep(Duration::from_secs(48).saturating_sub(began.elapsed())).await;
    assert!(receiver.to("/hook/one").is_empty(), "the application recovered before the delay ended");
    gate.open();
    receiver.wait("/hook/two", 1).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/two", &["Failed 2"]).check().await;
}
