//! Malicious or faulty receivers over HTTP/1.1. Each attempt ends in time, keeps little data, and does not affect the next attempt.

use super::*;

/// A receiver that writes this once for each request and then waits.
async fn saying(answer: impl Into<Vec<u8>>) -> Receiver {
    let answer = answer.into();
    Receiver::new(move |mut peer| {
        let answer = answer.clone();
        async move { while peer.request().await.is_some() && peer.stream.write_all(&answer).await.is_ok() {} }
    })
    .await
}

/// A receiver that writes `before`, and then `again` repeatedly until the connection ends. It reports the end on the channel.
pub(super) async fn flooding(before: &'static str, again: &'static str) -> (Receiver, tokio::sync::mpsc::Receiver<usize>) {
    let (done, left) = tokio::sync::mpsc::channel(16);
    let receiver = Receiver::new(move |mut peer| {
        let done = done.clone();
        async move {
            peer.request().await;
            peer.write(before).await;
            let again = again.repeat(1 + 8_000 / again.len());
            let mut written = 0;
            while peer.write(&again).await {
                written += again.len();
            }
            _ = done.send(written).await;
        }
    })
    .await;
    (receiver, left)
}

#[tokio::test]
async fn an_endless_answer_is_cut_off_at_once_or_at_the_timeout() {
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let huge = "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n";
    let until_close = "HTTP/1.1 200 OK\r\n\r\n";
    // The beginning, the repeated part, and the result: a status or a failure.
    for (before, again, status, kind) in [
        (chunks, "4\r\nabcd\r\n", Some(200), None),
        (huge, "abcd", Some(200), None),
        (until_close, "abcd", Some(200), None),
        ("", "HTTP/1.1 100 Continue\r\n\r\n", None, Some(FailureKind::Timeout)),
        ("", "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", None, Some(FailureKind::Timeout)),
        ("HTTP/1.1 200 OK\r\n", "x: y\r\n", None, Some(FailureKind::Closed)),
        ("HTTP/1.1 200 OK\r\nx: ", "yyyy", None, Some(FailureKind::Closed)),
        ("", "yyyy", None, Some(FailureKind::Closed)),
        // The size of a chunk, and an extension of it.
        (chunks, "0", Some(200), None),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4;", "extension", Some(200), None),
        // Trailers.
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", "x: y\r\n", Some(200), None),
    ] {
        let (receiver, mut left) = flooding(before, again).await;
        let timeout = if kind == Some(FailureKind::Timeout) { SHORT } else { 10 * SHORT };
        let attempt = sender().send(Outgoing { timeout, ..to(receiver.url("/")) }).await;
        assert!(attempt.duration < LONG / 3, "{before}{again}: {:?}", attempt.duration);
        match kind {
            None => assert_eq!(attempt.result.status(), status, "{before}{again}: {attempt:?}"),
            Some(kind) => assert_eq!(failure(&attempt).kind, kind, "{before}{again}: {attempt:?}"),
        }
        left.recv().await.expect("the connection is closed");
        assert_eq!(receiver.connections(), 1);
    }
}

#[tokio::test]
async fn bytes_that_are_not_text_are_handled() {
    let answer = b"HTTP/1.1 500 \xff\xfe\r\nx-\xc3\xbc: a\r\ncontent-length: 4\r\n\r\nnope".to_vec();
    let odd_name = sender().send(to(saying(answer).await.url("/"))).await;
    assert_eq!(failure(&odd_name).kind, FailureKind::Closed, "{odd_name:?}");
    let answer = b"HTTP/1.1 500 \xff\xfe\r\nretry-after: \xff\r\nx: \xff\r\ncontent-length: 6\r\n\r\n\xff\xfenope".to_vec();
    let attempt = sender().send(to(saying(answer).await.url("/"))).await;
    assert_eq!((attempt.result.status(), body(&attempt)), (Some(500), "nope"));
    assert_eq!(attempt.result.error().as_deref(), Some("500 Internal Server Error"), "the reason phrase is our own");
}

#[tokio::test]
async fn answers_are_not_decompressed() {
    // A `gzip` of 100 bytes, which claims to be a gigabyte.
    let mut packed = b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec();
    packed.extend(b"PLAINLY VISIBLE\0\0\0\x40");
    let mut answer =
        format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", packed.len()).into_bytes();
    answer.extend(&packed);
    let receiver = saying(answer).await;
    let attempt = sender().send(to(receiver.url("/"))).await;
    assert!(body(&attempt).contains("PLAINLY VISIBLE"), "{attempt:?}");
    let request = receiver.requests().remove(0).to_lowercase();
    assert!(!request.contains("accept-encoding") && !request.contains("\r\nte:"), "{request}");
}

