//! Credentials from Secrets: Relaybook uses the newest value, sends nothing while a value is missing, and never shows a value.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::{Delivery, Notification, Pipeline};
use ring::hmac;
use serde_json::json;

use crate::support::receiver::Request;
use crate::support::relaybook::command;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

#[tokio::test]
async fn a_rotated_secret_is_used_by_the_next_attempt() {
    let world = World::new("rotated").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(401)]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.secret("token", json!({"key": "first"})).await;
    // Without the rotation, the next attempt would be made in ten minutes.
    let hook = json!({
        "endpoint": {"auth": {"token": {"secretKeyRef": {"name": "token", "key": "key"}}}},
        "delivery": {"retry": {"initial": "10m", "max": "10m"}},
    });
    world.notification("hook", &receiver, hook).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.next_attempt_time.is_some())).await;
    world.patch::<Secret>("token", json!({"stringData": {"key": "second\n"}})).await;
    receiver.wait("/hook/web", 2).await;
    world.ship("web", "3").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]).check().await;

    let sent: Vec<_> = receiver.to("/hook/web").iter().map(|r| r.header("authorization").to_owned()).collect();
    assert_eq!(sent, ["Bearer first", "Bearer second", "Bearer second"]);
}

#[tokio::test]
async fn nothing_is_sent_until_the_secret_exists() {
    let world = World::new("missing").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let token = json!({"secretKeyRef": {"name": "later", "key": "pass-key"}, "header": "x-api-key"});
    world.notification("hook", &receiver, json!({"endpoint": {"auth": {"token": token}}})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    let ready = world.condition("hook", "Ready", |c| c.status == ConditionStatus::False).await;
    assert_eq!(ready.reason, "SecretMissing");
    assert!(ready.message.contains("later"), "{}", ready.message);
    assert!(world.warning("hook", "SecretMissing").await.contains("later"));
    world.cursor("shop", "hook").await;

    world.ship("web", "2").await;
    let waits = |d: &Delivery, word: &str| {
        let status = d.status.clone().unwrap_or_default();
        let reason = status.reason.as_deref() == Some("SecretMissing");
        reason && status.attempts == 0 && status.error.is_some_and(|e| e.contains(word))
    };
    world.delivery("Deployed 2", |d| waits(d, "later")).await;
    world.condition("hook", "Delivering", |c| c.reason == "SecretMissing").await;

    // The Secret now exists, but without the key.
    world.secret("later", json!({"other": "value"})).await;
    world.condition("hook", "Ready", |c| c.reason == "SecretMissing" && c.message.contains("pass-key")).await;
    world.delivery("Deployed 2", |d| waits(d, "pass-key")).await;
    world.ship("web", "3").await;
    world.delivery("Deployed 3", |_| true).await;
    assert_eq!(receiver.connections(), 0);

    world.patch::<Secret>("later", json!({"stringData": {"pass-key": "open sesame"}})).await;
    world.settled().await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]).check().await;
    assert!(receiver.log().iter().all(|r| r.header("x-api-key") == "open sesame" && r.header("authorization").is_empty()));
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;

    // The Secret is deleted again.
    world.delete::<Secret>("later").await;
    world.condition("hook", "Ready", |c| c.reason == "SecretMissing").await;
    world.ship("web", "4").await;
    world.delivery("Deployed 4", |d| waits(d, "later")).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3", "Deployed 4 [pending]"])
        .check()
        .await;
}

/// What is checked before each request is checked when the Secret changes.
#[tokio::test]
async fn a_secret_that_cannot_work_is_reported_before_the_first_change() {
    let world = World::new("secret-unusable").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let url = receiver.url("/hook/web");
    world.secret("chat", json!({"url": format!("\"{url}\""), "token": "open\u{200b}sesame"})).await;
    let reference = |key: &str| json!({"secretKeyRef": {"name": "chat", "key": key}});
    let endpoint = json!({"url": null, "urlFrom": reference("url"), "auth": {"token": reference("token")}});
    world.notification("hook", &receiver, json!({"endpoint": endpoint})).await;
    let relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    let says = async |words: &str| {
        let ready = world.condition("hook", "Ready", |c| c.reason == "SecretInvalid" && c.message.contains(words)).await;
        assert_eq!(ready.status, ConditionStatus::False);
        world.condition("hook", "Delivering", |c| c.status == ConditionStatus::Unknown && c.reason == "NotReady").await;
    };
    says("is not a URL: remove the quotation marks").await;
    assert!(world.warning("hook", "SecretInvalid").await.contains("key url"));
    // A parser of URLs would join the two lines.
    world.patch::<Secret>("chat", json!({"stringData": {"url": format!("{url}\nhttp://example.com")}})).await;
    says("is a line break").await;
    world.patch::<Secret>("chat", json!({"stringData": {"url": url}})).await;
    says("key token: character 5 is an invisible character; remove it").await;
    assert_eq!(receiver.connections(), 0);

    world.patch::<Secret>("chat", json!({"stringData": {"token": "sesame"}})).await;
    world.condition("hook", "Ready", |c| c.status == ConditionStatus::True).await;
    world.condition("hook", "Delivering", |c| c.status == ConditionStatus::True).await;
    world.ship("web", "2").await;
    receiver.wait("/hook/web", 1).await;
    drop(relaybook);
}

