//! A Notification, a target or a pipeline is removed and added again: old deliveries are canceled, and later changes are sent where the
//! layers point.

use std::time::Duration;

use relaybook_api::{Delivery, Notification, Outcome, Pipeline};
use serde_json::{Value, json};

use super::{no_trouble, reason, relay, shop, start, to, told, trouble};
use crate::support::relaybook::Options;
use crate::support::world::apps::Kind;
use crate::support::world::pipeline;
use crate::support::{Fault, Oracle, Proxy, Receiver, Relaybook, Reply, World};

/// Notification `hook`, whose layer for `web` sends to another receiver, where two changes are pending.
struct Stage {
    world: World,
    base: Receiver,
    there: Receiver,
    _relaybook: Relaybook,
}

const TARGETS: [&str; 2] = ["dev/web", "dev/api"];

impl Stage {
    async fn new(ns: &str) -> Self {
        let world = World::new(ns).await;
        let (base, there) = (Receiver::start(), Receiver::start());
        there.always("/hook/web", Reply::status(503));
        world.deploy("web", "1").await;
        world.deploy("api", "1").await;
        world.notification("hook", &base, json!({})).await;
        world.notification("other", &base, json!({})).await;
        shop(&world, &TARGETS, &[("dev/web", to("hook", &there, "/hook/web"))]).await;
        let relaybook = start(&world).await;
        let stage = Self { world, base, there, _relaybook: relaybook };
        stage.ship("2").await;
        stage.ship("3").await;
        stage.there.wait("/hook/web", 1).await;
        told(&stage.world, "hook", "web", "Deployed 3", |_| true).await;
        stage
    }

    async fn ship(&self, tag: &str) {
        for app in ["web", "api"] {
            self.world.ship(app, tag).await;
            self.world.observed_at("shop", tag, &[app]).await;
        }
    }

    /// Waits until the pending deliveries are canceled for this reason. From then on, the receiver accepts everything.
    async fn canceled(&self, why: &str) {
        let is = |d: &Delivery| reason(d) == why && d.status.as_ref().and_then(|s| s.outcome) == Some(Outcome::Canceled);
        told(&self.world, "hook", "web", "Deployed 2", is).await;
        told(&self.world, "hook", "web", "Deployed 3", is).await;
        self.there.always("/hook/web", Reply::status(200));
    }

    /// Checks the lanes of both notifications, and that the receiver of the Notification never got a request for `hook` about `web`.
    async fn check(&self, web: &[&str], api: &[&str], other: [&[&str]; 2]) {
        let oracle = Oracle::new(&self.world, &self.base).and(&self.there);
        let oracle = oracle.lane("shop/hook/dev/web", web).lane("shop/hook/dev/api", api);
        oracle.lane("shop/other/dev/web", other[0]).lane("shop/other/dev/api", other[1]).check().await;
        assert!(self.base.to("/hook/web").is_empty());
    }
}

const OLD: [&str; 2] = ["Deployed 2 [Canceled]", "Deployed 3 [Canceled]"];

#[tokio::test]
async fn a_notification_that_is_deleted_below_a_layer_cancels_its_deliveries() {
    let stage = Stage::new("layers-beneath").await;
    stage.world.fence("shop", &["hook", "other"]).await;
    stage.world.delete::<Notification>("hook").await;
    stage.canceled("NotificationGone").await;
    let said = trouble(&stage.world, "hook", Some("web"), "Incomplete").await;
    assert_eq!(said.environment.as_deref(), Some("dev"));
    assert_eq!(super::troubles(&stage.world).await.len(), 1, "the other target has no entry");
    stage.ship("4").await;
    stage.world.fence("shop", &["other"]).await;

    stage.world.notification("hook", &stage.base, json!({})).await;
    stage.world.ready("hook").await;
    stage.world.cursor("shop", "hook").await;
    no_trouble(&stage.world).await;
    stage.ship("5").await;
    stage.world.fence("shop", &["hook", "other"]).await;
    let other = ["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5"];
    stage.check(&[OLD[0], OLD[1], "Deployed 5"], &["Deployed 2", "Deployed 3", "Deployed 5"], [&other, &other]).await;
}

