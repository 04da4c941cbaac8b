//! Whether a cluster is reachable: a changed kubeconfig, dropped packets, a restarted server that rejects requests.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use relaybook_api::Pipeline;
use relaybook_api::pipeline::TargetStatus;
use serde_json::json;

use super::{Stage, TAKES, secret};
use crate::support::proxy::Call;
use crate::support::wait::within;
use crate::support::{Fault, Oracle, Proxy, Receiver, control_plane, eventually};

/// On other clusters a kind is listed in all namespaces.
fn is_list_of_deployments(call: &Call) -> bool {
    call.path.ends_with("/deployments") && !call.is_watch()
}

#[tokio::test]
async fn a_target_on_another_cluster_is_observed_and_nothing_is_written_there() {
    let stage = Stage::new("clusters-observed").await;
    let receiver = Receiver::start();
    let proxy = Proxy::start(control_plane::remote(), "clusters-observed").await;
    let writes = proxy.rule(|call| call.method != "GET", Fault::Refuse(403));
    stage.kubeconfig("eu", &proxy.kubeconfig).await;
    stage.local.pipeline("near", &["dev/fence"]).await;
    stage.pipeline("shop", &[secret("eu")]).await;
    let hook = json!({"template": {"inline": {"body": "{{pipeline.name}} {{target.cluster.name}} {{type}} {{revision}}",
        "contentType": "text/plain"}}});
    stage.local.notification("hook", &receiver, hook).await;
    let relaybook = stage.relaybook().await;
    stage.runs("shop", 0, "1").await;
    stage.local.ready("hook").await;
    stage.local.cursor("shop", "hook").await;

    stage.remote.ship("web", "2").await;
    stage.runs("shop", 0, "2").await;
    receiver.wait("/hook/web", 1).await;
    assert_eq!(receiver.to("/hook/web")[0].body, b"shop eu Deployed 2");
    assert_eq!(proxy.hits(writes), 0, "Relaybook only reads there");
    let metrics = relaybook.metrics().await;
    assert_eq!(metrics[r#"relaybook_clusters{state="reachable"}"#], 1.0);
    assert!(metrics["relaybook_objects_cached"] >= 2.0 && metrics["relaybook_caches"] >= 2.0, "{metrics:?}");
    assert!(metrics["relaybook_observation_lag_seconds_count"] >= 1.0);
}

#[tokio::test]
async fn a_changed_kubeconfig_applies_at_once_and_closes_old_connections() {
    let stage = Stage::new("clusters-rotated").await;
    let receiver = Receiver::start();
    let old = Proxy::start(control_plane::remote(), "clusters-rotated-old").await;
    let new = Proxy::start(control_plane::remote(), "clusters-rotated-new").await;
    stage.kubeconfig("eu", &old.kubeconfig).await;
    stage.pipeline("shop", &[secret("eu")]).await;
    let _relaybook = stage.relaybook().await;
    stage.runs("shop", 0, "1").await;
    assert!(old.open() > 0 && new.open() == 0);
    stage.witness("shop", &receiver).await;

    // The same kubeconfig again is no change: nothing is listed again.
    let lists = old.rule(is_list_of_deployments, Fault::LoseRequest);
    let watches = old.rule(Call::is_watch, Fault::LoseRequest);
    stage.local.patch::<Secret>("eu", json!({"metadata": {"labels": {"edited": "yes"}}})).await;
    stage.remote.ship("web", "2").await;
    stage.runs("shop", 0, "2").await;
    assert_eq!((old.hits(lists), old.hits(watches)), (0, 0));

    stage.kubeconfig("eu", &new.kubeconfig).await;
    eventually("the old connections are closed", async || match old.open() {
        0 => Ok(()),
        open => Err(format!("{open} are open")),
    })
    .await;
    // Without a CA certificate, another address means another cluster: its first observation is a baseline, not a change.
    let is_baseline = |t: &TargetStatus| t.settled.as_ref().is_some_and(|settled| settled.based > 0);
    stage.seen("shop", 0, "the baseline at the new address", is_baseline).await;
    stage.remote.ship("web", "3").await;
    stage.runs("shop", 0, "3").await;
    assert!(new.open() > 0 && old.open() == 0);
    stage.told("shop", &receiver, &[&["Deployed 2", "Deployed 3"]]).await;
}

#[tokio::test]
async fn dropped_packets_are_detected_and_delay_no_other_cluster() {
    let stage = Stage::new("clusters-swallowed").await;
    let receiver = Receiver::start();
    let proxy = Proxy::start(control_plane::remote(), "clusters-swallowed").await;
    stage.kubeconfig("eu", &proxy.kubeconfig).await;
    stage.kubeconfig("us", control_plane::remote()).await;
    stage.pipeline("shop", &[secret("eu"), secret("us")]).await;
    let _relaybook = stage.relaybook().await;
    stage.runs("shop", 0, "1").await;
    stage.runs("shop", 1, "1").await;
    stage.witness("shop", &receiver).await;

    proxy.freeze();
    stage.remote.ship("web", "2").await;
    // The other cluster is followed while this one is silent. How soon the silence is detected depends on the machine.
    stage.runs("shop", 1, "2").await;
    let message = stage.unknown("shop", 0, "Timeout").await;
    assert_eq!(message, "cluster clusters-swallowed.eu does not answer in time");

    proxy.heal();
    stage.runs("shop", 0, "2").await;
    stage.remote.ship("web", "3").await;
    stage.runs("shop", 0, "3").await;
    stage.runs("shop", 1, "3").await;
    stage.told("shop", &receiver, &[&["Deployed 2", "Deployed 3"], &["Deployed 2", "Deployed 3"]]).await;
}

#[tokio::test]
async fn the_last_status_is_kept_while_a_restarted_cluster_rejects_requests() {
    let stage = Stage::new("clusters-hiccup").await;
    let proxy = Proxy::start(control_plane::remote(), "clusters-hiccup").await;
    stage.kubeconfig("eu", &proxy.kubeconfig).await;
    stage.pipeline("shop", &[secret("eu")]).await;
    let mut relaybook = stage.relaybook().await;
    stage.runs("shop", 0, "1").await;
    let ready = async || stage.local.pipeline_condition("shop", "Ready", |c| c.reason == "Observed").await;
    let before = ready().await;
    relaybook.stop().await;
    // The times are noted when the lists arrive, because a busy machine delays the test.
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = times.clone();
    let is_noted = move |call: &Call| {
        let is = is_list_of_deployments(call);
        if is {
            noted.lock().unwrap().push(Instant::now());
        }
        is
    };
    let lists = proxy.rule(is_noted, Fault::Times(5, Box::new(Fault::Refuse(500))));
    relaybook.start_again().await;
    proxy.hit(lists, 5).await;
    let times = times.lock().unwrap().clone();
    let took = times[4] - times[0];
    // Four pauses: 7.5 s, and jitter that only adds.
    assert!(took > Duration::from_secs(7), "each pause is twice the one before, from half a second on: {took:?}");
    stage.remote.ship("web", "2").await;
    stage.runs("shop", 0, "2").await;
    let restarts = relaybook.metrics().await["relaybook_watch_restarts_total"];
    assert!(restarts >= 5.0, "{restarts}");
    assert_eq!(ready().await.last_transition_time, before.last_transition_time, "the pipeline stays ready");
    assert!(relaybook.log().contains("cannot observe: cluster clusters-hiccup.eu returned HTTP 500"), "the error is logged");
}

#[tokio::test]
async fn a_mute_cluster_delays_no_pipeline_and_no_stop_and_unused_caches_are_released() {
    let stage = Stage::new("clusters-ended").await;
    let receiver = Receiver::start();
    let proxy = Proxy::start(control_plane::remote(), "clusters-ended").await;
    let mute = Proxy::start(control_plane::remote(), "clusters-ended-mute").await;
    mute.freeze();
    stage.kubeconfig("eu", &proxy.kubeconfig).await;
    stage.kubeconfig("us", &mute.kubeconfig).await;
    stage.pipeline("shop", &[secret("eu")]).await;
    stage.pipeline("far", &[secret("us")]).await;
    stage.local.deploy("web", "1").await;
    stage.local.pipeline("near", &["dev/web"]).await;
    stage.local.notification("hook", &receiver, json!({})).await;
    let mut relaybook = stage.relaybook().await;
    stage.runs("shop", 0, "1").await;
    stage.unknown("far", 0, "Timeout").await;
    stage.local.observed("near").await;
    stage.local.ready("hook").await;
    stage.local.ship("web", "2").await;
    stage.local.fence("near", &["hook"]).await;
    Oracle::new(&stage.local, &receiver).lane("near/hook/dev/web", &["Deployed 2"]).check().await;

    stage.local.delete::<Pipeline>("shop").await;
    within(TAKES, "its connections are closed", async || match proxy.open() {
        0 => Ok(()),
        open => Err(format!("{open} are open")),
    })
    .await;
    assert_eq!(relaybook.metrics().await[r#"relaybook_clusters{state="reachable"}"#], 0.0);

    let began = Instant::now();
    relaybook.stop().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "it took {took:?} to stop");
}
