//! Measures the throughput of one pipeline of 8 targets with 8 notifications, whose targets change as fast as the system allows
//! (see [`load`](crate::load)).
//!
//! In: the settings of the notifications. Out: deliveries per second and the cost of each, compared with the floor. In [`signed`],
//! the bodies are those of a built-in template, and the requests are signed.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api_server::{Moment, Requests};
use crate::bed::{Bed, until};
use crate::floor::{self, Floor};
use crate::load::{Load, NOTIFICATIONS, Seen, shop};
use crate::process;
use crate::render;
use crate::source::Source;
use crate::support::{Relaybook, World};
use crate::table::{CPU, RENDER_SHARE, Reading, SIGNED, THROUGHPUT, WRITES_FAST};

/// The writes of source objects.
const SOURCES: &str = "apps/deployments";
/// A key in the format of Standard Webhooks.
const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("throughput", round).await;
    let run = run(bed, &world, round, json!({})).await;
    let rendering = render::cost(bed.quick).as_secs_f64() * 1000.0;
    let mut readings = vec![
        Reading::against(&THROUGHPUT, run.rate(), run.floor.rate()),
        Reading::against(&CPU, run.cpu_own(), run.floor.api()),
        Reading::of(&WRITES_FAST, run.writes_each()),
        Reading::against(&RENDER_SHARE, rendering, run.millis_each(run.after.relaybook - run.before.relaybook)),
    ];
    readings.extend(run.notes());
    readings
}

/// Measures the same with a built-in template and signed requests.
pub async fn signed(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("signed", round).await;
    world.secret("hmac", json!({"key": KEY})).await;
    let template = json!({"inline": null, "builtin": "slack"});
    let over = json!({"template": template, "endpoint": {"signing": {"secretRef": {"name": "hmac"}}}});
    let run = run(bed, &world, round, over).await;
    let mut readings = vec![Reading::against(&SIGNED, run.rate(), run.floor.rate())];
    readings.extend(run.notes());
    readings
}

/// One measurement.
struct Run {
    floor: Floor,
    before: Here,
    after: Here,
    /// Processor time of the API server for one write of a source object.
    alone: Duration,
    seen: Seen,
}

async fn run(bed: &Bed, world: &World, round: u32, over: Value) -> Run {
    let floor = floor::writes(bed, &format!("{}-before", world.ns), round).await;
    let sources = shop(bed, world, &over).await;
    let mut relaybook = Relaybook::start(world).await;
    world.settled().await;

    let load = Load::start(bed, world, sources, None);
    sleep(bed.seconds(5, 3)).await;
    let before = Here::now(bed, &relaybook).await;
    sleep(bed.seconds(30, 8)).await;
    let after = Here::now(bed, &relaybook).await;
    let seen = load.seen();
    let sources = load.stop().await;
    let changes: usize = sources.iter().map(|source| source.flips.len()).sum();
    until("all is delivered", async || delivered(&relaybook).await >= (changes * NOTIFICATIONS) as f64).await;
    check(bed, world, &relaybook, changes).await;
    relaybook.stop().await;
    let alone = alone(bed, sources).await;
    let floor = floor.and(floor::writes(bed, &format!("{}-after", world.ns), round).await);
    Run { floor, before, after, alone, seen }
}

impl Run {
    fn seconds(&self) -> f64 {
        self.after.at.duration_since(self.before.at).as_secs_f64()
    }

    /// Returns the deliveries per second.
    fn rate(&self) -> f64 {
        (self.after.delivered - self.before.delivered) / self.seconds()
    }

    fn requests(&self) -> Requests {
        &self.after.api.requests - &self.before.api.requests
    }

    /// Returns the writes, except those of source objects.
    fn own(&self) -> Requests {
        self.requests().writes().without(SOURCES)
    }

    /// Returns the number of deliveries in the API server's counters.
    fn count(&self) -> f64 {
        self.own().count("POST relaybook.dev/deliveries")
    }

    fn writes_each(&self) -> f64 {
        self.own().total() / self.count()
    }

    fn millis_each(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1000.0 / self.count()
    }

    /// Returns the writes of source objects per delivery.
    fn sources_each(&self) -> f64 {
        self.requests().writes().count(SOURCES) / self.count()
    }

    /// Returns the processor time of the API server per delivery in milliseconds, without that of the writes of source objects.
    fn cpu_own(&self) -> f64 {
        self.cpu() - self.sources_each() * self.alone.as_secs_f64() * 1000.0
    }

    fn cpu(&self) -> f64 {
        self.millis_each(self.after.api.cpu - self.before.api.cpu)
    }

