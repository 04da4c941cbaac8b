//! Measures targets that nobody lists: 3,000 clusters of Fleet with 10 bundles each, which 120 pipelines select by the labels of the clusters.
//!
//! The memory figure is what one selection of all 30,000 `BundleDeployments` adds to a process with one small pipeline; it follows 256 of
//! them, so that statuses do not count. The time is from the start of the process until each of the 120 pipelines has a status with all of
//! its targets. Adding a label to a selector must not list the objects again.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use relaybook_api::Pipeline;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bed::{Bed, at_rest, until};
use crate::process;
use crate::support::control_plane;
use crate::support::{Relaybook, World};
use crate::table::{GENERATED_LISTS, GENERATED_MEMORY, GENERATED_SYNC, GENERATED_WRITES, Reading};

/// Number of parallel writes by plain clients.
const AT_ONCE: usize = 32;
/// Bundles on each cluster.
const BUNDLES: usize = 10;
/// Clusters of one pipeline.
const CLUSTERS: usize = 25;
const GROUP: &str = "fleet.cattle.io";

pub async fn measure(bed: &Bed, round: u32) -> Vec<Reading> {
    let world = bed.world("generated", round).await;
    let pipelines = if bed.quick { 8 } else { 120 };
    install(bed, &world, pipelines).await;
    let memory = memory(bed, &world).await;
    let (sync, writes, lists, note) = sync(bed, &world, pipelines).await;
    vec![
        Reading::of(&GENERATED_MEMORY, memory),
        Reading::of(&GENERATED_SYNC, sync),
        Reading::of(&GENERATED_WRITES, writes),
        Reading::of(&GENERATED_LISTS, lists),
        Reading::Note(note),
    ]
}

pub fn api(world: &World, kind: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(GROUP, "v1alpha1", kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()));
    Api::namespaced_with(world.client.clone(), &world.ns, &resource)
}

pub async fn create(world: &World, kind: &str, name: &str, labels: Value, spec: Value) {
    let metadata = json!({"name": name, "labels": labels});
    let object = json!({"apiVersion": format!("{GROUP}/v1alpha1"), "kind": kind, "metadata": metadata, "spec": spec});
    let object = serde_json::from_value(object).expect("an object");
    api(world, kind).create(&PostParams::default(), &object).await.expect("created");
}

/// Creates Fleet's objects.
async fn install(bed: &Bed, world: &World, pipelines: usize) {
    control_plane::install_fleet(&bed.client).await;
    sleep(Duration::from_secs(2)).await;
    create(world, "GitRepo", "shop", json!({}), json!({"repo": "https://github.com/acme/shop.git"})).await;
    for bundle in 0..BUNDLES {
        let labels = json!({"fleet.cattle.io/repo-name": "shop", "fleet.cattle.io/commit": "c1"});
        create(world, "Bundle", &format!("bundle-{bundle}"), labels, json!({})).await;
    }
    let cluster = async |n: usize| {
        let name = format!("cluster-{n:04}");
        let labels =
            json!({"group": format!("g{}", n / CLUSTERS), "management.cattle.io/cluster-name": format!("c-m-{n:08}")});
        create(world, "Cluster", &name, labels, json!({})).await;
        for bundle in 0..BUNDLES {
            let bundle = format!("bundle-{bundle}");
            let labels = json!({
                "fleet.cattle.io/bundle-name": bundle, "fleet.cattle.io/bundle-namespace": world.ns,
                "fleet.cattle.io/cluster": name, "fleet.cattle.io/cluster-namespace": world.ns,
                "fleet.cattle.io/repo-name": "shop", "fleet.cattle.io/commit": "c1",
                "fleet.cattle.io/managed": "true", "fleet.cattle.io/created-by-user-id": "user-4c8d2",
            });
            let spec = json!({"deploymentID": "s-4c8d:a1b2", "stagedDeploymentID": "s-4c8d:a1b2", "options": {"helm": {"version": "1"}}});
            create(world, "BundleDeployment", &format!("{bundle}-{name}"), labels, spec).await;
        }
    };
    stream::iter(0..pipelines * CLUSTERS).for_each_concurrent(AT_ONCE, cluster).await;
}

