//! Tests the verdicts of the table in `docs/delivery.md` that depend on the answer: which answers park a delivery at once, which are
//! retried, and what users see in the meantime. `each_status_code_has_its_verdict` tests every status code.

use std::net::SocketAddr;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::{Delivery, DeliveryStatus, Notification, Outcome};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::receiver::{Gate, gaps};
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

/// Answers that park the delivery after one request.
const FOR_GOOD: [(u16, &str); 4] =
    [(304, "Redirected"), (307, "Redirected"), (400, "ReceiverRejected"), (410, "ReceiverGone")];

/// Answers after which the request is retried on schedule.
const NOT_FOR_GOOD: [(u16, &str); 3] = [(401, "CredentialsRejected"), (404, "ReceiverNotFound"), (500, "ReceiverError")];

/// Creates pipeline `shop` with an application for each code, and notification `hook` with the URLs `/hook/c404` and so on.
async fn shop(ns: &str, codes: &[u16], hook: serde_json::Value) -> (World, Receiver, Vec<String>) {
    let world = World::new(ns).await;
    let receiver = Receiver::start();
    let apps: Vec<_> = codes.iter().map(|code| format!("c{code}")).collect();
    join_all(apps.iter().map(|app| world.deploy(app, "1"))).await;
    let targets: Vec<_> = apps.iter().map(|app| format!("dev/{app}")).collect();
    world.pipeline("shop", &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.notification("hook", &receiver, hook).await;
    (world, receiver, apps)
}

/// Waits until the delivery of revision 2 of an application has a reason. Returns its status.
async fn said(world: &World, app: &str) -> DeliveryStatus {
    let about = |d: &Delivery| d.spec.subject.target.as_ref().is_some_and(|t| t.app.name == app);
    let delivery = world.delivery("Deployed 2", |d| about(d) && d.status.as_ref().is_some_and(|s| s.reason.is_some())).await;
    delivery.status.unwrap()
}

#[tokio::test]
async fn a_permanent_rejection_is_parked_after_one_request() {
    let codes = FOR_GOOD.map(|(code, _)| code);
    let (world, receiver, apps) = shop("answers-for-good", &codes, json!({})).await;
    let elsewhere = Receiver::start();
    for (code, app) in codes.iter().zip(&apps) {
        let body = if *code == 304 { String::new() } else { format!("nope {code} {}", "x".repeat(5000)) };
        let reply = Reply::status(*code).body(&body).header("location", &elsewhere.url("/"));
        receiver.script(&format!("/hook/{app}"), [reply]);
    }
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    for tag in ["2", "3"] {
        join_all(apps.iter().map(|app| world.ship(app, tag))).await;
        world.observed_at("shop", tag, &apps.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver);
    let steps = ["Deployed 2 [Parked]", "Deployed 3"];
    apps.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &steps)).check().await;

    for ((code, reason), app) in FOR_GOOD.iter().zip(&apps) {
        assert_eq!(receiver.to(&format!("/hook/{app}")).len(), 2, "one request each: {code}");
        let status = said(&world, app).await;
        let expected = (Some(Outcome::Parked), Some(*reason), Some(*code), 1);
        assert_eq!((status.outcome, status.reason.as_deref(), status.status_code, status.attempts), expected);
        assert!(status.error.as_ref().is_some_and(|e| e.contains(&code.to_string())), "{status:?}");
        let response = status.response.unwrap_or_default();
        assert_eq!(response.starts_with(&format!("nope {code} x")), *code != 304, "{response}");
        assert!(response.len() <= 256, "{} bytes of the answer are kept", response.len());
        assert!(status.settled_time.is_some() && status.next_attempt_time.is_none());
    }
    assert_eq!(elsewhere.connections(), 0, "redirects are not followed");
    let note = world.warning("hook", "DeliveryParked").await;
    assert!(FOR_GOOD.iter().any(|(code, reason)| note.contains(&format!("{reason}: {code}"))), "{note}");
    eventually("the Notification counts them", async || {
        let status = world.get_notification("hook").await.status.unwrap_or_default();
        let counts = (status.pending, status.parked);
        if counts == (0, i64::try_from(codes.len()).unwrap()) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_temporary_failure_is_retried_on_schedule_and_shows_when() {
    let codes = NOT_FOR_GOOD.map(|(code, _)| code);
    let slow = json!({"endpoint": {"timeout": "10s"}, "delivery": {"retry": {"initial": "10m", "max": "10m"}}});
    // Two more applications: 1 for a connection that is closed, 2 for a receiver that never answers.
    let (world, receiver, apps) = shop("answers-retried", &[&codes[..], &[1, 2]].concat(), slow).await;
    for (code, app) in codes.iter().zip(&apps) {
        receiver.script(&format!("/hook/{app}"), [Reply::status(*code).body("later")]);
    }
    receiver.script("/hook/c1", [Reply::Close]);
    receiver.script("/hook/c2", [Reply::Hang]);
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    join_all(apps.iter().map(|app| world.ship(app, "2"))).await;
    let rows = NOT_FOR_GOOD.map(|(code, reason)| (Some(code), reason));
    let rows = rows.into_iter().chain([(None, "ConnectionFailed"), (None, "Timeout")]);
    for ((code, reason), app) in rows.zip(&apps) {
        let status = said(&world, app).await;
        let expected = (None, Some(reason), code, 1);
        assert_eq!((status.outcome, status.reason.as_deref(), status.status_code, status.attempts), expected, "{app}");
        assert_eq!(status.response.as_deref(), code.map(|_| "later"), "{app}");
        assert!(status.error.is_some(), "{app}");
        let gap = status.next_attempt_time.unwrap().duration_since(status.last_attempt_time.unwrap()).as_secs();
        assert!((600..=780).contains(&gap), "{app} is tried again in {gap} s");
    }
    let waits = world.condition("hook", "Delivering", |c| c.message.starts_with("5 lanes are blocked")).await;
    assert_eq!(waits.status, ConditionStatus::False);

    // An edit of the notification makes all lanes retry at once.
    let quick = json!({"spec": {"delivery": {"retry": {"initial": "100ms", "max": "1s"}}}});
    world.patch::<Notification>("hook", quick).await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver);
    apps.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &["Deployed 2"])).check().await;
    for app in &apps {
        let requests = receiver.to(&format!("/hook/{app}"));
        assert_eq!(requests.len(), 2, "{app}");
        assert_eq!((requests[0].id(), &requests[0].body), (requests[1].id(), &requests[1].body), "{app}");
    }
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
}

