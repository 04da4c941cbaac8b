//! Measures resident memory while receivers answer with bodies of 1 GiB, compared with bodies of 1 KiB.
//!
//! Both loads run on a fresh process: 100 lanes whose deliveries wait for a receiver that does not answer, and are sent as fast
//! as possible once it answers.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::backlog::{delivered, pipelines, record};
use crate::bed::Bed;
use crate::process;
use crate::receiver::Manner;
use crate::support::Relaybook;
use crate::table::{LARGE, Reading, quantile};

const SMALL: usize = 1 << 10;
const HUGE: usize = 1 << 30;
const PIPELINES: usize = 10;
const TARGETS: usize = 10;
/// Interval between two measurements of the memory.
const LOOK: Duration = Duration::from_millis(50);

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let small = load(bed, "small", round, SMALL).await;
    let huge = load(bed, "huge", round, HUGE).await;
    vec![
        Reading::against(&LARGE, huge.most, small.most),
        Reading::Note(format!("bodies of 1 KiB: {small}")),
        Reading::Note(format!("bodies of 1 GiB: {huge}")),
    ]
}

/// Resident memory while the deliveries were sent, in MiB.
struct Memory {
    least: f64,
    middle: f64,
    most: f64,
    connections: usize,
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { least, middle, most, connections } = self;
        write!(f, "{least:.1} to {most:.1} MiB, {middle:.1} in the middle; {connections} connections")
    }
}

async fn load(bed: &Bed, name: &str, round: u32, size: usize) -> Memory {
    let world = bed.world(name, round).await;
    let mut sources = pipelines(&world, PIPELINES, TARGETS).await;
    bed.notification(&world, "hook", json!({"endpoint": {"timeout": "60s"}})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    bed.receiver.set_open(false);
    let in_lane = if bed.quick { 10 } else { 50 };
    record(&world, &relaybook, &mut sources, 1, in_lane).await;

    let connections = bed.receiver.connections();
    bed.receiver.set_manner(Manner::Body(size));
    bed.receiver.set_open(true);
    let all = PIPELINES * TARGETS * in_lane;
    let mut seen = Vec::new();
    while delivered(&relaybook).await < all {
        seen.push(process::memory(relaybook.pid()));
        sleep(LOOK).await;
    }
    bed.receiver.set_manner(Manner::Empty);
    relaybook.stop().await;
    let mut at = |q| quantile(&mut seen, q).expect("it was measured");
    let connections = bed.receiver.connections() - connections;
    Memory { least: at(0.0), middle: at(0.5), most: at(1.0), connections }
}
