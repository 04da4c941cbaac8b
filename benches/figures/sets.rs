//! Measures `PipelineSets`: one pipeline for each of 300 Kustomizations, and 3,000 clusters of Fleet divided among 15 pipelines.
//!
//! The time is from the creation of the set, while the program runs, until each pipeline has a status with the state of its target. A commit
//! to all 3,000 clusters is written at once, and is reported for each of them.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use kube::api::{ListParams, Patch, PatchParams};
use relaybook_api::{Pipeline, PipelineSet};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bed::{Bed, at_rest, until};
use crate::generated::{api, create};
use crate::process;
use crate::support::control_plane;
use crate::support::{Relaybook, World};
use crate::table::{CHUNKS_MEMORY, CHUNKS_STATUS, Reading, SETS_MEMORY, SETS_SYNC, SETS_WRITES};

/// Number of parallel writes by plain clients.
const AT_ONCE: usize = 32;

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let mut readings = each(bed, round).await;
    readings.extend(divided(bed, round).await);
    readings
}

async fn each(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("sets", round).await;
    let sources = if bed.quick { 60 } else { 300 };
    let app = async |number: usize| {
        let name = format!("app-{number:03}");
        world.kustomize(&name, "main@sha1:1").await;
        world.applied(&name, "main@sha1:1").await;
    };
    stream::iter(0..sources).for_each_concurrent(AT_ONCE, app).await;
    bed.notification(&world, "hook", json!({})).await;
    let mut relaybook = Relaybook::start(&world).await;
    let before = bed.receiver.total();
    let objects = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization"});
    let environments = json!([{"name": "all", "targets": [{"namespace": "{{namespace}}"}]}]);
    let app = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "{{name}}"});
    let template =
        json!({"metadata": {"name": "{{namespace}}.{{name}}"}, "spec": {"appRef": app, "environments": environments}});
    let spec = json!({"generators": [{"objects": objects}], "template": template});
    let began = Instant::now();
    world.create::<PipelineSet>(json!({"metadata": {"name": "all"}, "spec": spec})).await;
    until("all are followed", async || statuses(&world).await.len() >= sources).await;
    let took = began.elapsed().as_secs_f64();
    at_rest(relaybook.pid()).await;
    let (writes, memory) = (relaybook.writes().await, process::memory(relaybook.pid()));
    sleep(bed.seconds(30, 5)).await;
    let idle = relaybook.writes().await - writes;
    let told = bed.receiver.total() - before;
    relaybook.restart().await;
    until("all are followed again", async || statuses(&world).await.len() >= sources).await;
    at_rest(relaybook.pid()).await;
    let restarted = process::memory(relaybook.pid());
    relaybook.stop().await;
    vec![
        Reading::of(&SETS_SYNC, took),
        Reading::of(&SETS_WRITES, idle),
        Reading::of(&SETS_MEMORY, memory),
        Reading::Note(format!(
            "{writes} writes for {sources} pipelines; {told} requests, because what is there is not news; {restarted:.1} MiB after a restart"
        )),
    ]
}

/// Returns the statuses of all pipelines whose targets have a state.
async fn statuses(world: &World) -> Vec<relaybook_api::PipelineStatus> {
    let list = world.api::<Pipeline>().list(&ListParams::default()).await.expect("listed");
    let statuses = list.items.into_iter().filter_map(|pipeline| pipeline.status);
    let is_known = |status: &relaybook_api::PipelineStatus| {
        let mut targets = status.environments.iter().flat_map(|environment| &environment.targets).peekable();
        targets.peek().is_some() && targets.all(|target| target.settled.is_some())
    };
    statuses.filter(is_known).collect()
}

