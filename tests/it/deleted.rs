//! Tests deliveries that a user deletes before they are settled: they are not sent again, and their lane continues. Also tests many
//! notifications that are deleted together.

use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use relaybook_api::{Delivery, Notification, Outcome, Pipeline};
use serde_json::json;

use crate::support::proxy::{Call, Fault, Proxy};
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

/// Notification `hook` with three deliveries for `web`. The receiver has got the first request.
struct Stage {
    world: World,
    receiver: Receiver,
    _relaybook: Relaybook,
}

impl Stage {
    async fn new(ns: &str, first: Reply, retry: serde_json::Value) -> Self {
        let world = World::new(ns).await;
        let receiver = Receiver::start();
        receiver.script("/hook/web", [first]);
        world.deploy("web", "1").await;
        world.pipeline("shop", &["dev/web"]).await;
        // A gate must not run into the timeout.
        let hook = json!({"endpoint": {"timeout": "60s"}, "delivery": {"retry": retry}});
        world.notification("hook", &receiver, hook).await;
        world.notification("other", &receiver, json!({})).await;
        let relaybook = Relaybook::start(&world).await;
        world.settled().await;
        for tag in ["2", "3", "4"] {
            world.ship("web", tag).await;
            world.observed_at("shop", tag, &["web"]).await;
        }
        receiver.wait("/hook/web", 1).await;
        // The cursor has passed all three changes, so what is deleted from here on is not recorded again.
        world.fence("shop", &["other"]).await;
        world.delivery("Deployed 4", |d| d.spec.notification == "hook").await;
        Self { world, receiver, _relaybook: relaybook }
    }

    /// Deletes the delivery of `hook` with this type and revision.
    async fn delete(&self, what: &str) {
        let found = self.world.delivery(what, |d| d.spec.notification == "hook").await;
        self.world.delete::<Delivery>(&found.name_any()).await;
    }

    /// Waits until the delivery of `hook` with this type and revision is delivered.
    async fn delivered(&self, what: &str) {
        let taken = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered));
        self.world.delivery(what, |d| d.spec.notification == "hook" && taken(d)).await;
    }

    /// Checks all requests that were received. The audit is not checked, because deleted deliveries are missing there.
    async fn received(&self, steps: &[&str]) {
        self.world.fence("shop", &["hook", "other"]).await;
        let oracle = Oracle::new(&self.world, &self.receiver).without_audit();
        let all = ["Deployed 2", "Deployed 3", "Deployed 4"];
        oracle.lane("shop/hook/dev/web", steps).lane("shop/other/dev/web", &all).check().await;
        self.pending(0).await;
    }

    /// Waits until Relaybook knows this number of pending deliveries of `hook`.
    async fn pending(&self, expected: i64) {
        eventually("the number of pending deliveries", async || {
            let pending = self.world.get_notification("hook").await.status.unwrap_or_default().pending;
            if pending == expected { Ok(()) } else { Err(format!("{pending} are pending, not {expected}")) }
        })
        .await;
    }
}

fn quick() -> serde_json::Value {
    json!({"initial": "100ms", "max": "500ms"})
}

#[tokio::test]
async fn a_deleted_delivery_in_flight_ends_with_its_request() {
    let gate = Gate::new();
    let stage = Stage::new("deleted-in-flight", Reply::status(200).behind(&gate), quick()).await;
    stage.delete("Deployed 2").await;
    stage.world.fence("shop", &["other"]).await;
    assert_eq!(stage.receiver.to("/hook/web").len(), 1, "its request is still under way");
    gate.open();
    stage.received(&["Deployed 2", "Deployed 3", "Deployed 4"]).await;
    assert_eq!(stage.receiver.to("/hook/web").len(), 3);
}

#[tokio::test]
async fn a_deleted_delivery_that_waits_for_a_retry_unblocks_its_lane() {
    let stage = Stage::new("deleted-waiting", Reply::status(500), json!({"initial": "10m", "max": "10m"})).await;
    let waits = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.next_attempt_time.is_some());
    stage.world.delivery("Deployed 2", waits).await;
    stage.delete("Deployed 2").await;
    stage.delivered("Deployed 4").await;
    stage.received(&["Deployed 2", "Deployed 3", "Deployed 4"]).await;
    assert_eq!(stage.receiver.to("/hook/web").len(), 3);
}

