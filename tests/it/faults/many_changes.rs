//! More changes at once than one batch of the pipeline controller or one status can contain.

use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use relaybook_api::Status;
use serde_json::json;

use crate::support::relaybook::Options;
use crate::support::wait::heavy;
use crate::support::world::apps::{Kind, condition};
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// Maximum number of targets of a pipeline, the fence included.
const TARGETS: usize = 256;
/// Maximum size of its status, in bytes.
const STATUS: usize = 512 * 1024;

#[tokio::test]
async fn when_all_targets_fail_at_once_the_status_stays_small_and_each_failure_arrives() {
    let _alone = heavy().await;
    let world = World::new("crowd-fails").await;
    let receiver = Receiver::start();
    let apps: Vec<_> = (1..TARGETS).map(|n| format!("app-{n}")).collect();
    for some in apps.chunks(32) {
        join_all(some.iter().map(|app| world.deploy(app, "1"))).await;
    }
    let targets: Vec<_> = apps.iter().map(|app| format!("dev/{app}")).collect();
    world.pipeline("shop", &targets.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.notification("hook", &receiver, json!({})).await;
    let _observer = Relaybook::with(&world, Options { controllers: "pipeline", ..Options::of(&world) }).await;
    let mut dispatcher = Relaybook::with(&world, Options { controllers: "dispatch", ..Options::of(&world) }).await;
    world.settled().await;
    dispatcher.stop().await;

    // In JSON, quotes and line breaks need escapes, which count for the size.
    let message = "x\"\n".repeat(1024 / 3);
    let api = world.api::<Deployment>();
    let exceeded = condition("Progressing", "False", "ProgressDeadlineExceeded", &message);
    let failed = Patch::Merge(json!({"status": {"conditions": [exceeded], "replicas": 2, "unavailableReplicas": 1}}));
    let nothing = PatchParams::default();
    join_all(apps.iter().map(async |app| api.patch_status(app, &nothing, &failed).await.expect("patched"))).await;
    let mut largest = 0;
    eventually("all failures are in the log", async || {
        let status = world.get_pipeline("shop").await.status.unwrap();
        largest = largest.max(serde_json::to_vec(&status).unwrap().len());
        let all = status.environments.iter().flat_map(|e| &e.targets);
        let failed = all.filter(|t| t.settled.as_ref().is_some_and(|s| s.status == Status::Failed)).count();
        if failed == apps.len() { Ok(()) } else { Err(format!("{failed} of {}", apps.len())) }
    })
    .await;
    assert!(largest < STATUS, "{largest} bytes");
    assert!(largest > STATUS / 2, "{largest} bytes are too few to test the limit");

    dispatcher.start_again().await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver);
    targets.iter().fold(oracle, |o, target| o.lane(&format!("shop/hook/{target}"), &["Failed 1"])).check().await;
}

#[tokio::test]
async fn a_change_and_its_reversal_at_once_are_two_changes() {
    tokio::join!(there_and_back("crowd-live", false), there_and_back("crowd-away", true));
}

/// Switches between revisions A and B as fast as the API server accepts the writes. `away`: while the dispatcher is stopped.
async fn there_and_back(ns: &str, away: bool) {
    let apps = ["a", "b", "c", "d"];
    let world = World::new(ns).await;
    let receiver = Receiver::start();
    for app in apps.into_iter().chain(["fence"]) {
        world.kustomize(app, "A").await;
    }
    world.flux_pipeline("shop", &apps.map(|app| ["dev/", app].concat()).each_ref().map(String::as_str)).await;
    world.notification("hook", &receiver, json!({})).await;
    let _observer = Relaybook::with(&world, Options { controllers: "pipeline", ..Options::of(&world) }).await;
    let mut dispatcher = Relaybook::with(&world, Options { controllers: "dispatch", ..Options::of(&world) }).await;
    world.settled().await;
    if away {
        dispatcher.stop().await;
    }

    let api = world.kustomizations().await;
    let nothing = PatchParams::default();
    join_all(apps.map(async |app| {
        for revision in ["B", "A", "B", "A"] {
            let ready = condition("Ready", "True", "ReconciliationSucceeded", revision);
            let status = json!({"conditions": [ready], "observedGeneration": 1, "lastAppliedRevision": revision,
                "lastAttemptedRevision": revision});
            api.patch_status(app, &nothing, &Patch::Merge(json!({"status": status}))).await.expect("patched");
        }
    }))
    .await;
    world.release(Kind::Kustomization, "fence", "in-the-log").await;
    world.observed_at("shop", "in-the-log", &["fence"]).await;
    if away {
        dispatcher.start_again().await;
    }
    world.fence("shop", &["hook"]).await;
    let steps = ["Deployed B", "Deployed A", "Deployed B", "Deployed A"];
    let oracle = Oracle::new(&world, &receiver);
    apps.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &steps)).check().await;
    assert!(world.deliveries().await.iter().all(|d| !d.spec.coalesced));
}
