//! Tests that a pipeline, and a namespace, whose objects change all the time are written at their pace, and that nothing is lost by that.
//!
//! The bounds follow from the time that has passed, so they hold on a machine of any speed.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use relaybook_api::{Delivery, Pipeline};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::support::relaybook::Options;
use crate::support::wait::{heavy, within};
use crate::support::{Oracle, Receiver, Relaybook, World};

/// Time for what is slow by design.
const LONG: Duration = Duration::from_mins(4);

/// Sets the revision of an application.
async fn step(world: &World, app: &str, revision: &str) {
    world.patch::<Deployment>(app, json!({"metadata": {"labels": {"step": revision}}})).await;
}

#[tokio::test]
async fn a_pipeline_whose_object_changes_all_the_time_is_written_at_its_pace_and_loses_nothing() {
    let _heavy = heavy().await;
    let team = World::new("paced").await;
    let receiver = Receiver::start();
    team.deploy_with("web", "1", json!({"step": "0"})).await;
    let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "revisionPath": ".metadata.labels.step"});
    let environments = json!([{"name": "dev", "targets": [{"namespace": team.ns}]}]);
    team.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": {"appRef": app, "environments": environments}}))
        .await;
    team.notification("hook", &receiver, json!({"delivery": {"retain": {"perLane": 1000}}})).await;
    let began = Instant::now();
    let relaybook = Relaybook::start(&team).await;
    team.settled().await;

    let (load, mut last) = (Instant::now(), 0);
    while load.elapsed() < Duration::from_secs(15) {
        last += 1;
        step(&team, "web", &last.to_string()).await;
    }
    let written = relaybook.metrics().await["relaybook_api_writes_total{kind=\"pipeline_status\",result=\"ok\"}"];
    // 128 writes of 16 KiB at once, then four a second, and the one that uses up the budget.
    let most = 128.0 + 4.0 * began.elapsed().as_secs_f64() + 1.0;
    assert!(written <= most, "{written} writes of the status, {last} changes; at most {most:.0} are allowed");

    let last = format!("Deployed {last}");
    team.delivery_within(LONG, &last, |d| d.status.as_ref().is_some_and(|s| s.outcome.is_some())).await;
    let mut deliveries = team.deliveries().await;
    deliveries.sort_by_key(|delivery| delivery.spec.serial);
    chained(&deliveries);
    let all: Vec<String> = deliveries.iter().map(|d| format!("Deployed {}", d.spec.to.revision)).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(all.last(), Some(&last.as_str()));
    Oracle::new(&team, &receiver).lane("shop/hook/dev/web", &all).check().await;
}

/// Checks that no change is missing between two deliveries. A merged change can begin before the end of one that was delivered earlier.
fn chained(deliveries: &[Delivery]) {
    let number = |revision: &str| revision.parse::<u64>().expect("a number");
    let mut before = 0;
    for delivery in deliveries {
        let (from, to) = (number(&delivery.spec.from.revision), number(&delivery.spec.to.revision));
        assert!(from <= before && before < to, "{from} to {to} after {before}");
        before = to;
    }
}

/// Number of pipelines of the noisy team. Their own budgets together are larger than that of their namespace.
const PIPELINES: usize = 20;
/// Number of their targets. Nobody reads their logs, so a status has several hundred KiB.
const APPS: usize = 60;
const KIB: f64 = 1024.0;