async fn pipeline(world: &World, name: &str, fleet: Value) {
    let mut entry = json!({"gitRepo": "shop"});
    json_patch::merge(&mut entry, &fleet);
    let spec = json!({"environments": [{"name": "all", "targetsFrom": [{"fleet": entry}]}]});
    world.create::<Pipeline>(json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// Returns what a selection of all objects adds, in MiB.
async fn memory(bed: &Bed, world: &World) -> f64 {
    let _ = bed;
    pipeline(world, "few", json!({"clusters": ["none-*"]})).await;
    world
        .patch::<Pipeline>(
            "few",
            json!({"spec": {"environments": [{"name": "all", "targets": [{"namespace": world.ns}], "targetsFrom": []}],
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "fence"}}}),
        )
        .await;
    let mut relaybook = Relaybook::start(world).await;
    world.observed("few").await;
    at_rest(relaybook.pid()).await;
    let before = process::memory(relaybook.pid());
    pipeline(world, "every", json!({})).await;
    world.pipeline_condition("every", "Ready", |c| !c.reason.is_empty()).await;
    at_rest(relaybook.pid()).await;
    let after = process::memory(relaybook.pid());
    relaybook.stop().await;
    world.delete::<Pipeline>("every").await;
    after - before
}

/// Returns the time of the first statuses, the writes while nothing happens, and the lists that a new label causes.
async fn sync(bed: &Bed, world: &World, pipelines: usize) -> (f64, f64, f64, String) {
    for n in 0..pipelines {
        let selector = json!({"clusterSelector": {"matchLabels": {"group": format!("g{n}")}}});
        pipeline(world, &format!("p{n}"), selector).await;
    }
    let all = world.api::<Pipeline>();
    let began = Instant::now();
    let mut relaybook = Relaybook::start(world).await;
    until("all statuses", async || {
        let list = all.list(&kube::api::ListParams::default()).await.expect("listed");
        let targets = |p: &Pipeline| {
            let environments = p.status.iter().flat_map(|status| &status.environments);
            environments.map(|environment| environment.targets.len()).sum::<usize>()
        };
        list.items.iter().map(targets).sum::<usize>() >= pipelines * CLUSTERS * BUNDLES
    })
    .await;
    let took = began.elapsed().as_secs_f64();
    let used = at_rest(relaybook.pid()).await;
    let resident = process::memory(relaybook.pid());
    let writes = relaybook.writes().await;
    sleep(bed.seconds(30, 5)).await;
    let idle = relaybook.writes().await - writes;
    // A selector gets one more label.
    let watches = || relaybook.log().matches("starting a watch").count();
    let before = watches();
    let more = json!({"matchExpressions": [{"key": "management.cattle.io/cluster-name", "operator": "Exists"}], "matchLabels": {"group": "g0"}});
    let entry = json!({"fleet": {"gitRepo": "shop", "clusterSelector": more}});
    let spec = json!({"spec": {"environments": [{"name": "all", "targetsFrom": [entry]}]}});
    let edited = world.patch::<Pipeline>("p0", spec).await.metadata.generation;
    until("the edit is observed", async || {
        world.get_pipeline("p0").await.status.is_some_and(|status| status.observed_generation == edited)
    })
    .await;
    let lists = watches() - before;
    let size = serde_json::to_string(&world.get_pipeline("p1").await.status).unwrap_or_default().len();
    relaybook.stop().await;
    let note = format!(
        "{pipelines} pipelines of {} targets: {:.1} s of CPU, {resident:.1} MiB resident, a status of {:.0} KiB",
        CLUSTERS * BUNDLES,
        used.as_secs_f64(),
        size as f64 / 1024.0,
    );
    (took, idle, lists as f64, note)
}
