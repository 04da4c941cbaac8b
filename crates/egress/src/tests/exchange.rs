//! Requests to forges and Git servers: the whole answer arrives in time and within its limit, or there is none.

use std::convert::Infallible;

use http::{HeaderValue, Method as HttpMethod, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::hostile::flooding;
use super::http2::{DATA, END_HEADERS, HEADERS, Http2, RST_STREAM, STATUS_200, offering_http2};
use super::tls::{authority, issued_for, trusting_ca};
use super::*;
use crate::request::timely::Timely;
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::Authorities;

const MIB: usize = 1024 * 1024;

pub(super) fn asking(url: impl AsRef<str>) -> ForgeRequest {
    ForgeRequest {
        url: url.as_ref().parse().unwrap(),
        method: HttpMethod::GET,
        headers: Vec::new(),
        body: Bytes::new(),
        login: None,
        tls: TlsRef::default(),
        timeout: LONG,
        until: relaybook_api::since_boot() + LONG,
        connect_timeout: Duration::from_secs(5),
        limit: 8 * MIB,
    }
}

pub(super) fn of(server: &Receiver, path: &str) -> ForgeRequest {
    asking(format!("http://{}{path}", server.address))
}

pub(super) fn named() -> ObjectName {
    key("").secret()
}

pub(super) fn bearer() -> Login {
    Login::Token { secret: named(), header: AUTHORIZATION, scheme: "Bearer", app: None }
}

pub(super) fn git() -> Login {
    Login::Git { secret: named(), user: "x-access-token", app: None }
}

/// Bytes whose order is visible, and which are not text.
fn pack(length: usize) -> Bytes {
    (0..length).map(|at| u8::try_from((at / 7 + at / 251) % 256).unwrap()).collect()
}

/// A server that writes these bytes for each request, and then closes the connection.
async fn closing(answer: impl Into<Vec<u8>>) -> Receiver {
    let answer = Bytes::from(answer.into());
    Receiver::new(move |mut peer| {
        let answer = answer.clone();
        async move {
            peer.request().await;
            _ = peer.stream.write_all(&answer).await;
        }
    })
    .await
}

pub(super) fn failed(result: Result<Answer, Unanswered>) -> Failure {
    let Err(Unanswered::Failed(failure)) = result else { panic!("{result:?}") };
    failure
}

pub(super) fn not_sent(result: Result<Answer, Unanswered>) -> NotSent {
    let Err(Unanswered::NotSent(why)) = result else { panic!("{result:?}") };
    why
}

#[tokio::test]
async fn a_whole_answer_arrives_over_http1() {
    let body = pack(5 * MIB);
    let known = format!("HTTP/1.1 201 X\r\nx-page: 2\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    let chunks: Vec<u8> = body
        .chunks(70_000)
        .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
        .collect();
    let chunked = b"HTTP/1.1 201 X\r\nx-page: 2\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let until_close = b"HTTP/1.1 201 X\r\nx-page: 2\r\n\r\n".to_vec();
    for answer in [
        [known, body.to_vec()].concat(),
        [chunked, chunks, b"0\r\n\r\n".to_vec()].concat(),
        [until_close, body.to_vec()].concat(),
    ] {
        let server = closing(answer).await;
        // A body of exactly the limit is not too large.
        let answer = sender().ask(ForgeRequest { limit: body.len(), ..of(&server, "/") }).await.unwrap();
        assert_eq!((answer.status, &answer.headers["x-page"]), (201, &HeaderValue::from_static("2")));
        assert!(answer.body == body, "{} bytes", answer.body.len());
    }
}

/// A server with TLS and HTTP/2. It answers with `body`, on the path `/late` after a permit, and on the path `/never` not at all.
async fn over_http2(body: Bytes, permits: Arc<Semaphore>) -> (SocketAddr, Sender, Arc<AtomicUsize>) {
    provider();
    let ca = authority();
    let (certificate, key) = issued_for("127.0.0.1", &ca);
    let acceptor = TlsAcceptor::from(offering_http2(&certificate, &key));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let (body, permits) = (body.clone(), Arc::clone(&permits));
            let service = service_fn(move |request: Request<Incoming>| {
                let (body, permits) = (body.clone(), Arc::clone(&permits));
                async move {
                    match request.uri().path() {
                        "/late" => permits.acquire().await.unwrap().forget(),
                        "/never" => std::future::pending().await,
                        _ => {}
                    }
                    Ok::<_, Infallible>(Response::new(Timely::new(body, Duration::MAX)))
                }
            });
            // Fails if the client does not trust the certificate.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let stream = TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service));
        }
    });
    (address, trusting_ca(&ca, None), connections)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_answer_arrives_over_http2() {
    let body = pack(5 * MIB);
    let (address, sender, connections) = over_http2(body.clone(), Arc::new(Semaphore::new(0))).await;
    let ask = || sender.ask(asking(format!("https://{address}/")));
    assert!(ask().await.unwrap().body == body);
    let answers = futures::future::join_all((0..4).map(|_| ask())).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap().body == body));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_does_not_cut_off_another_answer_on_the_connection() {
    let body = pack(5 * MIB);
    let permits = Arc::new(Semaphore::new(0));
    let (address, sender, connections) = over_http2(body.clone(), Arc::clone(&permits)).await;
    let at = |path| asking(format!("https://{address}{path}"));
    sender.ask(at("/")).await.unwrap();
    let late = sender.ask(at("/late"));
    let timed_out = async {
        let result = sender.ask(ForgeRequest { timeout: SHORT, ..at("/never") }).await;
        permits.add_permits(1);
        result
    };
    let (late, timed_out) = tokio::join!(late, timed_out);
    assert_eq!(failed(timed_out).kind, FailureKind::Timeout);
    assert!(late.unwrap().body == body);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_can_send_a_megabyte_ahead() {
    // It ignores updates of the window.
    let fills = |window: usize| {
        Http2::new(move |peer, asked| {
            peer.frame(HEADERS, END_HEADERS, asked.stream, &[STATUS_200]);
            (0..window / 16_384).all(|_| peer.frame(DATA, 0, asked.stream, &[b'y'; 16_384]))
                && peer.frame(DATA, 1, asked.stream, b"")
        })
    };
    let server = fills(MIB);
    let answer = server.sender.ask(asking(format!("https://{}/", server.address))).await.unwrap();
    assert_eq!(answer.body.len(), MIB);
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_not_read() {
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let huge = "HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n";
    let until_close = "HTTP/1.1 200 OK\r\n\r\n";
    for (before, again, limit) in [
        (chunks, "4\r\nabcd\r\n", 64 * 1024),
        (huge, "abcd", 64 * 1024),
        (until_close, "abcd", 64 * 1024),
        (until_close, "abcd", 0),
    ] {
        let (server, mut left) = flooding(before, again).await;
        let begun = Instant::now();
        let result = sender().ask(ForgeRequest { limit, ..of(&server, "/") }).await;
        assert_eq!(result.unwrap_err(), Unanswered::TooLarge(limit), "{before}");
        assert!(begun.elapsed() < LONG / 3, "{:?}", begun.elapsed());
        let written = left.recv().await.expect("the connection is closed");
        // The buffers of two sockets, and what the library reads ahead.
        assert!(written < 16 * MIB, "{before}: {written} bytes were written");
    }
    let text = Unanswered::TooLarge(65_536).to_string();
    assert_eq!(text, "the answer is larger than 65536 bytes");
}

#[tokio::test]
async fn one_byte_more_than_the_limit_is_too_much() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabcde",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n1\r\ne\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nabcde",
    ] {
        let server = closing(answer).await;
        let ask = async |limit| sender().ask(ForgeRequest { limit, ..of(&server, "/") }).await;
        assert_eq!(ask(4).await.unwrap_err(), Unanswered::TooLarge(4), "{answer}");
        assert_eq!(ask(5).await.unwrap().body, "abcde", "{answer}");
    }
}

