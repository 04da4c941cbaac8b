//! What people do with an open pull request: close, merge or delete it, delete its branch, or make a conflict.

use relaybook_api::Promotion;
use relaybook_api::promotion::{Phase, PullRequestState};
use serde_json::json;

use super::exact::Opened;
use super::{FILE, Stage, release};
use crate::support::eventually;
use crate::support::gitea::repository::Style;
use crate::support::world::promotions::{is, is_for};

#[tokio::test]
async fn a_closed_pull_request_is_opened_again_only_on_request() {
    let stage = Stage::new("pulls-closed").await;
    let Stage { world, receiver, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let mut relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let first = stage.opened("web/prod 2").await;
    repository.close(first.number).await;
    stage.check_now(&first.promotion).await;
    let closed = world.promotion("web/prod 2", is_for(Phase::Closed, "Closed")).await;
    let status = closed.status.clone().unwrap();
    assert!(status.message.contains("relaybook.dev/retry"), "{}", status.message);
    assert_eq!(status.pull_request.unwrap().state, PullRequestState::Abandoned);
    world.mirrored(&closed).await;
    let told = receiver.wait("/hook/prod/PromotionFailed", 1).await[0].json();
    assert_eq!((told["phase"].as_str(), told["promoted"].as_str()), (Some("Closed"), Some("2")));

    // Nothing is opened without a request, not even after a restart, or if a person opens it again.
    repository.reopen(first.number).await;
    relaybook.restart().await;
    world.settled().await;
    stage.fence("web").await;
    world.promotion("web/prod 2", is(Phase::Closed)).await;
    stage.exactly(&[(&first.branch, "open")], &[("main", 1), (&first.branch, 2)]).await;
    repository.close(first.number).await;

    let second = Opened::of(stage.retry("web/prod 2", "1", Phase::Open).await);
    assert_eq!((second.branch.as_str(), second.number), (format!("{}-2", first.branch).as_str(), 2));
    let request = second.promotion.status.as_ref().unwrap().pull_request.clone().unwrap();
    assert!(request.url.unwrap().ends_with("/pulls/2"));
    repository.merge(second.number, Style::Merge).await;
    stage.check_now(&second.promotion).await;
    stage.phase("web/prod 2", Phase::Merged).await;
    world.runs("web/prod", "2").await;
    stage.phase("web/prod 2", Phase::Finished).await;
    stage.fence("web").await;
    let branches = [("main", 3), (first.branch.as_str(), 2), (second.branch.as_str(), 2)];
    stage.exactly(&[(&first.branch, "closed"), (&second.branch, "merged")], &branches).await;
    let line = "prod 2: Requested/Opening, Open, Closed/Closed, Requested/Opening, Open, Merged/Merged, Finished";
    stage.oracle().promotions("web", &["hook"], &[line]).check().await;
}

#[tokio::test]
async fn a_pull_request_that_gitea_merged_while_relaybook_was_away_is_found_at_the_start() {
    let stage = Stage::new("pulls-auto-merged").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({"interval": "1h"}))).await;
    let mut relaybook = stage.relaybook().await;
    repository.protect("main", json!({"enable_status_check": true, "status_check_contexts": ["ci"]})).await;
    world.runs("web/dev", "2").await;
    let Opened { promotion, number, branch } = stage.opened("web/prod 2").await;
    world.mirrored(&promotion).await;
    relaybook.kill9();

    repository.merge_when_checked(number, Style::Merge).await;
    let head = repository.head(&branch).await.unwrap();
    assert_eq!(repository.pull(number).await["merged"], false, "the check is missing");
    repository.status(&head, "ci", "success").await;
    eventually("Gitea has merged it", async || {
        let pull = repository.pull(number).await;
        if pull["merged"] == true { Ok(()) } else { Err(pull.to_string()) }
    })
    .await;
    relaybook.start_again().await;
    world.settled().await;
    let (_, status) = stage.phase("web/prod 2", Phase::Merged).await;
    let request = status.pull_request.unwrap();
    assert_eq!((request.state, request.merge_commit), (PullRequestState::Merged, repository.head("main").await));
    assert_eq!(status.attempts, 1, "it was only read");
    world.runs("web/prod", "2").await;
    stage.phase("web/prod 2", Phase::Finished).await;
    stage.fence("web").await;
    stage.exactly(&[(&branch, "merged")], &[("main", 3), (&branch, 2)]).await;
    let line = "prod 2: Requested/Opening, Open, Merged/Merged, Finished";
    stage.oracle().after_a_crash().promotions("web", &["hook"], &[line]).check().await;
}

