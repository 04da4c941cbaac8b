//! Requests that create or continue a message, and what is remembered of their answers.

use std::collections::BTreeMap;

use super::*;
use relaybook_settings::answer::{Find, LONGEST_LIST, Lost, Remember};
use relaybook_settings::config::{Lookup, NewPath, Problem};

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn remember(source: &str) -> Remember {
    let mut remember = Remember::default();
    remember.add("id", source).unwrap();
    remember
}

fn thread(later: Option<LaterRequest>) -> ThreadRequest {
    ThreadRequest { remember: remember("body.id"), lost: Lost::default(), later, more: None }
}

fn first(destination: Destination) -> Outgoing {
    Outgoing { thread: Some(thread(None)), ..to(destination) }
}

/// A request that continues the message of an answer.
fn later(first: Outgoing, learned: &Learned) -> Outgoing {
    let later = LaterRequest {
        origin: Some(learned.origin.clone()),
        method: Method::Put,
        path: Some(NewPath::Append(format!("/{}", learned.values["id"]))),
        body: Bytes::from_static(b"{\"b\":2}"),
    };
    Outgoing { thread: Some(thread(Some(later))), ..first }
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
    assert_eq!((learned.continues, learned.values["id"].as_str(), learned.origin.len()), (false, "7", 2 * 8));
    let again = learn(&sender, later(first(url.clone()), &learned)).await;
    assert!(again.continues && again.origin == learned.origin);
    let (post, put) = ("POST /cards?a=b HTTP/1.1".to_owned(), "PUT /cards/7?a=b HTTP/1.1".to_owned());
    assert_eq!(requests(&receiver), [(post, "{\"a\":1}".to_owned()), (put, "{\"b\":2}".to_owned())]);

    // Another receiver, and other credentials for the same one, get the first request.
    let other = Receiver::answering(answer("200 OK", r#"{"id": 8}"#)).await;
    let moved = learn(&sender, later(first(other.url("/cards")), &learned)).await;
    assert!(!moved.continues && moved.origin != learned.origin && moved.values["id"] == "8");
    assert_eq!(requests(&other)[0].0, "POST /cards HTTP/1.1");
    let with_token = Outgoing { auth: Some(token(AUTHORIZATION, "Bearer")), ..later(first(url.clone()), &learned) };
    let with_headers = Outgoing { headers_from: Some(key("").secret()), ..later(first(url), &learned) };
    let sender = sender_with(lax(), with_secret(&[("token", "s3cr3t-value")]));
    assert!(!learn(&sender, with_token).await.continues);
    assert!(!learn(&sender, with_headers).await.continues);
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
        continues: false,
        values: [("id".to_owned(), "old".to_owned())].into(),
    };
    let replaced = learn(&sender(), later(first(receiver.url("/")), &learned)).await;
    assert_eq!((replaced.continues, replaced.values["id"].as_str()), (false, "new"));
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
    assert!(learn(&from(url.to_string()), later(out(), &learned)).await.continues);
    let rotated = format!("{url}-other");
    assert!(!learn(&from(rotated), later(out(), &learned)).await.continues);
    assert_eq!(requests(&receiver)[1].0, "PUT /hooks/0123456789/7 HTTP/1.1");
}

/// Renders the requests about a deployment, or about a comment on a pull request.
struct Render {
    has_parent: bool,
}

impl RenderMore for Render {
    fn parent(&self) -> Result<Option<Lookup>, Problem> {
        let path = Some(NewPath::Replace("pulls".to_owned()));
        Ok(self.has_parent.then_some(Lookup { path, query: None }))
    }

    fn search(&self, number: &BTreeMap<String, String>) -> Result<Option<Lookup>, Problem> {
        let path = number.get("number").map(|number| NewPath::Replace(format!("{number}/comments")));
        Ok(Some(Lookup { path, query: Some("of=k".to_owned()) }))
    }

    fn create(&self, number: &BTreeMap<String, String>) -> Result<LaterRequest, Problem> {
        let path = Some(NewPath::Replace(format!("{}/comments", number["number"])));
        Ok(LaterRequest { origin: None, method: Method::Post, path, body: Bytes::from_static(b"{\"c\":3}") })
    }

    fn update(&self, values: &BTreeMap<String, String>) -> Result<LaterRequest, Problem> {
        if values["id"] == "unfit" {
            return Err(Problem::ParameterMissing("card".to_owned()));
        }
        let path = Some(NewPath::Append(format!("/{}/state", values["id"])));
        Ok(LaterRequest { origin: None, method: Method::Put, path, body: Bytes::from_static(b"{\"b\":2}") })
    }
}

fn more(destination: Destination, more: MoreRequests) -> Outgoing {
    let thread = ThreadRequest { more: Some(more), ..thread(None) };
    Outgoing { thread: Some(thread), body: Bytes::from_static(b"{\"key\":\"k\"}"), ..to(destination) }
}

/// A request that creates a deployment, which an earlier attempt may have created. Its state follows.
fn deployment(destination: Destination) -> Outgoing {
    let find = Some(Find::compile("", None, "body.key == request.key").unwrap());
    let render = Arc::new(Render { has_parent: false });
    let requests = MoreRequests { parent: None, find, id: String::new(), is_optional: false, follows: true, render };
    more(destination, requests)
}

/// A request that comments on a pull request.
fn comment(destination: Destination) -> Outgoing {
    let mut number = Remember::default();
    number.add("number", "body.number").unwrap();
    let parent = Some((Find::compile_parent(false, "status == 422", &["body.merged == true".to_owned()]).unwrap(), number));
    let find = Some(Find::compile("", None, "body.text.endsWith(id)").unwrap());
    let render = Arc::new(Render { has_parent: true });
    more(destination, MoreRequests { parent, find, id: "i".to_owned(), is_optional: true, follows: false, render })
}

/// Answers GET with the first text, POST with the second, and PUT with the third.
async fn forge(list: String, created: String, updated: String) -> Receiver {
    let answers = Arc::new([list, created, updated]);
    Receiver::new(move |mut peer| {
        let answers = Arc::clone(&answers);
        async move {
            while let Some(request) = peer.request().await {
                let number = ["GET", "POST", "PUT"].iter().position(|method| request.starts_with(method)).unwrap();
                peer.write(&answers[number]).await;
            }
        }
    })
    .await
}

/// The methods and paths of all requests, in words.
fn steps(receiver: &Receiver) -> Vec<String> {
    requests(receiver).into_iter().map(|(line, _)| line.trim_end_matches(" HTTP/1.1").to_owned()).collect()
}

const LOOKS: &str = "GET /deployments?a=b&of=k";
const CREATES: &str = "POST /deployments?a=b";
const UPDATES: &str = "PUT /deployments/7/state?a=b";

#[tokio::test]
async fn a_message_is_looked_for_before_it_is_created_and_its_state_follows() {
    let ours = r#"[{"id": 3, "key": "other"}, {"id": 8, "key": "k"}, {"id": 7, "key": "k"}]"#;
    let (created, nameless) = (r#"{"id": 7}"#, "{}");
    let huge = format!(r#"[{{"id": 7, "key": "k"}}, "{}"]"#, "x".repeat(LONGEST_LIST));
    let (found, missing) = (&[LOOKS, UPDATES][..], &[LOOKS, CREATES, UPDATES][..]);
    let (lacks, search) = ("it lacks the value id of the message", "the search for the message: ");
    // Each row: the answers to the three requests, those that are sent, and the beginning of the error.
    for (what, list, created, updated, expected, error) in [
        ("found", ("200 X", ours), created, "200 X", found, String::new()),
        ("not found", ("200 X", "[]"), created, "200 X", missing, String::new()),
        ("another message", ("200 X", r#"[{"id": 3, "key": "other"}]"#), created, "200 X", missing, String::new()),
        (
            "found without an ID",
            ("200 X", r#"[{"key": "k"}]"#),
            created,
            "200 X",
            &[LOOKS],
            format!("{search}200 OK, but {lacks}"),
        ),
        (
            "an unfit ID",
            ("200 X", r#"[{"id": "unfit", "key": "k"}]"#),
            created,
            "200 X",
            &[LOOKS],
            format!("{search}200 OK, but "),
        ),
        (
            "too long",
            ("200 X", huge.as_str()),
            created,
            "200 X",
            &[LOOKS],
            format!("{search}200 OK, but its body is longer than 256 KiB"),
        ),
        ("no list", ("200 X", "<html>"), created, "200 X", &[LOOKS], format!("{search}200 OK, but it is not the list")),
        (
            "refused update",
            ("200 X", ours),
            created,
            "422 X",
            found,
            "the update of the message that was found: 422".to_owned(),
        ),
        ("gone", ("200 X", ours), created, "404 X", found, "the update of the message that was found: 404".to_owned()),
        ("refused state", ("200 X", "[]"), created, "503 X", missing, "the update after the creation: 503".to_owned()),
        ("created without an ID", ("200 X", "[]"), nameless, "200 X", &missing[..2], format!("200 OK, but {lacks}")),
        ("unauthorized", ("401 X", "[]"), created, "200 X", &[LOOKS], format!("{search}401")),
        ("forbidden", ("403 X", "[]"), created, "200 X", &[LOOKS], format!("{search}403")),
        ("no such repository", ("404 X", "[]"), created, "200 X", &[LOOKS], format!("{search}404")),
        ("a fault", ("500 X", "[]"), created, "200 X", &[LOOKS], format!("{search}500")),
    ] {
        let receiver = forge(answer(list.0, list.1), answer("200 X", created), answer(updated, "{}")).await;
        let attempt = sender().send(deployment(receiver.url("/deployments?a=b"))).await;
        assert_eq!(steps(&receiver), expected, "{what}");
        let said = attempt.error().unwrap_or_default();
        assert!(said.starts_with(&error) && said.is_empty() == error.is_empty(), "{what}: {said}");
        if said.is_empty() {
            let learned = attempt.learned.unwrap();
            assert_eq!((learned.continues, learned.values["id"].as_str()), (false, "7"), "{what}");
        }
    }
}

#[tokio::test]
async fn a_remembered_message_that_is_gone_is_looked_for_and_then_created() {
    let receiver = Receiver::new(async |mut peer| {
        while let Some(request) = peer.request().await {
            let said = match request.split(' ').next().unwrap_or_default() {
                "GET" => answer("200 X", "[]"),
                "POST" => answer("201 X", r#"{"id": 7}"#),
                _ if request.contains("/old") => answer("404 X", "{}"),
                _ => answer("200 X", "{}"),
            };
            peer.write(&said).await;
        }
    })
    .await;
    let mut out = deployment(receiver.url("/deployments?a=b"));
    let path = Some(NewPath::Append("/old/state".to_owned()));
    let later = LaterRequest { origin: None, method: Method::Put, path, body: Bytes::from_static(b"{}") };
    out.thread.as_mut().unwrap().later = Some(later);
    let learned = learn(&sender(), out).await;
    assert_eq!((learned.continues, learned.values["id"].as_str()), (false, "7"));
    assert_eq!(steps(&receiver), ["PUT /deployments/old/state?a=b", LOOKS, CREATES, UPDATES]);
}

#[tokio::test]
async fn a_request_that_looks_for_a_message_has_the_headers_of_the_delivery_and_no_body() {
    let receiver = forge(answer("200 X", "[]"), answer("201 X", r#"{"id": 7}"#), answer("200 X", "{}")).await;
    let out = Outgoing { auth: Some(token(AUTHORIZATION, "Bearer")), ..deployment(receiver.url("/deployments")) };
    let sender = sender_with(lax(), with_secret(&[("token", "s3cr3t-value")]));
    sender.send(out).await;
    let looked = receiver.requests().remove(0);
    for line in ["authorization: Bearer s3cr3t-value\r\n", "webhook-id: msg-1\r\n"] {
        assert!(looked.contains(line), "{looked}");
    }
    assert!(!looked.contains("content-") && looked.ends_with("\r\n\r\n"), "{looked}");
}

#[tokio::test]
async fn a_message_is_not_created_without_a_whole_answer_about_it() {
    let cut = "HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\n[{\"id\": 7";
    let closes = Receiver::new(move |mut peer| async move {
        peer.request().await;
        peer.write(cut).await;
    })
    .await;
    let attempt = sender().send(deployment(closes.url("/deployments"))).await;
    assert_eq!(failure(&attempt).kind, FailureKind::Closed);
    let waits = Receiver::new(move |mut peer| async move {
        peer.request().await;
        peer.write(cut).await;
        peer.request().await;
    })
    .await;
    let attempt = sender().send(Outgoing { timeout: SHORT, ..deployment(waits.url("/deployments")) }).await;
    assert_eq!(failure(&attempt).kind, FailureKind::Timeout);
    assert_eq!((closes.requests().len(), waits.requests().len()), (1, 1));
}

/// Otherwise the state that follows would be lost, although the delivery counts as delivered.
#[tokio::test]
async fn a_message_that_is_created_without_a_whole_answer_is_a_failure() {
    let receiver = Receiver::new(async |mut peer| {
        while peer.request().await.is_some_and(|request| request.starts_with("GET")) {
            peer.write(&answer("200 X", "[]")).await;
        }
        peer.write("HTTP/1.1 201 X\r\ncontent-length: 1000\r\n\r\n{\"id\": 7").await;
    })
    .await;
    let attempt = sender().send(deployment(receiver.url("/deployments?a=b"))).await;
    assert_eq!(failure(&attempt).kind, FailureKind::Closed);
    assert_eq!(steps(&receiver), [LOOKS, CREATES]);
}

#[tokio::test]
async fn what_a_receiver_says_goes_back_to_it_also_if_nobody_may_read_it() {
    let listed = answer("200 X", r#"[{"id": 7, "key": "k"}]"#);
    for (list, expected) in [(listed, &[LOOKS, UPDATES][..]), (answer("200 X", "[]"), &[LOOKS, CREATES, UPDATES])] {
        let receiver = forge(list, answer("201 X", r#"{"id": 7}"#), answer("200 X", "{}")).await;
        let out = Outgoing { withhold_answer: true, ..deployment(receiver.url("/deployments?a=b")) };
        assert!(learn(&sender(), out).await.values.is_empty());
        assert_eq!(steps(&receiver), expected);
    }
    // A secret is not sent back either, and the message is not created once more.
    let echo = r#"[{"id": "a-S3CR3T-VALUE", "key": "k"}]"#;
    let receiver = forge(answer("200 X", echo), answer("201 X", r#"{"id": 7}"#), answer("200 X", "{}")).await;
    let out = Outgoing { auth: Some(token(AUTHORIZATION, "Bearer")), ..deployment(receiver.url("/deployments?a=b")) };
    let attempt = sender_with(lax(), with_secret(&[("token", "s3cr3t-value")])).send(out).await;
    assert!(attempt.error().unwrap().ends_with("or that value contains a secret of the request"), "{attempt:?}");
    assert_eq!(steps(&receiver), [LOOKS]);
}

#[tokio::test]
async fn a_comment_is_created_at_the_pull_request_of_the_commit() {
    let (pulls, comments, creates) = ("GET /api/pulls", "GET /api/42/comments?of=k", "POST /api/42/comments");
    let pull = || answer("200 X", r#"[{"number": 43, "merged": false}, {"number": 42, "merged": true}]"#);
    let huge = answer("200 X", &format!(r#"["{}"]"#, "x".repeat(LONGEST_LIST)));
    let none = || answer("200 X", "[]");
    let ours = answer("200 X", r#"[{"id": 7, "text": "by i"}, {"id": 8, "text": "by j"}]"#);
    let search = "the search for the pull request: ";
    for (what, list, commented, expected, verdict, error) in [
        ("new", pull(), none(), vec![pulls, comments, creates], Verdict::Delivered, String::new()),
        ("a long list", pull(), huge.clone(), vec![pulls, comments, creates], Verdict::Delivered, String::new()),
        ("found", pull(), ours, vec![pulls, comments, "PUT /api/issues/7/state"], Verdict::Delivered, String::new()),
        (
            "no pull request",
            none(),
            none(),
            vec![pulls],
            Verdict::Retry { not_before: None, reason: Reason::PullRequestMissing },
            format!("{search}200 OK: no open or merged pull request has the commit"),
        ),
        (
            "a pull request without a number",
            answer("200 X", r#"[{"merged": true}]"#),
            none(),
            vec![pulls],
            Verdict::Retry { not_before: None, reason: Reason::AnswerUnreadable },
            format!("{search}200 OK, but it lacks the number"),
        ),
        (
            "a long list of pull requests",
            huge,
            none(),
            vec![pulls],
            Verdict::Retry { not_before: None, reason: Reason::AnswerUnreadable },
            format!("{search}200 OK, but its body is longer"),
        ),
    ] {
        let answers = Arc::new([list, commented]);
        let receiver = Receiver::new(move |mut peer| {
            let answers = Arc::clone(&answers);
            async move {
                while let Some(request) = peer.request().await {
                    let number = ["GET /api/pulls", "GET"].iter().position(|start| request.starts_with(start));
                    let said = number.map_or_else(|| answer("201 X", r#"{"id": 9}"#), |number| answers[number].clone());
                    peer.write(&said).await;
                }
            }
        })
        .await;
        let attempt = sender().send(comment(receiver.url("/api/issues"))).await;
        assert_eq!(steps(&receiver), expected, "{what}");
        assert_eq!(classify(&attempt.result, 0), verdict, "{what}");
        if let Verdict::Retry { reason: reason @ Reason::PullRequestMissing, .. } = verdict {
            assert_eq!(classify(&attempt.result, 2), Verdict::Canceled { reason }, "the third one in a row");
        }
        let said = attempt.error().unwrap_or_default();
        assert!(said.starts_with(&error) && said.is_empty() == error.is_empty(), "{what}: {said}");
    }
}
