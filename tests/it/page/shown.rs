//! What the page costs the API server, and links in templates.

use std::time::Duration;

use serde_json::json;

use super::person::{Events, OwnPage, client};
use crate::support::proxy::Call;
use crate::support::relaybook::Options;
use crate::support::{Fault, Proxy, Receiver, Relaybook, World, eventually};

/// The maximum number of calls of a page.
const CALLS: usize = 10;

/// A pipeline with a notification, which Relaybook follows.
async fn shop(ns: &str) -> (World, Receiver, Relaybook) {
    let world = World::new(ns).await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("chat", &receiver, json!({})).await;
    let relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    (world, receiver, relaybook)
}

#[tokio::test]
async fn a_page_makes_few_calls_and_an_idle_one_only_watches() {
    let (world, _receiver, _relaybook) = shop("page-calls").await;
    world.ship("web", "2").await;
    let sent = world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.outcome.is_some())).await;
    let proxy = Proxy::start(&world.kubeconfig, "page-calls").await;
    // A delay of nothing, so that each call is counted and forwarded.
    let nothing = || Fault::Late(Duration::ZERO);
    let is_watch = |call: &Call| call.query.contains("watch=");
    // Those of an open page of a pipeline. The overview has its own, of whole lists, which it keeps and makes again, too.
    let of_page =
        |call: &Call| call.concerns("deliveries") || call.concerns("promotions") || call.query.contains("fieldSelector");
    let watches = proxy.rule(move |call| is_watch(call) && of_page(call), nothing());
    let others = proxy.rule(is_watch, nothing());
    let calls = proxy.rule(|_| true, nothing());
    let all = || [watches, others, calls].iter().map(|rule| proxy.hits(*rule)).sum::<usize>();
    let page = OwnPage::start(&proxy.kubeconfig, &["--controller-namespace", &world.ns]).await;
    let ns = &world.ns;
    let name = kube::ResourceExt::name_any(&sent);
    for path in [
        format!("/?namespace={ns}"),
        format!("/pipelines/{ns}/shop"),
        format!("/deliveries/{ns}/{name}"),
        format!("/notifications/{ns}/chat"),
        format!("/receivers?namespace={ns}"),
        format!("/pending?namespace={ns}"),
        format!("/parked?namespace={ns}"),
        format!("/clusters?namespace={ns}"),
        format!("/search?q=2&namespace={ns}"),
    ] {
        // The first visit also starts watches and reads the state of the installation; both are kept.
        let before = all();
        assert_eq!(page.get(&path).await.status, 200, "{path}");
        let first = all() - before;
        let before = all();
        assert_eq!(page.get(&path).await.status, 200, "{path}");
        let again = all() - before;
        assert!(first <= CALLS + 3 && again <= CALLS, "{path}: {first} and {again} calls");
    }
    // A page that is open and idle: after its first list, only watches.
    let stream = format!("{}/events?for=%2Fpipelines%2F{ns}%2Fshop", page.origin);
    let started = proxy.hits(watches);
    let mut events = client().get(stream).header("cookie", &page.cookie).send().await.unwrap();
    assert!(events.chunk().await.unwrap().is_some());
    proxy.hit(watches, started + 3).await;
    let (before, at) = (proxy.hits(calls), tokio::time::Instant::now());
    let again = proxy.hits(watches) + 3;
    // Until the watches have been made again, which they are after 25 s.
    let reading = async { while events.chunk().await.unwrap().is_some() {} };
    tokio::select! { () = reading => {}, () = proxy.hit(watches, again) => {} }
    assert_eq!(proxy.hits(calls), before, "after {:?}", at.elapsed());
}

#[tokio::test]
async fn a_change_is_signalled_to_the_open_page() {
    let (world, _receiver, _relaybook) = shop("page-live").await;
    let page = OwnPage::start(&world.kubeconfig, &["--controller-namespace", &world.ns]).await;
    let paths = [
        format!("/?namespace={}", world.ns),
        format!("/pipelines/{}/shop", world.ns),
        format!("/notifications/{}/chat", world.ns),
    ];
    let mut streams = Vec::new();
    for path in &paths {
        assert_eq!(page.get(path).await.status, 200);
        streams.push(Events::open(&page, path).await);
    }
    world.ship("web", "2-live").await;
    for (stream, path) in streams.iter_mut().zip(&paths) {
        assert!(stream.change(Duration::from_secs(30)).await, "{path}");
    }
    eventually("the overview has the revision", async || {
        let seen = page.get(&paths[0]).await;
        if seen.body.contains("2-live") { Ok(()) } else { Err(seen.body) }
    })
    .await;
}

#[tokio::test]
async fn a_template_can_link_to_the_page() {
    let world = World::new("page-link").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let body = "{{link}} {{links.pipeline}} {{links.notification}} {{links.revision}}";
    let template = json!({"inline": {"body": body, "contentType": "text/plain"}});
    world.notification("chat", &receiver, json!({"template": template, "endpoint": {"url": receiver.url("/hook")}})).await;
    let args = vec!["--page-url=https://relaybook.example.com".to_owned()];
    let mut relaybook = Relaybook::with(&world, Options { args, ..Options::of(&world) }).await;
    world.observed("shop").await;
    world.ship("web", "2").await;
    let sent = receiver.wait("/hook", 1).await;
    let text = String::from_utf8(sent[0].body.clone()).unwrap();
    let links: Vec<_> = text.split(' ').collect();
    let delivery = world.delivery("Deployed 2", |d| d.status.as_ref().is_some_and(|s| s.outcome.is_some())).await;
    let (ns, name, base) = (&world.ns, kube::ResourceExt::name_any(&delivery), "https://relaybook.example.com");
    assert_eq!(links[0], format!("{base}/deliveries/{ns}/{name}"));
    assert_eq!(links[1], format!("{base}/pipelines/{ns}/shop"));
    assert_eq!(links[2], format!("{base}/notifications/{ns}/chat"));
    assert_eq!(links[3], format!("{base}/search?q=2"));
    // Each of them is a screen.
    let page = OwnPage::start(&world.kubeconfig, &["--controller-namespace", ns]).await;
    for link in &links {
        let path = link.strip_prefix(base).unwrap();
        assert_eq!(page.get(path).await.status, 200, "{path}");
    }
    // The preview shows the same links, because the controller publishes the URL.
    let published = eventually("the URL is published", async || {
        let args = ["render", "chat", "--pipeline", "shop", "-n", ns, "--controller-namespace", ns];
        let output = crate::support::relaybook::command(&world, &args).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.contains("https://relaybook.example.com/pipelines/") { Ok(text) } else { Err(text) }
    })
    .await;
    assert!(published.contains(&format!("{base}/pipelines/{ns}/shop")), "{published}");
    relaybook.stop().await;
}
