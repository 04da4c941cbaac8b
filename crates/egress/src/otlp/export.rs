//! Sends spans to the collector in the background. No other work waits for the collector.
//!
//! In: the queue of a [`Tracer`](relaybook_telemetry::Tracer). Out: requests with one batch each, one after another. A batch that the
//! collector does not accept is retried a few times, then dropped and counted. If the queue is full in the meantime, new spans are
//! dropped and counted.

use std::time::Duration;

use backon::BackoffBuilder as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request, Uri};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::collector::Collector;
use super::encode::{Origin, refused};
use crate::SendError;
use crate::addresses::resolver::Guarded;
use crate::attempt::failure;
use crate::client;
use crate::client::connect::Connector;
use crate::client::tls;
use crate::client::tls::Tls;
use crate::client::traffic::Traffic;
use crate::client::{Exchange, Http};
use crate::request::body::{READ, beginning};
use crate::request::timely::Timely;
use relaybook_api::duration_text;
use relaybook_telemetry::metrics::SpanResult;
use relaybook_telemetry::{Metrics, Span};

/// Maximum number of spans in a request.
const BATCH: usize = 512;
/// Maximum time from the first span of a batch to its request. A full batch is sent earlier.
const DELAY: Duration = Duration::from_secs(1);
/// Timeout of a whole request, including the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of retries of a batch.
const MAX_RETRIES: usize = 2;
/// Minimum interval between log lines about the collector.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Sends spans to a collector.
pub struct Exporter {
    client: Http,
    collector: Collector,
    at: Uri,
    origin: Origin,
    spans: mpsc::Receiver<Span>,
    metrics: Metrics,
    throttle: LogThrottle,
}

/// Why a batch was not accepted. The texts are our own, because the messages of libraries contain hosts and URLs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ExportError {
    /// The collector rejected the batch.
    #[error("the collector answered with HTTP status {0}")]
    Answer(u16),
    /// The collector did not answer in time.
    #[error("no answer within {}", duration_text(TIMEOUT))]
    Late,
    /// The connection to the collector failed.
    #[error("{0}")]
    Connection(String),
}

impl ExportError {
    /// Whether a retry may succeed (<https://opentelemetry.io/docs/specs/otlp/#otlphttp-response>). A batch that timed out is not
    /// retried, because it has used its time.
    fn is_retryable(&self) -> bool {
        match self {
            Self::Answer(status) => matches!(status, 429 | 502 | 503 | 504),
            Self::Late => false,
            Self::Connection(_) => true,
        }
    }
}

impl Exporter {
    /// Creates an exporter. `about`: attributes that distinguish this process from others.
    ///
    /// The operator chooses the collector, like the API server. So the egress policy for receivers does not apply to it, and requests to it
    /// use no proxy. Only the arguments of this function define its address.
    pub fn new(
        collector: Collector,
        about: &[(&'static str, String)],
        spans: mpsc::Receiver<Span>,
        metrics: Metrics,
    ) -> Result<Self, SendError> {
        let system = tls::system(Vec::new()).map_err(|error| SendError::Client(error.into()))?;
        let tls = Tls::default().config(&system, None).map_err(|error| SendError::Client(error.into()))?;
        let connector = Connector::new(Guarded::open(), tls, None, CONNECT_TIMEOUT, Traffic::Webhooks);
        let client = client::http(connector.map_err(|error| SendError::Client(error.into()))?);
        let at = Uri::try_from(collector.url().as_str()).map_err(|error| SendError::Client(error.into()))?;
        Ok(Self { client, collector, at, origin: Origin::new(about), spans, metrics, throttle: LogThrottle::default() })
    }

    /// Runs until all tracers are dropped, or until `closing` is canceled and all earlier spans are sent.
    pub async fn run(mut self, closing: CancellationToken) {
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                biased;
                count = self.spans.recv_many(&mut batch, BATCH) => if count == 0 { return },
                () = closing.cancelled(), if !self.spans.is_closed() => {
                    self.spans.close();
                    continue;
                }
            }
            self.fill(&mut batch, &closing).await;
            self.hand_over(batch, &closing).await;
        }
    }

