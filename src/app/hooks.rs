//! The port for hooks. It needs no Lease, so every replica answers.

use std::net::SocketAddr;

use kube::Client;
use tokio_util::sync::CancellationToken;

use super::{AppError, Options, Part, scopes};
use crate::hooks::{Given, Service};
use crate::http::{self, Gates};
use crate::report::events::events;
use crate::telemetry::Metrics;

/// Listens on `address`, and answers requests as soon as all keys are known.
pub(super) fn start_hooks(
    options: &Options,
    address: SocketAddr,
    client: &Client,
    metrics: &Metrics,
    gates: &Gates,
    stop: &CancellationToken,
) -> Result<Part, AppError> {
    let gate = gates.add("hooks");
    let listener = http::listen(address).map_err(|source| AppError::Listen { addr: address, source })?;
    let bound = listener.local_addr().map_err(|source| AppError::Listen { addr: address, source })?;
    tracing::info!(address = %bound, "accepting hooks");
    let mut part = Part::default();
    let (events, write_events) = events(client.clone(), metrics.clone(), stop.clone());
    part.tasks.spawn(async {
        write_events.await;
        "writing events"
    });
    let given = Given { client: client.clone(), namespaces: scopes(options), events, metrics: metrics.clone() };
    let service = Service::new(given);
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