#[tokio::test]
async fn the_url_and_basic_credentials_come_from_secrets() {
    let world = World::new("basic").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.secret("url", json!({"url": receiver.url("/services/T0/B0")})).await;
    world.secret("login", json!({"username": "user", "password": "pa:ss"})).await;
    let hook = json!({"endpoint": {
        "url": null,
        "urlFrom": {"secretKeyRef": {"name": "url", "key": "url"}},
        "auth": {"basic": {"secretRef": {"name": "login"}}},
    }});
    world.notification("hook", &receiver, hook).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
    let log = receiver.log();
    assert!(log.iter().all(|r| r.path == "/services/T0/B0" && r.header("authorization") == "Basic dXNlcjpwYTpzcw=="));

    // The receiver moves.
    let moved = Receiver::start();
    world.patch::<Secret>("url", json!({"stringData": {"url": moved.url("/services/T1")}})).await;
    world.patch::<Secret>("login", json!({"stringData": {"password": "changed"}})).await;
    eventually("requests arrive at the new URL with the new password", async || {
        world.fence("shop", &["hook"]).await;
        let changed = |r: &crate::support::receiver::Request| r.header("authorization") == "Basic dXNlcjpjaGFuZ2Vk";
        if moved.to("/services/T1").iter().any(changed) { Ok(()) } else { Err(format!("{:?}", moved.log())) }
    })
    .await;
    world.ship("web", "3").await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver).and(&moved);
    oracle.lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3"]).check().await;
}

/// The values that must not appear anywhere, and the base64 text of the basic credentials in the request.
const VALUES: [&str; 6] =
    ["tok-8c1f4e", "path-77ab31", "query-5d20c9", "pass-e19a42", "dXNlci1iNDM6cGFzcy1lMTlhNDI=", "user-b43"];

