//! A promotion that requires an approval waits for it. Only who may patch it can give the approval, and nobody can take it back.

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use relaybook_api::Promotion;
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::promotion::Phase;
use serde_json::{Value, json};

use super::Stage;
use crate::support::chart::{Account, answer, run};
use crate::support::world::promotions::{by_notification, is_for};
use crate::support::{World, control_plane, eventually};

fn manual() -> Value {
    by_notification(json!({"manual": true}))
}

#[tokio::test]
async fn a_promotion_waits_for_its_approval_and_continues_at_once() {
    let stage = Stage::new("promotions-manual").await;
    let Stage { world, receiver, .. } = &stage;
    stage.pipeline("shop", manual()).await;
    let mut relaybook = stage.relaybook().await;
    let (code, _, words) = stage.world.command(&["approve", "shop", "prod"]).await;
    assert!(code == Some(1) && words.contains("prod"), "nothing waits yet: {words}");

    world.runs("shop/dev", "2").await;
    let waits = world.promotion("shop/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    receiver.wait("/hook/prod/PromotionPending", 1).await;
    let marker = world.environment("shop/prod").await.waiting_approval.expect("the marker is there");
    let pending = waits.status.as_ref().map(|s| s.steps[0].time);
    assert_eq!((marker.revision.as_str(), Some(marker.since)), ("2", pending));
    assert_eq!((Some(marker.promotion), Some(marker.promotion_uid)), (waits.metadata.name.clone(), waits.metadata.uid));
    let condition = world.promotion_pending("shop", Some("WaitingApproval")).await.expect("it is present");
    assert!(condition.status == ConditionStatus::True && condition.message.contains("prod"), "{condition:?}");
    stage.fence("shop").await;
    assert!(receiver.to("/hook/prod/PromotionRequested").is_empty());

    let (code, out, words) = stage.world.command(&["approve", "shop", "prod"]).await;
    assert!(code == Some(0) && out.contains(&waits.metadata.name.unwrap()), "{out}{words}");
    let requested = stage.requested("shop/prod 2").await;
    let status = requested.status.unwrap();
    assert!(status.manual && status.approval.as_ref().is_some_and(|a| a.time >= marker.since), "{:?}", status.approval);
    receiver.wait("/hook/prod/PromotionRequested", 1).await;
    eventually("the marker is gone", async || {
        let marker = world.environment("shop/prod").await.waiting_approval;
        marker.map_or(Ok(()), |marker| Err(format!("{marker:?}")))
    })
    .await;
    world.runs("shop/prod", "2").await;
    stage.finished("shop/prod 2").await;

    // An approval is also noticed at the next start. The request is not sent while Relaybook is down.
    world.runs("shop/dev", "3").await;
    let waits = world.promotion("shop/prod 3", is_for(Phase::Pending, "WaitingApproval")).await;
    receiver.wait("/hook/prod/PromotionPending", 2).await;
    relaybook.stop().await;
    world.approve(&waits).await;
    relaybook.start_again().await;
    stage.requested("shop/prod 3").await;
    stage.fence("shop").await;
    let lines = ["prod 2: Pending, Requested, Finished", "prod 3: Pending, Requested"];
    stage.oracle().promotions("shop", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn the_pipeline_decides_what_a_promotion_requires_until_it_is_requested() {
    let stage = Stage::new("promotions-decides").await;
    let world = &stage.world;
    stage.pipeline("shop", manual()).await;
    let _relaybook = stage.relaybook().await;
    world.runs("shop/dev", "2").await;
    let waits = world.promotion("shop/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;

    let api = world.api::<Promotion>();
    let mut approved = Promotion::new("approved", waits.spec.clone());
    approved.spec.approved = true;
    let refused = api.create(&PostParams::default(), &approved).await.expect_err("approved at its creation").to_string();
    assert!(refused.contains("cannot be approved when it is created"), "{refused}");
    let edit = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        let strict = PatchParams::default().validation_strict();
        api.patch(&waits.name_any(), &strict, &patch).await.map(drop).map_err(|e| e.to_string())
    };
    let foreign = json!({"strategy": {"notification": {}}});
    for (spec, words) in [
        (json!({"revision": "9"}), "only spec.approved"),
        (json!({"occasion": 9}), "only spec.approved"),
        (json!({"environment": "dev"}), "only spec.approved"),
        (json!({"request": 1}), "only spec.approved"),
        (json!({"pipelineRef": {"uid": "other"}}), "only spec.approved"),
        (json!({"manual": false}), "unknown field"),
        (foreign, "unknown field"),
    ] {
        let refused = edit(spec.clone()).await.expect_err("refused");
        assert!(refused.contains(words), "{spec}: {refused}");
    }

    // The requirement is removed from the pipeline.
    world.set_policy("shop/prod", by_notification(json!({}))).await;
    let requested = stage.requested("shop/prod 2").await.status.unwrap();
    assert!(!requested.manual && requested.approval.is_none() && requested.strategy.is_some(), "{requested:?}");
    // It is added again. This applies to the next promotion.
    world.set_policy("shop/prod", manual()).await;
    world.runs("shop/dev", "3").await;
    let next = world.promotion("shop/prod 3", is_for(Phase::Pending, "WaitingApproval")).await;
    world.approve(&next).await;
    let taken_back = json!({"spec": {"approved": false}});
    let taken_back = api.patch(&next.name_any(), &PatchParams::default(), &Patch::Merge(taken_back)).await;
    let refused = taken_back.expect_err("an approval stays").to_string();
    assert!(refused.contains("cannot be taken back"), "{refused}");
    stage.requested("shop/prod 3").await;
    stage.fence("shop").await;
    let lines = ["prod 2: Pending, Requested, Withdrawn", "prod 3: Pending, Requested"];
    stage.oracle().promotions("shop", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn only_accounts_that_may_patch_promotions_can_approve() {
    let stage = Stage::new("promotions-rights").await;
    let world = &stage.world;
    stage.pipeline("shop", manual()).await;
    let _relaybook = stage.relaybook().await;
    world.runs("shop/dev", "2").await;
    let waits = world.promotion("shop/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    let name = waits.name_any();

    let viewer = account(world, "viewer", &["get", "list", "watch"]).await;
    let creator = account(world, "creator", &["get", "list", "create"]).await;
    let approver = account(world, "approver", &["get", "list", "patch"]).await;
    let approve = json!({"spec": {"approved": true}}).to_string();
    for file in [&viewer, &creator] {
        let refused = kubectl(file, &["patch", "promo", &name, "-n", &world.ns, "--type", "merge", "-p", &approve]).await;
        assert!(refused.expect_err("it is not allowed to").contains("forbidden"));
    }
    // The permission to create promotions approves nothing, and that to approve creates nothing.
    let of = async |file: &str| Api::<Promotion>::namespaced(control_plane::client(file.as_ref()).await, &world.ns);
    let mut forged = Promotion::new("forged", waits.spec.clone());
    forged.spec.approved = true;
    let refused = of(&creator).await.create(&PostParams::default(), &forged).await.expect_err("approved").to_string();
    assert!(refused.contains("cannot be approved when it is created"), "{refused}");
    forged.spec.approved = false;
    let refused = of(&approver).await.create(&PostParams::default(), &forged).await.expect_err("created").to_string();
    assert!(refused.contains("forbidden"), "{refused}");
    let status = Patch::Merge(json!({"status": {"phase": "Requested"}}));
    let refused = of(&approver).await.patch_status(&name, &PatchParams::default(), &status).await;
    assert!(refused.expect_err("the status belongs to Relaybook").to_string().contains("forbidden"));
    stage.fence("shop").await;
    assert!(stage.receiver.to("/hook/prod/PromotionRequested").is_empty());

    let done = kubectl(&approver, &["patch", "promo", &name, "-n", &world.ns, "--type", "merge", "-p", &approve]).await;
    done.unwrap_or_else(|why| panic!("the approver is refused: {why}"));
    let requested = stage.requested("shop/prod 2").await;
    assert!(!requested.annotations().contains_key("relaybook.dev/approved-by"), "only the hook writes it");
    stage.fence("shop").await;
    stage.oracle().promotions("shop", &["hook"], &["prod 2: Pending, Requested"]).check().await;
}

/// Creates an account with these verbs for promotions in the namespace. Returns the path of its kubeconfig.
async fn account(world: &World, name: &str, verbs: &[&str]) -> String {
    let role = format!("{}-{name}", world.ns);
    let role_object = json!({
        "metadata": {"name": role},
        "rules": [{"apiGroups": ["relaybook.dev"], "resources": ["promotions"], "verbs": verbs}],
    });
    let role_object = serde_json::from_value(role_object).expect("a role");
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(world.client.clone());
    roles.create(&PostParams::default(), &role_object).await.expect("created");
    let account = Account::bound(&world.client, &world.ns, name, &role).await;
    let right = format!("{} promotions.relaybook.dev {}", verbs[verbs.len() - 1], world.ns);
    eventually(
        &format!("{name} may {right}"),
        async || {
            if account.may(&right).await { Ok(()) } else { Err("not yet".to_owned()) }
        },
    )
    .await;
    let file = account.kubeconfig(&world.kubeconfig, &role).await;
    file.to_str().expect("UTF-8").to_owned()
}

/// Runs kubectl as an account. Returns stdout, or stderr if it fails.
async fn kubectl(kubeconfig: &str, args: &[&str]) -> Result<String, String> {
    let all: Vec<String> = ["--kubeconfig", kubeconfig].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
    // On a blocking thread, so that the receivers of this runtime keep running.
    let ran = tokio::task::spawn_blocking(move || {
        run(&control_plane::kubectl(), &all.iter().map(String::as_str).collect::<Vec<_>>(), "")
    });
    answer(ran.await.expect("joined"))
}
