//! Replicas divide the buckets: each sends what is in its own, and hands over without a repetition. What is shown of a notification does not
//! depend on which replica has its pipelines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use kube::ResourceExt as _;
use relaybook_api::Pipeline;
use relaybook_api::conditions::ConditionStatus;
use serde_json::json;

use super::{DISPATCH, EXPIRY, PIPELINE, divided, replica};
use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::world::{OF_FIRST, OF_SECOND, bucket};
use crate::support::{Fault, Oracle, Proxy, Receiver, Relaybook, Reply, World, eventually};

const PROMOTE: &str = "relaybook-promote";
const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// Nine pipelines `p-NAME` of one application each, with one notification for all.
async fn nine(ns: &str, receiver: &Receiver) -> World {
    let world = World::new(ns).await;
    join_all(NAMES.map(|name| world.deploy(name, "0"))).await;
    for name in NAMES {
        world.pipeline(&format!("p-{name}"), &[&format!("dev/{name}")]).await;
    }
    world.notification("hook", receiver, json!({})).await;
    world
}

async fn ship(world: &World, tag: &str) {
    join_all(NAMES.map(|name| world.ship(name, tag))).await;
    for name in NAMES {
        world.observed_at(&format!("p-{name}"), tag, &[name]).await;
    }
}

async fn arrived(receiver: &Receiver, count: usize) {
    join_all(NAMES.map(|name| format!("/hook/{name}")).iter().map(|path| receiver.wait(path, count))).await;
}

/// Waits until these replicas have divided all buckets evenly. Returns the names of those whose pipelines each has.
async fn share(world: &World, replicas: &[&Relaybook]) -> Vec<BTreeSet<&'static str>> {
    let mut uids = BTreeMap::new();
    for name in NAMES {
        uids.insert(name, bucket(&world.get_pipeline(&format!("p-{name}")).await.uid().unwrap()));
    }
    let (least, most) = (16 / replicas.len(), 16_usize.div_ceil(replicas.len()));
    let mut shares = Vec::new();
    for lease in [PIPELINE, PROMOTE, DISPATCH] {
        shares = eventually(&format!("{lease} is divided"), async || {
            let held = join_all(replicas.iter().map(|replica| replica.buckets(lease))).await;
            let all: BTreeSet<u8> = held.iter().flatten().copied().collect();
            let is_even = held.iter().all(|held| (least..=most).contains(&held.len()));
            let is_once = all.len() == 16 && held.iter().map(Vec::len).sum::<usize>() == 16;
            if is_even && is_once { Ok(held) } else { Err(format!("{held:?}")) }
        })
        .await;
    }
    let of = |held: &Vec<u8>| uids.iter().filter(|(_, bucket)| held.contains(bucket)).map(|(name, _)| *name).collect();
    shares.iter().map(of).collect()
}

/// Checks that these revisions of each target were sent in order, with one repeated request in each lane at most after so many crashes.
async fn judge(world: &World, receiver: &Receiver, last: u32, crashes: usize) {
    for name in NAMES {
        world.fence(&format!("p-{name}"), &["hook"]).await;
    }
    let steps: Vec<_> = (1..=last).map(|tag| format!("Deployed {tag}")).collect();
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    let oracle = Oracle::new(world, receiver).after_crashes(crashes);
    NAMES.iter().fold(oracle, |o, name| o.lane(&format!("p-{name}/hook/dev/{name}"), &steps)).check().await;
}

#[tokio::test]
async fn replicas_that_come_and_go_share_the_work_and_repeat_nothing() {
    let receiver = Receiver::start();
    let world = nine("divided-three", &receiver).await;
    let mut first = replica(&world, "first").await;
    world.settled().await;
    ship(&world, "1").await;
    arrived(&receiver, 1).await;
    assert!(first.attempts().await >= 9.0);
    let (second, third) = tokio::join!(replica(&world, "second"), replica(&world, "third"));
    let shares = share(&world, &[&first, &second, &third]).await;
    let before = join_all([&first, &second, &third].map(Relaybook::attempts)).await;
    ship(&world, "2").await;
    arrived(&receiver, 2).await;
    for ((replica, before), share) in [&first, &second, &third].into_iter().zip(before).zip(&shares) {
        let count = f64::from(u32::try_from(share.len()).unwrap());
        eventually("each replica has sent what is its own", async || {
            let sent = replica.attempts().await - before;
            if (sent - count).abs() < f64::EPSILON { Ok(()) } else { Err(format!("{sent} of {share:?}")) }
        })
        .await;
    }
    // One leaves and one comes during the changes.
    first.ask_to_stop();
    let (fourth, ()) = tokio::join!(replica(&world, "fourth"), ship(&world, "3"));
    assert!(first.ended().await.success());
    share(&world, &[&second, &third, &fourth]).await;
    ship(&world, "4").await;
    judge(&world, &receiver, 4, 0).await;
}

