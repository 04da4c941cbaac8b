//! Tests faults between Relaybook and the API server: calls and answers that are lost, late or refused, an API server that is unreachable,
//! and a process that is killed in between.

mod direct;
mod kills;
mod late;
mod long_outage;
mod many_changes;
mod namespaces;
mod proxy;
mod refused;
mod rights;
mod slow;
mod unreachable;

use futures::future::join_all;
use relaybook_api::Delivery;
use serde_json::Value;

use crate::support::lanes::{Lane, what};
use crate::support::relaybook::Options;
use crate::support::{Proxy, Receiver, World, eventually};

/// A world in which Relaybook reaches the API server through a proxy: pipeline `shop`, notification `hook`.
struct Stage {
    world: World,
    receiver: Receiver,
    proxy: Proxy,
    apps: Vec<String>,
}

impl Stage {
    async fn new(ns: &str, apps: &[&str], notification: Value) -> Self {
        let world = World::new(ns).await;
        let (receiver, proxy) = (Receiver::start(), Proxy::start(&world.kubeconfig, ns).await);
        join_all(apps.iter().map(|app| world.deploy(app, "1"))).await;
        let targets: Vec<_> = apps.iter().map(|app| format!("dev/{app}")).collect();
        world.pipeline("shop", &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
        world.notification("hook", &receiver, notification).await;
        Self { world, receiver, proxy, apps: apps.iter().map(|app| (*app).to_owned()).collect() }
    }

    fn options(&self) -> Options {
        Options { kubeconfig: Some(self.proxy.kubeconfig.clone()), ..Options::of(&self.world) }
    }

    /// Releases a revision of all applications, and waits until it is in the log. A state that ends unobserved is not a change.
    async fn ship(&self, tag: &str) {
        join_all(self.apps.iter().map(|app| self.world.ship(app, tag))).await;
        let apps: Vec<_> = self.apps.iter().map(String::as_str).collect();
        self.world.observed_at("shop", tag, &apps).await;
    }

    /// Waits until the cursor has passed everything in the log.
    async fn passed(&self) {
        eventually("the cursor has passed everything", async || {
            let status = self.world.get_pipeline("shop").await.status.unwrap_or_default();
            let (log, dispatched) = (status.log.unwrap_or_default(), status.dispatched.unwrap_or_default());
            let passed = !dispatched.cursors.is_empty() && dispatched.cursors.iter().all(|c| c.serial == log.serial);
            passed.then_some(()).ok_or_else(|| format!("{:?} of {}", dispatched.cursors, log.serial))
        })
        .await;
    }

    /// Returns the number of requests about the applications of this stage.
    fn requests(&self) -> usize {
        self.apps.iter().map(|app| self.receiver.to(&format!("/hook/{app}")).len()).sum()
    }

    /// Waits until exactly this number of deliveries about the applications of this stage is recorded.
    async fn recorded(&self, count: usize) -> Vec<Delivery> {
        eventually(&format!("{count} deliveries"), async || {
            let all = self.world.deliveries().await.into_iter().filter(|d| !Lane::of(d).is_fence());
            let all: Vec<_> = all.collect();
            if all.len() == count { Ok(all) } else { Err(format!("{} deliveries", all.len())) }
        })
        .await
    }
}

/// Whether a delivery has this type and revision.
fn is(delivery: &Delivery, step: &str) -> bool {
    what(delivery.spec.type_.as_str(), &delivery.spec.to.revision) == step
}
