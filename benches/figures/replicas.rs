//! Measures how replicas share the work: the processor time of the busiest of three, the calls for Leases, and handovers.
//!
//! Three pipelines are in each of the 16 buckets, so the shares of three replicas are as even as their numbers of buckets: 6, 5 and 5. The same
//! changes are made with one replica and with three. On a control plane that is not the limit, the rate is limited by the processor time of the
//! busiest replica. So the quotient of both processor times is how much more the three can send. The template costs some milliseconds of
//! processor time for each request, as a large card or a slow encryption does.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use relaybook_api::Pipeline;
use serde_json::json;
use tokio::time::sleep;

use crate::bed::{Bed, at_rest, pipeline, until};
use crate::process;
use crate::source::Source;
use crate::support::relaybook::Options;
use crate::support::world::bucket;
use crate::support::{Relaybook, World};
use crate::table::{LEASE_CALLS, REPLICAS, Reading, TAKEOVER_KILL, TAKEOVER_STOP};

/// Number of pipelines in each bucket.
const EACH: usize = 3;
const LEASES: [&str; 3] = ["relaybook-pipeline", "relaybook-dispatch", "relaybook-promote"];
/// The Leases of pipelines and deliveries. A membership in the third one lasts longer.
const SHORT: [&str; 2] = ["relaybook-pipeline", "relaybook-dispatch"];
/// Length of a text in the large template, and how often the template escapes and shortens it. A request can do no more work than that.
const TEXT: usize = 4_000;
const HEAVY: usize = 200;

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let (plain, mut readings) = shares(bed, round, "replicas", None).await;
    let heavy = "{{truncate (markdown parameters.text) 8}} ".repeat(HEAVY);
    let (ratio, _) = shares(bed, round, "replicas-heavy", Some(&heavy)).await;
    readings.insert(0, Reading::of(&REPLICAS, ratio.0));
    readings.push(Reading::Note(format!(
        "with the large template: {}; with a small one: {:.2} times, {}",
        ratio.1, plain.0, plain.1
    )));
    readings
}

/// Returns how many times more three replicas can send than one, with the processor times, and other readings.
async fn shares(bed: &Bed, round: u32, name: &str, template: Option<&str>) -> ((f64, String), Vec<Reading>) {
    let world = bed.world(name, round).await;
    let mut sources = prepare(&world).await;
    let body = template.map_or_else(
        || json!({}),
        |text| {
            let body = format!("{{\"text\": \"{text}\"}}");
            json!({"template": {"inline": {"body": body}, "parameters": {"text": "_x*y[".repeat(TEXT / 5)}}})
        },
    );
    bed.notification(&world, "hook", body).await;
    let (quick, changes) = (bed.quick, if bed.quick { 4 } else { 20 });
    let mut first = replica(&world, "first").await;
    world.settled().await;
    let calls = lease_calls(bed, if quick { 10 } else { 60 }).await;
    let one = work(bed, &mut sources, &[&first], changes).await;
    let (mut second, mut third) = tokio::join!(replica(&world, "second"), replica(&world, "third"));
    divided(&[&first, &second, &third], &LEASES).await;
    at_rest(first.pid()).await;
    let three = work(bed, &mut sources, &[&first, &second, &third], changes).await;
    let busiest = three.iter().max().copied().unwrap_or_default();
    let deliveries = f64::from(changes) * sources.len() as f64;
    let millis = |time: Duration| time.as_secs_f64() * 1000.0 / deliveries;
    let ratio = one[0].as_secs_f64() / busiest.as_secs_f64();
    let each: Vec<String> = three.iter().map(|time| format!("{:.2}", millis(*time))).collect();
    let words =
        format!("{:.2} ms of processor time a delivery with one replica, {} ms with three", millis(one[0]), each.join(", "));
    let mut readings = Vec::new();
    if template.is_none() {
        let stopped = stop(bed, &mut sources, &mut third, &[&first, &second]).await;
        readings.push(Reading::of(&LEASE_CALLS, calls));
        readings.push(Reading::of(&TAKEOVER_STOP, stopped));
        if !quick {
            readings.push(Reading::of(&TAKEOVER_KILL, kill(&mut second, &[&first]).await));
        }
    } else {
        third.stop().await;
        second.stop().await;
    }
    first.stop().await;
    ((ratio, words), readings)
}

