//! Requests that are too long, too slow or too many. None of them delays deliveries, or an approval from another address.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use relaybook_api::promotion::Phase;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{CLIENT, KEY, Stage, approval, connect, exchange, post, read, request};
use crate::support::eventually;
use crate::support::held::{Held, without_body, without_head};
use crate::support::wait::heavy;

/// Maximum number of bytes of a body.
const LONGEST: usize = 64 * 1024;

#[tokio::test]
async fn a_body_has_a_maximum_length_and_time() {
    let stage = Stage::new("hooks-long").await;
    let (relaybook, hooks) = stage.relaybook().await;
    let waiting = stage.ship("2").await;
    let path = stage.path("approval");
    // Spaces after JSON are JSON. The longest body is accepted, and one byte more is not.
    for (length, status) in [(LONGEST + 1, 413), (4 * LONGEST, 413), (LONGEST, 204)] {
        let mut body = stage.body(&waiting).to_string();
        body.push_str(&" ".repeat(length - body.len()));
        let signature = approval(KEY, body.as_bytes());
        let answer = post(hooks, &path, &[("X-Signature", &signature)], body.as_bytes()).await;
        assert_eq!(answer.status, status, "{length}: {answer:?}");
    }

    // A slow client is answered: the body needs four seconds.
    let mut body = stage.body(&waiting).to_string();
    body.push_str(&" ".repeat(LONGEST - body.len()));
    let bytes = request(&path, &[("X-Signature", &approval(KEY, body.as_bytes()))], body.as_bytes());
    let mut stream = connect(hooks, CLIENT).await.unwrap();
    for part in bytes.chunks(8 * 1024) {
        stream.write_all(part).await.unwrap();
        sleep(Duration::from_millis(500)).await;
    }
    let answer = read(stream).await.expect("an answer");
    assert_eq!(answer.status, 204, "{answer:?}");

    let mut stream = connect(hooks, CLIENT).await.unwrap();
    stream.write_all(format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n").as_bytes()).await.unwrap();
    // One byte a second, until the server answers.
    let mut dripped = 0;
    while timeout(Duration::from_secs(1), stream.readable()).await.is_err() {
        stream.write_all(b"x").await.unwrap();
        dripped += 1;
        assert!(dripped < 60, "the server still waits");
    }
    let answer = read(stream).await.expect("an answer");
    assert_eq!(answer.status, 408, "{answer:?}");
    // A head that does not end has no answer.
    let begun = Instant::now();
    let mut stream = connect(hooks, CLIENT).await.unwrap();
    stream.write_all(format!("POST {path} HTTP/1.1\r\nhost:").as_bytes()).await.unwrap();
    assert_eq!(read(stream).await, None);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let metrics = relaybook.metrics().await;
    for (result, count) in [("too_large", 2.0), ("timeout", 1.0), ("accepted", 2.0)] {
        assert_eq!(metrics[&format!("relaybook_hooks_total{{kind=\"approval\",result=\"{result}\"}}")], count, "{result}");
    }
    stage.phase(&waiting.promotion, Phase::Requested).await;
    stage.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}

/// Sends requests without pause from one address, until `stop`. Returns the answers by status.
async fn flood(
    hooks: SocketAddr,
    from: Ipv4Addr,
    bytes: Arc<[u8]>,
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
) -> usize {
    let mut other = 0;
    while !stop.load(Ordering::Relaxed) {
        match exchange(hooks, from, &bytes).await.map(|answer| answer.status) {
            Some(401 | 429) => {
                refused.fetch_add(1, Ordering::Relaxed);
            }
            // The server closes the oldest connections if there are too many.
            None => {}
            Some(_) => other += 1,
        }
    }
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unsigned_requests_harms_nobody_else() {
    const TASKS: usize = 100;
    /// Maximum growth of the process, in KiB.
    const GROWTH: u64 = 48 * 1024;
    let _alone = heavy().await;
    let stage = Stage::new("hooks-flood").await;
    let (relaybook, hooks) = stage.relaybook().await;
    let waiting = stage.ship("2").await;
    let memory = relaybook.peak_memory();
    let begun = Instant::now();
    let (stop, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let small: Arc<[u8]> = request(&stage.path("approval"), &[], b"{}").into();
    let large: Arc<[u8]> = request(&stage.path("hooks"), &[], &vec![b'x'; LONGEST]).into();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let bytes = if task % 10 == 0 { large.clone() } else { small.clone() };
        let from = Ipv4Addr::new(127, 0, 2, u8::try_from(task % 3 + 1).unwrap());
        tasks.spawn(flood(hooks, from, bytes, stop.clone(), refused.clone()));
    }
    eventually("the flood is under way", async || {
        let count = refused.load(Ordering::Relaxed);
        if count >= 2000 { Ok(()) } else { Err(format!("{count} answers")) }
    })
    .await;
    // Deliveries go on.
    for tag in ["a", "b", "c"] {
        stage.world.ship("fence", tag).await;
    }
    stage.world.fence("shop", &["hook"]).await;
    // An approval from another address succeeds. It may have to be repeated, because connections are limited.
    let body = stage.body(&waiting).to_string();
    let bytes = request(&stage.path("approval"), &[("X-Signature", &approval(KEY, body.as_bytes()))], body.as_bytes());
    eventually("an approval from another address", async || match exchange(hooks, CLIENT, &bytes).await {
        Some(answer) if answer.status == 204 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    stage.phase(&waiting.promotion, Phase::Requested).await;
    assert!(relaybook.ready().await.is_ok());
    stop.store(true, Ordering::Relaxed);
    let other: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(other, 0, "answers other than 401 and 429");
    let grown = relaybook.peak_memory().saturating_sub(memory);
    assert!(grown < GROWTH, "{grown} KiB after {} answers", refused.load(Ordering::Relaxed));
    let metrics = relaybook.metrics().await;
    // Each of the three addresses of the flood has a burst of 100 requests, and 10 more in each second.
    let unauthorized = metrics["relaybook_hooks_total{kind=\"approval\",result=\"unauthorized\"}"];
    assert!(unauthorized <= 301.0 + 30.0 * begun.elapsed().as_secs_f64(), "{unauthorized}");
    assert!(metrics["relaybook_hooks_total{kind=\"approval\",result=\"limited\"}"] > 0.0);
    stage.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}

/// All clients have the same address. A server that waits 50 ms for each connection that it closes answers after more than a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_requests_that_are_not_finished_delay_no_approval_and_no_probe() {
    const COUNT: usize = 3000;
    const WITHIN: Duration = Duration::from_secs(30);
    let _alone = heavy().await;
    let stage = Stage::new("hooks-half").await;
    let (relaybook, hooks) = stage.relaybook().await;
    let waiting = stage.ship("2").await;
    let path = stage.path("approval");
    for (what, bytes) in [("bodies", without_body(&path)), ("heads", without_head(&path)), ("requests", Vec::new())] {
        let _held = Held::open(hooks, COUNT, &bytes).await;
        let answer = timeout(WITHIN, stage.approve(hooks, &waiting, KEY)).await;
        assert!(answer.as_ref().is_ok_and(|answer| answer.status == 204), "no {what}: {answer:?}");
    }
    let _held = Held::open(relaybook.address().parse().unwrap(), COUNT, b"GET /metrics HTTP/1.1\r\nhost: ").await;
    let ready = timeout(WITHIN, relaybook.ready()).await;
    assert!(ready.as_ref().is_ok_and(Result::is_ok), "{ready:?}");
    stage.phase(&waiting.promotion, Phase::Requested).await;
    stage.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}

#[tokio::test]
async fn too_many_requests_are_answered_with_a_time_to_retry() {
    let stage = Stage::new("hooks-limited").await;
    let (_relaybook, hooks) = stage.relaybook().await;
    let from = Ipv4Addr::new(127, 0, 3, 1);
    let bytes = request(&stage.path("approval"), &[], b"{}");
    let limited = eventually("there are too many requests", async || {
        let answers = stream::iter(0..200).map(|_| exchange(hooks, from, &bytes)).buffer_unordered(16);
        let answers: Vec<_> = answers.collect().await;
        answers.into_iter().flatten().find(|answer| answer.status == 429).ok_or_else(|| "there are not".to_owned())
    })
    .await;
    assert!(limited.head.contains("retry-after: 1"), "{}", limited.head);
    // Other addresses are not concerned.
    let waiting = stage.ship("2").await;
    assert_eq!(stage.approve(hooks, &waiting, KEY).await.status, 204);
    stage.phase(&waiting.promotion, Phase::Requested).await;
    stage.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}
