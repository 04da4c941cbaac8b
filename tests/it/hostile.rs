//! Tests receivers and clients that never finish: each attempt ends at its timeout, they do not delay others, and they do not use up
//! the memory.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use relaybook_api::Delivery;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::wait::heavy;
use crate::support::{Oracle, Receiver, Relaybook, World};

/// A receiver that answers with `before`, and then endlessly repeats `times` copies of `again`, followed by a pause.
#[derive(Clone, Copy)]
struct Endless {
    name: &'static str,
    before: &'static str,
    again: &'static str,
    times: usize,
    pause: Duration,
    reason: &'static str,
}

const fn slow(name: &'static str, before: &'static str, again: &'static str, reason: &'static str) -> Endless {
    Endless { name, before, again, times: 1, pause: Duration::from_millis(50), reason }
}

/// About 8 MB/s. More would starve the machine on which the test runs.
const fn flood(name: &'static str, before: &'static str, again: &'static str, reason: &'static str) -> Endless {
    Endless { name, before, again, times: 16_384 / again.len(), pause: Duration::from_millis(2), reason }
}

const LENGTH: &str = "HTTP/1.1 503 X\r\ncontent-length: 1073741824\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 503 X\r\ntransfer-encoding: chunked\r\n\r\n";

/// Receivers that keep a worker busy with almost no data.
const SLOW: [Endless; 4] = [
    slow("silent", "", "", "Timeout"),
    slow("slow-head", "HTTP/1.1 200 OK\r\nx: ", "y", "Timeout"),
    slow("slow-length", LENGTH, "y", "ReceiverError"),
    slow("slow-chunks", CHUNKED, "1\r\ny\r\n", "ReceiverError"),
];

/// Receivers that send as much as they can.
const FLOODS: [Endless; 7] = [
    flood("length", LENGTH, "yyyyyyyy", "ReceiverError"),
    flood("chunks", CHUNKED, "8\r\nyyyyyyyy\r\n", "ReceiverError"),
    flood("until-close", "HTTP/1.1 503 X\r\n\r\n", "yyyyyyyy", "ReceiverError"),
    flood("headers", "HTTP/1.1 200 OK\r\n", "x: y\r\n", "ConnectionFailed"),
    flood("header", "HTTP/1.1 200 OK\r\nx: ", "yyyyyyyy", "ConnectionFailed"),
    flood("continues", "", "HTTP/1.1 100 Continue\r\n\r\n", "Timeout"),
    flood("hints", "", "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", "Timeout"),
];

/// A server that runs until it is dropped. It has its own thread, so it does not block the checks of the test.
struct Running {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Endless {
    fn run(self) -> Running {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = self.serve(TcpListener::from_std(listener).unwrap()) => {}
                    _ = stopped => {}
                }
            });
        });
        Running { address, _stop: stop }
    }

    async fn serve(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut request = [0; 16 * 1024];
                if stream.read(&mut request).await.is_err() || stream.write_all(self.before.as_bytes()).await.is_err() {
                    return;
                }
                let again = self.again.repeat(self.times);
                while stream.write_all(again.as_bytes()).await.is_ok() {
                    tokio::time::sleep(self.pause).await;
                    // A write of nothing does not show whether the other side has closed the connection.
                    let heard = stream.try_read(&mut request);
                    if again.is_empty() && !heard.is_err_and(|e| e.kind() == ErrorKind::WouldBlock) {
                        return;
                    }
                }
            });
        }
    }

    /// Creates a notification with this receiver as its endpoint.
    async fn notify(self, world: &World, running: &Running, quick: &Receiver, timeout: &str) {
        let endpoint = json!({"url": format!("http://{}/", running.address), "timeout": timeout});
        world.notification(self.name, quick, json!({"endpoint": endpoint})).await;
    }

    fn failed(self, delivery: &Delivery, attempts: i64) -> bool {
        let status = delivery.status.clone().unwrap_or_default();
        delivery.spec.notification == self.name
            && status.attempts >= attempts
            // On a busy machine, the timeout can end the attempt before the size limit does.
            && status.reason.is_some_and(|reason| reason == self.reason || reason == "Timeout")
            && status.outcome.is_none()
    }
}

/// Returns the 90th percentile. A few pauses of a busy machine do not change it.
fn p90(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() * 90 / 100 - 1]
}

