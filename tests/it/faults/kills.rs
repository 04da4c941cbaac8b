//! Kills the process at an exact point of a delivery. Afterwards nothing is missing, and a request is repeated only if its outcome was not
//! written.

use futures::future::join_all;
use kube::ResourceExt as _;
use relaybook_api::{Delivery, Outcome};
use serde_json::json;

use super::{Stage, is};
use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::{Fault, Oracle, Receiver, Relaybook, Reply, World};

/// What is blocked when the process is killed.
#[derive(Clone, Copy, PartialEq)]
enum Held {
    /// The create, before the API server receives it.
    Record,
    /// The response to the create, and the watch that would report the new object.
    Recorded,
    /// The response of the receiver.
    Request,
    /// The write of the outcome, before the API server receives it.
    Outcome,
    /// The response to that write.
    Settled,
}

#[tokio::test]
async fn a_kill_before_the_record_sends_nothing() {
    killed("kill-record", Held::Record, false).await;
}

#[tokio::test]
async fn a_kill_after_the_record_sends_nothing() {
    killed("kill-recorded", Held::Recorded, false).await;
}

#[tokio::test]
async fn a_kill_during_a_request_repeats_it_once() {
    tokio::join!(killed("kill-request", Held::Request, false), killed("kill-request-cursor", Held::Request, true));
}

#[tokio::test]
async fn a_kill_after_a_request_repeats_it_once() {
    tokio::join!(killed("kill-outcome", Held::Outcome, false), killed("kill-outcome-cursor", Held::Outcome, true));
}

#[tokio::test]
async fn a_kill_after_the_outcome_repeats_nothing() {
    tokio::join!(killed("kill-settled", Held::Settled, false), killed("kill-settled-cursor", Held::Settled, true));
}

/// Kills the process while the first of two deliveries is blocked. `lost`: the cursors that have passed both deliveries are not persisted.
/// Before the first record no cursor has passed anything.
async fn killed(ns: &str, held: Held, lost: bool) {
    let stage = Stage::new(ns, &["web"], json!({"endpoint": {"timeout": "30s"}})).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let gate = Gate::new();
    let mut rules = Vec::new();
    if held == Held::Recorded {
        let deliveries = |call: &Call| call.is_watch() && call.path.ends_with("/deliveries");
        rules.push(proxy.rule(deliveries, Fault::HoldAnswer(gate.clone())));
    }
    let mut relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    let at = match held {
        Held::Record => Some(proxy.rule(Call::is_create_delivery, Fault::HoldRequest(gate.clone()))),
        Held::Recorded => Some(proxy.rule(Call::is_create_delivery, Fault::HoldAnswer(gate.clone()))),
        Held::Outcome => Some(proxy.rule(Call::is_outcome, Fault::HoldRequest(gate.clone()))),
        Held::Settled => Some(proxy.rule(Call::is_outcome, Fault::HoldAnswer(gate.clone()))),
        Held::Request => {
            receiver.script("/hook/web", [Reply::status(200).behind(&gate)]);
            None
        }
    };
    // Nothing is recorded before the first cursors are persisted.
    stage.passed().await;
    let cursors = lost.then(|| proxy.rule(Call::is_cursors, Fault::LoseRequest));

    stage.ship("2").await;
    match at {
        Some(rule) => proxy.hit(rule, 1).await,
        None => drop(receiver.wait("/hook/web", 1).await),
    }
    stage.ship("3").await;
    match held {
        Held::Record => assert!(stage.recorded(0).await.is_empty()),
        Held::Recorded => drop(stage.recorded(1).await),
        Held::Request | Held::Outcome | Held::Settled => drop(stage.recorded(2).await),
    }
    if held == Held::Settled {
        world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered))).await;
    }
    match cursors {
        Some(rule) => proxy.hit(rule, 1).await,
        None if matches!(held, Held::Record | Held::Recorded) => {}
        None => stage.passed().await,
    }
    let sent = usize::from(!matches!(held, Held::Record | Held::Recorded));
    assert_eq!(stage.requests(), sent, "the second delivery of the lane waits");
    relaybook.kill9();
    rules.into_iter().chain(at).chain(cursors).for_each(|rule| proxy.remove(rule));
    relaybook.start_again().await;

    world.fence("shop", &["hook"]).await;
    let repeated = matches!(held, Held::Request | Held::Outcome);
    let oracle = Oracle::new(world, receiver).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]);
    let oracle = if repeated { oracle.after_a_crash() } else { oracle };
    oracle.check().await;
    let requests = receiver.to("/hook/web");
    assert_eq!(requests.len(), 2 + usize::from(repeated));
    if repeated {
        assert_eq!((requests[0].id(), &requests[0].body), (requests[1].id(), &requests[1].body));
    }
}

