//! Keys reach only what they are for: not the pipelines of another team, not another environment, and not the signature of a request that
//! Relaybook sends.

use k8s_openapi::api::core::v1::Secret;
use relaybook_api::Pipeline;
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::promotion::Phase;
use serde_json::json;

use super::{KEY, Stage, approval, post, sign};
use crate::support::relaybook::Options;
use crate::support::world::apps::Kind;
use crate::support::{Oracle, Receiver, Relaybook, World};

/// The key of the second team.
const OTHER: &str = "the-key-of-the-other-team-012345";

#[tokio::test]
async fn keys_of_one_team_sign_nothing_for_another_team() {
    let a = Stage::new("hooks-team-a").await;
    let b = Stage { world: World::on(&a.world.kubeconfig, "hooks-team-b").await, receiver: Receiver::start() };
    for app in ["web", "live"] {
        b.world.deploy(app, "1").await;
    }
    b.inbound("approvals", json!({"hmac-key": OTHER})).await;
    b.inbound("looks", json!({"hmac-key": OTHER.to_uppercase()})).await;
    b.world.create::<Pipeline>(b.pipeline("shop", Kind::Deployment, "approvals")).await;
    b.notify().await;
    // A pipeline of team B that names a Secret which only team A has. A reference has no namespace.
    a.inbound("only-of-a", json!({"hmac-key": "a-key-that-only-team-a-has-01234"})).await;
    b.suspended("sly", "only-of-a").await;
    let watch = vec![a.world.ns.clone(), b.world.ns.clone()];
    let relaybook = Relaybook::with(&a.world, Options { watch, ..a.options() }).await;
    a.world.settled().await;
    b.world.settled().await;
    let hooks = relaybook.hooks().await;
    let (of_a, of_b) = (a.ship("2").await, b.ship("2").await);

    let mut tries = 0;
    let (body_a, body_b) = (a.body(&of_a), b.body(&of_b));
    // What team A has: its own bodies and keys, the body of team B, and mixtures.
    let mut mixed = body_a.clone();
    mixed["promotion"] = json!(of_b.promotion);
    mixed["promotionUid"] = json!(of_b.promotion_uid);
    let mut posing = body_b.clone();
    posing["namespace"] = json!(a.world.ns);
    for body in [&body_a, &body_b, &mixed, &posing] {
        let text = body.to_string();
        for key in [KEY, "a-key-that-only-team-a-has-01234"] {
            let (plain, prefixed) = (format!("sha256={}", sign(key, text.as_bytes())), approval(key, text.as_bytes()));
            for (hook, pipeline) in [("approval", "shop"), ("approval", "sly"), ("hooks", "shop"), ("hooks", "sly")] {
                let path = format!("/{hook}/{}/{pipeline}", b.world.ns);
                for signature in [&plain, &prefixed] {
                    let answer = post(hooks, &path, &[("X-Signature", signature)], text.as_bytes()).await;
                    assert_eq!(answer.status, 401, "{path} {text}: {answer:?}");
                    tries += 1;
                }
            }
        }
    }
    assert!(tries >= 60, "{tries}");
    // At its own path, team A cannot name the promotion of team B.
    for (body, status) in [(&mixed, 409), (&body_b, 422), (&posing, 409)] {
        let answer = a.approve_with(hooks, body, KEY).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(!answer.body.contains(&of_b.promotion_uid), "{}", answer.body);
    }
    for (stage, waiting) in [(&a, &of_a), (&b, &of_b)] {
        assert!(!stage.promotion(&waiting.promotion).await.spec.approved);
    }
    assert_eq!(b.approve(hooks, &of_b, OTHER).await.status, 204);
    b.phase(&of_b.promotion, Phase::Requested).await;
    a.told(&["PromotionPending 2"]).await;
    b.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}

