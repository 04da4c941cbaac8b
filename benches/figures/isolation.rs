//! Measures healthy deliveries beside ten origins that hang and ten that refuse connections, each with 100 lanes of pending
//! deliveries, and compares them with the same load without these origins.
//!
//! The healthy load is that of [`load`](crate::load), in two ways: with pauses that leave the machine some idle time, for the
//! latency of a change, and at full speed, for the rate. One round alternates: without, with, with, and without the sick
//! origins. Without them, Relaybook does not watch their namespace.

use std::time::{Duration, Instant};

use kube::api::{Api, ListParams};
use relaybook_api::Delivery;
use serde_json::json;
use tokio::time::sleep;

use crate::api_server::Requests;
use crate::backlog;
use crate::bed::{Bed, notify, until};
use crate::load::{Load, NOTIFICATIONS, shop};
use crate::process;
use crate::receiver::Receiver;
use crate::source::Source;
use crate::support::relaybook::Options;
use crate::support::{Relaybook, World};
use crate::table::{ISOLATION, ISOLATION_P99, Reading, quantile};

/// Number of sick origins of each kind.
const SICK: usize = 10;
/// Number of lanes of each sick origin; one for each target of one pipeline.
const LANES: usize = 100;
/// Deliveries in each lane.
const IN_LANE: usize = 2;
/// Mean pause of a target between two changes in the measurement of the latency.
const REST: Duration = Duration::from_millis(800);

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let (fine, ill) = (bed.world("fine", round).await, bed.world("ill", round).await);
    let by = bed.receiver.url(&format!("/{}/{{{{target.app.name}}}}?by={{{{notification.name}}}}", fine.ns));
    let mut sources = shop(bed, &fine, &json!({"endpoint": {"url": by}})).await;
    let ward = Ward::open(bed, &fine, &ill).await;

    let (mut without, mut with) = (Side::default(), Side::default());
    for sick in [false, true, true, false] {
        let watch = if sick { vec![fine.ns.clone(), ill.ns.clone()] } else { vec![fine.ns.clone()] };
        let mut relaybook = Relaybook::with(&fine, Options { watch, ..Options::of(&fine) }).await;
        fine.settled().await;
        // Long enough that the requests to hung origins have timed out once.
        sleep(if sick { ward.timeout + bed.seconds(8, 2) } else { bed.seconds(4, 2) }).await;
        let side = if sick { &mut with } else { &mut without };
        sources = side.measure(bed, &fine, relaybook.pid(), sources).await;
        relaybook.stop().await;
    }
    let (asked, attempts) = ward.close(&ill).await;
    vec![
        Reading::against(&ISOLATION, with.rate(), without.rate()),
        Reading::against(&ISOLATION_P99, with.p99(), without.p99()),
        Reading::Note(format!("without: {without}")),
        Reading::Note(format!("with: {with}")),
        Reading::Note(format!("{asked} connections to hung origins; {attempts} attempts written down, by 2,000 lanes")),
    ]
}

/// The sick origins, and their pending deliveries.
struct Ward {
    hung: Vec<Receiver>,
    /// Kept to reserve their ports.
    _refusing: Vec<Receiver>,
    timeout: Duration,
}

impl Ward {
    async fn open(bed: &Bed, fine: &World, ill: &World) -> Self {
        let hung: Vec<_> = (0..SICK).map(|_| Receiver::start()).collect();
        for receiver in &hung {
            receiver.set_open(false);
        }
        let refusing: Vec<_> = (0..SICK).map(|_| Receiver::refusing()).collect();
        let mut sources = backlog::pipelines(ill, 1, LANES).await;
        let timeout = bed.seconds(15, 3);
        // The default backoff: the one of the tests is shorter.
        let over = json!({"endpoint": {"timeout": format!("{}s", timeout.as_secs())},
            "delivery": {"retry": {"initial": "5s", "max": "10m"}}});
        for (receiver, n) in hung.iter().chain(&refusing).zip(0..) {
            notify(ill, &format!("sick-{n}"), &receiver.url("/"), over.clone()).await;
        }
        let watch = vec![fine.ns.clone(), ill.ns.clone()];
        let mut relaybook = Relaybook::with(fine, Options { watch, ..Options::of(fine) }).await;
        fine.settled().await;
        ill.settled().await;
        backlog::record(ill, &relaybook, &mut sources, 2 * SICK, IN_LANE).await;
        relaybook.stop().await;
        Self { hung, _refusing: refusing, timeout }
    }