#[tokio::test]
async fn records_of_the_process_before_last_are_neither_lost_nor_taken_for_forged() {
    let quick = json!({"delivery": {"retry": {"initial": "1s", "max": "1s"}}});
    let stage = Stage::new("kill-kill", &["web", "api"], quick).await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let mut relaybook = Relaybook::with(world, stage.options()).await;
    world.settled().await;
    stage.ship("2").await;
    stage.passed().await;
    world.younger("shop").await;

    // The first process records deliveries, but its cursors are never persisted.
    receiver.always("/hook/web", Reply::status(503));
    let cursors = proxy.rule(Call::is_cursors, Fault::LoseRequest);
    stage.ship("3").await;
    receiver.wait("/hook/web", 2).await;
    let delivered = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered));
    let to_api = |d: &Delivery| d.spec.subject.target.as_ref().is_some_and(|t| t.app.name == "api") && delivered(d);
    world.delivery("Deployed 3", to_api).await;
    proxy.hit(cursors, 1).await;
    relaybook.kill9();
    proxy.remove(cursors);

    // The second process finds the recorded deliveries, and persists only the cursors.
    relaybook.start_again().await;
    stage.passed().await;
    relaybook.kill9();

    receiver.always("/hook/web", Reply::status(200));
    relaybook.start_again().await;
    world.fence("shop", &["hook"]).await;
    let steps = ["Deployed 2", "Deployed 3"];
    // A kill can hit an attempt for `web`, which is retried each second. No kill hits one for `api`, so nothing of it is repeated.
    let oracle = Oracle::new(world, receiver).with_attempts_unseen().after_crashes(2);
    oracle.lane("shop/hook/dev/web", &steps).lane("shop/hook/dev/api", &steps).check().await;
    assert_eq!(receiver.to("/hook/api").len(), 2, "a delivered one was sent again");

    let settled = world.delivery("Deployed 3", to_api).await;
    let patch = json!({"metadata": {"annotations": {"relaybook.dev/redeliver": "1"}}});
    world.patch::<Delivery>(&settled.name_any(), patch).await;
    receiver.wait("/hook/api", 3).await;
}

#[tokio::test]
async fn many_pending_lanes_continue_in_order_after_a_kill() {
    /// Number of lanes of each notification.
    const LANES: usize = 20;
    let world = World::new("kill-pending").await;
    let (mut down, slow) = (Receiver::refusing(), Receiver::start());
    let gate = Gate::new();
    let apps: Vec<_> = (0..LANES).map(|n| format!("app-{n}")).collect();
    join_all(apps.iter().map(|app| world.deploy(app, "1"))).await;
    let targets: Vec<_> = apps.iter().map(|app| format!("dev/{app}")).collect();
    world.pipeline("shop", &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for app in &apps {
        slow.always(&format!("/slow/{app}"), Reply::status(200).behind(&gate));
    }
    world.notification("down", &down, json!({})).await;
    world.notification("slow", &slow, json!({"endpoint": {"timeout": "30s"}})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let all: Vec<_> = apps.iter().map(String::as_str).collect();
    for tag in ["2", "3"] {
        join_all(apps.iter().map(|app| world.ship(app, tag))).await;
        world.observed_at("shop", tag, &all).await;
    }
    crate::support::eventually("all is recorded", async || {
        let pending = world.deliveries().await.into_iter().filter(|d| is(d, "Deployed 2") || is(d, "Deployed 3"));
        let count = pending.filter(|d| d.status.as_ref().is_none_or(|s| s.outcome.is_none())).count();
        if count == 4 * LANES { Ok(()) } else { Err(format!("{count} are pending")) }
    })
    .await;
    crate::support::eventually(
        "some are in flight",
        async || {
            if slow.log().is_empty() { Err("none".to_owned()) } else { Ok(()) }
        },
    )
    .await;

    relaybook.kill9();
    // The receiver may still read what was sent before the kill.
    let in_flight = crate::support::eventually("the receiver has read all that was sent", async || {
        let before = slow.log().len();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let count = slow.log().len();
        if count == before { Ok(count) } else { Err(format!("{before}, then {count}")) }
    })
    .await;
    relaybook.start_again().await;
    down.listen();
    gate.open();
    world.fence("shop", &["down", "slow"]).await;
    let mut oracle = Oracle::new(&world, &down).and(&slow).with_attempts_unseen().after_a_crash();
    for target in &targets {
        for notification in ["down", "slow"] {
            oracle = oracle.lane(&format!("shop/{notification}/{target}"), &["Deployed 2", "Deployed 3"]);
        }
    }
    oracle.check().await;
    let about = |receiver: &Receiver| receiver.log().iter().filter(|r| !r.path.ends_with("/fence")).count();
    assert_eq!(about(&down), 2 * LANES, "none of these was in flight");
    assert_eq!(about(&slow), 2 * LANES + in_flight, "each that was in flight came twice");
}
