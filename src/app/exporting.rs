//! The exporter of spans. It runs until all other parts have ended, and then exports the remaining spans.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::AppError;
use crate::options::Options;
use relaybook_egress::Exporter;
use relaybook_telemetry::{Metrics, Tracer};

/// Time to export the remaining spans after all other parts have ended.
const FLUSH: Duration = Duration::from_secs(2);

/// The exporter, if tracing is on.
pub(super) struct Exporting {
    closing: CancellationToken,
    task: Option<AbortOnDropHandle<()>>,
}

impl Exporting {
    /// Starts the exporter on the runtime for requests to receivers. So a collector whose response never ends keeps no other threads
    /// busy.
    pub(super) fn start(options: &Options, sending: &Handle, metrics: &Metrics) -> Result<(Tracer, Self), AppError> {
        let closing = CancellationToken::new();
        let Some(collector) = options.tracing.collector.clone() else {
            return Ok((Tracer::default(), Self { closing, task: None }));
        };
        tracing::info!(%collector, "exporting spans");
        let about = [("service.instance.id", options.identity.clone()), ("k8s.namespace.name", options.namespace.clone())];
        let (tracer, spans) = Tracer::on(options.tracing.sample, metrics.clone());
        let exporter = Exporter::new(collector, &about, spans, metrics.clone())?;
        let task = sending.spawn(exporter.run(closing.clone()));
        Ok((tracer, Self { closing, task: Some(AbortOnDropHandle::new(task)) }))
    }

    /// Called after the last span was created. Waits for the remaining exports, but at most until `drained`: the process must have exited
    /// by then.
    pub(super) async fn end(self, drained: Instant) {
        self.closing.cancel();
        let Some(task) = self.task else { return };
        if timeout_at(drained.min(Instant::now() + FLUSH), task).await.is_err() {
            tracing::warn!("the last spans were not exported in time");
        }
    }
}
