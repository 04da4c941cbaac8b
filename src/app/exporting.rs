//! The exporter of spans, while the process lives and for a moment longer.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{AppError, Options};
use crate::telemetry::{Metrics, Sample, Tracer};
use crate::webhook::{Collector, Exporter};

/// When all else is done, what has not been exported yet has so long.
const FLUSH: Duration = Duration::from_secs(2);

/// What is traced, and where spans go.
#[derive(Clone, Debug)]
pub struct Tracing {
    /// Who takes spans.
    pub collector: Collector,
    /// Of how many changes.
    pub sample: Sample,
}

/// The exporter; without tracing there is none.
pub(super) struct Exporting {
    closing: CancellationToken,
    task: Option<AbortOnDropHandle<()>>,
}

impl Exporting {
    /// Starts it where requests to receivers are made, so that a collector that answers without end keeps no other threads busy.
    pub(super) fn start(options: &Options, metrics: &Metrics) -> Result<(Tracer, Self), AppError> {
        let closing = CancellationToken::new();
        let Some(Tracing { collector, sample }) = options.tracing.clone() else {
            return Ok((Tracer::default(), Self { closing, task: None }));
        };
        tracing::info!(%collector, "spans are exported");
        let about = [("service.instance.id", options.identity.clone()), ("k8s.namespace.name", options.namespace.clone())];
        let (tracer, spans) = Tracer::on(sample, metrics.clone());
        let exporter = Exporter::new(collector, &about, spans, metrics.clone())?;
        let task = options.sending.spawn(exporter.run(closing.clone()));
        Ok((tracer, Self { closing, task: Some(AbortOnDropHandle::new(task)) }))
    }

    /// Nothing more comes. Waits for what is still to be exported, but not longer than until `drained`: by then the process must
    /// have ended.
    pub(super) async fn end(self, drained: Instant) {
        self.closing.cancel();
        let Some(task) = self.task else { return };
        if timeout_at(drained.min(Instant::now() + FLUSH), task).await.is_err() {
            tracing::warn!("the last spans were not exported in time");
        }
    }
}
