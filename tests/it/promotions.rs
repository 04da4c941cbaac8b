//! Tests promotions: a revision that runs in one environment goes to the next, once for each time that it came there, and after an
//! approval if one is required. Each test ends with the oracle: every Promotion and every delivery that must exist, once, and no others.

mod approval;
mod baseline;
mod ended;
mod faults;
mod forged;
mod frozen;
mod once;
mod people;
mod quiet;
mod slow;
mod soak;
mod steps;
mod unsure;

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use pennant::api::promotion::Phase;
use pennant::api::{Promotion, Time};
use serde_json::{Value, json};

use crate::support::pennant::command;
use crate::support::world::promotions::is;
use crate::support::{Oracle, Pennant, Receiver, World, eventually};

/// Longer than the default timeout of a promotion.
const LONG_AGO: Duration = Duration::from_hours(200);

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

    /// Waits until the persisted cursor has passed everything in the log.
    async fn passed(&self, pipeline: &str) {
        eventually("the cursor has passed everything", async || {
            let status = self.world.get_pipeline(pipeline).await.status.unwrap_or_default();
            let (log, dispatched) = (status.log.unwrap_or_default(), status.dispatched.unwrap_or_default());
            let passed = dispatched.cursors.iter().all(|c| c.serial == log.serial);
            passed.then_some(()).ok_or_else(|| format!("{:?} of {}", dispatched.cursors, log.serial))
        })
        .await;
    }

    /// Creates a pipeline with the environments `dev` and `prod`. `policy` is that of `prod`.
    async fn pipeline(&self, name: &str, policy: Value) {
        self.world.promoting(name, &[("dev", Value::Null), ("prod", policy)]).await;
    }

    /// Starts Pennant, and waits until it observes everything.
    async fn pennant(&self) -> Pennant {
        let pennant = Pennant::start(&self.world).await;
        self.world.settled().await;
        pennant
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

    /// Moves the last attempt and all steps of a promotion into the past, so that its timeout is over. No test can wait for a week.
    async fn grow_old(&self, promotion: &Promotion) {
        let (api, name) = (self.world.api::<Promotion>(), promotion.name_any());
        eventually(&format!("the times of {name} are in the past"), async || {
            let found = api.get(&name).await.map_err(|e| e.to_string())?;
            let past = Time::now() - LONG_AGO;
            let mut steps = found.status.unwrap_or_default().steps;
            for (step, n) in steps.iter_mut().zip(0..) {
                step.time = past + Duration::from_millis(n);
            }
            let version = found.metadata.resource_version;
            let status = json!({"lastAttemptedTime": past, "steps": steps});
            let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
            api.patch_status(&name, &PatchParams::default(), &patch).await.map(drop).map_err(|e| e.to_string())
        })
        .await;
    }

    fn oracle(&self) -> Oracle<'_> {
        Oracle::new(&self.world, &self.receiver)
    }

    /// Runs a command of the program in this namespace. Returns its exit code, stdout and stderr.
    async fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let output = command(&self.world, &[args, &["-n", &self.world.ns]].concat()).await;
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}
