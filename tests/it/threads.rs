//! One message for each rollout: it is updated in place, survives a kill, and is replaced if it no longer exists. What an answer said is sent
//! only to the receiver that said it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use kube::ResourceExt as _;
use relaybook_api::delivery::{MessageThread, REDELIVER};
use relaybook_api::{Delivery, Notification, Outcome};
use serde_json::{Value, json};

use crate::support::receiver::Request;
use crate::support::{Receiver, Relaybook, Reply, World, eventually};

const POST: &str = "/api/chat.postMessage";
const UPDATE: &str = "/api/chat.update";

/// The messages at a receiver that answers as Slack does.
#[derive(Clone, Default)]
struct Slack(Arc<Mutex<BTreeSet<String>>>);

impl Slack {
    fn start() -> (Self, Receiver) {
        let (slack, receiver) = (Self::default(), Receiver::start());
        let book = slack.clone();
        receiver.decide(move |request| book.answer(request));
        (slack, receiver)
    }

    fn answer(&self, request: &Request) -> Reply {
        let mut messages = self.0.lock().unwrap();
        let body = request.json();
        let ts = body["ts"].as_str().map(str::to_owned);
        let answer = match ts.filter(|_| request.path == UPDATE) {
            Some(ts) if messages.contains(&ts) => json!({"ok": true, "channel": "C9", "ts": ts}),
            Some(_) => json!({"ok": false, "error": "message_not_found"}),
            None => {
                let ts = format!("140589432{}.000100", messages.len());
                messages.insert(ts.clone());
                json!({"ok": true, "channel": "C9", "ts": ts})
            }
        };
        Reply::status(200).body(&answer.to_string())
    }

