//! Templates: the messages are readable, special characters arrive unchanged, and values stay in their place in a URL.

use k8s_openapi::api::apps::v1::Deployment;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::support::receiver::Request;
use crate::support::world::WITNESS;
use crate::support::world::apps::condition;
use crate::support::{Oracle, Receiver, Relaybook, World};

/// Two of the built-in templates that contain a message as text. The contract tests cover all of them.
const TEXTS: [&str; 2] = ["slack", "generic"];

/// Returns type, revision and all strings of each request of a notification, with JSON and HTML escapes decoded.
fn texts_of(log: &[Request], notification: &str) -> Vec<(String, Vec<String>)> {
    fn all(value: &Value, texts: &mut Vec<String>) {
        match value {
            Value::String(text) => texts.push(text.replace("&quot;", "\"").replace("&#39;", "'")),
            Value::Array(items) => items.iter().for_each(|item| all(item, texts)),
            Value::Object(fields) => fields.values().for_each(|field| all(field, texts)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let read = |request: &Request| {
        let said: Value = serde_json::from_str(request.header(WITNESS)).unwrap();
        let ours = said["notification"] == notification && said["target"] == "dev/web";
        let mut texts = Vec::new();
        all(&request.json(), &mut texts);
        let of = |field: &str| said[field].as_str().unwrap().to_owned();
        ours.then(|| (format!("{} {}", of("type"), of("revision")), texts))
    };
    log.iter().filter(|request| !request.header(WITNESS).is_empty()).filter_map(read).collect()
}

/// Removes the escapes of Markdown, as a chat client does.
fn read(text: &str) -> String {
    let mut read = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\\' || !rest.peek().is_some_and(char::is_ascii_punctuation) {
            read.push(c);
        }
    }
    read
}

#[tokio::test]
async fn messages_of_chat_templates_have_their_expected_texts() {
    let world = World::new("for-people").await;
    let receiver = Receiver::start();
    world.deploy("web", "1.0").await;
    world.pipeline("shop", &["dev/web"]).await;
    let and_progress = json!({"triggers": [{"type": "Progressing"}, {"type": "Deployed"}, {"type": "Failed"}]});
    world.notification("hook", &receiver, and_progress.clone()).await;
    world.builtin("slack", &receiver, json!({"builtin": "slack"}), and_progress).await;
    world.builtin("generic", &receiver, json!({"builtin": "generic"}), json!({})).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let failed = r#"ReplicaSet "web-85f5969b7c" has timed out progressing."#;
    world.ship("web", "1.1").await;
    world.break_("web", "1.2", failed).await;
    world.fence("shop", &["slack", "generic", "hook"]).await;
    // Relaybook first observes this rollout while it is in progress, so the message contains replica counts.
    relaybook.stop().await;
    world.patch::<Deployment>("web", json!({"spec": {"replicas": 3}})).await;
    world.roll_out("web", "1.3").await;
    let counts = json!({"replicas": 3, "updatedReplicas": 2, "readyReplicas": 3, "availableReplicas": 3,
        "unavailableReplicas": null});
    world
        .report("web", condition("Progressing", "True", "ReplicaSetUpdated", "\"web\" is progressing."), counts)
        .await
        .unwrap();
    let _relaybook = Relaybook::start(&world).await;
    world.fence("shop", &["hook", "slack"]).await;

    let steps = ["Progressing 1.1", "Deployed 1.1", "Progressing 1.2", "Failed 1.2", "Progressing 1.3"];
    let oracle = Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &steps).lane("shop/slack/dev/web", &steps);
    let few = ["Deployed 1.1", "Failed 1.2"];
    oracle.lane("shop/generic/dev/web", &few).check().await;

    let messages = ["", "1.0 → 1.1, 1 replica", "", failed, "2 of 3 replicas updated"];
    let said = receiver.to("/hook/web").into_iter().map(|r| (r.json()["reason"].clone(), r.json()["message"].clone()));
    let reasons = ["", "", "", "ProgressDeadlineExceeded", "LessUpdated"];
    let want: Vec<_> = reasons.into_iter().zip(messages).map(|(reason, message)| (json!(reason), json!(message))).collect();
    assert_eq!(said.collect::<Vec<_>>(), want);
    for name in TEXTS {
        let told = texts_of(&receiver.log(), name);
        assert_eq!(told.len(), if name == "slack" { steps.len() } else { few.len() }, "{name}");
        for (what, texts) in told {
            let message = messages[steps.iter().position(|step| *step == what).unwrap()];
            assert!(texts.iter().any(|text| read(text).contains(message)), "{name}, {what}: no {message} in {texts:#?}");
            let awkward = |text: &&String| text.contains("\\\"") || text.to_lowercase().contains("generation");
            assert_eq!(texts.iter().find(awkward), None, "{name}, {what}");
        }
    }
}

#[tokio::test]
async fn quotes_and_line_breaks_in_a_message_arrive_unchanged() {
    let world = World::new("quoted").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    let message = "a \"quoted\"\nline, a back\\slash, \u{1}, \u{2028}, {{message}} and \u{1f6a9}\"}";
    world.break_("web", "2", message).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Failed 2"]).check().await;

    let request = &receiver.to("/hook/web")[0];
    assert_eq!((request.method.as_str(), request.header("content-type")), ("POST", "application/json"));
    assert_eq!(request.json()["message"], message);
}

#[tokio::test]
async fn a_value_is_encoded_and_stays_in_its_segment_of_the_url() {
    let world = World::new("encoded").await;
    let receiver = Receiver::start();
    let revision = "feature/ä b?c=d&e#f;g%2F../../@sha1:1";
    world.kustomize("web", "0").await;
    world.kustomize("fence", "0").await;
    world.flux_pipeline("shop", &["dev/web"]).await;
    let url = receiver.url("/{{target.app.name}}/{{revision}}/set?of={{revision}}&by=relaybook");
    // `Removed` has no revision, so it has no URL. The only trigger is `Deployed`.
    let hook = json!({"endpoint": {"url": url}, "triggers": [{"type": "Deployed"}]});
    world.notification("hook", &receiver, hook).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.applied("web", revision).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &[&format!("Deployed {revision}")]).check().await;

    let log = receiver.log();
    let (path, query) = log.iter().find_map(|r| r.path.strip_prefix("/web/")).unwrap().split_once('?').unwrap();
    let value = path.strip_suffix("/set").unwrap();
    assert!(!value.contains(['/', '?', '#', ';', ' ']), "{value}");
    assert_eq!(percent_decode_str(value).decode_utf8().unwrap(), revision);
    let (of, by) = query.split_once('&').unwrap();
    assert_eq!((percent_decode_str(of).decode_utf8().unwrap().as_ref(), by), (&*format!("of={revision}"), "by=relaybook"));
}