#[tokio::test]
async fn a_404_is_tried_three_times() {
    let quick = json!({"delivery": {"retry": {"initial": "100ms", "max": "10s"}}});
    // c3 gets 404 three times, c2 only twice, and c5 gets another status in between, which restarts the count.
    let (world, receiver, _) = shop("answers-404", &[3, 2, 5], quick).await;
    receiver.script("/hook/c3", [404, 404, 404].map(Reply::status));
    receiver.script("/hook/c2", [404, 404, 200].map(Reply::status));
    receiver.script("/hook/c5", [404, 404, 503, 404, 404].map(Reply::status));
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    for app in ["c3", "c2", "c5"] {
        world.ship(app, "2").await;
        world.ship(app, "3").await;
    }
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/c3", &["Deployed 2 [Parked]", "Deployed 3"])
        .lane("shop/hook/dev/c2", &["Deployed 2", "Deployed 3"])
        .lane("shop/hook/dev/c5", &["Deployed 2", "Deployed 3"])
        .check()
        .await;
    for (app, requests) in [("c3", 3), ("c2", 3), ("c5", 6)] {
        let all = receiver.to(&format!("/hook/{app}"));
        assert_eq!(all.len(), requests + 1, "{app}");
        assert!(all[..requests].iter().all(|r| r.id() == all[0].id()), "{app}");
        let gaps = gaps(&all[..3]);
        assert!(gaps[0].as_millis() >= 100 && gaps[1].as_millis() >= 200, "{app}: {gaps:?}");
    }
    let parked = said(&world, "c3").await;
    assert_eq!((parked.reason.as_deref(), parked.attempts), (Some("ReceiverNotFound"), 3));
}

#[tokio::test]
async fn changed_credentials_are_tried_at_once() {
    let token = json!({"secretKeyRef": {"name": "token", "key": "key"}});
    let hook = json!({
        "endpoint": {"auth": {"token": token}, "timeout": "60s"},
        "delivery": {"retry": {"initial": "10m", "max": "10m"}},
    });
    let (world, receiver, apps) = shop("answers-rotated", &[401, 403], hook).await;
    world.secret("token", json!({"key": "first"})).await;
    let gate = Gate::new();
    receiver.script("/hook/c401", [Reply::status(401).behind(&gate)]);
    receiver.script("/hook/c403", [Reply::status(403).behind(&gate)]);
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    join_all(apps.iter().map(|app| world.ship(app, "2"))).await;
    for app in &apps {
        receiver.wait(&format!("/hook/{app}"), 1).await;
    }
    world.patch::<Secret>("token", json!({"stringData": {"key": "second"}})).await;
    eventually("the new value is known", async || {
        world.fence("shop", &["hook"]).await;
        let last = receiver.to("/hook/fence").last().map(|r| r.header("authorization").to_owned());
        if last.as_deref() == Some("Bearer second") { Ok(()) } else { Err(format!("{last:?}")) }
    })
    .await;
    gate.open();
    let oracle = Oracle::new(&world, &receiver);
    apps.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &["Deployed 2"])).check().await;
    for app in &apps {
        let sent: Vec<_> =
            receiver.to(&format!("/hook/{app}")).iter().map(|r| r.header("authorization").to_owned()).collect();
        assert_eq!(sent, ["Bearer first", "Bearer second"], "{app}");
    }
}