#[tokio::test]
async fn a_namespace_that_changes_all_the_time_is_written_at_its_pace_and_delays_no_other() {
    let _heavy = heavy().await;
    let (noisy, quiet) = (World::new("paced-noisy").await, World::new("paced-quiet").await);
    let receiver = Receiver::start();
    quiet.deploy("web", "1").await;
    quiet.pipeline("shop", &["dev/web"]).await;
    quiet.notification("hook", &receiver, json!({})).await;
    let apps: Vec<String> = (0..APPS).map(|n| format!("app-{n}")).collect();
    let deploy = |app| noisy.deploy_with(app, "1", json!({"team": "noisy", "step": "0"}));
    stream::iter(apps.iter().map(String::as_str)).map(deploy).buffer_unordered(4).collect::<Vec<_>>().await;
    let written = bytes_written(&noisy);
    for n in 0..PIPELINES {
        let objects = json!({"apiVersion": "apps/v1", "kind": "Deployment", "selector": {"matchLabels": {"team": "noisy"}},
            "revisionPath": ".metadata.labels.step"});
        let spec = json!({"environments": [{"name": "dev", "targetsFrom": [{"objects": objects}]}]});
        noisy.create::<Pipeline>(json!({"metadata": {"name": format!("all-{n}")}, "spec": spec})).await;
    }
    let began = Instant::now();
    let watch = vec![noisy.ns.clone(), quiet.ns.clone()];
    let relaybook = Relaybook::with(&quiet, Options { watch, ..Options::of(&quiet) }).await;
    quiet.settled().await;

    let (load, mut last) = (Instant::now(), 0);
    // The budget is used up, and then more time passes in which the pace counts.
    let mut until = None;
    while until.is_none_or(|until| Instant::now() < until) {
        assert!(load.elapsed() < LONG, "the budget is not used up");
        last += 1;
        let revision = last.to_string();
        stream::iter(&apps).map(|app| step(&noisy, app, &revision)).buffer_unordered(4).collect::<Vec<_>>().await;
        let bound = 2.0 * KIB * KIB + 128.0 * KIB * began.elapsed().as_secs_f64();
        // The dispatcher has a budget of its own, and writes to each pipeline once.
        let slack = 512.0 * KIB * f64::from(u8::try_from(PIPELINES).unwrap());
        let bytes = *written.1.borrow();
        assert!(bytes <= bound + slack, "{:.0} KiB of statuses in {:?}", bytes / KIB, began.elapsed());
        let paced = relaybook.metrics().await["relaybook_api_writes_paced_total{kind=\"pipeline_status\"}"];
        if until.is_none() && paced > 0.0 {
            until = Some(Instant::now() + Duration::from_secs(10));
        }
    }

    // The change of another namespace is sent while many pipelines of the noisy one wait.
    quiet.ship("web", "2").await;
    quiet.fence("shop", &["hook"]).await;
    Oracle::new(&quiet, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
    let held = all(&noisy).await.into_iter().filter(|pipeline| log_of(pipeline).is_some_and(|log| log.held_until.is_some()));
    assert!(held.count() > 0, "timers of the noisy namespace know that changes can come late");
    // Each pipeline is written in turn, and shows the last state.
    within(LONG, "each pipeline shows the last state", async || {
        let is_behind = |pipeline: &Pipeline| {
            let environments = pipeline.status.iter().flat_map(|status| &status.environments);
            let shown = environments.flat_map(|environment| &environment.targets);
            shown.filter(|target| target.revision == last.to_string()).count() < APPS
        };
        let behind: Vec<_> = all(&noisy).await.into_iter().filter(is_behind).map(|p| p.metadata.name).collect();
        if behind.is_empty() { Ok(()) } else { Err(format!("{behind:?}")) }
    })
    .await;
}

async fn all(world: &World) -> Vec<Pipeline> {
    world.api::<Pipeline>().list(&ListParams::default()).await.expect("pipelines").items
}

fn log_of(pipeline: &Pipeline) -> Option<&relaybook_api::ChangeLog> {
    pipeline.status.as_ref()?.log.as_ref()
}

/// Returns the sum of the sizes of all statuses that are written from now on.
fn bytes_written(world: &World) -> (AbortOnDropHandle<()>, watch::Receiver<f64>) {
    let (send, sum) = watch::channel(0.0);
    let api = world.api::<Pipeline>();
    let follow = async move {
        let mut pipelines = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
        while let Some(pipeline) = pipelines.try_next().await.expect("pipelines are watched") {
            let bytes = pipeline.status.map_or(0, |status| serde_json::to_vec(&status).map_or(0, |text| text.len()));
            #[allow(clippy::cast_precision_loss, reason = "a status is small")]
            send.send_modify(|sum| *sum += bytes as f64);
        }
    };
    (AbortOnDropHandle::new(tokio::spawn(follow)), sum)
}
