//! One lane, and nothing else: how long a change takes, and what it costs at one a second.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{interval, sleep};

use crate::bed::{Bed, pipeline, until};
use crate::floor;
use crate::source::Source;
use crate::support::Pennant;
use crate::table::{LATENCY, Reading, WRITES_SLOW, quantile};

/// Cursors and figures are written within a second; then nothing more comes of a change.
const TRAILING: Duration = Duration::from_secs(3);

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("lane", round).await;
    let create = floor::create_p50(&bed.world("single", round).await).await;
    let mut source = Source::create(&world, "web").await;
    pipeline(&world, "shop", &["web".to_owned()]).await;
    bed.notification(&world, "hook", json!({})).await;
    let mut pennant = Pennant::start(&world).await;
    world.settled().await;
    let mut readings = latency(bed, &mut source, create).await;
    sleep(TRAILING).await;
    readings.extend(one_a_second(bed, &mut source).await);
    pennant.stop().await;
    readings
}

/// From the start of the status write, as its writer sees it, to the arrival of the request.
async fn latency(bed: &Bed, source: &mut Source, create: f64) -> Vec<Reading> {
    let mut times = Vec::new();
    let mut arrivals = bed.receiver.arrivals();
    for _ in 0..bed.seconds(100, 30).as_secs() {
        // Not in step with what happens once a second.
        sleep(Duration::from_millis(200 + fastrand::u64(0..100))).await;
        let before = bed.receiver.total();
        let began = Instant::now();
        source.flip().await;
        let arrived = arrivals.wait_for(|a| a.total > before).await.expect("the receiver runs").last;
        times.push(arrived.expect("it came").duration_since(began).as_secs_f64() * 1000.0);
    }
    let mut at = |q| quantile(&mut times, q).expect("it was measured");
    let (p50, p95) = (at(0.5), at(0.95));
    vec![Reading::against(&LATENCY, p50, create), Reading::Note(format!("latency: p95 {p95:.1} ms"))]
}

async fn one_a_second(bed: &Bed, source: &mut Source) -> Vec<Reading> {
    let before = bed.now().await;
    let count = bed.seconds(20, 8).as_secs();
    let (first, mut clock) = (bed.receiver.total(), interval(Duration::from_secs(1)));
    for _ in 0..count {
        clock.tick().await;
        source.flip().await;
    }
    let count = usize::try_from(count).expect("a small number");
    until("all is sent", async || bed.receiver.total() == first + count).await;
    sleep(TRAILING).await;
    let requests = &bed.now().await.requests - &before.requests;
    let own = requests.writes().without("apps/deployments");
    let note = Reading::Note(format!("writes a delivery: {}", own.each(count as f64)));
    vec![Reading::of(&WRITES_SLOW, own.total() / count as f64), note]
}
