//! Tests lanes that have more deliveries than they can send: superseding, the limit of a lane, a rate, one order for a whole pipeline, and
//! receivers that are absent.

use std::time::Duration;

use futures::future::join_all;
use kube::ResourceExt as _;
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::{Delivery, Notification, Outcome};
use serde_json::json;

use crate::support::receiver::{Gate, Request};
use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::{Fault, Oracle, Proxy, Receiver, Relaybook, Reply, World, eventually};

fn outcome(delivery: &Delivery) -> Option<Outcome> {
    delivery.status.as_ref().and_then(|status| status.outcome)
}

/// Returns the deliveries of a notification about an application, in order.
async fn about(world: &World, notification: &str, app: &str) -> Vec<Delivery> {
    let mut all = world.deliveries().await;
    all.retain(|d| d.spec.notification == notification && d.spec.subject.name.ends_with(&format!("/{app}")));
    all.sort_by_key(|d| d.spec.serial);
    all
}

/// Adds a header with the number of deliveries that this one supersedes.
fn with_count(mut over: serde_json::Value) -> serde_json::Value {
    json_patch::merge(&mut over, &json!({"endpoint": {"headers": {"x-superseded": "{{superseded}}"}}}));
    over
}

fn count(request: &Request) -> i64 {
    request.header("x-superseded").parse().unwrap()
}

