//! Creates a backlog of pending deliveries: Relaybook records them while their receiver does not answer.
//!
//! In: a namespace, the numbers of pipelines and targets, the number of changes of each target. Out: the applications, and as
//! many deliveries in each lane. Plain clients cannot create them: Relaybook deletes a delivery that it has not recorded itself.

use std::time::Instant;

use futures::{StreamExt as _, stream};

use crate::bed::{pipeline, until};
use crate::load::Log;
use crate::source::Source;
use crate::support::{Relaybook, World};

/// Creates pipelines with targets in a namespace. Returns the application of each target.
pub async fn pipelines(world: &World, count: usize, targets: usize) -> Vec<Source> {
    let mut sources = Vec::new();
    for n in 0..count {
        let apps: Vec<_> = (0..targets).map(|t| format!("web-{n}-{t}")).collect();
        sources.extend(stream::iter(&apps).map(|app| Source::create(world, app)).buffered(8).collect::<Vec<_>>().await);
        pipeline(world, &format!("shop-{n}"), &apps).await;
    }
    sources
}

/// Changes each application this many times, and waits until every change is recorded for each of the notifications. The
/// receivers must not settle deliveries meanwhile. Returns the deliveries per second.
pub async fn record(
    world: &World,
    relaybook: &Relaybook,
    sources: &mut [Source],
    notifications: usize,
    changes: usize,
) -> f64 {
    // The outcomes of earlier deliveries may still be in flight.
    until("nothing is pending", async || pending(relaybook).await == 0).await;
    let (began, count) = (Instant::now(), sources.len() * notifications * changes);
    let log = Log::follow(world);
    let change = async |source: &mut Source| {
        let mut log = log.clone();
        for _ in 0..changes {
            log.has_room_for(source).await;
            source.flip().await;
        }
    };
    futures::future::join_all(sources.iter_mut().map(change)).await;
    until("all is recorded", async || pending(relaybook).await >= count).await;
    count as f64 / began.elapsed().as_secs_f64()
}

/// Returns Relaybook's metric of pending deliveries.
async fn pending(relaybook: &Relaybook) -> usize {
    count(relaybook, "relaybook_deliveries_pending").await
}

/// Returns Relaybook's metric of delivered deliveries since its start.
pub async fn delivered(relaybook: &Relaybook) -> usize {
    count(relaybook, "relaybook_deliveries_total{outcome=\"Delivered\"}").await
}

async fn count(relaybook: &Relaybook, metric: &str) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let count = relaybook.metrics().await[metric] as usize;
    count
}