#[tokio::test]
async fn dripping_receivers_end_at_the_timeout_and_delay_no_other() {
    const APPS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    const TAGS: [&str; 10] = ["2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];
    let _alone = heavy().await;
    let world = World::new("hostile-slow").await;
    let quick = Receiver::start();
    let targets = APPS.map(|app| format!("dev/{app}"));
    for app in APPS {
        world.deploy(app, "1").await;
    }
    world.pipeline("shop", &targets.each_ref().map(String::as_str)).await;
    // The test can take so long that retention would delete deliveries.
    world.notification("quick", &quick, json!({"delivery": {"retain": {"perLane": 100}}})).await;
    let mut running = Vec::new();
    for slow in SLOW {
        let receiver = slow.run();
        slow.notify(&world, &receiver, &quick, "1s").await;
        running.push(receiver);
    }
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    // Every slow receiver has as many requests open as it ever gets before the time of the others is measured.
    for app in APPS {
        world.ship(app, "1a").await;
    }
    for slow in SLOW {
        world.delivery("Deployed 1a", |d| slow.failed(d, 1)).await;
    }
    let (mut took, mut writes) = (Vec::new(), Vec::new());
    for (count, tag) in (2..).zip(TAGS) {
        for app in APPS {
            let begun = Instant::now();
            world.ship(app, tag).await;
            writes.push(begun.elapsed());
            let came = quick.wait(&format!("/quick/{app}"), count).await[count - 1].at;
            took.push(came - begun);
        }
    }
    // On a busy machine, the API server alone takes longer than 1 s.
    let limit = Duration::from_secs(1).max(8 * p90(&mut writes));
    let p90 = p90(&mut took);
    assert!(p90 < limit, "p90 {p90:?} of {}: {took:?}", took.len());

    for slow in SLOW {
        let delivery = world.delivery("Deployed 1a", |d| slow.failed(d, 2)).await;
        let took = delivery.status.unwrap().last_duration_millis.unwrap();
        assert!((900..10_000).contains(&took), "{}: {took} ms", slow.name);
    }
    let mut oracle = Oracle::new(&world, &quick).with_attempts_unseen();
    let delivered: Vec<_> = ["1a"].iter().chain(&TAGS).map(|tag| format!("Deployed {tag}")).collect();
    let pending: Vec<_> = delivered.iter().map(|step| format!("{step} [pending]")).collect();
    for app in APPS {
        let steps = |steps: &[String]| steps.iter().map(|s| &**s).collect::<Vec<_>>().join("\n");
        let (delivered, pending) = (steps(&delivered), steps(&pending));
        oracle = oracle.lane(&format!("shop/quick/dev/{app}"), &delivered.lines().collect::<Vec<_>>());
        for slow in SLOW {
            oracle = oracle.lane(&format!("shop/{}/dev/{app}", slow.name), &pending.lines().collect::<Vec<_>>());
        }
    }
    oracle.check().await;
}

#[tokio::test]
async fn endless_responses_use_no_memory() {
    /// In KiB: the amount that one flood sends until its timeout. All floods together send fourteen times as much. Half of this limit
    /// is certainly used: seven connections at once, each with the longest head that Relaybook reads.
    const MORE: u64 = 64 * 1024;
    const ATTEMPTS: i64 = 2;
    let _alone = heavy().await;
    let world = World::new("hostile-floods").await;
    let quick = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("quick", &quick, json!({})).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;
    // The first request allocates memory, for example for the trusted CA certificates. So it is sent before the measurement.
    world.ship("web", "2").await;
    quick.wait("/quick/web", 1).await;
    let before = relaybook.peak_memory();

    let mut running = Vec::new();
    for flood in FLOODS {
        let receiver = flood.run();
        flood.notify(&world, &receiver, &quick, "8s").await;
        running.push(receiver);
    }
    world.settled().await;
    world.ship("web", "3").await;
    for flood in FLOODS {
        // The floods use all processor time that they can get, for 8 s in each attempt.
        world.delivery_within(Duration::from_mins(4), "Deployed 3", |d| flood.failed(d, ATTEMPTS)).await;
    }
    let after = relaybook.peak_memory();
    assert!(after < before + MORE, "{before} KiB before, {after} KiB at most since");
    world.fence("shop", &["quick"]).await;
    let mut oracle =
        Oracle::new(&world, &quick).with_attempts_unseen().lane("shop/quick/dev/web", &["Deployed 2", "Deployed 3"]);
    for flood in FLOODS {
        oracle = oracle.lane(&format!("shop/{}/dev/web", flood.name), &["Deployed 3 [pending]"]);
    }
    oracle.check().await;
}

#[tokio::test]
async fn unfinished_requests_to_the_metrics_port_use_no_memory_and_delay_no_probe() {
    /// In KiB: 16 KiB of a head for each of the 1,024 connections that the server keeps, and as much again. All clients together send 300 MiB.
    const MORE: u64 = 2 * 16 * 1024;
    const CLIENTS: usize = 1500;
    const THREADS: usize = 6;
    const HEAD: usize = 390 * 1024;
    const PROBES: usize = 20;
    /// Timeout of a kubelet probe in the chart.
    const PROBE: Duration = Duration::from_secs(5);
    /// Number of failed probes in a row after which the kubelet acts.
    const MISSED: usize = 3;
    let _alone = heavy().await;
    let world = World::new("hostile-clients").await;
    let relaybook = Relaybook::start(&world).await;
    // The first requests allocate memory, so they are sent before the measurement.
    for path in ["/healthz", "/readyz", "/metrics"] {
        relaybook.page(path).await;
    }
    let before = relaybook.peak_memory();
    let head = [b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: ".as_slice(), &vec![b'y'; HEAD]].concat();
    let attack = |thread: usize| {
        use std::io::Write as _;
        let (address, head) = (relaybook.address().to_owned(), head.clone());
        // The clients have their own threads, so that they do not delay the probes of this test.
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for n in 0..CLIENTS / THREADS {
                let Ok(mut stream) = std::net::TcpStream::connect(&address) else { continue };
                // Every other client stays below the limit, and then sends nothing more.
                let part = if (n + thread).is_multiple_of(2) { &head[..] } else { &head[..15 * 1024] };
                let _ = stream.write_all(part);
                open.push(stream);
            }
            open
        })
    };
    let attacks: Vec<_> = (0..THREADS).map(attack).collect();
    let (mut probes, mut missed) = (0, [0; 2]);
    while probes < PROBES || attacks.iter().any(|attack| !attack.is_finished()) {
        for (path, missed) in ["/healthz", "/readyz"].into_iter().zip(&mut missed) {
            let answer = timeout(PROBE, relaybook.get(path)).await;
            *missed = if matches!(answer, Ok(Ok(_))) { 0 } else { *missed + 1 };
            assert!(*missed < MISSED, "{path}: {answer:?}");
        }
        probes += 1;
    }
    let open: Vec<_> = attacks.into_iter().flat_map(|attack| attack.join().unwrap()).collect();
    assert!(open.len() > CLIENTS / 2, "{} connections", open.len());
    let after = relaybook.peak_memory();
    assert!(after < before + MORE, "{before} KiB before, {after} KiB at most since, {} connections", open.len());
}
