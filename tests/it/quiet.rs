//! Unchanged state causes no request and no write: at the first installation, after a restart, and while controllers reconcile.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use relaybook_api::{Delivery, Notification, Pipeline};
use serde_json::{Value, json};

use crate::support::world::apps::{Kind, condition};
use crate::support::world::{all_triggers, pipeline};
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

#[tokio::test]
async fn a_first_installation_on_many_healthy_pipelines_is_silent() {
    let world = World::new("installed").await;
    let receiver = Receiver::start();
    let names: Vec<_> = (0..20).map(|i| format!("p{i}")).collect();
    for names in names.chunks(10) {
        join_all(names.iter().map(async |name| {
            world.deploy(name, "1").await;
            world.pipeline(name, &[&format!("dev/{name}"), &format!("prod/{name}")]).await;
        }))
        .await;
    }
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    // All pipelines have the fence as a target.
    world.fence("p0", &["hook"]).await;
    eventually("all fences", async || {
        let count = receiver.to("/hook/fence").len();
        if count >= names.len() { Ok(()) } else { Err(format!("{count} came")) }
    })
    .await;
    Oracle::new(&world, &receiver).check().await;
    assert_eq!(receiver.log().len(), names.len());
    // Changes from now on are reported.
    world.ship("p7", "2").await;
    receiver.wait("/hook/p7", 2).await;
    let told = Oracle::new(&world, &receiver).lane("p7/hook/dev/p7", &["Deployed 2"]);
    told.lane("p7/hook/prod/p7", &["Deployed 2"]).check().await;
}