#[tokio::test]
async fn an_answer_with_a_wrong_length_does_not_affect_the_next_answer() {
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let second = "HTTP/1.1 500 X\r\ncontent-length: 6\r\n\r\nforged";
    // The answer is longer than announced, for example with an answer to a request that was not sent yet. The connection is closed.
    for answer in [format!("{ok}{second}"), format!("{ok}more"), format!("HTTP/1.1 204 No Content\r\n\r\n{second}")] {
        let receiver = saying(answer.clone()).await;
        let sender = sender();
        for count in 1..=3 {
            let attempt = sender.send(to(receiver.url("/"))).await;
            assert!(matches!(attempt.result.status(), Some(200 | 204)), "{answer}: {attempt:?}");
            assert!(!body(&attempt).contains("forged"), "{attempt:?}");
            assert_eq!(receiver.connections(), count, "{answer}");
        }
    }
    // The answer is shorter than announced.
    let short = Receiver::new(async |mut peer| {
        peer.request().await;
        peer.write("HTTP/1.1 503 X\r\ncontent-length: 100\r\n\r\nshort").await;
    })
    .await;
    let attempt = sender().send(to(short.url("/"))).await;
    assert_eq!((attempt.result.status(), body(&attempt)), (Some(503), "short"), "the head of the answer decides");
    // The length is contradictory or invalid.
    for head in ["content-length: 2\r\ncontent-length: 3\r\n", "content-length: 2x\r\n", "content-length: -1\r\n"] {
        let receiver = saying(format!("HTTP/1.1 200 OK\r\n{head}\r\nok")).await;
        let attempt = sender().send(to(receiver.url("/"))).await;
        assert_eq!(failure(&attempt).kind, FailureKind::Closed, "{head}: {attempt:?}");
    }
}

#[tokio::test]
async fn a_connection_with_an_unread_body_is_not_reused() {
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{}", "z".repeat(1_000_000));
    let receiver = saying(answer).await;
    let sender = sender();
    for count in 1..=3 {
        assert_eq!(sender.send(to(receiver.url("/"))).await.result.status(), Some(200));
        assert_eq!(receiver.connections(), count);
    }
}

#[tokio::test]
async fn an_answer_can_arrive_before_the_request_is_read() {
    // The receiver reads at most 256 bytes, so a large body is never sent completely.
    let receiver = Receiver::new(async |mut peer| {
        _ = peer.stream.read(&mut [0; 256]).await;
        peer.write("HTTP/1.1 413 X\r\ncontent-length: 9\r\n\r\ntoo large").await;
        std::future::pending::<()>().await;
    })
    .await;
    let large = Outgoing { body: Bytes::from(vec![b'a'; 8 << 20]), timeout: 10 * SHORT, ..to(receiver.url("/")) };
    let attempt = sender().send(large).await;
    assert_eq!((attempt.result.status(), body(&attempt)), (Some(413), "too large"), "{attempt:?}");
    assert!(attempt.duration < 10 * SHORT, "{attempt:?}");
}

#[tokio::test]
async fn a_connection_that_ends_at_once_is_a_failure() {
    let closes = Receiver::new(async |peer| drop(peer)).await;
    let sender = sender();
    for _ in 0..3 {
        let attempt = sender.send(to(closes.url("/"))).await;
        assert_eq!(failure(&attempt).kind, FailureKind::Closed, "{attempt:?}");
    }
}

#[tokio::test]
async fn a_connection_that_is_not_established_fails_at_the_connect_timeout() {
    // It accepts the connection and does not answer the TLS handshake.
    let silent = Receiver::new(async |mut peer| while peer.stream.read(&mut [0; 4096]).await.is_ok_and(|n| n > 0) {}).await;
    // Its queue is full, so new connections get no answer.
    let full = tokio::net::TcpSocket::new_v4().unwrap();
    full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = full.listen(1).unwrap();
    let address = full.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(SHORT, TcpStream::connect(address)).await {
        waiting.push(stream);
    }
    for (place, url) in [(silent.address, format!("https://{}/", silent.address)), (address, format!("http://{address}/"))] {
        let out = Outgoing { connect_timeout: SHORT, ..to(Destination::Url(url.parse().unwrap())) };
        let attempt = sender().send(out).await;
        assert_eq!(failure(&attempt).kind, FailureKind::ConnectTimeout, "{attempt:?}");
        assert_eq!(failure(&attempt).text, format!("no connection to {place} within 300ms"));
        assert!(attempt.duration >= SHORT && attempt.duration < LONG / 3, "{attempt:?}");
    }
}

