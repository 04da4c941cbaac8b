//! Requests that arrive late: those of a replica that was frozen as the leader, and one whose attempt has long failed.

use std::time::Duration;

use relaybook_api::promotion::Phase;
use serde_json::json;

use super::Stage;
use crate::support::Relaybook;
use crate::support::forge_proxy::{Asked, Trouble};
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::wait::heavy;
use crate::support::world::{OF_FIRST, OF_SECOND};

const LEASE: &str = "relaybook-promote";
/// Time limit for a takeover. A Lease lasts 90 s, and the machine can be busy.
const EXPIRY: Duration = Duration::from_mins(4);
/// Time limit for the end of a request that is not answered, and for what follows.
const LATE: Duration = Duration::from_secs(100);

#[tokio::test]
async fn a_leader_that_is_frozen_during_its_requests_opens_nothing_twice() {
    let _alone = heavy().await;
    let stage = Stage::new("pulls-frozen").await;
    let (world, proxy) = (&stage.world, stage.proxy());
    world.only_for_first();
    let names = ["pushed", "opened", "answered"];
    for name in names {
        stage
            .another(name, stage.behind(&proxy, json!({"strategy": {"pullRequest": {"paths": [format!("apps/{name}")]}}})))
            .await;
    }
    let _others = Relaybook::with(world, Options { controllers: "pipeline,dispatch", ..Options::of(world) }).await;
    let promoter = Options { controllers: "promote", ..Options::of(world) };
    let first = Relaybook::with(world, Options { pod: Some("first"), ..promoter.clone() }).await;
    world.settled().await;
    let second = Relaybook::with(world, Options { pod: Some("second"), ..promoter }).await;
    first.holds(LEASE, OF_FIRST).await;
    second.holds(LEASE, OF_SECOND).await;

    // The requests of the first replica: a push and a create that arrive after the takeover, and a create whose answer does.
    let gate = Gate::new();
    let push = proxy.rule(Asked::is_push, Trouble::Late(gate.clone()).once());
    world.runs("pushed/dev", "2").await;
    proxy.hit(push, 1).await;
    let create = proxy.rule(|asked| asked.is_create() && asked.says("opened"), Trouble::Late(gate.clone()).once());
    let answer = proxy.rule(|asked| asked.is_create() && asked.says("answered"), Trouble::HoldAnswer(gate.clone()).once());
    for name in ["opened", "answered"] {
        world.runs(&format!("{name}/dev"), "2").await;
    }
    proxy.hit(create, 1).await;
    proxy.forwarded(answer, 1).await;
    first.freeze();
    second.holds_within(EXPIRY, LEASE, 0..16).await;
    for name in names {
        stage.opened_number(&format!("{name}/prod 2")).await;
    }
    stage.made(3, 3, 3).await;

    gate.open();
    proxy.forwarded(push, 1).await;
    proxy.forwarded(create, 1).await;
    first.thaw();
    // It notices that it has lost its buckets, and gets those that the second replica gives away.
    first.holds(LEASE, OF_SECOND).await;
    stage.made(3, 3, 3).await;
    for name in names {
        stage.finish(&format!("{name}/prod 2")).await;
        stage.fence(name).await;
    }
    stage.made(3, 3, 3).await;
    let mut oracle = stage.oracle();
    for name in names {
        oracle = oracle.promotions(name, &["hook"], &["prod 2: Requested/Opening, Open, Merged/Merged, Finished"]);
    }
    oracle.check().await;
    second.holds(LEASE, OF_FIRST).await;
}

#[tokio::test]
async fn a_pull_request_that_is_requested_too_late_is_not_opened() {
    let stage = Stage::new("pulls-late").await;
    let (world, proxy) = (&stage.world, stage.proxy());
    stage.pipeline("web", stage.behind(&proxy, json!({}))).await;
    let _relaybook = stage.relaybook().await;
    let gate = Gate::new();
    let late = proxy.rule(Asked::is_create, Trouble::Late(gate.clone()).once());
    world.runs("web/dev", "2").await;
    proxy.hit(late, 1).await;
    stage.made(0, 1, 1).await;
    world.runs("web/dev", "3").await;
    // While the attempt runs, nothing else is done.
    let is_withdrawn = |p: &relaybook_api::Promotion| p.status.as_ref().is_some_and(|s| s.phase == Some(Phase::Withdrawn));
    let withdrawn = world.promotion_within(LATE, "web/prod 2", is_withdrawn).await.status.unwrap_or_default();
    assert_eq!((withdrawn.reason.as_str(), withdrawn.attempts, withdrawn.pull_request), ("Superseded", 1, None));
    stage.opened_number("web/prod 3").await;
    stage.made(1, 1, 1).await;

    gate.open();
    proxy.forwarded(late, 1).await;
    let refused = proxy.log().into_iter().find(Asked::is_create).and_then(|asked| asked.status);
    assert_eq!(refused, Some(404), "its branch is gone");
    stage.made(1, 1, 1).await;
    stage.finish("web/prod 3").await;
    stage.fence("web").await;
    let lines =
        ["prod 2: Requested/Opening, Withdrawn/Superseded", "prod 3: Requested/Opening, Open, Merged/Merged, Finished"];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}