async fn replica(world: &World, pod: &'static str) -> Relaybook {
    Relaybook::with(world, Options { pod: Some(pod), ..Options::of(world) }).await
}

/// Creates the same number of pipelines in each bucket, each with one application.
async fn prepare(world: &World) -> Vec<Source> {
    let mut counts: HashMap<u8, usize> = HashMap::new();
    let (mut apps, mut number) = (Vec::new(), 0);
    while apps.len() < 16 * EACH {
        let app = format!("app-{number}");
        number += 1;
        let created = pipeline(world, &app, std::slice::from_ref(&app)).await;
        let count = counts.entry(bucket(&created.uid().unwrap_or_default())).or_default();
        if *count < EACH {
            *count += 1;
            apps.push(app);
        } else {
            world.delete::<Pipeline>(&app).await;
        }
    }
    stream::iter(apps).map(async |app| Source::create(world, &app).await).buffer_unordered(8).collect().await
}

/// Changes each application so many times, one change after the other, and returns the processor time of each replica for that.
async fn work(bed: &Bed, sources: &mut [Source], replicas: &[&Relaybook], changes: u32) -> Vec<Duration> {
    let times = || replicas.iter().map(|replica| process::cpu(replica.pid())).collect::<Vec<_>>();
    let before = times();
    for _ in 0..changes {
        let sent = bed.receiver.total();
        let count = sources.len();
        stream::iter(sources.iter_mut()).for_each_concurrent(8, async |source| source.flip().await).await;
        until("all is sent", async || bed.receiver.total() >= sent + count).await;
    }
    for replica in replicas {
        at_rest(replica.pid()).await;
    }
    times().into_iter().zip(before).map(|(after, before)| after - before).collect()
}

/// Returns the calls for Leases in a minute, without those of the API server itself.
async fn lease_calls(bed: &Bed, seconds: u64) -> f64 {
    let before = bed.now().await.requests;
    sleep(Duration::from_secs(seconds)).await;
    let calls = (&bed.now().await.requests - &before).count("coordination.k8s.io/leases");
    // The API server renews its own Lease every ten seconds.
    let own = seconds as f64 / 10.0;
    (calls - own).max(0.0) * 60.0 / seconds as f64
}

/// Waits until replicas hold all buckets of these Leases between them.
async fn divided(replicas: &[&Relaybook], leases: &[&str]) {
    for lease in leases {
        until("the buckets are divided", async || {
            let held = join_all(replicas.iter().map(|replica| replica.buckets(lease))).await;
            let counts: Vec<usize> = held.iter().map(Vec::len).collect();
            counts.iter().sum::<usize>() == 16 && counts.iter().max() <= counts.iter().min().map(|least| least + 1).as_ref()
        })
        .await;
    }
}

/// Stops a replica with SIGTERM. Returns the time until the others have sent a change of each application.
async fn stop(bed: &Bed, sources: &mut [Source], leaves: &mut Relaybook, others: &[&Relaybook]) -> f64 {
    leaves.ask_to_stop();
    let began = Instant::now();
    let (sent, count) = (bed.receiver.total(), sources.len());
    stream::iter(sources.iter_mut()).for_each_concurrent(8, async |source| source.flip().await).await;
    until("all is sent", async || bed.receiver.total() >= sent + count).await;
    let took = began.elapsed().as_secs_f64();
    leaves.ended().await;
    divided(others, &LEASES).await;
    took
}

/// Kills a replica. Returns the time until the others have its pipelines and deliveries.
async fn kill(leaves: &mut Relaybook, others: &[&Relaybook]) -> f64 {
    leaves.kill9();
    let began = Instant::now();
    divided(others, &SHORT).await;
    let took = began.elapsed().as_secs_f64();
    divided(others, &LEASES).await;
    took
}
