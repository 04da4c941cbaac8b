//! Requests that change nothing: each is answered as the documentation says, and those without a right signature all alike.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use kube::api::ListParams;
use relaybook_api::promotion::Phase;
use relaybook_api::{Pipeline, Promotion, Time};
use serde_json::{Value, json};

use super::{Answer, CLIENT, KEY, LOOK, Stage, approval, exchange, post, request, sign};
use crate::support::proxy::Call;
use crate::support::relaybook::Options;
use crate::support::wait::heavy;
use crate::support::world::apps::Kind;
use crate::support::{Fault, Oracle, Proxy, Relaybook};

#[tokio::test]
async fn all_requests_without_a_right_signature_have_the_same_answer() {
    let stage = Stage::new("hooks-unsigned").await;
    stage.inbound("others", json!({"hmac-key": "the-key-of-another-pipeline-0123"})).await;
    stage.world.secret("opaque", json!({"hmac-key": KEY})).await;
    for (name, secret) in [("other", "others"), ("typeless", "opaque"), ("missing", "nowhere")] {
        stage.suspended(name, secret).await;
    }
    let mut keyless = stage.pipeline("keyless", Kind::Deployment, "approvals");
    keyless["spec"]["hooks"] = json!(null);
    keyless["spec"]["environments"][1]["promotion"] = json!(null);
    stage.world.create::<Pipeline>(keyless).await;
    let (_relaybook, hooks) = stage.relaybook().await;
    let waiting = stage.ship("2").await;
    let body = stage.body(&waiting).to_string();
    let (body, path, right) = (body.as_bytes(), stage.path("approval"), approval(KEY, body.as_bytes()));
    let hex = right.strip_prefix("sha256=").unwrap();

    let wrong = [
        ("none", Vec::new()),
        ("over nothing", vec![approval(KEY, b"")]),
        ("over another body", vec![approval(KEY, b"{}")]),
        ("without the first line", vec![format!("sha256={}", sign(KEY, body))]),
        ("by the key of another pipeline", vec![approval("the-key-of-another-pipeline-0123", body)]),
        ("by the key of looks", vec![approval(LOOK, body)]),
        ("by an empty key", vec![approval("", body)]),
        ("another algorithm", vec![format!("sha512={hex}")]),
        ("no algorithm", vec![hex.to_owned()]),
        ("upper case", vec![format!("sha256={}", hex.to_uppercase())]),
        ("cut", vec![right[..70].to_owned()]),
        ("two", vec![right.clone(), right.clone()]),
        ("two different ones", vec![right.clone(), approval(LOOK, body)]),
    ];
    let mut answers: Vec<(String, Answer)> = Vec::new();
    for (what, signatures) in &wrong {
        let headers: Vec<_> = signatures.iter().map(|signature| ("X-Signature", signature.as_str())).collect();
        answers.push(((*what).to_owned(), post(hooks, &path, &headers, body).await));
    }
    // These headers are for looks only.
    for (name, value) in [("X-Hub-Signature-256", right.as_str()), ("X-Gitea-Signature", hex), ("X-Gitlab-Token", KEY)] {
        answers.push((name.to_owned(), post(hooks, &path, &[(name, value)], body).await));
    }
    for name in ["other", "typeless", "missing", "keyless", "gone"] {
        let path = format!("/approval/{}/{name}", stage.world.ns);
        answers.push((name.to_owned(), post(hooks, &path, &[("X-Signature", &right)], body).await));
        let path = format!("/hooks/{}/{name}", stage.world.ns);
        // The first three have the Secret of looks.
        let token = if ["keyless", "gone"].contains(&name) { LOOK } else { KEY };
        answers.push((format!("look at {name}"), post(hooks, &path, &[("X-Gitlab-Token", token)], body).await));
    }
    let elsewhere = post(hooks, "/approval/kube-system/shop", &[("X-Signature", &right)], body).await;
    answers.push(("another namespace".to_owned(), elsewhere));
    for (what, answer) in &answers {
        assert_eq!(answer.status, 401, "{what}");
        assert_eq!(*answer, answers[0].1, "{what}");
    }
    assert!(!stage.promotion(&waiting.promotion).await.spec.approved);
    // The same body with its right signature is accepted.
    assert_eq!(post(hooks, &path, &[("X-Signature", &right)], body).await.status, 204);
    stage.phase(&waiting.promotion, Phase::Requested).await;
    stage.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}

