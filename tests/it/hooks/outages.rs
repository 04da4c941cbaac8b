//! Hooks while the API server is away, while it refuses writes, and at a replica that is not the leader.

use std::net::{Ipv4Addr, TcpListener};

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::ListParams;
use relaybook_api::promotion::Phase;

use super::{KEY, Stage, approval, post};
use crate::support::relaybook::Options;
use crate::support::world::{OF_FIRST, bucket};
use crate::support::{Fault, Proxy, Relaybook, World, eventually};

#[tokio::test]
async fn without_the_api_server_an_approval_is_unavailable_and_can_be_repeated() {
    let stage = Stage::new("hooks-outage").await;
    let proxy = Proxy::start(&stage.world.kubeconfig, "hooks-outage").await;
    let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..stage.options() };
    let relaybook = Relaybook::with(&stage.world, options).await;
    stage.world.settled().await;
    let hooks = relaybook.hooks().await;
    let waiting = stage.ship("2").await;

    proxy.cut();
    let answer = stage.approve(hooks, &waiting, KEY).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.head.contains("retry-after: 5"), "{}", answer.head);
    // Signatures are still verified.
    assert_eq!(stage.approve(hooks, &waiting, "another-key-of-32-bytes-01234567").await.status, 401);
    assert!(!stage.promotion(&waiting.promotion).await.spec.approved);
    proxy.heal();
    eventually("the API server is back", async || {
        let answer = stage.approve(hooks, &waiting, KEY).await;
        if answer.status == 204 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    stage.phase(&waiting.promotion, Phase::Requested).await;
    stage.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}

#[tokio::test]
async fn an_approval_that_the_api_server_refuses_has_an_event() {
    let stage = Stage::new("hooks-forbidden").await;
    let proxy = Proxy::start(&stage.world.kubeconfig, "hooks-forbidden").await;
    let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..stage.options() };
    let relaybook = Relaybook::with(&stage.world, options).await;
    stage.world.settled().await;
    let hooks = relaybook.hooks().await;
    let waiting = stage.ship("2").await;
    let is_approval = |call: &crate::support::proxy::Call| {
        call.method == "PATCH" && call.concerns("promotions") && !call.path.ends_with("/status")
    };
    for code in [403, 422, 500] {
        let rule = proxy.rule(is_approval, Fault::Refuse(code));
        let answer = stage.approve(hooks, &waiting, KEY).await;
        assert_eq!(answer.status, 503, "{code}: {answer:?}");
        assert!(proxy.hits(rule) >= 1, "{code}");
        proxy.remove(rule);
    }
    let note = eventually("the Event", async || {
        let events = stage.world.events().await;
        let found = events.iter().find(|(reason, _)| reason == "ApprovalFailed").map(|(_, note)| note.clone());
        found.ok_or_else(|| format!("{events:?}"))
    })
    .await;
    assert!(note.contains(&waiting.promotion), "{note}");
    assert!(!stage.promotion(&waiting.promotion).await.spec.approved);
    // The answer of the API server is lost, but the write was made. The repeated approval finds it.
    let lost = proxy.rule(is_approval, Fault::Times(1, Box::new(Fault::LoseAnswer)));
    eventually("the approval is answered", async || {
        let answer = stage.approve(hooks, &waiting, KEY).await;
        if answer.status == 204 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    assert!(proxy.hits(lost) >= 1);
    stage.phase(&waiting.promotion, Phase::Requested).await;
    stage.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}

#[tokio::test]
async fn a_replica_that_does_not_have_the_pipeline_answers_too() {
    let stage = Stage::new("hooks-follower").await;
    let first = Relaybook::with(&stage.world, Options { pod: Some("first"), ..stage.options() }).await;
    stage.world.settled().await;
    let second = Relaybook::with(&stage.world, Options { pod: Some("second"), ..stage.options() }).await;
    first.holds("relaybook-promote", OF_FIRST).await;
    let waiting = stage.ship("2").await;
    let uid = stage.world.get_pipeline("shop").await.uid().unwrap();
    let is_of_first = OF_FIRST.contains(&bucket(&uid));
    let (leader, follower) = if is_of_first { (first, second) } else { (second, first) };
    let hooks = follower.hooks().await;
    // The watch of the follower may be a moment behind, but the promotion is read from the API server.
    assert_eq!(stage.approve(hooks, &waiting, KEY).await.status, 204);
    stage.phase(&waiting.promotion, Phase::Requested).await;
    // Both replicas answer the repeated request.
    let body = stage.body(&waiting).to_string();
    for hooks in [hooks, leader.hooks().await] {
        let signature = approval(KEY, body.as_bytes());
        let answer = post(hooks, &stage.path("approval"), &[("X-Signature", &signature)], body.as_bytes()).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    }
    stage.told(&["PromotionPending 2", "PromotionRequested 2"]).await;
}

#[tokio::test]
async fn an_address_that_is_in_use_is_an_error_at_the_start() {
    let world = World::new("hooks-in-use").await;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = vec!["--hooks-addr".to_owned(), address.clone()];
    let mut relaybook = Relaybook::begin(&world, Options { args, ..Options::of(&world) }).await;
    let status = relaybook.ended().await;
    let log = relaybook.log();
    assert!(!status.success() && log.contains(&address), "{status}: {log}");
    // No Lease is held, so that another replica can start at once.
    let leases = world.api::<Lease>().list(&ListParams::default()).await.expect("listed").items;
    let holders = leases.iter().filter_map(|lease| lease.spec.as_ref()?.holder_identity.as_deref());
    assert_eq!(holders.filter(|holder| !holder.is_empty()).count(), 0, "{leases:?}");
}
