//! Promotions that people create themselves: only what the controller would accept is carried out, and nothing reaches the pipeline of
//! another team.

use kube::ResourceExt as _;
use kube::api::PostParams;
use relaybook_api::promotion::{Phase, PromotedPipeline};
use relaybook_api::{Promotion, PromotionSpec};
use serde_json::json;

use super::Stage;
use crate::support::relaybook::Options;
use crate::support::world::promotions::{by_notification, is_for};
use crate::support::{Oracle, Relaybook, eventually};

#[tokio::test]
async fn a_promotion_that_is_not_indicated_is_refused_with_a_reason() {
    let stage = Stage::new("promotions-forged").await;
    let world = &stage.world;
    stage.pipeline("shop", by_notification(json!({"manual": true}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("shop/dev", "2").await;
    let real = world.promotion("shop/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    let hash = real.name_any().trim_start_matches("shop-prod-").split('-').next().unwrap_or_default().to_owned();

    let (name, later) = (real.name_any(), real.spec.occasion + 1000);
    let forge = |name: &str, edit: &dyn Fn(&mut PromotionSpec)| {
        let mut spec = real.spec.clone();
        edit(&mut spec);
        Promotion::new(name, spec)
    };
    let forged = [
        ("prod 2", forge("shop-prod-2", &|_| {})),
        // The name belongs to the occasion, which did not happen.
        ("prod 2", forge(&format!("shop-prod-{hash}-{later}"), &|spec| spec.occasion = later)),
        // A revision that dev does not run.
        (
            "prod 9",
            forge(&format!("shop-prod-{hash}-{}", later + 1), &|spec| {
                (spec.occasion, spec.revision) = (later + 1, "9".to_owned());
            }),
        ),
        // An environment that nothing is promoted to.
        (
            "dev 2",
            forge("shop-dev-0000000000-1", &|spec| {
                (spec.environment, spec.from, spec.occasion) = ("dev".to_owned(), "prod".to_owned(), 1);
            }),
        ),
        // The name of another request.
        ("prod 2", forge(&format!("{name}-r2"), &|spec| spec.request = 1)),
    ];
    for (what, promotion) in &forged {
        world.api::<Promotion>().create(&PostParams::default(), promotion).await.expect("created");
        let name = promotion.name_any();
        let refused = eventually(&format!("{what} {name} is refused"), async || {
            let status = world.api::<Promotion>().get(&name).await.expect("it is kept").status.unwrap_or_default();
            if status.phase == Some(Phase::Withdrawn) { Ok(status) } else { Err(format!("{status:?}")) }
        })
        .await;
        assert_eq!((refused.reason.as_str(), refused.step), ("NotIndicated", 0), "{name}: {}", refused.message);
        assert!(!refused.message.is_empty() && refused.steps.is_empty(), "{refused:?}");
        // An approval of it does nothing.
        world.approve(promotion).await;
    }
    stage.event("shop", "PromotionRejected").await;
    stage.fence("shop").await;
    let waits = world.promotion_status(&real).await;
    assert_eq!((waits.phase, waits.step), (Some(Phase::Pending), 1), "the real one still waits");
    let shown = world.environment("shop/prod").await;
    assert_eq!(shown.waiting_approval.map(|marker| marker.promotion), Some(real.name_any()));
    world.approve(&real).await;
    stage.requested("shop/prod 2").await;
    stage.fence("shop").await;
    let mut lines = vec!["prod 2: Pending, Requested".to_owned()];
    lines.extend(forged.iter().map(|(what, _)| format!("{what}: rejected NotIndicated")));
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().promotions("shop", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_promotion_reaches_no_pipeline_of_another_namespace() {
    let (ours, theirs) = (Stage::new("promotions-team-a").await, Stage::new("promotions-team-b").await);
    for stage in [&ours, &theirs] {
        stage.pipeline("shop", by_notification(json!({"manual": true}))).await;
    }
    let watch = vec![ours.world.ns.clone(), theirs.world.ns.clone()];
    let _relaybook = Relaybook::with(&ours.world, Options { watch, ..Options::of(&ours.world) }).await;
    for stage in [&ours, &theirs] {
        stage.world.settled().await;
        stage.world.runs("shop/dev", "2").await;
    }
    let target = theirs.world.promotion("shop/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    let own = ours.world.promotion("shop/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    // The name and the uid of their pipeline, the name of our pipeline with the uid of theirs, and the other way round.
    let uids = [&target.spec.pipeline_ref.uid, &own.spec.pipeline_ref.uid];
    let mut count = 0;
    for uid in uids {
        for (name, request) in [("shop", 0), ("shop", 1), ("other", 0)] {
            let mut spec = target.spec.clone();
            spec.pipeline_ref = PromotedPipeline { name: name.to_owned(), uid: uid.clone() };
            spec.request = request;
            count += 1;
            let mut forged = Promotion::new(&format!("forged-{count}"), spec);
            if request == 0 && name == "shop" && *uid == target.spec.pipeline_ref.uid {
                // With the name that it has in their namespace.
                forged.metadata.name = target.metadata.name.clone();
            }
            let api = ours.world.api::<Promotion>();
            let name = forged.name_any();
            api.create(&PostParams::default(), &forged).await.expect("created");
            ours.world.approve(&forged).await;
            eventually(&format!("{name} is withdrawn"), async || {
                let status = api.get(&name).await.expect("it is kept").status.unwrap_or_default();
                if status.phase == Some(Phase::Withdrawn) { Ok(()) } else { Err(format!("{status:?}")) }
            })
            .await;
        }
    }
    for stage in [&ours, &theirs] {
        stage.fence("shop").await;
        assert!(stage.receiver.to("/hook/prod/PromotionRequested").is_empty());
        let waits = stage.world.environment("shop/prod").await.promotion.expect("it is in the status");
        assert_eq!((waits.phase, waits.taken), (Phase::Pending, 1));
    }
    Oracle::new(&theirs.world, &theirs.receiver).promotions("shop", &["hook"], &["prod 2: Pending"]).check().await;
    let left = ours.world.promotion_status(&own).await;
    assert_eq!((left.phase, left.step), (Some(Phase::Pending), 1));
}
