//! What the page shows when the API server is away, slow, or refuses a part.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::person::{Events, OwnPage, allow, ask, token, url};
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::wait::DEADLINE;
use crate::support::{Fault, Proxy, Receiver, Relaybook, Reply, World, eventually};

#[tokio::test]
async fn an_api_server_that_is_away_or_slow_gets_a_page_that_says_so() {
    let world = World::new("page-away").await;
    world.pipeline("shop", &["dev/web"]).await;
    let proxy = Proxy::start(&world.kubeconfig, "page-away").await;
    let page = OwnPage::start(&proxy.kubeconfig, &["--controller-namespace", &world.ns]).await;
    let overview = format!("/?namespace={}", world.ns);
    let seen = page.get(&overview).await;
    assert!(seen.status == 200 && seen.body.contains(">shop<"), "{}", seen.body);
    // Nothing runs in this namespace.
    assert!(seen.body.contains("No controller acts: Lease relaybook-pipeline does not exist"), "{}", seen.body);
    // Away: what was known is still shown, with the reason why it can be old.
    proxy.cut();
    eventually("the overview says that the API server is away", async || {
        let seen = page.get(&overview).await;
        let is_said = seen.status == 200 && seen.body.contains("cannot be reached") && seen.body.contains(">shop<");
        if is_said { Ok(()) } else { Err(format!("{}: {}", seen.status, seen.body)) }
    })
    .await;
    let seen = page.get(&format!("/pipelines/{}/shop", world.ns)).await;
    assert!(
        seen.status == 503 && seen.body.contains("cannot be reached") && seen.headers.contains_key("retry-after"),
        "{}",
        seen.body
    );
    proxy.heal();
    eventually("the overview has recovered", async || {
        let seen = page.get(&overview).await;
        if seen.status == 200 && !seen.body.contains("cannot be reached") { Ok(()) } else { Err(seen.body) }
    })
    .await;
    // Slow: one part does not arrive, and the others are shown.
    let rule = proxy.rule(|call| call.concerns("promotions"), Fault::HoldAnswer(Gate::new()));
    let seen = page.get(&format!("/pipelines/{}/shop", world.ns)).await;
    assert!(
        seen.status == 200 && seen.body.contains("did not answer in time") && seen.body.contains("Targets"),
        "{}",
        seen.body
    );
    proxy.remove(rule);
    // An error of the API server is one sentence.
    proxy.rule(|call| call.concerns("deliveries"), Fault::Refuse(500));
    let seen = page.get(&format!("/parked?namespace={}", world.ns)).await;
    assert!(seen.status == 200 && !seen.body.contains("panicked") && seen.body.contains("notice warn"), "{}", seen.body);
}

