//! Two replicas. If the one that has a pipeline is killed, frozen, stopped, or loses its Lease, the other one continues. No transition is
//! missing, and at most the one request that was in flight in each lane is repeated.

mod divided;
mod shards;

use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::ListParams;
use relaybook_api::Pipeline;
use serde_json::json;

use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::wait::heavy;
use crate::support::world::{OF_FIRST, OF_SECOND, bucket};
use crate::support::{Fault, Oracle, Proxy, Receiver, Relaybook, Reply, World, eventually};

const DISPATCH: &str = "relaybook-dispatch";
const PIPELINE: &str = "relaybook-pipeline";
/// Time limit for a takeover. A membership lasts 45 s, and the machine can be busy.
const EXPIRY: Duration = Duration::from_secs(150);

/// Starts a replica and waits until it is ready.
async fn replica(world: &World, pod: &'static str) -> Relaybook {
    Relaybook::with(world, Options { pod: Some(pod), ..Options::of(world) }).await
}

/// Returns whether a replica holds a Lease, according to its own metrics.
async fn holds(relaybook: &Relaybook, lease: &str) -> bool {
    relaybook.metrics().await[&format!("relaybook_lease_held{{lease=\"{lease}\"}}")] > 0.0
}

/// Waits until the metrics of a replica contain this epoch of a Lease. The replica need not hold the Lease.
async fn epoch(relaybook: &Relaybook, lease: &str, expected: i32) {
    eventually(&format!("the epoch of {lease} is {expected}"), async || {
        let epoch = relaybook.metrics().await[&format!("relaybook_lease_epoch{{lease=\"{lease}\"}}")];
        if epoch == f64::from(expected) { Ok(()) } else { Err(format!("{epoch}")) }
    })
    .await;
}

/// Waits until a replica has all buckets.
async fn acts(relaybook: &Relaybook, limit: Duration) {
    for lease in [DISPATCH, PIPELINE] {
        relaybook.holds_within(limit, lease, 0..16).await;
    }
}

/// Waits until two replicas have divided the buckets.
async fn divided(first: &Relaybook, second: &Relaybook) {
    for lease in [DISPATCH, PIPELINE] {
        first.holds(lease, OF_FIRST).await;
        second.holds(lease, OF_SECOND).await;
    }
}

async fn lease(world: &World, name: &str) -> k8s_openapi::api::coordination::v1::LeaseSpec {
    world.api::<Lease>().get(name).await.expect("the Lease is there").spec.expect("the Lease has a spec")
}

/// Starts two replicas with a pipeline of five targets, which the first replica has.
async fn two(ns: &str, receiver: &Receiver) -> (World, Relaybook, Relaybook) {
    let world = World::new(ns).await;
    world.only_for_first();
    for app in APPS {
        world.deploy(app, "0").await;
    }
    world.pipeline("shop", &APPS.map(|app| ["dev/", app].concat()).each_ref().map(String::as_str)).await;
    world.notification("hook", receiver, json!({})).await;
    let first = replica(&world, "first").await;
    world.settled().await;
    let second = replica(&world, "second").await;
    divided(&first, &second).await;
    (world, first, second)
}

const APPS: [&str; 5] = ["a", "b", "c", "d", "e"];

async fn ship_all(world: &World, tags: std::ops::RangeInclusive<u32>) {
    for tag in tags {
        let tag = tag.to_string();
        join_all(APPS.map(|app| world.ship(app, &tag))).await;
        world.observed_at("shop", &tag, &APPS).await;
    }
}

/// Checks that the revisions 1 to `last` of each target were sent in order.
async fn judge(world: &World, receiver: &Receiver, last: u32, crashes: usize) {
    world.fence("shop", &["hook"]).await;
    let steps: Vec<_> = (1..=last).map(|tag| format!("Deployed {tag}")).collect();
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    let oracle = Oracle::new(world, receiver).after_crashes(crashes);
    APPS.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &steps)).check().await;
}

