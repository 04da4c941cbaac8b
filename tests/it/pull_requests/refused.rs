//! What a person has to fix: credentials, protected branches, and repositories that are not there. The status says what is wrong, in the words
//! of the server, and never contains a part of a token.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use relaybook_api::Pipeline;
use relaybook_api::promotion::Phase;
use serde_json::{Value, json};

use super::{Stage, release};
use crate::support::receiver::Receiver;
use crate::support::relaybook::Options;
use crate::support::tls::{Authority, params};
use crate::support::world::promotions::{is, is_for};
use crate::support::{Relaybook, World};

/// Less than the wait between two attempts.
const SOON: Duration = Duration::from_mins(3);
/// How much of a token counts as a part of it.
const PART: usize = 12;

impl Stage {
    /// Returns a policy of a pipeline with a Secret of its own, whose attempts are ten minutes apart.
    fn with_secret(&self, name: &str) -> Value {
        let of = json!({"secretRef": {"name": format!("token-{name}")}, "paths": [format!("apps/{name}")]});
        self.direct(json!({"retry": {"initial": "10m", "max": "10m"}, "strategy": {"pullRequest": of}}))
    }

    /// Checks that nothing that users can read contains a part of these tokens.
    async fn hides(&self, relaybook: &Relaybook, tokens: &[&str]) {
        let list = ListParams::default();
        let texts = [
            ("promotions", serde_json::to_string(&self.world.promotions().await).unwrap()),
            ("pipelines", serde_json::to_string(&self.world.api::<Pipeline>().list(&list).await.unwrap().items).unwrap()),
            ("Events", serde_json::to_string(&self.world.api::<Event>().list(&list).await.unwrap().items).unwrap()),
            ("deliveries", serde_json::to_string(&self.world.deliveries().await).unwrap()),
            ("log", relaybook.log()),
        ];
        for token in tokens {
            let login = json!(ByteString(format!("relaybook:{token}").into_bytes()));
            let login = login.as_str().unwrap();
            for (place, text) in &texts {
                assert!(!text.contains(&token[..PART]), "{place} shows a token");
                assert!(!text.contains(&login[login.len() - PART..]), "{place} shows a login");
            }
        }
    }
}

#[tokio::test]
async fn wrong_credentials_are_named_and_a_corrected_secret_is_used_at_once() {
    let stage = Stage::new("pulls-credentials").await;
    let world = &stage.world;
    let good = stage.bot.token(&["write:repository", "write:issue"]).await;
    let reads = stage.bot.token(&["read:repository"]).await;
    let stranger = stage.gitea.person("pulls-credentials-stranger").await.token(&["write:repository"]).await;
    let unknown = "c0ffee0123456789abcdef0123456789abcdef01";
    let inbound = |token: &str| json!({"metadata": {"name": "token-reserved"}, "type": "relaybook.dev/inbound", "stringData": {"token": token}});
    let cases = [
        ("reads", "CredentialsRejected", "rejects the credentials"),
        ("stranger", "CredentialsRejected", "User permission denied for writing"),
        ("unknown", "CredentialsRejected", "rejects the credentials"),
        ("keyless", "SecretMissing", "has no key token"),
        ("absent", "SecretMissing", "does not exist"),
        ("reserved", "SecretReserved", "relaybook.dev/inbound"),
    ];
    for (name, token) in [("reads", &*reads), ("stranger", &*stranger), ("unknown", unknown)] {
        world.secret(&format!("token-{name}"), json!({"token": token})).await;
    }
    world.secret("token-keyless", json!({"password": good})).await;
    world.create::<Secret>(inbound(&good)).await;
    for (name, ..) in cases {
        stage.another(name, stage.with_secret(name)).await;
    }
    let relaybook = stage.relaybook().await;
    for (name, reason, words) in cases {
        world.runs(&format!("{name}/dev"), "2").await;
        let message = stage.reason(&format!("{name}/prod 2"), reason).await;
        assert!(message.contains(words), "{name}: {message}");
        if reason.starts_with("Secret") {
            assert!(message.contains(&format!("token-{name}")), "{name}: {message}");
        }
    }
    stage.made(0, 0, 0).await;

    // All are corrected, and continue long before the next attempt would be due.
    for (name, ..) in cases {
        let secret = format!("token-{name}");
        match name {
            "absent" => drop(world.secret(&secret, json!({"token": good})).await),
            "reserved" => {
                world.delete::<Secret>(&secret).await;
                world.secret(&secret, json!({"token": good})).await;
            }
            _ => drop(world.patch::<Secret>(&secret, json!({"stringData": {"token": good}})).await),
        }
        world.promotion_within(SOON, &format!("{name}/prod 2"), is(Phase::Open)).await;
    }
    stage.hides(&relaybook, &[&good, &reads, &stranger, unknown]).await;
    stage.made(6, 6, 6).await;
    let mut oracle = stage.oracle();
    for (name, ..) in cases {
        oracle = oracle.promotions(name, &["hook"], &["prod 2: Requested/Opening, Open"]);
    }
    for (name, ..) in cases {
        stage.fence(name).await;
    }
    oracle.check().await;
}