#[tokio::test]
async fn an_outage_and_its_end_are_signaled_to_open_pages() {
    let world = World::new("page-outage").await;
    world.pipeline("shop", &["dev/web"]).await;
    let proxy = Proxy::start(&world.kubeconfig, "page-outage").await;
    let page = OwnPage::start(&proxy.kubeconfig, &["--controller-namespace", &world.ns]).await;
    let paths = [format!("/?namespace={}", world.ns), format!("/pipelines/{}/shop", world.ns)];
    let mut all = Vec::new();
    for path in &paths {
        assert_eq!(page.get(path).await.status, 200);
        let mut events = Events::open(&page, path).await;
        assert!(events.change(DEADLINE).await, "{path}: the first signal, when the watch has started");
        // Until nothing has changed for some seconds.
        while events.change(Duration::from_secs(4)).await {}
        all.push(events);
    }
    proxy.cut();
    for (events, path) in all.iter_mut().zip(&paths) {
        assert!(events.change(DEADLINE).await, "{path}: the outage");
        let seen = page.get(path).await;
        assert!(seen.body.contains("cannot be reached"), "{path}: {}", seen.body);
    }
    proxy.heal();
    for (events, path) in all.iter_mut().zip(&paths) {
        assert!(events.change(DEADLINE).await, "{path}: its end");
        eventually(&format!("{path} has recovered"), async || {
            let seen = page.get(path).await;
            if seen.status == 200 && !seen.body.contains("cannot be reached") { Ok(()) } else { Err(seen.body) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_page_shows_readable_objects_and_names_missing_permissions() {
    let world = World::new("page-partly").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let args = vec!["--page-addr=127.0.0.1:0".to_owned()];
    let relaybook = Relaybook::with(&world, Options { args, ..Options::of(&world) }).await;
    world.observed("shop").await;
    let page = relaybook.page_address().await;
    let token = token(&world, "partly", &[]).await;
    let rules = json!([{"apiGroups": ["relaybook.dev"], "resources": ["pipelines"], "verbs": ["get", "list", "watch"]}]);
    allow(&world, "partly", "pipelines", &rules).await;
    let bearer = format!("Bearer {token}");
    let seen = ask(&url(page, &format!("/pipelines/{}/shop", world.ns)), &[("authorization", &bearer)], None).await;
    assert_eq!(seen.status, 200, "{}", seen.body);
    for needed in ["list on deliveries", "list on notifications", "list on promotions"] {
        assert!(seen.body.contains(&format!("No permission: needs {needed} in {}.", world.ns)), "{needed}: {}", seen.body);
    }
    assert!(seen.body.contains("dev/in-cluster/"), "{}", seen.body);
    let seen = ask(&url(page, &format!("/?namespace={}", world.ns)), &[("authorization", &bearer)], None).await;
    assert!(
        seen.status == 200 && seen.body.contains("No permission: needs list and watch on notifications"),
        "{}",
        seen.body
    );
    assert!(seen.body.contains(">shop<"), "{}", seen.body);
}

#[tokio::test]
async fn a_receiver_that_refuses_is_on_every_screen_that_it_concerns() {
    let world = World::new("page-refused").await;
    let receiver = Receiver::start();
    receiver.always("/hook", Reply::status(400).body("no such room"));
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("chat", &receiver, json!({"endpoint": {"url": receiver.url("/hook")}})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    world.ship("web", "2").await;
    world.condition("chat", "Delivering", |c| c.status == relaybook_api::conditions::ConditionStatus::False).await;
    let page = OwnPage::start(&world.kubeconfig, &["--controller-namespace", &world.ns]).await;
    let ns = &world.ns;
    for (path, words) in [
        (format!("/?namespace={ns}"), "Notifications that need attention"),
        (format!("/pipelines/{ns}/shop"), "Parked: "),
        (
            format!("/notifications/{ns}/chat"),
            "Remedy: check the template with <code>relaybook render chat -n page-refused</code>",
        ),
        (format!("/receivers?namespace={ns}"), "Needs attention"),
        (format!("/parked?namespace={ns}"), "no such room"),
        (format!("/search?q=2&namespace={ns}"), "400 Bad Request: no such room"),
    ] {
        eventually(&path, async || {
            let seen = page.get(&path).await;
            if seen.status == 200 && seen.body.contains(words) {
                Ok(())
            } else {
                Err(format!("{}: {}", seen.status, seen.body))
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_wrong_global_configuration_is_above_every_screen() {
    let world = World::new("page-banner").await;
    world.pipeline("shop", &["dev/web"]).await;
    let data = json!({"config.yaml": "notifications: [{name: chat, colour: red}]"});
    let _: ConfigMap = world.create(json!({"metadata": {"name": "relaybook-config"}, "data": data})).await;
    let page = OwnPage::start(&world.kubeconfig, &["--controller-namespace", &world.ns]).await;
    for path in [format!("/?namespace={}", world.ns), format!("/pipelines/{}/shop", world.ns), "/clusters".to_owned()] {
        let seen = page.get(&path).await;
        let is_named = seen.body.contains("The global configuration in ConfigMap page-banner/relaybook-config is wrong");
        assert!(seen.status == 200 && is_named && seen.body.contains("colour"), "{path}: {}", seen.body);
    }
}
