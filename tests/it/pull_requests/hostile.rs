//! Revisions that attack: each is refused, or is only a text in a value, a commit message, and a pull request.

use kube::ResourceExt as _;
use kube::api::PostParams;
use relaybook_api::promotion::{Phase, PromotedPipeline};
use relaybook_api::{Promotion, PromotionSpec};
use relaybook_core::promotion::names;
use relaybook_forge::text;
use serde_json::{Value, json};

use super::contents::promoted;
use super::exact::Opened;
use super::{FILE, Stage, release};
use crate::support::eventually;

impl Stage {
    /// Rolls out an image with a hostile tag in dev, and waits until its promotion is open or has failed.
    async fn promoted_or_failed(&self, tag: &str, seen: &mut Vec<String>) -> Promotion {
        self.world.ship("web-dev", tag).await;
        let found = eventually(&format!("the promotion of {tag:?}"), async || {
            let mut all = self.world.promotions().await;
            all.retain(|promotion| !seen.contains(&promotion.name_any()));
            let shown = format!("{all:#?}");
            let is_decided = |p: &Promotion| {
                let phase = p.status.as_ref().and_then(|status| status.phase);
                matches!(phase, Some(Phase::Open | Phase::Failed))
            };
            all.into_iter().find(is_decided).ok_or(shown)
        })
        .await;
        seen.push(found.name_any());
        found
    }
}

#[tokio::test]
async fn a_hostile_revision_is_refused_or_stays_a_text() {
    let stage = Stage::new("pulls-hostile").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    let (before, mut seen, mut branches) = (release(&world.ns, "web"), Vec::new(), Vec::new());
    for tag in ["\"; rm -rf", "*x", "!!python", "--> <!-- x", "fixes #1"] {
        let promotion = stage.promoted_or_failed(tag, &mut seen).await;
        let revision = promotion.spec.revision.clone();
        assert_eq!(revision, tag);
        assert_eq!(promotion.status.as_ref().unwrap().phase, Some(Phase::Open), "{promotion:#?}");
        let Opened { number, branch, .. } = Opened::of(promotion.clone());
        let slug = branch.strip_prefix("relaybook/prod-").unwrap();
        assert!(slug.bytes().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{branch}");
        // The file is the same but for one string, whose value is the revision.
        let file = repository.file(&branch, FILE).await.unwrap();
        assert_eq!(file, before.replace("\"1\"", &json!(revision).to_string()));
        let parsed: Value = serde_saphyr::from_str(&file).unwrap();
        assert_eq!(parsed, json!({"spec": {"version": revision, "other": 1}}));
        stage.one_commit(&promotion, &branch, ("Relaybook", "relaybook@example.invalid"), &[FILE]).await;
        let pull = repository.pull(number).await;
        let (promoted, title, body) = (promoted(&promotion), pull["title"].as_str(), pull["body"].as_str());
        assert_eq!((title, body), (Some(text::title(&promoted).as_str()), Some(text::body(&promoted).as_str())));
        assert!(
            body.is_some_and(|body| body.matches("-->").count() == 1) && title.is_some_and(|title| !title.contains('#'))
        );
        branches.push(branch);
    }
    for tag in ["1\u{200f}2", "\u{202e}21", "1\n- evil: true"] {
        let promotion = stage.promoted_or_failed(tag, &mut seen).await;
        let status = promotion.status.clone().unwrap();
        assert_eq!((status.phase, status.reason.as_str()), (Some(Phase::Failed), "RevisionNotSettable"), "{promotion:#?}");
        let is_visible = |c: char| c >= ' ' && !['\u{200f}', '\u{202e}'].contains(&c);
        assert!(status.message.chars().all(is_visible), "{:?}", status.message);
        assert_eq!((status.pull_request, status.commit), (None, None));
    }
    stage.fence("web").await;
    assert_eq!(world.promotions().await.len(), seen.len());
    // Each revision has replaced the one before it.
    let pulls: Vec<_> = branches.iter().map(|branch| (branch.as_str(), "closed")).collect();
    stage.exactly(&pulls, &[("main", 1)]).await;
    stage.oracle().any_promotions("web", &["hook"]).check().await;
}

/// Nothing ever ran the text that Relaybook keeps of a long revision.
#[tokio::test]
async fn a_revision_that_was_cut_is_never_promoted() {
    let stage = Stage::new("pulls-cut").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_commit(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    let long = format!("{}-{}", "1.2.3-".repeat(79), "build.41");
    world.ship("web-dev", &long).await;
    let pending = world.promotion_pending("web", Some("RevisionNotSettable")).await.expect("it is present");
    assert!(pending.message.contains("revisionPath"), "{}", pending.message);
    let dev = world.environment("web/dev").await.settled.expect("a state");
    assert!(dev.revision.len() == 256 && dev.revision.starts_with(&long[..200]), "{}", dev.revision);
    let (code, out, words) = world.command(&["promote", "web", "prod"]).await;
    assert!(code == Some(1) && words.contains("revisionPath"), "{out}{words}");

    // Somebody else creates the object that Relaybook does not create.
    let pipeline = world.get_pipeline("web").await;
    let spec = PromotionSpec {
        pipeline_ref: PromotedPipeline { name: "web".to_owned(), uid: pipeline.uid().expect("a uid") },
        environment: "prod".to_owned(),
        from: "dev".to_owned(),
        revision: dev.revision.clone(),
        previous: None,
        occasion: dev.reached,
        request: 0,
        approved: false,
    };
    let forged = Promotion::new(&names::name(&spec), spec);
    world.api::<Promotion>().create(&PostParams::default(), &forged).await.expect("created");
    let refused = eventually("it is refused", async || {
        let status = world.api::<Promotion>().get(&forged.name_any()).await.expect("it is kept").status.unwrap_or_default();
        if status.phase.is_some_and(Phase::is_ended) { Ok(status) } else { Err(format!("{status:?}")) }
    })
    .await;
    assert_eq!((refused.phase, refused.reason.as_str()), (Some(Phase::Withdrawn), "RevisionNotSettable"), "{refused:?}");
    stage.fence("web").await;
    stage.exactly(&[], &[("main", 1)]).await;
    assert_eq!(repository.file("main", FILE).await.unwrap(), release(&world.ns, "web"));

    // A shorter one is promoted as always.
    world.runs("web/dev", "2").await;
    stage.phase("web/prod 2", Phase::Merged).await;
    assert_eq!(repository.file("main", FILE).await.unwrap(), release(&world.ns, "web").replace("\"1\"", "\"2\""));
    stage.fence("web").await;
    let lines = [
        format!("prod {}: rejected RevisionNotSettable", dev.revision),
        "prod 2: Requested/Pushing, Merged/Pushed".to_owned(),
    ];
    stage.oracle().promotions("web", &["hook"], &lines.each_ref().map(String::as_str)).check().await;
}
