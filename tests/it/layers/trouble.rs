//! Deliveries that cannot be sent for one target wait, are reported, and are sent after a fix. The other targets continue.

use k8s_openapi::api::core::v1::Secret;
use relaybook_api::conditions::{ConditionStatus, REACHABLE, get};
use serde_json::{Value, json};

use super::{attempts, no_trouble, reason, relay, shop, start, template, told, trouble, troubles};
use crate::support::{Oracle, Receiver, World, eventually};

#[tokio::test]
async fn credentials_are_not_sent_to_another_origin_of_a_target() {
    let world = World::new("layers-trust").await;
    let (base, other) = (Receiver::start(), Receiver::start());
    world.deploy("web", "1").await;
    world.deploy("api", "1").await;
    world.secret("theirs", json!({"key": "theirs"})).await;
    world.secret("ours", json!({"key": "ours"})).await;
    let token = |secret: &str| json!({"token": {"secretKeyRef": {"name": secret, "key": "key"}}});
    world.notification("hook", &base, json!({"endpoint": {"auth": token("theirs")}})).await;
    let url = other.url("/hook/web");
    let elsewhere = json!([{"name": "hook", "endpoint": {"url": url}}]);
    shop(&world, &["dev/web", "dev/api"], &[("dev/web", elsewhere.clone())]).await;
    let _relaybook = start(&world).await;
    for tag in ["2", "3"] {
        world.ship("web", tag).await;
        world.ship("api", tag).await;
        world.observed_at("shop", tag, &["web", "api"]).await;
    }
    world.fence("shop", &["hook"]).await;
    told(&world, "hook", "web", "Deployed 2", |d| reason(d) == "CredentialOriginMismatch" && attempts(d) == 0).await;
    let said = trouble(&world, "hook", Some("web"), "CredentialOriginMismatch").await;
    assert_eq!(said.environment.as_deref(), Some("dev"));
    assert_eq!(said.target.unwrap(), format!("dev/in-cluster/{}/web", world.ns));
    let words = ["spec.endpoint.auth.token", "spec.endpoint.url", "the Notification", "target dev/in-cluster"];
    assert!(words.iter().all(|word| said.message.contains(word)), "{}", said.message);
    assert_eq!(troubles(&world).await.len(), 1);
    assert_eq!(other.connections(), 0);
    assert_eq!(base.to("/hook/api").len(), 2);

    // The layer has its own credentials.
    relay(&world, "dev/web", json!([{"name": "hook", "endpoint": {"url": url, "auth": token("ours")}}])).await;
    other.wait("/hook/web", 2).await;
    no_trouble(&world).await;

    // The layer has no credentials again. Then it removes `auth`, and needs none.
    relay(&world, "dev/web", elsewhere).await;
    trouble(&world, "hook", Some("web"), "CredentialOriginMismatch").await;
    world.ship("web", "4").await;
    told(&world, "hook", "web", "Deployed 4", |d| reason(d) == "CredentialOriginMismatch" && attempts(d) == 0).await;
    let without = json!([{"name": "hook", "remove": ["/endpoint/auth"], "endpoint": {"url": url}}]);
    relay(&world, "dev/web", without).await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &base).and(&other).lane("shop/hook/dev/api", &["Deployed 2", "Deployed 3"]);
    oracle.lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3", "Deployed 4"]).check().await;
    let sent: Vec<_> = other.log().iter().map(|r| r.header("authorization").to_owned()).collect();
    assert_eq!(sent, ["Bearer ours", "Bearer ours", ""]);
    assert!(base.log().iter().all(|r| r.path != "/hook/web" && r.header("authorization") == "Bearer theirs"));
    no_trouble(&world).await;
}

