//! The queue of spans for the exporter. The code that adds a span never waits: a full queue drops the span, and a metric counts it.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::metrics::{Metrics, SpanResult};
use super::spans::{Sample, Span, Trace};

/// Maximum number of spans that wait for the export. Each has about 600 bytes.
const QUEUE: usize = 8 * 1024;

/// Accepts spans; cheap to clone. The default accepts none and returns no traces, so no code computes spans for it.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<On>>);

#[derive(Debug)]
struct On {
    sample: Sample,
    queue: mpsc::Sender<Span>,
    metrics: Metrics,
}

impl Tracer {
    /// Returns a tracer that accepts the spans of this share of changes, and the receiving end of its queue.
    #[must_use]
    pub fn on(sample: Sample, metrics: Metrics) -> (Self, mpsc::Receiver<Span>) {
        let (queue, spans) = mpsc::channel(QUEUE);
        (Self(Some(Arc::new(On { sample, queue, metrics }))), spans)
    }

    /// Returns the trace of a change, sampled or not. Returns `None` if tracing is off.
    #[must_use]
    pub fn trace(&self, pipeline: &str, serial: i64) -> Option<Trace> {
        self.0.as_ref().map(|on| Trace::of_change(pipeline, serial, on.sample))
    }

    /// Returns the trace of a change, if it is sampled.
    #[must_use]
    pub fn sampled(&self, pipeline: &str, serial: i64) -> Option<Trace> {
        self.trace(pipeline, serial).filter(Trace::is_sampled)
    }

    /// Adds a span to the queue, or drops it if the queue is full. Never waits.
    pub fn take(&self, span: Span) {
        if let Some(on) = self.0.as_ref().filter(|_| span.trace.is_sampled())
            && on.queue.try_send(span).is_err()
        {
            on.metrics.spans(SpanResult::Dropped, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn span(trace: Trace) -> Span {
        let (start, end) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        let attributes = Vec::new();
        Span { trace, id: trace.root(), parent: None, name: "change", is_call: false, start, end, attributes, error: None }
    }

    fn dropped(metrics: &Metrics) -> u64 {
        let text = metrics.encode().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("relaybook_spans_total{result=\"dropped\"} ")).unwrap();
        line.parse().unwrap()
    }

    #[test]
    fn a_full_queue_drops_new_spans_and_the_sender_does_not_wait() {
        let metrics = Metrics::new();
        let (tracer, mut spans) = Tracer::on("1".parse().unwrap(), metrics.clone());
        let trace = tracer.sampled("p", 1).unwrap();
        for _ in 0..QUEUE + 3 {
            tracer.take(span(trace));
        }
        assert_eq!(dropped(&metrics), 3);
        assert!(spans.try_recv().is_ok());
        tracer.take(span(trace));
        assert_eq!((dropped(&metrics), spans.len()), (3, QUEUE));
        drop(spans);
        tracer.take(span(trace));
        assert_eq!(dropped(&metrics), 4, "the exporter has ended");
    }

    #[test]
    fn a_change_that_is_not_sampled_has_a_trace_and_no_spans() {
        let metrics = Metrics::new();
        let (tracer, mut spans) = Tracer::on("0".parse().unwrap(), metrics.clone());
        assert!(tracer.sampled("p", 1).is_none());
        tracer.take(span(tracer.trace("p", 1).unwrap()));
        assert!(spans.try_recv().is_err());
        assert_eq!(dropped(&metrics), 0);
    }

    #[test]
    fn there_are_no_traces_while_tracing_is_off() {
        assert!(Tracer::default().trace("p", 1).is_none());
    }
}
