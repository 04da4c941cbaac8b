//! Measures a hub: 500 clusters with 20 targets each, of which one in ten is dead and one in fifty is slow.
//!
//! Relaybook and its resources are on the real control plane. The clusters are [`Played`], so that 500 fit on one machine. Each has a pipeline
//! of its own: the status of a pipeline then shows when its cluster is observed, and those of healthy clusters contain nothing of dead ones.
//!
//! In one process: the first sync with its bursts, memory, 5 minutes at rest (so each watch is renewed once), the end of all watches at once,
//! and changes with and without the dead and slow clusters.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use relaybook_api::Pipeline;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::api_server::{self, Requests};
use crate::bed::{Bed, until};
use crate::clusters::all_ready;
use crate::played::{Kind, NAMESPACE, Played, TARGETS, app};
use crate::process;
use crate::quiet::OURS;
use crate::support::relaybook::Options;
use crate::support::{Relaybook, World};
use crate::table::{
    HUB_AT_ONCE, HUB_CONNECTIONS, HUB_CPU, HUB_EARLY, HUB_GONE, HUB_IN_FLIGHT, HUB_MEMORY, HUB_P99, HUB_REQUESTS, HUB_SYNC,
    HUB_WRITES, Reading, quantile,
};

/// Number of parallel writes by plain clients.
const AT_ONCE: usize = 32;
/// Relaybook is at rest when it has written nothing for this time. It is longer than the time after which targets become Unknown.
const CALM: Duration = Duration::from_secs(45);
/// Longest wait for that. Writes at rest are measured, so they must not prevent the measurement.
const RESTLESS: Duration = Duration::from_mins(4);
/// Longest wait for all statuses.
const PATIENCE: Duration = Duration::from_mins(10);
/// Number of clusters with a changing target, and the mean pause of each between two changes.
const MOVING: usize = 16;
const REST: Duration = Duration::from_millis(800);

struct Hub<'a> {
    bed: &'a Bed,
    world: World,
    played: Played,
    count: usize,
}

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    // Each connection is a file, and many systems start a process with a limit of 1,024.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let count = if bed.quick { 50 } else { 500 };
    let hub = Hub { bed, world: bed.world("hub", round).await, played: Played::start(count), count };
    hub.played.set_ill(true);
    let small = hub.small().await;
    hub.prepare().await;
    let (mut relaybook, mut readings) = hub.sync().await;
    readings.extend(hub.rest(&relaybook, small).await);
    readings.extend(hub.gone(&relaybook).await);
    readings.extend(hub.latency().await);
    relaybook.stop().await;
    readings
}