#[tokio::test]
async fn a_deleted_queued_delivery_is_never_sent() {
    let gate = Gate::new();
    let stage = Stage::new("deleted-behind", Reply::status(200).behind(&gate), quick()).await;
    stage.pending(3).await;
    stage.delete("Deployed 3").await;
    // The watch has told the engine, too.
    stage.pending(2).await;
    gate.open();
    stage.received(&["Deployed 2", "Deployed 4"]).await;
    assert_eq!(stage.receiver.to("/hook/web").len(), 2);
}

#[tokio::test]
async fn a_lane_continues_after_all_its_deliveries_are_deleted() {
    let gate = Gate::new();
    let stage = Stage::new("deleted-all", Reply::status(503).behind(&gate), quick()).await;
    let ours = ListParams::default().labels("relaybook.dev/notification=hook");
    let api = stage.world.api::<Delivery>();
    api.delete_collection(&DeleteParams::default(), &ours).await.expect("deleted");
    gate.open();
    stage.world.ship("web", "5").await;
    stage.delivered("Deployed 5").await;
    stage.world.fence("shop", &["hook", "other"]).await;
    let oracle = Oracle::new(&stage.world, &stage.receiver).without_audit();
    let all = ["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5"];
    let some = ["Deployed 2", "Deployed 5"];
    oracle.lane("shop/hook/dev/web", &some).lane("shop/other/dev/web", &all).check().await;
    assert_eq!(stage.receiver.to("/hook/web").len(), 2);
}

#[tokio::test]
async fn many_notifications_that_are_deleted_together_are_confirmed_together() {
    const PIPELINES: usize = 4;
    const NOTIFICATIONS: usize = 40;
    /// Number of notifications that one check reads one by one.
    const READS: f64 = 4.0;
    let world = World::new("deleted-many").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    let names: Vec<String> = (0..PIPELINES).map(|n| format!("shop-{n}")).collect();
    join_all(names.iter().map(|name| world.pipeline(name, &["dev/web"]))).await;
    let notifications: Vec<String> = (0..NOTIFICATIONS).map(|n| format!("hook-{n}")).collect();
    join_all(notifications.iter().map(|name| world.notification(name, &receiver, json!({"suspend": true})))).await;
    let proxy = Proxy::start(&world.kubeconfig, "deleted-many").await;
    // A delay of nothing, so that each call is counted and forwarded.
    let is_read = |call: &Call| call.method == "GET" && call.concerns("notifications") && !call.query.contains("watch=");
    let reads = proxy.rule(is_read, Fault::Late(Duration::ZERO));
    let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(&world) };
    let _relaybook = Relaybook::with(&world, options).await;
    let cursors = async |count: usize| {
        eventually(&format!("each pipeline has {count} cursors"), async || {
            let pipelines = world.api::<Pipeline>().list(&ListParams::default()).await.unwrap().items;
            let count_of = |pipeline: &Pipeline| {
                let dispatched = pipeline.status.as_ref().and_then(|status| status.dispatched.as_ref());
                dispatched.map(|dispatched| dispatched.cursors.len())
            };
            let counts: Vec<_> = pipelines.iter().map(count_of).collect();
            if counts.iter().all(|found| *found == Some(count)) { Ok(()) } else { Err(format!("{counts:?}")) }
        })
        .await;
    };
    cursors(NOTIFICATIONS).await;

    let (before, began) = (proxy.hits(reads), Instant::now());
    let api = world.api::<Notification>();
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
    cursors(0).await;
    let (made, checks) = (proxy.hits(reads) - before, began.elapsed().as_secs_f64() + 2.0);
    #[allow(clippy::cast_precision_loss, reason = "few calls")]
    let is_few = made as f64 <= PIPELINES as f64 * READS * checks;
    assert!(is_few, "{made} reads in {:?}", began.elapsed());

    // A new notification starts as always.
    world.notification("hook", &receiver, json!({})).await;
    cursors(1).await;
    world.ship("web", "2").await;
    for name in &names {
        world.observed_at(name, "2", &["web"]).await;
    }
    let all = eventually("all are delivered", async || {
        let all = world.deliveries().await;
        let count = all.iter().filter(|d| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered))).count();
        if count >= PIPELINES { Ok(all) } else { Err(format!("{count} of {}", all.len())) }
    });
    assert_eq!(all.await.len(), PIPELINES);
}
