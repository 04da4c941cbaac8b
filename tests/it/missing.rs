//! Targets that cannot be observed: the condition `Ready` names them with the reason, one Event reports it once, and the other
//! targets continue to work.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use relaybook_api::conditions::{Condition, ConditionStatus};
use relaybook_api::{Pipeline, Status};
use serde_json::{Value, json};

use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::world::apps::Kind;
use crate::support::world::pipeline;
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// Time limit for the report of a cluster that was never reachable. Relaybook reports it after 30 s.
const TAKES: std::time::Duration = std::time::Duration::from_secs(90);

/// Returns type, reason and note of the Events about a pipeline as a whole. An Event that was repeated is returned once for each
/// repetition.
async fn notices(world: &World, name: &str) -> Vec<String> {
    let all = world.api::<Event>().list(&ListParams::default()).await.expect("listed");
    let about = |e: &Event| {
        let regarding = e.regarding.as_ref();
        regarding.is_some_and(|r| r.kind.as_deref() == Some("Pipeline") && r.name.as_deref() == Some(name))
    };
    let changes = ["Deployed", "Progressing", "Failed", "Recovered", "Removed", "EnvironmentReady", "PipelineReady"];
    let mut told = Vec::new();
    for event in all.into_iter().filter(about) {
        let reason = event.reason.unwrap_or_default();
        if !changes.contains(&reason.as_str()) {
            let line = format!("{} {reason}: {}", event.type_.unwrap_or_default(), event.note.unwrap_or_default());
            let times = event.series.map_or(1, |series| series.count.max(1));
            told.extend((0..times).map(|_| line.clone()));
        }
    }
    told
}

/// Waits until the Events about the pipeline as a whole are exactly these, in any order.
async fn told(world: &World, name: &str, lines: &[String]) {
    eventually(&format!("Events about {name}"), async || {
        let mut told = notices(world, name).await;
        let mut lines = lines.to_vec();
        told.sort();
        lines.sort();
        if told == lines { Ok(()) } else { Err(format!("{told:#?}")) }
    })
    .await;
}

fn warning(ready: &Condition) -> String {
    format!("Warning {}: {}", ready.reason, ready.message)
}

async fn not_ready(world: &World, name: &str, reason: &str) -> Condition {
    world.pipeline_condition(name, "Ready", |c| c.status == ConditionStatus::False && c.reason == reason).await
}

#[tokio::test]
async fn a_missing_target_is_reported_with_existing_names() {
    let (prod, world) = (World::new("target-missing-prod").await, World::new("target-missing").await);
    let receiver = Receiver::start();
    prod.deploy("podinfo", "1").await;
    world.deploy("web", "1").await;
    let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "podinfo"});
    let environments = |prd: &str| {
        json!([
            {"name": "staging", "targets": [{"namespace": "target-missing-prod"}]},
            {"name": "prod", "targets": [{"namespace": prd}]},
            {"name": "dev", "targets": [{"namespace": "target-missing", "appRef": {"name": "wbe"}}]},
            {"name": "fence", "targets": [{"namespace": "target-missing", "appRef": {"name": "fence"}}]},
        ])
    };
    let spec = json!({"appRef": app, "environments": environments("target-missing-prd")});
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    world.notification("hook", &receiver, json!({})).await;
    let watch = ["target-missing", "target-missing-prd", "target-missing-prod"].map(str::to_owned).to_vec();
    let mut relaybook = Relaybook::with(&world, Options { watch, ..Options::of(&world) }).await;
    let ready = not_ready(&world, "shop", "TargetNotFound").await;
    assert_eq!(
        ready.message,
        "target prod/in-cluster/target-missing-prd: Deployment podinfo does not exist in namespace target-missing-prd; there is \
         one in target-missing-prod; target dev/in-cluster/target-missing/wbe: Deployment wbe does not exist in namespace \
         target-missing; did you mean web?"
    );
    let first = warning(&ready);
    told(&world, "shop", std::slice::from_ref(&first)).await;
    world.ready("hook").await;
    assert_eq!(world.get_pipeline("shop").await.status.unwrap().ready_targets, "2/4");

    // The other targets continue. A restarted process reports nothing again, and finds the same condition.
    relaybook.restart().await;
    prod.ship("podinfo", "2").await;
    world.fence("shop", &["hook"]).await;
    assert_eq!(not_ready(&world, "shop", "TargetNotFound").await.message, ready.message);
    assert_eq!(notices(&world, "shop").await, [first]);

    // The missing application is created.
    world.deploy("wbe", "1").await;
    world.patch::<Pipeline>("shop", json!({"spec": {"environments": environments("target-missing-prod")}})).await;
    let is_well = |c: &Condition| c.status == ConditionStatus::True && c.message == "4 of 4 targets found, 4 ready";
    let well = world.pipeline_condition("shop", "Ready", is_well).await;
    assert_eq!(well.reason, "Observed");

    // An application is deleted.
    world.delete::<Deployment>("wbe").await;
    let gone = not_ready(&world, "shop", "TargetNotFound").await;
    assert!(gone.message.starts_with("target dev/in-cluster/target-missing/wbe: "), "{}", gone.message);
    world.fence("shop", &["hook"]).await;
    eventually("Events about what is gone and about what was found", async || {
        let all = notices(&world, "shop").await;
        let is_told = all.contains(&warning(&gone)) && all.iter().any(|line| line.starts_with("Normal Observed: "));
        if is_told { Ok(()) } else { Err(format!("{all:#?}")) }
    })
    .await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook/staging/podinfo", &["Deployed 2"])
        .lane("shop/hook/dev/wbe", &["Deployed 1", "Removed"])
        .check()
        .await;
}

