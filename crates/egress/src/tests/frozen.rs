//! A process that is suspended during a request, as after SIGSTOP or on a suspended machine.

use super::*;
use crate::request::timely::Timely;

#[tokio::test]
async fn a_body_that_is_read_too_late_is_not_sent() {
    provider();
    let receiver = Receiver::answering(OK).await;
    let client = reqwest::Client::new();
    let send = |body: fn(Duration) -> Timely, until| {
        let body = reqwest::Body::wrap(body(until));
        client.post(format!("http://{}/", receiver.address)).body(body).send()
    };
    for (body, head, end) in [
        ((|until| Timely::new(Bytes::from_static(b"hello"), until)) as fn(_) -> _, "content-length: 5\r\n", "hello"),
        (|until| Timely::new(Bytes::new(), until), "content-length: 0\r\n", "\r\n\r\n"),
        (Timely::none, "", "\r\n\r\n"),
    ] {
        assert!(send(body, relaybook_api::since_boot()).await.is_err());
        assert_eq!(send(body, relaybook_api::since_boot() + LONG).await.unwrap().status(), 200);
        let requests = std::mem::take(&mut *receiver.requests.lock());
        assert_eq!(requests.len(), 1, "{requests:?}");
        assert!(requests[0].contains(head) && requests[0].ends_with(end), "{requests:?}");
    }
}

/// A receiver with its own threads, which answers when all requests have arrived.
fn answering_while_the_sender_stands_still(requests: usize) -> (SocketAddr, Arc<std::sync::Barrier>) {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, all) = (listener.local_addr().unwrap(), Arc::new(std::sync::Barrier::new(requests + 1)));
    let barrier = Arc::clone(&all);
    std::thread::spawn(move || {
        for stream in listener.incoming().take(requests) {
            let (mut stream, barrier) = (stream.unwrap(), Arc::clone(&barrier));
            std::thread::spawn(move || {
                _ = stream.read(&mut [0; 4096]);
                barrier.wait();
                std::thread::sleep(SHORT / 4);
                stream.write_all(OK.as_bytes()).unwrap();
                _ = stream.read(&mut [0; 1]);
            });
        }
    });
    (address, all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_arrived_while_the_process_was_suspended_counts() {
    const REQUESTS: usize = 40;
    // Enough time to send all requests before the process is suspended, even on a busy machine.
    let timeout = 5 * SHORT;
    let (address, all_there) = answering_while_the_sender_stands_still(REQUESTS);
    let sender = Arc::new(sender());
    let attempts: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let (sender, url) = (Arc::clone(&sender), format!("http://{address}/").parse().unwrap());
            tokio::spawn(async move { sender.send(Outgoing { timeout, ..to(Destination::Url(url)) }).await })
        })
        .collect();
    tokio::task::spawn_blocking(move || all_there.wait()).await.unwrap();
    // Blocks both threads of the runtime: no data is read and no timer is checked, as after SIGSTOP.
    let still = [0; 2].map(|_| tokio::spawn(async move { std::thread::sleep(2 * timeout) }));
    for one in still {
        one.await.unwrap();
    }
    for attempt in attempts {
        assert_eq!(attempt.await.unwrap().result.status(), Some(200));
    }
}
