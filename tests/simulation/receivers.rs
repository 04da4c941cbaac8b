//! The receivers: HTTP servers within the process, over connections in memory.
//!
//! In: how each receiver answers ([`Manner`]). Out: connections for the requests of the replicas, and the log of all requests.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use relaybook_simulation::clock;
use relaybook_simulation::service::Network;
use serde_json::Value;
use tokio::io::DuplexStream;

use super::line::Line;

/// Number of receivers. Each gets the requests of one notification.
pub const RECEIVERS: usize = 3;
/// How a receiver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// With this status, after this number of milliseconds.
    Answers(u16, u32),
    /// Never.
    Hangs,
    /// It reads the request, then closes the connection.
    Breaks,
}

/// A request that has arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub at: Duration,
    /// The replica that sent it.
    pub replica: usize,
    /// The receiver.
    pub receiver: usize,
    pub pipeline: String,
    /// Its lane: pipeline, notification and target.
    pub lane: String,
    /// Its delivery: the lane, the serial, type and revision.
    pub delivery: String,
    pub serial: i64,
    /// Whether the change or its Delivery was recorded before.
    pub is_recorded: bool,
    /// Status code and time of the answer.
    pub answered: Option<(u16, Duration)>,
    /// When the receiver had answered it, or its connection was closed.
    pub ended: Option<Duration>,
}

#[derive(Default)]
struct State {
    manners: [Option<Manner>; RECEIVERS],
    /// The number of the token that the second receiver accepts, minus one.
    rotated: u32,
    log: Vec<Arrived>,
    /// The replica that runs at present.
    replica: usize,
}

/// All receivers. It is cheap to clone.
#[derive(Clone)]
pub struct Receivers {
    state: Arc<Mutex<State>>,
    network: Network,
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Receivers {
    /// Returns receivers that accept every request.
    pub fn new(network: Network, lines: Arc<Mutex<Vec<Line>>>) -> Self {
        Self { state: Arc::default(), network, lines }
    }

    /// Sets how a receiver answers from now on. `None`: it accepts every request.
    pub fn set(&self, receiver: usize, manner: Option<Manner>) {
        self.state.lock().manners[receiver] = manner;
    }

    /// Returns the next token. From now on, the second receiver accepts only this one.
    pub fn rotate(&self) -> u32 {
        let mut state = self.state.lock();
        state.rotated += 1;
        state.rotated + 1
    }

    /// Whether a receiver accepts every request.
    pub fn is_open(&self, receiver: usize) -> bool {
        self.state.lock().manners[receiver].is_none()
    }

    /// Sets which replica runs from now on.
    pub fn of_replica(&self, replica: usize) {
        self.state.lock().replica = replica;
    }

    /// Reads all requests so far.
    pub fn log<T>(&self, read: impl FnOnce(&[Arrived]) -> T) -> T {
        read(&self.state.lock().log)
    }

    /// Returns the connection to the receiver of a URL, whose host begins with its number.
    pub fn connect(&self, to: &Uri) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let receiver = to.host().and_then(|host| host.split('.').next()?.strip_prefix('r')?.parse().ok()).unwrap_or(0);
        let (this, replica) = (self.clone(), self.state.lock().replica);
        let service = service_fn(move |request| this.clone().serve(receiver, replica, request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(theirs), service).map(drop));
        ours
    }

    async fn serve(self, receiver: usize, replica: usize, request: Request<Incoming>) -> io::Result<Response<Text>> {
        let (head, mut body) = request.into_parts();
        let mut bytes = Vec::new();
        while let Some(frame) = futures::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await {
            bytes.extend(frame.map_err(io::Error::other)?.into_data().unwrap_or_default());
        }
        if !self.lines.lock()[replica].arrives() {
            return pending().await;
        }
        let body: Value = serde_json::from_slice(&bytes)?;
        let credential =
            head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let field = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let pipeline = field("pipeline");
        let serial = field("serial").parse().unwrap_or_default();
        let lane = format!("{pipeline}/{}/{}", field("notification"), field("target"));
        let what = format!("{} {}", field("type"), field("revision"));
        let is_recorded = self.is_recorded(&pipeline, &field("notification"), serial);
        let (number, manner) = {
            let mut state = self.state.lock();
            let arrived = Arrived {
                at: clock::since_first(),
                replica,
                receiver,
                pipeline,
                delivery: format!("{lane} {serial} {what}"),
                serial,
                is_recorded,
                answered: None,
                ended: None,
                lane,
            };
            tracing::debug!(replica, delivery = arrived.delivery, "received");
            state.log.push(arrived);
            let is_known = receiver != 1 || credential == format!("Bearer {:03}", state.rotated + 1);
            let usual = if is_known { Manner::Answers(204, 0) } else { Manner::Answers(401, 0) };
            (state.log.len() - 1, state.manners[receiver].unwrap_or(usual))
        };
        let _open = Open(self.clone(), number);
        match manner {
            Manner::Hangs => pending().await,
            Manner::Breaks => Err(io::ErrorKind::ConnectionReset.into()),
            Manner::Answers(code, after) => {
                tokio::time::sleep(Duration::from_millis(after.into())).await;
                self.state.lock().log[number].answered = Some((code, clock::since_first()));
                let mut response = Response::new(Text(None));
                *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
                if code == 429 {
                    response.headers_mut().insert(RETRY_AFTER, 3.into());
                }
                Ok(response)
            }
        }
    }

    /// Whether the change is in the log of its pipeline, or its Delivery exists.
    fn is_recorded(&self, pipeline: &str, notification: &str, serial: i64) -> bool {
        self.network.with(|server| {
            let has = |object: &Value| {
                object["status"]["log"]["changes"].as_array().into_iter().flatten().any(|change| change["serial"] == serial)
            };
            server.object("pipelines", "team", pipeline).is_some_and(|object| has(&object.value))
                || server.objects("deliveries").map(|delivery| &delivery.value["spec"]).any(|spec| {
                    let is_of = spec["pipelineRef"]["name"] == pipeline && spec["notification"] == notification;
                    is_of && spec["serial"] == serial
                })
        })
    }
}

/// A request that the receiver works on. It ends also if the connection is closed.
struct Open(Receivers, usize);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.state.lock().log[self.1].ended = Some(clock::since_first());
    }
}

/// The body of an answer: nothing.
struct Text(Option<Bytes>);

impl http_body::Body for Text {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.get_mut().0.take().map(|text| Ok(Frame::data(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}