    /// Returns the notes that explain the figures.
    fn notes(&self) -> impl Iterator<Item = Reading> {
        let (own, count, floor) = (self.own(), self.count(), &self.floor);
        let (before, after) = (&self.before, &self.after);
        let (etcd, relaybook, bench) = (
            self.millis_each(after.api.etcd - before.api.etcd),
            self.millis_each(after.relaybook - before.relaybook),
            self.millis_each(after.api.bench - before.api.bench),
        );
        let (cpu, all) = (self.cpu(), self.cpu() + etcd + relaybook + bench);
        let mean = |n: usize| n as f64 / self.seen.versions as f64;
        let notes = [
            format!("writes a delivery: {}", own.each(count)),
            format!("reads a delivery: {}", self.requests().only(&["GET ", "LIST "]).each(count)),
            format!(
                "CPU a delivery: API server {cpu:.2} ms ({:.2} ms without {:.1} source writes a second of {:.2} ms each), \
                 etcd {etcd:.2} ms, relaybook {relaybook:.2} ms, load and receiver {bench:.2} ms; in all {all:.2} ms",
                self.cpu_own(),
                self.sources_each() * count / self.seconds(),
                self.alone.as_secs_f64() * 1000.0,
            ),
            format!(
                "CPU of a write of the floor: API server {:.2} ms, etcd {:.2} ms; in all {:.2} ms, which is {:.2} of the above",
                floor.api(),
                floor.etcd(),
                floor.all(),
                floor.all() / all,
            ),
            format!(
                "of {} cores, {:.2} were used and {:.2} idle; in the floor {:.2} and {:.2}",
                std::thread::available_parallelism().map_or(0, usize::from),
                all * count / 1000.0 / self.seconds(),
                (after.api.idle - before.api.idle).as_secs_f64() / self.seconds(),
                floor.all() * floor.rate() / 1000.0,
                floor.idle(),
            ),
            format!(
                "relaybook counts {:.0} writes, the API server {:.0}; {:.0} deliveries created and {:.0} sent in {:.1} s",
                after.counted - before.counted,
                own.total(),
                own.count("POST relaybook.dev/deliveries"),
                after.delivered - before.delivered,
                self.seconds(),
            ),
            format!(
                "the pipeline's status has {:.1} KiB and {:.0} changes in its log, on average",
                mean(self.seen.bytes) / 1024.0,
                mean(self.seen.changes),
            ),
        ];
        notes.into_iter().map(Reading::Note)
    }
}

/// Checks that no request was lost, repeated or coalesced.
async fn check(bed: &Bed, world: &World, relaybook: &Relaybook, changes: usize) {
    let arrived = bed.receiver.arrivals().borrow().clone();
    let here = format!("/{}/", world.ns);
    let requests: usize = arrived.by_path.iter().filter(|(path, _)| path.starts_with(&here)).map(|(_, n)| n).sum();
    assert_eq!(requests, changes * NOTIFICATIONS, "each notification sends each change once");
    assert_eq!(delivered(relaybook).await, requests as f64, "each request is recorded as delivered");
}

async fn delivered(relaybook: &Relaybook) -> f64 {
    relaybook.metrics().await["relaybook_deliveries_total{outcome=\"Delivered\"}"]
}

/// Measures the processor time of the API server for one write of a source object without a watch: the same writes, at such a
/// rate that the background work of the API server does not matter.
async fn alone(bed: &Bed, sources: Vec<Source>) -> Duration {
    let before = bed.now().await.cpu;
    let end = Instant::now() + bed.seconds(10, 4);
    let writes = join_all(sources.into_iter().map(async |mut source| {
        let mut writes = 0;
        while Instant::now() < end {
            source.flip().await;
            writes += 1;
        }
        writes
    }));
    let writes: u32 = writes.await.into_iter().sum();
    (bed.now().await.cpu - before) / writes
}

/// The counters at one time.
struct Here {
    at: Instant,
    api: Moment,
    delivered: f64,
    /// Number of writes that Relaybook counts.
    counted: f64,
    relaybook: Duration,
}

impl Here {
    async fn now(bed: &Bed, relaybook: &Relaybook) -> Self {
        let api = bed.now().await;
        let metrics = relaybook.metrics().await;
        Self {
            at: Instant::now(),
            api,
            delivered: metrics["relaybook_deliveries_total{outcome=\"Delivered\"}"],
            counted: metrics.iter().filter(|(k, _)| k.starts_with("relaybook_api_writes_total")).map(|(_, n)| n).sum(),
            relaybook: process::cpu(relaybook.pid()),
        }
    }
}
