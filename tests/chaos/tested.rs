//! Tests of notifications, while replicas of two versions run side by side.
//!
//! In: the steps of an upgrade; the requests and Deliveries of the run. Out: one test of each notification in each step, and findings about
//! tests that came as real messages, came twice, or have no outcome. A version without tests ignores a request for one, so the request
//! waits until a replica of this version has the notification.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use kube::api::PostParams;
use relaybook_api::delivery::{self, TEST_LANE};
use relaybook_api::notification::{TEST, TestResult};
use relaybook_api::values::names::hash;
use relaybook_api::{Delivery, DeliverySpec, Notification};
use serde_json::{Value, json};

use crate::crew::Crew;
use crate::load::{NOTIFICATIONS, PATIENCE, PIPELINES};
use crate::special::finding;
use crate::support::World;
use crate::support::oracle::{Finding, Seen};
use crate::support::receiver::Request;

/// Interval between two checks for results.
const LOOK: Duration = Duration::from_millis(100);
/// The serial of a test, which is that of a sample. No change of the load has it.
const SERIAL: i64 = 1_763_711_234_567;

/// The tests of one run.
#[derive(Default)]
pub struct Tests {
    /// The number of the step.
    step: usize,
    /// By notification: the id of its request, until there is a result.
    open: BTreeMap<&'static str, String>,
    /// How many a receiver has accepted.
    pub accepted: usize,
}

impl Tests {
    fn id(&self, notification: &str) -> String {
        format!("{notification}{:02}", self.step)
    }

    /// Begins a step. Records a test of every second notification, as a replica does that is killed before it sends the test. A replica of
    /// the other version must not send it.
    pub async fn begin(&mut self, world: &World) {
        self.step += 1;
        let recorded = world.deliveries().await;
        for told in NOTIFICATIONS.iter().skip(self.step % 2).step_by(2) {
            let like = recorded.iter().find(|d| d.spec.notification == told.name && !d.spec.test);
            let Some(like) = like.filter(|_| !self.open.contains_key(told.name)) else { continue };
            let lane = format!("{TEST_LANE}{}", &hash(&[&world.ns, told.name, &self.id(told.name)])[..16]);
            let spec = DeliverySpec { lane, order: SERIAL, serial: SERIAL, test: true, ..like.spec.clone() };
            let left = Delivery::new(&delivery::name(&spec), spec);
            world.api::<Delivery>().create(&PostParams::default(), &left).await.expect("created");
        }
    }

    /// Requests a test of each notification, unless an earlier one has no result yet.
    pub async fn request(&mut self, world: &World) {
        for told in NOTIFICATIONS.iter().filter(|told| !self.open.contains_key(told.name)).collect::<Vec<_>>() {
            let id = self.id(told.name);
            let request = json!({"id": id, "time": relaybook_api::now(), "pipeline": PIPELINES[0].0, "confirmed": true});
            annotate(world, told.name, request.to_string().into()).await;
            self.open.insert(told.name, id);
        }
    }

    /// Waits for this time. Meanwhile it removes each request that has a result, as the command does.
    pub async fn pass(&mut self, world: &World, crew: &mut Crew, span: Duration) {
        let until = Instant::now() + span;
        while Instant::now() < until {
            for (name, id) in self.open.clone() {
                let last = world.get_notification(name).await.status.and_then(|status| status.last_test);
                if let Some(last) = last.filter(|last| last.id == id) {
                    annotate(world, name, Value::Null).await;
                    self.open.remove(name);
                    self.accepted += usize::from(last.result == TestResult::Accepted);
                }
            }
            crew.pass(LOOK).await;
        }
    }

    /// Waits until each request has a result. All replicas must be of this version.
    pub async fn finish(&mut self, world: &World, crew: &mut Crew) {
        let deadline = Instant::now() + *PATIENCE;
        while !self.open.is_empty() && Instant::now() < deadline {
            self.pass(world, crew, LOOK).await;
        }
    }

    /// Returns findings about the results.
    pub fn findings(&self) -> Vec<String> {
        let open = self.open.iter().map(|(name, id)| format!("missing: test {id} of {name} has no result"));
        let none = (self.step > 0 && self.accepted == 0).then(|| "missing: no test was accepted".to_owned());
        open.chain(none).collect()
    }
}

/// Returns findings about the requests of tests, the real ones, and the Deliveries of tests.
pub fn judge(tests: &[Request], real: &[Seen], deliveries: &[Delivery]) -> Vec<Finding> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for test in tests {
        *times.entry(test.id()).or_default() += 1;
    }
    let repeated = times.iter().filter(|(_, times)| **times > 1);
    let repeated = repeated.map(|(id, times)| finding("duplicate", format!("test {id} came {times} times")));
    let real = real.iter().filter(|one| one.serial == SERIAL);
    let real = real.map(|one| finding("unexpected", format!("{}: a test came as a real message: {}", one.lane, one.id)));
    let pending = deliveries.iter().filter(|d| d.status.as_ref().is_none_or(|s| s.outcome.is_none()));
    let pending = pending.map(|d| finding("missing", format!("test {} has no outcome", d.name_any())));
    repeated.chain(real).chain(pending).collect()
}

async fn annotate(world: &World, notification: &str, value: Value) {
    world.patch::<Notification>(notification, json!({"metadata": {"annotations": {TEST: value}}})).await;
}
