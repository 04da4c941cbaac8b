//! Tests that a pipeline whose object changes all the time is written at its pace, and that nothing is lost by that.
//!
//! The bound follows from the time that has passed, so it holds on a machine of any speed.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use pennant::api::{Delivery, Pipeline};
use serde_json::json;

use crate::support::wait::heavy;
use crate::support::{Oracle, Pennant, Receiver, World};

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
    let pennant = Pennant::start(&team).await;
    team.settled().await;

    let (load, mut last) = (Instant::now(), 0);
    while load.elapsed() < Duration::from_secs(15) {
        last += 1;
        step(&team, "web", &last.to_string()).await;
    }
    let written = pennant.metrics().await["pennant_api_writes_total{kind=\"pipeline_status\",result=\"ok\"}"];
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