    /// Waits until the batch is full, but at most for [`DELAY`].
    async fn fill(&mut self, batch: &mut Vec<Span>, closing: &CancellationToken) {
        let until = Instant::now() + DELAY;
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            tokio::select! {
                biased;
                count = self.spans.recv_many(batch, room) => if count == 0 { return },
                () = closing.cancelled() => return,
                () = sleep_until(until) => return,
            }
        }
    }

    async fn hand_over(&mut self, batch: Vec<Span>, closing: &CancellationToken) {
        let count = batch.len();
        let body = Bytes::from(self.origin.request(batch));
        let mut pauses = backon::ExponentialBuilder::default().with_jitter().with_max_times(MAX_RETRIES).build();
        loop {
            let error = match self.post(body.clone()).await {
                Ok(refused) => {
                    self.metrics.spans(SpanResult::Exported, count.saturating_sub(refused));
                    self.metrics.spans(SpanResult::Failed, refused.min(count));
                    return self.log_recovery();
                }
                Err(error) => error,
            };
            let Some(pause) = pauses.next().filter(|_| error.is_retryable() && !closing.is_cancelled()) else {
                self.metrics.spans(SpanResult::Failed, count);
                return self.log_failure(&error);
            };
            // The wait ends early when the process exits.
            let _ = timeout(pause, closing.cancelled()).await;
        }
    }

    /// Sends a request. Returns how many of its spans the collector rejected.
    async fn post(&self, body: Bytes) -> Result<usize, ExportError> {
        let deadline = Instant::now() + TIMEOUT;
        let mut request = Request::new(Timely::new(body, Duration::MAX));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.at.clone();
        *request.headers_mut() = self.collector.headers();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(client::USER_AGENT));
        let mut exchange = Exchange::new(&self.client, request);
        let answer = tokio::time::timeout_at(deadline, exchange.head()).await.map_err(|_| ExportError::Late)?;
        let (result, late) = match answer {
            Err(error) => (Err(ExportError::Connection(failure::describe(&error, None, CONNECT_TIMEOUT).1)), false),
            Ok(answer) if !answer.status().is_success() => (Err(ExportError::Answer(answer.status().as_u16())), false),
            Ok(answer) => {
                let answer = beginning(answer.into_body(), READ, deadline).await;
                (Ok(refused(&answer.body.bytes)), answer.is_late())
            }
        };
        if !late {
            exchange.finish();
        }
        result
    }

    fn log_failure(&mut self, error: &ExportError) {
        if self.throttle.failed(Instant::now()) {
            tracing::warn!(collector = %self.collector, %error, "trace export failed; spans dropped (deliveries unaffected)");
        }
    }

    fn log_recovery(&mut self) {
        if self.throttle.succeeded(Instant::now()) {
            tracing::info!(collector = %self.collector, "trace export succeeded again");
        }
    }
}

/// Decides when to log the state of the collector. If the collector accepts only every second batch, not every change is logged. The metric
/// counts all spans.
#[derive(Default)]
struct LogThrottle {
    last: Option<Instant>,
    failing: bool,
}

impl LogThrottle {
    /// Whether to log that the export failed.
    fn failed(&mut self, now: Instant) -> bool {
        self.failing = true;
        self.may(now)
    }

    /// Whether to log that the export succeeded again.
    fn succeeded(&mut self, now: Instant) -> bool {
        let says = self.failing && self.may(now);
        self.failing &= !says;
        says
    }

    fn may(&mut self, now: Instant) -> bool {
        let may = self.last.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if may {
            self.last = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_accepts_every_second_batch_is_logged_once_a_minute() {
        let (begun, mut throttle) = (Instant::now(), LogThrottle::default());
        let mut said = Vec::new();
        for second in 0..180u64 {
            let now = begun + Duration::from_secs(second);
            let (what, says) = match second % 2 {
                0 => ("fails", throttle.failed(now)),
                _ => ("succeeds", throttle.succeeded(now)),
            };
            said.extend(says.then_some((second, what)));
        }
        assert_eq!(said, [(0, "fails"), (60, "fails"), (120, "fails")]);
        // A success is logged only once after a failure.
        let later = |minutes| begun + Duration::from_mins(minutes);
        assert_eq!([10, 20, 30].map(|minutes| throttle.succeeded(later(minutes))), [true, false, false]);
    }
}
