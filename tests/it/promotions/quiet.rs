//! Promotions that do not change cause no write, and the status of the largest pipeline has room for them. What was begun before an
//! uninstallation continues after the next installation.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use relaybook_api::promotion::Phase;
use relaybook_api::{Outcome, Pipeline, Promotion};
use serde_json::json;

use super::Stage;
use crate::support::wait::heavy;
use crate::support::world::promotions::{by_notification, is_for};
use crate::support::{Relaybook, World, eventually};

/// Time in which writes are counted.
const WINDOW: Duration = Duration::from_secs(5);
/// The limit of the status of a pipeline, in bytes.
const MAX_STATUS: usize = 512 * 1024;
/// Environments and targets of the largest pipeline.
const LARGEST: (usize, usize) = (32, 8);
/// An annotation that nothing reads while no promotion is open.
const LOOK: &str = "relaybook.dev/look";

/// Restarts Relaybook, so that it writes everything that it writes only now and then, and waits until it has nothing to write.
async fn rest(stage: &Stage, relaybook: &mut Relaybook) {
    relaybook.restart().await;
    stage.world.settled().await;
    eventually("the counts of the notification are written", async || {
        let all = stage.world.deliveries().await;
        let delivered = all.iter().filter(|d| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered)));
        let (there, delivered) = (all.len(), i64::try_from(delivered.count()).unwrap());
        let status = stage.world.get_notification("hook").await.status.unwrap_or_default();
        let counted = status.delivered == delivered && status.pending == 0;
        if counted { Ok(()) } else { Err(format!("{} of {there} are counted", status.delivered)) }
    })
    .await;
    let mut last = -1.0;
    eventually("nothing is written any more", async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let writes = relaybook.writes().await;
        if writes == std::mem::replace(&mut last, writes) { Ok(()) } else { Err(format!("{writes} writes")) }
    })
    .await;
}

/// Returns the resource versions of all pipelines and promotions.
async fn versions(world: &World) -> BTreeMap<String, Option<String>> {
    let pipelines = world.api::<Pipeline>().list(&ListParams::default()).await.expect("listed");
    let promotions = world.api::<Promotion>().list(&ListParams::default()).await.expect("listed");
    let of_pipelines = pipelines.iter().map(|p| (p.name_any(), p.resource_version()));
    of_pipelines.chain(promotions.iter().map(|p| (p.name_any(), p.resource_version()))).collect()
}

