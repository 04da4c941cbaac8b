//! Measures a rollout to many targets: one pipeline of 200 targets, compared with 25 pipelines of 8 targets. Both have the same six
//! notifications, and all targets change within a second.
//!
//! In: the two sets of pipelines, each in its own namespace. Out: the time from the first change until the last request has arrived.
//! Every write of a large status costs more, so the comparison shows how long a rollout waits for its own log. One round alternates: small,
//! large, large and small pipelines. Each turn has a new process that watches only their namespace, so the budget for status writes is the
//! same at the beginning of each turn.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use tokio::time::sleep;

use crate::backlog::{delivered, pipelines};
use crate::bed::{Bed, until};
use crate::source::Source;
use crate::support::{Relaybook, World};
use crate::table::{ROLLOUT, Reading};

/// Number of pipelines, and of targets of each: as many targets in all.
const LARGE: (usize, usize) = (1, 200);
const SMALL: (usize, usize) = (25, 8);
/// Number of notifications. Each reports every change.
const NOTIFICATIONS: usize = 6;
/// Time in which all targets change, at equal intervals.
const WITHIN: Duration = Duration::from_secs(1);

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let mut small = Side::prepare(bed, "rollout-small", round, SMALL).await;
    let mut large = Side::prepare(bed, "rollout-large", round, LARGE).await;
    for is_large in [false, true, true, false] {
        let side = if is_large { &mut large } else { &mut small };
        side.measure(bed).await;
    }
    let mut readings = vec![Reading::against(&ROLLOUT, large.mean(), small.mean())];
    readings.extend(small.notes.into_iter().map(|note| Reading::Note(format!("25 pipelines of 8 targets: {note}"))));
    readings.extend(large.notes.into_iter().map(|note| Reading::Note(format!("one pipeline of 200 targets: {note}"))));
    readings
}

/// One of the two sets of pipelines, with its measurements.
struct Side {
    world: World,
    sources: Vec<Source>,
    /// In seconds.
    times: Vec<f64>,
    /// What explains each time.
    notes: Vec<String>,
}

impl Side {
    async fn prepare(bed: &Bed, scenario: &str, round: u32, (count, targets): (usize, usize)) -> Self {
        let world = bed.world(scenario, round).await;
        let sources = pipelines(&world, count, targets).await;
        for n in 0..NOTIFICATIONS {
            bed.notification(&world, &format!("hook-{n}"), json!({})).await;
        }
        Self { world, sources, times: Vec::new(), notes: Vec::new() }
    }

    async fn measure(&mut self, bed: &Bed) {
        let mut relaybook = Relaybook::start(&self.world).await;
        self.world.settled().await;
        // The start of the process must not be part of the measurement.
        sleep(bed.seconds(5, 3)).await;
        let (all, before) = (self.sources.len() * NOTIFICATIONS, bed.receiver.total());
        let start = bed.now().await;

        let began = Instant::now();
        self.change().await;
        let changed = began.elapsed().as_secs_f64();
        until("all is sent", async || bed.receiver.total() >= before + all).await;
        let last = bed.receiver.arrivals().borrow().last.expect("it came");
        let took = last.duration_since(began).as_secs_f64();

        until("all is delivered", async || delivered(&relaybook).await >= all).await;
        let settled = began.elapsed().as_secs_f64();
        assert_eq!(bed.receiver.total() - before, all, "each notification sends each change once");
        let end = bed.now().await;
        let own = (&end.requests - &start.requests).writes().without("apps/deployments");
        relaybook.stop().await;
        self.times.push(took);
        self.notes.push(format!(
            "{all} requests after {took:.2} s, all changes after {changed:.2} s, all outcomes written after {settled:.2} s; \
             {:.2} s of CPU of the API server; writes: {}",
            (end.cpu - start.cpu).as_secs_f64(),
            own.each(1.0),
        ));
    }

    /// Changes each target once, at equal intervals.
    async fn change(&mut self) {
        let count = u32::try_from(self.sources.len()).expect("a small number");
        let changes = self.sources.iter_mut().zip(0..).map(|(source, n)| async move {
            sleep(WITHIN * n / count).await;
            source.flip().await;
        });
        join_all(changes).await;
    }

    fn mean(&self) -> f64 {
        self.times.iter().sum::<f64>() / self.times.len() as f64
    }
}
