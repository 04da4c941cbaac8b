//! The port for hooks. It needs no Lease, so every replica answers. The pipeline controller of the same process judges the keys of hooks by what
//! they have read.

use std::net::SocketAddr;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::process::Process;
use super::{AppError, Part, listen};
use crate::hooks::{Given, Service};
use crate::http;
use relaybook_core::reading::Follower;
use relaybook_egress::Secrets;

/// Maximum number of pipelines that wait to be woken.
const WAKE_BUFFER: usize = 1024;

/// The hooks of this process, before they answer.
pub(super) struct Hooks {
    service: Service,
    part: Part,
}

impl Hooks {
    /// Creates the service, which knows nothing yet.
    pub(super) fn new(process: &Process) -> Self {
        let mut part = Part::default();
        let given = Given {
            client: process.client.clone(),
            namespaces: process.options.scopes(),
            events: part.events(process),
            metrics: process.metrics.clone(),
        };
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
        part: &mut Part,
        stop: &CancellationToken,
    ) -> mpsc::Receiver<Follower> {
        let Some(hooks) = hooks else { return woken };
        let (all, receiver) = mpsc::channel(WAKE_BUFFER);
        let (of_caches, ends) = (all.clone(), stop.clone());
        part.spawn("passing on wake-ups of pipelines", async move {
            while let Some(Some(key)) = ends.run_until_cancelled(woken.recv()).await {
                if of_caches.send(key).await.is_err() {
                    break;
                }
            }
        });
        let (service, ends) = (hooks.service.clone(), stop.clone());
        let mut changes = hooks.secrets().changes();
        part.spawn("waking pipelines whose keys have changed", async move {
            while let Some(name) = ends.run_until_cancelled(changes.next()).await {
                for pipeline in service.using(&name) {
                    // The receiver is dropped only when the controller stops.
                    let _ = all.send(Follower::pipeline(pipeline.namespace, pipeline.name)).await;
                }
            }
        });
        receiver
    }

    /// Listens on `address`, and answers requests as soon as all keys are known.
    pub(super) fn start(self, process: &Process, address: SocketAddr) -> Result<Part, AppError> {
        let Process { gates, stop, .. } = process;
        let Self { service, mut part } = self;
        let gate = gates.add("hooks");
        let (listener, address) = listen(address)?;
        tracing::info!(%address, "accepting hooks");
        let following = service.clone().follow(move || gate.open(), stop.clone());
        part.spawn("following pipelines for hooks", following);
        part.spawn("serving hooks", http::serve_hooks(listener, service, stop.clone()));
        Ok(part)
    }
}