#[tokio::test]
async fn an_unsigned_request_causes_no_call_to_the_api_server() {
    let stage = Stage::new("hooks-calls").await;
    let proxy = Proxy::start(&stage.world.kubeconfig, "hooks-calls").await;
    let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..stage.options() };
    let relaybook = Relaybook::with(&stage.world, options).await;
    stage.world.settled().await;
    let (hooks, waiting) = (relaybook.hooks().await, stage.ship("2").await);
    // The promotion is not read for anything else while it waits.
    let about = format!("/promotions/{}", waiting.promotion);
    let is_about = move |call: &Call| call.path.contains("/secrets") || call.path.ends_with(&about);
    let calls = proxy.rule(is_about, Fault::Late(Duration::ZERO));
    let body = stage.body(&waiting).to_string();
    for n in 0..50 {
        let signature = approval(&format!("a wrong key with the number {n}"), body.as_bytes());
        let path = if n % 2 == 0 { stage.path("approval") } else { format!("/approval/{}/gone-{n}", stage.world.ns) };
        let answer = post(hooks, &path, &[("X-Signature", &signature)], body.as_bytes()).await;
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    assert_eq!(proxy.hits(calls), 0);
    let answer = stage.approve(hooks, &waiting, KEY).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert!(proxy.hits(calls) > 0, "an approval reads and writes the promotion");
    stage.phase(&waiting.promotion, Phase::Requested).await;
    stage.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}

#[tokio::test]
async fn an_approval_says_what_it_approves_and_when() {
    let stage = Stage::new("hooks-body").await;
    // Another pipeline with the same key.
    stage.suspended("twin", "approvals").await;
    let (_relaybook, hooks) = stage.relaybook().await;
    let waiting = stage.ship("2").await;
    let body = stage.body(&waiting);
    let old = (Time::now() - jiff::SignedDuration::from_secs(360)).to_string();
    let with = |name: &str, value: Value| {
        let mut body = body.clone();
        body[name] = value;
        body
    };
    // After this answer, the hooks know what waits.
    stage.refused(hooks, &with("revision", json!("1")), &waiting).await;
    for (what, body, status, words) in [
        ("old", with("at", json!(old)), 422, "5 minutes"),
        ("another namespace", with("namespace", json!("kube-system")), 422, "namespace"),
        ("a name that is a path", with("promotion", json!("../../secrets/approvals")), 422, "promotion"),
        ("another uid", with("promotionUid", json!("u")), 409, waiting.promotion_uid.as_str()),
        // This environment has no key.
        ("another environment", with("environment", json!("dev")), 401, "unauthorized"),
    ] {
        let answer = stage.approve_with(hooks, &body, KEY).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(answer.body.contains(words), "{what}: {}", answer.body);
    }
    // The same body to the path of another pipeline.
    let text = body.to_string();
    let path = format!("/approval/{}/twin", stage.world.ns);
    let answer = post(hooks, &path, &[("X-Signature", &approval(KEY, text.as_bytes()))], text.as_bytes()).await;
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(!stage.promotion(&waiting.promotion).await.spec.approved);

    // A revision that no longer waits.
    let newer = stage.ship("3").await;
    stage.refused(hooks, &body, &newer).await;
    for promotion in stage.world.api::<Promotion>().list(&ListParams::default()).await.unwrap() {
        assert!(!promotion.spec.approved, "{:?}", promotion.metadata.name);
    }
    stage.told(&["PromotionPending 2", "PromotionPending 3"]).await;
}

