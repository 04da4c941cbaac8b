//! Permissions that are missing for a while: everything else continues, the problem is reported, nothing is lost, and Relaybook recovers
//! without a restart.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use relaybook_api::conditions::ConditionStatus;
use serde_json::json;

use super::Stage;
use crate::support::proxy::{Call, RuleId};
use crate::support::wait::within;
use crate::support::{Fault, Oracle, Relaybook, eventually, world};

/// A rejected watch is retried after at most 30 s.
const HEALS: Duration = Duration::from_secs(90);
const STEPS: [&str; 2] = ["Deployed 2", "Deployed 3"];

async fn stage(ns: &str) -> Stage {
    let stage = Stage::new(ns, &["web"], json!({})).await;
    stage.world.notification("other", &stage.receiver, json!({})).await;
    stage
}

fn forbid(stage: &Stage, calls: impl Fn(&Call) -> bool + Send + Sync + 'static) -> RuleId {
    stage.proxy.rule(calls, Fault::Refuse(403))
}

/// Ships two revisions, and waits until each is in the log.
async fn ship(stage: &Stage) {
    stage.ship("2").await;
    stage.ship("3").await;
}

/// Checks that everything has arrived once.
async fn arrived(stage: &Stage, notifications: &[&str]) {
    stage.world.fence("shop", notifications).await;
    let oracle = Oracle::new(&stage.world, &stage.receiver);
    notifications.iter().fold(oracle, |o, n| o.lane(&format!("shop/{n}/dev/web"), &STEPS)).check().await;
    for notification in notifications {
        assert_eq!(stage.receiver.to(&format!("/{notification}/web")).len(), 2, "{notification}");
    }
}

/// Waits until the log contains these words.
async fn logged(relaybook: &Relaybook, words: &str) {
    eventually(&format!("the log says {words}"), async || {
        if relaybook.log().contains(words) { Ok(()) } else { Err("it does not".to_owned()) }
    })
    .await;
}

#[tokio::test]
async fn without_permission_to_create_deliveries_nothing_is_sent_until_it_is_granted() {
    let stage = stage("rights-record").await;
    let _relaybook = Relaybook::with(&stage.world, stage.options()).await;
    stage.world.settled().await;
    let rule = forbid(&stage, Call::is_create_delivery);
    ship(&stage).await;
    for notification in ["hook", "other"] {
        let told = stage.world.condition(notification, "Delivering", |c| c.reason == "RecordRefused").await;
        assert!(told.message.contains("the test refuses it"), "{}", told.message);
        stage.world.warning(notification, "RecordRefused").await;
    }
    assert_eq!(stage.requests(), 0, "nothing is sent that is not recorded");
    stage.proxy.remove(rule);
    arrived(&stage, &["hook", "other"]).await;
    stage.world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
}

#[tokio::test]
async fn without_permission_to_write_outcomes_each_lane_waits_after_one_request() {
    let stage = stage("rights-outcome").await;
    let relaybook = Relaybook::with(&stage.world, stage.options()).await;
    stage.world.settled().await;
    let rule = forbid(&stage, Call::is_delivery_status);
    ship(&stage).await;
    stage.proxy.hit(rule, 6).await;
    logged(&relaybook, "could not write the Delivery status; the lane is blocked until a retry succeeds").await;
    for notification in ["hook", "other"] {
        assert_eq!(stage.receiver.to(&format!("/{notification}/web")).len(), 1, "a lane waits until its outcome is written");
    }
    stage.proxy.remove(rule);
    arrived(&stage, &["hook", "other"]).await;
}

