//! The floor: what plain clients achieve on the same control plane with nothing else running. They create a Delivery with its outcome,
//! the one write of a delivery whose receiver answers at once, but compute and send nothing.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use relaybook_api::delivery::{AppObject, PipelineRef, Subject, SubjectKind, SubjectTarget};
use relaybook_api::{Delivery, DeliverySpec, DeliveryStatus, Outcome, State, Status, TransitionType, now};
use relaybook_deliveries::outbox::record;
use serde_json::json;

use crate::bed::{Bed, create};
use crate::support::World;
use crate::table::quantile;

/// Number of parallel clients. More do not increase the rate.
pub const AT_ONCE: usize = 32;
/// Number of sequential creates by one client.
const SINGLE: i64 = 200;

/// The floor of one round: the number of writes, and their cost.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    count: u32,
    took: Duration,
    api: Duration,
    etcd: Duration,
    bench: Duration,
    idle: Duration,
}

impl Floor {
    /// Returns the writes per second of [`AT_ONCE`] clients.
    pub fn rate(&self) -> f64 {
        f64::from(self.count) / self.took.as_secs_f64()
    }

    /// Returns the processor time of the API server for one write, in milliseconds.
    pub fn api(&self) -> f64 {
        (self.api / self.count).as_secs_f64() * 1000.0
    }

    /// Returns the same for etcd.
    pub fn etcd(&self) -> f64 {
        (self.etcd / self.count).as_secs_f64() * 1000.0
    }

    /// Returns the same for API server, etcd and clients together.
    pub fn all(&self) -> f64 {
        self.api() + self.etcd() + (self.bench / self.count).as_secs_f64() * 1000.0
    }

    /// Returns the number of idle cores.
    pub fn idle(&self) -> f64 {
        self.idle.as_secs_f64() / self.took.as_secs_f64()
    }

    /// Combines two measurements, before and after the load, because the other work of the machine changes.
    pub fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            took: self.took + other.took,
            api: self.api + other.api,
            etcd: self.etcd + other.etcd,
            bench: self.bench + other.bench,
            idle: self.idle + other.idle,
        }
    }
}

/// Measures creates with an outcome at full speed, in a namespace with this name.
pub async fn writes(bed: &Bed, name: &str, round: u32) -> Floor {
    let world = bed.world(name, round).await;
    let deliveries = world.api::<Delivery>();
    let deadline = |span| Instant::now() + span;
    writes_until(&deliveries, &world.ns, 0, deadline(bed.seconds(2, 1))).await;
    let (before, began) = (bed.now().await, Instant::now());
    let count = writes_until(&deliveries, &world.ns, 1_000_000, deadline(bed.seconds(10, 4))).await;
    let (took, after) = (began.elapsed(), bed.now().await);
    Floor {
        count,
        took,
        api: after.cpu - before.cpu,
        etcd: after.etcd - before.etcd,
        bench: after.bench - before.bench,
        idle: after.idle - before.idle,
    }
}

async fn writes_until(api: &Api<Delivery>, namespace: &str, first: i64, end: Instant) -> u32 {
    let numbers = stream::iter(first..).take_while(|_| std::future::ready(Instant::now() < end));
    let write = |n| async move {
        let delivery = Delivery { status: Some(outcome()), ..object(sample(namespace, n)) };
        create(api, &delivery).await;
    };
    let done = numbers.map(write).buffer_unordered(AT_ONCE).fold(0, |n, ()| std::future::ready(n + 1));
    done.await
}

/// Writes an outcome as Relaybook does.
pub async fn settle(api: &Api<Delivery>, stored: &Delivery) {
    let status = json!({"metadata": {"resourceVersion": stored.resource_version()}, "status": outcome()});
    let patched = api.patch(&stored.name_any(), &PatchParams::default(), &Patch::Merge(status)).await;
    patched.expect("a status is written");
}

