//! Measures approvals by a signed request, beside a load of deliveries.
//!
//! In: one pipeline for each approval, whose second environment waits for it, and a load of about 100 deliveries a second. Out: the times
//! from a request to its answer, which comes after the API server has accepted the approval.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use relaybook_api::promotion::WaitingApproval;
use relaybook_api::{Pipeline, Time};
use ring::hmac;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::bed::{Bed, until};
use crate::load::{self, Load, NOTIFICATIONS, TARGETS};
use crate::promotion::promoting;
use crate::support::relaybook::Options;
use crate::support::{Relaybook, World};
use crate::table::{APPROVAL, Reading, quantile};

/// The key with which approvals are signed.
const KEY: &str = "0123456789abcdef0123456789abcdef";
/// The load: each change of a target causes one delivery of each notification.
const DELIVERIES_A_SECOND: usize = 100;

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("approval", round).await;
    let count = if bed.quick { 30 } else { 100 };
    prepare(&world, count).await;
    let options = Options { hooks: true, ..Options::of(&world) };
    let mut relaybook = Relaybook::with(&world, options).await;
    world.settled().await;
    let hooks = relaybook.hooks().await;
    world.ship("dev", "2").await;
    let mut waiting = Vec::new();
    for n in 0..count {
        waiting.push((name(n), wait(&world, &name(n)).await));
    }

    let sources = load::shop(bed, &world, &json!({})).await;
    world.settled().await;
    let rest = Duration::from_secs(1) * u32::try_from(TARGETS * NOTIFICATIONS).expect("a small number")
        / u32::try_from(DELIVERIES_A_SECOND).expect("a small number");
    let load = Load::start(bed, &world, sources, Some(rest));
    sleep(2 * rest).await;
    let (before, began) = (bed.receiver.total(), Instant::now());
    let mut times = Vec::new();
    for (pipeline, waiting) in waiting {
        sleep(Duration::from_millis(50 + fastrand::u64(0..100))).await;
        times.push(approve(&world, hooks, &pipeline, &waiting).await);
    }
    let rate = (bed.receiver.total() - before) as f64 / began.elapsed().as_secs_f64();
    load.stop().await;
    relaybook.stop().await;
    let p = |times: &mut [f64], q| quantile(times, q).expect("it was measured");
    let spread = [0.05, 0.5, 0.95].map(|q| format!("{:.1}", p(&mut times, q))).join(", ");
    let note = format!("p5, p50 and p95 of {count} approvals: {spread} ms, beside {rate:.0} deliveries a second");
    vec![Reading::of(&APPROVAL, p(&mut times, 0.99)), Reading::Note(note)]
}

fn name(n: usize) -> String {
    format!("waiting-{n}")
}

async fn prepare(world: &World, count: usize) {
    let keys = json!({"metadata": {"name": "approvals"}, "type": "relaybook.dev/inbound", "stringData": {"hmac-key": KEY}});
    world.create::<Secret>(keys).await;
    for app in ["dev", "prod"] {
        world.deploy(app, "1").await;
    }
    let strategy = json!({"notification": {}, "secretRef": {"name": "approvals"}});
    for n in 0..count {
        promoting(world, &name(n), json!({"manual": true, "strategy": strategy})).await;
    }
}

/// Waits until `prod` waits for an approval.
async fn wait(world: &World, pipeline: &str) -> WaitingApproval {
    let mut waiting = None;
    until("an approval is missing", async || {
        let found: Pipeline = world.get_pipeline(pipeline).await;
        let environments = found.status.unwrap_or_default().environments;
        waiting = environments.into_iter().find_map(|environment| environment.waiting_approval);
        waiting.is_some()
    })
    .await;
    waiting.expect("it waits")
}

/// Approves what waits. Returns the time until the answer, in milliseconds. Each request has its own connection, as that of a person has.
async fn approve(world: &World, hooks: SocketAddr, pipeline: &str, waiting: &WaitingApproval) -> f64 {
    let body = json!({
        "namespace": world.ns, "pipeline": pipeline, "environment": "prod", "revision": waiting.revision,
        "promotion": waiting.promotion, "promotionUid": waiting.promotion_uid, "at": Time::now().to_string(),
    })
    .to_string();
    let signed = [b"relaybook-approval-v1\n", body.as_bytes()].concat();
    let signature = hex::encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes()), &signed));
    let request = format!(
        "POST /approval/{}/{pipeline} HTTP/1.1\r\nhost: hooks\r\nconnection: close\r\nx-signature: sha256={signature}\r\n\
         content-length: {}\r\n\r\n{body}",
        world.ns,
        body.len()
    );
    let began = Instant::now();
    let mut stream = TcpStream::connect(hooks).await.expect("it accepts connections");
    stream.write_all(request.as_bytes()).await.expect("it accepts a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let time = began.elapsed().as_secs_f64() * 1000.0;
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    time
}
