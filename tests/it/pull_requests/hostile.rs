//! Revisions that attack: each is refused, or is only a text in a value, a commit message, and a pull request.

use kube::ResourceExt as _;
use pennant::api::Promotion;
use pennant::api::promotion::Phase;
use pennant::forge::text;
use serde_json::{Value, json};

use super::edits::promoted;
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
    let _pennant = stage.pennant().await;
    let (before, mut seen, mut branches) = (release(&world.ns, "web"), Vec::new(), Vec::new());
    let long = "x".repeat(300);
    for tag in ["\"; rm -rf", "*x", "!!python", "--> <!-- x", "fixes #1", long.as_str()] {
        let promotion = stage.promoted_or_failed(tag, &mut seen).await;
        let revision = promotion.spec.revision.clone();
        if tag == long {
            assert!(revision.len() == 256 && revision.starts_with(&tag[..200]), "{revision}");
        } else {
            assert_eq!(revision, tag);
        }
        assert_eq!(promotion.status.as_ref().unwrap().phase, Some(Phase::Open), "{promotion:#?}");
        let Opened { number, branch, .. } = Opened::of(promotion.clone());
        let slug = branch.strip_prefix("pennant/prod-").unwrap();
        assert!(slug.bytes().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{branch}");
        // The file is the same but for one string, whose value is the revision.
        let file = repository.file(&branch, FILE).await.unwrap();
        assert_eq!(file, before.replace("\"1\"", &json!(revision).to_string()));
        let parsed: Value = serde_saphyr::from_str(&file).unwrap();
        assert_eq!(parsed, json!({"spec": {"version": revision, "other": 1}}));
        stage.one_commit(&promotion, &branch, ("Pennant", "pennant@example.invalid"), &[FILE]).await;
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