/// Creates deliveries without a pipeline, for plain clients to settle.
pub async fn recorded(world: &World, first: i64, count: i64) -> Vec<Delivery> {
    let api = &world.api::<Delivery>();
    let make = |n| async move { create(api, &object(sample(&world.ns, n))).await };
    stream::iter(first..first + count).map(make).buffer_unordered(AT_ONCE).collect().await
}

/// Measures the outcomes per second of [`AT_ONCE`] clients, in a namespace with this name.
pub async fn outcomes(bed: &Bed, name: &str, round: u32) -> f64 {
    let world = bed.world(name, round).await;
    let (api, stored) = (world.api::<Delivery>(), recorded(&world, 0, if bed.quick { 1000 } else { 4000 }).await);
    let began = Instant::now();
    stream::iter(&stored).for_each_concurrent(AT_ONCE, |one| settle(&api, one)).await;
    stored.len() as f64 / began.elapsed().as_secs_f64()
}

/// Measures one create by one client, in milliseconds.
pub async fn create_once(world: &World, n: i64) -> f64 {
    let (api, delivery) = (world.api::<Delivery>(), object(sample(&world.ns, n)));
    let began = Instant::now();
    create(&api, &delivery).await;
    began.elapsed().as_secs_f64() * 1000.0
}

/// Measures the p50 of sequential creates, in milliseconds.
pub async fn create_p50(world: &World) -> f64 {
    let mut times = Vec::new();
    for n in 0..SINGLE {
        times.push(create_once(world, n).await);
    }
    quantile(&mut times, 0.5).expect("it was measured")
}

/// Returns a delivery as Relaybook records it, with the name and the labels that the journal uses.
pub fn object(spec: DeliverySpec) -> Delivery {
    let labels = [
        ("relaybook.dev/notification", spec.notification.as_str()),
        ("relaybook.dev/pipeline", spec.pipeline_ref.name.as_str()),
        ("relaybook.dev/pipeline-namespace", spec.pipeline_ref.namespace.as_str()),
        ("relaybook.dev/environment", spec.subject.environment.as_str()),
        ("velero.io/exclude-from-backup", "true"),
    ];
    let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let mut delivery = Delivery::new(&record::name(&spec), spec);
    delivery.metadata.labels = Some(labels);
    delivery
}

/// Returns a typical transition of a target in the scenarios.
pub fn sample(namespace: &str, serial: i64) -> DeliverySpec {
    let app = AppObject { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web-0".into() };
    let target = SubjectTarget {
        namespace: namespace.to_owned(),
        cluster: "in-cluster".into(),
        cluster_ref: None,
        app,
        source: None,
    };
    let name = format!("prod/in-cluster/{namespace}/web-0");
    let uid = "2b1c4b3e-7d5f-4c11-9a52-0f7f3d1e8a64".to_owned();
    let from =
        State { status: Status::Failed, revision: "1".into(), current: Some("1".into()), failed: true, ..State::default() };
    let to = State { status: Status::Current, revision: "1".into(), current: Some("1".into()), ..State::default() };
    DeliverySpec {
        notification: "hook-0".into(),
        notification_uid: uid.clone(),
        pipeline_ref: PipelineRef { namespace: namespace.to_owned(), name: "shop".into(), uid },
        lane: format!("target/{name}"),
        subject: Subject {
            kind: SubjectKind::Target,
            name,
            environment: "prod".into(),
            cluster_ref: None,
            target: Some(target),
        },
        order: serial,
        serial,
        type_: TransitionType::Recovered,
        time: now(),
        from,
        to,
        coalesced: false,
        due: None,
        error: None,
        test: false,
    }
}

fn outcome() -> DeliveryStatus {
    DeliveryStatus {
        outcome: Some(Outcome::Delivered),
        attempts: 1,
        status_code: Some(204),
        last_attempt_time: Some(now()),
        settled_time: Some(now()),
        last_duration_millis: Some(1),
        ..DeliveryStatus::default()
    }
}
