//! Limits the number, the memory and the duration of connections.
//!
//! A connection carries one request: a head of at most 16 KiB within 10 s. It ends after its answer, or after a minute. At most 64
//! connections are open. At this limit the server still accepts a new connection, and closes the oldest one without a complete head.
//! If all have sent a complete head, it closes the oldest connection, or the oldest one whose request no handler has [kept](Peer::keep). It
//! never closes a connection in its first 50 ms to accept another one: new connections wait until then. So clients that never finish a
//! request only displace each other. A health probe sends its request immediately and is answered.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Minimum age of a connection that is closed to accept a newer one. A request that is sent immediately has arrived by then, even on a
/// busy machine. The server accepts a full queue of the kernel ([`BACKLOG`]) within 3.2 s, and a probe has a timeout of 5 s.
const PROTECTED: Duration = Duration::from_millis(50);
/// Maximum number of connections that the kernel queues until they are accepted. A client whose connection does not fit retries only
/// after a second.
const BACKLOG: u32 = 4096;

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// Maximum number of bytes in the head of a request.
    pub head: usize,
    /// Maximum time from the start of a connection to the end of the head.
    pub head_time: Duration,
    /// Maximum duration of a connection: longer than any scrape.
    pub life: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_connections: 64, head: 16 * 1024, head_time: Duration::from_secs(10), life: Duration::from_mins(1) }
    }
}

/// The other side of a connection: an extension of each request.
#[derive(Clone, Debug)]
pub struct Peer {
    address: SocketAddr,
    is_kept: Arc<AtomicBool>,
}

impl Peer {
    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Keeps the connection open while there are others that can be closed for a new one.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }
}

/// An open connection.
struct Connection {
    /// Whether the complete head of its request has arrived.
    has_request: Arc<AtomicBool>,
    /// Whether a handler keeps it.
    is_kept: Arc<AtomicBool>,
    since: Instant,
    task: AbortHandle,
}

/// Open connections, oldest first.
#[derive(Default)]
struct Connections(VecDeque<Connection>);

impl Connections {
    /// Adds a connection. Closes another one if there are too many.
    fn add(&mut self, connection: Connection, most: usize) {
        if let Some(closed) = self.victim(most).and_then(|at| self.0.remove(at)) {
            closed.task.abort();
        }
        self.0.push_back(connection);
    }

    /// Returns the index of the connection to close for a new one, if the limit is reached.
    fn victim(&mut self, most: usize) -> Option<usize> {
        self.0.retain(|connection| !connection.task.is_finished());
        let waits = || self.0.iter().position(|connection| !connection.has_request.load(Ordering::Relaxed));
        let other = || self.0.iter().position(|connection| !connection.is_kept.load(Ordering::Relaxed));
        (self.0.len() >= most).then(|| waits().or_else(other).unwrap_or(0))
    }

    /// Returns how long to wait until another connection can be accepted.
    fn wait(&mut self, most: usize) -> Duration {
        let victim = self.victim(most).and_then(|at| self.0.get(at));
        victim.map_or(Duration::ZERO, |connection| PROTECTED.saturating_sub(connection.since.elapsed()))
    }

    /// Closes the connections that have not sent a request.
    fn close_silent(&self) {
        let silent = self.0.iter().filter(|connection| !connection.has_request.load(Ordering::Relaxed));
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
pub async fn answer(mut listener: TcpListener, router: Router, limits: Limits, stop: &CancellationToken) -> JoinSet<()> {
    let (mut tasks, mut connections) = (JoinSet::new(), Connections::default());
    loop {
        let wait = connections.wait(limits.max_connections);
        if !wait.is_zero() {
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(wait) => continue,
            }
        }
        // The `accept` of the trait retries after errors such as too many open files.
        let (stream, address) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = Listener::accept(&mut listener) => accepted,
        };
        while tasks.try_join_next().is_some() {}
        let (has_request, is_kept) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let peer = Peer { address, is_kept: is_kept.clone() };
        let task = tasks.spawn(connection(stream, router.clone(), peer, has_request.clone(), limits));
        connections.add(Connection { has_request, is_kept, since: Instant::now(), task }, limits.max_connections);
    }
    connections.close_silent();
    tasks
}

/// Answers the one request of a connection. Errors are ignored, because they affect only this client.
async fn connection(stream: TcpStream, router: Router, peer: Peer, has_request: Arc<AtomicBool>, limits: Limits) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        has_request.store(true, Ordering::Relaxed);
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
    use axum::routing::get;
    use futures::{StreamExt as _, stream};
    use std::convert::Infallible;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn running(limits: Limits) -> SocketAddr {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(async || "ok")).route("/never", get(std::future::pending::<()>));
        let begins = async || Body::from_stream(stream::iter([Ok::<_, Infallible>("x")]).chain(stream::pending()));
        let router = router.route("/begins", get(begins));
        let kept = |Extension(peer): Extension<Peer>| async move {
            assert!(peer.address().ip().is_loopback());
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
        let read = timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
        assert!(read.is_ok(), "the connection is still open");
        String::from_utf8(rest).unwrap()
    }

    const HALF: &str = "GET / HTTP/1.1\r\nhost:";

    #[tokio::test]
    async fn a_request_that_is_never_finished_is_closed() {
        let limits = Limits { head_time: Duration::from_millis(50), ..Limits::default() };
        rest(sent(running(limits), HALF).await).await;
        let limits = Limits { life: Duration::from_millis(50), ..Limits::default() };
        let address = running(limits);
        assert_eq!(rest(sent(address, "GET /never HTTP/1.1\r\nhost: x\r\n\r\n").await).await, "");
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
        let limits = Limits { max_connections: 4, ..Limits::default() };
        for held in [HALF, "GET /never HTTP/1.1\r\nhost: x\r\n\r\n"] {
            let address = running(limits);
            let mut open = Vec::new();
            for _ in 0..20 {
                open.push(sent(address, held).await);
            }
            let begun = Instant::now();
            let answer = rest(sent(address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await).await;
            assert!(answer.starts_with("HTTP/1.1 200") && begun.elapsed() < Duration::from_secs(1), "{answer}");
            // The server closed the oldest connections.
            for stream in open.drain(..16) {
                let _ = timeout(Duration::from_secs(5), stream.readable()).await.expect("it is closed");
            }
        }
    }

    #[tokio::test]
    async fn a_request_that_is_kept_is_not_displaced_by_others() {
        let address = running(Limits { max_connections: 4, ..Limits::default() });
        let kept = sent(address, "GET /kept HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut open = Vec::new();
        for _ in 0..12 {
            open.push(sent(address, "GET /never HTTP/1.1\r\nhost: x\r\n\r\n").await);
        }
        for stream in open.drain(..9) {
            rest(stream).await;
        }
        let read = kept.try_read(&mut [0; 16]);
        assert!(read.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock), "the connection is still open");
    }

    #[tokio::test]
    async fn a_connection_with_a_request_is_kept_and_silent_connections_are_closed() {
        let address = running(Limits { max_connections: 2, ..Limits::default() });
        let mut asked = sent(address, "GET /begins HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut bytes = [0; 4096];
        assert!(asked.read(&mut bytes).await.unwrap() > 0);
        for _ in 0..8 {
            // The server must close the first of two silent connections.
            let first = sent(address, HALF).await;
            let _second = sent(address, HALF).await;
            rest(first).await;
        }
        let read = std::iter::repeat_with(|| asked.try_read(&mut bytes)).find(|read| !matches!(read, Ok(1..)));
        assert!(read.unwrap().is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock), "the connection is still open");
    }
}
