//! Two pipelines whose values are in one file of one repository.

use pennant::api::promotion::Phase;
use serde_json::json;

use super::{FILE, Stage};

fn both(ns: &str, web: &str, api: &str) -> String {
    let line = |name: &str, value: &str| format!("{name}: \"{value}\" # {{\"$promotion\": \"{ns}:{name}:prod\"}}\n");
    line("web", web) + &line("api", api)
}

#[tokio::test]
async fn promotions_of_two_pipelines_at_the_same_time_undo_nothing() {
    let stage = Stage::new("commits-beside").await;
    let Stage { world, repository, .. } = &stage;
    repository.commit("main", "both", &[(FILE, Some(&both(&world.ns, "1", "1")))]).await;
    for name in ["web", "api"] {
        stage.pipeline(name, stage.by_commit(json!({}))).await;
    }
    let _pennant = stage.pennant().await;
    let revisions = ["2", "3", "4"];
    for revision in revisions {
        tokio::join!(world.runs("web/dev", revision), world.runs("api/dev", revision));
        for name in ["web", "api"] {
            stage.phase(&format!("{name}/prod {revision}"), Phase::Merged).await;
        }
        assert_eq!(repository.file("main", FILE).await.unwrap(), both(&world.ns, revision, revision));
        tokio::join!(world.runs("web/prod", revision), world.runs("api/prod", revision));
        for name in ["web", "api"] {
            stage.phase(&format!("{name}/prod {revision}"), Phase::Finished).await;
        }
    }
    stage.fence("web").await;
    stage.fence("api").await;
    // One commit for each promotion, after the first two.
    stage.exactly(&[], &[("main", 2 + 2 * revisions.len())]).await;
    let lines = revisions.map(|revision| format!("prod {revision}: Requested/Pushing, Merged/Pushed, Finished"));
    let lines = lines.each_ref().map(String::as_str);
    stage.oracle().promotions("web", &["hook"], &lines).promotions("api", &["hook"], &lines).check().await;
}
