//! Tests of the sender with real sockets on loopback.

use parking_lot::Mutex;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::secrets::tests::secret;
use super::*;
use relaybook_api::delivery::Reason;
use relaybook_api::notification::Method;
use relaybook_api::notification::credentials::{AuthRef, SecretKey, TlsRef};
use relaybook_telemetry::Metrics;

mod addresses;
mod connections;
mod credentials;
mod exchange;
mod export;
mod frozen;
mod hostile;
mod http2;
mod logins;
mod look_ups;
mod proxy;
mod success;
mod threads;
mod tls;
mod tokens;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// A timeout that is much longer than any request here.
const LONG: Duration = Duration::from_secs(30);
/// A timeout for receivers whose answer never ends.
const SHORT: Duration = Duration::from_millis(300);

/// Installs the TLS provider, as `main` does.
pub fn provider() {
    _ = rustls::crypto::ring::default_provider().install_default();
}

/// A listener that counts connections and records requests.
struct Receiver {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
}

/// The receiver's side of one connection.
struct Peer {
    stream: TcpStream,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    /// Passes every connection to `serve`.
    async fn new<F: Future<Output = ()> + Send + 'static>(serve: impl Fn(Peer) -> F + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::<Mutex<Vec<_>>>::default());
        let (counter, log) = (Arc::clone(&connections), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(Peer { stream, requests: Arc::clone(&log) }));
            }
        });
        Self { address, connections, requests }
    }

    /// Answers every request with these bytes.
    async fn answering(answer: impl Into<String>) -> Self {
        let answer = answer.into();
        Self::new(move |mut peer| {
            let answer = answer.clone();
            async move { while peer.request().await.is_some() && peer.write(&answer).await {} }
        })
        .await
    }

    fn url(&self, path: &str) -> Destination {
        Destination::Url(format!("http://{}{path}", self.address).parse().unwrap())
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

impl Peer {
    /// Reads one request with its body; `None` if the connection has ended.
    async fn request(&mut self) -> Option<String> {
        let mut text = String::new();
        let whole = |text: &str| {
            let (head, body) = text.split_once("\r\n\r\n")?;
            let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
            (body.len() >= length).then_some(())
        };
        while whole(&text).is_none() {
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer).await {
                Ok(n) if n > 0 => text.push_str(std::str::from_utf8(&buffer[..n]).unwrap()),
                _ => return None,
            }
        }
        self.requests.lock().push(text.clone());
        Some(text)
    }

    /// Whether the bytes were sent.
    async fn write(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).await.is_ok()
    }

    /// Writes single bytes until the other side closes the connection.
    async fn drip(&mut self) {
        while self.write("x").await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn to(destination: Destination) -> Outgoing {
    Outgoing {
        until: relaybook_api::since_boot() + LONG,
        destination,
        method: Method::Post,
        headers: vec![(CONTENT_TYPE, "application/json".parse().unwrap())],
        body: Bytes::from_static(b"{\"a\":1}"),
        id: "msg-1".to_owned(),
        trace_parent: None,
        auth: None,
        headers_from: None,
        signing: None,
        tls: TlsRef::default(),
        timeout: LONG,
        connect_timeout: Duration::from_secs(5),
        success: None,
        thread: None,
        hidden: Hidden::default(),
        withhold_answer: false,
        is_test: false,
    }
}

fn lax() -> Policy {
    let allow = ["127.0.0.0/8", "::1/128"].map(|net| net.parse().unwrap()).to_vec();
    Policy { allow, deny: Vec::new(), allow_http: true }
}

fn sender_with(policy: Policy, secrets: Secrets) -> Sender {
    provider();
    Sender::new(policy, secrets, Metrics::new()).unwrap()
}

fn sender() -> Sender {
    sender_with(lax(), Secrets::fixed([]))
}

fn key(key: &str) -> SecretKey {
    SecretKey::new("team-a", "chat", key)
}

fn with_secret(data: &[(&str, &str)]) -> Secrets {
    Secrets::fixed(data.iter().map(|(k, v)| (key(k), (*v).to_owned())))
}

fn token(header: HeaderName, scheme: &str) -> AuthRef {
    AuthRef::Token { secret: key("token"), header, scheme: scheme.to_owned() }
}

fn failure(attempt: &Attempt) -> &Failure {
    let AttemptResult::Failed(failure) = &attempt.result else { panic!("{attempt:?}") };
    failure
}

fn body(attempt: &Attempt) -> &str {
    let AttemptResult::Answered { body, .. } = &attempt.result else { panic!("{attempt:?}") };
    body
}

#[tokio::test]
async fn a_request_has_the_rendered_parts_and_the_standard_headers() {
    let receiver = Receiver::answering(OK).await;
    let mut out = to(receiver.url("/hook?x=1"));
    out.method = Method::Put;
    out.headers.push((HeaderName::from_static("x-team"), "a".parse().unwrap()));
    out.headers.push((HeaderName::from_static("webhook-id"), "forged".parse().unwrap()));
    out.headers.push((HeaderName::from_static("user-agent"), "forged".parse().unwrap()));
    provider();
    let metrics = Metrics::new();
    let sender = Sender::new(lax(), Secrets::fixed([]), metrics.clone()).unwrap();
    let attempt = sender.send(out).await;

    assert_eq!(attempt.result.status(), Some(200));
    assert_eq!((body(&attempt), attempt.result.error()), ("ok", None));
    let request = receiver.requests().remove(0);
    assert!(request.starts_with("PUT /hook?x=1 HTTP/1.1\r\n"), "{request}");
    for line in [
        "content-type: application/json".to_owned(),
        "content-length: 7".to_owned(),
        "x-team: a".to_owned(),
        "webhook-id: msg-1".to_owned(),
        format!("webhook-timestamp: {}", attempt.started.as_second()),
        format!("user-agent: relaybook/{}", env!("CARGO_PKG_VERSION")),
        format!("host: {}", receiver.address),
    ] {
        assert_eq!(request.lines().filter(|l| *l == line).count(), 1, "{line} in {request}");
    }
    assert!(!request.contains("forged") && !request.contains("accept-encoding"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"a\":1}"), "{request}");
    let metrics = metrics.encode().unwrap();
    assert!(metrics.contains("relaybook_attempts_total{class=\"2xx\"} 1\n"), "{metrics}");
    assert!(metrics.contains("relaybook_request_duration_seconds_count 1\n"), "{metrics}");
}

#[tokio::test]
async fn answers_are_returned_unchanged() {
    for status in [201, 202, 400, 404, 429, 500, 503] {
        let head = format!("HTTP/1.1 {status} X\r\nretry-after: 3\r\ncontent-length: 4\r\n\r\nnope");
        let receiver = Receiver::answering(head).await;
        let attempt = sender().send(to(receiver.url("/"))).await;
        let expected = AttemptResult::Answered {
            status,
            judged: None,
            retry_after: Some(Duration::from_secs(3)),
            redirect: None,
            body: "nope".to_owned(),
            rotated: false,
        };
        assert_eq!(attempt.result, expected);
    }
    let receiver = Receiver::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(sender().send(to(receiver.url("/"))).await.result.status(), Some(204));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let second = Receiver::answering(OK).await;
    let sender = sender_with(lax(), with_secret(&[("token", "s3cr3t")]));
    for status in [300, 301, 302, 303, 305, 307, 308] {
        let head = format!("HTTP/1.1 {status} X\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n", second.address);
        let first = Receiver::answering(head).await;
        let mut out = to(first.url("/"));
        out.auth = Some(token(AUTHORIZATION, "Bearer"));
        let attempt = sender.send(out).await;
        assert_eq!(attempt.result.status(), Some(status));
        assert_eq!(classify(&attempt.result, 0), Verdict::Parked { reason: Reason::Redirected });
        let said = attempt.result.error().unwrap();
        assert!(said.ends_with(&format!(": to http://{}", second.address)), "{said}");
    }
    assert_eq!(second.connections(), 0);
}

#[tokio::test]
async fn a_redirect_is_shown_without_what_is_secret() {
    for (location, said) in [
        ("https://me:s3cr3t@a.example:99/x?token=s3cr3t", "302 Found: to https://a.example:99"),
        ("/login?next=s3cr3t", "302 Found: to another path of the receiver"),
        ("mailto:s3cr3t", "302 Found"),
        ("https://s3cr3t.example/", "302 Found: to https://***.example"),
    ] {
        let receiver =
            Receiver::answering(format!("HTTP/1.1 302 X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n")).await;
        // A segment of the URL is a Secret.
        let sender = sender_with(lax(), with_secret(&[("url", &format!("http://{}/s3cr3t", receiver.address))]));
        let out = to(Destination::Secret(key("url")));
        assert_eq!(sender.send(out).await.result.error().as_deref(), Some(said), "{location}");
    }
    // An address that comes from a Secret is masked, also with another scheme.
    let head = "HTTP/1.1 301 X\r\nlocation: https://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::answering(head).await;
    let sender = sender_with(lax(), with_secret(&[("url", &format!("http://{}/hook", receiver.address))]));
    let said = sender.send(to(Destination::Secret(key("url")))).await.result.error();
    assert_eq!(said.as_deref(), Some("301 Moved Permanently: to https://***:1"));
}

#[tokio::test]
async fn a_request_to_a_receiver_that_never_ends_its_answer_ends_at_the_timeout() {
    let silent = Receiver::new(async |mut peer| while peer.request().await.is_some() {}).await;
    let drips_head = Receiver::new(async |mut peer| {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\nx-long: ").await;
        peer.drip().await;
    })
    .await;
    let drips_body = Receiver::new(async |mut peer| {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await;
        peer.drip().await;
    })
    .await;
    let sender = sender();
    for (receiver, answered) in [(silent, false), (drips_head, false), (drips_body, true)] {
        let begun = Instant::now();
        let attempt = sender.send(Outgoing { timeout: SHORT, ..to(receiver.url("/")) }).await;
        assert!(begun.elapsed() >= SHORT && begun.elapsed() < LONG / 3, "{:?}", begun.elapsed());
        assert!(attempt.duration <= begun.elapsed());
        if answered {
            assert_eq!(attempt.result.status(), Some(200), "the head of the answer decides");
            assert!(body(&attempt).starts_with("xx"), "{attempt:?}");
        } else {
            assert_eq!(failure(&attempt).kind, FailureKind::Timeout);
            assert_eq!(failure(&attempt).text, format!("no answer from {} within 300ms", receiver.address));
        }
    }
}

#[tokio::test]
async fn an_invalid_answer_is_a_failure() {
    let many_headers = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(1000));
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-le", "SSH-2.0-OpenSSH_9.9\r\n", &many_headers] {
        let answer = answer.to_owned();
        let receiver = Receiver::new(move |mut peer| {
            let answer = answer.clone();
            async move {
                peer.request().await;
                peer.write(&answer).await;
            }
        })
        .await;
        let attempt = sender().send(to(receiver.url("/"))).await;
        assert_eq!(failure(&attempt).kind, FailureKind::Closed, "{attempt:?}");
    }
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let attempt = sender().send(to(Destination::Url(format!("http://{gone}/").parse().unwrap()))).await;
    assert_eq!(failure(&attempt).kind, FailureKind::Connect);
    assert_eq!(failure(&attempt).text, format!("no connection to {gone}: connection refused"));
}

