//! Answers whose body decides, because the request has an expression for it.

use super::hostile::flooding;
use super::*;
use relaybook_settings::answer::Success;

fn with(receiver: &Receiver, success: &str) -> Outgoing {
    Outgoing { success: Some(Success::compile(success).unwrap()), ..to(receiver.url("/")) }
}

fn answer(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}content-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn the_body_decides_what_an_answer_means() {
    let of_chat = "has(body.error) ? (body.error == 'ratelimited' ? 429 : body.error == 'auth' ? 401 : 422) : status";
    let limited = answer("200 OK\r\nretry-after: 30\r\n", r#"{"error": "ratelimited"}"#);
    let retry = |seconds: Option<u64>, reason| Verdict::Retry { not_before: seconds.map(Duration::from_secs), reason };
    for (said, success, verdict) in [
        (answer("200 OK\r\n", "{}"), of_chat, Verdict::Delivered),
        (limited, of_chat, retry(Some(30), Reason::ReceiverError)),
        (answer("200 OK\r\n", r#"{"error": "auth"}"#), of_chat, retry(None, Reason::CredentialsRejected)),
        (answer("200 OK\r\n", r#"{"error": "other"}"#), of_chat, Verdict::Parked { reason: Reason::ReceiverRejected }),
        (answer("200 OK\r\n", "<html>"), of_chat, retry(None, Reason::AnswerUnreadable)),
        (answer("503 X\r\n", "<html>"), of_chat, retry(None, Reason::ReceiverError)),
        (answer("409 X\r\n", "exists"), "status == 409 && text == 'exists' ? 200 : status", Verdict::Delivered),
        (
            answer("200 OK\r\nx-limit: 0\r\n", ""),
            "headers['x-limit'] == '0' ? 503 : status",
            retry(None, Reason::ReceiverError),
        ),
    ] {
        let receiver = Receiver::answering(said.clone()).await;
        let attempt = sender().send(with(&receiver, success)).await;
        assert_eq!(classify(&attempt.result, 0), verdict, "{said}");
        assert_eq!(attempt.result.error().is_none(), verdict == Verdict::Delivered, "{attempt:?}");
        assert_eq!(attempt.result.status(), said.get(9..12).and_then(|status| status.parse().ok()), "the real status stays");
    }
}

#[tokio::test]
async fn a_success_without_its_whole_body_is_no_answer() {
    let drips = async || {
        Receiver::new(async |mut peer| {
            peer.request().await;
            peer.write("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await;
            peer.drip().await;
        })
        .await
    };
    let breaks = Receiver::new(async |mut peer| {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{").await;
    })
    .await;
    let attempt = sender().send(with(&breaks, "text == 'ok'")).await;
    assert_eq!(failure(&attempt).kind, FailureKind::Closed, "{attempt:?}");
    let late = Outgoing { timeout: SHORT, ..with(&drips().await, "text == 'ok'") };
    assert_eq!(failure(&sender().send(late).await).kind, FailureKind::Timeout);
    // The rule of a template, and an error status, do not need the body.
    let rule = Success::of_template("text == 'ok'").unwrap();
    let template = Outgoing { timeout: SHORT, success: Some(rule), ..to(drips().await.url("/")) };
    assert_eq!(classify(&sender().send(template).await.result, 0), Verdict::Delivered);
    // This expression reads only the head.
    let head = Outgoing { timeout: SHORT, ..with(&drips().await, "status == 200") };
    assert_eq!(classify(&sender().send(head).await.result, 0), Verdict::Delivered);
}

#[tokio::test]
async fn an_endless_body_is_cut_and_a_deep_one_is_refused() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n";
    let (receiver, mut left) = flooding(head, "[").await;
    let attempt = sender().send(with(&receiver, "size(text) == 65536")).await;
    assert_eq!(classify(&attempt.result, 0), Verdict::Delivered, "{attempt:?}");
    assert_eq!(body(&attempt).len(), 256);
    assert!(left.recv().await.unwrap() < 64 * 1024 * 1024, "the connection is closed");
}

#[tokio::test]
async fn a_secret_in_the_answer_is_masked_also_if_the_body_decides() {
    let secrets = with_secret(&[("token", "s3cr3t-value")]);
    let receiver = Receiver::answering(answer("200 OK\r\n", r#"{"s3cr3t-value": "s3cr3t-value"}"#)).await;
    let mut out = with(&receiver, "body.missing == 's3cr3t'");
    out.auth = Some(token(AUTHORIZATION, "Bearer"));
    let attempt = sender_with(lax(), secrets).send(out).await;
    let said = format!("{:?} {:?}", attempt.result, attempt.result.error());
    assert!(!said.contains("s3cr3t-value") && said.contains("***"), "{said}");
}
