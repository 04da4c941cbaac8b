//! What does not close a pull request, and what does not open a second one: a deleted Promotion, a suspension, a retry, and an environment
//! that comes to run the revision.

use kube::ResourceExt as _;
use relaybook_api::Promotion;
use relaybook_api::promotion::{Phase, PullRequestState};
use serde_json::json;

use super::exact::Opened;
use super::{Stage, release};
use crate::support::gitea::repository::Style;
use crate::support::proxy::Call;
use crate::support::relaybook::Options;
use crate::support::world::promotions::is_for;
use crate::support::{Fault, Proxy, Relaybook};

#[tokio::test]
async fn the_pull_request_of_a_deleted_promotion_is_found_again() {
    let stage = Stage::new("pulls-deleted").await;
    let Stage { world, receiver, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let Opened { promotion, number, branch } = stage.opened("web/prod 2").await;
    world.mirrored(&promotion).await;
    receiver.wait("/hook/prod/PromotionOpened", 1).await;
    let (code, out, words) = stage.world.command(&["promote", "web", "prod"]).await;
    assert!(code == Some(1) && words.contains(&format!("{} of 2 is Open", promotion.name_any())), "{out}{words}");
    world.delete::<Promotion>(&promotion.name_any()).await;
    stage.fence("web").await;
    assert!(world.promotions().await.is_empty(), "it is not created again");
    let branches = [("main", 1), (branch.as_str(), 2)];
    stage.exactly(&[(&branch, "open")], &branches).await;

    let (code, out, words) = stage.world.command(&["promote", "web", "prod"]).await;
    assert_eq!(code, Some(0), "{out}{words}");
    let again = stage.opened("web/prod 2").await;
    assert_eq!((again.promotion.spec.request, again.number, &again.branch), (1, number, &branch));
    stage.exactly(&[(&branch, "open")], &branches).await;
    repository.merge(number, Style::Merge).await;
    stage.check_now(&again.promotion).await;
    stage.phase("web/prod 2", Phase::Merged).await;
    world.runs("web/prod", "2").await;
    stage.phase("web/prod 2", Phase::Finished).await;
    stage.fence("web").await;
    stage.exactly(&[(&branch, "merged")], &[("main", 3), (&branch, 2)]).await;
    let lines = ["prod 2: Requested/Opening, Open (deleted)", "prod 2: Requested/Opening, Open, Merged/Merged, Finished"];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_suspension_starts_nothing_and_stops_nothing() {
    let stage = Stage::new("pulls-suspended").await;
    let Stage { world, repository, .. } = &stage;
    let policy = stage.by_pull_request(json!({}));
    stage.pipeline("web", policy.clone()).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let Opened { promotion, number, branch } = stage.opened("web/prod 2").await;
    let mut suspended = policy.clone();
    suspended["suspend"] = json!(true);
    world.set_policy("web/prod", suspended).await;
    world.settled().await;
    repository.merge(number, Style::Rebase).await;
    stage.check_now(&promotion).await;
    stage.phase("web/prod 2", Phase::Merged).await;
    world.runs("web/prod", "2").await;
    stage.phase("web/prod 2", Phase::Finished).await;
    world.runs("web/dev", "3").await;
    world.promotion_pending("web", Some("Suspended")).await;
    stage.fence("web").await;
    stage.exactly(&[(&branch, "merged")], &[("main", 2), (&branch, 2)]).await;
    world.set_policy("web/prod", policy).await;
    let three = stage.opened("web/prod 3").await;
    stage.fence("web").await;
    let branches = [("main", 2), (branch.as_str(), 2), (&three.branch, 3)];
    stage.exactly(&[(&branch, "merged"), (&three.branch, "open")], &branches).await;
    let lines = ["prod 2: Requested/Opening, Open, Merged/Merged, Finished", "prod 3: Requested/Opening, Open"];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}

/// Returns whether a call writes that a target of `prod` is in progress.
fn tries(call: &Call) -> bool {
    let operations = call.json();
    let environments = operations.as_array().into_iter().flatten().filter(|op| op["path"] == "/status/environments");
    let environments = environments.filter_map(|op| op["value"].as_array()).flatten().filter(|e| e["name"] == "prod");
    let mut targets = environments.filter_map(|e| e["targets"].as_array()).flatten();
    call.is_pipeline_status() && targets.any(|target| target["status"] == "InProgress")
}

#[tokio::test]
async fn a_merge_is_recorded_when_the_environment_runs_the_revision_before_a_check() {
    let stage = Stage::new("pulls-unseen-merge").await;
    let Stage { world, repository, .. } = &stage;
    // Only the change of the environment causes a check.
    stage.pipeline("web", stage.by_pull_request(json!({"interval": "1h"}))).await;
    let proxy = Proxy::start(&world.kubeconfig, "pulls-unseen-merge").await;
    let through = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(world) };
    let _relaybook = Relaybook::with(world, through).await;
    world.settled().await;
    world.runs("web/dev", "2").await;
    let Opened { promotion, number, branch } = stage.opened("web/prod 2").await;
    world.mirrored(&promotion).await;
    repository.merge(number, Style::Merge).await;
    // The environment is never seen while it only tries the revision.
    let rule = proxy.rule(tries, Fault::LoseRequest);
    world.ship("web-prod", "2").await;
    let (finished, status) = stage.phase("web/prod 2", Phase::Finished).await;
    proxy.remove(rule);
    let request = status.pull_request.unwrap();
    assert_eq!((request.state, request.merge_commit), (PullRequestState::Merged, repository.head("main").await));
    assert_eq!(world.mirrored(&finished).await.pull_request_state, Some(PullRequestState::Merged));
    stage.fence("web").await;
    assert!(repository.comments(number).await.is_empty());
    stage.exactly(&[(&branch, "merged")], &[("main", 3), (&branch, 2)]).await;
    let line = "prod 2: Requested/Opening, Open, Finished/Running";
    stage.oracle().promotions("web", &["hook"], &[line]).check().await;
}

#[tokio::test]
async fn a_retry_after_the_timeout_of_a_merged_promotion_opens_no_second_pull_request() {
    let stage = Stage::new("pulls-overdue").await;
    let Stage { world, receiver, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let Opened { promotion, number, branch } = stage.opened("web/prod 2").await;
    repository.merge(number, Style::Merge).await;
    stage.check_now(&promotion).await;
    let (merged, _) = stage.phase("web/prod 2", Phase::Merged).await;
    world.mirrored(&merged).await;
    stage.world.grow_old(&merged).await;
    let failed = world.promotion("web/prod 2", is_for(Phase::Failed, "NotRunning")).await.status.unwrap();
    assert!(failed.message.contains("web-prod") && failed.message.contains("runs 1"), "{}", failed.message);
    receiver.wait("/hook/prod/PromotionFailed", 1).await;
    let again = stage.retry("web/prod 2", "1", Phase::Merged).await.status.unwrap();
    assert_eq!((again.reason.as_str(), again.pull_request), ("AlreadyDeclared", None));
    world.runs("web/prod", "2").await;
    stage.phase("web/prod 2", Phase::Finished).await;
    stage.fence("web").await;
    stage.exactly(&[(&branch, "merged")], &[("main", 3), (&branch, 2)]).await;
    let line = "prod 2: Requested/Opening, Open, Merged/Merged, Failed/NotRunning, Requested/Opening, \
                Merged/AlreadyDeclared, Finished";
    stage.oracle().promotions("web", &["hook"], &[line]).check().await;
}

#[tokio::test]
async fn an_edit_of_the_strategy_counts_for_the_next_promotion() {
    let stage = Stage::new("pulls-moved").await;
    let Stage { world, repository, bot, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let two = stage.opened("web/prod 2").await;
    let other = bot.repository("other", &[("prod.yaml", &release(&world.ns, "web"))]).await;
    world.set_policy("web/prod", stage.by_pull_request(json!({"url": other.url()}))).await;
    world.settled().await;
    repository.merge(two.number, Style::Merge).await;
    stage.check_now(&two.promotion).await;
    stage.phase("web/prod 2", Phase::Merged).await;
    world.runs("web/prod", "2").await;
    stage.phase("web/prod 2", Phase::Finished).await;
    world.runs("web/dev", "3").await;
    let three = stage.opened("web/prod 3").await;
    let pulls = other.pulls("all").await;
    assert_eq!((pulls.len(), &pulls[0]["head"]["ref"], &pulls[0]["state"]), (1, &json!(three.branch), &json!("open")));
    assert_eq!(pulls[0]["html_url"].as_str(), three.promotion.status.unwrap().location.as_deref());
    stage.fence("web").await;
    stage.exactly(&[(&two.branch, "merged")], &[("main", 3), (&two.branch, 2)]).await;
    let lines = ["prod 2: Requested/Opening, Open, Merged/Merged, Finished", "prod 3: Requested/Opening, Open"];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}
