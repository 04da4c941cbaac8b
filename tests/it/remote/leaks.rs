//! Pipelines on remote clusters that come and go leave nothing behind, and neither do the clusters.

use std::fs;
use std::time::Duration;

use pennant::api::Pipeline;
use serde_json::json;

use crate::support::control_plane::{self, foreign};
use crate::support::remote::second;
use crate::support::wait::{heavy, within};
use crate::support::{Pennant, World, eventually};

/// Pipelines that come and go.
const TIMES: usize = 200;
/// Kinds that they are of in turn: more watches at once than the API server's client would hide.
const KINDS: usize = 20;
/// Clusters that they are on in turn, each with a client, probes and watches of its own.
const CLUSTERS: usize = 40;
/// A watch that nobody needs goes on for half a minute.
const ENDED: Duration = Duration::from_secs(100);

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    tasks: f64,
    caches: f64,
    objects: f64,
    sockets: usize,
    threads: usize,
    /// In KiB.
    memory: u64,
}

impl Held {
    async fn by(pennant: &Pennant) -> Self {
        let metrics = pennant.metrics().await;
        let of = |name: &str| metrics.iter().filter(|(key, _)| key.starts_with(name)).map(|(_, n)| *n).sum();
        let pid = pennant.pid();
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        Self {
            tasks: of("pennant_tasks"),
            caches: of("pennant_caches"),
            objects: of("pennant_objects_cached"),
            sockets: fds.filter(|link| link.to_string_lossy().starts_with("socket:")).count(),
            threads: usize::try_from(field("Threads")).unwrap(),
            memory: field("VmRSS"),
        }
    }
}

#[tokio::test]
async fn two_hundred_created_and_deleted_pipelines_leave_nothing_behind() {
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
    let pennant = Pennant::start(&world).await;
    // The first few make what stays: threads, buffers, the allocator's pages.
    come_and_go(&world, 0..KINDS).await;
    let before = rest(&pennant, None).await;
    assert!(before.tasks > 0.0, "{before:?}");
    come_and_go(&world, 0..TIMES).await;
    let after = rest(&pennant, Some(before)).await;
    assert!(after.memory < before.memory + 8 * 1024, "KiB: {before:?}, {after:?}");
    assert_eq!(after.threads, before.threads);
}

fn cluster(n: usize) -> String {
    format!("west-{}", n % CLUSTERS)
}

/// Each is made, looked at, and deleted.
async fn come_and_go(world: &World, which: std::ops::Range<usize>) {
    for n in which {
        let name = format!("shop-{n}");
        let app = json!({"apiVersion": "leaks.example/v1", "kind": format!("Thing{}", n % KINDS), "name": "web"});
        let targets = json!([{"namespace": world.ns, "clusterRef": {"kind": "Secret", "name": cluster(n)}}]);
        let spec = json!({"appRef": app, "environments": [{"name": "prod", "targets": targets}]});
        world.create::<Pipeline>(json!({"metadata": {"name": name}, "spec": spec})).await;
        eventually(&format!("{name} is looked at"), async || {
            let status = world.get_pipeline(&name).await.status.unwrap_or_default();
            if status.environments.is_empty() { Err("not yet".to_owned()) } else { Ok(()) }
        })
        .await;
        world.delete::<Pipeline>(&name).await;
    }
}

/// What it holds when no cache is left; no more than `limit`, if given.
async fn rest(pennant: &Pennant, limit: Option<Held>) -> Held {
    within(ENDED, "what was made for them is gone", async || {
        let held = Held::by(pennant).await;
        // A call that comes while all connections are taken opens one more, with a task; each kind or cluster would leave one.
        let more = |limit: Held| held.tasks > limit.tasks + 2.0 || held.sockets > limit.sockets + 2;
        if held.caches > 0.0 || held.objects > 0.0 || limit.is_some_and(more) {
            Err(format!("{held:?}, {limit:?}"))
        } else {
            Ok(held)
        }
    })
    .await
}
