//! What takes a minute: the shortest timeout of a promotion, and the shortest age at which an ended promotion is deleted. Both run at the
//! same time, and nothing else happens meanwhile.

use std::time::Duration;

use relaybook_api::promotion::Phase;
use serde_json::json;

use super::Stage;
use crate::support::wait::within;
use crate::support::world::promotions::{by_notification, is, is_for};

/// Deadline for what is due after a minute.
const LIMIT: Duration = Duration::from_mins(3);

#[tokio::test]
async fn a_promotion_times_out_and_an_ended_one_is_deleted_after_a_minute() {
    let stage = Stage::new("promotions-slow").await;
    let world = &stage.world;
    stage.pipeline("late", by_notification(json!({"timeout": "1m"}))).await;
    stage.pipeline("default", by_notification(json!({}))).await;
    stage.pipeline("aged", by_notification(json!({"retain": {"maxAge": "1m"}}))).await;
    let _relaybook = stage.relaybook().await;
    for tag in ["2", "3"] {
        world.runs("aged/dev", tag).await;
        stage.requested(&format!("aged/prod {tag}")).await;
        world.runs("aged/prod", tag).await;
        stage.finished(&format!("aged/prod {tag}")).await;
    }
    for name in ["late", "default"] {
        world.runs(&format!("{name}/dev"), "2").await;
        stage.requested(&format!("{name}/prod 2")).await;
    }
    let failed = world.promotion_within(LIMIT, "late/prod 2", is_for(Phase::Failed, "NotRunning")).await.status.unwrap();
    let lasted = failed.steps[1].time.duration_since(failed.steps[0].time);
    assert!(lasted.as_secs() >= 60, "it failed after {lasted}");
    within(LIMIT, "the older ended promotion is deleted", async || {
        let left = world.promotions().await.into_iter().filter(|p| p.spec.pipeline_ref.name == "aged");
        let left: Vec<_> = left.map(|p| p.spec.revision).collect();
        // The newest one stays, because the status of the pipeline names it.
        if left == ["3"] { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    for name in ["late", "default", "aged"] {
        stage.fence(name).await;
    }
    assert!(is(Phase::Requested)(&world.promotion("default/prod 2", |_| true).await));
    stage
        .oracle()
        .promotions("late", &["hook"], &["prod 2: Requested, Failed/NotRunning"])
        .promotions("default", &["hook"], &["prod 2: Requested"])
        .promotions("aged", &["hook"], &["prod 2: Requested, Finished (deleted)", "prod 3: Requested, Finished"])
        .check()
        .await;
}
