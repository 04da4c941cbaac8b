//! Limits the number, the memory and the duration of connections.
//!
//! A connection carries one request: a head of at most 16 KiB within 10 s. It ends after its answer, or after a minute. A server that is
//! asked by more clients than it has room for still accepts all of them, and closes others ([`excess`]): first those that do not finish
//! their request. It closes no connection in its first 50 ms, and that time begins when the server has read what had arrived. So a request
//! that was sent at once is answered, also if thousands of clients never finish theirs.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::serve::Listener;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::excess::{Most, Seen, Stage, excess};
use crate::hooks::Source;

/// Minimum age of a connection that is closed for another one. A request that is sent immediately has arrived by then.
const PROTECTED: Duration = Duration::from_millis(50);
/// Minimum time between two decisions which connections to close, because each looks at all of them.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of connections that the kernel queues until they are accepted. A client whose connection does not fit retries only
/// after a second.
const BACKLOG: u32 = 4096;

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of open connections. It includes the new ones that cannot be closed yet, and is larger than the sum of `most`. So a
    /// server that accepts no more connections can soon close some.
    pub all: usize,
    /// Maximum numbers of the others.
    pub most: Most,
    /// Maximum number of bytes in the head of a request.
    pub head: usize,
    /// Maximum time from the start of a connection to the end of the head.
    pub head_time: Duration,
    /// Maximum duration of a connection: longer than any scrape.
    pub life: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            all: 1024,
            most: Most { reading: 128, answering: 64, kept: 256 },
            head: 16 * 1024,
            head_time: Duration::from_secs(10),
            life: Duration::from_mins(1),
        }
    }
}

/// The other side of a connection: an extension of each request.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    source: Source,
    state: Arc<State>,
}

/// What the task of a connection and the handler of its request say about it.
#[derive(Debug, Default)]
struct State {
    stage: AtomicU8,
    /// When the server had read what had arrived with the connection.
    since: OnceLock<Instant>,
}

impl State {
    /// Changes the stage, never to an earlier one.
    fn reach(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::Relaxed);
    }

    fn stage(&self) -> Stage {
        let stages = [Stage::Silent, Stage::Reading, Stage::Answering, Stage::Kept];
        let reached = self.stage.load(Ordering::Relaxed);
        stages.into_iter().find(|stage| *stage as u8 == reached).unwrap_or(Stage::Silent)
    }

    fn is_protected(&self, now: Instant) -> bool {
        self.since.get().is_none_or(|since| now.saturating_duration_since(*since) < PROTECTED)
    }
}

impl Peer {
    fn new(address: IpAddr) -> Self {
        Self { source: source(address), state: Arc::default() }
    }

    /// Returns the source of the connection.
    pub(super) fn source(&self) -> Source {
        self.source
    }

    /// Called when the whole request has been read.
    pub(super) fn complete(&self) {
        self.state.reach(Stage::Answering);
    }

    /// Called when the credentials of the request are accepted. The connection is not closed for others while few are kept.
    pub(super) fn keep(&self) {
        self.state.reach(Stage::Kept);
    }
}

/// Returns the source with this address. A listener for IPv6 can have clients of IPv4.
fn source(address: IpAddr) -> Source {
    match address.to_canonical() {
        IpAddr::V4(address) => Source::v4(address.to_bits()),
        IpAddr::V6(address) => Source::v6(address.to_bits()),
    }
}

/// An open connection.
struct Connection {
    peer: Peer,
    task: AbortHandle,
}

/// Open connections, oldest first.
#[derive(Default)]
struct Connections(VecDeque<Connection>);

impl Connections {
    /// Closes those that are too many. Returns whether there are more that cannot be closed yet.
    fn close_excess(&mut self, most: Most) -> bool {
        self.0.retain(|connection| !connection.task.is_finished());
        if self.0.len() <= most.least() {
            return false;
        }
        let now = Instant::now();
        let seen = |Connection { peer, .. }: &Connection| Seen {
            stage: peer.state.stage(),
            source: peer.source,
            is_protected: peer.state.is_protected(now),
        };
        let excess = excess(&self.0.iter().map(seen).collect::<Vec<_>>(), most);
        let mut closes = excess.closes.into_iter();
        self.0.retain(|connection| {
            let closes = closes.next().unwrap_or(false);
            if closes {
                connection.task.abort();
            }
            !closes
        });
        excess.is_over
    }

    /// Closes the connections that have not sent a head.
    fn close_silent(&self) {
        let silent = self.0.iter().filter(|connection| connection.peer.state.stage() == Stage::Silent);
        silent.for_each(|connection| connection.task.abort());
    }
}

