//! `--follow`: sets that the program makes.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use relaybook_api::Notification;

use super::*;
use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::world::apps::condition;

#[tokio::test]
async fn follow_makes_a_pipeline_for_each_object_of_a_kind() {
    let world = World::new("sets-follow").await;
    let receiver = Receiver::start();
    for app in ["a", "b"] {
        world.deploy(app, "1").await;
    }
    world.notification("hook", &receiver, all_triggers()).await;
    let args = vec!["--follow=deployments".to_owned()];
    let mut relaybook = Relaybook::with(&world, Options { args, ..Options::of(&world) }).await;
    let name = |app: &str| format!("deployment.{}.{app}", world.ns);
    for app in ["a", "b", "fence"] {
        exists(&world, &name(app)).await;
    }
    world.cursor(&name("a"), "hook").await;
    world.break_("a", "2", "no such image").await;
    let told = receiver.wait("/hook/a", 2).await;
    assert_eq!(told.last().unwrap().json()["type"], "Failed");
    world.deploy("c", "1").await;
    assert_eq!(receiver.wait("/hook/c", 1).await[0].json()["type"], "Added");
    relaybook.stop().await;

    // Another kind takes its place.
    let args = vec!["--follow=kustomizations".to_owned()];
    let _relaybook = Relaybook::with(&world, Options { args, ..Options::of(&world) }).await;
    eventually("only the set of the other kind is there", async || {
        let sets = world.api::<PipelineSet>().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let names: Vec<String> = sets.iter().map(ResourceExt::name_any).collect();
        if names == ["follow-kustomizations"] { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

/// Number of Kustomizations.
const MANY: usize = 40;

/// Returns the Notification of the quick start.
fn documented(ns: &str) -> Value {
    let page = include_str!("../../../docs/quick-start.md");
    let (_, rest) = page.split_once("## Follow everything").expect("the section");
    let mut blocks = rest.split("```yaml\n").skip(1).filter_map(|block| block.split_once("```")).map(|(block, _)| block);
    let block = blocks.find(|block| block.contains("kind: Notification")).expect("a Notification");
    let mut notification: Value = serde_saphyr::from_str(block).expect("YAML");
    notification["metadata"]["namespace"] = json!(ns);
    notification
}

#[tokio::test]
async fn many_kustomizations_are_followed_as_the_quick_start_says() {
    let world = World::new("sets-many").await;
    let receiver = Receiver::start();
    let app = async |number: usize| world.kustomize(&format!("app-{number:02}"), "main@sha1:1").await;
    stream::iter(0..MANY).for_each_concurrent(16, app).await;
    world.secret("slack", json!({"url": receiver.url("/slack")})).await;
    world.create::<Notification>(documented(&world.ns)).await;
    let args = vec!["--follow=kustomizations".to_owned()];
    let relaybook = Relaybook::with(&world, Options { args, ..Options::of(&world) }).await;
    within(Duration::from_mins(3), "all are followed", async || {
        let all = world.api::<Pipeline>().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let is_followed = |pipeline: &&Pipeline| {
            pipeline.status.as_ref().is_some_and(|status| {
                let has_cursor = status.dispatched.as_ref().is_some_and(|dispatched| !dispatched.cursors.is_empty());
                has_cursor && status.ready_targets == "1/1"
            })
        };
        let followed = all.iter().filter(is_followed).count();
        if followed == MANY { Ok(()) } else { Err(format!("{followed} of {}", all.items.len())) }
    })
    .await;
    world.ready("failures").await;
    let one = format!("kustomization.{}.app-12", world.ns);
    world.cursor(&one, "failures").await;
    eventually("the writes of the start have ended", async || {
        let before = relaybook.writes().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let more = relaybook.writes().await - before;
        if more < 0.5 { Ok(()) } else { Err(format!("{more} writes")) }
    })
    .await;
    let writes = relaybook.writes().await;
    let failed = condition("Ready", "False", "HealthCheckFailed", "timeout waiting for: [Deployment/default/web]");
    world.flux("app-12", vec![failed], json!({"lastAttemptedRevision": "main@sha1:2"})).await;
    let told = receiver.wait("/slack", 1).await;
    let text = told[0].json().to_string();
    assert!(text.contains("Kustomization sets-many/app-12: Failed"), "{text}");
    world.settled().await;
    let after = relaybook.writes().await - writes;
    assert!(after <= 12.0, "one failure of one of them costs {after} writes");
    assert_eq!(receiver.log().len(), 1, "what is there already is not news");
}
