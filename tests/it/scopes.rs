//! What one process watches: several namespaces, and kinds that are added later. Also checks the names of the metrics.
#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

use std::collections::BTreeSet;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::pipeline::TargetStatus;
use relaybook_api::{Pipeline, Status};
use serde_json::json;

use crate::support::control_plane;
use crate::support::relaybook::Options;
use crate::support::world::{self, apps::Kind, apps::condition};
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

#[tokio::test]
async fn the_same_names_in_two_namespaces_are_independent() {
    let (a, b) = (World::new("scopes-a").await, World::new("scopes-b").await);
    let (at_a, at_b) = (Receiver::start(), Receiver::start());
    for (world, receiver) in [(&a, &at_a), (&b, &at_b)] {
        world.deploy("web", "1").await;
        world.pipeline("shop", &["dev/web"]).await;
        world.notification("hook", receiver, json!({})).await;
    }
    let watch = vec![a.ns.clone(), b.ns.clone()];
    let mut relaybook = Relaybook::with(&a, Options { watch, ..Options::of(&a) }).await;
    a.settled().await;
    b.settled().await;

    a.ship("web", "2").await;
    b.ship("web", "3").await;
    // A change that is neither observed before the restart nor visible after it can be missed. So the test waits here.
    a.observed_at("shop", "2", &["web"]).await;
    b.observed_at("shop", "3", &["web"]).await;
    relaybook.restart().await;
    a.ship("web", "4").await;
    b.ship("web", "5").await;
    a.fence("shop", &["hook"]).await;
    b.fence("shop", &["hook"]).await;
    Oracle::new(&a, &at_a).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 4"]).check().await;
    Oracle::new(&b, &at_b).lane("shop/hook/dev/web", &["Deployed 3", "Deployed 5"]).check().await;
}

#[tokio::test]
async fn a_kind_that_is_added_later_is_observed() {
    let world = World::new("scopes-late").await;
    let receiver = Receiver::start();
    let mut late = world::pipeline(&world.ns, "shop", Kind::Deployment, &["dev/web"]);
    late["spec"]["environments"][0]["targets"][0]["appRef"] =
        json!({"apiVersion": "late.example.com/v1", "kind": "Widget", "name": "web"});
    world.create::<Pipeline>(late).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    let missing = world.pipeline_condition("shop", "Ready", |c| c.status == ConditionStatus::False).await;
    assert_eq!(missing.reason, "KindNotFound");
    assert!(missing.message.contains("Widget") && missing.message.contains("late.example.com/v1"), "{}", missing.message);
    world.ready("hook").await;

    control_plane::install(&world.client, &control_plane::foreign("late.example.com", "v1", "Widget", "widgets")).await;
    let kind = GroupVersionKind::gvk("late.example.com", "v1", "Widget");
    let widgets: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), &world.ns, &ApiResource::from_gvk_with_plural(&kind, "widgets"));
    let widget = json!({
        "apiVersion": "late.example.com/v1", "kind": "Widget", "spec": {},
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/version": "1"}},
    });
    widgets.create(&PostParams::default(), &serde_json::from_value(widget).unwrap()).await.unwrap();
    // No controller has written a status yet, so the widget is in progress.
    let seen = async |what: &str, holds: &dyn Fn(&TargetStatus) -> bool| {
        eventually(what, async || {
            let status = world.get_pipeline("shop").await.status.unwrap_or_default();
            let target = &status.environments[0].targets[0];
            if holds(target) { Ok(()) } else { Err(format!("{target:?}")) }
        })
        .await;
    };
    seen("the widget is seen", &|t| t.status == Status::InProgress && t.attempted_revision == "1").await;
    let ready = json!({"status": {"observedGeneration": 1, "conditions": [condition("Ready", "True", "Up", "")]}});
    widgets.patch_status("web", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    seen("the widget is up", &|t| t.ready && t.revision == "1").await;
    world.observed("shop").await;

    let label = json!({"metadata": {"labels": {"app.kubernetes.io/version": "2"}}});
    widgets.patch("web", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 1", "Deployed 2"]).check().await;
}

#[tokio::test]
async fn metrics_have_stable_names_and_labels() {
    let world = World::new("scopes-metrics").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let relaybook = Relaybook::start(&world).await;
    assert_eq!(relaybook.page("/readyz").await, "ok\n");
    assert_eq!(relaybook.page("/healthz").await, "ok\n");
    // Only this family has series for each notification, and only while it has pending or parked deliveries.
    let stays = |name: &String| !name.starts_with("relaybook_notification_deliveries{");
    let before: BTreeSet<_> = relaybook.metrics().await.into_keys().filter(stays).collect();
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;

    eventually("both deliveries are counted", async || {
        let count = relaybook.metrics().await["relaybook_deliveries_total{outcome=\"Delivered\"}"];
        if count == 2.0 { Ok(()) } else { Err(format!("{count}")) }
    })
    .await;
    let text = relaybook.page("/metrics").await;
    let families: BTreeSet<_> =
        text.lines().filter_map(|l| l.strip_prefix("# TYPE ")).filter_map(|l| l.split_once(' ')).collect();
    let expected = FAMILIES.into_iter().collect();
    assert_eq!(families, expected);
    let after = relaybook.metrics().await;
    let series: BTreeSet<_> = after.keys().filter(|name| stays(name)).cloned().collect();
    assert_eq!(before, series, "every series exists from the start, and no series depends on the names of objects");
}

const FAMILIES: [(&str, &str); 37] = [
    ("relaybook_api_writes", "counter"),
    ("relaybook_api_writes_paced", "counter"),
    ("relaybook_attempts", "counter"),
    ("relaybook_bookkeeping_entries", "gauge"),
    ("relaybook_bucket_held", "gauge"),
    ("relaybook_build", "info"),
    ("relaybook_caches", "gauge"),
    ("relaybook_change_to_first_attempt_seconds", "histogram"),
    ("relaybook_changes_dropped", "counter"),
    ("relaybook_clusters", "gauge"),
    ("relaybook_config_valid", "gauge"),
    ("relaybook_deliveries", "counter"),
    ("relaybook_deliveries_foreign", "counter"),
    ("relaybook_deliveries_kept", "gauge"),
    ("relaybook_deliveries_overdue", "gauge"),
    ("relaybook_deliveries_pending", "gauge"),
    ("relaybook_deliveries_removed", "counter"),
    ("relaybook_forge_requests", "counter"),
    ("relaybook_lease_epoch", "gauge"),
    ("relaybook_lease_held", "gauge"),
    ("relaybook_lanes", "gauge"),
    ("relaybook_look_ups", "counter"),
    ("relaybook_notification_deliveries", "gauge"),
    ("relaybook_objects_cached", "gauge"),
    ("relaybook_observation_lag_seconds", "histogram"),
    ("relaybook_origins_unreachable", "gauge"),
    ("relaybook_hooks", "counter"),
    ("relaybook_promotion_oldest_open_timestamp_seconds", "gauge"),
    ("relaybook_promotions", "gauge"),
    ("relaybook_redeliveries", "counter"),
    ("relaybook_request_duration_seconds", "histogram"),
    ("relaybook_spans", "counter"),
    ("relaybook_tasks", "gauge"),
    ("relaybook_token_requests", "counter"),
    ("relaybook_watch_errors", "counter"),
    ("relaybook_watch_restarts", "counter"),
    ("relaybook_workers", "gauge"),
];
