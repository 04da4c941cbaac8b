//! Measures one lane to a slow receiver: how much time Relaybook adds to that of the receiver and of the write of the outcome.

use std::time::{Duration, Instant};

use kube::api::Api;
use relaybook_api::Delivery;
use serde_json::json;

use crate::backlog::{pipelines, record};
use crate::bed::{Bed, until};
use crate::floor;
use crate::receiver::Manner;
use crate::support::{Relaybook, World};
use crate::table::{Reading, SLOW, quantile};

/// Time of the receiver for one request.
const TAKES: Duration = Duration::from_millis(10);
/// Number of deliveries that are recorded before the lane is opened.
const BATCH: u16 = 100;

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let (world, single) = (bed.world("slow", round).await, bed.world("slow-single", round).await);
    let mut sources = pipelines(&world, 1, 1).await;
    bed.notification(&world, "hook", json!({"endpoint": {"timeout": "60s"}})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let target = format!("/{}/web-0-0", world.ns);
    let (mut gaps, mut patches) = (Vec::new(), Vec::new());
    for batch in 0..if bed.quick { 2 } else { 10 } {
        bed.receiver.set_open(false);
        let before = bed.receiver.times(&target).len();
        record(&world, &relaybook, &mut sources, 1, usize::from(BATCH)).await;
        bed.receiver.set_manner(Manner::Slow(TAKES));
        bed.receiver.set_open(true);
        let all = before + usize::from(BATCH);
        until("the lane is empty", async || bed.receiver.times(&target).len() >= all).await;
        // The first request arrived before the other deliveries were recorded.
        let times = &bed.receiver.times(&target)[before + 1..];
        gaps.extend(times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64() * 1000.0));
        patches.extend(plain(&single, batch).await);
    }
    bed.receiver.set_manner(Manner::Empty);
    relaybook.stop().await;
    let rate = 1000.0 / (gaps.iter().sum::<f64>() / gaps.len() as f64);
    let p = |times: &mut [f64], q| quantile(times, q).expect("it was measured");
    let floor = 1000.0 / (TAKES.as_secs_f64() * 1000.0 + p(&mut patches, 0.5));
    let spread = |times: &mut [f64]| [0.05, 0.5, 0.95].map(|q| format!("{:.1}", p(times, q))).join(", ");
    let (gaps, patches) = (spread(&mut gaps), spread(&mut patches));
    vec![
        Reading::against(&SLOW, rate, floor),
        Reading::Note(format!("p5, p50 and p95 from request to request: {gaps} ms; of a patch: {patches} ms")),
    ]
}

/// Measures the writes of outcomes by one plain client, in milliseconds. It waits before each as long as the receiver takes.
async fn plain(world: &World, batch: i64) -> Vec<f64> {
    let api: Api<Delivery> = world.api();
    let mut times = Vec::new();
    for stored in floor::recorded(world, batch * i64::from(BATCH), i64::from(BATCH)).await {
        let waited = tokio::task::spawn_blocking(|| std::thread::sleep(TAKES)).await;
        waited.expect("it sleeps");
        let began = Instant::now();
        floor::settle(&api, &stored).await;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times
}