#[tokio::test]
async fn a_value_of_a_secret_is_shown_nowhere() {
    let world = World::new("unseen").await;
    let receiver = Receiver::start();
    let refusing = Receiver::refusing();
    // The receivers repeat the credentials in their responses, for each way in which an attempt can end.
    let (token, login) = VALUES.split_at(1);
    let echoes = |values: &[&str]| {
        let echo = values.join(" ");
        [500, 401, 301].map(|s| Reply::status(s).body(&echo).header("location", &echo))
    };
    receiver.script("/token/web", echoes(token));
    receiver.script("/path-77ab31?key=query-5d20c9", [Reply::Close].into_iter().chain(echoes(login)));
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let url = |r: &Receiver| r.url("/path-77ab31?key=query-5d20c9");
    let data = json!({"token": "tok-8c1f4e", "url": url(&receiver), "refusing": url(&refusing)});
    world.secret("values", data).await;
    world.secret("login", json!({"username": "user-b43", "password": "pass-e19a42"})).await;
    let url_from = |key: &str| json!({"secretKeyRef": {"name": "values", "key": key}});
    let basic = json!({"basic": {"secretRef": {"name": "login"}}});
    let token = json!({"token": {"secretKeyRef": {"name": "values", "key": "token"}}});
    world.notification("token", &receiver, json!({"endpoint": {"auth": token}})).await;
    let endpoint = json!({"url": null, "urlFrom": url_from("url"), "auth": basic});
    world.notification("basic", &receiver, json!({"endpoint": endpoint})).await;
    let endpoint = json!({"url": null, "urlFrom": url_from("refusing"), "auth": basic});
    world.notification("refused", &receiver, json!({"endpoint": endpoint})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    // Waits until each notification has made at least one attempt, and all results are written.
    for notification in ["token", "basic", "refused"] {
        world
            .delivery("Deployed 2", |d| {
                d.spec.notification == notification && d.status.as_ref().is_some_and(|s| s.attempts > 0)
            })
            .await;
    }
    let parked = |d: &Delivery| d.spec.notification == "token" && d.status.as_ref().is_some_and(|s| s.outcome.is_some());
    world.delivery("Deployed 2", parked).await;
    world.warning("token", "DeliveryParked").await;
    world.condition("refused", "Delivering", |c| c.status == ConditionStatus::False).await;
    let steps = ["Deployed 2 [Parked]"];
    let oracle = Oracle::new(&world, &receiver)
        .with_attempts_unseen()
        .lane("shop/token/dev/web", &steps)
        .lane("shop/basic/dev/web", &steps);
    oracle.lane("shop/refused/dev/web", &["Deployed 2 [pending]"]).check().await;

    // The error about an unusable value does not contain the value.
    world.patch::<Secret>("values", json!({"stringData": {"url": "tok-8c1f4e path-77ab31 pass-e19a42"}})).await;
    world.ship("web", "3").await;
    world
        .delivery("Deployed 3", |d| {
            d.spec.notification == "basic" && d.status.as_ref().is_some_and(|s| s.reason.is_some() && s.attempts == 0)
        })
        .await;
    let metrics = relaybook.metrics().await;
    relaybook.stop().await;

    let all = ListParams::default();
    let mut seen = vec![("log", relaybook.log()), ("metrics", format!("{metrics:?}"))];
    let text = |list: serde_json::Result<String>| list.unwrap();
    seen.push(("pipelines", text(serde_json::to_string(&world.api::<Pipeline>().list(&all).await.unwrap().items))));
    seen.push(("notifications", text(serde_json::to_string(&world.api::<Notification>().list(&all).await.unwrap().items))));
    seen.push(("deliveries", text(serde_json::to_string(&world.deliveries().await))));
    seen.push(("events", text(serde_json::to_string(&world.api::<Event>().list(&all).await.unwrap().items))));
    for (place, text) in seen {
        assert!(text.len() > 100, "{place}: {text}");
        for value in VALUES {
            let shown = text.find(value).map(|at| &text[at.saturating_sub(200)..(at + 100).min(text.len())]);
            assert_eq!(shown, None, "{value} in {place}");
        }
    }
}

const FIRST: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const SECOND: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// Returns whether the reference implementation of Standard Webhooks accepts the signature of a request.
fn verifies(request: &Request, key: &str) -> bool {
    let mut headers = http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, request.header(name).parse().unwrap());
    }
    standardwebhooks::Webhook::new(key).unwrap().verify(&request.body, &headers).is_ok()
}

#[tokio::test]
async fn every_key_of_the_secret_signs_during_a_rotation() {
    let world = World::new("signed").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(503)]);
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.secret("hmac", json!({"a": "too short"})).await;
    world.notification("hook", &receiver, json!({"endpoint": {"signing": {"secretRef": {"name": "hmac"}}}})).await;
    let _relaybook = Relaybook::start(&world).await;
    let told = world.condition("hook", "Ready", |c| c.status == ConditionStatus::False).await;
    assert!(told.message.contains("hmac, key a: is not a signing key"), "{}", told.message);

    let keys =
        async |data: serde_json::Value| drop(world.patch::<Secret>("hmac", json!({"data": null, "stringData": data})).await);
    keys(json!({"a": FIRST})).await;
    world.settled().await;
    world.ship("web", "2").await;
    receiver.wait("/hook/web", 2).await;
    keys(json!({"a": FIRST, "b": SECOND})).await;
    // When requests have both signatures, the receiver can drop the old key.
    eventually("both keys sign", async || {
        world.fence("shop", &["hook"]).await;
        let last = receiver.to("/hook/fence").last().cloned().unwrap();
        (verifies(&last, FIRST) && verifies(&last, SECOND))
            .then_some(())
            .ok_or_else(|| last.header("webhook-signature").to_owned())
    })
    .await;
    world.patch::<Secret>("hmac", json!({"data": {"a": null}})).await;
    eventually("only the new key signs", async || {
        world.fence("shop", &["hook"]).await;
        let last = receiver.to("/hook/fence").last().cloned().unwrap();
        (!verifies(&last, FIRST) && verifies(&last, SECOND))
            .then_some(())
            .ok_or_else(|| last.header("webhook-signature").to_owned())
    })
    .await;
    let tries = receiver.to("/hook/web");
    assert_eq!(tries[0].id(), tries[1].id());
    assert!(tries.iter().all(|r| verifies(r, FIRST) && !verifies(r, SECOND)), "{tries:?}");
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
}

