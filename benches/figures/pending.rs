//! Measures a backlog: 10,000 deliveries in 100 lanes wait for a receiver that does not answer, and are sent once it answers.

use std::time::Instant;

use serde_json::json;
use tokio::time::sleep;

use crate::backlog::{delivered, pipelines, record};
use crate::bed::{Bed, until};
use crate::process;
use crate::support::Relaybook;
use crate::table::{CONNECTIONS, MEMORY_PENDING, MEMORY_SETTLED, READY, Reading};

const PIPELINES: usize = 10;
const TARGETS: usize = 10;
const IN_LANE: usize = 100;
const ALL: usize = 10_000;

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("pending", round).await;
    let mut sources = pipelines(&world, PIPELINES, TARGETS).await;
    bed.notification(
        &world,
        "hook",
        json!({"endpoint": {"timeout": "60s"}, "delivery": {"retry": {"initial": "1s", "max": "1s"}}}),
    )
    .await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    bed.receiver.set_open(false);
    let recorded = record(&world, &relaybook, &mut sources, 1, IN_LANE).await;
    relaybook.stop().await;
    let began = Instant::now();
    relaybook.start_again().await;
    let ready = began.elapsed().as_secs_f64();
    sleep(bed.seconds(15, 8)).await;
    let waiting = process::memory(relaybook.pid());

    let (connections, requests) = (bed.receiver.connections(), bed.receiver.total());
    let (opened, before) = (Instant::now(), bed.now().await);
    bed.receiver.set_open(true);
    until("all are settled", async || delivered(&relaybook).await >= ALL).await;
    let (took, after) = (opened.elapsed().as_secs_f64(), bed.now().await);
    sleep(bed.seconds(15, 5)).await;
    let settled = process::memory(relaybook.pid());
    let (connections, requests) = (bed.receiver.connections() - connections, bed.receiver.total() - requests);
    let writes = (&after.requests - &before.requests).writes();
    relaybook.stop().await;
    vec![
        Reading::of(&READY, ready),
        Reading::of(&MEMORY_PENDING, waiting),
        Reading::of(&MEMORY_SETTLED, settled),
        Reading::of(&CONNECTIONS, connections as f64 / requests as f64),
        Reading::Note(format!("recorded at {recorded:.0}/s; settled at {:.0}/s", ALL as f64 / took)),
        Reading::Note(format!("{connections} connections for {requests} requests; writes: {}", writes.each(ALL as f64))),
    ]
}
