//! Look-ups of commits: what is asked, how often, and what an answer that is late, hostile or missing costs.

use futures::future::join_all;
use relaybook_api::promotion::ForgeType;
use relaybook_api::values::looked_up::{LookUps, LookedUp, PullRequestInfo};
use relaybook_settings::render::LookUp;
use serde_json::{Value, json};

use super::exchange::named;
use super::*;

const ALL: LookUps = LookUps { commit: true, pull_request: true };
const COMMIT: LookUps = LookUps { commit: true, pull_request: false };

fn answer(status: &str, body: &Value) -> String {
    let body = body.to_string();
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn commit(author: &str) -> Value {
    let person = json!({"name": author, "email": "ada@example.com", "date": "2026-11-26T05:00:00Z"});
    json!({"commit": {"author": person, "committer": person, "message": "Fix it\n\nMore"}})
}

/// A Gitea that knows each commit and its pull request.
async fn gitea() -> Receiver {
    Receiver::new(|mut peer| async move {
        while let Some(request) = peer.request().await {
            let is_pull = request.lines().next().is_some_and(|line| line.contains("/pull "));
            let page = "https://127.0.0.1/acme/web/pulls/7";
            let pull = json!({"number": 7, "title": "Fix", "html_url": page, "user": {"login": "ada"}});
            let body = if is_pull { pull } else { commit("Ada") };
            peer.write(&answer("200 OK", &body)).await;
        }
    })
    .await
}

fn of(server: &Receiver, hash: char) -> LookUp {
    LookUp {
        type_: ForgeType::Gitea,
        url: "https://127.0.0.1/acme/web".to_owned(),
        api_url: Some(format!("http://{}/api/v1", server.address)),
        secret: named(),
        authorities: None,
        hash: hash.to_string().repeat(40),
    }
}

fn with_metrics(policy: Policy, secrets: Secrets) -> (Sender, Metrics) {
    provider();
    let metrics = Metrics::new();
    (Sender::new(policy, secrets, metrics.clone()).unwrap(), metrics)
}

/// The results that were counted.
fn counted(metrics: &Metrics) -> Vec<(String, u64)> {
    let text = metrics.encode().unwrap();
    let series = text.lines().filter_map(|line| line.strip_prefix("relaybook_look_ups_total{result=\"")?.split_once("\"} "));
    let series = series.map(|(result, count)| (result.to_owned(), count.parse::<u64>().unwrap()));
    let mut all: Vec<_> = series.filter(|(_, count)| *count > 0).collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_commit_is_asked_for_once_for_all_messages() {
    let server = gitea().await;
    let (sender, metrics) = with_metrics(lax(), with_secret(&[("token", "t0ken")]));
    let of = of(&server, 'a');
    let all = join_all((0..50).map(|_| sender.look_up(&of, ALL, LONG))).await;
    for found in &all {
        let commit = [&*found.commit.author, &found.commit.message, &found.commit.time];
        assert_eq!(commit, ["Ada", "Fix it", "2026-11-26T05:00:00Z"]);
        let pull = &found.pull_request;
        assert_eq!([&*pull.number, &pull.title, &pull.author], ["7", "Fix", "ada"]);
        assert_eq!(pull.url, "https://127.0.0.1/acme/web/pulls/7");
    }
    let again = sender.look_up(&of, COMMIT, Duration::ZERO).await;
    assert_eq!((again.commit.author.as_str(), again.pull_request), ("Ada", PullRequestInfo::default()));
    let mut lines: Vec<_> = server.requests().iter().map(|request| request.lines().next().unwrap().to_owned()).collect();
    lines.sort();
    let path = format!("/api/v1/repos/acme/web/git/commits/{}", of.hash);
    let commit = format!("GET {path}?stat=false&verification=false&files=false HTTP/1.1");
    assert_eq!(lines, [format!("GET /api/v1/repos/acme/web/commits/{}/pull HTTP/1.1", of.hash), commit]);
    assert!(server.requests().iter().all(|request| request.contains("authorization: token t0ken\r\n")));
    assert_eq!(counted(&metrics), [("cached".to_owned(), 1), ("found".to_owned(), 100)]);
}

#[tokio::test]
async fn a_forge_that_hangs_costs_the_given_time_once() {
    let server = Receiver::new(|mut peer| async move {
        peer.request().await;
        std::future::pending::<()>().await;
    })
    .await;
    let (sender, metrics) = with_metrics(lax(), with_secret(&[("token", "t0ken")]));
    let first = of(&server, 'a');
    assert_eq!(sender.look_up(&first, COMMIT, SHORT).await, LookedUp::default());
    assert_eq!(counted(&metrics), [("late".to_owned(), 1)]);
    // Its request ends later. From then on, the forge is not asked for a while.
    let begun = Instant::now();
    while counted(&metrics).iter().all(|(result, _)| result != "failed") {
        assert!(begun.elapsed() < LONG, "{:?}", counted(&metrics));
        sender.look_up(&first, COMMIT, LONG).await;
    }
    assert_eq!(sender.look_up(&of(&server, 'b'), ALL, LONG).await, LookedUp::default());
    let skipped = counted(&metrics).into_iter().find(|(result, _)| result == "skipped");
    assert_eq!(skipped, Some(("skipped".to_owned(), 2)));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn no_answer_is_an_error() {
    let large = format!("HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n{}", "x".repeat(300 * 1024));
    for (said, result) in [
        (answer("404 Not Found", &json!({"message": "not found"})), "not_found"),
        (answer("401 Unauthorized", &json!({"message": "bad t0ken"})), "failed"),
        (answer("403 Forbidden", &json!({"message": "API rate limit exceeded"})), "failed"),
        (answer("500 Oops", &json!({})), "failed"),
        (answer("200 OK", &json!([1])), "failed"),
        (answer("200 OK", &commit("t0ken")), "failed"),
        ("HTTP/1.1 302 X\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n".to_owned(), "failed"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx".to_owned(), "failed"),
        (large, "failed"),
    ] {
        let said_first = said.lines().next().unwrap().to_owned();
        let server = Receiver::new(move |mut peer| {
            let said = said.clone();
            async move {
                peer.request().await;
                peer.write(&said).await;
            }
        })
        .await;
        let (sender, metrics) = with_metrics(lax(), with_secret(&[("token", "t0ken")]));
        let of = of(&server, 'a');
        for _ in 0..2 {
            assert_eq!(sender.look_up(&of, COMMIT, LONG).await, LookedUp::default(), "{said_first}");
        }
        assert_eq!(counted(&metrics), [("cached".to_owned(), 1), (result.to_owned(), 1)], "{said_first}");
        assert_eq!(server.connections(), 1, "{said_first}: it is remembered");
    }
}

#[tokio::test]
async fn nothing_is_sent_without_the_policy_the_secret_and_the_budget() {
    let server = gitea().await;
    let strict = Policy { allow_http: true, ..Policy::default() };
    for (policy, secrets) in [(strict, with_secret(&[("token", "t0ken")])), (lax(), Secrets::fixed([]))] {
        let (sender, metrics) = with_metrics(policy, secrets);
        assert_eq!(sender.look_up(&of(&server, 'a'), ALL, LONG).await, LookedUp::default());
        assert_eq!(counted(&metrics), [("skipped".to_owned(), 2)]);
    }
    assert_eq!(server.connections(), 0);
    let bad = LookUp { api_url: Some("ssh://127.0.0.1/".to_owned()), ..of(&server, 'a') };
    let (sender, metrics) = with_metrics(lax(), with_secret(&[("token", "t0ken")]));
    assert_eq!(sender.look_up(&bad, COMMIT, LONG).await, LookedUp::default());
    assert_eq!(counted(&metrics), [("failed".to_owned(), 1)]);

    // A forge that asks for a pause gets one.
    let busy = Receiver::answering("HTTP/1.1 429 X\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n").await;
    for (hash, connections) in [('a', 1), ('b', 1), ('c', 1)] {
        sender.look_up(&of(&busy, hash), COMMIT, LONG).await;
        assert_eq!(busy.requests().len(), connections);
    }
}