#[tokio::test]
async fn promotions_that_do_not_change_cause_no_write() {
    let stage = Stage::new("promotions-quiet").await;
    let world = &stage.world;
    for (name, policy) in [("done", json!({})), ("open", json!({})), ("waits", json!({"manual": true}))] {
        stage.pipeline(name, by_notification(policy)).await;
    }
    let mut relaybook = stage.relaybook().await;
    for name in ["done", "open", "waits"] {
        world.runs(&format!("{name}/dev"), "2").await;
    }
    stage.requested("open/prod 2").await;
    world.promotion("waits/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    stage.requested("done/prod 2").await;
    world.runs("done/prod", "2").await;
    let done = stage.finished("done/prod 2").await;
    world.mirrored(&done).await;
    stage.receiver.wait("/hook/prod/PromotionFinished", 1).await;
    rest(&stage, &mut relaybook).await;
    // Nobody waits for an answer of a look, because this promotion has ended.
    for value in ["1", "2"] {
        world.annotate_promotion(&done, LOOK, value).await;
    }
    world.patch::<Pipeline>("done", json!({"metadata": {"annotations": {LOOK: "1"}}})).await;
    world.patch::<Pipeline>("open", json!({"metadata": {"labels": {"touched": "now"}}})).await;
    let (before, writes) = (versions(world).await, relaybook.writes().await);
    tokio::time::sleep(WINDOW).await;
    assert_eq!((versions(world).await, relaybook.writes().await), (before.clone(), writes));
    // A restart lists everything again.
    relaybook.restart().await;
    world.settled().await;
    tokio::time::sleep(WINDOW).await;
    assert_eq!((versions(world).await, relaybook.writes().await), (before, 0.0));
    for name in ["done", "open", "waits"] {
        stage.fence(name).await;
    }
    stage
        .oracle()
        .promotions("done", &["hook"], &["prod 2: Requested, Finished"])
        .promotions("open", &["hook"], &["prod 2: Requested"])
        .promotions("waits", &["hook"], &["prod 2: Pending"])
        .check()
        .await;
}

#[tokio::test]
async fn the_largest_pipeline_has_room_for_its_promotions() {
    let _alone = heavy().await;
    let stage = Stage::new("promotions-large").await;
    let world = &stage.world;
    let (count, targets) = LARGEST;
    // The environments take turns between two sets of applications, so each of them can differ from the one before it.
    let apps = |set: &str| -> Vec<String> { (0..targets).map(|n| format!("{set}-{n}")).collect() };
    let sets = [apps("even"), apps("odd")];
    join_all(sets.iter().flatten().map(|app| world.deploy(app, "1"))).await;
    let environments = (0..count).map(|n| {
        let targets = sets[n % 2].iter().map(|app| json!({"namespace": world.ns, "appRef": {"name": app}}));
        let mut environment = json!({"name": format!("e{n:02}"), "targets": targets.collect::<Vec<_>>()});
        if n > 0 {
            environment["promotion"] = by_notification(json!({"manual": n % 2 == 1}));
        }
        environment
    });
    let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "app"});
    let spec = json!({"appRef": app, "environments": environments.collect::<Vec<_>>()});
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    let mut relaybook = stage.relaybook().await;

    join_all(sets[0].iter().map(|app| world.ship(app, "2"))).await;
    for n in (1..count).step_by(2) {
        world.promotion(&format!("shop/e{n:02} 2"), is_for(Phase::Pending, "WaitingApproval")).await;
    }
    join_all(sets[1].iter().map(|app| world.ship(app, "3"))).await;
    for n in (2..count).step_by(2) {
        stage.requested(&format!("shop/e{n:02} 3")).await;
    }
    let environment = |n: usize| match n % 2 {
        1 => format!("e{n:02} 2: Pending"),
        _ => format!("e{n:02} 3: Requested"),
    };
    let lines: Vec<_> = (1..count).map(environment).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let oracle = stage.oracle().promotions("shop", &["hook"], &lines);
    oracle.check().await;
    let status = world.get_pipeline("shop").await.status.unwrap();
    assert!(status.environments[1..].iter().all(|e| e.promotion.is_some()));
    assert_eq!(status.dropped, None);
    let size = serde_json::to_vec(&status).unwrap().len();
    assert!(size <= MAX_STATUS, "{size} bytes");

    rest(&stage, &mut relaybook).await;
    let (before, writes) = (versions(world).await, relaybook.writes().await);
    tokio::time::sleep(WINDOW).await;
    assert_eq!((versions(world).await, relaybook.writes().await), (before.clone(), writes));
    relaybook.restart().await;
    world.settled().await;
    tokio::time::sleep(WINDOW).await;
    assert_eq!((versions(world).await, relaybook.writes().await), (before, 0.0));
    oracle.check().await;
}

#[tokio::test]
async fn promotions_continue_after_an_uninstallation_and_a_new_installation() {
    let stage = Stage::new("promotions-reinstalled").await;
    let world = &stage.world;
    for (name, policy) in [("open", json!({})), ("waits", json!({"manual": true})), ("moved", json!({}))] {
        stage.pipeline(name, by_notification(policy)).await;
    }
    let mut relaybook = stage.relaybook().await;
    for name in ["open", "waits", "moved"] {
        world.runs(&format!("{name}/dev"), "2").await;
    }
    stage.requested("open/prod 2").await;
    stage.requested("moved/prod 2").await;
    let waits = world.promotion("waits/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    world.mirrored(&waits).await;
    stage.receiver.wait("/hook/prod/PromotionRequested", 2).await;
    stage.receiver.wait("/hook/prod/PromotionPending", 1).await;

    // Everything except the CRDs and their objects is gone.
    relaybook.stop().await;
    let all = ListParams::default();
    world.api::<Lease>().delete_collection(&DeleteParams::default(), &all).await.expect("deleted");
    world.approve(&waits).await;
    world.ship("open-prod", "2").await;
    world.ship("moved-dev", "3").await;
    relaybook.start_again().await;
    world.settled().await;
    stage.finished("open/prod 2").await;
    stage.requested("waits/prod 2").await;
    stage.requested("moved/prod 3").await;
    for name in ["open", "waits", "moved"] {
        stage.fence(name).await;
    }
    stage
        .oracle()
        .promotions("open", &["hook"], &["prod 2: Requested, Finished"])
        .promotions("waits", &["hook"], &["prod 2: Pending, Requested"])
        .promotions("moved", &["hook"], &["prod 2: Requested, Withdrawn", "prod 3: Requested"])
        .check()
        .await;
}
