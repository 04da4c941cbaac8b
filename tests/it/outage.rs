//! A receiver that refuses connections for a long time: it gets everything in order when it is back, and other receivers get their
//! requests without delay.

use std::time::{Duration, Instant};

use relaybook_api::Delivery;
use serde_json::json;

use crate::support::{Oracle, Receiver, Relaybook, World};

/// Time between two changes during the outage.
const BETWEEN: Duration = Duration::from_secs(4);

#[tokio::test]
async fn an_absent_receiver_delays_no_other_and_gets_everything_later() {
    let world = World::new("outage").await;
    let (mut away, there) = (Receiver::refusing(), Receiver::start());
    for app in ["web", "api"] {
        world.deploy(app, "1").await;
    }
    world.pipeline("shop", &["dev/web", "prod/api"]).await;
    let about = |environment: &str, delivery: serde_json::Value| {
        let triggers = json!([{"type": "Deployed", "environments": [environment, "fence"]}]);
        json!({"triggers": triggers, "delivery": delivery})
    };
    let retry = json!({"retry": {"initial": "500ms", "max": "2s"}});
    world.notification("hook", &away, about("dev", retry)).await;
    world.notification("other", &there, about("prod", json!({}))).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let tags = ["2", "3", "4", "5", "6"];
    let began = Instant::now();
    for (number, tag) in tags.iter().enumerate() {
        world.ship("web", tag).await;
        world.ship("api", tag).await;
        there.wait("/other/api", number + 1).await;
        tokio::time::sleep(BETWEEN).await;
    }
    let first = world.delivery("Deployed 2", |d| d.spec.notification == "hook").await.status.unwrap_or_default();
    // The outage lasts at least 20 s, and the delay between attempts is 0.5 s to 2.4 s (2 s and up to a fifth more).
    let most = i64::try_from(began.elapsed().as_secs() / 2 + 4).unwrap();
    assert!((6..=most).contains(&first.attempts), "{} attempts", first.attempts);
    assert_eq!(first.reason.as_deref(), Some("ConnectionFailed"));
    let untouched = |d: &Delivery| d.status.as_ref().is_none_or(|s| s.attempts == 0 && s.outcome.is_none());
    for tag in &tags[1..] {
        world.delivery(&format!("Deployed {tag}"), |d| d.spec.notification == "hook" && untouched(d)).await;
    }

    away.listen();
    world.fence("shop", &["hook", "other"]).await;
    let steps = tags.map(|tag| format!("Deployed {tag}"));
    let steps = steps.each_ref().map(String::as_str);
    let oracle = Oracle::new(&world, &away).and(&there).with_attempts_unseen();
    oracle.lane("shop/hook/dev/web", &steps).lane("shop/other/prod/api", &steps).check().await;
    assert_eq!((away.to("/hook/web").len(), there.to("/other/api").len()), (tags.len(), tags.len()));
}
