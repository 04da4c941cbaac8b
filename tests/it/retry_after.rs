//! `Retry-After`: a retry is never earlier than the receiver requests. It delays a retry by at most one hour, and invalid values are
//! ignored.

use std::time::{Duration, Instant};

use futures::future::join_all;
use relaybook_api::{Delivery, DeliveryStatus, Notification, Time};
use serde_json::json;

use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

const MINUTE: i64 = 60;
/// Application, value of `Retry-After` in its first response, and minimum and maximum delay of the retry. The schedule of the
/// notification is 10 minutes and up to a fifth more.
const ASKED: [(&str, &str, [i64; 2]); 2] =
    [("junk", "soon", [10 * MINUTE, 12 * MINUTE]), ("more", "1800", [30 * MINUTE, 30 * MINUTE])];
/// Maximum duration of an attempt. The status contains the start of the attempt, but the delay begins with the response.
const UNDER_WAY: i64 = 20;

/// Formats a time as an HTTP date (RFC 9110, section 5.6.7).
fn http_date(time: Time) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[tokio::test]
async fn a_retry_is_never_earlier_than_retry_after() {
    let world = World::new("retry-after").await;
    let receiver = Receiver::start();
    let apps = ["seconds", "date", "unavailable", "limited"];
    join_all(apps.map(|app| world.deploy(app, "1"))).await;
    world.pipeline("shop", &apps.map(|app| ["dev/", app].concat()).each_ref().map(String::as_str)).await;
    world.notification("hook", &receiver, json!({})).await;
    receiver.script("/hook/seconds", [Reply::status(429).header("retry-after", "3")]);
    // A value that is earlier than the schedule changes nothing.
    world.notification("slowly", &receiver, json!({"delivery": {"retry": {"initial": "3s", "max": "3s"}}})).await;
    receiver.script("/slowly/seconds", [Reply::status(429).header("retry-after", "1")]);
    receiver.script("/hook/unavailable", [Reply::status(503).header("retry-after", "2")]);
    // GitHub answers 403 at its rate limit.
    let limited = Reply::status(403).header("x-ratelimit-remaining", "0").header("x-ratelimit-reset", "3");
    receiver.script("/hook/limited", [limited]);
    let (dated, date) = std::sync::mpsc::channel();
    receiver.decide(move |request| {
        if request.path != "/hook/date" || dated.send(()).is_err() {
            return Reply::status(200);
        }
        let at = Time::now() + Duration::from_secs(4);
        Reply::status(429).header("retry-after", &http_date(at))
    });
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    join_all(apps.map(|app| world.ship(app, "2"))).await;
    tokio::task::spawn_blocking(move || date.recv().unwrap()).await.unwrap();
    join_all(apps.map(|app| world.ship(app, "3"))).await;
    world.fence("shop", &["hook", "slowly"]).await;
    let mut oracle = Oracle::new(&world, &receiver);
    for lane in apps.iter().flat_map(|app| [format!("shop/hook/dev/{app}"), format!("shop/slowly/dev/{app}")]) {
        oracle = oracle.lane(&lane, &["Deployed 2", "Deployed 3"]);
    }
    oracle.check().await;
    // An HTTP date has whole seconds, so a date in 4 s is at least 3 s ahead.
    let delays =
        [("/hook/seconds", 3), ("/hook/date", 3), ("/hook/unavailable", 2), ("/hook/limited", 3), ("/slowly/seconds", 3)];
    for (path, least) in delays {
        let requests = receiver.to(path);
        assert_eq!(requests.len(), 3, "{path}");
        let answered: Option<Instant> = requests[0].answered.map(|(_, at)| at);
        let gap = requests[1].at - answered.unwrap();
        assert!(gap >= Duration::from_secs(least), "{path}: {gap:?}");
    }
}

