//! Provokes faults around the global configuration: outdated copies, lost responses, and standby replicas.

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use relaybook_api::{Delivery, Notification, Outcome, Pipeline};
use serde_json::json;

use super::broken::{all_arrived, answer, stuck};
use super::{MAP, Stage, everywhere, homes, is};
use crate::support::proxy::{Call, Fault, Proxy};
use crate::support::relaybook::Options;
use crate::support::world::{self, apps::Kind};
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

const COPY: &str = "relaybook-config-last-good";

fn is_copy_written(call: &Call) -> bool {
    call.method == "PATCH" && call.path.ends_with(&format!("/configmaps/{COPY}"))
}

/// One target has its own template. The others use the template of the global configuration, which changes during the test.
#[tokio::test]
async fn a_target_template_does_not_block_the_template_of_other_targets() {
    let stage = Stage::new("global-rest").await;
    let Stage { system, team } = &stage;
    let receiver = Receiver::start();
    let body = |mark: &str| world::BODY.replacen('{', &format!("{{\"mark\": \"{mark}\", "), 1);
    system.create::<ConfigMap>(json!({"metadata": {"name": "texts"}, "data": {"body": body("old")}})).await;
    let template = json!({"template": {"inline": null, "configMapKeyRef": {"name": "texts", "key": "body"}}});
    stage.configure(&json!({"notifications": [everywhere("audit", &receiver, template)]})).await;
    let mut shop = world::pipeline(&team.ns, "shop", Kind::Deployment, &["dev/web", "prod/api"]);
    shop["spec"]["environments"][1]["targets"][0]["notifications"] =
        json!([{"name": "audit", "template": {"inline": {"body": body("own")}}}]);
    team.create::<Pipeline>(shop).await;
    let _relaybook = stage.start().await;
    stage.cursor("shop", "audit", "global").await;
    stage.ship("2").await;
    team.fence("shop", &["audit"]).await;
    system.patch::<ConfigMap>("texts", json!({"data": {"body": body("new")}})).await;
    // The fence uses the shared template too, so it shows when the new template is in use.
    let mut round = 0;
    eventually("the new template is used", async || {
        round += 1;
        let tag = format!("9{round}");
        team.ship("fence", &tag).await;
        receiver.wait("/audit/fence", 1 + round).await;
        let mark = receiver.to("/audit/fence").last().expect("one").json()["mark"].clone();
        if mark == "new" { Ok(()) } else { Err(mark.to_string()) }
    })
    .await;
    stage.ship("3").await;
    team.fence("shop", &["audit"]).await;
    // The fence has a lane of its own.
    receiver.wait("/audit/web", 2).await;
    receiver.wait("/audit/api", 2).await;
    let marks = |app: &str| -> Vec<_> {
        receiver
            .to(&format!("/audit/{app}"))
            .iter()
            .map(|r| r.json()["mark"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(
        (marks("web"), marks("api")),
        (vec!["old".to_owned(), "new".to_owned()], vec!["own".to_owned(), "own".to_owned()])
    );
}

/// The copy of the last valid configuration is outdated, as after a rejected write. Deliveries of a notification that it does not contain
/// are not canceled.
#[tokio::test]
async fn an_unreadable_configuration_deletes_nothing() {
    let (stage, receiver, mut relaybook, good) = stuck("global-older").await;
    relaybook.kill9();
    stage.system.patch::<ConfigMap>(COPY, json!({"data": {"config.yaml": "{}"}})).await;
    stage.configure_text("notifications: [").await;
    relaybook.launch();
    relaybook.wait_ready().await;
    stage.warning("ConfigInvalid").await;
    stage.ship("3").await;
    stage.team.fence("shop", &["own"]).await;
    answer(&receiver, 200);
    stage.ship("4").await;
    stage.team.fence("shop", &["own"]).await;
    stage.cursor("shop", "audit", "global").await;
    let waits = stage.team.delivery("Deployed 2", |d| d.spec.notification == "audit").await.status.unwrap_or_default();
    assert_eq!(waits.outcome, None, "{waits:?}");
    stage.configure(&good).await;
    stage.team.fence("shop", &["own", "audit"]).await;
    all_arrived(&stage, &receiver).await;
}

/// The copy is written once for each change of its content, and again until the write succeeds.
#[tokio::test]
async fn the_copy_of_the_configuration_is_written_only_if_it_changes() {
    let stage = Stage::new("global-copy").await;
    let receiver = Receiver::start();
    let proxy = Proxy::start(&stage.system.kubeconfig, "global-copy").await;
    let refused = proxy.rule(is_copy_written, Fault::Times(1, Box::new(Fault::Refuse(500))));
    let entry = |name: &str| everywhere(name, &receiver, json!({}));
    stage.configure(&json!({"notifications": [entry("a"), entry("b")]})).await;
    stage.team.pipeline("shop", &["dev/web"]).await;
    let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..stage.options() };
    let mut relaybook = Relaybook::with(&stage.system, options).await;
    let copied = async |name: &str| {
        eventually(&format!("the copy names {name}"), async || {
            let copy = stage.system.api::<ConfigMap>().get_opt(COPY).await.expect("read");
            let text = copy.and_then(|c| c.data?.remove("config.yaml")).unwrap_or_default();
            if text.contains(&format!("\"{name}\"")) { Ok(()) } else { Err(text) }
        })
        .await;
    };
    copied("b").await;
    assert_eq!(proxy.hits(refused), 2);
    // Another order, a comment and a restart are not changes.
    let same = json!({"notifications": [entry("b"), entry("a")]});
    stage.configure_text(&format!("# The same.\n{same}\n")).await;
    stage.configure(&json!({"notifications": [entry("c"), entry("a"), entry("b")]})).await;
    copied("c").await;
    assert_eq!(proxy.hits(refused), 3);
    relaybook.restart().await;
    stage.configure(&json!({"notifications": [entry("d")]})).await;
    copied("d").await;
    assert_eq!(proxy.hits(refused), 4);
}

/// One replica reports problems of the configuration, and saves it.
#[tokio::test]
async fn a_replica_that_has_no_pipeline_writes_nothing() {
    let stage = Stage::new("global-two").await;
    let receiver = Receiver::start();
    let good = json!({"notifications": [everywhere("audit", &receiver, json!({}))]});
    stage.configure(&good).await;
    stage.team.only_for_first();
    stage.team.pipeline("shop", &["dev/web"]).await;
    let replica = |pod| Relaybook::with(&stage.system, Options { pod: Some(pod), ..stage.options() });
    let first = replica("first").await;
    stage.cursor("shop", "audit", "global").await;
    let second = replica("second").await;
    for text in ["notifications: [", "defaults: 5"] {
        stage.configure_text(text).await;
        for relaybook in [&first, &second] {
            says_valid(relaybook, 0.0).await;
        }
        stage.warning("ConfigInvalid").await;
        stage.configure(&good).await;
        says_valid(&second, 1.0).await;
    }
    let written = |relaybook: Vec<(String, f64)>| {
        relaybook.into_iter().filter(|(name, n)| is_write(name) && *n > 0.0).collect::<Vec<_>>()
    };
    let by_first = written(first.metrics().await.into_iter().collect());
    assert!(!by_first.is_empty(), "the first one has written, so the metric counts");
    let by_second = written(second.metrics().await.into_iter().collect());
    assert!(by_second.is_empty(), "{by_second:?}");
}

fn is_write(name: &str) -> bool {
    name.starts_with("relaybook_api_writes_total") && !name.contains("lease")
}

async fn says_valid(relaybook: &Relaybook, expected: f64) {
    eventually("the metric", async || {
        let valid = relaybook.metrics().await["relaybook_config_valid"];
        if (valid - expected).abs() < f64::EPSILON { Ok(()) } else { Err(valid.to_string()) }
    })
    .await;
}

/// A Notification of the same name that does not select the pipeline does not send what the cluster-wide notification has recorded for it.
#[tokio::test]
async fn recorded_deliveries_are_not_sent_by_a_notification_for_other_pipelines() {
    let stage = Stage::new("global-astray").await;
    let Stage { team, .. } = &stage;
    let (ours, theirs) = (Receiver::start(), Receiver::start());
    for app in ["web", "api"] {
        ours.always(&format!("/audit/{app}"), Reply::status(503));
    }
    let mut audit = everywhere("audit", &ours, json!({}));
    audit["pipelineSelector"] = json!({"matchLabels": {"tier": "1"}});
    stage.configure(&json!({"notifications": [audit]})).await;
    team.notification("audit", &theirs, json!({"pipelineSelector": {"matchLabels": {"tier": "2"}}})).await;
    team.pipeline("shop", &["dev/web", "prod/api"]).await;
    team.patch::<Pipeline>("shop", json!({"metadata": {"labels": {"tier": "1"}}})).await;
    let _relaybook = stage.start().await;
    stage.cursor("shop", "audit", "global").await;
    stage.ship("2").await;
    ours.wait("/audit/web", 1).await;
    ours.wait("/audit/api", 1).await;
    team.patch::<Pipeline>("shop", json!({"metadata": {"labels": {"tier": "3"}}})).await;
    eventually("pending deliveries are canceled", async || {
        let all = team.deliveries().await;
        let canceled = all.iter().filter(|d| is(Outcome::Canceled)(d)).count();
        if canceled == 2 { Ok(()) } else { Err(format!("{:?}", all.iter().map(|d| &d.status).collect::<Vec<_>>())) }
    })
    .await;
    assert!(theirs.log().is_empty(), "{:?}", theirs.log());
}

/// The layer that sets the URL changes while it is unknown whether a delivery was recorded, and the process is killed. Each delivery is
/// recorded once, in one of the two namespaces.
#[tokio::test]
async fn a_lost_response_and_a_new_url_layer_record_nothing_twice() {
    let stage = Stage::new("global-lost").await;
    let Stage { system, team } = &stage;
    let (ours, theirs) = (Receiver::start(), Receiver::start());
    let proxy = Proxy::start(Path::new(&system.kubeconfig), "global-lost").await;
    let config = json!({"notifications": [everywhere("audit", &ours, json!({}))]});
    stage.configure(&config).await;
    team.pipeline("shop", &["dev/web", "prod/api"]).await;
    let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..stage.options() };
    let mut relaybook = Relaybook::with(system, options).await;
    team.settled().await;
    stage.cursor("shop", "audit", "global").await;
    let over = json!({"endpoint": {"url": theirs.url("/audit/{{target.app.name}}")}});
    for (round, tag) in ["2", "3", "4", "5"].into_iter().enumerate() {
        // All creates are applied, but their responses are lost.
        let lost = proxy.rule(Call::is_create_delivery, Fault::LoseAnswer);
        stage.ship(tag).await;
        proxy.hit(lost, 2).await;
        if round % 2 == 0 {
            team.notification("audit", &theirs, over.clone()).await;
        } else {
            team.delete::<Notification>("audit").await;
        }
        if round > 1 {
            relaybook.kill9();
            relaybook.launch();
        }
        proxy.remove(lost);
        relaybook.wait_ready().await;
        team.fence("shop", &["audit"]).await;
    }
    assert_eq!(homes(team, "audit").await, [team.ns.clone(), system.ns.clone()]);
    let mut oracle = Oracle::new(team, &ours).and(&theirs).after_crashes(2);
    for target in ["dev/web", "prod/api"] {
        oracle = oracle.lane(&format!("shop/audit/{target}"), &["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5"]);
    }
    oracle.check().await;
}

/// The ConfigMap is deleted and created again at once, as when an installation is replaced. Pending deliveries continue or are canceled,
/// and later changes are reported.
#[tokio::test]
async fn a_recreated_config_map_blocks_nothing() {
    let (stage, receiver, _relaybook, good) = stuck("global-again").await;
    for _ in 0..5 {
        stage.system.delete_any::<ConfigMap>(MAP).await;
        stage.configure(&good).await;
    }
    answer(&receiver, 200);
    let mut round = 0;
    eventually("later changes are reported", async || {
        round += 1;
        stage.team.ship("fence", &format!("9{round}")).await;
        stage.team.observed_at("shop", &format!("9{round}"), &["fence"]).await;
        // A delivery from before the ConfigMap was deleted does not count.
        let is_later = |d: &Delivery| d.spec.notification == "audit" && d.spec.to.revision.starts_with('9');
        if stage.team.deliveries().await.iter().any(is_later) { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    stage.team.fence("shop", &["audit", "own"]).await;
    // The fence has a lane of its own.
    eventually("all deliveries are delivered or canceled", async || {
        let all = stage.team.deliveries().await;
        let other = all.iter().find(|d| !is(Outcome::Delivered)(d) && !is(Outcome::Canceled)(d));
        other.map_or(Ok(()), |d| Err(format!("{:?} {:?}", d.spec, d.status)))
    })
    .await;
}

/// A Notification is validated alone if the cluster-wide notification of the same name applies to none of its pipelines.
#[tokio::test]
async fn a_notification_is_validated_without_a_cluster_wide_one_of_other_pipelines() {
    let stage = Stage::new("global-judged").await;
    let receiver = Receiver::start();
    let mut audit = everywhere("audit", &receiver, json!({}));
    audit["pipelineSelector"] = json!({"matchLabels": {"tier": "1"}});
    stage.configure(&json!({"notifications": [audit]})).await;
    let token = json!({"endpoint": {"auth": {"token": {"secretKeyRef": {"name": "none", "key": "key"}}}}});
    stage.team.notification("audit", &receiver, token).await;
    stage.team.pipeline("shop", &["dev/web"]).await;
    let _relaybook = Relaybook::with(&stage.system, stage.options()).await;
    let ready = stage.team.condition("audit", "Ready", |c| c.reason != "Initializing").await;
    assert_eq!(ready.reason, "SecretMissing", "{ready:?}");
}

/// The namespace of the global configuration contains deliveries of pipelines in a namespace that is no longer watched. Relaybook does not
/// read those pipelines.
#[tokio::test]
async fn unwatched_namespaces_are_ignored() {
    let (stage, receiver, mut relaybook, _) = stuck("global-left").await;
    let Stage { system, team } = &stage;
    relaybook.stop().await;
    let proxy = Proxy::start(&system.kubeconfig, "global-left").await;
    let ns = team.ns.clone();
    let asked = proxy.rule(
        move |call| call.method == "GET" && call.path.contains(&format!("/namespaces/{ns}/pipelines/")),
        Fault::Times(0, Box::new(Fault::LoseRequest)),
    );
    let other = World::beside("global-left-other", system).await;
    other.deploy("one", "1").await;
    other.pipeline("first", &["dev/one"]).await;
    let watch = vec![other.ns.clone()];
    let mut elsewhere =
        Relaybook::with(system, Options { watch, kubeconfig: Some(proxy.kubeconfig.clone()), ..stage.options() }).await;
    other.settled().await;
    eventually("the cursor of another pipeline", async || {
        let dispatched = other.get_pipeline("first").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        if dispatched.cursors.is_empty() { Err("none".to_owned()) } else { Ok(()) }
    })
    .await;
    other.fence("first", &["audit"]).await;
    assert_eq!(proxy.hits(asked), 0);
    elsewhere.stop().await;
    relaybook.start_again().await;
    answer(&receiver, 200);
    stage.ship("3").await;
    stage.ship("4").await;
    team.fence("shop", &["own", "audit"]).await;
    let oracle = ["dev/web", "prod/api"].into_iter().fold(Oracle::new(team, &receiver).after_a_crash(), |oracle, target| {
        let steps = ["Deployed 2", "Deployed 3", "Deployed 4"];
        oracle.lane(&format!("shop/audit/{target}"), &steps).lane(&format!("shop/own/{target}"), &steps)
    });
    oracle.lane_in(&other.ns, "first/audit/fence/fence", &["Deployed f1"]).check().await;
}
