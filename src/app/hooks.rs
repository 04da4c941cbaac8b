//! The port for hooks. It needs no Lease, so every replica answers. The pipeline controller of the same process judges the keys of hooks by what
//! they have read.

use std::net::SocketAddr;

use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{AppError, Part};
use crate::hooks::{Given, Service};
use crate::http::{self, Gates};
use crate::options::Options;
use relaybook_core::reading::Follower;
use relaybook_egress::Secrets;
use relaybook_runtime::report::events::events;
use relaybook_telemetry::Metrics;

/// Maximum number of pipelines that wait to be woken.
const WAKE_BUFFER: usize = 1024;

/// The hooks of this process, before they answer.
pub(super) struct Hooks {
    service: Service,
    part: Part,
}

impl Hooks {
    /// Creates the service, which knows nothing yet.
    pub(super) fn new(options: &Options, client: &Client, metrics: &Metrics, stop: &CancellationToken) -> Self {
        let mut part = Part::default();
        let (events, write_events) = events(client.clone(), metrics.clone(), stop.clone());
        part.tasks.spawn(async {
            write_events.await;
            "writing events"
        });
        let given = Given { client: client.clone(), namespaces: options.scopes(), events, metrics: metrics.clone() };
        Self { service: Service::new(given), part }
    }

    /// Returns what is known of the Secrets with keys.
    pub(super) fn secrets(&self) -> Secrets {
        self.service.known_secrets()
    }

    /// Returns these wake-ups of pipelines, and with hooks one for each pipeline with a Secret that has changed.
    pub(super) fn waking(
        hooks: Option<&Self>,
        mut woken: mpsc::Receiver<Follower>,
        tasks: &mut JoinSet<&'static str>,
        stop: &CancellationToken,
    ) -> mpsc::Receiver<Follower> {
        let Some(hooks) = hooks else { return woken };
        let (all, receiver) = mpsc::channel(WAKE_BUFFER);
        let (of_caches, ends) = (all.clone(), stop.clone());
        tasks.spawn(async move {
            while let Some(Some(key)) = ends.run_until_cancelled(woken.recv()).await {
                if of_caches.send(key).await.is_err() {
                    break;
                }
            }
            "passing on wake-ups of pipelines"
        });
        let (service, ends) = (hooks.service.clone(), stop.clone());
        let mut changes = hooks.secrets().changes();
        tasks.spawn(async move {
            while let Some(name) = ends.run_until_cancelled(changes.next()).await {
                for pipeline in service.using(&name) {
                    // The receiver is dropped only when the controller stops.
                    let _ = all.send(Follower::pipeline(pipeline.namespace, pipeline.name)).await;
                }
            }
            "waking pipelines whose keys have changed"
        });
        receiver
    }

    /// Listens on `address`, and answers requests as soon as all keys are known.
    pub(super) fn start(self, address: SocketAddr, gates: &Gates, stop: &CancellationToken) -> Result<Part, AppError> {
        let Self { service, mut part } = self;
        let gate = gates.add("hooks");
        let listener = http::listen(address).map_err(|source| AppError::Listen { addr: address, source })?;
        let bound = listener.local_addr().map_err(|source| AppError::Listen { addr: address, source })?;
        tracing::info!(address = %bound, "accepting hooks");
        let following = service.clone().follow(move || gate.open(), stop.clone());
        part.tasks.spawn(async {
            following.await;
            "following pipelines for hooks"
        });
        let serving = http::serve_hooks(listener, service, stop.clone());
        part.tasks.spawn(async {
            serving.await;
            "serving hooks"
        });
        Ok(part)
    }
}
