//! Which connections are made, and which are used again.

use super::*;

#[tokio::test]
async fn connections_are_reused() {
    const LANES: usize = 8;
    const EACH: usize = 250;
    // The body is sent after the head, so that the sender must wait for it.
    let receiver = Receiver::new(async |mut peer| {
        peer.stream.set_nodelay(true).unwrap();
        while peer.request().await.is_some() {
            peer.write("HTTP/1.1 200 OK\r\ncontent-length: 3000\r\n\r\n").await;
            tokio::task::yield_now().await;
            peer.write(&"z".repeat(3000)).await;
        }
    })
    .await;
    let sender = Arc::new(sender());
    let lanes: Vec<_> = (0..LANES)
        .map(|_| {
            let (sender, out) = (Arc::clone(&sender), to(receiver.url("/")));
            tokio::spawn(async move {
                for _ in 0..EACH {
                    assert_eq!(sender.send(out.clone()).await.result.status(), Some(200));
                }
            })
        })
        .collect();
    for lane in lanes {
        lane.await.unwrap();
    }
    assert_eq!(receiver.requests().len(), LANES * EACH);
    assert!(receiver.connections() * 50 <= LANES * EACH, "{} connections", receiver.connections());
}

#[tokio::test]
async fn no_connection_is_made_to_a_forbidden_destination() {
    let receiver = Receiver::answering(OK).await;
    let port = receiver.address.port();
    let strict = sender_with(Policy { allow_http: true, ..Policy::default() }, Secrets::fixed([]));
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "localhost", "0.0.0.0"] {
        let url = format!("http://{host}:{port}/").parse().unwrap();
        let attempt = strict.send(to(Destination::Url(url))).await;
        let forbidden = matches!(attempt.result, AttemptResult::NotSent(NotSent::DestinationForbidden(_)));
        assert!(forbidden, "{host}: {attempt:?}");
    }
    assert_eq!(receiver.connections(), 0);
    let open = sender();
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{port}/").parse().unwrap();
        assert_eq!(open.send(to(Destination::Url(url))).await.result.status(), Some(200), "{host}");
    }
    let https_only = sender_with(Policy { allow_http: false, ..lax() }, Secrets::fixed([]));
    let attempt = https_only.send(to(receiver.url("/"))).await;
    assert_eq!(attempt.result, AttemptResult::NotSent(NotSent::InsecureScheme));
    assert_eq!(receiver.connections(), 2);
}
