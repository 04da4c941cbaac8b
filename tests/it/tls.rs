//! Receivers over TLS: a valid certificate is accepted, an invalid one is rejected, and the delivery contains the reason.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use rcgen::date_time_ymd;
use relaybook_api::Delivery;
use serde_json::{Value, json};

use crate::support::relaybook::Options;
use crate::support::tls::{Authority, Pair, params};
use crate::support::{Oracle, Receiver, Relaybook, World};

const HERE: &str = "127.0.0.1";

/// Creates a notification whose receiver must have a certificate of the CA in `ca-map`. `tls` overrides this.
async fn notification(world: &World, name: &str, receiver: &Receiver, tls: Value) {
    let mut endpoint = json!({"tls": {"caFrom": {"configMapKeyRef": {"name": "ca-map", "key": "ca.crt"}}}});
    json_patch::merge(&mut endpoint, &json!({"tls": tls}));
    world.notification(name, receiver, json!({"endpoint": endpoint})).await;
}

async fn with_authority(world: &World, authority: &Authority) {
    let pem = authority.pem();
    world.create::<ConfigMap>(json!({"metadata": {"name": "ca-map"}, "data": {"ca.crt": pem}})).await;
    world.secret("ca-secret", json!({"bundle": pem})).await;
}

fn told(delivery: &Delivery, notification: &str, reason: &str, words: &str) -> bool {
    let status = delivery.status.clone().unwrap_or_default();
    let ours = delivery.spec.notification == notification && status.reason.as_deref() == Some(reason);
    ours && status.error.is_some_and(|e| e.contains(words)) && status.outcome.is_none() && status.attempts > 0
}

#[tokio::test]
async fn an_invalid_certificate_is_rejected_with_the_reason() {
    let world = World::new("tls-wrong").await;
    let authority = Authority::new();
    with_authority(&world, &authority).await;
    let mut past = params(HERE);
    (past.not_before, past.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let expired = Receiver::over_tls(authority.issue(&past).server(None));
    // A valid certificate of a CA that the system does not trust.
    let right = Receiver::over_tls(authority.issue(&params(HERE)).server(None));
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    notification(&world, "expired", &expired, json!({})).await;
    notification(&world, "system", &right, json!({"caFrom": null})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    let cases =
        [("expired", &expired, "the certificate has expired"), ("system", &right, "self-signed or signed by an unknown CA")];
    let mut oracle = Oracle::new(&world, &right).and(&expired).with_attempts_unseen();
    for (name, _, words) in cases {
        world.delivery("Deployed 2", |d| told(d, name, "TlsFailed", words)).await;
        let delivering = world.condition(name, "Delivering", |c| c.reason == "TlsFailed").await;
        assert!(delivering.message.contains(words), "{}", delivering.message);
        oracle = oracle.lane(&format!("shop/{name}/dev/web"), &["Deployed 2 [pending]"]);
    }
    oracle.check().await;
    for (name, receiver, _) in cases {
        assert!(receiver.connections() > 0, "Relaybook connected to {name}");
        assert!(receiver.log().is_empty(), "{name} got no request: {:?}", receiver.log());
    }
}

#[tokio::test]
async fn custom_ca_and_client_certificates_work_and_follow_their_secret() {
    let world = World::new("tls-own").await;
    let (authority, clients) = (Authority::new(), Authority::new());
    with_authority(&world, &authority).await;
    let right = authority.issue(&params(HERE));
    let plain = Receiver::over_tls(right.server(None));
    let demanding = Receiver::over_tls(right.server(Some(&clients)));
    let alone = Receiver::over_tls(Pair::self_signed(&params("elsewhere.example")).server(None));
    // The receiver does not trust the CA of the first client certificate.
    let (stranger, known) = (authority.issue(&params("relaybook")), clients.issue(&params("relaybook")));
    let pair = |pair: &Pair| json!({"tls.crt": pair.certificate.pem(), "tls.key": pair.key.serialize_pem()});
    world.secret("me", pair(&stranger)).await;
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    notification(&world, "map", &plain, json!({})).await;
    let of_secret = json!({"caFrom": {"configMapKeyRef": null, "secretKeyRef": {"name": "ca-secret", "key": "bundle"}}});
    notification(&world, "secret", &plain, of_secret).await;
    notification(&world, "system", &plain, json!({"caFrom": null})).await;
    notification(&world, "any", &alone, json!({"caFrom": null, "insecureSkipVerify": true})).await;
    notification(&world, "mutual", &demanding, json!({"clientCertificate": {"secretRef": {"name": "me"}}})).await;
    notification(&world, "nobody", &demanding, json!({})).await;
    // The CA certificates of the system are replaced by this file.
    let bundle = crate::support::tmp().join("tls-own.pem");
    std::fs::write(&bundle, authority.pem()).unwrap();
    let env = vec![("SSL_CERT_FILE", bundle.display().to_string())];
    let _relaybook = Relaybook::with(&world, Options { env, ..Options::of(&world) }).await;
    world.settled().await;

    world.ship("web", "2").await;
    for name in ["mutual", "nobody"] {
        // In TLS 1.3, a server can reject the client certificate after the client has sent its request. Then the connection fails.
        let refused = |d: &Delivery| ["TlsFailed", "ConnectionFailed"].iter().any(|reason| told(d, name, reason, ""));
        world.delivery("Deployed 2", refused).await;
    }
    assert!(demanding.log().is_empty(), "{:?}", demanding.log());
    world.patch::<Secret>("me", json!({"data": null, "stringData": pair(&known)})).await;
    let delivering = ["map", "secret", "system", "any", "mutual"];
    world.fence("shop", &delivering).await;

    let mut oracle = Oracle::new(&world, &plain).and(&demanding).and(&alone).with_attempts_unseen();
    for name in delivering {
        oracle = oracle.lane(&format!("shop/{name}/dev/web"), &["Deployed 2"]);
    }
    oracle.lane("shop/nobody/dev/web", &["Deployed 2 [pending]"]).check().await;
    std::fs::remove_file(bundle).unwrap();
}
