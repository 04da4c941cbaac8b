//! Changes on other clusters: reversals, failures and recoveries, reconcile intervals, and many changes at once.

use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::relaybook::Options;
use crate::support::remote::{Remote, pipeline, second, third};
use crate::support::wait::heavy;
use crate::support::world::all_triggers;
use crate::support::world::apps::condition;
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

#[tokio::test]
async fn two_clusters_are_reported_in_order_and_separately() {
    let world = World::new("remote-two").await;
    let (west, east) = (Remote::of(&world, second(), "west").await, Remote::of(&world, third(), "east").await);
    let receiver = Receiver::start();
    west.world.deploy("web", "1").await;
    east.world.deploy("api", "1").await;
    pipeline(&world, "shop", &[("dev/web", Some(&west)), ("prod/api", Some(&east))]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    west.world.ship("web", "2").await;
    west.world.break_("web", "3", "no pods").await;
    west.world.ship("web", "2").await;
    // As fast as the API server accepts the writes.
    for tag in ["2", "1", "2"] {
        east.world.ship("api", tag).await;
    }
    world.observed_at("shop", "2", &["web", "api"]).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/web", &["Deployed 2", "Failed 3", "Recovered 2"])
        .lane("shop/hook/prod/api", &["Deployed 2", "Deployed 1", "Deployed 2"])
        .check()
        .await;
    let shown = &world.get_pipeline("shop").await.status.unwrap().environments[0].targets[0];
    assert_eq!(shown.cluster_app_ref.cluster_ref.as_ref().map(|c| c.name.as_str()), Some("west"));
    let name = format!("dev/west/{}/web", world.ns);
    world.delivery("Deployed 2", |d| d.spec.subject.name == name).await;
}

#[tokio::test]
async fn changes_while_the_dispatcher_is_down_are_reported_afterwards() {
    let world = World::new("remote-down").await;
    let west = Remote::of(&world, second(), "west").await;
    let receiver = Receiver::start();
    for app in ["few", "many"] {
        west.world.deploy(app, "0").await;
    }
    pipeline(&world, "shop", &[("dev/few", Some(&west)), ("dev/many", Some(&west))]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _observer = Relaybook::with(&world, Options { controllers: "pipeline", ..Options::of(&world) }).await;
    world.observed("shop").await;
    for tag in ["b", "0"] {
        west.world.ship("few", tag).await;
    }
    for tag in 1..=12 {
        west.world.ship("many", &tag.to_string()).await;
        world.observed_at("shop", &tag.to_string(), &["many"]).await;
    }
    let _dispatcher = Relaybook::with(&world, Options { controllers: "dispatch", ..Options::of(&world) }).await;
    world.settled().await;
    world.fence("shop", &["hook"]).await;
    let steps: Vec<_> = (5..=12).map(|tag| format!("Deployed {tag}")).collect();
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/few", &["Deployed b", "Deployed 0"])
        .lane("shop/hook/dev/many", &steps)
        .check()
        .await;
    assert!(world.delivery("Deployed 5", |_| true).await.spec.coalesced);
}

#[tokio::test]
async fn a_timer_continues_while_the_cluster_restarts_and_ends_with_its_state() {
    let world = World::new("remote-clock").await;
    let west = Remote::of(&world, second(), "west").await;
    let receiver = Receiver::start();
    for app in ["short", "long"] {
        west.world.deploy(app, "1").await;
    }
    pipeline(&world, "shop", &[("dev/short", Some(&west)), ("dev/long", Some(&west))]).await;
    let triggers = json!([{"type": "Failed", "for": "30s", "clusters": ["we*"]}, {"type": "Failed", "clusters": ["east"]},
        {"type": "Deployed", "environments": ["fence"]}]);
    world.notification("hook", &receiver, json!({"triggers": triggers})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    // At once, so that neither timer ends before both are seen.
    tokio::join!(west.world.break_("short", "2", "no pods"), west.world.break_("long", "2", "no pods"));
    eventually("both timers run", async || {
        let dispatched = world.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        if dispatched.armed.len() == 2 { Ok(()) } else { Err(format!("{:?}", dispatched.armed)) }
    })
    .await;
    west.world.ship("short", "1").await;
    receiver.wait("/hook/long", 1).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/long", &["Failed 2"]).check().await;
}

#[tokio::test]
async fn intervals_of_a_remote_kustomization_are_silent_and_its_retries_are_one_failure() {
    let world = World::new("remote-intervals").await;
    let west = Remote::of(&world, second(), "west").await;
    let receiver = Receiver::start();
    let (good, bad) = ("main@sha1:aaa", "main@sha1:bbb");
    for app in ["calm", "ill"] {
        west.world.kustomize(app, good).await;
    }
    world.kustomize("fence", "0").await;
    let target = |app: &str| json!({"namespace": world.ns, "appRef": {"name": app}, "clusterRef": west.reference()});
    let fence = json!({"namespace": world.ns, "appRef": {"name": "fence"}});
    let app = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "app"});
    let environments =
        json!([{"name": "dev", "targets": [target("calm"), target("ill")]}, {"name": "fence", "targets": [fence]}]);
    world
        .create::<relaybook_api::Pipeline>(
            json!({"metadata": {"name": "shop"}, "spec": {"appRef": app, "environments": environments}}),
        )
        .await;
    world.notification("hook", &receiver, all_triggers()).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let api = west.world.kustomizations().await;
    let write = async |app: &str, conditions: &[Value], attempted: &str| {
        let status = json!({"conditions": conditions, "observedGeneration": 1, "lastAttemptedRevision": attempted});
        api.patch_status(app, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await.unwrap();
    };
    let reconciling = condition("Reconciling", "True", "Progressing", "Reconciliation in progress");
    let unknown = condition("Ready", "Unknown", "Progressing", "Reconciliation in progress");
    let retrying = condition("Reconciling", "True", "ProgressingWithRetry", "Building manifests");
    let failed = condition("Ready", "False", "BuildFailed", "no such file");
    let ready = condition("Ready", "True", "ReconciliationSucceeded", "Applied");
    let minute = async || {
        write("calm", &[reconciling.clone(), unknown.clone()], good).await;
        write("calm", std::slice::from_ref(&ready), good).await;
        write("ill", &[reconciling.clone(), unknown.clone()], bad).await;
        write("ill", &[retrying.clone(), failed.clone()], bad).await;
    };
    let shown = async || {
        eventually("the last state is observed", async || {
            let status = world.get_pipeline("shop").await.status.unwrap_or_default();
            let shown: Vec<_> = status.environments[0].targets.iter().map(|t| (t.status, t.reason.clone())).collect();
            let want = [relaybook_api::Status::Current, relaybook_api::Status::Failed];
            if shown.iter().map(|(s, _)| *s).eq(want) { Ok(()) } else { Err(format!("{shown:?}")) }
        })
        .await;
    };
    // One hour of reconciles at an interval of one minute. The first two states are read before the others, because Relaybook keeps only the
    // newest observations of an object until its pipeline is reconciled.
    minute().await;
    shown().await;
    for _ in 1..60 {
        minute().await;
    }
    shown().await;
    world.fence("shop", &["hook"]).await;
    let steps = [format!("Progressing {bad}"), format!("Failed {bad}")];
    Oracle::new(&world, &receiver).lane("shop/hook/dev/ill", &steps.each_ref().map(String::as_str)).check().await;
    assert!((relaybook.attempts().await - 3.0).abs() < f64::EPSILON, "these two and the fence");
}

#[tokio::test]
async fn all_of_256_targets_fail_at_once_while_the_dispatcher_is_down() {
    const TARGETS: usize = 255;
    let _alone = heavy().await;
    let world = World::new("remote-256").await;
    let (west, east) = (Remote::of(&world, second(), "west").await, Remote::of(&world, third(), "east").await);
    let receiver = Receiver::start();
    let apps: Vec<_> = (0..TARGETS).map(|n| format!("app-{n}")).collect();
    let place = |n: usize| if n.is_multiple_of(2) { &west } else { &east };
    for chunk in apps.iter().enumerate().collect::<Vec<_>>().chunks(16) {
        join_all(chunk.iter().map(async |(n, app)| place(*n).world.deploy(app, "1").await)).await;
    }
    let targets: Vec<_> = apps.iter().map(|app| format!("prod/{app}")).collect();
    let placed: Vec<_> = targets.iter().enumerate().map(|(n, t)| (t.as_str(), Some(place(n)))).collect();
    // With the fence there are 256 targets.
    pipeline(&world, "shop", &placed).await;
    world.notification("hook", &receiver, json!({})).await;
    let _observer = Relaybook::with(&world, Options { controllers: "pipeline", ..Options::of(&world) }).await;
    world.observed("shop").await;
    let message = "x\"\n".repeat(341);
    for chunk in apps.iter().enumerate().collect::<Vec<_>>().chunks(16) {
        join_all(chunk.iter().map(async |(n, app)| place(*n).world.fail(app, &message).await)).await;
    }
    eventually("all failures are written", async || {
        let status = world.get_pipeline("shop").await.status.unwrap_or_default();
        let failed = status.environments[0].targets.iter().filter(|t| t.status == relaybook_api::Status::Failed).count();
        let bytes = serde_json::to_vec(&status).unwrap().len();
        assert!(bytes <= 512 * 1024, "{bytes} bytes");
        if failed == TARGETS { Ok(()) } else { Err(format!("{failed} have failed")) }
    })
    .await;
    let _dispatcher = Relaybook::with(&world, Options { controllers: "dispatch", ..Options::of(&world) }).await;
    world.settled().await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver);
    targets.iter().fold(oracle, |o, t| o.lane(&format!("shop/hook/{t}"), &["Failed 1"])).check().await;
}