#[tokio::test]
async fn half_an_answer_is_no_answer() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabcde",
        // This length is below the limit, but not true. No memory is reserved for it.
        "HTTP/1.1 200 OK\r\ncontent-length: 8388608\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\nxyz",
    ] {
        let server = closing(answer).await;
        let failure = failed(sender().ask(of(&server, "/")).await);
        assert_eq!(failure.kind, FailureKind::Closed, "{answer}");
        assert_eq!(failure.text, format!("the answer from {} ended too early", server.address));
    }
    let reset = Http2::new(|peer, asked| {
        peer.frame(HEADERS, END_HEADERS, asked.stream, &[STATUS_200]);
        peer.frame(DATA, 0, asked.stream, b"abcde");
        peer.frame(RST_STREAM, 0, asked.stream, &2_u32.to_be_bytes())
    });
    let failure = failed(reset.sender.ask(asking(format!("https://{}/", reset.address))).await);
    assert_eq!(failure.kind, FailureKind::Closed);
}

#[tokio::test]
async fn a_late_answer_is_no_answer() {
    let silent = Receiver::new(async |mut peer| while peer.request().await.is_some() {}).await;
    let drips = Receiver::new(async |mut peer| {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await;
        peer.drip().await;
    })
    .await;
    for (server, words) in [(silent, "no answer"), (drips, "no complete answer")] {
        let begun = Instant::now();
        let failure = failed(sender().ask(ForgeRequest { timeout: SHORT, ..of(&server, "/") }).await);
        assert!(begun.elapsed() >= SHORT && begun.elapsed() < LONG / 3, "{:?}", begun.elapsed());
        assert_eq!(failure.kind, FailureKind::Timeout);
        assert_eq!(failure.text, format!("{words} from {} within 300ms", server.address));
    }
}