/// Slack answers 200 to everything.
#[tokio::test]
async fn slack_decides_by_the_body_of_its_answer() {
    let token = json!({"token": {"secretKeyRef": {"name": "token", "key": "key"}}});
    let hook = json!({
        "endpoint": {"auth": token}, "template": {"builtin": "slack", "inline": null},
        "delivery": {"retry": {"initial": "10m", "max": "10m"}},
    });
    let (world, receiver, _) = shop("answers-slack", &[1, 2, 3, 4], hook).await;
    world.secret("token", json!({"key": "first"})).await;
    let error = |word: &str| Reply::status(200).body(&json!({"ok": false, "error": word}).to_string());
    let fine = || Reply::status(200).body(&json!({"ok": true, "ts": "1405894322.002768"}).to_string());
    receiver.script("/hook/c1", [error("channel_not_found"), fine()]);
    receiver.script("/hook/c2", [error("ratelimited").header("retry-after", "1200")]);
    receiver.script("/hook/c3", [error("invalid_auth"), fine()]);
    receiver.script("/hook/c4", [fine()]);
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    join_all(["c1", "c2", "c3", "c4"].map(|app| world.ship(app, "2"))).await;
    let parked = said(&world, "c1").await;
    let expected = (Some(Outcome::Parked), Some("ReceiverRejected"), Some(200), 1);
    assert_eq!((parked.outcome, parked.reason.as_deref(), parked.status_code, parked.attempts), expected);
    assert_eq!(parked.error.as_deref(), Some("200 OK, which counts as 422 Unprocessable Entity"));
    assert!(parked.response.is_some_and(|response| response.contains("channel_not_found")));
    let rejected = said(&world, "c3").await;
    assert_eq!((rejected.outcome, rejected.reason.as_deref()), (None, Some("CredentialsRejected")));
    let delivered = world.delivery("Deployed 2", |d| outcome_of(d, "c4") == Some(Outcome::Delivered)).await;
    assert_eq!(delivered.status.unwrap().error, None);

    // The change of the Secret makes the lane retry at once, the schedule would retry it in 10 minutes.
    world.patch::<Secret>("token", json!({"stringData": {"key": "second"}})).await;
    world.delivery("Deployed 2", |d| outcome_of(d, "c3") == Some(Outcome::Delivered)).await;
    let limited = said(&world, "c2").await;
    assert_eq!((limited.outcome, limited.reason.as_deref()), (None, Some("ReceiverError")));
    let wait = limited.next_attempt_time.unwrap().duration_since(limited.last_attempt_time.unwrap()).as_secs();
    assert!(wait >= 1200, "not before the time of Retry-After: {wait} s");
}

/// Returns the outcome of a delivery, if it is about this application.
fn outcome_of(delivery: &Delivery, app: &str) -> Option<Outcome> {
    let is_it = delivery.spec.subject.target.as_ref().is_some_and(|target| target.app.name == app);
    delivery.status.as_ref().filter(|_| is_it)?.outcome
}

#[tokio::test]
async fn an_unreachable_or_untrusted_receiver_is_reported_and_recovers() {
    let world = World::new("answers-reach").await;
    let (receiver, mut refusing) = (Receiver::start(), Receiver::refusing());
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let slow = json!({"delivery": {"retry": {"initial": "10m", "max": "10m"}}});
    world.notification("refused", &refusing, slow.clone()).await;
    let mut tls = slow;
    tls["endpoint"] = json!({"url": format!("https://{}/", without_tls().await)});
    world.notification("tls", &receiver, tls).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    world.ship("web", "3").await;
    for (notification, reason) in [("refused", "ConnectionFailed"), ("tls", "TlsFailed")] {
        let waits = |d: &Delivery| {
            let status = d.status.clone().unwrap_or_default();
            let tried = status.attempts == 1 && status.outcome.is_none() && status.next_attempt_time.is_some();
            d.spec.notification == notification && tried && status.reason.as_deref() == Some(reason)
        };
        let delivery = world.delivery("Deployed 2", waits).await;
        let delivering = world.condition(notification, "Delivering", |c| c.reason == reason).await;
        let error = delivery.status.unwrap().error.unwrap();
        assert!(delivering.message.ends_with(&error), "{}", delivering.message);
        if notification == "refused" {
            let words = format!("no connection to {}: connection refused", refusing.url("").trim_start_matches("http://"));
            assert_eq!(error, words);
        }
    }
    refusing.listen();
    let quick = json!({"spec": {"delivery": {"retry": {"initial": "100ms"}}}});
    world.patch::<Notification>("refused", quick).await;
    let url = json!({"spec": {"endpoint": {"url": receiver.url("/tls/{{target.app.name}}")}}});
    world.patch::<Notification>("tls", url).await;
    world.fence("shop", &["refused", "tls"]).await;
    let steps = ["Deployed 2", "Deployed 3"];
    let oracle = Oracle::new(&world, &receiver).and(&refusing).with_attempts_unseen();
    oracle.lane("shop/refused/dev/web", &steps).lane("shop/tls/dev/web", &steps).check().await;
    assert_eq!((refusing.to("/refused/web").len(), receiver.to("/tls/web").len()), (2, 2));
}

/// Starts a server that does not support TLS and answers everything with HTTP 400. Returns its address.
async fn without_tls() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    address
}
