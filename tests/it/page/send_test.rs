//! A test changes nothing: it is a message that says what it is, it is sent only after a confirmation, and all else is refused.

use relaybook_api::Notification;
use serde_json::{Value, json};

use super::access::hidden;
use super::person::{OwnPage, Seen, ask};
use crate::support::{Receiver, Relaybook, World};

/// A pipeline with two environments, which Relaybook follows, and the page of a person with all permissions.
struct Shop {
    world: World,
    receiver: Receiver,
    page: OwnPage,
    _relaybook: Relaybook,
}

impl Shop {
    async fn open(ns: &str) -> Self {
        let world = World::new(ns).await;
        world.deploy("web", "1").await;
        world.pipeline("shop", &["dev/web", "prod/web"]).await;
        let relaybook = Relaybook::start(&world).await;
        world.observed("shop").await;
        let args: [&str; 3] = ["--controller-namespace", &world.ns, "--allow-http=true"];
        let page = OwnPage::start(&world.kubeconfig, &args).await;
        Self { receiver: Receiver::start(), world, page, _relaybook: relaybook }
    }

    /// Creates a notification. A template without a URL is built-in, and gets its path from it.
    async fn notification(&self, name: &str, template: Value, over: Value) {
        self.world.builtin(name, &self.receiver, template, over).await;
    }

    fn path(&self, name: &str) -> String {
        format!("/notifications/{}/{name}", self.world.ns)
    }

    /// Sends the form of a test, with more fields.
    async fn post(&self, name: &str, more: &[(&str, &str)]) -> Seen {
        let token = hidden(&self.page.get(&self.path(name)).await.body, "token");
        let pipeline = format!("{}/shop", self.world.ns);
        let fields = [("token", token.as_str()), ("pipeline", &pipeline)];
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields.iter().chain(more));
        let headers = [("cookie", self.page.cookie.as_str()), ("origin", &self.page.origin)];
        ask(&format!("{}{}/test", self.page.origin, self.path(name)), &headers, Some(&form.finish())).await
    }
}

fn deployed(environments: &[&str]) -> Value {
    json!({"triggers": [{"type": "Deployed", "environments": environments}]})
}

#[tokio::test]
async fn a_test_is_sent_after_its_confirmation_and_says_what_it_is() {
    let shop = Shop::open("page-confirmed").await;
    shop.notification("chat", json!({"builtin": "slack"}), deployed(&["prod"])).await;
    let asks = shop.post("chat", &[]).await;
    let about = format!("prod/in-cluster/{}/web", shop.world.ns);
    let receiver = shop.receiver.url("");
    let receiver = receiver.trim_end_matches('/');
    for words in
        ["Send this test?", &format!("Deployed for {about}"), &format!("POST to {receiver}"), "Its first line says TEST."]
    {
        assert!(asks.status == 200 && asks.body.contains(words), "{words}: {}", asks.body);
    }
    let confirmed = hidden(&asks.body, "confirmed");
    let other = confirmed.replace("prod/", "dev/");
    let changed = shop.post("chat", &[("confirmed", &other)]).await;
    assert!(changed.body.contains("The test has changed since you looked at it."), "{}", changed.body);
    let foreign = [("cookie", shop.page.cookie.as_str()), ("origin", &shop.page.origin)];
    let forged = format!("token=00&pipeline={}%2Fshop", shop.world.ns);
    let path = format!("{}{}/test", shop.page.origin, shop.path("chat"));
    assert_eq!(ask(&path, &foreign, Some(&forged)).await.status, 403);
    assert_eq!(shop.page.get(&format!("{}/test", shop.path("chat"))).await.status, 303, "GET sends nothing");
    assert!(shop.receiver.log().is_empty(), "nothing was confirmed");

    let sent = shop.post("chat", &[("confirmed", &confirmed)]).await;
    assert!(sent.body.contains(&format!("Test for {about}: 200 ")), "{}", sent.body);
    let requests = shop.receiver.log();
    assert_eq!((requests.len(), requests[0].header("relaybook-test")), (1, "true"));
    let body = requests[0].json();
    assert_eq!(body["text"], "✅ TEST: shop: Deployed in prod");
    assert_eq!(body["blocks"][0]["text"]["text"], "✅ TEST: shop: Deployed in prod");
    assert!(requests[0].id().starts_with("msg_test_"), "{:?}", requests[0].headers);
    assert!(shop.world.deliveries().await.is_empty(), "a test is not recorded");
}