/// The buckets of a replica that is killed are divided among the others, which go on meanwhile.
pub(super) async fn killed() {
    let receiver = Receiver::start();
    let world = nine("divided-killed", &receiver).await;
    let first = replica(&world, "first").await;
    world.settled().await;
    // One after the other, so that all controllers divide the buckets in the same way.
    let mut second = replica(&world, "second").await;
    share(&world, &[&first, &second]).await;
    let third = replica(&world, "third").await;
    let shares = share(&world, &[&first, &second, &third]).await;
    ship(&world, "1").await;
    arrived(&receiver, 1).await;
    let gate = Gate::new();
    for name in NAMES {
        receiver.script(&format!("/hook/{name}"), [Reply::status(200).behind(&gate)]);
    }
    ship(&world, "2").await;
    arrived(&receiver, 2).await;
    second.kill9();
    gate.open();
    // The other replicas go on meanwhile.
    let (lost, others): (Vec<_>, Vec<_>) = NAMES.into_iter().partition(|name| shares[1].contains(name));
    join_all(NAMES.map(|name| world.ship(name, "3"))).await;
    for name in others {
        receiver.wait(&format!("/hook/{name}"), 3).await;
    }
    for lease in [PIPELINE, PROMOTE, DISPATCH] {
        within(EXPIRY, "the others have all buckets", async || {
            let held = join_all([&first, &third].map(|replica| replica.buckets(lease))).await;
            if held.iter().map(Vec::len).sum::<usize>() == 16 { Ok(()) } else { Err(format!("{held:?}")) }
        })
        .await;
    }
    for name in lost {
        receiver.wait(&format!("/hook/{name}"), 3).await;
    }
    judge(&world, &receiver, 3, 1).await;
}

