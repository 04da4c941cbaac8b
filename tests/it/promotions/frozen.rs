//! Two replicas of the promotion controller. The leader is frozen with a promotion that it has created and another one that it is about to
//! request. The other replica carries both out, and what the first one still does changes nothing.

use std::time::Duration;

use relaybook_api::promotion::Phase;
use serde_json::json;

use super::Stage;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::wait::heavy;
use crate::support::world::promotions::{by_notification, is};
use crate::support::world::{OF_FIRST, OF_SECOND};
use crate::support::{Fault, Proxy, Relaybook};

const LEASE: &str = "relaybook-promote";
/// Time limit for a takeover. A Lease lasts 90 s, and the machine can be busy.
const EXPIRY: Duration = Duration::from_mins(4);

#[tokio::test]
async fn a_leader_that_is_frozen_requests_nothing_twice() {
    let _alone = heavy().await;
    let stage = Stage::new("promotions-frozen").await;
    let world = &stage.world;
    world.only_for_first();
    for name in ["made", "asked"] {
        stage.pipeline(name, by_notification(json!({}))).await;
    }
    let _others = Relaybook::with(world, Options { controllers: "pipeline,dispatch", ..Options::of(world) }).await;
    let proxy = Proxy::start(&world.kubeconfig, "promotions-frozen").await;
    let promoter = Options { controllers: "promote", ..Options::of(world) };
    let through = Options { pod: Some("first"), kubeconfig: Some(proxy.kubeconfig.clone()), ..promoter.clone() };
    let first = Relaybook::with(world, through).await;
    world.settled().await;
    let second = Relaybook::with(world, Options { pod: Some("second"), ..promoter }).await;
    first.holds(LEASE, OF_FIRST).await;
    second.holds(LEASE, OF_SECOND).await;

    let (answer, request) = (Gate::new(), Gate::new());
    let created =
        proxy.rule(|call| call.is_create_promotion() && call.says("\"made-prod-"), Fault::HoldAnswer(answer.clone()));
    let requested = proxy.rule(
        |call| call.is_promotion_status() && call.path.contains("/asked-prod-") && call.says("\"Requested\""),
        Fault::HoldRequest(request.clone()),
    );
    for name in ["made", "asked"] {
        world.runs(&format!("{name}/dev"), "2").await;
    }
    proxy.hit(created, 1).await;
    proxy.hit(requested, 1).await;
    world.promotion("made/prod 2", |_| true).await;
    first.freeze();
    second.holds_within(EXPIRY, LEASE, 0..16).await;
    for name in ["made", "asked"] {
        let requested = stage.requested(&format!("{name}/prod 2")).await;
        world.mirrored(&requested).await;
    }
    stage.receiver.wait("/hook/prod/PromotionRequested", 2).await;

    // The write that the first replica sent while it was the leader arrives now, and then the replica resumes.
    request.open();
    answer.open();
    first.thaw();
    // It notices that it has lost its buckets, and gets those that the second replica gives away.
    first.holds(LEASE, OF_SECOND).await;
    for name in ["made", "asked"] {
        let same = world.promotion(&format!("{name}/prod 2"), is(Phase::Requested)).await.status.unwrap();
        assert_eq!((same.attempts, same.step), (1, 1), "{name}");
        world.runs(&format!("{name}/prod"), "2").await;
        stage.finished(&format!("{name}/prod 2")).await;
    }
    for name in ["made", "asked"] {
        stage.fence(name).await;
    }
    stage
        .oracle()
        .promotions("made", &["hook"], &["prod 2: Requested, Finished"])
        .promotions("asked", &["hook"], &["prod 2: Requested, Finished"])
        .check()
        .await;
    second.holds(LEASE, OF_FIRST).await;
}