/// The leader is killed with a request in flight in every lane. The other replica continues when the Lease has expired, and not
/// earlier.
async fn killed() {
    let receiver = Receiver::start();
    let (world, mut first, second) = two("replicas-killed", &receiver).await;
    ship_all(&world, 1..=2).await;
    let gate = Gate::new();
    for app in APPS {
        receiver.script(&format!("/hook/{app}"), [Reply::status(200).behind(&gate)]);
    }
    ship_all(&world, 3..=4).await;
    for app in APPS {
        receiver.wait(&format!("/hook/{app}"), 3).await;
    }
    first.kill9();
    let killed = Instant::now();
    acts(&second, EXPIRY).await;
    // The last renewal was about ten seconds before the kill, and more on a busy machine.
    let after = killed.elapsed();
    assert!(after.as_secs() >= 25, "taken over {after:?} after the kill, but a membership lasts 45 s");
    let taken = lease(&world, DISPATCH).await;
    assert_eq!((taken.holder_identity.as_deref(), taken.lease_transitions), (Some("second"), Some(3)));
    ship_all(&world, 5..=5).await;
    judge(&world, &receiver, 5, 1).await;
    let status = world.get_pipeline("shop").await.status.unwrap();
    assert_eq!(status.log.unwrap().epoch, 3);
}

/// The leader is frozen with a request in flight in every lane, until the other replica has taken over and sent everything. Then it
/// resumes, and must notice that it is no longer the leader before it sends anything.
async fn frozen() {
    let receiver = Receiver::start();
    let (world, first, second) = two("replicas-frozen", &receiver).await;
    ship_all(&world, 1..=2).await;
    let gate = Gate::new();
    for app in APPS {
        receiver.script(&format!("/hook/{app}"), [Reply::status(200).behind(&gate)]);
    }
    ship_all(&world, 3..=4).await;
    for app in APPS {
        receiver.wait(&format!("/hook/{app}"), 3).await;
    }
    first.freeze();
    gate.open();
    acts(&second, EXPIRY).await;
    ship_all(&world, 5..=6).await;
    world.fence("shop", &["hook"]).await;
    let before = receiver.log().len();
    first.thaw();
    // The first replica notices that it has lost its buckets, and gets those that the second one gives away.
    divided(&second, &first).await;
    let found_out = first.attempts().await;
    judge(&world, &receiver, 6, 1).await;
    let late: Vec<_> =
        receiver.log()[before..].iter().filter(|r| !r.path.ends_with("/fence")).map(|r| r.path.clone()).collect();
    assert!(late.is_empty(), "sent after it was thawed: {late:?}");
    assert_eq!(first.attempts().await, found_out);
    drop(second);
}

#[tokio::test]
async fn another_replica_takes_over_from_one_that_is_killed_or_frozen() {
    let _alone = heavy().await;
    tokio::join!(killed(), frozen(), divided::killed());
}

#[tokio::test]
async fn a_stopped_replica_hands_over_at_once_and_nothing_is_repeated() {
    let receiver = Receiver::start();
    let (world, mut first, second) = two("replicas-stopped", &receiver).await;
    ship_all(&world, 1..=2).await;
    first.ask_to_stop();
    ship_all(&world, 3..=4).await;
    acts(&second, Duration::from_mins(1)).await;
    assert!(first.ended().await.success());
    ship_all(&world, 5..=5).await;
    judge(&world, &receiver, 5, 0).await;
}

#[tokio::test]
async fn one_replica_restarted_under_its_name_continues_at_once() {
    let receiver = Receiver::start();
    let (world, mut first, second) = two("replicas-restarted", &receiver).await;
    ship_all(&world, 1..=1).await;
    let before = lease(&world, DISPATCH).await.lease_transitions.expect("an epoch");
    first.kill9();
    first.start_again().await;
    divided(&first, &second).await;
    // The same replica has the same buckets again, so only the epoch shows the restart.
    for relaybook in [&first, &second] {
        epoch(relaybook, DISPATCH, before + 1).await;
    }
    ship_all(&world, 2..=2).await;
    judge(&world, &receiver, 2, 1).await;
    assert_eq!((second.writes().await, second.attempts().await), (0.0, 0.0));
}