#[tokio::test]
async fn a_bucket_is_handed_over_when_the_request_in_it_has_ended() {
    let receiver = Receiver::start();
    let world = World::new("divided-busy").await;
    for app in ["web", "api"] {
        world.deploy(app, "0").await;
    }
    let pipeline = loop {
        let pipeline = world.pipeline("shop", &["dev/web", "dev/api"]).await;
        if OF_SECOND.contains(&bucket(&pipeline.uid().unwrap())) {
            break pipeline;
        }
        world.delete::<Pipeline>("shop").await;
    };
    world.notification("hook", &receiver, json!({"endpoint": {"timeout": "60s"}})).await;
    let first = replica(&world, "first").await;
    world.settled().await;
    let gate = Gate::new();
    receiver.script("/hook/web", [Reply::status(200).behind(&gate)]);
    for tag in ["1", "2"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    receiver.wait("/hook/web", 1).await;
    let second = replica(&world, "second").await;
    let busy = bucket(&pipeline.uid().unwrap());
    eventually("all other buckets are handed over", async || {
        let (kept, got) = (first.buckets(DISPATCH).await, second.buckets(DISPATCH).await);
        let expected: Vec<u8> = OF_SECOND.filter(|bucket| *bucket != busy).collect();
        if got == expected && kept.contains(&busy) { Ok(()) } else { Err(format!("{kept:?} {got:?}")) }
    })
    .await;
    // No request is started in that bucket by either of them.
    world.ship("api", "1").await;
    world.observed_at("shop", "1", &["api"]).await;
    assert_eq!((receiver.to("/hook/api").len(), receiver.to("/hook/web").len()), (0, 1));
    gate.open();
    divided(&first, &second).await;
    receiver.wait("/hook/api", 1).await;
    receiver.wait("/hook/web", 2).await;
    world.fence("shop", &["hook"]).await;
    assert!(second.attempts().await >= 2.0);
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/web", &["Deployed 1", "Deployed 2"])
        .lane("shop/hook/dev/api", &["Deployed 1"])
        .check()
        .await;
}

/// The Notification is in a bucket of the first replica, and its pipeline is in one of the second.
#[tokio::test]
async fn a_notification_shows_what_happens_at_another_replica() {
    let receiver = Receiver::start();
    let world = World::new("divided-status").await;
    for app in ["web", "api"] {
        world.deploy(app, "0").await;
    }
    while !OF_SECOND.contains(&bucket(&world.pipeline("shop", &["dev/web", "dev/api"]).await.uid().unwrap())) {
        world.delete::<Pipeline>("shop").await;
    }
    world.only_for_first();
    world.notification("hook", &receiver, json!({})).await;
    let first = replica(&world, "first").await;
    world.settled().await;
    let proxy = Proxy::start(&world.kubeconfig, "divided-status").await;
    let kubeconfig = Some(proxy.kubeconfig.clone());
    let second = Relaybook::with(&world, Options { pod: Some("second"), kubeconfig, ..Options::of(&world) }).await;
    divided(&first, &second).await;

    receiver.always("/hook/web", Reply::status(401));
    world.ship("web", "1").await;
    let told = world.condition("hook", "Delivering", |c| c.status == ConditionStatus::False).await;
    assert_eq!(told.reason, "CredentialsRejected", "{}", told.message);
    receiver.always("/hook/web", Reply::status(200));
    world.ship("web", "2").await;
    world.ship("api", "1").await;
    receiver.wait("/hook/api", 1).await;
    world.patch::<relaybook_api::Notification>("hook", json!({"spec": {"endpoint": {"headers": {"x-try": "again"}}}})).await;
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
    eventually("the figures are those of both replicas", async || {
        let status = world.get_notification("hook").await.status.unwrap_or_default();
        let figures = (status.pipelines, status.targets, status.pending, status.delivered);
        if figures == (1, 3, 0, 3) { Ok(()) } else { Err(format!("{figures:?}")) }
    })
    .await;

    let refused = proxy.rule(Call::is_create_delivery, Fault::Refuse(403));
    world.ship("api", "2").await;
    let told = world.condition("hook", "Delivering", |c| c.reason == "RecordRefused").await;
    assert!(told.message.contains("pipeline shop"), "{}", told.message);
    let listed = world.get_pipeline("shop").await.status.unwrap().dispatched.unwrap().notifications;
    assert!(listed.iter().any(|one| one.name == "hook" && one.reason == "RecordRefused"), "{listed:?}");
    proxy.remove(refused);
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
    world.fence("shop", &["hook"]).await;
    assert!(world.get_pipeline("shop").await.status.unwrap().dispatched.unwrap().notifications.is_empty());
    assert_eq!(first.attempts().await, 0.0, "nothing was the first replica's to send");
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/web", &["Deployed 1", "Deployed 2"])
        .lane("shop/hook/dev/api", &["Deployed 1", "Deployed 2"])
        .check()
        .await;
}

#[tokio::test]
async fn a_rate_is_that_of_all_replicas_together() {
    const APPS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let receiver = Receiver::start();
    let world = World::new("divided-rate").await;
    join_all(APPS.map(|app| world.deploy(app, "0"))).await;
    let targets = APPS.map(|app| format!("dev/{app}"));
    let targets = targets.each_ref().map(String::as_str);
    for (name, buckets) in [("one", OF_FIRST), ("two", OF_SECOND)] {
        while !buckets.contains(&bucket(&world.pipeline(name, &targets).await.uid().unwrap())) {
            world.delete::<Pipeline>(name).await;
        }
    }
    world.notification("hook", &receiver, json!({"delivery": {"rate": {"perSecond": 2, "burst": 2}}})).await;
    let first = replica(&world, "first").await;
    world.settled().await;
    let second = replica(&world, "second").await;
    divided(&first, &second).await;
    let before = join_all([&first, &second].map(Relaybook::attempts)).await;
    for tag in ["1", "2"] {
        join_all(APPS.map(|app| world.ship(app, tag))).await;
        world.observed_at("one", tag, &APPS).await;
        world.observed_at("two", tag, &APPS).await;
    }
    join_all(APPS.map(|app| format!("/hook/{app}")).iter().map(|path| receiver.wait(path, 4))).await;
    let mut times: Vec<_> = receiver.log().into_iter().map(|request| request.at).collect();
    times.sort_unstable();
    // Two bursts of one, and one in a second from each replica. On a busy machine some arrive late, with the next ones. An undivided
    // rate would let about 24 through.
    let span = Duration::from_secs(5);
    for (at, begin) in times.iter().enumerate() {
        let count = times[at..].iter().take_while(|time| time.duration_since(*begin) < span).count();
        assert!(count <= 16, "{count} requests in {span:?}");
    }
    eventually("each replica has sent what is its own", async || {
        let sent = join_all([&first, &second].map(Relaybook::attempts)).await;
        let is_sent = sent.iter().zip(&before).all(|(now, before)| now - before >= 12.0);
        if is_sent { Ok(()) } else { Err(format!("{before:?}, {sent:?}")) }
    })
    .await;
    for name in ["one", "two"] {
        world.fence(name, &["hook"]).await;
    }
    let lanes = ["one", "two"].into_iter().flat_map(|name| APPS.map(|app| format!("{name}/hook/dev/{app}")));
    lanes.fold(Oracle::new(&world, &receiver), |o, lane| o.lane(&lane, &["Deployed 1", "Deployed 2"])).check().await;
}