#[tokio::test]
async fn a_request_has_only_its_own_headers() {
    let server = Receiver::answering(OK).await;
    let sender = sender();
    let set = |name: &'static str| (HeaderName::from_static(name), HeaderValue::from_static("forged"));
    let headers = ["user-agent", "webhook-id", "accept-encoding", "transfer-encoding", "content-length", "x-own"].map(set);
    let ask = async |method: HttpMethod, body: &'static str| {
        let body = Bytes::from_static(body.as_bytes());
        let request = ForgeRequest { method, body, headers: headers.to_vec(), ..of(&server, "/repos?x=1") };
        sender.ask(request).await.unwrap();
        server.requests().pop().unwrap()
    };
    for (method, body, length) in [
        (HttpMethod::GET, "", None),
        (HttpMethod::DELETE, "", None),
        (HttpMethod::POST, "", Some(0)),
        (HttpMethod::PUT, "", Some(0)),
        (HttpMethod::POST, "{}", Some(2)),
        (HttpMethod::PATCH, "{}", Some(2)),
        (HttpMethod::DELETE, "{}", Some(2)),
    ] {
        let request = ask(method.clone(), body).await;
        assert!(request.starts_with(&format!("{method} /repos?x=1 HTTP/1.1\r\n")), "{request}");
        assert!(request.ends_with(&format!("\r\n\r\n{body}")), "{request}");
        let lines: Vec<_> = request.lines().filter(|l| l.starts_with("content-length")).collect();
        assert_eq!(lines, length.map(|n| format!("content-length: {n}")).iter().collect::<Vec<_>>(), "{request}");
        assert!(request.contains(concat!("user-agent: relaybook/", env!("CARGO_PKG_VERSION"), "\r\n")), "{request}");
        assert!(request.contains("accept: */*\r\n") && request.matches("forged").count() == 1, "{request}");
        assert!(!request.contains("webhook-") && !request.contains("encoding"), "{request}");
    }
    assert_eq!(server.connections(), 1, "the connection is used again");
    let why = not_sent(sender.ask(ForgeRequest { method: HttpMethod::CONNECT, ..of(&server, "/") }).await);
    assert!(matches!(why, NotSent::InvalidRequest(_)), "{why:?}");
}

#[tokio::test]
async fn a_large_body_is_sent_completely() {
    let body = Bytes::from("push".repeat(MIB / 2));
    let server = Receiver::answering(OK).await;
    let request = ForgeRequest { method: HttpMethod::POST, body: body.clone(), ..of(&server, "/git-receive-pack") };
    assert_eq!(sender().ask(request).await.unwrap().status, 200);
    let sent = server.requests().remove(0);
    assert!(sent.contains("content-length: 2097152\r\n") && sent.as_bytes().ends_with(&body), "{} bytes", sent.len());
}

#[tokio::test]
async fn no_request_is_sent_after_its_deadline() {
    let server = Receiver::answering(OK).await;
    let sender = sender();
    for (method, body) in [(HttpMethod::GET, ""), (HttpMethod::POST, ""), (HttpMethod::POST, "{}")] {
        let (until, body) = (relaybook_api::since_boot(), Bytes::from_static(body.as_bytes()));
        let failure = failed(sender.ask(ForgeRequest { method, body, until, ..of(&server, "/") }).await);
        assert_eq!(failure.kind, FailureKind::Timeout);
    }
    assert_eq!(server.requests(), [""; 0]);
}