#[tokio::test]
async fn a_replica_that_lost_its_lease_does_nothing_until_it_has_it_again() {
    let receiver = Receiver::start();
    let world = World::new("replicas-robbed").await;
    world.deploy("a", "0").await;
    world.pipeline("shop", &["dev/a"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let relaybook = replica(&world, "first").await;
    world.settled().await;
    world.ship("a", "1").await;
    receiver.wait("/hook/a", 1).await;

    let annotations = json!({"relaybook.dev/buckets": null});
    let stolen = json!({"holderIdentity": "robber", "leaseDurationSeconds": 30, "leaseTransitions": 40});
    let robbed = json!({"metadata": {"annotations": annotations}, "spec": stolen});
    world.patch::<Lease>(DISPATCH, robbed).await;
    eventually("the replica has noticed that it lost its Lease", async || {
        if holds(&relaybook, DISPATCH).await { Err("not yet".to_owned()) } else { Ok(()) }
    })
    .await;
    let writes = relaybook.metrics().await;
    world.ship("a", "2").await;
    world.observed_at("shop", "2", &["a"]).await;
    assert!(holds(&relaybook, PIPELINE).await, "the replica still holds the other Lease");
    assert_eq!(receiver.to("/hook/a").len(), 1);
    let creates = "relaybook_api_writes_total{kind=\"delivery_create\",result=\"ok\"}";
    assert_eq!(relaybook.metrics().await[creates], writes[creates]);

    // The other holder does not renew the Lease, so it expires and the replica gets it back.
    acts(&relaybook, Duration::from_mins(2)).await;
    assert_eq!(lease(&world, DISPATCH).await.lease_transitions, Some(41));
    world.ship("a", "3").await;
    world.fence("shop", &["hook"]).await;
    let steps = ["Deployed 1", "Deployed 2", "Deployed 3"];
    Oracle::new(&world, &receiver).lane("shop/hook/dev/a", &steps).check().await;
}

#[tokio::test]
async fn a_deleted_lease_is_recreated_with_an_epoch_above_the_logs() {
    let receiver = Receiver::start();
    let world = World::new("replicas-deleted").await;
    world.deploy("a", "0").await;
    world.pipeline("shop", &["dev/a"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let mut relaybook = replica(&world, "first").await;
    world.settled().await;
    // Each restart starts a new epoch.
    for tag in ["1", "2"] {
        relaybook.restart().await;
        world.settled().await;
        world.ship("a", tag).await;
        world.observed_at("shop", tag, &["a"]).await;
    }
    let epoch = world.get_pipeline("shop").await.status.unwrap().log.unwrap().epoch;
    assert_eq!(epoch, 3);
    for name in [PIPELINE, DISPATCH] {
        world.delete_any::<Lease>(name).await;
    }
    // A write before the replica notices the deletion would still have the old epoch. So the test waits for the new Leases.
    eventually("the Leases are made again", async || {
        let leases = world.api::<Lease>().list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        if leases.items.len() == 3 { Ok(()) } else { Err(format!("there are {}", leases.items.len())) }
    })
    .await;
    world.ship("a", "3").await;
    world.observed_at("shop", "3", &["a"]).await;
    assert!(world.get_pipeline("shop").await.status.unwrap().log.unwrap().epoch > epoch);
    world.fence("shop", &["hook"]).await;
    let steps = ["Deployed 1", "Deployed 2", "Deployed 3"];
    Oracle::new(&world, &receiver).lane("shop/hook/dev/a", &steps).check().await;
}

/// A replica that takes over must list the application objects again, although it has watched them. Its cache can be older than the
/// state that the previous leader recorded, and the old state would then be recorded as a change back.
#[tokio::test]
async fn stale_data_of_a_standby_is_not_reported() {
    let receiver = Receiver::start();
    let world = World::new("replicas-stale").await;
    for app in ["web", "api"] {
        world.deploy(app, "0").await;
    }
    // The second replica watches Deployments for another pipeline.
    while !OF_SECOND.contains(&bucket(&world.pipeline("other", &["dev/api"]).await.uid().unwrap())) {
        world.delete::<Pipeline>("other").await;
    }
    world.only_for_first();
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let mut first = replica(&world, "first").await;
    world.settled().await;
    // The second replica lists the Deployments, but its watch then receives no events.
    let (proxy, silent) = (Proxy::start(&world.kubeconfig, "replicas-stale").await, Gate::new());
    let hold = Fault::Times(1, Box::new(Fault::HoldRequest(silent)));
    let rule = proxy.rule(|call| call.is_watch() && call.concerns("deployments"), hold);
    let kubeconfig = Some(proxy.kubeconfig.clone());
    let second = Relaybook::with(&world, Options { pod: Some("second"), kubeconfig, ..Options::of(&world) }).await;
    divided(&first, &second).await;
    proxy.hit(rule, 1).await;
    for tag in ["1", "2"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    receiver.wait("/hook/web", 2).await;
    first.stop().await;
    acts(&second, Duration::from_mins(1)).await;
    world.ship("web", "3").await;
    world.observed_at("shop", "3", &["web"]).await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver);
    oracle.lane("shop/hook/dev/web", &["Deployed 1", "Deployed 2", "Deployed 3"]).check().await;
}
