//! Pipelines on remote clusters that are created and deleted leave nothing behind, and neither do the clusters.

use std::fs;
use std::time::Duration;

use relaybook_api::Pipeline;
use serde_json::json;

use crate::support::control_plane::{self, foreign};
use crate::support::remote::second;
use crate::support::wait::{heavy, within};
use crate::support::{Relaybook, World, eventually};

/// Number of pipelines that are created and deleted.
const TIMES: usize = 100;
/// Number of kinds that they use in turn: more leaked watches than the spare connections of the API client could hide.
const KINDS: usize = 20;
/// Number of clusters that they use in turn, each with its own client, probes and watches.
const CLUSTERS: usize = 40;
/// An unused watch continues for 30 s.
const ENDED: Duration = Duration::from_secs(100);

/// Resources of a process.
#[derive(Clone, Copy, Debug)]
struct Held {
    tasks: f64,
    caches: f64,
    objects: f64,
    sockets: usize,
    threads: usize,
    /// Resident memory in KiB.
    memory: u64,
}

impl Held {
    async fn by(relaybook: &Relaybook) -> Self {
        let metrics = relaybook.metrics().await;
        let of = |name: &str| metrics.iter().filter(|(key, _)| key.starts_with(name)).map(|(_, n)| *n).sum();
        let pid = relaybook.pid();
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        Self {
            tasks: of("relaybook_tasks"),
            caches: of("relaybook_caches"),
            objects: of("relaybook_objects_cached"),
            sockets: fds.filter(|link| link.to_string_lossy().starts_with("socket:")).count(),
            threads: usize::try_from(field("Threads")).unwrap(),
            memory: field("VmRSS"),
        }
    }
}

#[tokio::test]
async fn created_and_deleted_pipelines_leave_nothing_behind() {
    let _alone = heavy().await;
    let world = World::new("remote-leaks").await;
    let there = World::on(second(), &world.ns).await;
    for n in 0..KINDS {
        let kind = foreign("leaks.example", "v1", &format!("Thing{n}"), &format!("thing{n}s"));
        control_plane::install(&there.client, &kind).await;
    }
    let kubeconfig = fs::read_to_string(second()).unwrap();
    for n in 0..CLUSTERS {
        world.secret(&cluster(n), json!({"kubeconfig": kubeconfig})).await;
    }
    let relaybook = Relaybook::start(&world).await;
    // The first pipelines create what stays: threads, buffers, pages of the allocator.
    come_and_go(&world, 0..KINDS).await;
    let before = rest(&relaybook, None).await;
    assert!(before.tasks > 0.0, "{before:?}");
    come_and_go(&world, 0..TIMES).await;
    let after = rest(&relaybook, Some(before)).await;
    assert!(after.memory < before.memory + 4 * 1024, "KiB: {before:?}, {after:?}");
    assert_eq!(after.threads, before.threads);
}

fn cluster(n: usize) -> String {
    format!("west-{}", n % CLUSTERS)
}

/// Creates each pipeline, waits until it is observed, and deletes it.
async fn come_and_go(world: &World, which: std::ops::Range<usize>) {
    for n in which {
        let name = format!("shop-{n}");
        let app = json!({"apiVersion": "leaks.example/v1", "kind": format!("Thing{}", n % KINDS), "name": "web"});
        let targets = json!([{"namespace": world.ns, "clusterRef": {"kind": "Secret", "name": cluster(n)}}]);
        let spec = json!({"appRef": app, "environments": [{"name": "prod", "targets": targets}]});
        world.create::<Pipeline>(json!({"metadata": {"name": name}, "spec": spec})).await;
        eventually(&format!("{name} is observed"), async || {
            let status = world.get_pipeline(&name).await.status.unwrap_or_default();
            if status.environments.is_empty() { Err("not yet".to_owned()) } else { Ok(()) }
        })
        .await;
        world.delete::<Pipeline>(&name).await;
    }
}

/// Waits until no cache is left and, if `limit` is given, no more than that. Returns the resources of the process.
async fn rest(relaybook: &Relaybook, limit: Option<Held>) -> Held {
    within(ENDED, "their resources are released", async || {
        let held = Held::by(relaybook).await;
        // A call opens one more connection, with a task, if all connections are in use. A leak would leave one for each kind or cluster.
        let more = |limit: Held| held.tasks > limit.tasks + 2.0 || held.sockets > limit.sockets + 2;
        if held.caches > 0.0 || held.objects > 0.0 || limit.is_some_and(more) {
            Err(format!("{held:?}, {limit:?}"))
        } else {
            Ok(held)
        }
    })
    .await
}