#[tokio::test]
async fn no_path_gets_past_the_router() {
    let stage = Stage::new("hooks-paths").await;
    let world = &stage.world;
    for app in ["web", "live", "fence"] {
        world.kustomize(app, "main@sha1:0").await;
    }
    world.create::<Pipeline>(stage.pipeline("shop-flux", Kind::Kustomization, "approvals")).await;
    let (_relaybook, hooks) = stage.relaybook().await;
    // A revision with a slash, an at sign and a percent sign.
    let revision = "release/1.0%2e%2e@sha1:5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
    world.applied("web", revision).await;
    let waiting = stage.waits("shop-flux", revision).await;
    let mut body = stage.body(&waiting);
    body["pipeline"] = json!("shop-flux");
    let text = body.to_string();
    let signature = approval(KEY, text.as_bytes());
    let ns = &world.ns;
    for path in [
        "/".to_owned(),
        "/approval".to_owned(),
        "/metrics".to_owned(),
        format!("/approval/{ns}"),
        format!("/approval/{ns}/shop-flux/"),
        format!("/approval/{ns}/shop-flux/prod/{revision}"),
        format!("/approval/{ns}/shop%2Dflux"),
        format!("/approval/{ns}%2Fshop-flux"),
        format!("/approval/other/%2e%2e/{ns}/shop-flux"),
        format!("/approval/other/../{ns}/shop-flux"),
        format!("//approval/{ns}/shop-flux"),
        format!("/approval//{ns}/shop-flux"),
        format!("/approval/{ns}/shop-flux%00"),
        format!("/APPROVAL/{ns}/shop-flux"),
        format!("/approval/{ns}/Shop-flux"),
        format!("/approve/{ns}/shop-flux"),
    ] {
        let answer = post(hooks, &path, &[("X-Signature", &signature)], text.as_bytes()).await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    let path = format!("/approval/{ns}/shop-flux");
    let raw = request(&format!("{path}\0"), &[("X-Signature", &signature)], text.as_bytes());
    let answer = exchange(hooks, CLIENT, &raw).await;
    assert!(answer.as_ref().is_none_or(|answer| answer.status == 400), "{answer:?}");
    for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let raw = request(&path, &[("X-Signature", &signature)], text.as_bytes());
        let raw = [method.as_bytes(), &raw["POST".len()..]].concat();
        let answer = exchange(hooks, CLIENT, &raw).await.unwrap();
        assert_eq!(answer.status, 405, "{method}: {answer:?}");
        assert!(answer.head.contains("allow: POST"), "{}", answer.head);
    }
    assert!(!stage.promotion(&waiting.promotion).await.spec.approved);
    let answer = post(hooks, &path, &[("X-Signature", &signature)], text.as_bytes()).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    stage.phase(&waiting.promotion, Phase::Requested).await;
    world.fence("shop-flux", &["hook"]).await;
    let steps = ["PromotionPending", "PromotionRequested"].map(|type_| format!("{type_} {revision}"));
    let oracle = Oracle::new(world, &stage.receiver);
    oracle.lane("shop-flux/hook/prod/promotion", &steps.each_ref().map(String::as_str)).check().await;
}

/// A thousand requests, alternately for a known and an unknown pipeline. Each address of this machine has its own limit.
#[tokio::test]
async fn the_time_of_an_answer_does_not_show_which_pipelines_exist() {
    const ADDRESSES: u8 = 12;
    const TRIES: usize = 84;
    let _alone = heavy().await;
    let stage = Stage::new("hooks-time").await;
    let (_relaybook, hooks) = stage.relaybook().await;
    let body = vec![b'x'; 16 * 1024];
    let signature = approval("another-key-of-32-bytes-01234567", &body);
    let paths = [stage.path("approval"), format!("/approval/{}/gone", stage.world.ns)];
    let requests = paths.map(|path| request(&path, &[("X-Signature", &signature)], &body));
    let mut times = [Vec::new(), Vec::new()];
    for address in 0..ADDRESSES {
        for at in 0..TRIES {
            let begun = Instant::now();
            let answer = exchange(hooks, Ipv4Addr::new(127, 0, 1, address + 1), &requests[at % 2]).await.unwrap();
            times[at % 2].push(begun.elapsed());
            assert_eq!(answer.status, 401, "{answer:?}");
        }
    }
    let [known, unknown] = times.map(|mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    assert!(known.max(unknown) < known.min(unknown) * 5 / 4, "{known:?} {unknown:?}");
}