    /// A person deletes all messages.
    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// Creates pipeline `shop`, and a notification `slack` that updates one message for each rollout.
async fn shop(ns: &str, receiver: &Receiver) -> World {
    let world = World::new(ns).await;
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.secret("bot", json!({"token": "xoxb-0123456789"})).await;
    let types = ["Progressing", "Failed", "Deployed", "Recovered"].map(|type_| json!({"type": type_}));
    let template = json!({"builtin": "slack", "parameters": {"channel": "#deploys", "mode": "update"}});
    let auth = json!({"token": {"secretKeyRef": {"name": "bot", "key": "token"}}});
    let over = json!({"triggers": types, "endpoint": {"url": receiver.url(POST), "auth": auth}});
    world.builtin("slack", receiver, template, over).await;
    world
}

/// Waits for the delivery of this type and revision. Returns it with its message.
async fn sent(world: &World, type_: &str, revision: &str) -> (Delivery, Option<MessageThread>) {
    let is_it = |d: &Delivery| d.spec.type_.as_str() == type_ && d.spec.to.revision.ends_with(revision);
    let is_sent = |d: &Delivery| d.status.as_ref().and_then(|s| s.outcome) == Some(Outcome::Delivered);
    let delivery = world.delivery(&format!("{type_} {revision}"), |d| is_it(d) && is_sent(d)).await;
    let thread = delivery.status.as_ref().and_then(|status| status.thread.clone());
    (delivery, thread)
}

fn values(thread: Option<&MessageThread>) -> Value {
    thread.map_or(Value::Null, |thread| json!(thread.values))
}

fn paths(receiver: &Receiver) -> Vec<String> {
    receiver.log().into_iter().map(|request| request.path).collect()
}

#[tokio::test]
async fn a_rollout_is_one_message_that_is_updated_also_after_a_kill() {
    let (slack, receiver) = Slack::start();
    let world = shop("threads-update", &receiver).await;
    let mut relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.roll_out("web", "2").await;
    let (_, first) = sent(&world, "Progressing", "2").await;
    let message = json!({"channel": "C9", "ts": "1405894320.000100"});
    assert_eq!(values(first.as_ref()), message);
    relaybook.kill9();
    relaybook.start_again().await;

    world.fail("web", "crashes").await;
    let (_, failed) = sent(&world, "Failed", "2").await;
    assert_eq!(failed, first, "an update changes nothing of it");
    let update = receiver.to(UPDATE).remove(0).json();
    let found = [&update["channel"], &update["ts"], &update["thread_ts"]];
    assert_eq!(found, [&message["channel"], &message["ts"], &Value::Null]);
    world.finish("web").await;
    let (deployed, last) = sent(&world, "Deployed", "2").await;
    assert!(last.as_ref().is_some_and(|last| last.closed) && values(last.as_ref()) == message, "{last:?}");
    assert_eq!(paths(&receiver), [POST, UPDATE, UPDATE]);

    // The next rollout is another message. Somebody deletes it.
    world.roll_out("web", "3").await;
    let (_, second) = sent(&world, "Progressing", "3").await;
    assert_eq!(values(second.as_ref())["ts"], "1405894321.000100");
    slack.clear();
    world.finish("web").await;
    let (replaced, third) = sent(&world, "Deployed", "3").await;
    assert_eq!(replaced.status.unwrap().attempts, 1, "the update and the new message are one attempt");
    assert_ne!(values(third.as_ref()), values(second.as_ref()));
    assert_eq!(paths(&receiver)[3..], [POST, UPDATE, POST]);

    // A redelivery is a message of its own.
    let again = json!({"metadata": {"annotations": {(REDELIVER): "1"}}});
    world.patch::<Delivery>(&deployed.name_any(), again).await;
    let requests = receiver.wait(POST, 4).await;
    assert_eq!(requests[3].id(), receiver.to(UPDATE)[1].id());
    assert_eq!(receiver.to(UPDATE).len(), 3, "no message is changed");
    let text = serde_json::to_string(&world.deliveries().await).unwrap();
    assert!(!text.contains("xoxb"), "the token is in a Delivery");
}

#[tokio::test]
async fn what_a_receiver_said_is_not_sent_to_another_receiver() {
    let ((_, old), (_, new)) = (Slack::start(), Slack::start());
    let world = shop("threads-moved", &old).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.roll_out("web", "2").await;
    let (_, first) = sent(&world, "Progressing", "2").await;
    world.patch::<Notification>("slack", json!({"spec": {"endpoint": {"url": new.url(POST)}}})).await;
    world.ready("slack").await;
    world.fail("web", "crashes").await;
    let (_, second) = sent(&world, "Failed", "2").await;
    assert_eq!((paths(&old), paths(&new)), (vec![POST.to_owned()], vec![POST.to_owned()]));
    let said = String::from_utf8(new.log().remove(0).body).unwrap();
    assert!(!said.contains("1405894320"), "{said}");
    assert_ne!(first.unwrap().origin, second.unwrap().origin);
}

/// The URL is a Secret as a whole, and the ID of the message is appended to its path.
#[tokio::test]
async fn a_message_of_a_secret_url_is_continued_with_an_own_template() {
    let world = World::new("threads-secret").await;
    let receiver = Receiver::start();
    receiver.decide(|request| {
        let body = if request.method == "POST" { json!({"id": "77/8"}) } else { json!({}) };
        Reply::status(200).body(&body.to_string())
    });
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.secret("hook", json!({"url": receiver.url("/api/webhooks/1/t0k3n?wait=true")})).await;
    let thread = json!({
        "remember": {"id": "body.id"},
        "update": {"method": "PATCH", "append": "/messages/{{remembered.id}}"},
        "keepOpen": true,
    });
    let body = r#"{"type": "{{type}}", "card": "{{remembered.id}}", "is_new": {{#if thread.open}}false{{else}}true{{/if}}}"#;
    let from = json!({"secretKeyRef": {"name": "hook", "key": "url"}});
    let over = json!({
        "endpoint": {"url": null, "urlFrom": from, "thread": thread},
        "template": {"inline": {"body": body}},
    });
    world.notification("hook", &receiver, over).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    sent(&world, "Deployed", "2").await;
    world.ship("web", "3").await;
    let (_, thread) = sent(&world, "Deployed", "3").await;
    assert_eq!(values(thread.as_ref()), json!({"id": "77/8"}));
    let log = receiver.log();
    let lines: Vec<_> = log.iter().map(|request| (request.method.as_str(), request.path.as_str())).collect();
    let update = "/api/webhooks/1/t0k3n/messages/77%2F8?wait=true";
    assert_eq!(lines, [("POST", "/api/webhooks/1/t0k3n?wait=true"), ("PATCH", update)]);
    assert_eq!(log[0].json(), json!({"type": "Deployed", "card": "", "is_new": true}));
    assert_eq!(log[1].json(), json!({"type": "Deployed", "card": "77/8", "is_new": false}));

    // A value that is a part of the Secret is not remembered.
    let reveals = json!({"remember": {"id": null, "token": "'t0k3n'"}, "update": null});
    world
        .patch::<Notification>(
            "hook",
            json!({"spec": {"endpoint": {"thread": reveals}, "template": {"inline": {"body": "{}"}}}}),
        )
        .await;
    world.ready("hook").await;
    world.ship("web", "4").await;
    eventually("it is sent", async || {
        let (_, thread) = sent(&world, "Deployed", "4").await;
        if thread.is_none() { Ok(()) } else { Err(format!("{thread:?}")) }
    })
    .await;
}