#[tokio::test]
async fn without_permission_to_write_notification_status_deliveries_continue() {
    let stage = stage("rights-notification").await;
    let relaybook = Relaybook::with(&stage.world, stage.options()).await;
    stage.world.settled().await;
    let rule = forbid(&stage, Call::is_notification_status);
    ship(&stage).await;
    arrived(&stage, &["hook", "other"]).await;
    stage.proxy.hit(rule, 2).await;
    logged(&relaybook, "could not write a status").await;
    assert_eq!(stage.world.get_notification("hook").await.status.unwrap().delivered, 0);
    stage.proxy.remove(rule);
    within(HEALS, "the counters are updated", async || {
        let status = stage.world.get_notification("hook").await.status.unwrap();
        // The fence is counted, too.
        if status.delivered == 3 { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
}

#[tokio::test]
async fn without_permission_to_write_the_log_changes_wait_until_it_is_granted() {
    let stage = stage("rights-log").await;
    let relaybook = Relaybook::with(&stage.world, stage.options()).await;
    stage.world.settled().await;
    let rule = forbid(&stage, Call::is_pipeline_status);
    // Only a rejected write shows that Relaybook has observed a revision. So the test waits for one before the next revision.
    stage.world.ship("web", "2").await;
    stage.proxy.hit(rule, 1).await;
    stage.world.ship("web", "3").await;
    stage.proxy.hit(rule, 3).await;
    logged(&relaybook, "the test refuses it").await;
    assert_eq!(stage.requests(), 0);
    stage.proxy.remove(rule);
    arrived(&stage, &["hook", "other"]).await;
}

#[tokio::test]
async fn without_permission_to_write_cursors_deliveries_continue_and_none_is_repeated() {
    let stage = stage("rights-cursors").await;
    let mut relaybook = Relaybook::with(&stage.world, stage.options()).await;
    stage.world.settled().await;
    let rule = forbid(&stage, Call::is_cursors);
    ship(&stage).await;
    stage.proxy.hit(rule, 2).await;
    logged(&relaybook, "reconcile failed").await;
    for notification in ["hook", "other"] {
        stage.receiver.wait(&format!("/{notification}/web"), 2).await;
    }
    let taken = |d: &relaybook_api::Delivery| d.status.as_ref().is_some_and(|s| s.outcome.is_some());
    for notification in ["hook", "other"] {
        stage.world.delivery("Deployed 3", |d| d.spec.notification == notification && taken(d)).await;
    }
    // The next process reads old cursors. The names of the deliveries show that everything was sent.
    relaybook.kill9();
    stage.proxy.remove(rule);
    relaybook.start_again().await;
    arrived(&stage, &["hook", "other"]).await;
}

#[tokio::test]
async fn without_permission_to_list_promotions_pipelines_are_observed_and_their_changes_sent() {
    let stage = stage("rights-promotions").await;
    let rule = forbid(&stage, |call| call.concerns("promotions"));
    let mut relaybook = Relaybook::begin(&stage.world, stage.options()).await;
    stage.world.settled().await;
    ship(&stage).await;
    arrived(&stage, &["hook", "other"]).await;
    stage.proxy.hit(rule, 2).await;
    stage.proxy.remove(rule);
    relaybook.wait_ready().await;
}

#[tokio::test]
async fn without_permission_to_write_events_deliveries_continue() {
    let stage = stage("rights-events").await;
    stage.receiver.script("/hook/web", [crate::support::Reply::status(400)]);
    let rule = forbid(&stage, |call| call.concerns("events"));
    let relaybook = Relaybook::with(&stage.world, stage.options()).await;
    stage.world.settled().await;
    ship(&stage).await;
    stage.world.fence("shop", &["hook", "other"]).await;
    stage.proxy.hit(rule, 1).await;
    logged(&relaybook, "the test refuses it").await;
    let oracle = Oracle::new(&stage.world, &stage.receiver).lane("shop/other/dev/web", &STEPS);
    oracle.lane("shop/hook/dev/web", &["Deployed 2 [Parked]", "Deployed 3"]).check().await;
}

#[tokio::test]
async fn without_permission_to_renew_leases_deliveries_continue_within_their_term() {
    let stage = stage("rights-leases").await;
    let relaybook = Relaybook::with(&stage.world, stage.options()).await;
    stage.world.settled().await;
    let rule = forbid(&stage, Call::is_lease);
    // A membership is renewed every 10 s, and lasts 45 s.
    stage.proxy.hit(rule, 2).await;
    ship(&stage).await;
    arrived(&stage, &["hook", "other"]).await;
    logged(&relaybook, "the service account needs get, list, watch, create and update").await;
    stage.proxy.remove(rule);
    assert!(!relaybook.log().contains("lost leadership"));
}

#[tokio::test]
async fn without_permission_to_read_secrets_only_notifications_with_a_secret_wait() {
    let stage = stage("rights-secrets").await;
    let Stage { world, receiver, proxy, .. } = &stage;
    world.secret("token", json!({"key": "open sesame"})).await;
    let token = json!({"secretKeyRef": {"name": "token", "key": "key"}});
    world.notification("guarded", receiver, json!({"endpoint": {"auth": {"token": token}}})).await;
    let rule = forbid(&stage, |call| call.concerns("secrets"));
    let relaybook = Relaybook::with(world, stage.options()).await;
    world.observed("shop").await;
    for notification in ["hook", "other", "guarded"] {
        world.cursor("shop", notification).await;
    }
    ship(&stage).await;
    arrived_without(&stage, "guarded").await;
    logged(&relaybook, "watch failed; retrying").await;
    let told = world.condition("guarded", "Ready", |c| c.reason == "SecretUnreadable").await;
    assert!(told.message.contains("token") && told.status == ConditionStatus::False, "{}", told.message);
    world.condition("guarded", "Delivering", |c| c.reason == "SecretUnreadable").await;
    assert!(receiver.to("/guarded/web").is_empty());
    proxy.remove(rule);
    heals(&stage, "guarded").await;
    arrived(&stage, &["hook", "other", "guarded"]).await;
    assert!(receiver.to("/guarded/web").iter().all(|r| r.header("authorization") == "Bearer open sesame"));
    world.condition("guarded", "Delivering", |c| c.status == ConditionStatus::True).await;
}

#[tokio::test]
async fn without_permission_to_read_config_maps_only_notifications_with_one_wait() {
    let stage = stage("rights-config-maps").await;
    let Stage { world, receiver, proxy, .. } = &stage;
    world.create::<ConfigMap>(json!({"metadata": {"name": "texts"}, "data": {"body": world::BODY}})).await;
    let from = json!({"name": "texts", "key": "body", "contentType": "application/json"});
    let template = json!({"template": {"inline": null, "configMapKeyRef": from}});
    world.notification("mapped", receiver, template).await;
    let rule = forbid(&stage, |call| call.concerns("configmaps"));
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.observed("shop").await;
    for notification in ["hook", "other", "mapped"] {
        world.cursor("shop", notification).await;
    }
    ship(&stage).await;
    arrived_without(&stage, "mapped").await;
    let told = world.condition("mapped", "Ready", |c| c.status == ConditionStatus::False).await;
    assert!(told.message.contains("texts"), "{}: {}", told.reason, told.message);
    assert!(receiver.to("/mapped/web").is_empty());
    proxy.remove(rule);
    heals(&stage, "mapped").await;
    arrived(&stage, &["hook", "other", "mapped"]).await;
}

/// Checks that everything has arrived except the deliveries of this notification, which are pending.
async fn arrived_without(stage: &Stage, waiting: &str) {
    let lanes = ["hook", "other"];
    stage.world.fence("shop", &lanes).await;
    let oracle = Oracle::new(&stage.world, &stage.receiver);
    let oracle = lanes.iter().fold(oracle, |o, n| o.lane(&format!("shop/{n}/dev/web"), &STEPS));
    let pending = STEPS.map(|step| format!("{step} [pending]"));
    oracle.lane(&format!("shop/{waiting}/dev/web"), &pending.each_ref().map(String::as_str)).check().await;
}

/// Waits until the deliveries of this notification arrive, after its permission is back.
async fn heals(stage: &Stage, notification: &str) {
    within(HEALS, "the deliveries arrive", async || {
        let came = stage.receiver.to(&format!("/{notification}/web")).len();
        if came == 2 { Ok(()) } else { Err(format!("{came} requests came")) }
    })
    .await;
}

#[tokio::test]
async fn unreadable_secrets_are_watched_with_backoff() {
    const SECRETS: usize = 20;
    /// In this time each Secret is listed after pauses of at least 0.8, 1.6, 3.2, 6.4 and 12.8 s, so at most six times. A new leadership
    /// term can restart the watch, which allows two more. Without growing pauses each is listed more than twenty times.
    const WINDOW: Duration = Duration::from_secs(40);
    const CALLS: usize = 8 * SECRETS;
    /// Maximum number of bytes in the log for each Secret.
    const LINE: usize = 600;
    let stage = stage("rights-many-secrets").await;
    let Stage { world, receiver, proxy, .. } = &stage;
    let names: Vec<_> = (0..SECRETS).map(|n| format!("guarded-{n}")).collect();
    for some in names.chunks(10) {
        join_all(some.iter().map(async |name| {
            let token = json!({"secretKeyRef": {"name": name, "key": "key"}});
            world.notification(name, receiver, json!({"endpoint": {"auth": {"token": token}}})).await
        }))
        .await;
    }
    let rule = forbid(&stage, |call| call.concerns("secrets"));
    let relaybook = Relaybook::with(world, stage.options()).await;
    proxy.hit(rule, SECRETS).await;
    tokio::time::sleep(WINDOW).await;
    let (calls, log) = (proxy.hits(rule), relaybook.log());
    let lines: Vec<_> = log.lines().filter(|line| line.contains("watch failed; retrying")).collect();
    let bytes: usize = lines.iter().map(|line| line.len()).sum();
    assert!(calls <= CALLS, "{calls} calls; {} lines, {bytes} bytes", lines.len());
    assert!(lines.len() <= SECRETS && bytes <= LINE * SECRETS, "{calls} calls; {} lines, {bytes} bytes", lines.len());
    assert!(lines.iter().any(|line| line.contains("the list failed: 403")), "{lines:?}");

    for name in &names {
        world.secret(name, json!({"key": "open sesame"})).await;
    }
    proxy.remove(rule);
    within(HEALS, "all Secrets are read", async || {
        let all = world.api::<relaybook_api::Notification>().list(&kube::api::ListParams::default()).await.unwrap();
        let ready = |n: &relaybook_api::Notification| {
            let conditions = n.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
            conditions.iter().any(|c| c.type_ == "Ready" && c.status == ConditionStatus::True)
        };
        let wait = all.items.iter().filter(|n| !ready(n)).count();
        if wait == 0 { Ok(()) } else { Err(format!("{wait} are not ready")) }
    })
    .await;
}