impl Hub<'_> {
    async fn start(&self) -> Relaybook {
        // Dead clusters are offline before the measurement at rest begins.
        let args = ["--cluster-grace", "20s"].map(str::to_owned).to_vec();
        Relaybook::with(&self.world, Options { args, ..Options::of(&self.world) }).await
    }

    /// Returns the clusters that answer while the ill ones are ill.
    fn reachable(&self) -> usize {
        (0..self.count).filter(|n| !Kind::of(*n).is_dead()).count()
    }

    /// Waits until the targets of this many clusters are observed, according to the statuses. Returns the time.
    async fn observed(&self, count: usize) -> Instant {
        let ready = format!("{TARGETS}/{TARGETS}");
        let all = self.world.api::<Pipeline>();
        timeout(PATIENCE, all_ready(&all, count, &ready)).await.expect("all clusters are observed in time")
    }

    /// Returns the memory in MiB and the sockets of a process with one small pipeline and without clusters.
    async fn small(&self) -> (f64, usize) {
        self.bed.notification(&self.world, "hook", json!({"triggers": [{"type": "Failed"}, {"type": "Recovered"}]})).await;
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "fence"});
        let environments = json!([{"name": "prod", "targets": [{"namespace": self.world.ns}]}]);
        let spec = json!({"appRef": deployment, "environments": environments});
        self.world.create::<Pipeline>(json!({"metadata": {"name": "few"}, "spec": spec})).await;
        let mut relaybook = self.start().await;
        self.world.settled().await;
        calm(&relaybook).await;
        let small = (process::memory(relaybook.pid()), process::sockets(relaybook.pid()));
        relaybook.stop().await;
        small
    }

    /// Creates the Secret and the pipeline of each cluster.
    async fn prepare(&self) {
        let one = async |n: usize| {
            let name = format!("c{n}");
            self.world.secret(&name, json!({"kubeconfig": self.played.kubeconfig(n)})).await;
            let reference = json!({"kind": "Secret", "name": name});
            let target = |i| json!({"namespace": NAMESPACE, "clusterRef": reference, "appRef": {"name": app(n, i)}});
            let targets: Vec<_> = (0..TARGETS).map(target).collect();
            let kind = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "app"});
            let spec = json!({"appRef": kind, "environments": [{"name": "prod", "targets": targets}]});
            self.world.create::<Pipeline>(json!({"metadata": {"name": name}, "spec": spec})).await;
        };
        stream::iter(0..self.count).for_each_concurrent(AT_ONCE, one).await;
    }

    /// Measures the first sync, and what it demands of the API servers.
    async fn sync(&self) -> (Relaybook, Vec<Reading>) {
        let (before, done, began) = (self.bed.now().await.requests, Cell::new(false), Instant::now());
        let synced = async {
            let both = tokio::join!(self.start(), self.observed(self.reachable()));
            done.set(true);
            both
        };
        let ((relaybook, written), (in_flight, a_second)) = tokio::join!(synced, self.peaks(&done));
        let took = written.duration_since(began).as_secs_f64();
        let (asked, count) = (self.played.asked(), self.reachable() as f64);
        let served = &self.bed.now().await.requests - &before;
        let readings = vec![
            Reading::of(&HUB_SYNC, took),
            Reading::of(&HUB_AT_ONCE, asked.at_once as f64),
            Reading::of(&HUB_EARLY, asked.early as f64),
            Reading::of(&HUB_IN_FLIGHT, in_flight),
            Reading::Note(format!(
                "{count} of {} clusters answer; {:.1} requests and {:.1} connections to each until all are observed; {:.1} s of CPU; the \
                 management cluster served up to {a_second:.0} requests in a second, in all: {}",
                self.count,
                asked.requests as f64 / count,
                self.played.accepted() as f64 / count,
                process::cpu(relaybook.pid()).as_secs_f64(),
                served.only(&["relaybook.dev/", "secrets"]).each(1.0),
            )),
        ];
        (relaybook, readings)
    }

    /// Returns the highest numbers of requests of the management cluster in flight, and served in a second, until it is done.
    async fn peaks(&self, done: &Cell<bool>) -> (f64, f64) {
        let (mut last, mut in_flight, mut rate) = (None, 0.0_f64, 0.0_f64);
        while !done.get() {
            let (text, now) = (api_server::metrics(&self.bed.client).await, Instant::now());
            let total = Requests::of(&text).total();
            if let Some((before, at)) = last.replace((total, now)) {
                rate = rate.max((total - before) / now.duration_since(at).as_secs_f64());
            }
            in_flight = in_flight.max(api_server::in_flight(&text));
            sleep(Duration::from_secs(1)).await;
        }
        (in_flight, rate)
    }

    /// Measures what the clusters cost while nothing happens.
    async fn rest(&self, relaybook: &Relaybook, (memory, sockets): (f64, usize)) -> Vec<Reading> {
        calm(relaybook).await;
        let (pid, count) = (relaybook.pid(), self.count as f64);
        let resident = process::memory(pid);
        let open = process::sockets(pid);
        let (asked, accepted) = (self.played.asked(), self.played.accepted());
        let (requests, used, began) = (self.bed.now().await.requests, process::cpu(pid), Instant::now());
        sleep(self.bed.seconds(300, 30)).await;
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        let used = (process::cpu(pid) - used).as_secs_f64();
        let served = &self.bed.now().await.requests - &requests;
        let now = self.played.asked();
        let each = |more: usize| more as f64 / self.reachable() as f64 / minutes;
        let written = served.writes().only(&OURS);
        vec![
            Reading::of(&HUB_MEMORY, (resident - memory) / count),
            Reading::of(&HUB_CONNECTIONS, (open as f64 - sockets as f64) / count),
            Reading::of(&HUB_WRITES, written.total()),
            Reading::of(&HUB_REQUESTS, each(now.requests - asked.requests)),
            Reading::of(&HUB_CPU, used * 1000.0 / count / minutes),
            Reading::Note(format!(
                "{memory:.1} MiB and {sockets} sockets without clusters, {resident:.1} MiB and {open} sockets with them; at rest {:.4} of a \
                 core; a minute and cluster: {:.3} new connections, {:.3} watches, {:.4} lists; Secrets watched again by the management \
                 cluster: {}; written: {}",
                used / minutes / 60.0,
                each(self.played.accepted() - accepted),
                each(now.watches - asked.watches),
                each(now.lists - asked.lists),
                served.only(&["WATCH secrets", "LIST secrets"]).each(1.0),
                written.each(1.0),
            )),
        ]
    }

    /// Measures the end of all watches at once, after which each cluster must be listed again.
    async fn gone(&self, relaybook: &Relaybook) -> Vec<Reading> {
        let requests = self.bed.now().await.requests;
        self.played.reset();
        let (used, began) = (process::cpu(relaybook.pid()), Instant::now());
        self.played.forget();
        until("all clusters are listed and watched again", async || {
            let asked = self.played.asked();
            asked.gone >= self.reachable() && asked.watches >= 2 * self.reachable()
        })
        .await;
        let took = began.elapsed().as_secs_f64();
        calm(relaybook).await;
        let (asked, used) = (self.played.asked(), process::cpu(relaybook.pid()) - used);
        let written = (&self.bed.now().await.requests - &requests).writes().only(&OURS);
        vec![
            Reading::of(&HUB_GONE, written.total()),
            Reading::Note(format!(
                "all watches ended at once: {} answers 410, {} lists, up to {} requests in flight at one cluster, watched again after {took:.1} \
                 s, {:.2} s of CPU until rest; written: {}",
                asked.gone,
                asked.lists,
                asked.at_once,
                used.as_secs_f64(),
                written.each(1.0),
            )),
        ]
    }

    /// Measures changes of healthy clusters with and without the dead and slow ones. One of the two phases with them begins when they fail.
    async fn latency(&self) -> Vec<Reading> {
        let healthy: Vec<_> = (0..self.count).filter(|n| Kind::of(*n) == Kind::Healthy).collect();
        let moving: Vec<_> = healthy.iter().step_by(healthy.len() / MOVING).copied().take(MOVING).collect();
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for (ill, changes) in [(true, false), (false, true), (false, false), (true, true)] {
            if changes {
                self.played.set_ill(ill);
                if !ill {
                    self.observed(self.count).await;
                }
                sleep(self.bed.seconds(3, 1)).await;
            }
            let times = self.flips(&moving).await;
            if ill { with.extend(times) } else { without.extend(times) }
        }
        let p = |times: &mut [f64], q| quantile(times, q).expect("it was measured");
        let note = format!(
            "of {} and {} changes: p50 {:.1} ms without dead and slow clusters, {:.1} ms with them",
            without.len(),
            with.len(),
            p(&mut without, 0.5),
            p(&mut with, 0.5)
        );
        vec![Reading::against(&HUB_P99, p(&mut with, 0.99), p(&mut without, 0.99)), Reading::Note(note)]
    }

    /// Changes one target of each of these clusters repeatedly, with random pauses. Returns the times to the requests, in ms.
    async fn flips(&self, moving: &[usize]) -> Vec<f64> {
        let end = Instant::now() + self.bed.seconds(30, 8);
        let one = async |n: usize| {
            let path = format!("/{}/{}", self.world.ns, app(n, 0));
            let (earlier, mut flips) = (self.bed.receiver.times(&path).len(), Vec::new());
            // After an even number of changes, the target is ready again.
            while Instant::now() < end || flips.len() % 2 == 1 {
                sleep(REST.mul_f64(0.5 + fastrand::f64())).await;
                flips.push(self.played.flip(n, 0));
            }
            until("all has arrived", async || self.bed.receiver.times(&path).len() >= earlier + flips.len()).await;
            let arrivals = self.bed.receiver.times(&path).into_iter().skip(earlier);
            let times = flips.iter().zip(arrivals).map(|(began, at)| at.duration_since(*began).as_secs_f64() * 1000.0);
            times.collect::<Vec<_>>()
        };
        futures::future::join_all(moving.iter().map(|n| one(*n))).await.concat()
    }
}

/// Waits until Relaybook has written nothing for [`CALM`].
async fn calm(relaybook: &Relaybook) {
    let began = Instant::now();
    let mut last = (relaybook.writes().await, began);
    while last.1.elapsed() < CALM && began.elapsed() < RESTLESS {
        sleep(Duration::from_secs(1)).await;
        let writes = relaybook.writes().await;
        if writes > last.0 {
            last = (writes, Instant::now());
        }
    }
}
