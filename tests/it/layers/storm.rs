//! Layers are edited all the time, while changes happen, requests fail, and the dispatcher is killed.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use super::{relay, shop};
use crate::support::relaybook::Options;
use crate::support::wait::heavy;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World};

const ROUNDS: usize = 24;
/// The dispatcher is killed once in this number of rounds.
const KILL_EVERY: usize = 6;
const TARGETS: [&str; 4] = ["dev/a", "dev/b", "prod/c", "prod/d"];

/// Returns a random layer for `hook`. No layer loses anything: what cannot be sent or understood waits.
fn some_layer(receiver: &Receiver) -> Value {
    let to = |path: &str| json!({"url": receiver.url(path)});
    let layer = match fastrand::u8(0..7) {
        0 => return json!([]),
        1 => json!({"name": "hook", "endpoint": to("/elsewhere/{{target.app.name}}")}),
        2 => json!({"name": "hook", "endpoint": to("/third/{{target.app.name}}")}),
        3 => json!({"name": "hook", "suspend": true}),
        4 => json!({"name": "hook", "remove": ["/template"]}),
        5 => json!({"name": "hook", "delivery": {"ordering": "Pipeline"}}),
        _ => json!({"name": "hook", "remove": ["/triggers"]}),
    };
    json!([layer])
}

#[tokio::test]
async fn edits_failures_and_kills_lose_nothing_and_keep_the_order() {
    let _alone = heavy().await;
    let world = World::new("layers-storm").await;
    // One receiver, so that there is one order. The path shows where a layer points.
    let receiver = Receiver::start();
    receiver.decide(|_| Reply::status(if fastrand::u8(0..4) == 0 { 503 } else { 200 }));
    let apps = TARGETS.map(|target| target.split_once('/').unwrap().1);
    for app in apps {
        world.deploy(app, "0").await;
    }
    // After a minute, retention would delete deliveries beyond ten of a lane.
    world.notification("hook", &receiver, json!({"delivery": {"retain": {"perLane": 100}}})).await;
    shop(&world, &TARGETS, &[]).await;
    let _observer = Relaybook::with(&world, Options { controllers: "pipeline", ..Options::of(&world) }).await;
    let mut dispatcher = Relaybook::with(&world, Options { controllers: "dispatch", ..Options::of(&world) }).await;
    world.settled().await;

    let places = ["", "dev", "prod"].into_iter().chain(TARGETS).collect::<Vec<_>>();
    for round in 1..=ROUNDS {
        let tag = round.to_string();
        let place = places[fastrand::usize(0..places.len())];
        let edits = async {
            relay(&world, place, some_layer(&receiver)).await;
            // Without this, more and more changes in the log would be merged.
            if round % 3 == 0 {
                for place in &places {
                    relay(&world, place, json!([])).await;
                }
                world.fence("shop", &["hook"]).await;
            }
        };
        let kill = async {
            if round % KILL_EVERY == 2 {
                tokio::time::sleep(Duration::from_millis(fastrand::u64(0..250))).await;
                dispatcher.kill9();
                dispatcher.start_again().await;
            }
        };
        tokio::join!(join_all(apps.map(|app| world.ship(app, &tag))), edits, kill);
    }
    for place in places {
        relay(&world, place, json!([])).await;
    }
    world.fence("shop", &["hook"]).await;
    let steps: Vec<_> = (1..=ROUNDS).map(|n| format!("Deployed {n}")).collect();
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    let oracle = Oracle::new(&world, &receiver).after_crashes(ROUNDS / KILL_EVERY);
    TARGETS.iter().fold(oracle, |o, target| o.lane(&format!("shop/hook/{target}"), &steps)).check().await;
}