#[tokio::test]
async fn retry_after_only_delays_and_by_one_hour_at_most() {
    let world = World::new("retry-after-capped").await;
    let receiver = Receiver::start();
    let apps: Vec<_> = ASKED.iter().map(|(app, ..)| *app).chain(["month-date"]).collect();
    join_all(apps.iter().map(|app| world.deploy(app, "1"))).await;
    let targets: Vec<_> = apps.iter().map(|app| format!("dev/{app}")).collect();
    world.pipeline("shop", &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let slow = json!({"delivery": {"retry": {"initial": "10m", "max": "10m"}}});
    world.notification("hook", &receiver, slow).await;
    world.notification("other", &receiver, json!({})).await;
    for (app, value, _) in ASKED {
        receiver.script(&format!("/hook/{app}"), [Reply::status(429).header("retry-after", value)]);
    }
    let month = http_date(Time::now() + Duration::from_hours(720));
    receiver.script("/hook/month-date", [Reply::status(503).header("retry-after", &month)]);
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    join_all(apps.iter().map(|app| world.ship(app, "2"))).await;
    let hour = [60 * MINUTE, 60 * MINUTE];
    for (app, [least, most]) in ASKED.iter().map(|(app, _, span)| (*app, *span)).chain([("month-date", hour)]) {
        let status = waiting(&world, app).await;
        let gap = status.next_attempt_time.unwrap().duration_since(status.last_attempt_time.unwrap()).as_secs();
        assert!((least..=most + UNDER_WAY).contains(&gap), "{app} is tried again in {gap} s");
    }
    world.fence("shop", &["other"]).await;

    // After an edit, the lanes that wait only because of the schedule retry at once.
    let quick = json!({"spec": {"delivery": {"retry": {"initial": "100ms", "max": "1s"}}}});
    world.patch::<Notification>("hook", quick).await;
    let names_the_time = |app: &&&str| ["more", "month-date"].contains(*app);
    let (asked, free): (Vec<&&str>, Vec<&&str>) = apps.iter().partition(names_the_time);
    for app in free {
        receiver.wait(&format!("/hook/{app}"), 2).await;
        // A kill before the outcome is written would repeat the request.
        world.delivery("Deployed 2", |d| of_hook(d, app) && d.status.as_ref().is_some_and(|s| s.outcome.is_some())).await;
    }
    let before: Vec<_> = join_all(asked.iter().map(|app| waiting(&world, app))).await;
    // A restarted process also respects the time that the receiver requested.
    relaybook.kill9();
    relaybook.start_again().await;
    world.fence("shop", &["other", "hook"]).await;
    let after: Vec<_> = join_all(asked.iter().map(|app| waiting(&world, app))).await;
    assert_eq!(before, after);
    assert!(asked.iter().all(|app| receiver.to(&format!("/hook/{app}")).len() == 1));
    let mut oracle = Oracle::new(&world, &receiver);
    for app in &apps {
        let pending = asked.contains(&app);
        let step = if pending { "Deployed 2 [pending]" } else { "Deployed 2" };
        oracle = oracle.lane(&format!("shop/hook/dev/{app}"), &[step]);
        oracle = oracle.lane(&format!("shop/other/dev/{app}"), &["Deployed 2"]);
    }
    oracle.check().await;
}

fn of_hook(delivery: &Delivery, app: &str) -> bool {
    let spec = &delivery.spec;
    spec.notification == "hook" && spec.subject.target.as_ref().is_some_and(|t| t.app.name == app)
}

/// Waits until the delivery of `hook` for this application has made one attempt and waits for a retry. Returns its status.
async fn waiting(world: &World, app: &str) -> DeliveryStatus {
    eventually(&format!("{app} waits"), async || {
        let status =
            world.deliveries().await.into_iter().find(|d| of_hook(d, app)).and_then(|d| d.status).unwrap_or_default();
        let waits = status.attempts == 1 && status.outcome.is_none() && status.next_attempt_time.is_some();
        if waits { Ok(status) } else { Err(format!("{status:?}")) }
    })
    .await
}