#[tokio::test]
async fn a_target_that_is_removed_and_added_again_reports_only_new_changes() {
    let stage = Stage::new("layers-target").await;
    let before = serde_json::to_value(stage.world.get_pipeline("shop").await).unwrap()["spec"].take();
    let without = pipeline(&stage.world.ns, "shop", Kind::Deployment, &["dev/api"]);
    let put = async |spec: &Value| {
        stage.world.patch::<Pipeline>("shop", json!({"spec": spec})).await;
        stage.world.observed("shop").await;
    };
    put(&without["spec"]).await;
    stage.canceled("TargetGone").await;
    stage.world.ship("web", "4").await;
    put(&before).await;
    stage.ship("5").await;
    stage.world.fence("shop", &["hook", "other"]).await;
    let all = ["Deployed 2", "Deployed 3", "Deployed 5"];
    stage.check(&[OLD[0], OLD[1], "Deployed 5"], &all, [&all, &all]).await;
}

#[tokio::test]
async fn a_pipeline_that_is_deleted_and_created_again_reports_only_new_changes() {
    let stage = Stage::new("layers-again").await;
    stage.world.fence("shop", &["hook", "other"]).await;
    stage.world.delete::<Pipeline>("shop").await;
    stage.canceled("PipelineGone").await;
    shop(&stage.world, &TARGETS, &[("dev/web", to("hook", &stage.there, "/hook/web"))]).await;
    stage.world.observed("shop").await;
    stage.world.cursor("shop", "hook").await;
    stage.world.cursor("shop", "other").await;
    stage.ship("4").await;
    relay(&stage.world, "dev/web", json!([])).await;
    relay(&stage.world, "dev/web", to("hook", &stage.there, "/hook/web")).await;
    stage.ship("5").await;
    stage.world.fence("shop", &["hook", "other"]).await;
    let all = ["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5"];
    let oracle = Oracle::new(&stage.world, &stage.base).and(&stage.there);
    let oracle = oracle.lane("shop/hook/dev/web", &[OLD[0], OLD[1], "Deployed 4", "Deployed 5"]);
    let oracle = oracle.lane("shop/hook/dev/api", &all);
    oracle.lane("shop/other/dev/web", &all).lane("shop/other/dev/api", &all).check().await;
}

#[tokio::test]
async fn a_secret_that_only_layers_refer_to_is_watched_while_they_exist() {
    let world = World::new("layers-watched").await;
    let (receiver, proxy) = (Receiver::start(), Proxy::start(&world.kubeconfig, &world.ns).await);
    world.deploy("web", "1").await;
    world.secret("token", json!({"key": "sesame"})).await;
    let auth = json!({"token": {"secretKeyRef": {"name": "token", "key": "key"}}});
    let layers = [("dev/web", json!([{"name": "hook", "endpoint": {"auth": auth}}]))];
    world.notification("hook", &receiver, json!({})).await;
    shop(&world, &["dev/web"], &layers).await;
    let kubeconfig = Some(proxy.kubeconfig.clone());
    let _relaybook = Relaybook::with(&world, Options { kubeconfig, ..Options::of(&world) }).await;
    world.settled().await;
    world.ship("web", "2").await;
    receiver.wait("/hook/web", 1).await;
    world.fence("shop", &["hook"]).await;
    let watched = proxy.rule(|call| call.concerns("secrets") && call.is_watch(), Fault::Late(Duration::ZERO));
    world.delete::<Pipeline>("shop").await;
    shop(&world, &["dev/web"], &layers).await;
    // If the old watch were still open, no new one would be opened.
    proxy.hit(watched, 1).await;
    world.observed("shop").await;
    world.cursor("shop", "hook").await;
    world.ship("web", "3").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]).check().await;
    assert!(receiver.to("/hook/web").iter().all(|r| r.header("authorization") == "Bearer sesame"));
}
