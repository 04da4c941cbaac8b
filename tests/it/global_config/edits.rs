//! Edits of the global configuration while Relaybook runs and while it is stopped.

use k8s_openapi::api::core::v1::ConfigMap;
use relaybook_api::{Notification, Outcome};
use serde_json::json;

use super::{MAP, Stage, everywhere, homes, is};
use crate::support::{Oracle, Receiver, Reply, eventually};

#[tokio::test]
async fn pending_deliveries_follow_edits_and_removed_ones_are_canceled() {
    let stage = Stage::new("global-edits").await;
    let Stage { system, team } = &stage;
    let (old, new) = (Receiver::start(), Receiver::start());
    for app in ["web", "api"] {
        old.always(&format!("/audit/{app}"), Reply::status(503));
    }
    let two = |audit: &Receiver| json!([everywhere("audit", audit, json!({})), everywhere("other", &new, json!({}))]);
    stage.configure(&json!({"notifications": two(&old)})).await;
    team.pipeline("shop", &["dev/web", "prod/api"]).await;
    let _relaybook = stage.start().await;
    stage.cursor("shop", "audit", "global").await;
    stage.cursor("shop", "other", "global").await;
    stage.ship("2").await;
    old.wait("/audit/web", 1).await;
    old.wait("/audit/api", 1).await;
    // A new receiver: the pending deliveries are sent there.
    stage.configure(&json!({"notifications": two(&new)})).await;
    new.wait("/audit/web", 1).await;
    new.wait("/audit/api", 1).await;
    team.fence("shop", &["audit", "other"]).await;
    // `audit` is removed while it has pending deliveries. `other` continues.
    for app in ["web", "api"] {
        new.always(&format!("/audit/{app}"), Reply::status(503));
    }
    stage.ship("3").await;
    new.wait("/audit/web", 2).await;
    new.wait("/audit/api", 2).await;
    stage.configure(&json!({"notifications": [everywhere("other", &new, json!({}))]})).await;
    eventually("pending deliveries are canceled", async || {
        let all = team.deliveries().await;
        let canceled = all.iter().filter(|d| d.spec.notification == "audit" && is(Outcome::Canceled)(d)).count();
        if canceled == 2 { Ok(()) } else { Err(canceled.to_string()) }
    })
    .await;
    stage.ship("4").await;
    team.fence("shop", &["other"]).await;
    // `audit` is added again and starts with a new cursor.
    for app in ["web", "api"] {
        new.always(&format!("/audit/{app}"), Reply::status(200));
    }
    stage.configure(&json!({"notifications": two(&new)})).await;
    stage.cursor("shop", "audit", "global").await;
    stage.ship("5").await;
    team.fence("shop", &["audit", "other"]).await;
    // Without the ConfigMap there is no cluster-wide notification.
    system.delete::<ConfigMap>(MAP).await;
    eventually("no cursors", async || {
        let dispatched = team.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        if dispatched.cursors.is_empty() { Ok(()) } else { Err(format!("{:?}", dispatched.cursors)) }
    })
    .await;

    let mut oracle = Oracle::new(team, &new).and(&old);
    for target in ["dev/web", "prod/api"] {
        oracle = oracle.lane(&format!("shop/audit/{target}"), &["Deployed 2", "Deployed 3 [Canceled]", "Deployed 5"]);
        oracle = oracle.lane(&format!("shop/other/{target}"), &["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5"]);
    }
    oracle.check().await;
}

#[tokio::test]
async fn a_notification_added_above_or_below_another_keeps_its_cursor() {
    let stage = Stage::new("global-over").await;
    let Stage { system, team } = &stage;
    let (ours, theirs) = (Receiver::start(), Receiver::start());
    let config = json!({"notifications": [everywhere("audit", &ours, json!({}))]});
    let over = json!({"endpoint": {"url": theirs.url("/audit/{{target.app.name}}")}});
    stage.configure(&config).await;
    team.pipeline("shop", &["dev/web", "prod/api"]).await;
    let mut relaybook = stage.start().await;
    stage.cursor("shop", "audit", "global").await;
    let mut steps = Vec::new();
    let mut ship = async |tag: &str| {
        stage.ship(tag).await;
        steps.push(format!("Deployed {tag}"));
    };
    for app in ["web", "api"] {
        ours.always(&format!("/audit/{app}"), Reply::status(503));
    }
    ship("2").await;
    ours.wait("/audit/web", 1).await;
    ours.wait("/audit/api", 1).await;
    // The team adds a Notification over it, with another URL. Pending deliveries are sent there, and the cursor stays.
    team.notification("audit", &theirs, over.clone()).await;
    team.fence("shop", &["audit"]).await;
    ship("3").await;
    team.fence("shop", &["audit"]).await;
    assert_eq!(homes(team, "audit").await, [team.ns.clone(), system.ns.clone()]);
    // The cluster-wide notification is deleted while Relaybook is stopped.
    relaybook.kill9();
    ship_blind(&stage, "4").await;
    system.delete::<ConfigMap>(MAP).await;
    relaybook.launch();
    relaybook.wait_ready().await;
    let uid = team.get_notification("audit").await.metadata.uid.unwrap();
    stage.cursor("shop", "audit", &uid).await;
    team.observed_at("shop", "4", &["web", "api"]).await;
    team.fence("shop", &["audit"]).await;
    // It is added again. Then the Notification of the team is deleted.
    stage.configure(&config).await;
    stage.cursor("shop", "audit", "global").await;
    for app in ["web", "api"] {
        ours.always(&format!("/audit/{app}"), Reply::status(200));
    }
    ship("5").await;
    team.fence("shop", &["audit"]).await;
    team.delete::<Notification>("audit").await;
    ship("6").await;
    team.fence("shop", &["audit"]).await;
    let mut oracle = Oracle::new(team, &ours).and(&theirs).after_a_crash();
    for target in ["dev/web", "prod/api"] {
        let steps = ["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5", "Deployed 6"];
        oracle = oracle.lane(&format!("shop/audit/{target}"), &steps);
    }
    oracle.check().await;
}

/// Ships while Relaybook is stopped, so it does not wait for the log.
async fn ship_blind(stage: &Stage, tag: &str) {
    for app in ["web", "api"] {
        stage.team.ship(app, tag).await;
    }
}