#[tokio::test]
async fn a_squash_is_a_merge_also_if_the_branch_is_deleted() {
    let stage = Stage::new("pulls-squashed").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let Opened { promotion, number, branch } = stage.opened("web/prod 2").await;
    repository.merge(number, Style::Squash).await;
    repository.delete_branch(&branch).await;
    stage.check_now(&promotion).await;
    let (_, status) = stage.phase("web/prod 2", Phase::Merged).await;
    assert_eq!(status.pull_request.unwrap().merge_commit, repository.head("main").await);
    assert_eq!(repository.file("main", FILE).await.unwrap(), release(&world.ns, "web").replace("\"1\"", "\"2\""));
    // A failed target can still come to run the revision.
    world.break_("web-prod", "2", "the image cannot be pulled").await;
    let failed = world.promotion("web/prod 2", is_for(Phase::Merged, "TargetFailed")).await.status.unwrap();
    assert!(failed.message.contains("the image cannot be pulled"), "{}", failed.message);
    world.runs("web/prod", "2").await;
    stage.phase("web/prod 2", Phase::Finished).await;
    stage.fence("web").await;
    stage.exactly(&[(&branch, "merged")], &[("main", 2)]).await;
    let line = "prod 2: Requested/Opening, Open, Merged/Merged, Finished";
    stage.oracle().promotions("web", &["hook"], &[line]).check().await;
}

#[tokio::test]
async fn a_pull_request_that_is_gone_or_lost_its_branch_ends_the_promotion() {
    let stage = Stage::new("pulls-gone").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let first = stage.opened("web/prod 2").await;
    repository.delete_pull(first.number).await;
    stage.check_now(&first.promotion).await;
    let gone = world.promotion("web/prod 2", is_for(Phase::Closed, "PullRequestGone")).await;
    assert_eq!(gone.status.unwrap().pull_request.unwrap().state, PullRequestState::Abandoned);

    let second = Opened::of(stage.retry("web/prod 2", "1", Phase::Open).await);
    assert_eq!(second.branch, format!("{}-2", first.branch));
    repository.delete_branch(&second.branch).await;
    eventually("Gitea closes it", async || {
        let pull = repository.pull(second.number).await;
        if pull["state"] == "closed" { Ok(()) } else { Err(pull.to_string()) }
    })
    .await;
    stage.check_now(&second.promotion).await;
    world.promotion("web/prod 2", is_for(Phase::Closed, "Closed")).await;
    stage.fence("web").await;
    stage.exactly(&[(&second.branch, "closed")], &[("main", 1), (&first.branch, 2)]).await;
    let line = "prod 2: Requested/Opening, Open, Closed/PullRequestGone, Requested/Opening, Open, Closed/Closed";
    stage.oracle().promotions("web", &["hook"], &[line]).check().await;
}

#[tokio::test]
async fn a_conflict_is_shown_until_it_is_resolved() {
    let stage = Stage::new("pulls-conflict").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let Opened { promotion, number, branch } = stage.opened("web/prod 2").await;
    let shows = |state: PullRequestState, reason: &'static str| {
        move |p: &Promotion| {
            let request = p.status.as_ref().and_then(|s| s.pull_request.as_ref());
            is_for(Phase::Open, reason)(p) && request.is_some_and(|request| request.state == state)
        }
    };
    let before = release(&world.ns, "web");
    let by_hand = before.replace("\"1\"", "\"9\"");
    stage.check_until(&promotion, "web/prod 2", shows(PullRequestState::Mergeable, "Opened")).await;

    // A draft is not mergeable, and has no conflict.
    let title = repository.pull(number).await["title"].as_str().unwrap().to_owned();
    repository.edit(number, json!({"title": format!("WIP: {title}")})).await;
    stage.check_now(&promotion).await;
    world.promotion("web/prod 2", shows(PullRequestState::Open, "Opened")).await;
    stage.check_now(&promotion).await;
    stage.fence("web").await;
    world.promotion("web/prod 2", shows(PullRequestState::Open, "Opened")).await;
    repository.edit(number, json!({"title": title})).await;
    stage.check_until(&promotion, "web/prod 2", shows(PullRequestState::Mergeable, "Opened")).await;

    repository.commit("main", "by hand", &[(FILE, Some(&by_hand))]).await;
    stage.compared(number, false).await;
    // Gitea says the same while it compares the branches. So one answer is not enough.
    stage.check_now(&promotion).await;
    let is_open = |p: &Promotion| {
        let request = p.status.as_ref().and_then(|s| s.pull_request.as_ref());
        request.is_some_and(|request| request.state == PullRequestState::Open)
    };
    world.promotion("web/prod 2", is_open).await;
    let conflict = stage.check_until(&promotion, "web/prod 2", shows(PullRequestState::Open, "Conflict")).await;
    let status = conflict.status.unwrap();
    assert!(status.message.contains("conflict") && status.message.contains(&number.to_string()), "{}", status.message);
    assert_eq!(status.step, 2, "a conflict is no step");

    repository.commit("main", "resolved", &[(FILE, Some(&before))]).await;
    stage.compared(number, true).await;
    stage.check_until(&promotion, "web/prod 2", shows(PullRequestState::Mergeable, "Opened")).await;
    repository.merge(number, Style::Merge).await;
    stage.check_now(&promotion).await;
    stage.phase("web/prod 2", Phase::Merged).await;
    stage.fence("web").await;
    stage.exactly(&[(&branch, "merged")], &[("main", 5), (&branch, 2)]).await;
    let line = "prod 2: Requested/Opening, Open, Merged/Merged";
    stage.oracle().promotions("web", &["hook"], &[line]).check().await;
}
