//! Tests deliveries that a user deletes before they are settled: they are not sent again, and their lane continues.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use pennant::api::{Delivery, Outcome};
use serde_json::json;

use crate::support::receiver::Gate;
use crate::support::{Oracle, Pennant, Receiver, Reply, World, eventually};

/// Notification `hook` with three deliveries for `web`. The receiver has got the first request.
struct Stage {
    world: World,
    receiver: Receiver,
    _pennant: Pennant,
}

impl Stage {
    async fn new(ns: &str, first: Reply, retry: serde_json::Value) -> Self {
        let world = World::new(ns).await;
        let receiver = Receiver::start();
        // A gate must not run into the timeout. Only the test of the timeout waits for it.
        let timeout = if matches!(first, Reply::Hang) { "30s" } else { "60s" };
        receiver.script("/hook/web", [first]);
        world.deploy("web", "1").await;
        world.pipeline("shop", &["dev/web"]).await;
        let hook = json!({"endpoint": {"timeout": timeout}, "delivery": {"retry": retry}});
        world.notification("hook", &receiver, hook).await;
        world.notification("other", &receiver, json!({})).await;
        let pennant = Pennant::start(&world).await;
        world.settled().await;
        for tag in ["2", "3", "4"] {
            world.ship("web", tag).await;
            world.observed_at("shop", tag, &["web"]).await;
        }
        receiver.wait("/hook/web", 1).await;
        // The cursor has passed all three changes, so what is deleted from here on is not recorded again.
        world.fence("shop", &["other"]).await;
        world.delivery("Deployed 4", |d| d.spec.notification == "hook").await;
        Self { world, receiver, _pennant: pennant }
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
        eventually("no delivery is pending", async || {
            let status = self.world.get_notification("hook").await.status.unwrap_or_default();
            if status.pending == 0 { Ok(()) } else { Err(format!("{} are pending", status.pending)) }
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
async fn a_deleted_delivery_in_flight_is_not_retried() {
    let gate = Gate::new();
    let stage = Stage::new("deleted-failing", Reply::status(500).behind(&gate), quick()).await;
    stage.delete("Deployed 2").await;
    gate.open();
    stage.received(&["Deployed 2", "Deployed 3", "Deployed 4"]).await;
    let answers: Vec<_> = stage.receiver.to("/hook/web").iter().map(|r| r.answered.map(|(code, _)| code)).collect();
    assert_eq!(answers, [Some(500), Some(200), Some(200)]);
}

#[tokio::test]
async fn a_deleted_delivery_that_hangs_ends_at_its_timeout() {
    let stage = Stage::new("deleted-hanging", Reply::Hang, quick()).await;
    stage.delete("Deployed 2").await;
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
    stage.delete("Deployed 3").await;
    gate.open();
    stage.received(&["Deployed 2", "Deployed 4"]).await;
    assert_eq!(stage.receiver.to("/hook/web").len(), 2);
}

#[tokio::test]
async fn a_lane_continues_after_all_its_deliveries_are_deleted() {
    let gate = Gate::new();
    let stage = Stage::new("deleted-all", Reply::status(503).behind(&gate), quick()).await;
    let ours = ListParams::default().labels("pennant.dev/notification=hook");
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
