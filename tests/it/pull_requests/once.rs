//! A promotion makes one branch, one commit and one pull request, and nothing before its approval.

use relaybook_api::promotion::{Phase, PullRequestState};
use serde_json::json;

use super::{FILE, Stage};
use crate::support::gitea::repository::Style;
use crate::support::world::promotions::is_for;

#[tokio::test]
async fn a_pull_request_is_opened_merged_and_followed_until_the_environment_runs_the_revision() {
    let stage = Stage::new("pulls-merged").await;
    let Stage { world, receiver, repository, .. } = &stage;
    let mut policy = stage.by_pull_request(json!({"labels": []}));
    policy["manual"] = json!(true);
    stage.pipeline("web", policy).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let waits = world.promotion("web/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    receiver.wait("/hook/prod/PromotionPending", 1).await;
    stage.fence("web").await;
    stage.exactly(&[], &[("main", 1)]).await;

    world.approve(&waits).await;
    let (opened, status) = stage.phase("web/prod 2", Phase::Open).await;
    assert!(status.manual);
    let pulls = repository.pulls("all").await;
    assert_eq!(pulls.len(), 1, "{pulls:#?}");
    let request = status.pull_request.clone().unwrap();
    assert_eq!(pulls[0]["number"], request.number);
    assert_eq!(pulls[0]["html_url"].as_str(), request.url.as_deref());
    assert_eq!((status.attempts, status.succeeded, status.location.as_deref()), (1, true, request.url.as_deref()));
    let branch = status.commit.clone().unwrap().branch;
    assert!(branch.starts_with("relaybook/prod-2-"), "{branch}");
    let file = repository.file(&branch, FILE).await.unwrap();
    assert_eq!(file, super::release(&world.ns, "web").replace("\"1\"", "\"2\""));
    let mirror = world.mirrored(&opened).await;
    assert_eq!((mirror.location, mirror.succeeded), (request.url.clone(), true));

    repository.merge(u64::try_from(request.number).unwrap(), Style::Merge).await;
    let (_, merged) = stage.phase("web/prod 2", Phase::Merged).await;
    let request = merged.pull_request.unwrap();
    assert_eq!(request.state, PullRequestState::Merged);
    assert_eq!(request.merge_commit, repository.head("main").await);
    world.runs("web/prod", "2").await;
    stage.phase("web/prod 2", Phase::Finished).await;
    world.promotion_fence("web", &["hook"]).await;
    let told = receiver.wait("/hook/prod/PromotionOpened", 1).await[0].json();
    assert_eq!((told["strategy"].as_str(), told["phase"].as_str()), (Some("pullRequest"), Some("Open")));
    let line = "prod 2: Pending, Requested/Opening, Open, Merged/Merged, Finished";
    stage.oracle().promotions("web", &["hook"], &[line]).check().await;
}

#[tokio::test]
async fn a_commit_is_pushed_to_the_branch() {
    let stage = Stage::new("commits-pushed").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_commit(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    let base = repository.head("main").await.unwrap();
    world.runs("web/dev", "2").await;
    let (_, status) = stage.phase("web/prod 2", Phase::Merged).await;
    let commit = status.commit.clone().unwrap();
    assert_eq!((commit.base.as_str(), Some(commit.id.clone())), (base.as_str(), repository.head("main").await));
    assert_eq!((commit.branch.as_str(), status.reason.as_str()), ("main", "Pushed"));
    assert_eq!(repository.file("main", FILE).await.unwrap(), super::release(&world.ns, "web").replace("\"1\"", "\"2\""));
    world.runs("web/prod", "2").await;
    stage.phase("web/prod 2", Phase::Finished).await;
    world.promotion_fence("web", &["hook"]).await;
    stage.oracle().promotions("web", &["hook"], &["prod 2: Requested/Pushing, Merged/Pushed, Finished"]).check().await;
    assert_eq!(repository.commits("main").await.len(), 2);
}
