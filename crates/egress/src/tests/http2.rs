//! Correct and faulty receivers over HTTP/2. The tests write frames manually (RFC 9113), because no library sends such frames.

use std::io::{Read as _, Write as _};

use rcgen::KeyPair;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::tls::{authority, issued_for, trusting_ca};
use super::*;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const REFUSED_STREAM: u32 = 7;
/// `:status: 200` of the static table (RFC 7541, appendix A).
pub(super) const STATUS_200: u8 = 0x88;

/// The receiver's side of one connection.
pub(super) struct Peer(StreamOwned<ServerConnection, std::net::TcpStream>);

/// One request: its stream, and the number of earlier requests on its connection.
pub(super) struct Asked {
    pub(super) stream: u32,
    earlier: usize,
}

impl Peer {
    /// Writes a frame. Returns whether it was sent.
    pub(super) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat()).and_then(|()| self.0.flush()).is_ok()
    }

    /// Writes this number of meaningless frames at once. Returns whether they were sent.
    fn nothing(&mut self, frames: usize) -> bool {
        const UNKNOWN: u8 = 0x42;
        self.0.write_all(&[0, 0, 0, UNKNOWN, 0, 0, 0, 0, 0].repeat(frames)).and_then(|()| self.0.flush()).is_ok()
    }

    fn ok(&mut self, stream: u32, body: &[u8]) -> bool {
        self.frame(HEADERS, END_HEADERS, stream, &[STATUS_200]) && self.frame(DATA, END_STREAM, stream, body)
    }

    /// The next complete request; `None` if the connection has ended.
    fn next(&mut self, earlier: usize) -> Option<Asked> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut payload).ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match (head[3], head[4]) {
                (SETTINGS, 0) => drop(self.frame(SETTINGS, 1, 0, &[])),
                (PING, 0) => drop(self.frame(PING, 1, 0, &payload)),
                (DATA | HEADERS, flags) if flags & END_STREAM != 0 => return Some(Asked { stream, earlier }),
                _ => {}
            }
        }
    }
}

