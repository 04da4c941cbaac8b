//! Tests promotions: a revision that runs in one environment goes to the next, once for each time that it came there, and after an
//! approval if one is required. Each test ends with the oracle: every Promotion and every delivery that must exist, once, and no others.

mod absent;
mod answered;
mod approval;
mod baseline;
mod ended;
mod faults;
mod forged;
mod frozen;
mod incomplete;
mod once;
mod people;
mod quiet;
mod slow;
mod soak;

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use relaybook_api::Promotion;
use relaybook_api::promotion::Phase;
use serde_json::{Value, json};

use crate::support::world::promotions::is;
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// A namespace with the notification `hook`, which reports all promotions.
struct Stage {
    world: World,
    receiver: Receiver,
}

impl Stage {
    async fn new(ns: &str) -> Self {
        let world = World::new(ns).await;
        let receiver = Receiver::start();
        world.promotion_notification("hook", &receiver, json!({})).await;
        Self { world, receiver }
    }

    /// Creates a pipeline with the environments `dev` and `prod`. `policy` is that of `prod`.
    async fn pipeline(&self, name: &str, policy: Value) {
        self.world.promoting(name, &[("dev", Value::Null), ("prod", policy)]).await;
    }

    /// Starts Relaybook, and waits until it observes everything.
    async fn relaybook(&self) -> Relaybook {
        let relaybook = Relaybook::start(&self.world).await;
        self.world.settled().await;
        relaybook
    }

    /// Waits until an Event of the pipeline has this reason.
    async fn event(&self, pipeline: &str, reason: &str) {
        eventually(&format!("{pipeline} has the Event {reason}"), async || {
            let all = self.world.api::<Event>().list(&ListParams::default()).await.expect("listed").items;
            let is_of = |e: &&Event| e.regarding.as_ref().is_some_and(|r| r.name.as_deref() == Some(pipeline));
            let reasons: Vec<_> = all.iter().filter(is_of).filter_map(|e| e.reason.as_deref()).collect();
            if reasons.contains(&reason) { Ok(()) } else { Err(format!("{reasons:?}")) }
        })
        .await;
    }

    async fn requested(&self, what: &str) -> Promotion {
        self.world.promotion(what, is(Phase::Requested)).await
    }

    async fn finished(&self, what: &str) -> Promotion {
        self.world.promotion(what, is(Phase::Finished)).await
    }

    /// Waits until everything so far has been processed and sent.
    async fn fence(&self, pipeline: &str) {
        self.world.promotion_fence(pipeline, &["hook"]).await;
    }

    fn oracle(&self) -> Oracle<'_> {
        Oracle::new(&self.world, &self.receiver)
    }
}
