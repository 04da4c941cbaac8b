//! Answers that are lost on their way to Relaybook: from the forge and from the API server. What was done is found, and not done again.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use relaybook_api::promotion::{Phase, PullRequestState};
use serde_json::json;

use super::Stage;
use crate::support::forge_proxy::{Asked, Trouble};
use crate::support::proxy::Call;
use crate::support::world::promotions::is;
use crate::support::{Fault, Proxy};

/// Maximum time of an end whose answers are lost.
const LONG: Duration = Duration::from_mins(3);

/// Requests of a kind.
type Kind = fn(&Asked) -> bool;

#[tokio::test]
async fn results_of_requests_with_lost_answers_of_the_forge_are_found() {
    let stage = Stage::new("pulls-lost").await;
    let (world, proxy) = (&stage.world, stage.proxy());
    stage.pipeline("web", stage.behind(&proxy, json!({}))).await;
    let _relaybook = stage.relaybook().await;
    let kinds: [(&str, Kind); 5] = [
        ("list", Asked::is_list),
        ("before the push", Asked::is_before_push),
        ("push", Asked::is_push),
        ("create", Asked::is_create),
        ("look", Asked::is_look),
    ];
    for ((kind, matches), revision) in kinds.into_iter().zip(2_usize..) {
        let rule = proxy.rule(matches, Trouble::LoseAnswer.once());
        world.runs("web/dev", &revision.to_string()).await;
        let what = format!("web/prod {revision}");
        let (promotion, number) = stage.opened_number(&what).await;
        if kind == "look" {
            stage.check_now(&promotion).await;
            proxy.forwarded(rule, 1).await;
        } else {
            let attempts = promotion.status.unwrap_or_default().attempts;
            assert_eq!((proxy.hits(rule) >= 1, attempts), (true, 2), "{kind}: only the second attempt has the answer");
        }
        assert_eq!(number, u64::try_from(revision).unwrap() - 1, "{kind}: the number was not used for another one");
        stage.finish(&what).await;
        stage.made(revision - 1, revision - 1, revision - 1).await;
        proxy.remove(rule);
    }
    // The pages of Gitea are on a host that the pipeline does not name, so only numbers are shown.
    let last = world.promotion("web/prod 6", |_| true).await.status.unwrap_or_default();
    assert_eq!((last.location, last.pull_request.and_then(|request| request.url)), (None, None));
    stage.fence("web").await;
    let lines: Vec<_> = (2..7).map(|n| format!("prod {n}: Requested/Opening, Open, Merged/Merged, Finished")).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_pull_request_whose_creation_was_not_answered_gets_its_labels() {
    let stage = Stage::new("pulls-lost-labels").await;
    let (world, proxy, repository) = (&stage.world, stage.proxy(), &stage.repository);
    repository.person.post(&repository.path("/labels"), json!({"name": "promotion", "color": "#00aabb"})).await;
    let labels = json!({"strategy": {"pullRequest": {"labels": ["promotion"]}}});
    stage.pipeline("web", stage.behind(&proxy, labels)).await;
    let _relaybook = stage.relaybook().await;
    let kinds: [Kind; 2] = [Asked::is_create, |asked| asked.path.ends_with("/labels")];
    for (matches, revision) in kinds.into_iter().zip(2_usize..) {
        let lost = proxy.rule(matches, Trouble::LoseAnswer.once());
        world.runs("web/dev", &revision.to_string()).await;
        let (_, number) = stage.opened_number(&format!("web/prod {revision}")).await;
        proxy.forwarded(lost, 1).await;
        let labels = repository.pull(number).await["labels"].clone();
        assert_eq!((&labels[0]["name"], &labels[1]["name"]), (&json!("promotion"), &json!(null)), "{revision}");
        proxy.remove(lost);
        stage.finish(&format!("web/prod {revision}")).await;
    }
    stage.made(2, 2, 2).await;
    stage.fence("web").await;
    let lines = [2, 3].map(|n| format!("prod {n}: Requested/Opening, Open, Merged/Merged, Finished"));
    stage.oracle().promotions("web", &["hook"], &lines.each_ref().map(String::as_str)).check().await;
}

#[tokio::test]
async fn a_lost_answer_to_the_end_of_a_pull_request_leaves_nothing_open() {
    let stage = Stage::new("pulls-lost-close").await;
    let (world, proxy) = (&stage.world, stage.proxy());
    stage.pipeline("web", stage.behind(&proxy, json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let (_, number) = stage.opened_number("web/prod 2").await;
    let closed = proxy.rule(Asked::is_close, Trouble::LoseAnswer.once());
    let deleted = proxy.rule(Asked::is_push, Trouble::LoseAnswer.once());
    world.runs("web/dev", "3").await;
    // Both answers are lost, so there are two pauses.
    let withdrawn = world.promotion_within(LONG, "web/prod 2", is(Phase::Withdrawn)).await.status.unwrap();
    assert_eq!(
        (withdrawn.reason.as_str(), withdrawn.pull_request.unwrap().state),
        ("Superseded", PullRequestState::Abandoned)
    );
    assert_eq!((proxy.hits(closed), stage.repository.pull(number).await["state"].as_str()), (1, Some("closed")));
    assert!(proxy.hits(deleted) >= 1);
    stage.opened_number("web/prod 3").await;
    stage.made(2, 1, 1).await;
    stage.fence("web").await;
    let lines = ["prod 2: Requested/Opening, Open, Withdrawn/Superseded", "prod 3: Requested/Opening, Open"];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn lost_answers_to_writes_of_the_status_open_nothing_twice() {
    const REVISIONS: usize = 4;
    let stage = Stage::new("pulls-lost-writes").await;
    let world = &stage.world;
    stage.pipeline("web", stage.direct(json!({}))).await;
    let proxy = Proxy::start(&world.kubeconfig, "pulls-lost-writes").await;
    // Every second answer to identical writes is lost, starting with the first.
    let made: Mutex<HashMap<String, usize>> = Mutex::default();
    let second = move |call: &Call| {
        (call.is_create_promotion() || call.is_promotion_status()) && {
            let mut made = made.lock().unwrap();
            let count = made.entry(call.written()).or_default();
            *count += 1;
            !count.is_multiple_of(2)
        }
    };
    let lost = proxy.rule(second, Fault::LoseAnswer);
    let _relaybook = stage.relaybook_through(&proxy).await;
    let mut lines = Vec::new();
    for revision in 2..2 + REVISIONS {
        world.runs("web/dev", &revision.to_string()).await;
        stage.finish(&format!("web/prod {revision}")).await;
        lines.push(format!("prod {revision}: Requested/Opening, Open, Merged/Merged, Finished"));
    }
    assert!(proxy.hits(lost) >= 2 * REVISIONS, "{} writes were seen", proxy.hits(lost));
    stage.made(REVISIONS, REVISIONS, REVISIONS).await;
    proxy.remove(lost);
    stage.fence("web").await;
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}