#[tokio::test]
async fn a_removed_client_finishes_its_request() {
    let (open, gate) = tokio::sync::oneshot::channel::<()>();
    let gate = Arc::new(tokio::sync::Mutex::new(Some(gate)));
    let receiver = Receiver::new(move |mut peer| {
        let gate = Arc::clone(&gate);
        async move {
            peer.request().await;
            if let Some(gate) = gate.lock().await.take() {
                gate.await.unwrap();
            }
            peer.write(OK).await;
        }
    })
    .await;
    let sender = Arc::new(sender());
    let under_way = tokio::spawn({
        let (sender, out) = (Arc::clone(&sender), to(receiver.url("/")));
        async move { sender.send(out).await }
    });
    while receiver.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let other = Receiver::answering(OK).await;
    for n in 0..40 {
        let out = Outgoing { connect_timeout: Duration::from_secs(10 + n), ..to(other.url("/")) };
        assert_eq!(sender.send(out).await.result.status(), Some(200));
    }
    open.send(()).unwrap();
    assert_eq!(under_way.await.unwrap().result.status(), Some(200));
}

#[tokio::test]
async fn connections_are_reused_with_any_number_of_settings() {
    const SETTINGS: u64 = 100;
    let receiver = Receiver::answering(OK).await;
    let sender = sender();
    for n in (0..SETTINGS).chain(0..SETTINGS) {
        let out = Outgoing { connect_timeout: Duration::from_secs(10 + n), ..to(receiver.url("/")) };
        assert_eq!(sender.send(out).await.result.status(), Some(200));
    }
    assert_eq!(receiver.connections() as u64, SETTINGS);
}

/// A template must not decide where a message ends, where it goes, or what the proxy receives.
#[tokio::test]
async fn headers_about_the_connection_are_not_taken_from_a_template() {
    let receiver = Receiver::answering(OK).await;
    let mut out = to(receiver.url("/"));
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("content-length", "0"),
        ("host", "evil.example"),
        ("connection", "close, content-length"),
        ("keep-alive", "timeout=1"),
        ("proxy-authorization", "Basic evil"),
        ("expect", "100-continue"),
        ("te", "trailers, evil"),
        ("trailer", "evil"),
        ("upgrade", "evil/1"),
        ("webhook-id", "evil"),
        ("webhook-timestamp", "1"),
        ("webhook-signature", "v1,evil"),
        ("user-agent", "evil"),
    ] {
        out.headers.push((HeaderName::from_static(name), value.parse().unwrap()));
    }
    let sender = sender();
    for _ in 0..2 {
        assert_eq!(sender.send(out.clone()).await.result.status(), Some(200));
    }
    assert_eq!(receiver.connections(), 1, "the connection is kept");
    for request in receiver.requests() {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "{\"a\":1}");
        let mut names: Vec<_> = head.lines().skip(1).map(|line| line.split(':').next().unwrap()).collect();
        names.sort_unstable();
        let ours = ["accept", "content-length", "content-type", "host", "user-agent", "webhook-id", "webhook-timestamp"];
        assert_eq!(names, ours, "{request}");
        assert!(!request.contains("evil") && request.contains(&format!("host: {}", receiver.address)), "{request}");
    }
}

#[tokio::test]
async fn a_token_cannot_be_in_a_header_that_relaybook_sets() {
    let receiver = Receiver::answering(OK).await;
    let sender = sender_with(lax(), with_secret(&[("token", "chunked")]));
    for name in
        ["transfer-encoding", "content-length", "host", "connection", "webhook-id", "content-type", "proxy-authorization"]
    {
        let auth = Some(token(HeaderName::from_static(name), ""));
        let attempt = sender.send(Outgoing { auth, ..to(receiver.url("/")) }).await;
        assert!(matches!(attempt.result, AttemptResult::NotSent(NotSent::InvalidRequest(_))), "{name}: {attempt:?}");
    }
    assert_eq!(receiver.connections(), 0);
}
