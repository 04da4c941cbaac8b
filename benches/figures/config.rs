//! Measures the cost of the global configuration: 1,000 pipelines that each override 10 cluster-wide notifications. So Relaybook
//! resolves and caches 10,000 effective notifications, and resolves them again when one of the 10 is edited.
//!
//! The cost of the first resolution is that of a start with these, minus that of a start with the same pipelines without
//! notifications, both of them after all initial writes. Requests at the receiver, or statuses of pipelines, prove that an edit
//! is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::ListParams;
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use crate::bed::{Bed, at_rest, until};
use crate::process;
use crate::source::Source;
use crate::support::{Relaybook, World};
use crate::table::{CONFIG_EDIT, CONFIG_MEMORY, CONFIG_WRITES, Reading};

const NOTIFICATIONS: usize = 10;
/// Number of pipelines with one more notification, which no other pipeline has.
const FEW: usize = 10;
const CONFIG_MAP: &str = "relaybook-config";
/// What Relaybook writes, except the Lease.
const OURS: [&str; 2] = ["relaybook.dev/", "events"];
/// The application of one pipeline, and the application of all others.
const PROBE: &str = "probe";
const COMMON: &str = "fence";

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let count = if bed.quick { 100 } else { 1000 };
    let bare = bed.world("config-bare", round).await;
    create(&bare, count, false).await;
    let (mut relaybook, without) = Cost::of(&bare, count, 0).await;
    relaybook.stop().await;

    let world = bed.world("config", round).await;
    let mut probe = Source::create(&world, PROBE).await;
    world.create::<ConfigMap>(json!({"metadata": {"name": CONFIG_MAP}, "data": data(bed, "before", true)})).await;
    create(&world, count, true).await;
    let (mut relaybook, with) = Cost::of(&world, count, NOTIFICATIONS).await;

    let (versions, before) = (versions(&world).await, bed.now().await.requests);
    world.patch::<ConfigMap>(CONFIG_MAP, json!({"data": data(bed, "after", true)})).await;
    let edit = at_rest(relaybook.pid()).await - with.cpu;
    let written = (&bed.now().await.requests - &before).writes().only(&OURS);

    world.patch::<ConfigMap>(CONFIG_MAP, json!({"data": data(bed, "after", false)})).await;
    until("the few pipelines report the problem", async || in_trouble(&world).await.len() == FEW).await;
    at_rest(relaybook.pid()).await;
    let others = changed(&world, &versions).await;

    probe.flip().await;
    until("the edit is in force", async || !bed.receiver.times("/after").is_empty()).await;
    assert!(bed.receiver.times("/before").is_empty(), "a request went to the URL from before the edit");
    relaybook.stop().await;

    let first = with.cpu.saturating_sub(without.cpu);
    let each = (with.memory - without.memory) * 1024.0 / (count * NOTIFICATIONS) as f64;
    vec![
        Reading::against(&CONFIG_EDIT, edit.as_secs_f64(), first.as_secs_f64()),
        Reading::of(&CONFIG_WRITES, written.total() + others as f64),
        Reading::of(&CONFIG_MEMORY, each),
        Reading::Note(format!("{count} pipelines, {NOTIFICATIONS} notifications: {with}; without notifications: {without}")),
        Reading::Note(format!("written after the edit of all: {}; {others} others after that of few", written.each(1.0))),
    ]
}

/// The cost of a start.
struct Cost {
    cpu: Duration,
    /// In MiB.
    memory: f64,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} s, {:.1} MiB", self.cpu.as_secs_f64(), self.memory)
    }
}

