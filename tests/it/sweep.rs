//! Puts secrets in every place that can contain one, runs Relaybook at the most verbose log level, and searches all readable output.
//!
//! The receivers repeat the request in the status line, in headers and in the body of the response, unchanged and encoded.

use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use relaybook_api::{Delivery, Notification, Pipeline};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::support::relaybook::{Options, command};
use crate::support::tls::{Authority, Pair, params};
use crate::support::{Oracle, Receiver, Relaybook, World, eventually, world};

/// The values in Secrets, which must not appear anywhere else. A host is secret if its whole URL is secret.
const VALUES: [&str; 16] = [
    "tok-8c1f4e/+x",
    "path-77ab31",
    "query-5d20c9",
    "user-b4377a",
    "pass-e19a42 \"q\"",
    "127.83.19.7",
    "127.83.19.8",
    "no-such-8d1e22",
    "bad-host-4c7d90",
    "ctl-5e8a31",
    "169.254.83.19",
    "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "hdr-6a2c77",
    "inline-3b9f20",
    "pr0xy-pass-71d5",
    "pr0xy-user-71d5",
];

/// Starts a server that repeats requests, on this IP address. If no other test server uses the address, the test can search for it.
async fn echo(ip: &str, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind((ip, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut request = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = stream.read(&mut request).await {
                    let text = String::from_utf8_lossy(&request[..length]).into_owned();
                    if stream.write_all(repeat(&text).as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Returns a response that repeats a request.
fn repeat(request: &str) -> String {
    let line = request.lines().next().unwrap_or_default();
    let authorization = request.lines().find(|l| l.starts_with("authorization: ") || l.starts_with("x-key: "));
    let authorization = authorization.unwrap_or_default();
    // Short enough for the 256 bytes of a response that Relaybook keeps.
    let place = line.split(' ').nth(1).unwrap_or_default();
    let token = authorization.rsplit(' ').next().unwrap_or_default();
    let sent = VALUES.into_iter().filter(|v| request.contains(v));
    let spelt = sent.flat_map(|v| [plain(v).join(" "), base64(v.to_owned())]).collect::<Vec<_>>().join(" ");
    let host = request.lines().find_map(|l| l.strip_prefix("host: ")).unwrap_or_default();
    let body = format!("{place} {host} {token} {} {spelt}", place.to_uppercase());
    format!(
        "HTTP/1.1 500 {line} {authorization}\r\nlocation: {place}\r\nx-echo: {authorization}\r\nretry-after: {token}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Starts a receiver with a certificate for another host name, on an IP address that the test can search for.
async fn mistaken(authority: &Authority, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.83.19.8:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(authority.issue(&params("elsewhere.example")).server(None)));
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            _ = acceptor.accept(stream).await;
        }
    });
    address
}

/// Returns the encodings in which a value can appear. The search ignores upper and lower case.
fn spellings(value: &str) -> Vec<String> {
    // In base64, a value inside a longer text has three encodings, one for each offset. The characters at its edges vary, so they are cut.
    let within = (0..3).map(|offset| {
        let text = base64(format!("{}{value}", "x".repeat(offset)));
        text[[0, 2, 3][offset]..text.len() - 2].to_owned()
    });
    plain(value).into_iter().chain(within).collect()
}

fn plain(value: &str) -> [String; 4] {
    let quoted = Value::from(value).to_string();
    [
        value.to_owned(),
        quoted.trim_matches('"').to_owned(),
        utf8_percent_encode(value, NON_ALPHANUMERIC).to_string(),
        hex::encode(value),
    ]
}

fn base64(text: String) -> String {
    let encoded = serde_json::to_value(ByteString(text.into_bytes())).unwrap();
    encoded.as_str().unwrap().trim_end_matches('=').to_owned()
}

async fn notify(world: &World, receiver: &Receiver, name: &str, endpoint: Value) {
    world.notification(name, receiver, json!({"endpoint": endpoint})).await;
}

/// Returns an endpoint whose URL is in a Secret with the name of the notification.
async fn hidden(world: &World, name: &str, url: &str) -> Value {
    world.secret(name, json!({"url": url})).await;
    json!({"url": null, "urlFrom": {"secretKeyRef": {"name": name, "key": "url"}}})
}

/// Creates notifications, one for each way in which a secret could leak. Returns their names, each with the expected reason of its
/// delivery.
async fn notifications(
    world: &World,
    ours: &Receiver,
    authority: &Authority,
    tasks: &mut JoinSet<()>,
) -> Vec<(&'static str, &'static str)> {
    let open = format!("http://{}/open", echo("127.0.0.1", tasks).await);
    let (echo, mistaken) = (echo(VALUES[5], tasks).await, mistaken(authority, tasks).await);
    let client = Pair::self_signed(&params("relaybook"));
    let pair = json!({"tls.crt": client.certificate.pem(), "tls.key": client.key.serialize_pem()});
    world.secret("client", pair).await;
    world.secret("login", json!({"username": VALUES[3], "password": VALUES[4]})).await;
    world.secret("control", json!({"username": VALUES[3], "password": format!("{}\u{1}", VALUES[9])})).await;
    world.secret("token", json!({"token": VALUES[0], "spoilt": format!("{}\u{1}", VALUES[9])})).await;
    world.secret("hmac", json!({"key": format!("whsec_{}", VALUES[11])})).await;
    world.secret("no-hmac", json!({"key": VALUES[9]})).await;
    world.secret("headers", json!({"X-Key": VALUES[0], "X-Team": VALUES[12]})).await;
    world.secret("no-headers", json!({"X-Key": format!("{}\u{1}", VALUES[9])})).await;
    let token = |key: &str| json!({"token": {"secretKeyRef": {"name": "token", "key": key}}});
    let basic = |name: &str| json!({"basic": {"secretRef": {"name": name}}});
    let signing = |name: &str| json!({"secretRef": {"name": name}});
    let secret_url = format!("http://{echo}/{}?key={}", VALUES[1], VALUES[2]);

    let mut endpoint = hidden(world, "url", &secret_url).await;
    json_patch::merge(&mut endpoint, &json!({"auth": basic("login"), "signing": signing("hmac")}));
    notify(world, ours, "url", endpoint).await;
    notify(world, ours, "token", json!({"url": open, "auth": token("token")})).await;
    let header = json!({"Authorization": format!("Bearer {}", VALUES[12]), "X-Key": format!("{{{{type}}}} {}", VALUES[13])});
    notify(world, ours, "header", json!({"url": "http://127.0.0.1:1/", "headers": header})).await;
    for (name, url) in [
        ("mistaken", format!("https://{mistaken}/{}", VALUES[1])),
        ("plain", format!("https://{echo}/{}", VALUES[1])),
        ("nowhere", format!("https://{}.invalid/{}", VALUES[7], VALUES[1])),
        ("spaces", format!("https://{} x/{}", VALUES[8], VALUES[1])),
        ("ftp", format!("ftp://{}/{}", VALUES[8], VALUES[1])),
        ("login-in-url", format!("https://{}:{}@{}/", VALUES[3], VALUES[9], VALUES[8])),
        ("forbidden", format!("http://{}/{}", VALUES[10], VALUES[1])),
    ] {
        let mut endpoint = hidden(world, name, &url).await;
        json_patch::merge(&mut endpoint, &json!({"tls": {"clientCertificate": {"secretRef": {"name": "client"}}}}));
        notify(world, ours, name, endpoint).await;
    }
    notify(world, ours, "control", json!({"url": open, "auth": basic("control")})).await;
    notify(world, ours, "spoilt", json!({"url": open, "auth": token("spoilt")})).await;
    notify(world, ours, "no-hmac", json!({"url": open, "signing": signing("no-hmac")})).await;
    for name in ["headers", "no-headers"] {
        notify(world, ours, name, json!({"url": open, "headersFrom": {"secretRef": {"name": name}}})).await;
    }
    // This namespace is also the controller's, so it contains the global configuration.
    let mut everywhere = world::notification("everywhere", &open, json!({}))["spec"].take();
    let own = json!({"name": "everywhere", "endpoint": {
        "headers": {"Authorization": format!("Bearer {}", VALUES[12])}, "signing": signing("hmac"),
    }});
    json_patch::merge(&mut everywhere, &own);
    let config = json!({"notifications": [everywhere]}).to_string();
    let map = json!({"metadata": {"name": "relaybook-config"}, "data": {"config.yaml": config}});
    world.create::<k8s_openapi::api::core::v1::ConfigMap>(map).await;
    world.notification("everywhere", ours, json!({"endpoint": {"url": null}, "template": null})).await;
    vec![
        ("everywhere", "ReceiverError"),
        ("url", "ReceiverError"),
        ("token", "ReceiverError"),
        ("header", "ConnectionFailed"),
        ("mistaken", "TlsFailed"),
        ("plain", "TlsFailed"),
        ("nowhere", "DnsFailed"),
        ("spaces", "SecretInvalid"),
        ("ftp", "SecretInvalid"),
        ("login-in-url", "SecretInvalid"),
        ("forbidden", "DestinationForbidden"),
        ("control", "SecretInvalid"),
        ("spoilt", "SecretInvalid"),
        ("no-hmac", "SecretInvalid"),
        ("headers", "ReceiverError"),
        ("no-headers", "SecretInvalid"),
    ]
}

/// Waits until the delivery of each notification has the expected reason in its status.
async fn all_have(world: &World, what: &str, notifications: &[(&str, &str)]) {
    for (name, reason) in notifications {
        let is = |d: &Delivery| {
            let said = d.status.as_ref().and_then(|s| s.reason.as_deref());
            d.spec.notification == *name && said == Some(*reason)
        };
        world.delivery(what, is).await;
    }
}

/// Returns everything that users and programs can read, except Secrets and the specs that users write.
async fn seen(world: &World, names: &[(&str, &str)]) -> Vec<(String, String)> {
    let all = ListParams::default();
    let mut seen = Vec::new();
    let statuses = |list: Vec<Value>| list.iter().map(|o| o["status"].to_string()).collect::<String>();
    let pipelines = world.api::<Pipeline>().list(&all).await.unwrap().items;
    let pipelines = pipelines.iter().map(|o| serde_json::to_value(o).unwrap()).collect();
    seen.push(("statuses of pipelines".to_owned(), statuses(pipelines)));
    let notifications = world.api::<Notification>().list(&all).await.unwrap().items;
    let notifications = notifications.iter().map(|o| serde_json::to_value(o).unwrap()).collect();
    seen.push(("statuses of notifications".to_owned(), statuses(notifications)));
    seen.push(("deliveries".to_owned(), serde_json::to_string(&world.deliveries().await).unwrap()));
    let events = world.api::<Event>().list(&all).await.unwrap().items;
    seen.push(("events".to_owned(), serde_json::to_string(&events).unwrap()));
    let ns = world.ns.as_str();
    let mut told = vec![vec!["audit", "-n", ns, "-o", "json"]];
    let layered = ["--controller-namespace", ns, "--allow-http"];
    told.extend(
        names
            .iter()
            .map(|(name, _)| [&["render", name, "-n", ns, "-o", "json", "--pipeline", "shop"], &layered[..]].concat()),
    );
    for output in ["json", "yaml"] {
        told.push([&["explain", "shop", "-n", ns, "-o", output], &layered[..]].concat());
    }
    for args in told {
        let output = command(world, &args).await;
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        // The value of the header `X-Key` is in the spec, and its name is not that of a credential. So `render` may show it.
        seen.push((args.join(" "), text.replace(VALUES[13], "")));
    }
    seen
}

fn search(seen: &[(String, String)], also: &[String]) {
    let values: Vec<_> = VALUES.into_iter().flat_map(spellings).chain(also.iter().cloned()).collect();
    for (place, text) in seen {
        assert!(text.len() > 100, "{place}: {text}");
        let text = text.to_ascii_lowercase();
        for value in &values {
            let at = text.find(&value.to_ascii_lowercase());
            let shown =
                at.map(|at| String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(300)..(at + 150).min(text.len())]));
            assert_eq!(shown, None, "{value} in {place}");
        }
    }
}

#[tokio::test]
async fn no_secret_appears_anywhere_at_any_log_level() {
    let world = World::new("sweep").await;
    let ours = Receiver::start();
    let mut tasks = JoinSet::new();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    // The system trusts this CA. So the certificate is only wrong in its host name, which the TLS error could contain.
    let authority = Authority::new();
    let bundle = crate::support::tmp().join("sweep.pem");
    std::fs::write(&bundle, authority.pem()).unwrap();
    let notifications = notifications(&world, &ours, &authority, &mut tasks).await;
    let pem = world.api::<k8s_openapi::api::core::v1::Secret>().get("client").await.unwrap().data.unwrap();
    let pem = String::from_utf8(pem["tls.key"].0.clone()).unwrap();
    let key_lines: Vec<_> = pem.lines().filter(|line| !line.starts_with("---")).map(str::to_owned).collect();

    let loud =
        ("RELAYBOOK_LOG", "trace,hyper=trace,reqwest=trace,rustls=trace,kube_client::client=trace,h2=trace".to_owned());
    let trusted = ("SSL_CERT_FILE", bundle.display().to_string());
    let options = Options { env: vec![loud.clone(), trusted.clone()], ..Options::of(&world) };
    let mut relaybook = Relaybook::with(&world, options).await;
    for (name, _) in notifications.iter().filter(|(name, _)| *name != "everywhere") {
        world.cursor("shop", name).await;
    }
    eventually("the cursor of everywhere", async || {
        let dispatched = world.get_pipeline("shop").await.status.and_then(|s| s.dispatched).unwrap_or_default();
        let begun = dispatched.cursors.iter().any(|c| c.notification == "everywhere" && c.uid == "global");
        if begun { Ok(()) } else { Err(format!("{:?}", dispatched.cursors)) }
    })
    .await;
    world.ship("web", "2").await;
    all_have(&world, "Deployed 2", &notifications).await;
    world.warning("control", "DeliveryWaits").await;
    world.warning("no-hmac", "SecretInvalid").await;
    let metrics = relaybook.page("/metrics").await;
    relaybook.stop().await;
    let log = relaybook.log();
    let level = |word: &str| log.lines().any(|line| line.contains(&format!("\"level\":\"{word}\"")));
    assert!(level("DEBUG"), "{log}");
    let mut seen_first = seen(&world, &notifications).await;
    seen_first.extend([("log".to_owned(), log), ("metrics".to_owned(), metrics)]);
    search(&seen_first, &key_lines);
    drop(relaybook);

    // The same through a proxy that does not exist.
    let url = format!("http://{}:{}@127.0.0.1:1", VALUES[15], VALUES[14]);
    let dead = Options { env: vec![loud, trusted, ("RELAYBOOK_PROXY", url)], ..Options::of(&world) };
    let mut relaybook = Relaybook::with(&world, dead).await;
    let refused: Vec<_> = ["url", "token", "nowhere", "mistaken"].map(|name| (name, "ConnectionFailed")).to_vec();
    all_have(&world, "Deployed 2", &refused).await;
    relaybook.stop().await;
    let mut seen_second = seen(&world, &notifications).await;
    seen_second.push(("log with a proxy".to_owned(), relaybook.log()));
    search(&seen_second, &key_lines);

    std::fs::remove_file(bundle).unwrap();

    let mut oracle = Oracle::new(&world, &ours).with_attempts_unseen();
    for (name, _) in &notifications {
        oracle = oracle.lane(&format!("shop/{name}/dev/web"), &["Deployed 2 [pending]"]);
    }
    oracle.check().await;
}