/// Returns the signature of a body, as GitHub and Flux write it.
fn body_signature(key: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    format!("sha256={}", hex::encode(hmac::sign(&key, body)))
}

#[tokio::test]
async fn headers_and_the_signature_of_the_body_follow_their_secrets() {
    let world = World::new("headers-from").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.secret("headers", json!({"X-Api-Key": "first", "Host": "elsewhere.example"})).await;
    world.secret("hmac", json!({"token": "open sesame\n"})).await;
    let endpoint = json!({
        "headers": {"x-api-key": "literal", "X-Team": "a"},
        "headersFrom": {"secretRef": {"name": "headers"}},
        "signing": {"secretRef": {"name": "hmac"}, "scheme": "BodyHex", "header": "X-Hub-Signature-256"},
    });
    world.notification("hook", &receiver, json!({"endpoint": endpoint})).await;
    let _relaybook = Relaybook::start(&world).await;
    let told = world.condition("hook", "Ready", |c| c.status == ConditionStatus::False).await;
    let says = told.message.contains("key Host: is a header that Relaybook or the connection sets");
    assert!(told.reason == "SecretInvalid" && says, "{}: {}", told.reason, told.message);

    world.patch::<Secret>("headers", json!({"data": {"Host": null}})).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    world.patch::<Secret>("headers", json!({"stringData": {"X-Api-Key": "second"}})).await;
    eventually("the new value is sent", async || {
        world.fence("shop", &["hook"]).await;
        let last = receiver.to("/hook/fence").last().cloned().unwrap();
        (last.header("x-api-key") == "second").then_some(()).ok_or_else(|| last.header("x-api-key").to_owned())
    })
    .await;
    let shown = command(&world, &["render", "hook", "-n", world.ns.as_str(), "--trigger", "Deployed", "--allow-http"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    let named = shown.contains("\nx-api-key: ***\n") && shown.contains("\nx-team: a\n");
    assert!(named && !shown.contains("second") && !shown.contains("/headers"), "{shown}");
    let sent = receiver.to("/hook/web").first().cloned().unwrap();
    assert_eq!((sent.header("x-api-key"), sent.header("x-team")), ("first", "a"));
    assert_eq!(sent.header("x-hub-signature-256"), body_signature("open sesame", &sent.body));
    assert_eq!(sent.header("webhook-signature"), "");
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
}

#[tokio::test]
async fn unusable_certificates_are_reported_before_the_first_request() {
    let world = World::new("certificates").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let from = |kind: &str| json!({(kind): {"name": "ca", "key": "ca.crt"}});
    world.notification("map", &receiver, json!({"endpoint": {"tls": {"caFrom": from("configMapKeyRef")}}})).await;
    world.notification("secret", &receiver, json!({"endpoint": {"tls": {"caFrom": from("secretKeyRef")}}})).await;
    let client = json!({"endpoint": {"tls": {"clientCertificate": {"secretRef": {"name": "ca"}}}}});
    world.notification("client", &receiver, client).await;
    let _relaybook = Relaybook::start(&world).await;
    let told = async |name: &str, word: &str| {
        world.condition(name, "Ready", |c| c.status == ConditionStatus::False && c.message.contains(word)).await
    };
    assert_eq!(told("map", "/ca does not exist").await.reason, "ConfigMapMissing");
    assert_eq!(told("secret", "/ca does not exist").await.reason, "SecretMissing");
    world.create::<ConfigMap>(json!({"metadata": {"name": "ca"}, "data": {"ca.crt": "junk"}})).await;
    world.secret("ca", json!({"ca.crt": "junk", "tls.crt": "junk", "tls.key": "s3cr3t-k3y"})).await;
    assert_eq!(told("map", "contains no certificate").await.reason, "InvalidSpec");
    told("secret", "contains no certificate").await;
    assert!(!told("client", "is not a private key").await.message.contains("s3cr3t"));
    let good = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (pem, key) = (good.cert.pem(), good.signing_key.serialize_pem());
    world.patch::<ConfigMap>("ca", json!({"data": {"ca.crt": pem}})).await;
    world.patch::<Secret>("ca", json!({"stringData": {"ca.crt": pem, "tls.crt": pem, "tls.key": key}})).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["map", "secret", "client"]).await;
    let lanes = ["map", "secret", "client"].map(|name| format!("shop/{name}/dev/web"));
    let oracle = lanes.iter().fold(Oracle::new(&world, &receiver), |oracle, lane| oracle.lane(lane, &["Deployed 2"]));
    oracle.check().await;
}
