//! Starts the promotion controller.

use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::AppError;
use crate::http::Gates;
use crate::options::Options;
use relaybook_egress::{SecretWatches, Sender};
use relaybook_runtime::leader::Lease;
use relaybook_runtime::report::events::events;
use relaybook_telemetry::{Metrics, chain};

/// Maximum number of pipelines whose promotions are processed concurrently.
const PIPELINES: usize = 64;

/// Starts the tasks of the promotion controller. It works while this Lease is held.
pub(super) fn start(
    options: &Options,
    client: &Client,
    lease: Lease,
    (metrics, gates): (&Metrics, &Gates),
    tasks: &mut JoinSet<&'static str>,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let promoting = gates.add("promotions");
    let (events, write_events) = events(client.clone(), metrics.clone(), stop.clone());
    tasks.spawn(async {
        write_events.await;
        "writing events"
    });
    let how = relaybook_promotions::Options {
        watch_namespaces: options.watch_namespaces.clone(),
        home: options.namespace.clone(),
        max_looks: PIPELINES,
    };
    let secrets = SecretWatches::new(client.clone(), lease.term_numbers(), metrics.clone());
    let sender = Sender::through(options.proxy.clone(), options.policy(), secrets.secrets(), metrics.clone())?;
    let (outside, reports) = ((secrets, sender), (events, metrics.clone()));
    let context = relaybook_promotions::Context::new(client.clone(), lease, how, outside, reports, stop.clone());
    let running = relaybook_promotions::run(context, move || promoting.open());
    tasks.spawn(async {
        if let Err(error) = running.await {
            tracing::error!(error = %chain(&error), "the promotion controller has ended unexpectedly");
        }
        "the promotion controller"
    });
    Ok(())
}