#[tokio::test]
async fn without_changes_nothing_is_sent_or_written() {
    let world = World::new("unchanged").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    let mut shop = pipeline(&world.ns, "shop", Kind::Deployment, &["dev/web", "prod/web"]);
    without_fence(&mut shop);
    world.create::<Pipeline>(shop.clone()).await;
    // The fence belongs to another pipeline and another notification, so that it changes nothing in the ones under test.
    world.pipeline("other", &[]).await;
    let of = |name: &str| json!({"pipelineSelector": {"matchLabels": {"of": name}}});
    for name in ["shop", "other"] {
        world.patch::<Pipeline>(name, json!({"metadata": {"labels": {"of": name}}})).await;
    }
    world.notification("hook", &receiver, of("shop")).await;
    world.notification("bell", &receiver, of("other")).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.break_("web", "3", "will not start").await;
    receiver.wait("/hook/web", 4).await;
    world.fence("other", &["bell"]).await;
    let steps = ["Deployed 2", "Failed 3"];
    let lanes = ["shop/hook/dev/web", "shop/hook/prod/web"];
    let oracle = || lanes.iter().fold(Oracle::new(&world, &receiver), |oracle, lane| oracle.lane(lane, &steps));
    oracle().check().await;

    // All deliveries are deleted. Then the counts in the statuses fall to zero.
    let all = ListParams::default();
    world.api::<Delivery>().delete_collection(&DeleteParams::default(), &all).await.unwrap();
    eventually("no delivery is counted any more", async || {
        let told = join_all(["hook", "bell"].map(|n| world.get_notification(n))).await;
        let counts = told.iter().map(|n| n.status.as_ref().map(|s| (s.pending, s.delivered)));
        let counts: Vec<_> = counts.collect();
        if counts.iter().all(|c| *c == Some((0, 0))) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    eventually("the status of the pipeline contains lastSent of both targets", async || {
        let dispatched = world.get_pipeline("shop").await.status.unwrap().dispatched.unwrap();
        if dispatched.last_sent.len() == 2 { Ok(()) } else { Err(format!("{:?}", dispatched.last_sent)) }
    })
    .await;
    relaybook.stop().await;
    let before = versions(&world).await;

    // A restart lists everything again, and all objects are applied again without a change.
    relaybook.start_again().await;
    world.patch::<Pipeline>("shop", shop).await;
    for name in ["hook", "bell"] {
        let spec = serde_json::to_value(world.get_notification(name).await.spec).unwrap();
        world.patch::<Notification>(name, json!({"spec": spec})).await;
    }
    world.settled().await;
    assert_eq!(relaybook.writes().await, 0.0);
    // A label that Relaybook does not read is added. (An annotation of a Deployment would increase its generation.)
    world.patch::<Deployment>("web", json!({"metadata": {"labels": {"touched": "now"}}})).await;
    world.fence("other", &["bell"]).await;
    let after = versions(&world).await;
    for name in ["shop", "hook"] {
        assert_eq!(before[name], after[name], "{name}");
    }
    let recorded: f64 =
        relaybook.metrics().await.iter().filter(|(n, _)| n.contains("delivery_create")).map(|(_, n)| n).sum();
    assert_eq!(recorded, 1.0, "the fence");

    // Only the message differs.
    world.fail("web", "will not start, again").await;
    world.fence("other", &["bell"]).await;
    assert_eq!(receiver.to("/hook/web").len(), 4);
    oracle().without_audit().check().await;
}

#[tokio::test]
async fn a_new_message_is_no_change() {
    let world = World::new("worded").await;
    let receiver = Receiver::start();
    world.kustomize("web", "main@sha1:aaa").await;
    world.kustomize("fence", "0").await;
    world.flux_pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, all_triggers()).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    for seconds in ["2.08", "2.10", "1.99"] {
        let done = format!("Reconciliation finished in {seconds}s, next run in 10m0s");
        let revisions = json!({"lastAppliedRevision": "main@sha1:aaa", "lastAttemptedRevision": "main@sha1:aaa"});
        world.flux("web", vec![condition("Ready", "True", "ReconciliationSucceeded", &done)], revisions).await;
    }
    for minutes in 1..4 {
        let why = format!("timeout after {minutes}m");
        let revisions = json!({"lastAttemptedRevision": "main@sha1:bbb"});
        world.flux("web", vec![condition("Ready", "False", "HealthCheckFailed", &why)], revisions).await;
    }
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Failed main@sha1:bbb"]).check().await;
    assert_eq!(receiver.to("/hook/web")[0].json()["message"], "timeout after 1m");
}

/// At an interval of one minute, an hour has 60 rounds.
#[tokio::test]
async fn an_hour_of_intervals_is_silent_and_failing_retries_are_one_failure() {
    let world = World::new("intervals").await;
    let receiver = Receiver::start();
    let (good, bad) = ("main@sha1:aaa", "main@sha1:bbb");
    for app in ["calm", "ill"] {
        world.kustomize(app, good).await;
    }
    world.kustomize("fence", "0").await;
    world.flux_pipeline("shop", &["dev/calm", "dev/ill"]).await;
    world.notification("hook", &receiver, all_triggers()).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let api = world.kustomizations().await;
    let write = async |app: &str, conditions: &[Value], attempted: &str| {
        let status = json!({"conditions": conditions, "observedGeneration": 1, "lastAttemptedRevision": attempted});
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(app, &PatchParams::default(), &patch).await.unwrap();
    };
    let reconciling = condition("Reconciling", "True", "Progressing", "Reconciliation in progress");
    let unknown = condition("Ready", "Unknown", "Progressing", "Reconciliation in progress");
    let retrying = condition("Reconciling", "True", "ProgressingWithRetry", "Building manifests");
    let failed = condition("Ready", "False", "BuildFailed", "no such file");
    let ready = condition("Ready", "True", "ReconciliationSucceeded", "Applied");
    for i in 0..60 {
        write("calm", &[reconciling.clone(), unknown.clone()], good).await;
        write("calm", std::slice::from_ref(&ready), good).await;
        if i % 3 == 0 {
            write("ill", &[reconciling.clone(), unknown.clone()], bad).await;
            write("ill", &[retrying.clone(), failed.clone()], bad).await;
        }
    }
    world.fence("shop", &["hook"]).await;
    let steps = [format!("Progressing {bad}"), format!("Failed {bad}")];
    Oracle::new(&world, &receiver).lane("shop/hook/dev/ill", &steps.each_ref().map(String::as_str)).check().await;
    assert_eq!((relaybook.attempts().await, receiver.log().len()), (3.0, 3), "these two and the fence");
}

/// Removes the environment of the fence.
fn without_fence(pipeline: &mut Value) {
    pipeline["spec"]["environments"].as_array_mut().unwrap().retain(|e| e["name"] != "fence");
}

/// Returns the resource version of each pipeline and notification.
async fn versions(world: &World) -> BTreeMap<String, Option<String>> {
    let all = ListParams::default();
    let pipelines = world.api::<Pipeline>().list(&all).await.unwrap();
    let notifications = world.api::<Notification>().list(&all).await.unwrap();
    let of_pipelines = pipelines.iter().map(|p| (p.name_any(), p.resource_version()));
    of_pipelines.chain(notifications.iter().map(|n| (n.name_any(), n.resource_version()))).collect()
}
