//! Measures the end of an outage: 10,000 deliveries in 100 lanes are recorded while their receiver refuses connections. The
//! figure is the time from the end of the outage until all of them are settled.

use std::time::Instant;

use serde_json::json;
use tokio::time::sleep;

use crate::backlog::{delivered, pipelines, record};
use crate::bed::{Bed, notify, until};
use crate::floor;
use crate::receiver::Receiver;
use crate::support::Relaybook;
use crate::table::{DRAIN, Reading};

const PIPELINES: usize = 10;
const TARGETS: usize = 10;

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let before = floor::outcomes(bed, "outcomes-before", round).await;
    let world = bed.world("drain", round).await;
    let mut sources = pipelines(&world, PIPELINES, TARGETS).await;
    let mut receiver = Receiver::refusing();
    // With a backoff of one second, Relaybook notices the end of the outage within about a second.
    let over = json!({"delivery": {"retry": {"initial": "1s", "max": "1s"}}});
    notify(&world, "hook", &receiver.url("/"), over).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let in_lane = if bed.quick { 20 } else { 100 };
    record(&world, &relaybook, &mut sources, 1, in_lane).await;
    sleep(bed.seconds(10, 5)).await;
    let refused = relaybook.attempts().await;
    let (began, start) = (Instant::now(), bed.now().await);
    receiver.listen();
    let count = PIPELINES * TARGETS * in_lane;
    until("all are settled", async || delivered(&relaybook).await >= count).await;
    let (took, end) = (began.elapsed().as_secs_f64(), bed.now().await);
    assert_eq!(receiver.total(), count, "each is sent once");
    let first = receiver.times("/").first().map_or(0.0, |at| at.duration_since(began).as_secs_f64());
    relaybook.stop().await;
    let after = floor::outcomes(bed, "outcomes-after", round).await;
    // The mean of the times, not of the rates.
    let floor = count as f64 * f64::midpoint(1.0 / before, 1.0 / after);
    let writes = (&end.requests - &start.requests).writes();
    vec![
        Reading::against(&DRAIN, took, floor),
        Reading::Note(format!(
            "the first came {first:.2} s after the end of the outage, before which {refused:.0} were refused"
        )),
        Reading::Note(format!(
            "settled at {:.0}/s; plain clients at {before:.0}/s before and {after:.0}/s after",
            count as f64 / took
        )),
        Reading::Note(format!("writes a delivery: {}", writes.each(count as f64))),
    ]
}