#[tokio::test]
async fn requests_are_counted_and_are_no_attempts() {
    provider();
    let metrics = Metrics::new();
    let sender = Sender::new(lax(), Secrets::fixed([]), metrics.clone()).unwrap();
    for status in [200, 201, 302, 404, 503] {
        let server = Receiver::answering(format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok")).await;
        assert_eq!(sender.ask(of(&server, "/")).await.unwrap().status, status);
    }
    let server = Receiver::answering(OK).await;
    sender.ask(ForgeRequest { limit: 1, ..of(&server, "/") }).await.unwrap_err();
    sender.ask(ForgeRequest { login: Some(git()), ..of(&server, "/") }).await.unwrap_err();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let failure = failed(sender.ask(asking(format!("http://{gone}/"))).await);
    assert_eq!(failure.text, format!("no connection to {gone}: connection refused"));
    let text = metrics.encode().unwrap();
    for (class, count) in [("2xx", 2), ("3xx", 1), ("4xx", 1), ("5xx", 1), ("too_large", 1), ("not_sent", 1), ("network", 1)]
    {
        let line = format!("relaybook_forge_requests_total{{class=\"{class}\"}} {count}\n");
        assert!(text.contains(&line), "{line} in {text}");
        let attempts = format!("relaybook_attempts_total{{class=\"{class}\"}} ");
        assert!(text.lines().filter(|l| l.starts_with(&attempts)).all(|l| l.ends_with(" 0")), "{text}");
    }
    assert!(text.contains("relaybook_request_duration_seconds_count 0\n"), "{text}");
}

#[tokio::test]
async fn certificates_are_verified_as_for_deliveries() {
    let (address, _, _) = over_http2(pack(10), Arc::new(Semaphore::new(0))).await;
    let (stranger, any) = (sender(), TlsRef { skip_verify: true, ..TlsRef::default() });
    let asked = asking(format!("https://{address}/"));
    let failure = failed(stranger.ask(asked.clone()).await);
    assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
    assert_eq!(stranger.ask(ForgeRequest { tls: any, ..asked.clone() }).await.unwrap().body.len(), 10);
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let tls = TlsRef { authorities: Authorities::Pem(junk.into()), ..TlsRef::default() };
    let words = not_sent(stranger.ask(ForgeRequest { tls, ..asked }).await).to_string();
    assert!(words.contains("the certificates of tls cannot be used"), "{words}");
}

#[tokio::test]
async fn all_requests_use_the_proxy() {
    provider();
    let proxy = Receiver::new(async |mut peer| {
        while let Some(request) = peer.request().await {
            let (status, said) = if request.contains("/denied") { (407, "") } else { (200, request.as_str()) };
            peer.write(&format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{said}", said.len())).await;
        }
    })
    .await;
    let at: Proxy = format!("http://someone:open%20sesame@{}", proxy.address).parse().unwrap();
    let policy = Policy { allow_http: true, ..Policy::default() };
    let sender = Sender::through(Some(at), policy, Secrets::fixed([]), Metrics::new()).unwrap();
    let answer = sender.ask(asking("http://git.example:8080/repos")).await.unwrap();
    let request = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(request.starts_with("GET http://git.example:8080/repos HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("proxy-authorization: Basic c29tZW9uZTpvcGVuIHNlc2FtZQ==\r\n"), "{request}");
    assert!(!answer.shown(&answer.body).contains("c29tZW"), "{}", answer.shown(&answer.body));
    let failure = failed(sender.ask(asking("http://git.example:8080/denied")).await);
    let expected = format!("the proxy {} requires credentials, or rejects the configured ones", proxy.address);
    assert_eq!((failure.kind, failure.text), (FailureKind::Connect, expected));
    let why = not_sent(sender.ask(asking("http://169.254.169.254/")).await);
    assert!(matches!(why, NotSent::DestinationForbidden(_)), "{why:?}");
    let before = proxy.requests().len();
    failed(sender.ask(ForgeRequest { timeout: SHORT, ..asking("https://git.example/") }).await);
    let connect = &proxy.requests()[before];
    assert!(connect.starts_with("CONNECT git.example:443 HTTP/1.1\r\n"), "{connect}");
}
