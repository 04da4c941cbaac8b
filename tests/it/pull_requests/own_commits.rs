//! The commits of promotions are not promoted again, although the environment before reads the same repository.

use relaybook_api::promotion::Phase;
use serde_json::json;

use super::exact::Opened;
use super::{FILE, Stage, release};
use crate::support::gitea::repository::Style;

#[tokio::test]
async fn a_merge_commit_of_a_promotion_is_not_promoted() {
    let stage = Stage::new("pulls-own").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    let first = format!("main-{}", repository.head("main").await.unwrap());
    world.runs("web/dev", &first).await;
    let Opened { promotion, number, branch } = stage.opened(&format!("web/prod {first}")).await;
    assert!(branch.starts_with("relaybook/prod-main-"), "{branch}");
    repository.merge(number, Style::Merge).await;
    stage.check_now(&promotion).await;
    stage.phase(&format!("web/prod {first}"), Phase::Merged).await;

    // Dev reads the same branch, so the bump of prod is a new revision of dev. A squash or rebase would be one, too.
    let bump = format!("main-{}", repository.head("main").await.unwrap());
    world.runs("web/dev", &bump).await;
    stage.fence("web").await;
    // It replaces nothing, so the environment can still come to run the first one.
    stage.phase(&format!("web/prod {first}"), Phase::Merged).await;
    world.runs("web/prod", &first).await;
    stage.phase(&format!("web/prod {first}"), Phase::Finished).await;
    let pending = world.promotion_pending("web", Some("OwnCommit")).await.expect("it is present");
    assert!(pending.message.contains("dev") && pending.message.contains("prod"), "{}", pending.message);
    // Also the commit that was pushed, which is in main after a rebase.
    world.runs("web/dev", &format!("main-{}", repository.head(&branch).await.unwrap())).await;
    stage.fence("web").await;
    world.promotion_pending("web", Some("OwnCommit")).await;
    assert_eq!(world.promotions().await.len(), 1);
    stage.exactly(&[(&branch, "merged")], &[("main", 3), (&branch, 2)]).await;

    // A commit of a person is promoted.
    let next = format!("main-{}", repository.commit("main", "by a person", &[("README.md", Some("# next\n"))]).await);
    world.runs("web/dev", &next).await;
    let second = stage.opened(&format!("web/prod {next}")).await;
    let expected = release(&world.ns, "web").replace("\"1\"", &format!("\"{next}\""));
    assert_eq!(repository.file(&second.branch, FILE).await.unwrap(), expected);
    stage.fence("web").await;
    let branches = [("main", 4), (branch.as_str(), 2), (&second.branch, 5)];
    stage.exactly(&[(&branch, "merged"), (&second.branch, "open")], &branches).await;
    let lines = [
        format!("prod {first}: Requested/Opening, Open, Merged/Merged, Finished"),
        format!("prod {next}: Requested/Opening, Open"),
    ];
    stage.oracle().promotions("web", &["hook"], &lines.each_ref().map(String::as_str)).check().await;
}

#[tokio::test]
async fn a_pushed_commit_of_a_promotion_is_not_promoted() {
    let stage = Stage::new("commits-own").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_commit(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    let first = format!("main-{}", repository.head("main").await.unwrap());
    world.runs("web/dev", &first).await;
    stage.phase(&format!("web/prod {first}"), Phase::Merged).await;
    world.runs("web/dev", &format!("main-{}", repository.head("main").await.unwrap())).await;
    stage.fence("web").await;
    stage.phase(&format!("web/prod {first}"), Phase::Merged).await;
    world.runs("web/prod", &first).await;
    stage.phase(&format!("web/prod {first}"), Phase::Finished).await;
    world.promotion_pending("web", Some("OwnCommit")).await;
    stage.exactly(&[], &[("main", 2)]).await;
    let line = format!("prod {first}: Requested/Pushing, Merged/Pushed, Finished");
    stage.oracle().promotions("web", &["hook"], &[&line]).check().await;
}