/// Makes this number of changes. Each is recorded before the next is made.
async fn followed_by(world: &World, number: usize) {
    for n in 1..=number {
        world.ship("web", &format!("r{n}")).await;
        // With more than 8 unprocessed changes, Relaybook would merge some.
        if n % 4 != 0 && n != number {
            continue;
        }
        eventually(&format!("{n} more are recorded"), async || {
            let count = about(world, "hook", "web").await.len();
            if count > n { Ok(()) } else { Err(format!("{count}")) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_newer_delivery_supersedes_all_waiting_ones_and_counts_them() {
    let world = World::new("supersede").await;
    let receiver = Receiver::start();
    let gate = Gate::new();
    receiver.script("/hook/web", [Reply::status(500), Reply::status(200).behind(&gate)]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let hook = json!({"delivery": {"supersede": true}, "endpoint": {"timeout": "60s"}});
    world.notification("hook", &receiver, with_count(hook)).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    receiver.wait("/hook/web", 2).await;
    for tag in ["3", "4", "5", "6"] {
        world.ship("web", tag).await;
        world.observed_at("shop", tag, &["web"]).await;
    }
    eventually("the newest supersedes the others", async || {
        let outcomes: Vec<_> = about(&world, "hook", "web").await.iter().map(outcome).collect();
        let expected = [None, Some(Outcome::Superseded), Some(Outcome::Superseded), Some(Outcome::Superseded), None];
        if outcomes == expected { Ok(()) } else { Err(format!("{outcomes:?}")) }
    })
    .await;
    // The count comes from the stored objects, also in a process that starts in between. For that process, 2 is no longer in flight.
    relaybook.kill9();
    gate.open();
    relaybook.start_again().await;
    world.ship("web", "7").await;
    eventually("all is sent", async || {
        let outcomes: Vec<_> = about(&world, "hook", "web").await.iter().map(outcome).collect();
        if outcomes.len() == 6 && outcomes.iter().all(Option::is_some) { Ok(()) } else { Err(format!("{outcomes:?}")) }
    })
    .await;
    // 7 may have been recorded while 6 was still queued, or while 6 was in flight.
    let all = about(&world, "hook", "web").await;
    let replaced = all.iter().filter(|d| outcome(d) == Some(Outcome::Superseded)).count();
    let sixth = if replaced == 5 { "Deployed 6 [Superseded]" } else { "Deployed 6" };
    let counts: Vec<_> = receiver.to("/hook/web").iter().map(count).collect();
    assert_eq!(counts.iter().max(), Some(&i64::try_from(replaced).unwrap()), "{counts:?}");
    let gone = ["Deployed 3 [Superseded]", "Deployed 4 [Superseded]", "Deployed 5 [Superseded]"];
    let steps = [&["Deployed 2 [Superseded]"], &gone[..], &[sixth, "Deployed 7"]].concat();
    let taken: Vec<_> = all.iter().map(|d| format!("{} [{}]", d.spec.to.revision, outcome(d).unwrap().as_str())).collect();
    let said: Vec<_> = steps.iter().map(|step| step.trim_start_matches("Deployed ").to_owned()).collect();
    let said: Vec<_> = said.into_iter().map(|s| if s.contains('[') { s } else { format!("{s} [Delivered]") }).collect();
    assert_eq!(taken, said);
}

#[tokio::test]
async fn no_count_of_superseded_deliveries_contains_a_pending_one() {
    let world = World::new("supersede-refused").await;
    let receiver = Receiver::start();
    let proxy = Proxy::start(&world.kubeconfig, "supersede-refused").await;
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, with_count(json!({"suspend": true}))).await;
    let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(&world) };
    let mut relaybook = Relaybook::with(&world, options).await;
    world.settled().await;
    for tag in ["2", "3", "4", "5", "6", "7"] {
        world.ship("web", tag).await;
    }
    let all = eventually("all are recorded", async || {
        let all = about(&world, "hook", "web").await;
        if all.len() == 6 { Ok(all) } else { Err(format!("{}", all.len())) }
    })
    .await;
    // The outcome of 4 is refused until the process is killed.
    let fourth = format!("/{}", all[2].name_any());
    let refused = proxy.rule(move |call| call.is_outcome() && call.path.ends_with(&fourth), Fault::Refuse(500));
    world.patch::<Notification>("hook", json!({"spec": {"delivery": {"supersede": true}}})).await;
    proxy.hit(refused, 2).await;
    let outcomes: Vec<_> = about(&world, "hook", "web").await.iter().map(outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Superseded), Some(Outcome::Superseded), None, None, None, None]);
    relaybook.kill9();
    proxy.remove(refused);
    world.patch::<Notification>("hook", json!({"spec": {"suspend": false}})).await;
    relaybook.start_again().await;
    world.delivery("Deployed 7", |d| outcome(d) == Some(Outcome::Delivered)).await;
    let counts: Vec<_> = about(&world, "hook", "web").await.iter().map(|d| d.status.as_ref().unwrap().superseded).collect();
    assert_eq!(counts, [0, 1, 2, 3, 4, 5]);
    assert_eq!(receiver.to("/hook/web").iter().map(count).collect::<Vec<_>>(), [5]);
}

#[tokio::test]
async fn many_changes_to_a_slow_receiver_end_with_the_last_state() {
    let world = World::new("flaps").await;
    let receiver = Receiver::start();
    receiver.always("/hook/web", Reply::status(200).after(Duration::from_millis(300)));
    world.deploy("web", "0").await;
    world.pipeline("shop", &["dev/web"]).await;
    // Retention deletes none of these deliveries.
    let hook = json!({"delivery": {"supersede": true, "retain": {"perLane": 100}}});
    world.notification("hook", &receiver, with_count(hook)).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    for tag in 1..=60 {
        world.ship("web", &tag.to_string()).await;
    }
    world.delivery("Deployed 60", |d| outcome(d) == Some(Outcome::Delivered)).await;
    let all = about(&world, "hook", "web").await;
    let of = |wanted| all.iter().filter(|d| outcome(d) == Some(wanted)).count();
    assert_eq!(of(Outcome::Delivered) + of(Outcome::Superseded), all.len());
    assert!(of(Outcome::Superseded) > 0 && of(Outcome::Delivered) > 1);
    let requests = receiver.to("/hook/web");
    assert_eq!(requests.len(), of(Outcome::Delivered));
    let serials: Vec<_> = requests.iter().map(|r| r.json()["serial"].as_str().unwrap().parse::<i64>().unwrap()).collect();
    assert!(serials.is_sorted(), "{serials:?}");
    assert_eq!(requests.iter().map(count).sum::<i64>(), i64::try_from(of(Outcome::Superseded)).unwrap());
    world.fence("shop", &["hook"]).await;
}

#[tokio::test]
async fn a_lane_holds_a_hundred_deliveries_and_the_newest_supersedes_the_rest() {
    let world = World::new("bound").await;
    let receiver = Receiver::start();
    // A retry blocks the lane, because the changes can take longer than the timeout of a request.
    receiver.script("/hook/web", [Reply::status(503)]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let slow = json!({"delivery": {"retry": {"initial": "10m", "max": "10m"}, "retain": {"perLane": 1000}}});
    world.notification("hook", &receiver, with_count(slow)).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.next_attempt_time.is_some())).await;
    followed_by(&world, 103).await;
    eventually("a hundred are pending", async || {
        let all = about(&world, "hook", "web").await;
        let pending = all.iter().filter(|d| outcome(d).is_none()).count();
        if (all.len(), pending) == (104, 100) { Ok(()) } else { Err(format!("{pending} of {}", all.len())) }
    })
    .await;
    let quick = json!({"spec": {"delivery": {"retry": {"initial": "100ms", "max": "1s"}}}});
    world.patch::<Notification>("hook", quick).await;
    within(Duration::from_mins(3), "the lane is sent", async || {
        let count = receiver.to("/hook/web").len();
        if count >= 101 { Ok(()) } else { Err(format!("{count} requests")) }
    })
    .await;
    // Without the attempt that failed.
    let requests = receiver.to("/hook/web").split_off(1);
    let serials: Vec<_> = requests.iter().map(|r| r.json()["serial"].as_str().unwrap().parse::<i64>().unwrap()).collect();
    let recorded: Vec<_> = about(&world, "hook", "web").await.iter().map(|d| d.spec.serial).collect();
    let expected = [&recorded[..99], &recorded[103..]].concat();
    assert_eq!(serials, expected, "the oldest 99 are sent in order, then the newest");
    assert_eq!(requests.iter().map(count).collect::<Vec<_>>(), [vec![0; 99], vec![4]].concat());
    let reasons = about(&world, "hook", "web").await;
    let full = |d: &&Delivery| d.status.as_ref().unwrap().reason.as_deref() == Some("LaneFull");
    assert_eq!(reasons.iter().filter(full).count(), 4);
}

#[tokio::test]
async fn a_rate_applies_to_all_lanes_of_one_notification() {
    let world = World::new("rate").await;
    let receiver = Receiver::start();
    let apps: Vec<_> = (0..12).map(|n| format!("web-{n}")).collect();
    join_all(apps.iter().map(|app| world.deploy(app, "1"))).await;
    let targets: Vec<_> = apps.iter().map(|app| format!("dev/{app}")).collect();
    world.pipeline("shop", &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let only_dev = json!([{"type": "Deployed", "environments": ["dev"]}]);
    // Both are suspended until everything is recorded, so that all lanes are ready at once, also on a busy machine.
    let rate = json!({"suspend": true, "triggers": only_dev, "delivery": {"rate": {"perSecond": 2, "burst": 4}}});
    world.notification("slow", &receiver, rate).await;
    world.notification("fast", &receiver, json!({"suspend": true, "triggers": only_dev})).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;
    join_all(apps.iter().map(|app| world.ship(app, "2"))).await;
    eventually("all wait", async || {
        let all = world.deliveries().await;
        let waits = |d: &&Delivery| d.status.as_ref().is_some_and(|s| s.reason.as_deref() == Some("Suspended"));
        let waiting = all.iter().filter(waits).count();
        if (all.len(), waiting) == (24, 24) { Ok(()) } else { Err(format!("{waiting} of {}", all.len())) }
    })
    .await;
    let resume = json!({"spec": {"suspend": false}});
    tokio::join!(world.patch::<Notification>("slow", resume.clone()), world.patch::<Notification>("fast", resume));
    let (slow, fast) = eventually("all are sent", async || {
        let all = world.deliveries().await;
        let of = |name: &str| {
            let sent = all.iter().filter(|d| d.spec.notification == name && outcome(d) == Some(Outcome::Delivered));
            let mut times: Vec<_> = sent.filter_map(|d| d.status.as_ref()?.last_attempt_time).collect();
            times.sort_unstable();
            times
        };
        let (slow, fast) = (of("slow"), of("fast"));
        if (slow.len(), fast.len()) == (12, 12) { Ok((slow, fast)) } else { Err(format!("{slow:?} and {fast:?}")) }
    })
    .await;
    // Four at once, then two per second: never five in less than half a second. An attempt can be late.
    for five in slow.windows(5) {
        let span = five[4].duration_since(five[0]);
        assert!(span.as_millis() >= 250, "{span:?}");
    }
    assert!(slow[11].duration_since(slow[0]).as_millis() >= 3500 && fast[11] < slow[8], "{slow:?} and {fast:?}");
    eventually("no lane waits for its rate", async || {
        let waiting = relaybook.metrics().await["relaybook_lanes{state=\"rate_limited\"}"];
        if waiting == 0.0 { Ok(()) } else { Err(format!("{waiting}")) }
    })
    .await;
    let mut oracle = Oracle::new(&world, &receiver);
    for lane in ["slow", "fast"].iter().flat_map(|n| apps.iter().map(move |app| format!("shop/{n}/dev/{app}"))) {
        oracle = oracle.lane(&lane, &["Deployed 2"]);
    }
    oracle.check().await;
}

async fn order_by(world: &World, ordering: &str) {
    world.patch::<Notification>("hook", json!({"spec": {"delivery": {"ordering": ordering}}})).await;
    world.ready("hook").await;
}

/// Waits until `hook` has this number of deliveries about an application. Returns the lane of the last one.
async fn lane_of(world: &World, app: &str, number: usize) -> String {
    eventually(&format!("{number} are recorded"), async || {
        let all = about(world, "hook", app).await;
        if all.len() == number { Ok(all[number - 1].spec.lane.clone()) } else { Err(format!("{}", all.len())) }
    })
    .await
}

#[tokio::test]
async fn an_edit_of_the_ordering_keeps_the_order_of_pending_deliveries() {
    let world = World::new("one-order").await;
    let receiver = Receiver::start();
    let (first, second) = (Gate::new(), Gate::new());
    let taken = |gate: &Gate| Reply::status(200).behind(gate);
    receiver.script("/hook/web", [Reply::status(500), Reply::status(500), taken(&first), taken(&second)]);
    world.deploy("web", "1").await;
    world.deploy("api", "1").await;
    world.pipeline("shop", &["dev/web", "dev/api"]).await;
    let hook = json!({"endpoint": {"timeout": "60s"}, "delivery": {"ordering": "Pipeline"},
        "triggers": [{"type": "Deployed", "environments": ["dev"]}]});
    world.notification("hook", &receiver, hook).await;
    world.notification("other", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    for app in ["web", "api"] {
        world.ship(app, "2").await;
        world.observed_at("shop", "2", &[app]).await;
    }
    receiver.wait("/hook/web", 3).await;
    assert_eq!(lane_of(&world, "api", 1).await, "pipeline");
    // From now on each target has its own lane. Deliveries of the old lane still precede them.
    order_by(&world, "Target").await;
    world.ship("api", "3").await;
    assert_eq!(lane_of(&world, "api", 2).await, "target/dev/in-cluster/one-order/api");
    world.fence("shop", &["other"]).await;
    assert!(receiver.to("/hook/api").is_empty(), "the pipeline's lane comes first");
    first.open();
    receiver.wait("/hook/api", 2).await;

    // The only delivery of its lane is in flight when the ordering is edited again.
    world.ship("web", "3").await;
    receiver.wait("/hook/web", 4).await;
    order_by(&world, "Pipeline").await;
    world.ship("api", "4").await;
    assert_eq!(lane_of(&world, "api", 3).await, "pipeline");
    world.fence("shop", &["other"]).await;
    assert_eq!(receiver.to("/hook/api").len(), 2, "the target's lane comes first");
    second.open();
    let (web, api) = (["Deployed 2", "Deployed 3"], ["Deployed 2", "Deployed 3", "Deployed 4"]);
    let oracle = Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &web).lane("shop/hook/dev/api", &api);
    oracle.lane("shop/other/dev/web", &web).lane("shop/other/dev/api", &api).check().await;
    let (web, api) = (receiver.to("/hook/web"), receiver.to("/hook/api"));
    assert!(web[2].at < api[0].at && web[3].at < api[2].at);
}

#[tokio::test]
async fn an_absent_receiver_is_probed_and_its_lanes_continue_when_it_is_back() {
    let world = World::new("probed").await;
    let mut receiver = Receiver::refusing();
    let apps: Vec<_> = (0..30).map(|n| format!("web-{n}")).collect();
    join_all(apps.iter().map(|app| world.deploy(app, "1"))).await;
    let targets: Vec<_> = apps.iter().map(|app| format!("dev/{app}")).collect();
    world.pipeline("shop", &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    // On their own schedule, lanes that have failed would wait for minutes.
    world.notification("hook", &receiver, json!({"delivery": {"retry": {"initial": "4s", "max": "1h"}}})).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;
    join_all(apps.iter().map(|app| world.ship(app, "2"))).await;
    world.observed_at("shop", "2", &apps.iter().map(String::as_str).collect::<Vec<_>>()).await;
    eventually("the receiver is known to be unreachable", async || {
        let metrics = relaybook.metrics().await;
        let (origins, lanes) = (metrics["relaybook_origins_unreachable"], metrics["relaybook_lanes{state=\"unreachable\"}"]);
        if (origins, lanes > 10.0) == (1.0, true) { Ok(()) } else { Err(format!("{origins}, {lanes}")) }
    })
    .await;
    // Waits for two more probes. They come at the pace of a lane's retries.
    let before = relaybook.attempts().await;
    eventually("the receiver is probed", async || {
        let attempts = relaybook.attempts().await;
        if attempts >= before + 2.0 { Ok(()) } else { Err(format!("{attempts} attempts, {before} before")) }
    })
    .await;
    let tried = world.deliveries().await.iter().filter(|d| d.status.as_ref().is_some_and(|s| s.attempts > 0)).count();
    assert!(tried < 20, "attempts are counted for {tried} deliveries");
    receiver.listen();
    let oracle = apps.iter().fold(Oracle::new(&world, &receiver).with_attempts_unseen(), |oracle, app| {
        oracle.lane(&format!("shop/hook/dev/{app}"), &["Deployed 2"])
    });
    oracle.check().await;
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
    let metrics = relaybook.metrics().await;
    assert!(metrics["relaybook_attempts_total{class=\"network\"}"] < 30.0, "{metrics:?}");
}

#[tokio::test]
async fn a_permanently_absent_receiver_is_reported_until_a_delivery_succeeds() {
    let world = World::new("gone").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(410)]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    let gone = world.condition("hook", "Delivering", |c| c.reason == "ReceiverGone").await;
    assert!(gone.status == ConditionStatus::False && gone.message.contains("spec.endpoint"), "{}", gone.message);
    relaybook.restart().await;
    world.ready("hook").await;
    world.condition("hook", "Delivering", |c| c.reason == "ReceiverGone").await;
    world.ship("web", "3").await;
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2 [Parked]", "Deployed 3"]).check().await;
}