async fn divided(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("chunks", round).await;
    let (clusters, chunks) = if bed.quick { (300, 2) } else { (3_000, 15) };
    control_plane::install_fleet(&bed.client).await;
    sleep(Duration::from_secs(2)).await;
    create(&world, "GitRepo", "shop", json!({}), json!({"repo": "https://github.com/acme/shop.git"})).await;
    let labels = |commit: &str| json!({"fleet.cattle.io/repo-name": "shop", "fleet.cattle.io/commit": commit});
    create(&world, "Bundle", "web", labels("c1"), json!({})).await;
    unblocked(&world).await;
    let cluster = async |number: usize| {
        let name = format!("cluster-{number:04}");
        create(&world, "Cluster", &name, json!({}), json!({})).await;
        create(&world, "BundleDeployment", &format!("web-{name}"), of(&world, &name, "c1"), ids("c1")).await;
        applied(&world, &name, "c1").await;
    };
    stream::iter(0..clusters).for_each_concurrent(AT_ONCE, cluster).await;
    bed.notification(&world, "hook", json!({})).await;
    let mut relaybook = Relaybook::start(&world).await;
    let environments = json!([{"name": "all", "targetsFrom": [{"fleet": {"gitRepo": "{{name}}"}}]}]);
    let template = json!({"metadata": {"name": "{{name}}"}, "spec": {"environments": environments}});
    let spec = json!({"generators": [{"fleet": {"gitRepos": {}}}], "template": template, "chunks": chunks});
    let began = Instant::now();
    world.create::<PipelineSet>(json!({"metadata": {"name": "all"}, "spec": spec})).await;
    let targets = async || {
        let all = statuses(&world).await;
        all.iter().flat_map(|status| &status.environments).map(|environment| environment.targets.len()).sum::<usize>()
    };
    until("all clusters are followed", async || targets().await == clusters).await;
    let took = began.elapsed().as_secs_f64();
    at_rest(relaybook.pid()).await;
    let before = bed.receiver.total();
    let began = Instant::now();
    patch(&world, "Bundle", "web", json!({"metadata": {"labels": labels("c2")}})).await;
    unblocked(&world).await;
    let roll_out = async |number: usize| {
        let name = format!("cluster-{number:04}");
        let change = json!({"metadata": {"labels": of(&world, &name, "c2")}, "spec": ids("c2")});
        patch(&world, "BundleDeployment", &format!("web-{name}"), change).await;
        applied(&world, &name, "c2").await;
    };
    stream::iter(0..clusters).for_each_concurrent(AT_ONCE, roll_out).await;
    let written = began.elapsed().as_secs_f64();
    until("the commit is reported for all", async || bed.receiver.total() - before >= clusters).await;
    let told = began.elapsed().as_secs_f64();
    let all = statuses(&world).await;
    let size = |status: &relaybook_api::PipelineStatus| serde_json::to_string(status).map_or(0, |text| text.len());
    let largest = all.iter().map(size).max().unwrap_or_default();
    at_rest(relaybook.pid()).await;
    let memory = process::memory(relaybook.pid());
    relaybook.stop().await;
    #[expect(clippy::cast_precision_loss, reason = "a size of some hundred KiB")]
    let largest = largest as f64 / 1024.0;
    vec![
        Reading::of(&CHUNKS_MEMORY, memory),
        Reading::of(&CHUNKS_STATUS, largest),
        Reading::Note(format!(
            "{clusters} clusters in {chunks} pipelines: followed after {took:.1} s; a commit to all was written in {written:.1} s, and \
             reported after {told:.1} s"
        )),
    ]
}

fn of(world: &World, cluster: &str, commit: &str) -> Value {
    json!({
        "fleet.cattle.io/bundle-name": "web", "fleet.cattle.io/bundle-namespace": world.ns,
        "fleet.cattle.io/cluster": cluster, "fleet.cattle.io/cluster-namespace": world.ns,
        "fleet.cattle.io/repo-name": "shop", "fleet.cattle.io/commit": commit,
    })
}

fn ids(commit: &str) -> Value {
    json!({"deploymentID": format!("s-{commit}:a1b2"), "stagedDeploymentID": format!("s-{commit}:a1b2")})
}

fn ready() -> Value {
    json!([{"type": "Ready", "status": "True", "reason": "", "message": "", "lastUpdateTime": "2026-01-01T00:00:00Z"}])
}

/// Writes the status of the Bundle, which nothing blocks.
async fn unblocked(world: &World) {
    let generation = api(world, "Bundle").get("web").await.expect("there").metadata.generation;
    let status = json!({
        "observedGeneration": generation, "unavailablePartitions": 0, "maxUnavailablePartitions": 0,
        "summary": {"desiredReady": 1, "ready": 1}, "conditions": ready(),
    });
    status_of(world, "Bundle", "web", status).await;
}

async fn applied(world: &World, cluster: &str, commit: &str) {
    let status = json!({
        "appliedDeploymentID": format!("s-{commit}:a1b2"), "ready": true, "nonModified": true, "conditions": ready(),
    });
    status_of(world, "BundleDeployment", &format!("web-{cluster}"), status).await;
}

async fn patch(world: &World, kind: &str, name: &str, patch: Value) {
    api(world, kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
}

async fn status_of(world: &World, kind: &str, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    api(world, kind).patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
}
