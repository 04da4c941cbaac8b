//! 10,000 deliveries in 100 lanes that wait for a receiver which does not answer, until it does.

use std::time::Instant;

use futures::{StreamExt as _, stream};
use pennant::api::delivery::{AppObject, PipelineRef};
use pennant::api::target::targets;
use pennant::api::{Delivery, DeliverySpec, Pipeline};
use serde_json::json;
use tokio::time::sleep;

use crate::bed::{Bed, create, pipeline, until};
use crate::floor::{AT_ONCE, object, sample};
use crate::process;
use crate::source::Source;
use crate::support::{Pennant, World};
use crate::table::{CONNECTIONS, MEMORY_PENDING, MEMORY_SETTLED, READY, Reading};

const PIPELINES: usize = 10;
const TARGETS: usize = 10;
const IN_LANE: i64 = 100;
const ALL: usize = 10_000;

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("pending", round).await;
    let mut pipelines = Vec::new();
    for n in 0..PIPELINES {
        let apps: Vec<_> = (0..TARGETS).map(|t| format!("web-{n}-{t}")).collect();
        stream::iter(&apps).for_each_concurrent(8, async |app| drop(Source::create(&world, app).await)).await;
        pipelines.push(pipeline(&world, &format!("shop-{n}"), &apps).await);
    }
    bed.notification(&world, "hook", json!({})).await;
    let mut pennant = Pennant::start(&world).await;
    world.settled().await;
    pennant.stop().await;

    bed.receiver.set_open(false);
    let recorded = record(&world, &pipelines).await;
    let began = Instant::now();
    pennant.start_again().await;
    let ready = began.elapsed().as_secs_f64();
    sleep(bed.seconds(15, 8)).await;
    let waiting = process::memory(pennant.pid());

    let (connections, requests) = (bed.receiver.connections(), bed.receiver.total());
    let (opened, before) = (Instant::now(), bed.now().await);
    bed.receiver.set_open(true);
    until("all are settled", async || delivered(&pennant).await >= ALL).await;
    let (took, after) = (opened.elapsed().as_secs_f64(), bed.now().await);
    sleep(bed.seconds(15, 5)).await;
    let settled = process::memory(pennant.pid());
    let (connections, requests) = (bed.receiver.connections() - connections, bed.receiver.total() - requests);
    let writes = (&after.requests - &before.requests).writes();
    pennant.stop().await;
    vec![
        Reading::of(&READY, ready),
        Reading::of(&MEMORY_PENDING, waiting),
        Reading::of(&MEMORY_SETTLED, settled),
        Reading::of(&CONNECTIONS, connections as f64 / requests as f64),
        Reading::Note(format!("recorded at {recorded:.0}/s by {AT_ONCE} clients; settled at {:.0}/s", ALL as f64 / took)),
        Reading::Note(format!("{connections} connections for {requests} requests; writes: {}", writes.each(ALL as f64))),
    ]
}

async fn delivered(pennant: &Pennant) -> usize {
    let metrics = pennant.metrics().await;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let delivered = metrics["pennant_deliveries_total{outcome=\"Delivered\"}"] as usize;
    delivered
}

/// Creates all of them, as if Pennant had recorded them while the receiver was away. How many a second.
async fn record(world: &World, pipelines: &[Pipeline]) -> f64 {
    let uid = world.get_notification("hook").await.metadata.uid.unwrap_or_default();
    let specs: Vec<_> = pipelines.iter().flat_map(|pipeline| specs(world, pipeline, &uid)).collect();
    assert_eq!(specs.len(), ALL);
    let (api, began) = (world.api::<Delivery>(), Instant::now());
    stream::iter(specs).for_each_concurrent(AT_ONCE, async |spec| drop(create(&api, &object(spec)).await)).await;
    ALL as f64 / began.elapsed().as_secs_f64()
}

/// What happened to the targets of one pipeline: each failed and recovered, again and again.
fn specs(world: &World, pipeline: &Pipeline, notification: &str) -> Vec<DeliverySpec> {
    let meta = &pipeline.metadata;
    let reference = PipelineRef {
        namespace: world.ns.clone(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    };
    let targets = targets(&pipeline.spec, "in-cluster");
    let each = targets.into_iter().flat_map(|target| {
        let reference = reference.clone();
        // Below the serials that the log gives, so that no name is in the way of what happens later.
        (1..=IN_LANE).map(move |serial| {
            let mut spec = sample(&reference.namespace, serial);
            "hook".clone_into(&mut spec.notification);
            notification.clone_into(&mut spec.notification_uid);
            spec.pipeline_ref = reference.clone();
            spec.lane.clone_from(&target.subject);
            spec.subject.name.clone_from(&target.name);
            spec.subject.environment.clone_from(&target.environment);
            if let Some(of) = &mut spec.subject.target {
                of.app = AppObject { name: target.app.name.clone(), ..of.app.clone() };
            }
            spec
        })
    });
    each.collect()
}
