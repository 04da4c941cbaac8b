//! Tests objects that are deleted and created again under the same name: the new object starts with a silent baseline, and no delivery
//! of the old one is sent for it.
//!
//! In each test, deliveries of the old object are pending because the receiver fails. The receiver recovers after the new object exists.

use kube::api::PostParams;
use relaybook_api::{Delivery, Notification, Pipeline, PipelineStatus, Time};
use serde_json::{Value, json};

use crate::support::receiver::Receiver;
use crate::support::world::{self, apps::Kind};
use crate::support::{Oracle, Relaybook, Reply, World, eventually};

/// A pipeline and a notification with two pending deliveries, because the receiver fails.
struct Stuck {
    world: World,
    receiver: Receiver,
    relaybook: Relaybook,
    /// Number of kills. The attempt in flight at a kill may not be recorded.
    crashes: usize,
}

impl Stuck {
    async fn new(ns: &str) -> Self {
        let world = World::new(ns).await;
        let receiver = Receiver::start();
        receiver.always("/hook/web", Reply::status(500));
        world.deploy("web", "1").await;
        world.pipeline("shop", &["dev/web"]).await;
        world.notification("hook", &receiver, json!({})).await;
        let relaybook = Relaybook::start(&world).await;
        world.settled().await;
        world.ship("web", "2").await;
        let first = world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.attempts > 0)).await;
        // Creation times have a precision of a second, and the two deliveries have different ones.
        let created = first.metadata.creation_timestamp.expect("it was created").0.as_second();
        eventually("another second has begun", async || {
            let now = Time::now().as_second();
            if now > created { Ok(()) } else { Err(format!("{now}")) }
        })
        .await;
        world.ship("web", "3").await;
        world.delivery("Deployed 3", |_| true).await;
        Self { world, receiver, relaybook, crashes: 0 }
    }

    /// Lets the receiver recover, makes two more changes, and checks all deliveries of the lane.
    async fn goes_on_with(&self, steps: &[&str]) {
        self.world.settled().await;
        self.receiver.always("/hook/web", Reply::status(200));
        self.world.ship("web", "4").await;
        self.world.ship("web", "5").await;
        self.world.fence("shop", &["hook"]).await;
        let oracle = Oracle::new(&self.world, &self.receiver).lane("shop/hook/dev/web", steps);
        if self.crashes > 0 { oracle.after_crashes(self.crashes).check().await } else { oracle.check().await }
    }

    fn kill9(&mut self) {
        self.relaybook.kill9();
        self.crashes += 1;
    }

    async fn canceled(&self, reason: &str) {
        for what in ["Deployed 2", "Deployed 3"] {
            let canceled = self.world.delivery(what, |d| d.status.as_ref().is_some_and(|s| s.outcome.is_some())).await;
            assert_eq!(canceled.status.unwrap().reason.as_deref(), Some(reason), "{what}");
        }
    }

    async fn targets(&self, targets: &[&str]) {
        let spec = world::pipeline(&self.world.ns, "shop", Kind::Deployment, targets)["spec"].take();
        self.world.patch::<Pipeline>("shop", json!({"spec": spec})).await;
    }

    async fn make_pipeline_again(&self) {
        self.world.delete::<Pipeline>("shop").await;
        self.world.pipeline("shop", &["dev/web"]).await;
    }

    async fn make_notification_again(&self) {
        self.world.delete::<Notification>("hook").await;
        self.world.notification("hook", &self.receiver, json!({})).await;
    }

    /// Replaces the status of the pipeline by an empty one, as a user could.
    async fn wipe_status(&self) {
        eventually("the status is wiped", async || {
            let mut pipeline = self.world.get_pipeline("shop").await;
            pipeline.status = Some(PipelineStatus::default());
            let replaced = self.world.api::<Pipeline>().replace_status("shop", &PostParams::default(), &pipeline).await;
            replaced.map(drop).map_err(|e| e.to_string())
        })
        .await;
    }

    /// Lets the receiver recover, and waits until the pending deliveries are delivered.
    async fn heal_and_drain(&self) {
        self.receiver.always("/hook/web", Reply::status(200));
        let delivered = |d: &Delivery| d.status.as_ref().is_some_and(|s| s.outcome.is_some());
        self.world.delivery("Deployed 3", delivered).await;
    }
}