#[tokio::test]
async fn a_key_approves_only_for_environments_that_have_it() {
    const STAGING: &str = "the-key-of-the-environment-stage";
    let stage = Stage::new("hooks-environments").await;
    stage.world.deploy("mid", "1").await;
    stage.inbound("of-staging", json!({"hmac-key": STAGING})).await;
    let mut object = crate::support::world::pipeline(
        &stage.world.ns,
        "three",
        Kind::Deployment,
        &["dev/web", "staging/mid", "prod/live"],
    );
    let policy = |secret: &str| json!({"manual": true, "strategy": {"notification": {}, "secretRef": {"name": secret}}});
    object["spec"]["environments"][1]["promotion"] = policy("of-staging");
    object["spec"]["environments"][2]["promotion"] = policy("approvals");
    stage.world.delete::<Pipeline>("shop").await;
    stage.world.create::<Pipeline>(object).await;
    let (_relaybook, hooks) = stage.relaybook().await;
    // `prod` waits: `staging` runs 2, and `dev` still runs 1.
    stage.world.ship("mid", "2").await;
    let waiting = stage.waits("three", "2").await;
    let mut body = stage.body(&waiting);
    body["pipeline"] = json!("three");
    let path = format!("/approval/{}/three", stage.world.ns);
    for (environment, key, status) in
        [("prod", STAGING, 401), ("staging", KEY, 401), ("staging", STAGING, 409), ("dev", KEY, 401), ("prod", KEY, 204)]
    {
        body["environment"] = json!(environment);
        let text = body.to_string();
        let answer = post(hooks, &path, &[("X-Signature", &approval(key, text.as_bytes()))], text.as_bytes()).await;
        assert_eq!(answer.status, status, "{environment}: {answer:?}");
    }
    stage.phase(&waiting.promotion, Phase::Requested).await;
    stage.world.fence("three", &["hook"]).await;
    let steps = ["PromotionPending 2", "PromotionRequested 2"];
    Oracle::new(&stage.world, &stage.receiver).lane("three/hook/prod/promotion", &steps).check().await;
}

#[tokio::test]
async fn relaybook_sends_nothing_with_a_key_of_hooks() {
    let stage = Stage::new("hooks-oracle").await;
    let Stage { world, receiver } = &stage;
    let url = receiver.url("/signed");
    let typed = json!({"hmac-key": KEY, "url": url, "username": "a", "password": "b", "token": KEY});
    stage.inbound("reserved", typed).await;
    let reference = json!({"secretRef": {"name": "reserved"}});
    let key = |key: &str| json!({"secretKeyRef": {"name": "reserved", "key": key}});
    for (name, endpoint) in [
        ("signing", json!({"url": url, "signing": reference})),
        ("headers", json!({"url": url, "headersFrom": reference})),
        ("basic", json!({"url": url, "auth": {"basic": reference}})),
        ("token", json!({"url": url, "auth": {"token": key("token")}})),
        ("url", json!({"url": null, "urlFrom": key("url")})),
        ("trust", json!({"url": url, "tls": {"caFrom": key("token")}})),
        ("client", json!({"url": url, "tls": {"clientCertificate": reference}})),
    ] {
        let triggers = json!([{"type": "Deployed"}]);
        world.notification(name, receiver, json!({"triggers": triggers, "endpoint": endpoint})).await;
    }
    let _relaybook = Relaybook::with(world, stage.options()).await;
    world.observed("shop").await;
    let names = ["signing", "headers", "basic", "token", "url", "trust", "client"];
    for name in names {
        let told = world.condition(name, "Ready", |c| c.status == ConditionStatus::False).await;
        assert_eq!(told.reason, "SecretReserved", "{name}: {}", told.message);
        assert!(told.message.contains("reserved has the type relaybook.dev/inbound"), "{name}: {}", told.message);
        world.cursor("shop", name).await;
    }
    world.ready("hook").await;
    world.ship("live", "3").await;
    for name in names {
        let waits = |d: &relaybook_api::Delivery| {
            let status = d.status.clone().unwrap_or_default();
            d.spec.notification == name && status.reason.as_deref() == Some("SecretReserved") && status.attempts == 0
        };
        world.delivery("Deployed 3", waits).await;
    }
    assert!(receiver.to("/signed").is_empty());

    // The type of a Secret cannot be changed, so it is replaced.
    world.delete::<Secret>("reserved").await;
    world.secret("reserved", json!({"token": "open sesame", "url": url})).await;
    // All of its keys are names of headers, too.
    for name in ["headers", "token", "url"] {
        world.ready(name).await;
    }
    world.fence("shop", &["hook", "headers", "token", "url"]).await;
    let mut oracle = Oracle::new(world, receiver);
    for name in names {
        let outcome = if ["headers", "token", "url"].contains(&name) { "Deployed 3" } else { "Deployed 3 [pending]" };
        oracle = oracle.lane(&format!("shop/{name}/prod/live"), &[outcome]);
    }
    oracle.check().await;
    let sent = receiver.to("/signed");
    assert!(sent.iter().all(|request| ["Bearer open sesame", ""].contains(&request.header("authorization"))), "{sent:?}");
}