#[tokio::test]
async fn a_template_of_a_user_needs_one_more_confirmation() {
    let shop = Shop::open("page-own-text").await;
    shop.world.notification("own", &shop.receiver, json!({})).await;
    let asks = shop.post("own", &[]).await;
    for words in ["The receiver acts on it as on a real message.", "type=\"checkbox\" name=\"acts\""] {
        assert!(asks.body.contains(words), "{words}: {}", asks.body);
    }
    let confirmed = hidden(&asks.body, "confirmed");
    let unchecked = shop.post("own", &[("confirmed", &confirmed)]).await;
    assert!(unchecked.body.contains("Nothing was sent, because the box is not checked."), "{}", unchecked.body);
    assert!(shop.receiver.log().is_empty());
    let sent = shop.post("own", &[("confirmed", &confirmed), ("acts", "yes")]).await;
    assert!(sent.body.contains("Test for dev/in-cluster/"), "{}", sent.body);
    let requests = shop.receiver.to("/own/web");
    assert_eq!((requests.len(), requests[0].header("relaybook-test")), (1, "true"));
    // The confirmation was for this receiver.
    let elsewhere = json!({"spec": {"endpoint": {"url": "http://other.example.com/own"}}});
    shop.world.patch::<Notification>("own", elsewhere).await;
    let changed = shop.post("own", &[("confirmed", &confirmed), ("acts", "yes")]).await;
    assert!(
        changed.body.contains("The test has changed") && changed.body.contains("http://other.example.com"),
        "{}",
        changed.body
    );
    assert_eq!(shop.receiver.log().len(), 1);
}

#[tokio::test]
async fn a_test_that_would_change_something_is_refused() {
    let shop = Shop::open("page-test-refused").await;
    let repository = json!({"owner": "acme", "repository": "shop"});
    let with = |builtin: &str| json!({"builtin": builtin, "parameters": repository});
    let inline = || json!({"inline": {"body": "{\"state\": \"success\"}"}});
    let copy = json!({"endpoint": {"url": shop.receiver.url("/repos/acme/shop/statuses/5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c")}});
    let promotion = json!({"triggers": [{"type": "Deployed"}, {"type": "PromotionRequested"}]});
    let all = json!({"triggers": [{"type": "Deployed"}]});
    let remedy = format!("`relaybook render status -n {} --pipeline shop` shows the request", shop.world.ns);
    for (name, template, over, words) in [
        (
            "status",
            with("github-commit-status"),
            all.clone(),
            "uses github-commit-status, so a test would set the status of a commit",
        ),
        ("status", with("github-commit-status"), all.clone(), remedy.as_str()),
        (
            "dispatch",
            with("github-repository-dispatch"),
            all.clone(),
            "uses github-repository-dispatch, so a test would start workflows",
        ),
        ("pager", json!({"builtin": "pagerduty"}), all.clone(), "uses pagerduty, so a test would open or resolve an alert"),
        (
            "events",
            json!({"builtin": "cloudevents"}),
            all,
            "uses cloudevents, so a test would be an event on which its receivers act",
        ),
        ("promoter", inline(), promotion.clone(), "reports PromotionRequested, and its receiver can act on promotions"),
        (
            "channel",
            json!({"builtin": "slack"}),
            promotion,
            "reports PromotionRequested, and its receiver can act on promotions",
        ),
        ("copy", inline(), copy, "is like that of github-commit-status, so a test would set the status of a commit"),
        (
            "misspelt",
            json!({"builtin": "slack"}),
            deployed(&["production"]),
            "no trigger of Notification misspelt matches a sample for Pipeline",
        ),
    ] {
        if shop.world.api::<Notification>().get_opt(name).await.unwrap().is_none() {
            shop.notification(name, template, over).await;
        }
        for more in [&[("confirmed", "yes"), ("acts", "yes")][..], &[]] {
            let seen = shop.post(name, more).await;
            assert!(
                seen.body.contains("Test was not sent: ") && seen.body.contains(words),
                "{name}: {words}: {}",
                seen.body
            );
            assert!(!seen.body.contains("Send this test"), "{name}: {}", seen.body);
        }
    }
    assert!(shop.receiver.log().is_empty(), "{:?}", shop.receiver.log());
}
