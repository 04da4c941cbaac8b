//! Requests that create or continue a message, and what is remembered of their answers.

use super::*;
use relaybook_settings::answer::{Lost, Remember};
use relaybook_settings::config::NewPath;

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn remember(source: &str) -> Remember {
    let mut remember = Remember::default();
    remember.add("id", source).unwrap();
    remember
}

fn first(destination: Destination) -> Outgoing {
    Outgoing { thread: Some(ThreadRequest { remember: remember("body.id"), later: None }), ..to(destination) }
}

/// A request that continues the message of an answer.
fn later(first: Outgoing, learned: &Learned) -> Outgoing {
    let later = LaterRequest {
        origin: learned.origin.clone(),
        method: Method::Put,
        path: Some(NewPath::Append(format!("/{}", learned.values["id"]))),
        body: Bytes::from_static(b"{\"b\":2}"),
        lost: Lost::default(),
    };
    Outgoing { thread: Some(ThreadRequest { remember: remember("body.id"), later: Some(later) }), ..first }
}

async fn learn(sender: &Sender, out: Outgoing) -> Learned {
    let attempt = sender.send(out).await;
    assert_eq!(classify(&attempt.result, 0), Verdict::Delivered, "{attempt:?}");
    attempt.learned.unwrap()
}

/// The first lines and the bodies of all requests.
fn requests(receiver: &Receiver) -> Vec<(String, String)> {
    let all = receiver.requests.lock();
    let parts = |request: &String| {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
    };
    all.iter().map(parts).collect()
}

#[tokio::test]
async fn a_message_is_continued_at_the_receiver_that_has_it() {
    let receiver = Receiver::answering(answer("200 OK", r#"{"id": 7}"#)).await;
    let (sender, url) = (sender(), receiver.url("/cards?a=b"));
    let learned = learn(&sender, first(url.clone())).await;
    assert_eq!((learned.is_later, learned.values["id"].as_str(), learned.origin.len()), (false, "7", 2 * 8));
    let again = learn(&sender, later(first(url.clone()), &learned)).await;
    assert!(again.is_later && again.origin == learned.origin);
    let (post, put) = ("POST /cards?a=b HTTP/1.1".to_owned(), "PUT /cards/7?a=b HTTP/1.1".to_owned());
    assert_eq!(requests(&receiver), [(post, "{\"a\":1}".to_owned()), (put, "{\"b\":2}".to_owned())]);

    // Another receiver, and other credentials for the same one, get the first request.
    let other = Receiver::answering(answer("200 OK", r#"{"id": 8}"#)).await;
    let moved = learn(&sender, later(first(other.url("/cards")), &learned)).await;
    assert!(!moved.is_later && moved.origin != learned.origin && moved.values["id"] == "8");
    assert_eq!(requests(&other)[0].0, "POST /cards HTTP/1.1");
    let with_token = Outgoing { auth: Some(token(AUTHORIZATION, "Bearer")), ..later(first(url.clone()), &learned) };
    let with_headers = Outgoing { headers_from: Some(key("").secret()), ..later(first(url), &learned) };
    let sender = sender_with(lax(), with_secret(&[("token", "s3cr3t-value")]));
    assert!(!learn(&sender, with_token).await.is_later);
    assert!(!learn(&sender, with_headers).await.is_later);
}

#[tokio::test]
async fn a_message_that_is_lost_is_replaced_in_the_same_attempt() {
    let receiver = Receiver::new(async |mut peer| {
        while let Some(request) = peer.request().await {
            let is_update = request.starts_with("PUT");
            peer.write(&if is_update { answer("404 X", "gone") } else { answer("201 X", r#"{"id": "new"}"#) }).await;
        }
    })
    .await;
    let learned = Learned {
        origin: learn(&sender(), first(receiver.url("/"))).await.origin,
        is_later: false,
        values: [("id".to_owned(), "old".to_owned())].into(),
    };
    let replaced = learn(&sender(), later(first(receiver.url("/")), &learned)).await;
    assert_eq!((replaced.is_later, replaced.values["id"].as_str()), (false, "new"));
    assert_eq!(requests(&receiver).iter().filter(|(line, _)| line.starts_with("PUT /old")).count(), 1);
}

#[tokio::test]
async fn nothing_secret_or_withheld_or_incomplete_is_remembered() {
    let secrets = with_secret(&[("token", "s3cr3t-value")]);
    let sender = sender_with(lax(), secrets);
    let echoes = Receiver::answering(answer("200 OK", r#"{"id": "a-S3CR3T-VALUE"}"#)).await;
    let out = Outgoing { auth: Some(token(AUTHORIZATION, "Bearer")), ..first(echoes.url("/")) };
    assert!(learn(&sender, out).await.values.is_empty());
    let fine = Receiver::answering(answer("200 OK", r#"{"id": "7"}"#)).await;
    let withheld = Outgoing { withhold_answer: true, ..first(fine.url("/")) };
    assert!(learn(&sender, withheld).await.values.is_empty());
    let breaks = Receiver::new(async |mut peer| {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"id\": 7}").await;
    })
    .await;
    assert!(learn(&sender, first(breaks.url("/"))).await.values.is_empty(), "the head decides, and the body is missing");
}

#[tokio::test]
async fn the_whole_url_of_a_secret_is_the_place_of_a_message() {
    let receiver = Receiver::answering(answer("200 OK", r#"{"id": 7}"#)).await;
    let Destination::Url(url) = receiver.url("/hooks/0123456789") else { panic!("a URL") };
    let from = |url: String| sender_with(lax(), with_secret(&[("url", &url)]));
    let out = || first(Destination::Secret(key("url")));
    let learned = learn(&from(url.to_string()), out()).await;
    assert!(learn(&from(url.to_string()), later(out(), &learned)).await.is_later);
    let rotated = format!("{url}-other");
    assert!(!learn(&from(rotated), later(out(), &learned)).await.is_later);
    assert_eq!(requests(&receiver)[1].0, "PUT /hooks/0123456789/7 HTTP/1.1");
}
