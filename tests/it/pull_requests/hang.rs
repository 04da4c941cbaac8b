//! A forge that hangs delays its own promotions only.

use std::time::Duration;

use relaybook_api::promotion::Phase;
use serde_json::json;

use super::Stage;
use crate::support::forge_proxy::{Asked, Trouble};
use crate::support::receiver::Gate;
use crate::support::world::promotions::{by_notification, is, is_for};

/// Less than the time after which a request without an answer fails.
const SOON: Duration = Duration::from_secs(45);

/// What becomes of a promotion that is merged.
const FINISHED: &str = "prod 2: Requested/Opening, Open, Merged/Merged, Finished";

#[tokio::test]
async fn a_hanging_forge_delays_no_other_forge() {
    let stage = Stage::new("pulls-hang").await;
    let world = &stage.world;
    // One forge whose API hangs, and one whose Git server hangs. There are more promotions than repositories that are read at once.
    let (api, git) = (stage.proxy(), stage.proxy());
    let gate = Gate::new();
    let deaf = api.rule(|_| true, Trouble::HoldRequest(gate.clone()));
    let stuck = git.rule(Asked::is_git, Trouble::HoldRequest(gate.clone()));
    let paths = |name: &str| json!({"strategy": {"pullRequest": {"paths": [format!("apps/{name}")]}}});
    let hanging = ["api", "git-1", "git-2", "git-3"];
    for name in hanging {
        let proxy = if name == "api" { &api } else { &git };
        stage.another(name, stage.behind(proxy, paths(name))).await;
    }
    stage.another("other", stage.direct(paths("other"))).await;
    stage.pipeline("held", by_notification(json!({"manual": true}))).await;
    let _relaybook = stage.relaybook().await;
    for name in hanging {
        world.runs(&format!("{name}/dev"), "2").await;
    }
    api.hit(deaf, 1).await;
    git.hit(stuck, 1).await;
    for name in ["other", "held"] {
        world.runs(&format!("{name}/dev"), "2").await;
    }
    // The other forge, an approval, and deliveries.
    world.promotion_within(SOON, "other/prod 2", is(Phase::Open)).await;
    let waits = world.promotion_within(SOON, "held/prod 2", is_for(Phase::Pending, "WaitingApproval")).await;
    world.approve(&waits).await;
    world.promotion_within(SOON, "held/prod 2", is(Phase::Requested)).await;
    stage.receiver.wait("/hook/prod/PromotionOpened", 1).await;
    stage.finish("other/prod 2").await;
    stage.roll_out("held/prod 2").await;
    stage.fence("other").await;
    for name in hanging {
        let status = world.promotion(&format!("{name}/prod 2"), is(Phase::Requested)).await.status.unwrap_or_default();
        assert_eq!(status.pull_request, None, "{name}");
    }
    stage.made(1, 1, 1).await;

    // The forges answer again.
    api.remove(deaf);
    git.remove(stuck);
    gate.open();
    for name in hanging {
        stage.opened_number(&format!("{name}/prod 2")).await;
    }
    stage.made(5, 5, 5).await;
    stage.finish("git-1/prod 2").await;
    let mut oracle = stage.oracle().promotions("held", &["hook"], &["prod 2: Pending, Requested, Finished"]);
    for name in hanging.into_iter().chain(["other"]) {
        let is_merged = ["git-1", "other"].contains(&name);
        let line = if is_merged { FINISHED } else { "prod 2: Requested/Opening, Open" };
        oracle = oracle.promotions(name, &["hook"], &[line]);
    }
    for name in hanging.into_iter().chain(["held"]) {
        stage.fence(name).await;
    }
    oracle.check().await;
}
