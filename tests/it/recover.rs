//! Each transition of a target is sent once and in order: releases, failures, recoveries, removal and recreation.

use serde_json::json;

use crate::support::world::all_triggers;
use crate::support::{Oracle, Receiver, Relaybook, World};

#[tokio::test]
async fn a_whole_life_cycle_is_reported_and_again_after_recreation() {
    let world = World::new("life").await;
    let receiver = Receiver::start();
    world.pipeline("shop", &["dev/web"]).await;
    // The test can take so long that retention would delete deliveries.
    let mut over = all_triggers();
    json_patch::merge(&mut over, &json!({"delivery": {"retain": {"perLane": 100}}}));
    world.notification("hook", &receiver, over).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.deploy("web", "1").await;
    world.ship("web", "2").await;
    world.break_("web", "3", "will not start").await;
    world.ship("web", "2").await;
    // The test waits for `Removed` before it creates the object again. Relaybook can only report a deletion that it observes.
    world.take_away("web").await;
    receiver.wait("/hook/web", 10).await;
    world.deploy("web", "2").await;
    world.fence("shop", &["hook"]).await;
    let first = ["Added 1", "Progressing 1", "Deployed 1", "Progressing 2", "Deployed 2", "Progressing 3", "Failed 3"];
    let then = ["Progressing 2", "Recovered 2", "Removed", "Added 2", "Progressing 2", "Deployed 2"];
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &[&first[..], &then[..]].concat()).check().await;
}
