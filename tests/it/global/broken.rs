//! A global configuration that cannot be taken: what was in force stays in force, and everybody is told.

use k8s_openapi::api::core::v1::ConfigMap;
use pennant::api::conditions::{ConditionStatus, get};
use serde_json::json;

use super::{MAP, Stage, everywhere, is};
use crate::support::{Oracle, Receiver, eventually};
use pennant::api::Outcome;

#[tokio::test]
async fn the_last_good_one_stays_in_force() {
    let stage = Stage::new("global-broken").await;
    let Stage { team, .. } = &stage;
    let receiver = Receiver::start();
    let good = json!({"notifications": [everywhere("audit", &receiver, json!({}))]});
    stage.configure(&good).await;
    team.notification("own", &receiver, json!({})).await;
    team.notification("audit", &receiver, json!({"endpoint": {"url": receiver.url("/audit/{{target.app.name}}")}})).await;
    team.pipeline("shop", &["dev/web", "prod/api"]).await;
    let pennant = stage.start().await;
    assert_eq!(pennant.metrics().await["pennant_config_valid"], 1.0);
    stage.ship("2").await;

    // Misspelt, in the third line.
    stage.configure_text("notifications:\n  - name: audit\n    endpont: {url: \"https://example.com\"}\n").await;
    let note = stage.warning("ConfigInvalid").await;
    for word in ["config.yaml", "line 3, column 5", "notifications[0].endpont", "did you mean endpoint?", "last good one stays in force"] {
        assert!(note.contains(word), "{note}");
    }
    eventually("the metric", async || {
        let valid = pennant.metrics().await["pennant_config_valid"];
        if valid == 0.0 { Ok(()) } else { Err(valid.to_string()) }
    })
    .await;
    let said = team.condition("audit", "GlobalConfigValid", |c| c.status == ConditionStatus::False).await;
    assert!(said.message.contains("line 3, column 5") && said.reason == "GlobalConfigInvalid", "{said:?}");
    let ready = team.get_notification("own").await.status.unwrap().conditions;
    assert!(get(&ready, "GlobalConfigValid").is_none(), "it says nothing of this one: {ready:?}");
    stage.ship("3").await;
    team.fence("shop", &["audit", "own"]).await;

    // Without the key it is broken as well; mended, all is as before.
    team.condition("audit", "Ready", |c| c.status == ConditionStatus::True).await;
    stage.system.patch::<ConfigMap>(MAP, json!({"data": {"config.yaml": null, "config.yml": "{}"}})).await;
    eventually("the key is missed", async || {
        let said = stage.warning("ConfigInvalid").await;
        let all = stage.system.events().await;
        if all.iter().any(|(_, note)| note.contains("no key config.yaml")) { Ok(()) } else { Err(said) }
    })
    .await;
    stage.configure(&good).await;
    eventually("the metric is up", async || {
        let valid = pennant.metrics().await["pennant_config_valid"];
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

#[tokio::test]
async fn what_was_never_read_is_not_gone() {
    let stage = Stage::new("global-unread").await;
    let Stage { team, .. } = &stage;
    let receiver = Receiver::start();
    receiver.always("/audit/web", crate::support::Reply::status(503));
    receiver.always("/audit/api", crate::support::Reply::status(503));
    let good = json!({"notifications": [everywhere("audit", &receiver, json!({}))]});
    stage.configure(&good).await;
    team.notification("own", &receiver, json!({})).await;
    team.pipeline("shop", &["dev/web", "prod/api"]).await;
    let mut pennant = stage.start().await;
    stage.cursor("shop", "audit", "global").await;
    stage.ship("2").await;
    receiver.wait("/audit/web", 1).await;
    receiver.wait("/audit/api", 1).await;
    team.fence("shop", &["own"]).await;
    pennant.kill9();

    // Pennant comes up with what it cannot read: those of teams go on, the others wait.
    stage.configure_text("notifications: [").await;
    pennant.launch();
    pennant.wait_ready().await;
    stage.warning("ConfigInvalid").await;
    stage.ship("3").await;
    team.fence("shop", &["own"]).await;
    receiver.always("/audit/web", crate::support::Reply::status(200));
    receiver.always("/audit/api", crate::support::Reply::status(200));
    stage.ship("4").await;
    team.fence("shop", &["own"]).await;
    assert!(team.deliveries().await.iter().all(|d| d.spec.notification == "own" || !is(Outcome::Canceled)(d)));
    stage.configure(&good).await;
    team.fence("shop", &["own", "audit"]).await;
    let mut oracle = Oracle::new(team, &receiver).after_a_crash();
    for name in ["audit", "own"] {
        for target in ["dev/web", "prod/api"] {
            oracle = oracle.lane(&format!("shop/{name}/{target}"), &["Deployed 2", "Deployed 3", "Deployed 4"]);
        }
    }
    oracle.check().await;
}
