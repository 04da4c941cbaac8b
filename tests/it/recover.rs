//! Each transition of a target is sent once and in order: releases, failures, recoveries, removal and recreation.

use serde_json::json;

use crate::support::world::all_triggers;
use crate::support::world::apps::condition;
use crate::support::{Oracle, Receiver, Relaybook, World};

#[tokio::test]
async fn a_failure_and_its_recovery_are_each_reported_once() {
    let world = World::new("recovered").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    // The pods fail and recover.
    world.fail("web", "out of memory").await;
    world.fail("web", "still out of memory").await;
    world.finish("web").await;
    // A release fails and is rolled back.
    world.break_("web", "2", "will not start").await;
    world.ship("web", "1").await;
    // A release fails, and the next release fixes it. Its revision is new, so this is `Deployed` and not `Recovered`.
    world.break_("web", "3", "will not start either").await;
    world.ship("web", "4").await;
    world.fence("shop", &["hook"]).await;
    let steps = ["Failed 1", "Recovered 1", "Failed 2", "Recovered 1", "Failed 3", "Deployed 4"];
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &steps).check().await;

    let failed = receiver.to("/hook/web")[0].json();
    assert_eq!((&failed["reason"], &failed["message"]), (&json!("ProgressDeadlineExceeded"), &json!("out of memory")));
}

#[tokio::test]
async fn a_kustomization_that_fails_and_is_reverted_recovers() {
    let world = World::new("reverted").await;
    let receiver = Receiver::start();
    let (good, bad) = ("main@sha1:aaa", "main@sha1:bbb");
    world.kustomize("web", good).await;
    world.kustomize("fence", "0").await;
    world.flux_pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    // The health check of the running revision fails, and then succeeds.
    let fails = |reason, message| {
        let reconciling = condition("Reconciling", "True", "ProgressingWithRetry", "retries");
        vec![reconciling, condition("Ready", "False", reason, message)]
    };
    let revisions = |attempted| json!({"lastAppliedRevision": good, "lastAttemptedRevision": attempted});
    world.flux("web", fails("HealthCheckFailed", "timed out"), revisions(good)).await;
    world.applied("web", good).await;
    // A commit fails and is reverted.
    world.flux("web", fails("BuildFailed", "no such file"), revisions(bad)).await;
    world.applied("web", good).await;
    world.fence("shop", &["hook"]).await;
    let steps =
        [format!("Failed {good}"), format!("Recovered {good}"), format!("Failed {bad}"), format!("Recovered {good}")];
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &steps.each_ref().map(String::as_str)).check().await;
}

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
