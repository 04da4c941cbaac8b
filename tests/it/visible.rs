//! What users see of a notification: times, counts, conditions and Events.

use relaybook_api::conditions::ConditionStatus;
use relaybook_api::{Outcome, Time};
use serde_json::json;

use crate::support::relaybook::Options;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

#[tokio::test]
async fn statuses_show_what_was_sent_and_what_waits() {
    let world = World::new("visible").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(200), Reply::status(400).body("nope")]);
    receiver.always("/hook/api", Reply::status(503));
    world.deploy("web", "1").await;
    world.deploy("api", "1").await;
    world.pipeline("shop", &["dev/web", "dev/api"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let before = now();
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let status = world.get_notification("hook").await.status.unwrap();
    assert_eq!((status.pipelines, status.targets), (1, 3), "two targets and the fence");
    assert_eq!((status.last_sent_time, status.last_attempt_time, status.last_error), (None, None, None));

    world.ship("web", "2").await;
    let delivered = world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.outcome.is_some())).await;
    let first = counted(&world, [0, 1, 0]).await;
    assert!(first.last_sent_time >= Some(before) && first.last_attempt_time >= first.last_sent_time, "{first:?}");
    assert_eq!(first.last_error, None);
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
    let settled = delivered.status.unwrap().settled_time;
    eventually("the status of the pipeline contains lastSent of the target", async || {
        let dispatched = world.get_pipeline("shop").await.status.unwrap().dispatched.unwrap();
        let told: Vec<_> = dispatched.last_sent.iter().map(|l| (l.subject.clone(), l.time)).collect();
        let [(subject, time)] = &told[..] else { return Err(format!("{told:?}")) };
        assert!(subject.starts_with("target/dev/") && subject.ends_with("/web"), "{subject}");
        assert!(*time >= before && Some(*time) <= settled.map(|s| s + std::time::Duration::from_secs(1)), "{time}");
        Ok(())
    })
    .await;

    world.ship("web", "3").await;
    let note = world.warning("hook", "DeliveryParked").await;
    assert!(note.contains("Deployed") && note.contains("ReceiverRejected") && note.contains("400"), "{note}");
    let parked = counted(&world, [0, 1, 1]).await;
    assert_eq!((parked.last_error.as_deref(), parked.last_sent_time), (Some("400 Bad Request"), first.last_sent_time));
    assert!(parked.last_attempt_time > first.last_attempt_time);

    world.ship("api", "2").await;
    let failing = world.condition("hook", "Delivering", |c| c.reason == "ReceiverError").await;
    assert_eq!(failing.status, ConditionStatus::False);
    assert!(failing.message.contains("503") && failing.message.contains("/api"), "{}", failing.message);
    counted(&world, [1, 1, 1]).await;
    world.condition("hook", "Ready", |c| c.status == ConditionStatus::True).await;
    world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.reason.as_deref() == Some("ReceiverError"))).await;

    receiver.always("/hook/api", Reply::status(200));
    let well = world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
    assert!(well.last_transition_time >= failing.last_transition_time);
    let last = counted(&world, [0, 2, 1]).await;
    assert!(last.last_sent_time > first.last_sent_time && last.last_error.is_none(), "{last:?}");
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3 [Parked]"])
        .lane("shop/hook/dev/api", &["Deployed 2"])
        .check()
        .await;
}

/// Waits until the notification has these counts of pending, delivered and parked deliveries. Returns its status.
async fn counted(world: &World, counts: [i64; 3]) -> relaybook_api::NotificationStatus {
    eventually(&format!("counts of {counts:?}"), async || {
        let status = world.get_notification("hook").await.status.unwrap();
        let have = [status.pending, status.delivered, status.parked];
        if have == counts { Ok(status) } else { Err(format!("{have:?}")) }
    })
    .await
}

/// Returns the current time, cut to milliseconds like the times in statuses.
fn now() -> Time {
    Time::from_millisecond(Time::now().as_millisecond()).unwrap()
}

#[tokio::test]
async fn a_forbidden_destination_is_never_connected_to() {
    let world = World::new("forbidden").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    // The same address as an IPv4-mapped IPv6 address.
    let port = receiver.url("").rsplit(':').next().unwrap().to_owned();
    let mapped = json!({"endpoint": {"url": format!("http://[::ffff:127.0.0.1]:{port}/mapped")}});
    world.notification("mapped", &receiver, mapped).await;
    // A host name that resolves to a loopback address.
    let named = json!({"endpoint": {"url": format!("http://localhost:{port}/named")}});
    world.notification("named", &receiver, named).await;
    let options = Options { loopback: false, ..Options::of(&world) };
    let _relaybook = Relaybook::with(&world, options).await;
    world.observed("shop").await;
    for name in ["hook", "mapped", "named"] {
        world.cursor("shop", name).await;
    }

    world.ship("web", "2").await;
    for notification in ["hook", "mapped", "named"] {
        let refused = world
            .delivery("Deployed 2", |d| {
                let reason = d.status.as_ref().and_then(|s| s.reason.as_deref());
                d.spec.notification == notification && reason == Some("DestinationForbidden")
            })
            .await;
        let status = refused.status.unwrap();
        assert_eq!((status.attempts, status.outcome, status.last_attempt_time), (0, None, None), "{notification}");
        assert!(status.error.unwrap().contains("loopback"), "{notification}");
        world.condition(notification, "Delivering", |c| c.reason == "DestinationForbidden").await;
        let note = world.warning(notification, "DeliveryWaits").await;
        assert!(note.contains("DestinationForbidden") && note.contains("--allow-destination"), "{note}");
    }
    let mut oracle = Oracle::new(&world, &receiver);
    for notification in ["hook", "mapped", "named"] {
        oracle = oracle.lane(&format!("shop/{notification}/dev/web"), &["Deployed 2 [pending]"]);
    }
    oracle.check().await;
    assert_eq!(receiver.connections(), 0);
    assert!(world.deliveries().await.iter().all(|d| d.status.as_ref().and_then(|s| s.outcome) != Some(Outcome::Delivered)));
}
