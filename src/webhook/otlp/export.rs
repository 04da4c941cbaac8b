//! Hands spans to the collector, in the background: whatever it does, nothing else waits for it.
//!
//! In: the queue of a [`Tracer`](crate::telemetry::Tracer). Out: requests, a batch each, one after the other. A batch that is not
//! taken is tried again a few times, then lost and counted; meanwhile the queue fills up, and what comes then is lost and counted.

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
use crate::api::duration_text;
use crate::telemetry::metrics::SpanResult;
use crate::telemetry::{Metrics, Span};
use crate::webhook::SendError;
use crate::webhook::attempt::failure;
use crate::webhook::client::connect::Connector;
use crate::webhook::client::tls::{self, Tls};
use crate::webhook::client::{self, Exchange, Http};
use crate::webhook::egress::resolver::Guarded;
use crate::webhook::request::sender::beginning;
use crate::webhook::request::timely::Timely;

/// Spans in a request.
const BATCH: usize = 512;
/// A batch that is not full is sent so long after its first span came.
const DELAY: Duration = Duration::from_secs(1);
/// For a whole request, the answer included.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a batch is tried again.
const AGAIN: usize = 2;
/// That the collector does not take what it is sent is said no more often.
const SILENCE: Duration = Duration::from_mins(1);

/// Sends spans to a collector.
pub struct Exporter {
    client: Http,
    collector: Collector,
    at: Uri,
    origin: Origin,
    spans: mpsc::Receiver<Span>,
    metrics: Metrics,
    words: Words,
}

/// Why a batch was not taken. In words of our own: those of libraries name hosts and URLs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NotTaken {
    /// The collector said so.
    #[error("it answers {0}")]
    Answer(u16),
    /// It does not answer in time.
    #[error("no answer within {}", duration_text(TIMEOUT))]
    Late,
    /// There is no way to it.
    #[error("{0}")]
    NoWay(String),
}

impl NotTaken {
    /// Whether it may be taken a little later (<https://opentelemetry.io/docs/specs/otlp/#otlphttp-response>). One that is late has
    /// had its time.
    fn passes(&self) -> bool {
        match self {
            Self::Answer(status) => matches!(status, 429 | 502 | 503 | 504),
            Self::Late => false,
            Self::NoWay(_) => true,
        }
    }
}

impl Exporter {
    /// One that has sent nothing yet. `about`: attributes that tell this process from others.
    ///
    /// The collector is the operator's, like the API server: the policy for receivers does not hold for it, no proxy stands before
    /// it, and nothing but its arguments says where it is.
    pub fn new(
        collector: Collector,
        about: &[(&'static str, String)],
        spans: mpsc::Receiver<Span>,
        metrics: Metrics,
    ) -> Result<Self, SendError> {
        let system = tls::system(Vec::new()).map_err(|error| SendError::Client(error.into()))?;
        let tls = Tls::default().config(&system, None).map_err(|error| SendError::Client(error.into()))?;
        let connector = Connector::new(Guarded::open(), tls, None, CONNECT_TIMEOUT);
        let client = client::http(connector.map_err(|error| SendError::Client(error.into()))?);
        let at = Uri::try_from(collector.url().as_str()).map_err(|error| SendError::Client(error.into()))?;
        Ok(Self { client, collector, at, origin: Origin::new(about), spans, metrics, words: Words::default() })
    }

    /// Runs until nobody makes spans any more, or until `closing` and all that came before that has been sent.
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

    /// Waits a little for others.
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
        let mut pauses = backon::ExponentialBuilder::default().with_jitter().with_max_times(AGAIN).build();
        loop {
            let error = match self.post(body.clone()).await {
                Ok(refused) => {
                    self.metrics.spans(SpanResult::Exported, count.saturating_sub(refused));
                    self.metrics.spans(SpanResult::Failed, refused.min(count));
                    return self.relieved();
                }
                Err(error) => error,
            };
            let Some(pause) = pauses.next().filter(|_| error.passes() && !closing.is_cancelled()) else {
                self.metrics.spans(SpanResult::Failed, count);
                return self.complain(&error);
            };
            // Nothing is left to wait for when the process ends.
            let _ = timeout(pause, closing.cancelled()).await;
        }
    }

    /// How many were refused of those that were sent.
    async fn post(&self, body: Bytes) -> Result<usize, NotTaken> {
        let deadline = Instant::now() + TIMEOUT;
        let mut request = Request::new(Timely::new(body, Duration::MAX));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.at.clone();
        *request.headers_mut() = self.collector.headers();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(client::USER_AGENT));
        let mut exchange = Exchange::new(&self.client, request);
        let answer = tokio::time::timeout_at(deadline, exchange.head()).await.map_err(|_| NotTaken::Late)?;
        let (result, late) = match answer {
            Err(error) => (Err(NotTaken::NoWay(failure::words(&error, None, CONNECT_TIMEOUT).1)), false),
            Ok(answer) if !answer.status().is_success() => (Err(NotTaken::Answer(answer.status().as_u16())), false),
            Ok(answer) => {
                let answer = beginning(answer.into_body(), deadline).await;
                (Ok(refused(&answer.body.bytes)), answer.late)
            }
        };
        if !late {
            exchange.finish();
        }
        result
    }

    fn complain(&mut self, error: &NotTaken) {
        if self.words.failed(Instant::now()) {
            tracing::warn!(collector = %self.collector, %error, "the collector does not take spans; they are lost, and nothing else is");
        }
    }

    fn relieved(&mut self) {
        if self.words.went_well(Instant::now()) {
            tracing::info!(collector = %self.collector, "the collector takes spans again");
        }
    }
}

/// What is said about the collector, and when: one that takes every other batch is not told of each time. The metric has it.
#[derive(Default)]
struct Words {
    last: Option<Instant>,
    failing: bool,
}

impl Words {
    /// Whether to say that it does not take spans.
    fn failed(&mut self, now: Instant) -> bool {
        self.failing = true;
        self.may(now)
    }

    /// Whether to say that it takes spans again.
    fn went_well(&mut self, now: Instant) -> bool {
        let says = self.failing && self.may(now);
        self.failing &= !says;
        says
    }

    fn may(&mut self, now: Instant) -> bool {
        let may = self.last.is_none_or(|last| now.duration_since(last) >= SILENCE);
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
    fn a_collector_that_takes_every_other_batch_is_spoken_of_once_a_minute() {
        let (begun, mut words) = (Instant::now(), Words::default());
        let mut said = Vec::new();
        for second in 0..180u64 {
            let now = begun + Duration::from_secs(second);
            let (what, says) = match second % 2 {
                0 => ("fails", words.failed(now)),
                _ => ("went well", words.went_well(now)),
            };
            said.extend(says.then_some((second, what)));
        }
        assert_eq!(said, [(0, "fails"), (60, "fails"), (120, "fails")]);
        // Nothing is said of what goes well, but for once after it did not.
        let later = |minutes| begun + Duration::from_mins(minutes);
        assert_eq!([10, 20, 30].map(|minutes| words.went_well(later(minutes))), [true, false, false]);
    }
}
