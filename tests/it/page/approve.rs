//! A person approves a promotion on the page: with the permissions of that person, and only the promotion that was shown.

use relaybook_api::promotion::Phase;
use serde_json::{Value, json};

use super::access::{hidden, serving, sign_in};
use super::person::{ask, token, url};
use crate::support::world::promotions::{by_notification, is, is_for};
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

#[tokio::test]
async fn a_promotion_is_approved_by_a_person_who_may_patch_it_and_for_the_shown_revision() {
    let world = World::new("page-approve").await;
    let receiver = Receiver::start();
    world.promotion_notification("hook", &receiver, json!({})).await;
    let manual = by_notification(json!({"manual": true}));
    world.promoting("shop", &[("dev", Value::Null), ("prod", manual)]).await;
    let relaybook = Relaybook::with(&world, serving(&world, &["--page-actions"])).await;
    world.settled().await;
    world.runs("shop/dev", "2").await;
    world.promotion("shop/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    let page = relaybook.page_address().await;
    let reader = sign_in(page, &token(&world, "reader", &["get", "list", "watch"]).await).await;
    let writer = sign_in(page, &token(&world, "writer", &["get", "list", "watch", "patch"]).await).await;
    let overview = url(page, &format!("/?namespace={}", world.ns));
    let shown = eventually("the overview has the promotion", async || {
        let seen = ask(&overview, &[("cookie", &writer)], None).await.body;
        if seen.contains("Promotions that wait for an approval") { Ok(seen) } else { Err(seen) }
    })
    .await;
    let has = |name: &str, value: &str| shown.contains(&format!("name=\"{name}\" value=\"{value}\""));
    assert!(has("environment", "prod") && has("revision", "2"), "{shown}");

    let (path, origin) = (url(page, &format!("/pipelines/{}/shop/approve", world.ns)), url(page, ""));
    let uid = hidden(&shown, "promotion");
    let approve = async |cookie: &str, revision: &str, promotion: &str| {
        let form = hidden(&ask(&overview, &[("cookie", cookie)], None).await.body, "token");
        let form = format!("token={form}&environment=prod&revision={revision}&promotion={promotion}");
        ask(&path, &[("cookie", cookie), ("origin", &origin)], Some(&form)).await.body
    };
    let seen = approve(&reader, "2", &uid).await;
    assert!(seen.contains(&format!("No permission: needs patch on promotions in {}.", world.ns)), "{seen}");
    let seen = approve(&writer, "1", &uid).await;
    assert!(seen.contains("Nothing was approved: ") && seen.contains("and not of 1"), "{seen}");
    for other in ["", "another"] {
        let seen = approve(&writer, "2", other).await;
        assert!(seen.contains("Nothing was approved: another promotion waits now; look at it first."), "{seen}");
    }
    let waits = world.promotion("shop/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    assert!(!waits.spec.approved && waits.metadata.uid.as_ref() == Some(&uid), "{waits:?}");

    let seen = approve(&writer, "2", &uid).await;
    assert!(!seen.contains("name=\"promotion\""), "an approved promotion is not offered again: {seen}");
    assert!(seen.contains("The promotion of 2 to prod is approved."), "{seen}");
    world.promotion("shop/prod 2", is(Phase::Requested)).await;
    let seen = approve(&writer, "2", &uid).await;
    assert!(seen.contains("The promotion of 2 to prod was approved before."), "{seen}");
    world.promotion_fence("shop", &["hook"]).await;
    let lines = ["prod 2: Pending, Requested"];
    Oracle::new(&world, &receiver).promotions("shop", &["hook"], &lines).check().await;
}
