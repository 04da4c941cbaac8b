//! Faults of the API server in one namespace affect only that namespace: writes that hang or are rejected there delay no other.

use std::time::{Duration, Instant};

use futures::future::join_all;
use relaybook_api::Delivery;
use serde_json::json;

use super::Stage;
use crate::support::control_plane::ControlPlane;
use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::wait::{heavy, within};
use crate::support::{Fault, Oracle, Proxy, Receiver, Relaybook, World};

/// Number of notifications, each for all applications: twice as many lanes as concurrent outcome writes.
const NOTIFICATIONS: usize = 6;
const APPS: usize = 100;
/// Maximum duration of the deliveries in the other namespace, one after the other. A hanging call times out after 10 s, so a delivery that
/// is queued behind such calls would wait 10 s for each of them, and all of them 50 s. The API server of a busy machine needs much of the limit.
const PROMPT: Duration = Duration::from_secs(40);
const TAGS: [&str; 5] = ["2", "3", "4", "5", "6"];

#[tokio::test]
async fn hanging_outcome_writes_of_one_namespace_delay_no_other() {
    let held = Gate::new();
    troubled("namespaces-hang", Fault::HoldRequest(held.clone()), &held).await;
}

#[tokio::test]
async fn rejected_outcome_writes_of_one_namespace_delay_no_other() {
    troubled("namespaces-refused", Fault::Refuse(403), &Gate::new()).await;
}

/// Applies the fault to every write of a delivery's status in one namespace, with hundreds of lanes, while another namespace continues.
async fn troubled(ns: &str, fault: Fault, held: &Gate) {
    let _alone = heavy().await;
    let bad = World::new(&format!("{ns}-bad")).await;
    let at_bad = Receiver::start();
    let apps: Vec<_> = (0..APPS).map(|n| format!("app-{n}")).collect();
    join_all(apps.iter().map(|app| bad.deploy(app, "1"))).await;
    let targets: Vec<_> = apps.iter().map(|app| format!("dev/{app}")).collect();
    bad.pipeline("shop", &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let names: Vec<_> = (0..NOTIFICATIONS).map(|n| format!("hook-{n}")).collect();
    for name in &names {
        bad.notification(name, &at_bad, json!({})).await;
    }
    let good = Stage::new(&format!("{ns}-good"), &["web"], json!({})).await;
    let watch = vec![bad.ns.clone(), good.world.ns.clone()];
    let relaybook = Relaybook::with(&good.world, Options { watch, ..good.options() }).await;
    bad.settled().await;
    good.world.settled().await;

    let path = format!("/namespaces/{}/", bad.ns);
    let rule = good.proxy.rule(move |call: &Call| call.is_delivery_status() && call.path.contains(&path), fault);
    join_all(apps.iter().map(|app| bad.ship(app, "2"))).await;
    within(Duration::from_mins(3), "all requests are made", async || {
        let count = at_bad.log().len();
        if count == NOTIFICATIONS * APPS { Ok(()) } else { Err(format!("{count} of {}", NOTIFICATIONS * APPS)) }
    })
    .await;

    let mut took = Duration::ZERO;
    for tag in TAGS {
        good.ship(tag).await;
        let begin = Instant::now();
        let settled = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.outcome.is_some());
        good.world.delivery(&format!("Deployed {tag}"), settled).await;
        took += begin.elapsed();
    }
    good.world.fence("shop", &["hook"]).await;
    let steps = TAGS.map(|tag| format!("Deployed {tag}"));
    let oracle = Oracle::new(&good.world, &good.receiver);
    oracle.lane("shop/hook/dev/web", &steps.each_ref().map(String::as_str)).check().await;
    assert!(took < PROMPT, "it took {took:?}");
    assert_eq!(at_bad.log().len(), NOTIFICATIONS * APPS, "no lane continues before its outcome is written");

    lift(&good.proxy, rule, held);
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    bad.fence("shop", &names).await;
    let mut oracle = Oracle::new(&bad, &at_bad);
    for target in &targets {
        for name in &names {
            oracle = oracle.lane(&format!("shop/{name}/{target}"), &["Deployed 2"]);
        }
    }
    oracle.check().await;
    drop(relaybook);
}

/// Number of pipelines in one namespace: more than twice the number of concurrent reconciles.
const PIPELINES: usize = 80;

#[tokio::test]
async fn rejected_log_writes_of_one_namespace_delay_no_other() {
    let _alone = heavy().await;
    // A separate control plane, because Relaybook watches all namespaces here, which is the default.
    let control_plane = tokio::task::spawn_blocking(ControlPlane::start).await.unwrap().unwrap();
    let [bad, good] = ["bad", "good"].map(async |ns| World::on(&control_plane.kubeconfig, ns).await);
    let (bad, good) = tokio::join!(bad, good);
    let receiver = Receiver::start();
    let proxy = Proxy::start(&good.kubeconfig, "namespaces-logs").await;
    for world in [&bad, &good] {
        world.deploy("web", "1").await;
    }
    let names: Vec<_> = (0..PIPELINES).map(|n| format!("shop-{n}")).collect();
    join_all(names.iter().map(|name| bad.pipeline(name, &["dev/web"]))).await;
    good.pipeline("shop", &["dev/web"]).await;
    good.notification("hook", &receiver, json!({})).await;
    let kubeconfig = Some(proxy.kubeconfig.clone());
    let _relaybook = Relaybook::with(&good, Options { watch: Vec::new(), kubeconfig, ..Options::of(&good) }).await;
    good.settled().await;
    bad.settled().await;

    let held = Gate::new();
    let of_bad = |call: &Call| call.is_pipeline_status() && call.path.contains("/namespaces/bad/");
    let rule = proxy.rule(of_bad, Fault::HoldRequest(held.clone()));
    bad.ship("web", "2").await;
    proxy.hit(rule, 8).await;
    let mut took = Duration::ZERO;
    for tag in TAGS {
        good.ship("web", tag).await;
        let begin = Instant::now();
        let settled = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.outcome.is_some());
        good.delivery(&format!("Deployed {tag}"), settled).await;
        took += begin.elapsed();
    }
    good.fence("shop", &["hook"]).await;
    let steps = TAGS.map(|tag| format!("Deployed {tag}"));
    let oracle = Oracle::new(&good, &receiver);
    oracle.lane("shop/hook/dev/web", &steps.each_ref().map(String::as_str)).check().await;
    assert!(took < PROMPT, "it took {took:?}");

    lift(&proxy, rule, &held);
    join_all(names.iter().map(|name| bad.observed_at(name, "2", &["web"]))).await;
}

fn lift(proxy: &Proxy, rule: crate::support::proxy::RuleId, held: &Gate) {
    proxy.remove(rule);
    held.open();
}
