//! A forge that is busy, broken or hostile: it is asked again, and gets nothing that it should not get.

use std::time::Duration;

use serde_json::json;

use super::Stage;
use crate::support::forge_proxy::{Asked, Trouble};
use crate::support::receiver::{Gate, Receiver};
use crate::support::wait::eventually;
use relaybook_api::Promotion;

/// Requests of a kind, what becomes of one of them, and the reason and words in the status.
type Case = (fn(&Asked) -> bool, Trouble, &'static str, &'static str);

#[tokio::test]
async fn requests_with_unusable_answers_are_repeated() {
    let stage = Stage::new("pulls-trouble").await;
    let (world, proxy) = (&stage.world, stage.proxy());
    let policy = json!({"retry": {"initial": "5s", "max": "5s"}});
    stage.pipeline("web", stage.behind(&proxy, policy)).await;
    let relaybook = stage.relaybook().await;
    let elsewhere = Receiver::start();
    let moved = Some(("location", elsewhere.url("/api/v1/repos/o/r/pulls")));
    let answer = |status, header, body| Trouble::Answer(status, header, body);
    let troubles: [Case; 4] = [
        (Asked::is_list, Trouble::Endless, "InvalidAnswer", "larger than"),
        (Asked::is_list, answer(307, moved.clone(), ""), "RepositoryNotFound", "redirect"),
        (Asked::is_create, answer(503, None, "busy"), "ForgeError", "503"),
        (Asked::is_git, answer(301, moved, ""), "ForgeError", "301"),
    ];
    let mut lines = Vec::new();
    for ((matches, trouble, reason, words), revision) in troubles.into_iter().zip(2_usize..) {
        let rule = proxy.rule(matches, trouble.once());
        world.runs("web/dev", &revision.to_string()).await;
        let what = format!("web/prod {revision}");
        proxy.hit(rule, 1).await;
        let message = stage.reason(&what, reason).await;
        assert!(message.contains(words), "{reason}: {message}");
        let (promotion, _) = stage.opened_number(&what).await;
        assert_eq!(promotion.status.unwrap_or_default().attempts, 2, "{what}");
        proxy.remove(rule);
        stage.finish(&what).await;
        stage.made(revision - 1, revision - 1, revision - 1).await;
        lines.push(format!("prod {revision}: Requested/Opening, Open, Merged/Merged, Finished"));
    }
    assert_eq!(elsewhere.connections(), 0, "a redirect is never followed");
    stage.fence("web").await;
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
    drop(relaybook);
}

#[tokio::test]
async fn a_limit_on_the_rate_is_respected() {
    const WAIT: Duration = Duration::from_secs(8);
    let stage = Stage::new("pulls-limited").await;
    let (world, proxy) = (&stage.world, stage.proxy());
    stage.pipeline("web", stage.behind(&proxy, json!({}))).await;
    let _relaybook = stage.relaybook().await;
    let limit = Trouble::Answer(429, Some(("retry-after", WAIT.as_secs().to_string())), "");
    let rule = proxy.rule(Asked::is_list, limit.once());
    world.runs("web/dev", "2").await;
    proxy.hit(rule, 1).await;
    stage.reason("web/prod 2", "RateLimited").await;
    let is_again = |promotion: &Promotion| promotion.status.as_ref().is_some_and(|status| status.attempts > 1);
    world.promotion("web/prod 2", is_again).await;
    stage.opened_number("web/prod 2").await;
    let log = proxy.log();
    let lists: Vec<_> = log.iter().filter(|asked| asked.is_list()).map(|asked| asked.at).collect();
    let [limited, again] = lists[..] else { panic!("{log:#?}") };
    assert!(again - limited + Duration::from_secs(1) >= WAIT, "{:?}", again - limited);
    stage.finish("web/prod 2").await;
    stage.made(1, 1, 1).await;
    stage.fence("web").await;
    let lines = ["prod 2: Requested/Opening, Open, Merged/Merged, Finished"];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_forge_that_fails_for_an_open_pull_request_is_shown_and_asked_again() {
    let stage = Stage::new("pulls-unseen").await;
    let (world, proxy) = (&stage.world, stage.proxy());
    stage.pipeline("web", stage.behind(&proxy, json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let (promotion, _) = stage.opened_number("web/prod 2").await;
    let gate = Gate::new();
    for (trouble, reason) in [
        (Trouble::Answer(500, None, "{}"), "ForgeError"),
        (Trouble::Answer(401, None, "{\"message\": \"who are you\"}"), "CredentialsRejected"),
        (Trouble::Answer(200, None, "[]"), "InvalidAnswer"),
        (Trouble::LoseAnswer, "Unreachable"),
    ] {
        let rule = proxy.rule(Asked::is_look, trouble);
        stage.check_now(&promotion).await;
        stage.reason("web/prod 2", reason).await;
        proxy.remove(rule);
        // The promotion is still open, and the next check finds everything as it was.
        stage.check_now(&promotion).await;
        stage.reason("web/prod 2", "Opened").await;
    }
    // A check that hangs holds back nothing but itself.
    let rule = proxy.rule(Asked::is_look, Trouble::HoldRequest(gate.clone()));
    stage.check_now(&promotion).await;
    proxy.hit(rule, 1).await;
    proxy.remove(rule);
    gate.open();
    eventually("the held check is answered", async || {
        let log = proxy.log();
        let last = log.iter().rev().find(|asked| asked.is_look());
        if last.is_some_and(|asked| asked.status == Some(200)) { Ok(()) } else { Err(format!("{last:?}")) }
    })
    .await;
    stage.finish("web/prod 2").await;
    stage.made(1, 1, 1).await;
    stage.fence("web").await;
    let lines = ["prod 2: Requested/Opening, Open, Merged/Merged, Finished"];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}
