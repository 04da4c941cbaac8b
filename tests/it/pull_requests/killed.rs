//! SIGKILL at exact points of a promotion, and at random ones: each occasion has one branch, one commit and one pull request.

use std::time::Duration;

use relaybook_api::promotion::Phase;
use serde_json::json;

use super::Stage;
use crate::support::forge_proxy::{Asked, Trouble};
use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::wait::heavy;
use crate::support::{Fault, Proxy};

/// Requests of a kind, and whether the process is killed before the server has one of them, or after it and before the answer.
type Point<T> = (fn(&T) -> bool, bool);

/// Number of random kills without the environment variable `RELAYBOOK_KILLS`.
const KILLS: usize = 16;

#[tokio::test]
async fn a_kill_at_any_request_to_the_forge_repeats_nothing() {
    let stage = Stage::new("pulls-killed").await;
    let (world, proxy) = (&stage.world, stage.proxy());
    stage.pipeline("web", stage.behind(&proxy, json!({}))).await;
    let mut relaybook = stage.relaybook().await;
    let points: [Point<Asked>; 6] = [
        (Asked::is_list, false),
        (Asked::is_before_push, false),
        (Asked::is_push, true),
        (Asked::is_push, false),
        (Asked::is_create, true),
        (Asked::is_create, false),
    ];
    let mut lines = Vec::new();
    for ((matches, before), revision) in points.into_iter().zip(2..) {
        let gate = Gate::new();
        let trouble = if before { Trouble::HoldRequest(gate) } else { Trouble::HoldAnswer(gate) };
        let rule = proxy.rule(matches, trouble.once());
        world.ship("web-dev", &revision.to_string()).await;
        proxy.hit(rule, 1).await;
        if !before {
            proxy.forwarded(rule, 1).await;
        }
        relaybook.kill9();
        proxy.remove(rule);
        relaybook.start_again().await;
        let what = format!("web/prod {revision}");
        let (promotion, _) = stage.opened_number(&what).await;
        assert_eq!(promotion.status.unwrap_or_default().attempts, 2, "{what}: one attempt before the kill, one after it");
        stage.finish(&what).await;
        stage.world.passed("web").await;
        stage.made(revision - 1, revision - 1, revision - 1).await;
        lines.push(format!("prod {revision}: Requested/Opening, Open, Merged/Merged, Finished"));
    }
    stage.fence("web").await;
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().after_crashes(points.len()).promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_kill_at_any_write_of_the_status_repeats_nothing() {
    fn requests(call: &Call) -> bool {
        call.is_promotion_status() && call.says("\"Opening\"") && !call.says("\"Open\"")
    }
    fn opens(call: &Call) -> bool {
        call.is_promotion_status() && call.says("\"Opened\"") && !call.says("\"Merged\"")
    }
    fn merges(call: &Call) -> bool {
        call.is_promotion_status() && call.says("\"Merged\"") && !call.says("\"Finished\"")
    }
    let stage = Stage::new("pulls-killed-writes").await;
    let world = &stage.world;
    stage.pipeline("web", stage.direct(json!({}))).await;
    let proxy = Proxy::start(&world.kubeconfig, "pulls-killed-writes").await;
    let mut relaybook = stage.relaybook_through(&proxy).await;
    let points: [Point<Call>; 6] =
        [(requests, true), (requests, false), (opens, true), (opens, false), (merges, true), (merges, false)];
    let mut lines = Vec::new();
    for ((matches, before), revision) in points.into_iter().zip(2..) {
        let gate = Gate::new();
        let fault = if before { Fault::HoldRequest(gate) } else { Fault::HoldAnswer(gate) };
        let rule = proxy.rule(matches, fault);
        let what = format!("web/prod {revision}");
        world.ship("web-dev", &revision.to_string()).await;
        if lines.len() >= 4 {
            let (promotion, number) = stage.opened_number(&what).await;
            stage.merge(number).await;
            stage.check_now(&promotion).await;
        }
        proxy.hit(rule, 1).await;
        relaybook.kill9();
        proxy.remove(rule);
        relaybook.start_again().await;
        if lines.len() < 4 {
            stage.finish(&what).await;
        } else {
            stage.phase(&what, Phase::Merged).await;
            stage.roll_out(&what).await;
        }
        stage.world.passed("web").await;
        stage.made(revision - 1, revision - 1, revision - 1).await;
        lines.push(format!("prod {revision}: Requested/Opening, Open, Merged/Merged, Finished"));
    }
    stage.fence("web").await;
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().after_crashes(points.len()).promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_kill_while_a_pull_request_is_closed_leaves_nothing_open() {
    let stage = Stage::new("pulls-killed-close").await;
    let (world, proxy) = (&stage.world, stage.proxy());
    stage.pipeline("web", stage.behind(&proxy, json!({}))).await;
    let mut relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    stage.opened_number("web/prod 2").await;
    let points: [Point<Asked>; 4] =
        [(Asked::is_close, true), (Asked::is_close, false), (Asked::is_push, true), (Asked::is_push, false)];
    let mut lines = Vec::new();
    for ((matches, before), revision) in points.into_iter().zip(3..) {
        let gate = Gate::new();
        let trouble = if before { Trouble::HoldRequest(gate) } else { Trouble::HoldAnswer(gate) };
        let rule = proxy.rule(matches, trouble.once());
        world.ship("web-dev", &revision.to_string()).await;
        proxy.hit(rule, 1).await;
        if !before {
            proxy.forwarded(rule, 1).await;
        }
        relaybook.kill9();
        proxy.remove(rule);
        relaybook.start_again().await;
        let (_, status) = stage.phase(&format!("web/prod {}", revision - 1), Phase::Withdrawn).await;
        assert_eq!(status.reason, "Superseded");
        stage.opened_number(&format!("web/prod {revision}")).await;
        stage.world.passed("web").await;
        // Only the newest is open, and only its branch exists.
        assert_eq!(stage.repository.pulls("open").await.len(), 1);
        stage.made(revision - 1, 1, 1).await;
        lines.push(format!("prod {}: Requested/Opening, Open, Withdrawn/Superseded", revision - 1));
    }
    lines.push("prod 6: Requested/Opening, Open".to_owned());
    stage.fence("web").await;
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().after_crashes(points.len()).promotions("web", &["hook"], &lines).check().await;
}

/// Each promotion ends with a merge, or is replaced by the next one. A kill comes at a random time after the revision was shipped, and another
/// one after the merge. `RELAYBOOK_KILLS` is the number of kills, and `RELAYBOOK_SEED` repeats the times of a run.
#[tokio::test]
async fn random_kills_open_each_pull_request_once() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<usize>().expect("a number"));
    let kills = number("RELAYBOOK_KILLS").unwrap_or(KILLS);
    let seed = number("RELAYBOOK_SEED").map_or_else(|| fastrand::u64(..1_000_000), |seed| u64::try_from(seed).unwrap());
    eprintln!("RELAYBOOK_KILLS={kills} RELAYBOOK_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let _alone = heavy().await;
    let stage = Stage::new("pulls-kills").await;
    let world = &stage.world;
    // Of more promotions, the objects of the oldest are deleted.
    let kept = 100;
    stage.pipeline("web", stage.direct(json!({"retain": {"perEnvironment": kept}}))).await;
    let mut relaybook = stage.relaybook().await;
    let (mut lines, mut killed, mut revision, mut merged) = (Vec::new(), 0, 1, 0);
    while killed < kills {
        revision += 1;
        let what = format!("web/prod {revision}");
        world.ship("web-dev", &revision.to_string()).await;
        tokio::time::sleep(Duration::from_millis(random.u64(0..900))).await;
        relaybook.kill9();
        relaybook.start_again().await;
        killed += 1;
        let (promotion, number) = stage.opened_number(&what).await;
        if killed >= kills || random.bool() {
            merged += 1;
            stage.merge(number).await;
            stage.check_now(&promotion).await;
            if killed < kills {
                tokio::time::sleep(Duration::from_millis(random.u64(0..400))).await;
                relaybook.kill9();
                relaybook.start_again().await;
                killed += 1;
            }
            stage.phase(&what, Phase::Merged).await;
            stage.roll_out(&what).await;
            lines.push(format!("prod {revision}: Requested/Opening, Open, Merged/Merged, Finished"));
        } else {
            lines.push(format!("prod {revision}: Requested/Opening, Open, Withdrawn/Superseded"));
        }
        stage.world.passed("web").await;
    }
    stage.fence("web").await;
    assert_eq!(stage.repository.pulls("open").await.len(), 0);
    stage.made(lines.len(), merged, merged).await;
    if lines.len() <= kept {
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        stage.oracle().after_crashes(kills).promotions("web", &["hook"], &lines).check().await;
    }
}