#[tokio::test]
async fn a_targets_broken_template_or_secret_blocks_only_that_target() {
    let world = World::new("layers-broken").await;
    let receiver = Receiver::start();
    let apps = ["web", "api", "db"];
    for app in apps {
        world.deploy(app, "1").await;
    }
    world.notification("hook", &receiver, json!({})).await;
    let broken = json!([{"name": "hook", "template": {"inline": {"body": r#"{"text": "{{pipelin.name}}"}"#}}}]);
    let auth = json!({"token": {"secretKeyRef": {"name": "later", "key": "key"}}});
    let secret = json!([{"name": "hook", "endpoint": {"auth": auth}}]);
    shop(&world, &["dev/web", "dev/api", "dev/db"], &[("dev/web", broken), ("dev/db", secret)]).await;
    let _relaybook = start(&world).await;
    for tag in ["2", "3"] {
        for app in apps {
            world.ship(app, tag).await;
        }
        world.observed_at("shop", tag, &apps).await;
    }
    world.fence("shop", &["hook"]).await;
    let said = trouble(&world, "hook", Some("web"), "TemplateInvalid").await;
    assert!(said.message.contains("pipelin") && said.message.contains("target dev/"), "{}", said.message);
    assert!(trouble(&world, "hook", Some("db"), "SecretMissing").await.message.contains("later"));
    told(&world, "hook", "web", "Deployed 2", |d| reason(d) == "TemplateInvalid" && attempts(d) == 0).await;
    told(&world, "hook", "db", "Deployed 2", |d| reason(d) == "SecretMissing" && attempts(d) == 0).await;
    assert_eq!(receiver.to("/hook/api").len(), 2);
    visible(&world).await;

    world.secret("later", json!({"key": "sesame"})).await;
    receiver.wait("/hook/db", 2).await;
    relay(&world, "dev/web", json!([{"name": "hook", "template": template("web")}])).await;
    receiver.wait("/hook/web", 2).await;
    no_trouble(&world).await;
    world.delete::<Secret>("later").await;
    trouble(&world, "hook", Some("db"), "SecretMissing").await;
    world.secret("later", json!({"key": "again"})).await;
    no_trouble(&world).await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver);
    apps.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &["Deployed 2", "Deployed 3"])).check().await;
    assert!(receiver.to("/hook/db").iter().all(|r| r.header("authorization") == "Bearer sesame"));
}

/// `kubectl get`, an Event and `relaybook explain` show that layers of some targets cannot work.
async fn visible(world: &World) {
    let ready = world.condition("hook", "Ready", |c| c.reason == "TargetsNotReady").await;
    assert!(ready.message.contains("about 2 of 4 targets"), "{}", ready.message);
    world.warning("hook", "TargetsNotReady").await;
    let shown = async |resource: &str| world.columns(resource).await;
    assert_eq!(shown("notifications").await["Not Ready"], json!(2));
    assert_eq!(shown("pipelines").await["Not Ready"], json!("hook"));
    assert_eq!(shown("pipelines").await["State"], json!("Current"));
    let (_, explained, _) = world.command(&["explain", "shop"]).await;
    for reason in ["TemplateInvalid: ", "SecretMissing: "] {
        assert!(explained.lines().any(|line| line.starts_with("# ") && line.contains(reason)), "{reason} {explained}");
    }
}

/// A misspelt environment or cluster is not silent.
#[tokio::test]
async fn a_trigger_that_matches_no_environment_or_cluster_says_so() {
    let world = World::new("layers-idle").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web", "prod/web"]).await;
    let triggers = |field: &str, glob: &str| json!({"triggers": [{"type": "Deployed", field: [glob]}]});
    let edit = async |over: Value| world.patch::<relaybook_api::Notification>("hook", json!({"spec": over})).await;
    world.notification("hook", &receiver, triggers("environments", "production")).await;
    let _relaybook = start(&world).await;
    let message = "spec.triggers[0].environments: no environment matches production (the pipelines have dev, fence, prod); did \
                   you mean prod?";
    let said = world.condition("hook", REACHABLE, |c| c.message == message).await;
    assert_eq!((said.status, said.reason.as_str()), (ConditionStatus::False, "NoMatch"));
    world.condition("hook", "Ready", |c| c.reason == "Configured").await;
    assert_eq!(world.warning("hook", "NoMatch").await, message);
    assert_eq!(world.columns("notifications").await["Reason"], json!("NoMatch"));
    edit(triggers("clusters", "eu-*")).await;
    world
        .condition("hook", REACHABLE, |c| c.message.starts_with("spec.triggers[0].clusters: no cluster matches eu-* "))
        .await;

    // A pipeline that replaces the triggers is not compared with them.
    let layers = |layers: Value| json!({"spec": {"notifications": layers}});
    let own = json!([{"name": "hook", "triggers": [{"type": "Deployed"}]}]);
    world.patch::<relaybook_api::Pipeline>("shop", layers(own)).await;
    reachable(&world, "hook").await;
    world.patch::<relaybook_api::Pipeline>("shop", layers(json!([]))).await;
    world.condition("hook", REACHABLE, |c| c.reason == "NoMatch").await;
    edit(triggers("environments", "prod")).await;
    reachable(&world, "hook").await;
    world.condition("hook", "Ready", |c| c.reason == "Configured").await;
    assert_eq!(world.columns("notifications").await["Reason"], json!("Configured"));

    // Nor is a layer for a misspelt notification.
    relay(&world, "prod/web", json!([{"name": "hok", "suspend": true}])).await;
    let said = trouble(&world, "hok", Some("web"), "Incomplete").await;
    assert!(said.message.ends_with("; did you mean hook?"), "{}", said.message);
    assert_eq!(world.columns("pipelines").await["Not Ready"], json!("hok"));
}

/// Waits until the condition `Reachable` of a notification is gone.
async fn reachable(world: &World, name: &str) {
    eventually(&format!("{name} has no condition Reachable"), async || {
        let conditions = world.get_notification(name).await.status.unwrap_or_default().conditions;
        if get(&conditions, REACHABLE).is_none() { Ok(()) } else { Err(format!("{conditions:?}")) }
    })
    .await;
}

#[tokio::test]
async fn changes_of_a_target_with_an_invalid_layer_are_not_lost() {
    let world = World::new("layers-unclear").await;
    let receiver = Receiver::start();
    let apps = ["web", "api", "db"];
    for app in apps {
        world.deploy(app, "1").await;
    }
    let auth = json!({"token": {"secretKeyRef": {"name": "token", "key": "key"}}});
    world.secret("token", json!({"key": "sesame"})).await;
    // After a minute, retention would delete deliveries beyond ten of a lane.
    let hook = json!({"endpoint": {"auth": auth}, "delivery": {"retain": {"perLane": 100}}});
    world.notification("hook", &receiver, hook).await;
    let without = |pointer: &str| json!([{"name": "hook", "remove": [pointer]}]);
    let layers = [("dev/web", without("/triggers")), ("dev/db", without("/endpoint/auth/token/secretKeyRef/key"))];
    shop(&world, &["dev/web", "dev/api", "dev/db"], &layers).await;
    let mut relaybook = start(&world).await;
    trouble(&world, "hook", Some("web"), "Incomplete").await;
    trouble(&world, "hook", Some("db"), "InvalidSpec").await;
    world.cursor("shop", "hook").await;
    for app in ["web", "db"] {
        for tag in ["2", "3"] {
            world.ship(app, tag).await;
            world.observed_at("shop", tag, &[app]).await;
        }
    }
    // More changes than the log keeps unmerged while the cursor is blocked.
    let mut steps: Vec<String> = Vec::new();
    let more = async |from: u32, until: u32, steps: &mut Vec<String>| {
        for tag in from..=until {
            world.ship("api", &tag.to_string()).await;
            world.observed_at("shop", &tag.to_string(), &["api"]).await;
            steps.push(format!("Deployed {tag}"));
            receiver.wait("/hook/api", steps.len()).await;
        }
    };
    more(2, 13, &mut steps).await;
    relaybook.kill9();
    relaybook.start_again().await;
    more(14, 16, &mut steps).await;
    relaybook.restart().await;
    assert!(receiver.to("/hook/web").is_empty() && receiver.to("/hook/db").is_empty());
    assert!(world.deliveries().await.iter().all(|d| d.spec.subject.target.as_ref().unwrap().app.name == "api"));

    relay(&world, "dev/web", json!([])).await;
    receiver.wait("/hook/web", 2).await;
    relay(&world, "dev/db", json!([])).await;
    no_trouble(&world).await;
    more(17, 17, &mut steps).await;
    world.fence("shop", &["hook"]).await;
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    let oracle = Oracle::new(&world, &receiver).after_a_crash().lane("shop/hook/dev/api", &steps);
    let oracle = oracle.lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]);
    oracle.lane("shop/hook/dev/db", &["Deployed 2", "Deployed 3"]).check().await;
    let again = receiver.to("/hook/api").len() - steps.len();
    assert!(again <= 1, "{again} repeated requests; at most one was in flight at the kill");
}
