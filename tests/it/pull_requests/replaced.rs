//! Promotions that are not needed any more while their pull request is open: it is closed, and its branch is deleted, but never what people did.

use relaybook_api::Pipeline;
use relaybook_api::promotion::{Phase, PullRequestState};
use relaybook_forge::text::{Promoted, withdrawn};
use serde_json::{Value, json};

use super::exact::Opened;
use super::{Stage, release};
use crate::support::gitea::repository::Style;
use crate::support::world::promotions::is_for;

#[tokio::test]
async fn a_later_revision_closes_the_pull_request_and_keeps_the_commits_of_people() {
    let stage = Stage::new("pulls-superseded").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let two = stage.opened("web/prod 2").await;
    world.runs("web/dev", "3").await;
    let three = stage.opened("web/prod 3").await;
    let gone = world.promotion("web/prod 2", is_for(Phase::Withdrawn, "Superseded")).await;
    let status = gone.status.unwrap();
    assert_eq!((status.withdrawing, status.pull_request.unwrap().state), (None, PullRequestState::Abandoned));
    let why = status.steps.last().unwrap().message.clone();
    let promoted = Promoted { environment: "prod", revision: "2", ..Promoted::default() };
    assert_eq!(repository.comments(two.number).await, [withdrawn(&promoted, &why)]);
    stage.exactly(&[(&two.branch, "closed"), (&three.branch, "open")], &[("main", 1), (&three.branch, 2)]).await;

    // Somebody works on the branch.
    repository.commit(&three.branch, "by a person", &[("README.md", Some("# changed\n"))]).await;
    world.runs("web/dev", "4").await;
    let four = stage.opened("web/prod 4").await;
    world.promotion("web/prod 3", is_for(Phase::Withdrawn, "Superseded")).await;
    stage.fence("web").await;
    assert_eq!(repository.comments(three.number).await.len(), 1);
    let pulls = [(two.branch.as_str(), "closed"), (&three.branch, "closed"), (&four.branch, "open")];
    stage.exactly(&pulls, &[("main", 1), (&three.branch, 3), (&four.branch, 2)]).await;
    let withdrawn = |revision: &str| format!("prod {revision}: Requested/Opening, Open, Withdrawn/Superseded");
    let lines = [withdrawn("2"), withdrawn("3"), "prod 4: Requested/Opening, Open".to_owned()];
    stage.oracle().promotions("web", &["hook"], &lines.each_ref().map(String::as_str)).check().await;
}

#[tokio::test]
async fn a_pull_request_that_a_person_merges_during_its_withdrawal_stays() {
    let stage = Stage::new("pulls-merged-late").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({"interval": "1h"}))).await;
    let mut relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let two = stage.opened("web/prod 2").await;
    world.mirrored(&two.promotion).await;
    relaybook.kill9();
    repository.merge(two.number, Style::Merge).await;
    world.ship("web-dev", "3").await;
    relaybook.start_again().await;
    world.observed_at("web", "3", &["web-dev"]).await;
    let three = stage.opened("web/prod 3").await;
    let replaced = world.promotion("web/prod 2", is_for(Phase::Withdrawn, "Superseded")).await.status.unwrap();
    let request = replaced.pull_request.unwrap();
    assert_eq!((request.state, request.merge_commit.is_some()), (PullRequestState::Merged, true));
    assert!(repository.comments(two.number).await.is_empty(), "nothing is said about a merged one");
    stage.fence("web").await;
    let branches = [("main", 3), (two.branch.as_str(), 2), (&three.branch, 4)];
    stage.exactly(&[(&two.branch, "merged"), (&three.branch, "open")], &branches).await;
    let lines = ["prod 2: Requested/Opening, Open, Merged/Merged, Withdrawn/Superseded", "prod 3: Requested/Opening, Open"];
    stage.oracle().after_a_crash().promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_pull_request_is_closed_with_its_environment_or_its_strategy_and_not_with_its_pipeline() {
    let stage = Stage::new("pulls-removed").await;
    let Stage { world, repository, .. } = &stage;
    let files = ["gone", "off", "deleted"].map(|name| (format!("apps/{name}.yaml"), release(&world.ns, name)));
    let files = files.each_ref().map(|(path, text)| (path.as_str(), Some(text.as_str())));
    repository.commit("main", "more", &files).await;
    for name in ["gone", "off", "deleted"] {
        stage.pipeline(name, stage.by_pull_request(json!({}))).await;
    }
    let _relaybook = stage.relaybook().await;
    world.runs("gone/dev", "2").await;
    let gone = stage.opened("gone/prod 2").await;
    world.runs("off/dev", "2").await;
    let off = stage.opened("off/prod 2").await;
    world.runs("deleted/dev", "2").await;
    let deleted = stage.opened("deleted/prod 2").await;
    world.mirrored(&deleted.promotion).await;
    stage.receiver.wait("/hook/prod/PromotionOpened", 3).await;

    let mut environments = serde_json::to_value(world.get_pipeline("gone").await.spec.environments).unwrap();
    environments.as_array_mut().unwrap().retain(|e| e["name"] != "prod");
    world.patch::<Pipeline>("gone", json!({"spec": {"environments": environments}})).await;
    world.promotion("gone/prod 2", is_for(Phase::Withdrawn, "EnvironmentGone")).await;
    world.set_policy("off/prod", Value::Null).await;
    world.promotion("off/prod 2", is_for(Phase::Withdrawn, "NoStrategy")).await;
    // Nobody knows any more how the pull request of a deleted pipeline was to be closed.
    world.delete::<Pipeline>("deleted").await;
    world.promotion("deleted/prod 2", is_for(Phase::Withdrawn, "PipelineGone")).await;
    for (Opened { number, .. }, comments) in [(&gone, 1), (&off, 1), (&deleted, 0)] {
        assert_eq!(repository.comments(*number).await.len(), comments);
    }
    for name in ["gone", "off"] {
        stage.fence(name).await;
    }
    let pulls = [(gone.branch.as_str(), "closed"), (&off.branch, "closed"), (&deleted.branch, "open")];
    stage.exactly(&pulls, &[("main", 2), (&deleted.branch, 3)]).await;
    stage
        .oracle()
        .promotions("gone", &["hook"], &["prod 2: Requested/Opening, Open, Withdrawn/EnvironmentGone"])
        .promotions("off", &["hook"], &["prod 2: Requested/Opening, Open, Withdrawn/NoStrategy"])
        .promotions("deleted", &["hook"], &["prod 2: Requested/Opening, Open, Withdrawn/PipelineGone"])
        .check()
        .await;
}
