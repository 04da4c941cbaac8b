//! Tests where requests can go and where they cannot: the egress policy and the proxy.

use std::io::ErrorKind;

use relaybook_api::Delivery;
use serde_json::json;

use crate::support::relaybook::Options;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World};

fn waits(delivery: &Delivery, notification: &str, reason: &str, words: &str) -> bool {
    let status = delivery.status.clone().unwrap_or_default();
    delivery.spec.notification == notification
        && status.reason.as_deref() == Some(reason)
        && status.error.is_some_and(|error| error.contains(words))
}

#[tokio::test]
async fn a_forbidden_address_is_never_connected_to_however_it_is_given() {
    let world = World::new("egress-spelt").await;
    let receiver = Receiver::start();
    let port = receiver.url("").rsplit(':').next().unwrap().to_owned();
    // The tests of the policy have more spellings.
    let hosts = [
        ("number", "2130706433", "loopback"),
        ("mapped", "[::ffff:7f00:1]", "loopback"),
        ("name", "localhost", "loopback"),
        ("clouds", "169.254.169.254", "link-local"),
    ];
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let names: Vec<_> = hosts.iter().flat_map(|(name, ..)| [format!("open-{name}"), format!("hidden-{name}")]).collect();
    for (name, host, _) in hosts {
        let url = format!("http://{host}:{port}/x");
        world.secret(name, json!({"url": url})).await;
        world.notification(&format!("open-{name}"), &receiver, json!({"endpoint": {"url": url}})).await;
        let hidden = json!({"url": null, "urlFrom": {"secretKeyRef": {"name": name, "key": "url"}}});
        world.notification(&format!("hidden-{name}"), &receiver, json!({"endpoint": hidden})).await;
    }
    let _relaybook = Relaybook::with(&world, Options { loopback: false, ..Options::of(&world) }).await;
    world.observed("shop").await;
    for name in &names {
        // The name of a host is resolved only before a request.
        if !name.ends_with("-name") {
            world.condition(name, "Ready", |c| c.reason == "DestinationForbidden").await;
        }
        world.cursor("shop", name).await;
    }

    world.ship("web", "2").await;
    for (name, host, rule) in hosts {
        for kind in ["open", "hidden"] {
            let words = format!("{rule} address is refused unless it is allowed by --allow-destination");
            let notification = format!("{kind}-{name}");
            let refused = world.delivery("Deployed 2", |d| waits(d, &notification, "DestinationForbidden", &words)).await;
            let status = refused.status.unwrap();
            assert_eq!((status.attempts, status.outcome, status.last_attempt_time), (0, None, None), "{host}");
        }
        let notification = format!("open-{name}");
        world.condition(&notification, "Delivering", |c| c.reason == "DestinationForbidden").await;
        let note = world.warning(&notification, "DeliveryWaits").await;
        assert!(note.contains("DestinationForbidden") && note.contains("--allow-destination"), "{note}");
    }
    let lanes = names.iter().map(|name| format!("shop/{name}/dev/web"));
    let oracle = lanes.fold(Oracle::new(&world, &receiver), |oracle, lane| oracle.lane(&lane, &["Deployed 2 [pending]"]));
    oracle.check().await;
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_denied_address_takes_precedence_over_an_allowed_one() {
    let world = World::new("egress-denied").await;
    let receiver = Receiver::start();
    // No connection is accepted here. A connection that was made would still be in the queue at the end.
    let denied = std::net::TcpListener::bind("127.0.0.9:0").unwrap();
    denied.set_nonblocking(true).unwrap();
    let address = denied.local_addr().unwrap();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("allowed", &receiver, json!({})).await;
    let url = format!("http://[::ffff:127.0.0.9]:{}/", address.port());
    for (name, url) in [("denied", format!("http://{address}/")), ("mapped", url)] {
        world.notification(name, &receiver, json!({"endpoint": {"url": url}})).await;
    }
    let args = ["--deny-destination", "10.0.0.0/8,127.0.0.9/32"].map(str::to_owned).to_vec();
    let _relaybook = Relaybook::with(&world, Options { args, ..Options::of(&world) }).await;
    world.observed("shop").await;
    world.ready("allowed").await;
    for name in ["denied", "mapped"] {
        world.condition(name, "Ready", |c| c.reason == "DestinationForbidden").await;
        world.cursor("shop", name).await;
    }

    world.ship("web", "2").await;
    for name in ["denied", "mapped"] {
        let words = "the address is in 127.0.0.9/32, which is denied";
        world.delivery("Deployed 2", |d| waits(d, name, "DestinationForbidden", words)).await;
    }
    world.fence("shop", &["allowed"]).await;
    let pending = ["Deployed 2 [pending]"];
    let oracle = Oracle::new(&world, &receiver).lane("shop/allowed/dev/web", &["Deployed 2"]);
    oracle.lane("shop/denied/dev/web", &pending).lane("shop/mapped/dev/web", &pending).check().await;
    assert_eq!(denied.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// All environment variables that configure a proxy.
const ELSEWHERE: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

#[tokio::test]
async fn proxy_variables_of_the_environment_are_ignored() {
    let world = World::new("egress-env").await;
    let (receiver, proxy) = (Receiver::start(), Receiver::start());
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let env = ELSEWHERE.map(|name| (name, proxy.url(""))).to_vec();
    let _relaybook = Relaybook::with(&world, Options { env, ..Options::of(&world) }).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;
    assert_eq!(proxy.connections(), 0);
}

#[tokio::test]
async fn all_requests_use_the_proxy_and_its_password_is_not_shown() {
    let world = World::new("egress-proxy").await;
    // A proxy for http gets requests with an absolute URL. This one answers them itself.
    let proxy = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let url = "http://hooks.example/hook/{{target.app.name}}";
    world.notification("hook", &proxy, json!({"endpoint": {"url": url}})).await;
    let literal = json!({"endpoint": {"url": "http://169.254.169.254/latest"}});
    world.notification("literal", &proxy, literal).await;
    // It does not support tunnels, so it answers CONNECT with a status that is not 200.
    proxy.always("hooks.example:443", Reply::status(502));
    world.notification("tunnel", &proxy, json!({"endpoint": {"url": "https://hooks.example/"}})).await;
    let address = proxy.url("").trim_start_matches("http://").to_owned();
    let env = vec![("RELAYBOOK_PROXY", format!("http://someone:pr0xy-s3cr3t@{address}"))];
    let mut relaybook = Relaybook::with(&world, Options { env, loopback: false, ..Options::of(&world) }).await;
    world.observed("shop").await;
    for name in ["hook", "tunnel"] {
        world.ready(name).await;
    }
    world.condition("literal", "Ready", |c| c.reason == "DestinationForbidden").await;
    world.cursor("shop", "literal").await;

    world.ship("web", "2").await;
    let words = format!("the proxy {address} refuses to connect");
    world.delivery("Deployed 2", |d| waits(d, "tunnel", "ConnectionFailed", &words)).await;
    world.delivery("Deployed 2", |d| waits(d, "literal", "DestinationForbidden", "link-local")).await;
    world.fence("shop", &["hook"]).await;
    let sent = proxy.to("http://hooks.example/hook/web");
    assert_eq!(sent.len(), 1, "{:?}", proxy.log());
    assert_eq!(sent[0].header("proxy-authorization"), "Basic c29tZW9uZTpwcjB4eS1zM2NyM3Q=");
    assert_eq!(sent[0].header("host"), "hooks.example");
    relaybook.stop().await;
    let seen = format!("{}{:?}{:?}", relaybook.log(), world.deliveries().await, world.events().await);
    assert!(!seen.contains("pr0xy") && !seen.contains("c29tZW9u"), "{seen}");
}