/// A receiver with only HTTP/2. It calls `serve` for each request, and closes the connection when `serve` returns false.
pub(super) struct Http2 {
    pub(super) sender: Sender,
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Http2 {
    pub(super) fn new(serve: impl Fn(&mut Peer, &Asked) -> bool + Send + Sync + 'static) -> Self {
        provider();
        let ca = authority();
        let (certificate, key) = issued_for("127.0.0.1", &ca);
        let config = offering_http2(&certificate, &key);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(serve));
        let count = Arc::clone(&connections);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let (config, serve) = (Arc::clone(&config), Arc::clone(&serve));
                std::thread::spawn(move || {
                    let mut peer = Peer(StreamOwned::new(ServerConnection::new(config).unwrap(), stream.unwrap()));
                    let mut preface = [0; 24];
                    if peer.0.read_exact(&mut preface).is_err() || !peer.frame(SETTINGS, 0, 0, &[]) {
                        return;
                    }
                    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
                    for earlier in 0.. {
                        let Some(asked) = peer.next(earlier) else { return };
                        if !serve(&mut peer, &asked) {
                            return;
                        }
                    }
                });
            }
        });
        Self { sender: trusting_ca(&ca, None), address, connections }
    }

    async fn send(&self) -> Attempt {
        self.send_within(10 * SHORT).await
    }

    async fn send_within(&self, timeout: Duration) -> Attempt {
        let url = format!("https://{}/hook", self.address).parse().unwrap();
        self.sender.send(Outgoing { timeout, ..to(Destination::Url(url)) }).await
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub(super) fn offering_http2(certificate: &rcgen::Certificate, key: &KeyPair) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let chain = vec![certificate.der().clone()];
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

#[tokio::test]
async fn all_requests_share_one_connection_with_http2() {
    let receiver = Http2::new(|peer, asked| peer.ok(asked.stream, b"ok"));
    let first = receiver.send().await;
    assert_eq!((first.result.status(), body(&first)), (Some(200), "ok"));
    let attempts = futures::future::join_all((0..100).map(|_| receiver.send())).await;
    assert!(attempts.iter().all(|a| a.result.status() == Some(200) && body(a) == "ok"), "{attempts:?}");
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_request_that_the_connection_aborts_is_retried_on_schedule() {
    let refused = |peer: &mut Peer, asked: &Asked| peer.frame(RST_STREAM, 0, asked.stream, &REFUSED_STREAM.to_be_bytes());
    let reset = |peer: &mut Peer, asked: &Asked| peer.frame(RST_STREAM, 0, asked.stream, &2_u32.to_be_bytes());
    // It processes no request of this connection, and announces that it closes it.
    let leaving = |peer: &mut Peer, _: &Asked| {
        peer.frame(GOAWAY, 0, 0, &[0; 8]);
        false
    };
    let gone = |_: &mut Peer, _: &Asked| false;
    let receivers = [Http2::new(refused), Http2::new(reset), Http2::new(leaving), Http2::new(gone)];
    for (number, receiver) in receivers.iter().enumerate() {
        let attempt = receiver.send().await;
        assert_eq!(failure(&attempt).kind, FailureKind::Closed, "{number}: {attempt:?}");
        let verdict = Verdict::Retry { not_before: None, reason: Reason::ConnectionFailed };
        assert_eq!(classify(&attempt.result, 0), verdict);
        assert_eq!(receiver.connections(), 1, "{number}: only the schedule retries");
    }
}

#[tokio::test]
async fn the_next_request_after_goaway_has_a_new_connection() {
    let receiver = Http2::new(|peer, asked| {
        peer.ok(asked.stream, b"ok");
        // The receiver has accepted all requests up to this one, and accepts no later ones.
        let last = [asked.stream.to_be_bytes(), [0; 4]].concat();
        peer.frame(GOAWAY, 0, 0, &last) && asked.earlier > 0
    });
    for count in 1..=3 {
        assert_eq!(receiver.send().await.result.status(), Some(200));
        assert_eq!(receiver.connections(), count);
    }
}

/// A header that is not in the table: `x-x: …`.
fn header(length: usize) -> Vec<u8> {
    let mut block = vec![0, 3];
    block.extend(b"x-x");
    // An integer with a prefix of 7 bits (RFC 7541, section 5.1).
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).unwrap() + 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
    block.extend(vec![b'a'; length]);
    block
}

#[tokio::test]
async fn an_answer_with_too_many_headers_is_a_failure() {
    let long = |peer: &mut Peer, asked: &Asked| {
        let block = [vec![STATUS_200], header(15_000)].concat();
        peer.frame(HEADERS, END_STREAM, asked.stream, &block)
            && peer.frame(CONTINUATION, END_HEADERS, asked.stream, &header(15_000))
    };
    let endless = |peer: &mut Peer, asked: &Asked| {
        peer.frame(HEADERS, END_STREAM, asked.stream, &[STATUS_200]);
        while peer.frame(CONTINUATION, 0, asked.stream, &header(15_000)) {}
        false
    };
    // A header of four kilobytes is added to the table once, and referenced ten thousand times with one byte each.
    let table = |peer: &mut Peer, asked: &Asked| {
        let mut entry = header(3_900);
        entry[0] = 0x40;
        let block = [vec![STATUS_200], entry, vec![0x80 + 62; 10_000]].concat();
        peer.frame(HEADERS, END_STREAM | END_HEADERS, asked.stream, &block)
    };
    for receiver in [Http2::new(long), Http2::new(endless), Http2::new(table)] {
        let attempt = receiver.send().await;
        assert_eq!(failure(&attempt).kind, FailureKind::Closed, "{attempt:?}");
    }
}

#[tokio::test]
async fn an_answer_that_never_starts_or_never_ends_ends_at_the_timeout() {
    // `:status: 103` as a literal.
    let hints = |peer: &mut Peer, asked: &Asked| {
        while peer.frame(HEADERS, END_HEADERS, asked.stream, &[0x08, 3, b'1', b'0', b'3']) {}
        false
    };
    let endless = |peer: &mut Peer, asked: &Asked| {
        peer.frame(HEADERS, END_HEADERS, asked.stream, &[STATUS_200]);
        // The maximum amount that is allowed, byte by byte, without an end.
        while peer.frame(DATA, 0, asked.stream, b"x") {
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    };
    let attempt = Http2::new(hints).send().await;
    assert_eq!(failure(&attempt).kind, FailureKind::Timeout, "{attempt:?}");
    assert!(attempt.duration < LONG / 3, "{:?}", attempt.duration);
    let attempt = Http2::new(endless).send().await;
    assert_eq!(attempt.result.status(), Some(200), "the head of the answer decides");
    assert!(attempt.duration < LONG / 3, "{:?}", attempt.duration);
}

#[tokio::test]
async fn a_receiver_can_send_ahead_only_a_little() {
    // It ignores the window, so its connection is closed.
    let floods = |peer: &mut Peer, asked: &Asked| {
        peer.frame(HEADERS, END_HEADERS, asked.stream, &[STATUS_200]);
        while peer.frame(DATA, 0, asked.stream, &[b'y'; 16_000]) {}
        false
    };
    let attempt = Http2::new(floods).send().await;
    assert_eq!(attempt.result.status(), Some(200));
    assert!(attempt.duration < LONG / 3, "{:?}", attempt.duration);
}

/// A time much shorter than that for which an idle connection is kept.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_meaningless_frames_ends_with_the_request() {
    let (left, ended) = std::sync::mpsc::channel();
    let receiver = Http2::new(move |peer, _| {
        while peer.nothing(1000) {}
        _ = left.send(());
        false
    });
    let attempt = receiver.send_within(SHORT).await;
    // On a busy machine the flood can arrive before the request counts as in flight. Then the connection is closed at once.
    assert!(matches!(failure(&attempt).kind, FailureKind::Timeout | FailureKind::Closed), "{attempt:?}");
    let ended = tokio::task::spawn_blocking(move || ended.recv_timeout(SOON)).await.unwrap();
    ended.expect("the connection of a request that has timed out is closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_a_request_accepts_only_a_little_data() {
    let (left, ended) = std::sync::mpsc::channel();
    let receiver = Http2::new(move |peer, asked| {
        let answered = peer.ok(asked.stream, b"ok");
        // 27,000 bytes, and a little more with TLS.
        if asked.earlier == 0 {
            return answered && peer.nothing(3000);
        }
        while peer.nothing(1000) {}
        _ = left.send(());
        false
    });
    assert_eq!(receiver.send().await.result.status(), Some(200));
    assert_eq!(receiver.send().await.result.status(), Some(200));
    assert_eq!(receiver.connections(), 1, "a little is no reason to close a connection");
    let ended = tokio::task::spawn_blocking(move || ended.recv_timeout(SOON)).await.unwrap();
    ended.expect("a connection with much data and no request is closed");
    assert_eq!(receiver.send().await.result.status(), Some(200));
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_times_out_does_not_end_other_requests() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let receiver = Arc::new(Http2::new(move |peer, asked| match count.fetch_add(1, Ordering::SeqCst) {
        0 => true,
        1 => {
            // The first request times out in the meantime.
            std::thread::sleep(4 * SHORT);
            peer.ok(asked.stream, b"ok")
        }
        _ => peer.ok(asked.stream, b"ok"),
    }));
    let first = tokio::spawn({
        let receiver = Arc::clone(&receiver);
        async move { receiver.send_within(2 * SHORT).await }
    });
    while asked.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let second = receiver.send().await;
    assert_eq!(failure(&first.await.unwrap()).kind, FailureKind::Timeout);
    assert_eq!(second.result.status(), Some(200), "{second:?}");
    assert_eq!(receiver.connections(), 1);
    assert_eq!(receiver.send().await.result.status(), Some(200));
    assert_eq!(receiver.connections(), 2, "the next request has a new connection");
}
