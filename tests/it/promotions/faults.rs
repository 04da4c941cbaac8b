//! Kills at exact points of a promotion, random kills, and lost answers: each promotion is created once and requested once.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use relaybook_api::Promotion;
use relaybook_api::promotion::Phase;
use serde_json::{Value, json};

use super::Stage;
use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::wait::heavy;
use crate::support::world::promotions::{by_notification, is};
use crate::support::{Fault, Proxy, Relaybook, World};

/// Maximum time of a promotion whose writes were refused for long.
const LONG: Duration = Duration::from_mins(3);

/// Returns options with which Relaybook reaches the API server through a proxy.
fn through(world: &World, proxy: &Proxy) -> Options {
    Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(world) }
}

/// Selects calls to the API server.
type Selector = fn(&Call) -> bool;

/// Whether the call writes that a promotion is requested.
fn requests(call: &Call) -> bool {
    call.is_promotion_status() && call.says("\"Requested\"")
}

/// Whether the call writes a step of a promotion to the log, or to the mirror in the status of an environment.
fn logs(call: &Call) -> bool {
    call.is_pipeline_status() && call.says("promotion/prod")
}

#[tokio::test]
async fn a_kill_at_any_point_neither_loses_nor_repeats_a_promotion() {
    let stage = Stage::new("promotions-killed").await;
    let world = &stage.world;
    stage.pipeline("shop", by_notification(json!({}))).await;
    let proxy = Proxy::start(&world.kubeconfig, "promotions-killed").await;
    let mut relaybook = Relaybook::with(world, through(world, &proxy)).await;
    world.settled().await;
    // What is held when the process is killed: the request, which then never reaches the API server, or its answer.
    let points: [(Selector, bool); 6] = [
        (Call::is_create_promotion, true),
        (Call::is_create_promotion, false),
        (requests, true),
        (requests, false),
        (logs, true),
        (logs, false),
    ];
    let mut lines = Vec::new();
    for ((calls, before), n) in points.into_iter().zip(2..) {
        let (tag, gate) = (n.to_string(), Gate::new());
        let fault = if before { Fault::HoldRequest(gate) } else { Fault::HoldAnswer(gate) };
        let rule = proxy.rule(calls, fault);
        world.ship("shop-dev", &tag).await;
        proxy.hit(rule, 1).await;
        relaybook.kill9();
        proxy.remove(rule);
        relaybook.start_again().await;
        stage.requested(&format!("shop/prod {tag}")).await;
        world.runs("shop/prod", &tag).await;
        let finished = stage.finished(&format!("shop/prod {tag}")).await;
        assert_eq!(finished.status.as_ref().map(|s| s.attempts), Some(1), "{tag}");
        world.mirrored(&finished).await;
        stage.receiver.wait("/hook/prod/PromotionFinished", n - 1).await;
        lines.push(format!("prod {tag}: Requested, Finished"));
    }
    stage.fence("shop").await;
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().after_crashes(points.len()).promotions("shop", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_refused_promotion_stops_no_other_environment() {
    let stage = Stage::new("promotions-forbidden").await;
    let world = &stage.world;
    let environments = ["staging", "prod"].map(|environment| (environment, by_notification(json!({}))));
    world.promoting("shop", &[&[("dev", Value::Null)][..], &environments].concat()).await;
    let proxy = Proxy::start(&world.kubeconfig, "promotions-forbidden").await;
    let _relaybook = Relaybook::with(world, through(world, &proxy)).await;
    world.settled().await;
    let to_prod = |call: &Call| call.is_create_promotion() && call.says(r#""environment":"prod""#);
    let refused = proxy.rule(to_prod, Fault::Refuse(403));

    world.runs("shop/dev", "2").await;
    stage.requested("shop/staging 2").await;
    world.runs("shop/staging", "2").await;
    proxy.hit(refused, 2).await;
    stage.event("shop", "PromotionNotWritten").await;
    stage.finished("shop/staging 2").await;
    world.runs("shop/dev", "3").await;
    stage.requested("shop/staging 3").await;
    proxy.remove(refused);
    // The pause before the next try can be a minute by now.
    world.promotion_within(LONG, "shop/prod 2", is(Phase::Requested)).await;
    stage.fence("shop").await;
    let lines = ["staging 2: Requested, Finished", "staging 3: Requested", "prod 2: Requested"];
    stage.oracle().promotions("shop", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn random_kills_neither_lose_nor_repeat_a_promotion() {
    const KILLS: usize = 8;
    let _alone = heavy().await;
    let stage = Stage::new("promotions-kills").await;
    let world = &stage.world;
    for name in ["shop", "held"] {
        let policy = json!({"manual": name == "held", "retain": {"perEnvironment": 100}});
        stage.pipeline(name, by_notification(policy)).await;
    }
    let mut relaybook = stage.relaybook().await;
    let [mut shop, mut held] = [Vec::new(), Vec::new()];
    for n in 1..=KILLS {
        let tag = (n + 1).to_string();
        let stream = async {
            for name in ["shop", "held"] {
                world.ship(&format!("{name}-dev"), &tag).await;
            }
        };
        let killed = async {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..400))).await;
            relaybook.kill9();
            relaybook.start_again().await;
        };
        tokio::join!(stream, killed);
        // After a kill it can be Pending for another reason at first. An approval at that time is accepted, and then nobody is asked.
        let asks = |p: &Promotion| p.status.as_ref().is_some_and(|status| status.reason == "WaitingApproval");
        let waits = world.promotion(&format!("held/prod {tag}"), asks).await;
        world.approve(&waits).await;
        for name in ["shop", "held"] {
            stage.requested(&format!("{name}/prod {tag}")).await;
            world.runs(&format!("{name}/prod"), &tag).await;
            stage.finished(&format!("{name}/prod {tag}")).await;
        }
        // A cursor that is not persisted before the next kill leaves its changes in the log. With too many of them, some are merged.
        for name in ["shop", "held"] {
            stage.world.passed(name).await;
        }
        shop.push(format!("prod {tag}: Requested, Finished"));
        held.push(format!("prod {tag}: Pending, Requested, Finished"));
    }
    for name in ["shop", "held"] {
        stage.fence(name).await;
    }
    let [shop, held] = [&shop, &held].map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
    let oracle = stage.oracle().after_crashes(KILLS);
    oracle.promotions("shop", &["hook"], &shop).promotions("held", &["hook"], &held).check().await;
}

#[tokio::test]
async fn writes_with_lost_answers_are_found_and_not_repeated() {
    let stage = Stage::new("promotions-lost").await;
    let world = &stage.world;
    for name in ["shop", "held"] {
        stage.pipeline(name, by_notification(json!({"manual": name == "held"}))).await;
    }
    let proxy = Proxy::start(&world.kubeconfig, "promotions-lost").await;
    // Every second answer to identical writes is lost, starting with the first.
    let made: Mutex<HashMap<String, usize>> = Mutex::default();
    let second = move |call: &Call| {
        let ours = call.is_create_promotion() || call.is_promotion_status() || call.is_pipeline_status();
        ours && {
            let mut made = made.lock().unwrap();
            let count = made.entry(call.written()).or_default();
            *count += 1;
            !count.is_multiple_of(2)
        }
    };
    let lost = proxy.rule(second, Fault::LoseAnswer);
    let _relaybook = Relaybook::with(world, through(world, &proxy)).await;
    world.settled().await;
    for tag in ["2", "3", "4"] {
        for name in ["shop", "held"] {
            world.runs(&format!("{name}/dev"), tag).await;
        }
        let waits = world.promotion(&format!("held/prod {tag}"), |p| p.status.is_some()).await;
        world.approve(&waits).await;
        for name in ["shop", "held"] {
            let requested = stage.requested(&format!("{name}/prod {tag}")).await;
            assert_eq!(requested.status.unwrap().attempts, 1, "{name} {tag}");
            world.runs(&format!("{name}/prod"), tag).await;
            stage.finished(&format!("{name}/prod {tag}")).await;
        }
    }
    for name in ["shop", "held"] {
        stage.fence(name).await;
    }
    assert!(proxy.hits(lost) > 12, "{} answers were lost", proxy.hits(lost));
    let of = |steps: &str| ["2", "3", "4"].map(|tag| format!("prod {tag}: {steps}"));
    let (shop, held) = (of("Requested, Finished"), of("Pending, Requested, Finished"));
    stage
        .oracle()
        .promotions("shop", &["hook"], &shop.each_ref().map(String::as_str))
        .promotions("held", &["hook"], &held.each_ref().map(String::as_str))
        .check()
        .await;
}

#[tokio::test]
async fn a_request_is_recorded_before_anything_is_sent() {
    let stage = Stage::new("promotions-refused").await;
    let world = &stage.world;
    stage.pipeline("shop", by_notification(json!({}))).await;
    let proxy = Proxy::start(&world.kubeconfig, "promotions-refused").await;
    let _relaybook = Relaybook::with(world, through(world, &proxy)).await;
    world.settled().await;
    let codes = [403, 409, 422, 500, 503];
    for (code, n) in codes.into_iter().zip(2..) {
        let tag = n.to_string();
        let created = proxy.rule(Call::is_create_promotion, Fault::Refuse(code));
        let requested = proxy.rule(requests, Fault::Refuse(code));
        world.runs("shop/dev", &tag).await;
        proxy.hit(created, 1).await;
        assert_eq!(world.promotions().await.len(), n - 2, "{code}");
        proxy.remove(created);
        proxy.hit(requested, 1).await;
        let sent = stage.receiver.to("/hook/prod/PromotionRequested").len();
        assert_eq!(sent, n - 2, "{code}: nothing is sent before it is recorded");
        proxy.remove(requested);
        world.promotion_within(LONG, &format!("shop/prod {tag}"), is(Phase::Requested)).await;
        world.runs("shop/prod", &tag).await;
        stage.finished(&format!("shop/prod {tag}")).await;
        stage.receiver.wait("/hook/prod/PromotionFinished", n - 1).await;
    }
    stage.fence("shop").await;
    let lines: Vec<_> = (2..2 + codes.len()).map(|n| format!("prod {n}: Requested, Finished")).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().promotions("shop", &["hook"], &lines).check().await;
}
