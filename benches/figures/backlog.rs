//! Deliveries that wait: recorded by plain clients, as if Pennant had recorded them while a receiver was away.
//!
//! In: a namespace, how many pipelines and targets, how many deliveries in each lane. Out: the objects that these need, and the
//! deliveries.

use std::time::Instant;

use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use pennant::api::delivery::{AppObject, PipelineRef};
use pennant::api::pipeline::target::targets;
use pennant::api::{Delivery, DeliverySpec, Notification, Pipeline};

use crate::bed::{create, pipeline};
use crate::floor::{AT_ONCE, object, sample};
use crate::source::Source;
use crate::support::{Pennant, World};

/// Pipelines and their targets in a namespace, each target with its application.
pub async fn pipelines(world: &World, count: usize, targets: usize) -> Vec<Pipeline> {
    let mut pipelines = Vec::new();
    for n in 0..count {
        let apps: Vec<_> = (0..targets).map(|t| format!("web-{n}-{t}")).collect();
        stream::iter(&apps).for_each_concurrent(8, async |app| drop(Source::create(world, app).await)).await;
        pipelines.push(pipeline(world, &format!("shop-{n}"), &apps).await);
    }
    pipelines
}

/// Records deliveries of each notification for each target, in every lane those of these numbers. How many a second.
pub async fn record(
    world: &World,
    pipelines: &[Pipeline],
    notifications: &[Notification],
    numbers: std::ops::RangeInclusive<i64>,
) -> f64 {
    let pairs = notifications.iter().flat_map(|n| pipelines.iter().map(move |p| (n, p)));
    let specs: Vec<_> = pairs.flat_map(|(n, p)| specs(n, p, numbers.clone())).collect();
    let (api, began, count) = (world.api::<Delivery>(), Instant::now(), specs.len());
    stream::iter(specs).for_each_concurrent(AT_ONCE, async |spec| drop(create(&api, &object(spec)).await)).await;
    count as f64 / began.elapsed().as_secs_f64()
}

/// What happened to the targets of one pipeline: each failed and recovered, again and again.
fn specs(notification: &Notification, pipeline: &Pipeline, serials: std::ops::RangeInclusive<i64>) -> Vec<DeliverySpec> {
    let reference = PipelineRef {
        namespace: pipeline.namespace().unwrap_or_default(),
        name: pipeline.name_any(),
        uid: pipeline.uid().unwrap_or_default(),
    };
    let targets = targets(&pipeline.spec, "in-cluster");
    let each = targets.into_iter().flat_map(|target| {
        let reference = reference.clone();
        // Below the serials that the log gives, so that no name is in the way of what happens later.
        serials.clone().map(move |serial| {
            let mut spec = sample(&reference.namespace, serial);
            spec.notification = notification.name_any();
            spec.notification_uid = notification.uid().unwrap_or_default();
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

/// How many Pennant says that it has delivered, since it was started.
pub async fn delivered(pennant: &Pennant) -> usize {
    let metrics = pennant.metrics().await;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let delivered = metrics["pennant_deliveries_total{outcome=\"Delivered\"}"] as usize;
    delivered
}
