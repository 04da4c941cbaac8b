//! Measures a single lane: the latency of a change, and the writes per delivery at one change per second.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{interval, sleep};

use crate::bed::{Bed, pipeline, until};
use crate::floor;
use crate::source::Source;
use crate::support::{Relaybook, World};
use crate::table::{LATENCY, Reading, WRITES_SLOW, quantile};

/// Time after which no more writes follow a change. Cursors and counts are written within a second.
const TRAILING: Duration = Duration::from_secs(3);

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let (world, single) = (bed.world("lane", round).await, bed.world("single", round).await);
    let at_once = floor::create_p50(&single).await;
    let mut source = Source::create(&world, "web").await;
    pipeline(&world, "shop", &["web".to_owned()]).await;
    bed.notification(&world, "hook", json!({})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let mut readings = latency(bed, &mut source, &single).await;
    readings.push(Reading::Note(format!("creates without a pause between them: p50 {at_once:.1} ms")));
    sleep(TRAILING).await;
    readings.extend(one_a_second(bed, &mut source).await);
    relaybook.stop().await;
    readings
}

/// Measures the time from the start of the status write to the arrival of the request. It alternates with creates in
/// a namespace that Relaybook does not watch, so that both are measured under the same conditions.
async fn latency(bed: &Bed, source: &mut Source, single: &World) -> Vec<Reading> {
    let (mut times, mut creates) = (Vec::new(), Vec::new());
    let mut arrivals = bed.receiver.arrivals();
    let count = if bed.quick { 30 } else { 100 };
    for n in 0..count {
        pause().await;
        creates.push(floor::create_once(single, 1_000_000 + n).await);
        pause().await;
        let before = bed.receiver.total();
        let began = Instant::now();
        source.flip().await;
        let arrived = arrivals.wait_for(|a| a.total > before).await.expect("the receiver runs").last;
        times.push(arrived.expect("it came").duration_since(began).as_secs_f64() * 1000.0);
    }
    let p = |times: &mut [f64], q| quantile(times, q).expect("it was measured");
    let spread = |times: &mut [f64]| [0.05, 0.5, 0.95].map(|q| format!("{:.1}", p(times, q))).join(", ");
    let note = format!("p5, p50 and p95: {} ms; of a create: {} ms", spread(&mut times), spread(&mut creates));
    vec![Reading::against(&LATENCY, p(&mut times, 0.5), p(&mut creates, 0.5)), Reading::Note(note)]
}

/// Pauses for a random time, so that the changes are not in step with tasks that run once a second.
async fn pause() {
    sleep(Duration::from_millis(100 + fastrand::u64(0..100))).await;
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