#[tokio::test]
async fn a_permanent_error_fails_the_promotion_with_the_message_of_the_server() {
    let stage = Stage::new("pulls-refused").await;
    let world = &stage.world;
    let file = |name: &str| release(&world.ns, name);
    let guarded = stage.bot.repository("guarded", &[("apps/release.yaml", &file("guarded"))]).await;
    guarded.protect("main", json!({})).await;
    let gone = stage.bot.repository("gone", &[("apps/release.yaml", &file("gone"))]).await;
    let policy = |mut policy: Value, over: Value| {
        json_patch::merge(&mut policy, &json!({"retry": {"initial": "1s", "max": "1s"}}));
        json_patch::merge(&mut policy, &over);
        policy
    };
    stage.pipeline("guarded", policy(stage.by_commit(json!({"url": guarded.url()})), json!({}))).await;
    stage.pipeline("gone", policy(stage.by_pull_request(json!({"url": gone.url()})), json!({}))).await;
    stage.pipeline("gone-too", policy(stage.by_commit(json!({"url": gone.url()})), json!({}))).await;
    stage.pipeline("baseless", policy(stage.by_pull_request(json!({"baseBranch": "nowhere"})), json!({}))).await;
    stage.pipeline("branchless", policy(stage.by_commit(json!({"branch": "nowhere"})), json!({}))).await;
    let metadata = json!({"url": "https://169.254.169.254/latest/meta-data.git"});
    stage.pipeline("forbidden", policy(stage.by_commit(metadata), json!({"retry": {"initial": "10m"}}))).await;
    let relaybook = stage.relaybook().await;
    gone.delete().await;
    let failing = [
        ("guarded", 1, "PushRefused", "Not allowed to push to protected branch main"),
        ("gone", 3, "RepositoryNotFound", "does not find the repository"),
        ("gone-too", 3, "RepositoryNotFound", "the repository is not found"),
        ("baseless", 3, "BranchNotFound", "nowhere"),
        ("branchless", 3, "BranchNotFound", "nowhere"),
    ];
    for (name, ..) in failing.iter().chain(&[("forbidden", 1, "", "")]) {
        world.runs(&format!("{name}/dev"), "2").await;
    }
    for (name, attempts, reason, words) in failing {
        let what = format!("{name}/prod 2");
        let failed = world.promotion(&what, is_for(Phase::Failed, reason)).await.status.unwrap_or_default();
        assert!(failed.message.contains(words), "{name}: {}", failed.message);
        assert_eq!((failed.attempts, failed.succeeded), (attempts, false), "{name}");
    }
    let message = stage.reason("forbidden/prod 2", "DestinationForbidden").await;
    assert!(message.contains("--allow-destination"), "{message}");
    let failed = world.promotion("guarded/prod 2", |_| true).await;
    stage.hides(&relaybook, &[&stage.bot.token]).await;
    stage.made(0, 0, 0).await;
    assert_eq!(guarded.commits("main").await.len(), 1);

    // A person removes the protection, and asks for another attempt.
    guarded.unprotect("main").await;
    world.annotate_promotion(&failed, "relaybook.dev/retry", "1").await;
    stage.phase("guarded/prod 2", Phase::Merged).await;
    assert_eq!(guarded.commits("main").await.len(), 2);
    stage.roll_out("guarded/prod 2").await;
    let mut oracle = stage.oracle();
    let lines = ["prod 2: Requested/Pushing, Failed/PushRefused, Requested/Pushing, Merged/Pushed, Finished"];
    oracle = oracle.promotions("guarded", &["hook"], &lines);
    for (name, steps) in [
        ("gone", "Requested/Opening, Failed/RepositoryNotFound"),
        ("gone-too", "Requested/Pushing, Failed/RepositoryNotFound"),
        ("baseless", "Requested/Opening, Failed/BranchNotFound"),
        ("branchless", "Requested/Pushing, Failed/BranchNotFound"),
        ("forbidden", "Requested/Pushing"),
    ] {
        oracle = oracle.promotions(name, &["hook"], &[&format!("prod 2: {steps}")]);
    }
    for name in ["guarded", "gone", "gone-too", "baseless", "branchless", "forbidden"] {
        stage.fence(name).await;
    }
    oracle.check().await;
}

#[tokio::test]
async fn a_token_is_not_sent_over_http_without_permission() {
    let (world, authority) = (World::new("pulls-http").await, Authority::new());
    world.secret("receiver-ca", json!({"ca.crt": authority.pem()})).await;
    let receiver = Receiver::over_tls(authority.issue(&params("127.0.0.1")).server(None));
    let trusts = json!({"endpoint": {"tls": {"caFrom": {"secretKeyRef": {"name": "receiver-ca", "key": "ca.crt"}}}}});
    let stage = Stage::reporting_to(world, receiver, trusts).await;
    let (world, proxy) = (&stage.world, stage.proxy());
    let paths = |name: &str| json!({"strategy": {"pullRequest": {"paths": [format!("apps/{name}")]}}});
    stage.another("plain", stage.behind(&proxy, paths("plain"))).await;
    stage.another("secure", stage.direct(paths("secure"))).await;
    let _relaybook = Relaybook::with(world, Options { http: false, ..Options::of(world) }).await;
    world.settled().await;
    for name in ["plain", "secure"] {
        world.runs(&format!("{name}/dev"), "2").await;
    }
    let message = stage.reason("plain/prod 2", "InsecureScheme").await;
    assert!(message.contains("--allow-http"), "{message}");
    stage.finish("secure/prod 2").await;
    assert_eq!(proxy.log().len(), 0, "nothing was sent");
    stage.made(1, 1, 1).await;
    for name in ["plain", "secure"] {
        stage.fence(name).await;
    }
    let secure = ["prod 2: Requested/Opening, Open, Merged/Merged, Finished"];
    let oracle = stage.oracle().promotions("plain", &["hook"], &["prod 2: Requested/Opening"]);
    oracle.promotions("secure", &["hook"], &secure).check().await;
}
