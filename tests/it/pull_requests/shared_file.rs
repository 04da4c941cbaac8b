//! Two pipelines whose values are in one file of one repository.

use relaybook_api::promotion::Phase;
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
    let _relaybook = stage.relaybook().await;
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

/// Revisions are commits of the repository into which both pipelines promote. So each promotion is a new revision of both.
#[tokio::test]
async fn pipelines_do_not_promote_the_commits_of_each_other() {
    let stage = Stage::new("commits-of-others").await;
    let Stage { world, repository, .. } = &stage;
    let of_person = async |name: &str| {
        let id = repository.commit("main", name, &[(name, Some(name))]).await;
        format!("main-{id}")
    };
    let head = async || format!("main-{}", repository.head("main").await.unwrap());
    let run = async |environment: &str, web: &str, api: &str| {
        let [of_web, of_api] = ["web", "api"].map(|name| format!("{name}/{environment}"));
        tokio::join!(world.runs(&of_web, web), world.runs(&of_api, api));
    };
    repository.commit("main", "both", &[(FILE, Some(&both(&world.ns, "1", "1")))]).await;
    for name in ["web", "api"] {
        stage.pipeline(name, stage.by_commit(json!({}))).await;
    }
    let _relaybook = stage.relaybook().await;
    let mut lines = Vec::new();
    for name in ["a", "b"] {
        let new = of_person(name).await;
        run("dev", &new, &new).await;
        for name in ["web", "api"] {
            stage.phase(&format!("{name}/prod {new}"), Phase::Merged).await;
        }
        run("prod", &new, &new).await;
        for name in ["web", "api"] {
            stage.phase(&format!("{name}/prod {new}"), Phase::Finished).await;
        }
        assert_eq!(repository.file("main", FILE).await.unwrap(), both(&world.ns, &new, &new));
        let commits = head().await;
        run("dev", &commits, &commits).await;
        lines.push(new);
    }
    // One of them sees the commit of a person only below that of the other. This is more than it has promoted.
    let new = of_person("c").await;
    world.runs("web/dev", &new).await;
    stage.phase(&format!("web/prod {new}"), Phase::Merged).await;
    let above = head().await;
    world.runs("api/dev", &above).await;
    stage.phase(&format!("api/prod {above}"), Phase::Merged).await;
    run("prod", &new, &above).await;
    stage.phase(&format!("web/prod {new}"), Phase::Finished).await;
    stage.phase(&format!("api/prod {above}"), Phase::Finished).await;
    assert_eq!(repository.file("main", FILE).await.unwrap(), both(&world.ns, &new, &above));
    let last = head().await;
    run("dev", &last, &last).await;

    stage.fence("web").await;
    stage.fence("api").await;
    // Two from the beginning, three of a person, and one for each promotion.
    stage.exactly(&[], &[("main", 2 + 3 + 6)]).await;
    let line = |revision: &String| format!("prod {revision}: Requested/Pushing, Merged/Pushed, Finished");
    let of = |last: &String| lines.iter().chain([last]).map(line).collect::<Vec<_>>();
    let (web, api) = (of(&new), of(&above));
    let (web, api): (Vec<&str>, Vec<&str>) =
        (web.iter().map(String::as_str).collect(), api.iter().map(String::as_str).collect());
    stage.oracle().promotions("web", &["hook"], &web).promotions("api", &["hook"], &api).check().await;
}
