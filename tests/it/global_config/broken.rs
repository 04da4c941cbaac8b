//! The global configuration becomes invalid. The last valid one stays in force, and an Event, a metric and conditions report the problem.

use k8s_openapi::api::core::v1::ConfigMap;
use relaybook_api::Delivery;
use relaybook_api::conditions::{ConditionStatus, get};
use serde_json::{Value, json};

use super::{MAP, Stage, everywhere};
use crate::support::{Oracle, Receiver, Relaybook, Reply, eventually};

#[tokio::test]
async fn the_last_valid_configuration_stays_in_force() {
    let stage = Stage::new("global-broken").await;
    let Stage { team, .. } = &stage;
    let receiver = Receiver::start();
    let good = json!({"notifications": [everywhere("audit", &receiver, json!({}))]});
    stage.configure(&good).await;
    team.notification("own", &receiver, json!({})).await;
    team.notification("audit", &receiver, json!({"endpoint": {"url": receiver.url("/audit/{{target.app.name}}")}})).await;
    team.pipeline("shop", &["dev/web", "prod/api"]).await;
    let relaybook = stage.start().await;
    assert_eq!(relaybook.metrics().await["relaybook_config_valid"], 1.0);
    stage.ship("2").await;

    // A misspelled field in the third line.
    stage.configure_text("notifications:\n  - name: audit\n    endpont: {url: \"https://example.com\"}\n").await;
    let note = stage.warning("ConfigInvalid").await;
    for word in [
        "config.yaml",
        "line 3, column 5",
        "notifications[0].endpont",
        "did you mean endpoint?",
        "keeping the last valid version",
    ] {
        assert!(note.contains(word), "{note}");
    }
    eventually("the metric", async || {
        let valid = relaybook.metrics().await["relaybook_config_valid"];
        if valid == 0.0 { Ok(()) } else { Err(valid.to_string()) }
    })
    .await;
    let said = team.condition("audit", "GlobalConfigValid", |c| c.status == ConditionStatus::False).await;
    assert!(said.message.contains("line 3, column 5") && said.reason == "GlobalConfigInvalid", "{said:?}");
    let ready = team.get_notification("own").await.status.unwrap().conditions;
    assert!(get(&ready, "GlobalConfigValid").is_none(), "no global part, no such condition: {ready:?}");
    stage.ship("3").await;
    team.fence("shop", &["audit", "own"]).await;

    // Without its key the ConfigMap is invalid as well. After it is fixed, everything works as before.
    team.condition("audit", "Ready", |c| c.status == ConditionStatus::True).await;
    stage.system.patch::<ConfigMap>(MAP, json!({"data": {"config.yaml": null, "config.yml": "{}"}})).await;
    eventually("the missing key is reported", async || {
        let said = stage.warning("ConfigInvalid").await;
        let all = stage.system.events().await;
        if all.iter().any(|(_, note)| note.contains("no key config.yaml")) { Ok(()) } else { Err(said) }
    })
    .await;
    stage.configure(&good).await;
    eventually("the metric is up", async || {
        let valid = relaybook.metrics().await["relaybook_config_valid"];
        if valid == 1.0 { Ok(()) } else { Err(valid.to_string()) }
    })
    .await;
    eventually("the condition is gone", async || {
        let conditions = team.get_notification("audit").await.status.unwrap().conditions;
        if get(&conditions, "GlobalConfigValid").is_none() { Ok(()) } else { Err(format!("{conditions:?}")) }
    })
    .await;
    stage.ship("4").await;
    team.fence("shop", &["audit", "own"]).await;
    let steps = ["Deployed 2", "Deployed 3", "Deployed 4"];
    let mut oracle = Oracle::new(team, &receiver);
    for name in ["audit", "own"] {
        for target in ["dev/web", "prod/api"] {
            oracle = oracle.lane(&format!("shop/{name}/{target}"), &steps);
        }
    }
    oracle.check().await;
}