    /// Returns the number of connections to hung origins, and of recorded attempts. All deliveries must still be pending.
    async fn close(self, ill: &World) -> (usize, i64) {
        let api: Api<Delivery> = ill.api();
        let all = api.list(&ListParams::default()).await.expect("listed").items;
        let statuses: Vec<_> = all.into_iter().map(|d| d.status.unwrap_or_default()).collect();
        assert_eq!(statuses.len(), 2 * SICK * LANES * IN_LANE);
        assert!(statuses.iter().all(|status| status.outcome.is_none()), "a sick origin has accepted a delivery");
        let asked: Vec<_> = self.hung.iter().map(Receiver::connections).collect();
        assert!(asked.iter().all(|n| *n > 0), "a hung origin got no connection: {asked:?}");
        (asked.iter().sum(), statuses.iter().map(|status| status.attempts).sum())
    }
}

/// The measurements with the sick origins, or without them.
#[derive(Default)]
struct Side {
    count: usize,
    took: Duration,
    /// In milliseconds.
    times: Vec<f64>,
    writes: Requests,
    /// Processor time of the API server, and of Relaybook.
    cpu: [Duration; 2],
}

impl Side {
    fn rate(&self) -> f64 {
        self.count as f64 / self.took.as_secs_f64()
    }

    fn p99(&self) -> f64 {
        self.quantile(0.99)
    }

    fn quantile(&self, q: f64) -> f64 {
        quantile(&mut self.times.clone(), q).expect("it was measured")
    }

    async fn measure(&mut self, bed: &Bed, world: &World, relaybook: u32, sources: Vec<Source>) -> Vec<Source> {
        let before: Vec<_> = sources.iter().map(|source| source.flips.len()).collect();
        let load = Load::start(bed, world, sources, Some(REST));
        sleep(bed.seconds(20, 8)).await;
        let sources = load.stop().await;
        until("all has arrived", async || arrived(bed, world, &sources)).await;
        for (source, before) in sources.iter().zip(before) {
            self.times.extend(times(bed, world, source, before));
        }

        let load = Load::start(bed, world, sources, None);
        sleep(bed.seconds(3, 2)).await;
        let (count, began, start, own) = (bed.receiver.total(), Instant::now(), bed.now().await, process::cpu(relaybook));
        sleep(bed.seconds(15, 6)).await;
        self.count += bed.receiver.total() - count;
        self.took += began.elapsed();
        let end = bed.now().await;
        self.writes += (&end.requests - &start.requests).writes().without("apps/deployments");
        self.cpu[0] += end.cpu - start.cpu;
        self.cpu[1] += process::cpu(relaybook) - own;
        let sources = load.stop().await;
        until("all has arrived", async || arrived(bed, world, &sources)).await;
        sources
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|q| self.quantile(q));
        let (count, each) = (self.times.len(), self.writes.each(self.count as f64));
        let [api, own] = self.cpu.map(|cpu| cpu.as_secs_f64() * 1000.0 / self.count as f64);
        write!(
            f,
            "p50 {p50:.1}, p99 {p99:.1}, at most {most:.1} ms of {count}; then {:.0}/s, API server CPU a delivery {api:.2} ms, \
             Relaybook's {own:.2} ms, writes a delivery: {each}",
            self.rate(),
        )
    }
}

/// Whether every notification has sent every change of every target.
fn arrived(bed: &Bed, world: &World, sources: &[Source]) -> bool {
    sources.iter().all(|s| (0..NOTIFICATIONS).all(|n| bed.receiver.times(&target(world, s, n)).len() == s.flips.len()))
}

/// Returns the times from the start of the write that makes a change to the arrival of each of its requests.
fn times(bed: &Bed, world: &World, source: &Source, before: usize) -> Vec<f64> {
    let of = |n| {
        let arrivals = bed.receiver.times(&target(world, source, n));
        let pairs: Vec<_> =
            source.flips.iter().zip(arrivals).skip(before).map(|(began, at)| at.duration_since(*began)).collect();
        pairs
    };
    (0..NOTIFICATIONS).flat_map(of).map(|time| time.as_secs_f64() * 1000.0).collect()
}

fn target(world: &World, source: &Source, notification: usize) -> String {
    format!("/{}/{}?by=hook-{notification}", world.ns, source.app)
}