#[tokio::test]
async fn messages_contain_host_and_port_unless_the_url_is_a_secret() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    // The resolver rejects a label of 64 characters without a DNS query.
    let nowhere = format!("{}.example", "a".repeat(64));
    for (url, words) in [
        (format!("http://{gone}/hook?key=sesame"), format!("no connection to {gone}: connection refused")),
        (format!("http://{nowhere}/hook?key=sesame"), format!("the name of {nowhere}:80 could not be resolved")),
    ] {
        let attempt = sender().send(to(Destination::Url(url.parse().unwrap()))).await;
        assert_eq!(failure(&attempt).text, words);
    }
    for (url, words) in [
        (format!("http://{gone}/hook?key=sesame"), "no connection: connection refused"),
        (format!("http://{nowhere}/hook?key=sesame"), "the name could not be resolved"),
    ] {
        let key = SecretKey::new("team-a", "hook", "url");
        let secrets = Secrets::fixed([(key.clone(), url)]);
        let sender = Sender::new(lax(), secrets, Metrics::new()).unwrap();
        let attempt = sender.send(to(Destination::Secret(key))).await;
        assert_eq!(failure(&attempt).text, words);
    }
}

#[tokio::test]
async fn only_the_beginning_of_a_long_body_is_read() {
    const CHUNK: usize = 1 << 16;
    const CHUNKS: usize = 1 << 10;
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    let (done, mut all_done) = tokio::sync::mpsc::channel(1);
    let receiver = Receiver::new(move |mut peer| {
        let (count, done) = (Arc::clone(&count), done.clone());
        async move {
            peer.request().await;
            peer.write(&format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", CHUNK * CHUNKS)).await;
            let chunk = "y".repeat(CHUNK);
            while count.load(Ordering::SeqCst) < CHUNKS && peer.write(&chunk).await {
                count.fetch_add(1, Ordering::SeqCst);
            }
            done.send(()).await.unwrap();
        }
    })
    .await;
    let attempt = sender().send(to(receiver.url("/"))).await;
    assert_eq!(body(&attempt), "y".repeat(256));
    all_done.recv().await.unwrap();
    assert!(written.load(Ordering::SeqCst) < CHUNKS / 2, "64 MiB were read");
}
