//! Counts the writes while nothing changes: 200 pipelines, each with its own notification that has sent something. Neither idle
//! time, nor new lists, nor a restart of Relaybook may cause a write.
//!
//! A restart of the API server forces new lists, which is checked: its new watch cache begins later than the resource versions of
//! the watches, so it rejects them. Its counters restart at zero and include its own writes. So only writes of kinds that Relaybook
//! writes are counted.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::time::sleep;

use crate::bed::{Bed, pipeline, until};
use crate::process;
use crate::source::Source;
use crate::support::{Relaybook, World};
use crate::table::{MEMORY_IDLE, Reading, WRITES_IDLE};

const PIPELINES: usize = 200;
/// What Relaybook writes, except the Lease.
pub const OURS: [&str; 2] = ["relaybook.dev/", "events"];

pub async fn measure(bed: &mut Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("quiet", round).await;
    let sources: Vec<_> = stream::iter(0..PIPELINES).map(|n| prepare(bed, &world, n)).buffer_unordered(8).collect().await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let before = bed.receiver.total();
    stream::iter(sources).for_each_concurrent(8, async |mut source| source.flip().await).await;
    until("all is sent", async || bed.receiver.total() == before + PIPELINES).await;
    still(bed).await;

    let phase = bed.seconds(20, 5);
    let start = bed.now().await.requests;
    sleep(phase).await;
    let memory = process::memory(relaybook.pid());
    // A later write, so that the resource versions of the watches are older than the new watch cache.
    world.create::<ConfigMap>(json!({"metadata": {"name": "later"}})).await;
    let mut written = (&bed.now().await.requests - &start).writes().only(&OURS);
    bed.plane.restart_api_server();
    let kinds = ["pipelines", "notifications", "deliveries"].map(|kind| format!("LIST relaybook.dev/{kind}"));
    until("everything is listed again", async || {
        let requests = bed.now().await.requests;
        kinds.iter().all(|kind| requests.count(kind) > 0.0) && requests.count("LIST apps/deployments") > 0.0
    })
    .await;
    sleep(phase).await;
    relaybook.restart().await;
    sleep(phase).await;
    let served = bed.now().await.requests;
    written += served.writes().only(&OURS);
    let memory = memory.max(process::memory(relaybook.pid()));
    relaybook.stop().await;
    vec![
        Reading::of(&WRITES_IDLE, written.total()),
        Reading::Note(format!("written: {}", written.each(1.0))),
        Reading::Note(format!("lists after the restart of the API server: {}", served.only(&["LIST relaybook"]).each(1.0))),
        Reading::of(&MEMORY_IDLE, memory),
    ]
}

async fn prepare(bed: &Bed, world: &World, n: usize) -> Source {
    let app = format!("app-{n}");
    let source = Source::create(world, &app).await;
    pipeline(world, &app, std::slice::from_ref(&app)).await;
    let only = json!({"pipelineSelector": {"matchLabels": {"pipeline": app}}});
    bed.notification(world, &format!("hook-{n}"), only).await;
    source
}

/// Waits until nothing has been written for three seconds.
pub async fn still(bed: &Bed) {
    let mut last = 0.0;
    until("nothing is written any more", async || {
        sleep(Duration::from_secs(3)).await;
        let written = bed.now().await.requests.writes().only(&OURS).total();
        written == std::mem::replace(&mut last, written)
    })
    .await;
}
