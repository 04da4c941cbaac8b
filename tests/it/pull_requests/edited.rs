//! Pull requests that people edit, open again, or that belonged to an earlier Promotion of the same occasion: Relaybook follows them, and closes
//! them with their branch.

use kube::ResourceExt as _;
use relaybook_api::Promotion;
use relaybook_api::promotion::{Phase, RETRY};
use serde_json::json;

use super::Stage;
use super::exact::Opened;
use crate::support::gitea::repository::Style;
use crate::support::world::promotions::{is, is_for};

#[tokio::test]
async fn a_pull_request_with_another_title_and_description_is_still_followed() {
    let stage = Stage::new("pulls-rewritten").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let mut relaybook = stage.relaybook().await;
    let rewritten = json!({"title": "Please review", "body": "Rewritten by a person."});
    world.runs("web/dev", "2").await;
    let two = stage.opened("web/prod 2").await;
    repository.edit(two.number, rewritten.clone()).await;
    stage.check_now(&two.promotion).await;
    world.runs("web/dev", "3").await;
    let three = stage.opened("web/prod 3").await;
    world.promotion("web/prod 2", is_for(Phase::Withdrawn, "Superseded")).await;
    assert_eq!(repository.comments(two.number).await.len(), 1, "it was found, and closed with a comment");
    repository.edit(three.number, rewritten).await;
    relaybook.restart().await;
    world.settled().await;
    stage.check_now(&three.promotion).await;
    stage.fence("web").await;
    stage.phase("web/prod 3", Phase::Open).await;
    repository.merge(three.number, Style::Merge).await;
    stage.check_now(&three.promotion).await;
    stage.phase("web/prod 3", Phase::Merged).await;
    stage.fence("web").await;
    let pulls = [(two.branch.as_str(), "closed"), (&three.branch, "merged")];
    stage.exactly(&pulls, &[("main", 3), (&three.branch, 2)]).await;
    let lines = ["prod 2: Requested/Opening, Open, Withdrawn/Superseded", "prod 3: Requested/Opening, Open, Merged/Merged"];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_retry_takes_over_a_pull_request_that_a_person_opened_again() {
    let stage = Stage::new("pulls-reopened").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let two = stage.opened("web/prod 2").await;
    repository.close(two.number).await;
    stage.check_now(&two.promotion).await;
    stage.phase("web/prod 2", Phase::Closed).await;
    repository.reopen(two.number).await;
    let again = Opened::of(stage.retry("web/prod 2", "1", Phase::Open).await);
    assert_eq!((again.number, &again.branch), (two.number, &two.branch));
    // The same value counts once.
    world.annotate_promotion(&again.promotion, RETRY, "1").await;
    stage.exactly(&[(&two.branch, "open")], &[("main", 1), (&two.branch, 2)]).await;

    // Its branch is Relaybook's own, and is deleted with it.
    world.runs("web/dev", "3").await;
    let three = stage.opened("web/prod 3").await;
    world.promotion("web/prod 2", is(Phase::Withdrawn)).await;
    stage.fence("web").await;
    let pulls = [(two.branch.as_str(), "closed"), (&three.branch, "open")];
    stage.exactly(&pulls, &[("main", 1), (&three.branch, 2)]).await;
    let lines = [
        "prod 2: Requested/Opening, Open, Closed/Closed, Requested/Opening, Open, Withdrawn/Superseded",
        "prod 3: Requested/Opening, Open",
    ];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn the_branch_of_a_promotion_that_was_deleted_and_started_again_is_deleted_with_it() {
    let stage = Stage::new("pulls-again").await;
    let Stage { world, receiver, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let two = stage.opened("web/prod 2").await;
    world.mirrored(&two.promotion).await;
    receiver.wait("/hook/prod/PromotionOpened", 1).await;
    world.delete::<Promotion>(&two.promotion.name_any()).await;
    stage.fence("web").await;
    let (code, out, words) = stage.world.command(&["promote", "web", "prod"]).await;
    assert_eq!(code, Some(0), "{out}{words}");
    let again = stage.opened("web/prod 2").await;
    assert_eq!((again.number, &again.branch), (two.number, &two.branch));
    world.runs("web/dev", "3").await;
    let three = stage.opened("web/prod 3").await;
    world.promotion("web/prod 2", is(Phase::Withdrawn)).await;
    stage.fence("web").await;
    let pulls = [(two.branch.as_str(), "closed"), (&three.branch, "open")];
    stage.exactly(&pulls, &[("main", 1), (&three.branch, 2)]).await;
    let lines = [
        "prod 2: Requested/Opening, Open (deleted)",
        "prod 2: Requested/Opening, Open, Withdrawn/Superseded",
        "prod 3: Requested/Opening, Open",
    ];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}
