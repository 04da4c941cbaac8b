//! Starts the controller of `PipelineSets`, beside the pipeline controller and under its Lease.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::part::Part;
use super::process::Process;
use relaybook_clusters::Caches;
use relaybook_core::reading::{Follower, FollowerKind};
use relaybook_pipelines::sets::{self, Follow};
use relaybook_runtime::Common;
use relaybook_runtime::pace::NamespacePace;
use relaybook_telemetry::metrics::ApiWrite;

/// Maximum number of wake-ups that wait for one controller.
const WAKE_BUFFER: usize = 1024;

/// Starts the controller, unless it is turned off. Returns the wake-ups of the pipelines.
pub(super) fn start(
    Process { options, gates, .. }: &Process,
    Common { client, lease, metrics, stop, .. }: &Common,
    caches: &Caches,
    woken: mpsc::Receiver<Follower>,
    part: &mut Part,
) -> mpsc::Receiver<Follower> {
    if options.no_pipeline_sets {
        return woken;
    }
    let ready = gates.add("pipeline-sets");
    let (of_pipelines, pipelines) = mpsc::channel(WAKE_BUFFER);
    let (of_sets, sets) = mpsc::channel(WAKE_BUFFER);
    part.spawn("dividing wake-ups", divide(woken, of_pipelines, of_sets, stop.clone()));
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
    part.control("the controller of sets", sets::run(context, sets, move || ready.open()));
    pipelines
}

/// Passes each wake-up to the controller of its kind.
async fn divide(
    mut woken: mpsc::Receiver<Follower>,
    pipelines: mpsc::Sender<Follower>,
    sets: mpsc::Sender<Follower>,
    stop: CancellationToken,
) {
    while let Some(Some(key)) = stop.run_until_cancelled(woken.recv()).await {
        let to = match key.kind {
            FollowerKind::Pipeline => &pipelines,
            FollowerKind::PipelineSet => &sets,
        };
        if !matches!(stop.run_until_cancelled(to.send(key)).await, Some(Ok(()))) {
            break;
        }
    }
}
