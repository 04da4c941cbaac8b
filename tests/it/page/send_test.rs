//! A test from the page: the controller sends it, it says that it is a test, and what the receiver cannot recognize needs a confirmation.

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

#[tokio::test]
async fn the_page_requests_a_test_and_shows_its_result() {
    let shop = Shop::open("page-tested").await;
    let prod = json!({"triggers": [{"type": "Deployed", "environments": ["prod"]}]});
    shop.notification("chat", json!({"builtin": "slack"}), prod).await;
    shop.world.ready("chat").await;
    let foreign = [("cookie", shop.page.cookie.as_str()), ("origin", &shop.page.origin)];
    let forged = format!("token=00&pipeline={}%2Fshop", shop.world.ns);
    let path = format!("{}{}/test", shop.page.origin, shop.path("chat"));
    assert_eq!(ask(&path, &foreign, Some(&forged)).await.status, 403);
    assert_eq!(shop.page.get(&format!("{}/test", shop.path("chat"))).await.status, 303, "GET sends nothing");
    assert!(shop.receiver.log().is_empty());

    let sent = shop.post("chat", &[]).await;
    let about = format!("Test for Deployed of prod/in-cluster/{}/web: 200 ", shop.world.ns);
    assert!(sent.status == 200 && sent.body.contains(&about), "{}", sent.body);
    let requests = shop.receiver.log();
    assert_eq!((requests.len(), requests[0].header("relaybook-test")), (1, "true"));
    assert_eq!(requests[0].json()["blocks"][0]["text"]["text"], "✅ TEST: shop/web: Deployed in prod");
    let deliveries = shop.world.deliveries().await;
    assert!(deliveries.len() == 1 && deliveries[0].spec.test, "{deliveries:?}");
}

#[tokio::test]
async fn a_template_of_a_user_without_a_mark_needs_a_confirmation() {
    let shop = Shop::open("page-own-text").await;
    shop.world.notification("own", &shop.receiver, json!({})).await;
    shop.world.ready("own").await;
    let asks = shop.post("own", &[]).await;
    for words in ["Send this test?", "neither the body nor the URL uses the field test", "type=\"checkbox\" name=\"acts\""] {
        assert!(asks.body.contains(words), "{words}: {}", asks.body);
    }
    assert!(shop.receiver.log().is_empty());
    let sent = shop.post("own", &[("acts", "yes")]).await;
    assert!(sent.body.contains("Test for Deployed of dev/in-cluster/"), "{}", sent.body);
    let requests = shop.receiver.to("/own/web");
    assert_eq!((requests.len(), requests[0].header("relaybook-test")), (1, "true"));
}

#[tokio::test]
async fn a_test_that_cannot_be_sent_says_why() {
    let shop = Shop::open("page-test-refused").await;
    let misspelt = json!({"triggers": [{"type": "Deployed", "environments": ["production"]}]});
    shop.notification("misspelt", json!({"builtin": "slack"}), misspelt).await;
    shop.world.ready("misspelt").await;
    let seen = shop.post("misspelt", &[]).await;
    let words = "Test was not sent: no trigger of Notification misspelt matches a sample for Pipeline";
    assert!(seen.body.contains(words), "{}", seen.body);
    assert!(shop.receiver.log().is_empty(), "{:?}", shop.receiver.log());
}
