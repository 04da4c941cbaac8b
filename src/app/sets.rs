//! Starts the controller of `PipelineSets`, beside the pipeline controller and under its Lease.

use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::http::Gates;
use crate::options::Options;
use relaybook_clusters::Caches;
use relaybook_core::reading::{Follower, FollowerKind};
use relaybook_pipelines::sets::{self, Follow};
use relaybook_runtime::leader::Lease;
use relaybook_runtime::pace::NamespacePace;
use relaybook_telemetry::metrics::ApiWrite;
use relaybook_telemetry::{Metrics, chain};

/// Maximum number of wake-ups that wait for one controller.
const WAKE_BUFFER: usize = 1024;

/// Starts the controller, unless it is turned off. Returns the wake-ups of the pipelines.
pub(super) fn start(
    options: &Options,
    (client, lease): (&Client, &Lease),
    (caches, woken): (&Caches, mpsc::Receiver<Follower>),
    (metrics, gates): (&Metrics, &Gates),
    tasks: &mut JoinSet<&'static str>,
    stop: &CancellationToken,
) -> mpsc::Receiver<Follower> {
    if options.no_pipeline_sets {
        return woken;
    }
    let ready = gates.add("pipeline-sets");
    let (of_pipelines, pipelines) = mpsc::channel(WAKE_BUFFER);
    let (of_sets, sets) = mpsc::channel(WAKE_BUFFER);
    tasks.spawn(divide(woken, of_pipelines, of_sets, stop.clone()));
    let context = sets::Context {
        client: client.clone(),
        lease: lease.clone(),
        caches: caches.clone(),
        options: sets::Options {
            cluster_name: options.cluster_name.clone(),
            namespace: options.namespace.clone(),
            watch_namespaces: options.watch_namespaces.clone(),
            cross_namespace_refs: !options.no_cross_namespace_refs,
            follow: Follow { kinds: options.follow.clone(), layers: options.follow_layers },
        },
        pace: NamespacePace::new(ApiWrite::PipelineOfSet, metrics.clone()),
        metrics: metrics.clone(),
        stop: stop.clone(),
    };
    let running = sets::run(context, sets, move || ready.open());
    tasks.spawn(async {
        if let Err(error) = running.await {
            tracing::error!(error = %chain(&error), "the controller of sets has ended unexpectedly");
        }
        "the controller of sets"
    });
    pipelines
}

/// Passes each wake-up to the controller of its kind.
async fn divide(
    mut woken: mpsc::Receiver<Follower>,
    pipelines: mpsc::Sender<Follower>,
    sets: mpsc::Sender<Follower>,
    stop: CancellationToken,
) -> &'static str {
    while let Some(Some(key)) = stop.run_until_cancelled(woken.recv()).await {
        let to = match key.kind {
            FollowerKind::Pipeline => &pipelines,
            FollowerKind::PipelineSet => &sets,
        };
        if !matches!(stop.run_until_cancelled(to.send(key)).await, Some(Ok(()))) {
            break;
        }
    }
    "dividing wake-ups"
}
