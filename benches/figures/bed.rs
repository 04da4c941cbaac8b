//! The test bed: one control plane, one receiver, and one client for everything except Relaybook.

use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, PostParams};
use relaybook_api::{Delivery, Notification, Pipeline};
use serde_json::{Value, json};

use crate::api_server::{Moment, Requests};
use crate::process;
use crate::receiver::Receiver;
use crate::support::control_plane::{self, ControlPlane};
use crate::support::world::{World, notification};

/// Deadline of all waits. Longer than any of them takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);
/// Interval between two checks.
const POLL: Duration = Duration::from_millis(50);

pub struct Bed {
    pub plane: ControlPlane,
    pub client: Client,
    pub receiver: Receiver,
    /// Whether windows are short.
    pub quick: bool,
    etcd: u32,
}

impl Bed {
    pub async fn start(quick: bool) -> Self {
        let plane = ControlPlane::start().expect("a control plane");
        let client = control_plane::client(&plane.kubeconfig).await;
        let etcd = process::sibling(plane.api_server, "etcd").expect("etcd runs beside the API server");
        Self { client, receiver: Receiver::start(), quick, etcd, plane }
    }

    /// Creates a namespace for a scenario and round.
    pub async fn world(&self, scenario: &str, round: u32) -> World {
        World::on(&self.plane.kubeconfig, &format!("{scenario}-{round}")).await
    }

    /// Reads all counters.
    pub async fn now(&self) -> Moment {
        let requests = Requests::served(&self.client).await;
        Moment {
            requests,
            cpu: process::cpu(self.plane.api_server),
            etcd: process::cpu(self.etcd),
            bench: process::cpu(std::process::id()),
            idle: process::idle(),
        }
    }

    /// Returns the full time, or the quick one.
    pub fn seconds(&self, full: u64, quick: u64) -> Duration {
        Duration::from_secs(if self.quick { quick } else { full })
    }

    /// Creates a notification of all changes of a namespace to the receiver. The path contains the application.
    pub async fn notification(&self, world: &World, name: &str, over: Value) -> Notification {
        let url = self.receiver.url(&format!("/{}/{{{{target.app.name}}}}", world.ns));
        notify(world, name, &url, over).await
    }
}

/// Creates a pipeline of these Deployments, all in one environment.
pub async fn pipeline(world: &World, name: &str, apps: &[String]) -> Pipeline {
    let targets: Vec<_> = apps.iter().map(|app| json!({"namespace": world.ns, "appRef": {"name": app}})).collect();
    let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "app"});
    let spec = json!({"appRef": app, "environments": [{"name": "prod", "targets": targets}]});
    world.create(json!({"metadata": {"name": name, "labels": {"pipeline": name}}, "spec": spec})).await
}

/// Creates a notification of all changes of a namespace. Its deliveries are retained during the measurement.
pub async fn notify(world: &World, name: &str, url: &str, over: Value) -> Notification {
    let mut object = notification(name, url, over);
    object["spec"]["delivery"]["retain"] = json!({"perLane": 1000});
    world.create(object).await
}

/// Creates a delivery.
pub async fn create(api: &Api<Delivery>, delivery: &Delivery) -> Delivery {
    api.create(&PostParams::default(), delivery).await.expect("created")
}

/// Waits for a condition. Only for measurements that are much longer than [`POLL`].
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until a process is nearly idle, and returns its processor time since its start.
pub async fn at_rest(pid: u32) -> Duration {
    let mut last = process::cpu(pid);
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = process::cpu(pid);
        if now - last <= Duration::from_millis(40) {
            return now;
        }
        last = now;
    }
}