const OLD_ONES_CANCELED: [&str; 4] = ["Deployed 2 [Canceled]", "Deployed 3 [Canceled]", "Deployed 4", "Deployed 5"];
const ALL: [&str; 4] = ["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5"];

#[tokio::test]
async fn a_target_that_was_removed_while_relaybook_was_stopped_cancels_its_deliveries() {
    let mut stuck = Stuck::new("again-target-out").await;
    stuck.kill9();
    stuck.targets(&[]).await;
    stuck.relaybook.start_again().await;
    stuck.canceled("TargetGone").await;
    stuck.kill9();
    stuck.targets(&["dev/web"]).await;
    stuck.relaybook.start_again().await;
    stuck.goes_on_with(&OLD_ONES_CANCELED).await;
}

#[tokio::test]
async fn a_target_that_was_removed_and_added_unnoticed_is_the_same_target() {
    let mut stuck = Stuck::new("again-target-same").await;
    stuck.kill9();
    stuck.targets(&[]).await;
    stuck.targets(&["dev/web"]).await;
    stuck.relaybook.start_again().await;
    stuck.goes_on_with(&ALL).await;
}

#[tokio::test]
async fn a_pipeline_recreated_while_relaybook_was_stopped_cancels_deliveries_of_its_predecessor() {
    let mut stuck = Stuck::new("again-pipeline-down").await;
    stuck.kill9();
    stuck.make_pipeline_again().await;
    stuck.relaybook.start_again().await;
    stuck.goes_on_with(&OLD_ONES_CANCELED).await;
    stuck.canceled("PipelineGone").await;
}

#[tokio::test]
async fn a_notification_recreated_while_relaybook_was_stopped_cancels_deliveries_of_its_predecessor() {
    let mut stuck = Stuck::new("again-notification-down").await;
    stuck.kill9();
    stuck.make_notification_again().await;
    stuck.relaybook.start_again().await;
    stuck.goes_on_with(&OLD_ONES_CANCELED).await;
    stuck.canceled("NotificationGone").await;
}

#[tokio::test]
async fn a_pipeline_that_was_temporarily_not_selected_keeps_its_pending_deliveries() {
    let stuck = Stuck::new("again-selected").await;
    let select = async |labels: Value| {
        stuck.world.patch::<Notification>("hook", json!({"spec": {"pipelineSelector": labels}})).await;
        stuck.world.settled().await;
    };
    select(json!({"matchLabels": {"nobody": "has this"}})).await;
    select(json!({"matchLabels": null})).await;
    stuck.goes_on_with(&ALL).await;
}

#[tokio::test]
async fn a_deleted_status_is_a_silent_baseline() {
    let stuck = Stuck::new("again-wiped").await;
    stuck.heal_and_drain().await;
    stuck.wipe_status().await;
    stuck.goes_on_with(&ALL).await;
}

#[tokio::test]
async fn a_deleted_status_does_not_cancel_pending_deliveries() {
    let mut stuck = Stuck::new("again-wiped-waiting").await;
    stuck.kill9();
    stuck.wipe_status().await;
    stuck.relaybook.start_again().await;
    stuck.goes_on_with(&ALL).await;
}

#[tokio::test]
async fn a_pipeline_restored_from_a_manifest_is_a_silent_baseline() {
    let stuck = Stuck::new("again-restored").await;
    stuck.heal_and_drain().await;
    let saved: Value = serde_json::to_value(stuck.world.get_pipeline("shop").await).unwrap();
    stuck.world.delete::<Pipeline>("shop").await;
    stuck.world.ship("web", "3b").await;
    stuck.world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": saved["spec"]})).await;
    stuck.goes_on_with(&ALL).await;
}