/// Starts with a cluster-wide notification whose receiver fails every request, and a notification of the team. Returns when both deliveries
/// of the cluster-wide one have failed once.
pub async fn stuck(ns: &str) -> (Stage, Receiver, Relaybook, Value) {
    let stage = Stage::new(ns).await;
    let receiver = Receiver::start();
    answer(&receiver, 503);
    let good = json!({"notifications": [everywhere("audit", &receiver, json!({}))]});
    stage.configure(&good).await;
    stage.team.notification("own", &receiver, json!({})).await;
    stage.team.pipeline("shop", &["dev/web", "prod/api"]).await;
    let relaybook = stage.start().await;
    stage.cursor("shop", "audit", "global").await;
    stage.ship("2").await;
    receiver.wait("/audit/web", 1).await;
    receiver.wait("/audit/api", 1).await;
    stage.team.fence("shop", &["own"]).await;
    (stage, receiver, relaybook, good)
}

pub fn answer(receiver: &Receiver, status: u16) {
    for app in ["web", "api"] {
        receiver.always(&format!("/audit/{app}"), Reply::status(status));
    }
}

pub async fn all_arrived(stage: &Stage, receiver: &Receiver) {
    let mut oracle = Oracle::new(&stage.team, receiver).after_a_crash();
    for name in ["audit", "own"] {
        for target in ["dev/web", "prod/api"] {
            oracle = oracle.lane(&format!("shop/{name}/{target}"), &["Deployed 2", "Deployed 3", "Deployed 4"]);
        }
    }
    oracle.check().await;
}

#[tokio::test]
async fn the_last_valid_configuration_stays_in_force_after_a_restart() {
    let (stage, receiver, mut relaybook, _) = stuck("global-restart").await;
    relaybook.kill9();
    stage.configure_text("notifications: [").await;
    relaybook.launch();
    relaybook.wait_ready().await;
    let note = stage.warning("ConfigInvalid").await;
    assert!(note.contains("not YAML") && note.contains("keeping the last valid version"), "{note}");
    answer(&receiver, 200);
    stage.ship("3").await;
    stage.ship("4").await;
    stage.team.fence("shop", &["own", "audit"]).await;
    all_arrived(&stage, &receiver).await;
    // The copy still contains the last valid configuration.
    let copy = stage.system.api::<ConfigMap>().get("relaybook-config-last-good").await.unwrap();
    assert!(copy.data.unwrap()["config.yaml"].contains("audit"));
}

#[tokio::test]
async fn a_configuration_that_was_never_read_deletes_nothing() {
    let (stage, receiver, mut relaybook, good) = stuck("global-unread").await;
    let team = &stage.team;
    relaybook.kill9();
    // Relaybook starts with an unreadable configuration, and the copy is deleted. Notifications of teams continue, cluster-wide ones wait.
    stage.configure_text("notifications: [").await;
    stage.system.delete::<ConfigMap>("relaybook-config-last-good").await;
    relaybook.launch();
    relaybook.wait_ready().await;
    let note = stage.warning("ConfigInvalid").await;
    assert!(note.contains("until it is valid, cluster-wide notifications wait"), "{note}");
    stage.ship("3").await;
    team.fence("shop", &["own"]).await;
    answer(&receiver, 200);
    stage.ship("4").await;
    team.fence("shop", &["own"]).await;
    let reason = |d: &Delivery| d.status.as_ref().and_then(|status| status.reason.clone());
    let is_told = |d: &Delivery| d.spec.notification == "audit" && reason(d).as_deref() == Some("GlobalConfigInvalid");
    let waits = team.delivery("Deployed 2", is_told).await.status.unwrap();
    assert_eq!(waits.outcome, None, "{waits:?}");
    stage.configure(&good).await;
    team.fence("shop", &["own", "audit"]).await;
    all_arrived(&stage, &receiver).await;
}