/// Listens on a TCP port.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As in `TcpListener::bind`, so that a restart does not wait for the connections of the previous process.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Answers requests until `stop`. Returns the connections whose requests are not answered yet.
pub(super) async fn answer(
    mut listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let (mut tasks, mut connections) = (JoinSet::new(), Connections::default());
    let (mut is_over, mut next) = (false, Instant::now());
    loop {
        if Instant::now() >= next {
            is_over = connections.close_excess(limits.most);
            next = Instant::now() + PAUSE;
        }
        while tasks.try_join_next().is_some() {}
        let is_full = tasks.len() >= limits.all;
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep_until(next), if is_over || is_full => {}
            Some(_) = tasks.join_next(), if is_full => {}
            // The `accept` of the trait retries after errors such as too many open files.
            (stream, address) = Listener::accept(&mut listener), if !is_full => {
                let peer = Peer::new(address.ip());
                let task = tasks.spawn(connection(stream, router.clone(), peer.clone(), limits));
                connections.0.push_back(Connection { peer, task });
                is_over |= connections.0.len() > limits.most.least();
            }
        }
    }
    connections.close_silent();
    tasks
}

/// Answers the one request of a connection. Errors are ignored, because they affect only this client.
async fn connection(stream: TcpStream, router: Router, peer: Peer, limits: Limits) {
    // On a busy machine, much time can pass before the first read. The connection cannot be closed for others until then.
    let _ = timeout(PROTECTED, stream.readable()).await;
    let _ = peer.state.since.set(Instant::now());
    let service = service_fn(move |mut request: Request<Incoming>| {
        peer.state.reach(if request.body().is_end_stream() { Stage::Answering } else { Stage::Reading });
        request.extensions_mut().insert(peer.clone());
        router.clone().oneshot(request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_time).max_buf_size(limits.head).keep_alive(false);
    let _ = timeout(limits.life, builder.serve_connection(TokioIo::new(stream), service)).await;
}

#[cfg(test)]
mod tests {
    use axum::Extension;
    use axum::body::Body;
    use axum::routing::{get, post};
    use bytes::Bytes;
    use futures::{StreamExt as _, stream};
    use std::convert::Infallible;
    use std::sync::LazyLock;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::sleep;

    use super::*;
    use crate::http::body::read;

    /// What a client that does not read gets.
    static ANSWER: LazyLock<Bytes> = LazyLock::new(|| vec![b'x'; 16 * 1024 * 1024].into());

    /// Limits that few connections reach.
    const FEW: Most = Most { reading: 4, answering: 4, kept: 2 };

    fn few() -> Limits {
        let long = Duration::from_mins(10);
        Limits { all: 16, most: FEW, head_time: long, life: long, ..Limits::default() }
    }

    fn running(limits: Limits) -> SocketAddr {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(async || "ok")).route("/never", get(std::future::pending::<()>));
        let begins = async || Body::from_stream(stream::iter([Ok::<_, Infallible>("x")]).chain(stream::pending()));
        let router = router.route("/begins", get(begins));
        let reads = |Extension(peer): Extension<Peer>, body: Body| async move {
            let read = read(&peer, body, 1024).await;
            if read.is_ok() { "ok" } else { "not read" }
        };
        let router = router.route("/reads", post(reads)).route("/large", get(async || ANSWER.clone()));
        let kept = |Extension(peer): Extension<Peer>| async move {
            assert_eq!(peer.source(), Source::v4(0x7f00_0001));
            peer.keep();
            std::future::pending::<()>().await;
        };
        let router = router.route("/kept", get(kept));
        tokio::spawn(async move { answer(listener, router, limits, &CancellationToken::new()).await });
        address
    }

    async fn sent(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Reads until the connection ends.
    async fn rest(mut stream: TcpStream) -> String {
        let mut rest = Vec::new();
        let read = timeout(Duration::from_mins(1), stream.read_to_end(&mut rest)).await;
        assert!(read.is_ok(), "the connection is still open");
        String::from_utf8(rest).unwrap()
    }

    fn is_open(stream: &TcpStream) -> bool {
        let mut bytes = [0; 4096];
        let read = std::iter::repeat_with(|| stream.try_read(&mut bytes)).find(|read| !matches!(read, Ok(1..)));
        read.unwrap().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    }

    const HALF: &str = "GET / HTTP/1.1\r\nhost:";
    const NO_BODY: &str = "POST /reads HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n";
    const NEVER: &str = "GET /never HTTP/1.1\r\nhost: x\r\n\r\n";
    const KEPT: &str = "GET /kept HTTP/1.1\r\nhost: x\r\n\r\n";
    const LARGE: &str = "GET /large HTTP/1.1\r\nhost: x\r\n\r\n";

    #[test]
    fn an_ipv4_address_or_an_ipv6_network_is_one_source() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }

    #[test]
    fn the_limit_of_connections_exceeds_the_sum_of_its_stages() {
        for Limits { all, most, .. } in [Limits::default(), few()] {
            assert!(all > most.reading + most.answering + most.kept);
        }
    }

    #[tokio::test]
    async fn a_request_that_is_never_finished_is_closed() {
        let limits = Limits { head_time: Duration::from_millis(50), ..Limits::default() };
        rest(sent(running(limits), HALF).await).await;
        let limits = Limits { life: Duration::from_millis(50), ..Limits::default() };
        assert_eq!(rest(sent(running(limits), NEVER).await).await, "");
    }

    #[tokio::test]
    async fn a_head_is_bounded_and_a_connection_carries_one_request() {
        let address = running(Limits::default());
        let head = |bytes: usize| format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(bytes));
        assert!(rest(sent(address, &head(8 * 1024)).await).await.starts_with("HTTP/1.1 200"));
        assert!(rest(sent(address, &head(20 * 1024)[..17 * 1024]).await).await.starts_with("HTTP/1.1 431"));
        assert_eq!(rest(sent(address, &head(1).repeat(2)).await).await.matches("HTTP/1.1 200").count(), 1);
    }

    #[tokio::test]
    async fn a_request_that_is_sent_at_once_is_answered_while_all_connections_are_used() {
        for held in ["", HALF, NO_BODY, NEVER, LARGE, KEPT] {
            let address = running(few());
            let mut open = Vec::new();
            for _ in 0..40 {
                open.push(sent(address, held).await);
            }
            for good in
                ["GET / HTTP/1.1\r\nhost: x\r\n\r\n", "POST /reads HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx"]
            {
                let answer = rest(sent(address, good).await).await;
                assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{held}: {answer}");
            }
            // The server closes the others without more requests, the oldest first. Two of the last ones have a place in any case.
            let kept = if held == KEPT { FEW.kept } else { 0 };
            for stream in &mut open[kept..40 - FEW.answering] {
                let closed = timeout(Duration::from_mins(1), tokio::io::copy(stream, &mut tokio::io::sink())).await;
                assert!(closed.is_ok(), "{held}: the connection is still open");
            }
            // A body has a time of its own.
            let mut others = open[..kept].iter().chain(&open[38..]);
            assert!([LARGE, NO_BODY].contains(&held) || others.all(is_open), "{held}: more than needed were closed");
        }
    }

    /// Clients that never finish open more connections than are closed, until the request is answered.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_request_is_answered_during_a_flood_of_requests_that_are_never_finished() {
        const OPEN: usize = 300;
        for held in [NO_BODY, HALF, ""] {
            let address = running(Limits::default());
            let (begun, has_begun) = tokio::sync::oneshot::channel();
            let flood = tokio::spawn(async move {
                let (mut begun, mut open) = (Some(begun), VecDeque::new());
                loop {
                    for _ in 0..25 {
                        let mut stream = TcpStream::connect(address).await.unwrap();
                        // It can be closed before all is written.
                        let _ = stream.write_all(held.as_bytes()).await;
                        open.push_back(stream);
                    }
                    if open.len() > OPEN {
                        open.drain(..25);
                        if let Some(begun) = begun.take() {
                            begun.send(()).unwrap();
                        }
                    }
                    sleep(Duration::from_millis(5)).await;
                }
            });
            has_begun.await.unwrap();
            let good = "POST /reads HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx";
            let answer = rest(sent(address, good).await).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{held}: {answer}");
            assert!(!flood.is_finished());
            flood.abort();
        }
    }

    #[tokio::test]
    async fn a_request_that_is_kept_is_not_displaced_by_others() {
        let address = running(few());
        let kept = sent(address, KEPT).await;
        let mut open = Vec::new();
        for text in [NEVER, NO_BODY, HALF, KEPT] {
            for _ in 0..12 {
                open.push(sent(address, text).await);
            }
        }
        // One more is kept, and of the others the last ones of each stage are open.
        let open_ones = FEW.kept - 1 + FEW.answering + FEW.reading;
        for _ in 0..open.len() - open_ones {
            let reads = open.iter().map(|stream| Box::pin(stream.readable()));
            let (_, at, _) =
                timeout(Duration::from_mins(1), futures::future::select_all(reads)).await.expect("one is closed");
            open.remove(at);
        }
        assert!(is_open(&kept), "the connection is still open");
    }

    #[tokio::test]
    async fn a_connection_with_a_request_is_kept_and_silent_connections_are_closed() {
        let address = running(few());
        let mut asked = sent(address, "GET /begins HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(asked.read(&mut [0; 4096]).await.unwrap() > 0);
        for _ in 0..8 {
            let first = sent(address, HALF).await;
            let mut others = Vec::new();
            for _ in 0..FEW.reading {
                others.push(sent(address, HALF).await);
            }
            rest(first).await;
        }
        assert!(is_open(&asked), "the connection is still open");
    }
}