#[tokio::test]
async fn an_object_that_appears_is_added_also_while_relaybook_is_stopped() {
    let world = World::new("target-appears").await;
    let receiver = Receiver::start();
    world.deploy("here", "1").await;
    world.pipeline("shop", &["dev/here", "dev/soon", "dev/late"]).await;
    world
        .notification("hook", &receiver, json!({"triggers": [{"type": "Added"}, {"type": "Deployed"}, {"type": "Removed"}]}))
        .await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.deploy("soon", "1").await;
    world.delivery("Deployed 1", |_| true).await;
    world.delete::<Deployment>("soon").await;
    world.delivery("Removed", |_| true).await;
    world.deploy("soon", "1").await;
    receiver.wait("/hook/soon", 5).await;
    relaybook.stop().await;
    world.deploy("late", "1").await;
    relaybook.start_again().await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/soon", &["Added 1", "Deployed 1", "Removed", "Added 1", "Deployed 1"])
        .lane("shop/hook/dev/late", &["Added 1", "Deployed 1"])
        .check()
        .await;
}

#[tokio::test]
async fn a_misspelt_kind_is_reported_with_a_suggestion() {
    let world = World::new("target-missing-kind").await;
    let with = |api_version: &str, kind: &str| -> Value {
        let mut spec = pipeline(&world.ns, "shop", Kind::Deployment, &["dev/web"]);
        spec["spec"]["appRef"] = json!({"apiVersion": api_version, "kind": kind, "name": "web"});
        spec
    };
    world.create::<Pipeline>(with("apps/v1", "Deploymnt")).await;
    let _relaybook = Relaybook::start(&world).await;
    let misspelt = not_ready(&world, "shop", "KindNotFound").await;
    let words = "cluster in-cluster has no kind Deploymnt in apps/v1; did you mean kind Deployment?";
    assert!(misspelt.message.ends_with(words), "{}", misspelt.message);
    told(&world, "shop", &[warning(&misspelt)]).await;

    world.patch::<Pipeline>("shop", json!({"spec": with("apps/v2", "Deployment")["spec"]})).await;
    let version = world.pipeline_condition("shop", "Ready", |c| c.message.contains("apps/v2")).await;
    assert!(version.message.ends_with("did you mean apiVersion apps/v1?"), "{}", version.message);
    told(&world, "shop", &[warning(&misspelt), warning(&version)]).await;
}

#[tokio::test]
async fn a_cluster_that_was_never_reachable_is_reported() {
    let world = World::new("target-missing-cluster").await;
    let cluster = json!({"kind": "Secret", "name": "eu"});
    let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let environments = json!([{"name": "prod", "targets": [{"namespace": "web", "clusterRef": cluster}]}]);
    let spec = json!({"appRef": app, "environments": environments});
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    let _relaybook = Relaybook::start(&world).await;
    let missing = not_ready(&world, "shop", "KubeconfigMissing").await;
    told(&world, "shop", &[warning(&missing)]).await;

    // No server listens at this address. The address comes from a Secret, so no message may contain it.
    let text = "contexts: [{name: a, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n\
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n";
    world.create::<Secret>(json!({"metadata": {"name": "eu"}, "stringData": {"kubeconfig": text}})).await;
    let away = within(TAKES, "the cluster is called unreachable", async || {
        let conditions = world.get_pipeline("shop").await.status.unwrap_or_default().conditions;
        conditions.iter().find(|c| c.reason == "Unreachable").cloned().ok_or_else(|| format!("{conditions:?}"))
    })
    .await;
    assert!(away.message.contains("eu") && !away.message.contains("127.0.0.1"), "{}", away.message);
    told(&world, "shop", &[warning(&missing), warning(&away)]).await;
    let target = world.get_pipeline("shop").await.status.unwrap().environments[0].targets[0].clone();
    assert_eq!(target.status, Status::Unknown, "a target on an unreachable cluster is Unknown, not missing");
}

#[tokio::test]
async fn a_gap_in_the_log_is_reported_on_the_notification_that_missed_it() {
    let world = World::new("target-missing-changes").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.cursor("shop", "hook").await;
    // As the pipeline controller writes it when the status is full.
    let serial = world.get_pipeline("shop").await.status.unwrap().log.unwrap().serial;
    let dropped = json!({"status": {"dropped": {"serial": serial + 1, "count": 7}}});
    let api: Api<Pipeline> = world.api();
    api.patch_status("shop", &PatchParams::default(), &Patch::Merge(dropped)).await.expect("patched");
    let note = world.warning("hook", "ChangesPassed").await;
    assert!(note.contains("pipeline shop") && note.contains("change log is full"), "{note}");
    told(
        &world,
        "shop",
        &["Warning ChangesDropped: 7 changes were dropped because the status is full; \
        notifications that had not read them will not send them"
            .to_owned()],
    )
    .await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
    assert_eq!(world.get_pipeline("shop").await.status.unwrap().dropped.unwrap().count, 7);
}