impl Cost {
    /// Measures a start after all initial writes: every pipeline is observed and has at least this many cursors.
    async fn of(world: &World, count: usize, cursors: usize) -> (Relaybook, Self) {
        let mut relaybook = Relaybook::start(world).await;
        until("all pipelines are observed and have their cursors", async || {
            let settled = |p: &Pipeline| {
                let status = p.status.as_ref();
                let there = status.and_then(|s| s.dispatched.as_ref()).map_or(0, |d| d.cursors.len());
                status.is_some_and(|s| s.log.is_some()) && there >= cursors
            };
            all(world).await.iter().filter(|p| settled(p)).count() == count
        })
        .await;
        at_rest(relaybook.pid()).await;
        relaybook.restart().await;
        let cpu = at_rest(relaybook.pid()).await;
        let memory = process::memory(relaybook.pid());
        (relaybook, Self { cpu, memory })
    }
}

/// Creates the pipelines. With `layers`, each overrides a parameter of each notification.
async fn create(world: &World, count: usize, layers: bool) {
    let layer = |n: usize, of: usize| {
        let title = format!("Shop {n}: {{{{type}}}} in {{{{environment}}}}");
        json!({"name": format!("hook-{of}"), "template": {"parameters": {"title": title}}})
    };
    let pipeline = |n: usize| {
        let app = if layers && n == 0 { PROBE } else { COMMON };
        let own: Vec<_> = (0..if layers { NOTIFICATIONS } else { 0 }).map(|of| layer(n, of)).collect();
        let labels = if (1..=FEW).contains(&n) { json!({"few": "yes"}) } else { json!({}) };
        json!({
            "metadata": {"name": format!("shop-{n}"), "labels": labels},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": app},
                "notifications": own,
                "environments": [{"name": "prod", "targets": [{"namespace": world.ns}]}],
            },
        })
    };
    stream::iter(0..count).for_each_concurrent(8, async |n| drop(world.create::<Pipeline>(pipeline(n)).await)).await;
}

/// Returns the global configuration. `path`: path of the URL of the first notification. `fine`: whether the notification of the
/// few pipelines is valid.
fn data(bed: &Bed, path: &str, fine: bool) -> Value {
    let triggers = json!([{"type": "Failed"}, {"type": "Recovered"}]);
    let notification = |n: usize| {
        let path = if n == 0 { path.to_owned() } else { format!("hook-{n}") };
        let url = bed.receiver.url(&format!("/{path}"));
        json!({"name": format!("hook-{n}"), "triggers": triggers, "endpoint": {"url": url}, "template": {"builtin": "slack"}})
    };
    let body = if fine { "{{json revision}}" } else { "{{json nothing}}" };
    let few = json!({
        "name": "few", "triggers": triggers, "pipelineSelector": {"matchLabels": {"few": "yes"}},
        "endpoint": {"url": bed.receiver.url("/few")}, "template": {"inline": {"body": body}},
    });
    let all: Vec<_> = (0..NOTIFICATIONS).map(notification).chain([few]).collect();
    // JSON is YAML.
    let config = json!({"defaults": {"delivery": {"retry": {"maxAge": "12h"}}}, "notifications": all});
    json!({"config.yaml": config.to_string()})
}

async fn all(world: &World) -> Vec<Pipeline> {
    world.api::<Pipeline>().list(&ListParams::default()).await.expect("listed").items
}

async fn versions(world: &World) -> BTreeMap<String, Option<String>> {
    all(world).await.iter().map(|p| (p.name_any(), p.resource_version())).collect()
}

/// Returns the pipelines whose status reports a problem with a notification.
async fn in_trouble(world: &World) -> BTreeSet<String> {
    let is = |p: &Pipeline| {
        let dispatched = p.status.as_ref().and_then(|s| s.dispatched.as_ref());
        dispatched.is_some_and(|d| !d.notifications.is_empty())
    };
    all(world).await.iter().filter(|p| is(p)).map(ResourceExt::name_any).collect()
}

/// Returns how many pipelines were written since then, except those that report a problem.
async fn changed(world: &World, since: &BTreeMap<String, Option<String>>) -> usize {
    let expected = in_trouble(world).await;
    let now = versions(world).await;
    now.iter().filter(|(name, version)| !expected.contains(*name) && since.get(*name) != Some(version)).count()
}
