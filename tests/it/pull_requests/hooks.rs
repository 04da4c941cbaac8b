//! Gitea's own webhooks: they only ask for a look. What they say decides nothing.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use relaybook_api::Pipeline;
use relaybook_api::promotion::{Phase, PullRequestState};
use ring::hmac;
use serde_json::json;

use super::Stage;
use crate::support::Relaybook;
use crate::support::gitea::repository::Style;
use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::world::promotions::is;

/// The key of the hooks.
const KEY: &str = "fedcba9876543210fedcba9876543210";
/// A hook is heeded at most once in 5 s, and the look takes a moment.
const SOON: Duration = Duration::from_secs(90);

impl Stage {
    /// Creates the pipeline `web` with hooks, whose pull requests are checked once in an hour, and starts Relaybook.
    async fn hooked(&self) -> (Relaybook, SocketAddr) {
        let world = &self.world;
        let secret =
            json!({"metadata": {"name": "looks"}, "type": "relaybook.dev/inbound", "stringData": {"hmac-key": KEY}});
        world.create::<Secret>(secret).await;
        self.pipeline("web", self.direct(json!({"strategy": {"pullRequest": {"interval": "1h"}}}))).await;
        world.patch::<Pipeline>("web", json!({"spec": {"hooks": {"secretRef": {"name": "looks"}}}})).await;
        let relaybook = Relaybook::with(world, Options { hooks: true, ..Options::of(world) }).await;
        world.settled().await;
        let hooks = relaybook.hooks().await;
        (relaybook, hooks)
    }

    fn hook(&self, hooks: SocketAddr) -> String {
        format!("http://{hooks}/hooks/{}/web", self.world.ns)
    }
}

#[tokio::test]
async fn a_merge_is_seen_soon_after_the_hook_of_gitea() {
    let stage = Stage::new("pulls-hooks").await;
    let world = &stage.world;
    let (relaybook, hooks) = stage.hooked().await;
    stage.repository.hook(&stage.hook(hooks), KEY, &["push", "pull_request"]).await;
    let mut lines = Vec::new();
    for revision in 2..5 {
        let what = format!("web/prod {revision}");
        world.runs("web/dev", &revision.to_string()).await;
        let (promotion, number) = stage.opened_number(&what).await;
        // A hook about a promotion that the hooks do not know yet has no effect.
        world.mirrored(&promotion).await;
        if revision == 4 {
            // Gitea reports the end of a pull request that a person closes, too.
            stage.repository.close(number).await;
            world.promotion_within(SOON, &what, is(Phase::Closed)).await;
            lines.push(format!("prod {revision}: Requested/Opening, Open, Closed/Closed"));
        } else {
            // At once: the hooks about the branch and the new pull request were a moment ago.
            stage.repository.merge(number, Style::Squash).await;
            world.promotion_within(SOON, &what, is(Phase::Merged)).await;
            stage.roll_out(&what).await;
            lines.push(format!("prod {revision}: Requested/Opening, Open, Merged/Merged, Finished"));
        }
    }
    stage.fence("web").await;
    let metrics = relaybook.metrics().await;
    assert!(metrics["relaybook_hooks_total{kind=\"look\",result=\"accepted\"}"] >= 3.0, "{metrics:#?}");
    assert_eq!(stage.repository.pulls("all").await.len(), 3);
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn the_content_of_a_hook_changes_no_promotion() {
    let stage = Stage::new("pulls-forged-hooks").await;
    let world = &stage.world;
    let (_relaybook, hooks) = stage.hooked().await;
    world.runs("web/dev", "2").await;
    let (promotion, number) = stage.opened_number("web/prod 2").await;
    world.mirrored(&promotion).await;
    let before = stage.repository.pull(number).await;
    let branch = before["head"]["ref"].as_str().unwrap().to_owned();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for body in [
        json!({"action": "closed", "number": number, "pull_request": {"number": number, "merged": true, "state": "closed"}}),
        json!({"action": "closed", "number": 99, "repository": {"full_name": "other/one", "clone_url": "https://10.0.0.1/o/r.git"}}),
        json!({"ref": format!("refs/heads/{branch}"), "after": "0".repeat(40), "repository": {"full_name": "other/one"}}),
        json!(["not", "an", "event"]),
    ] {
        let body = body.to_string();
        let signature = hex::encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes()), body.as_bytes()));
        let earlier = world.promotion("web/prod 2", |_| true).await.metadata.annotations.unwrap_or_default();
        // Until the look that it asks for is written: a hook that comes before the hooks know the promotion has no effect.
        let promotion = within(SOON, "the hook is obeyed", async || {
            let request = client.post(stage.hook(hooks)).header("x-gitea-signature", &signature);
            let request = request.header("x-gitea-event", "pull_request").body(body.clone());
            let status = request.send().await.unwrap().status().as_u16();
            assert!([202, 429].contains(&status), "{status} {body}");
            let now = world.promotion("web/prod 2", |_| true).await;
            let annotations = now.metadata.annotations.clone().unwrap_or_default();
            let is_new = annotations.get("relaybook.dev/look") != earlier.get("relaybook.dev/look");
            if is_new { Ok(now) } else { Err(format!("{annotations:?}")) }
        })
        .await;
        let status = promotion.status.unwrap_or_default();
        let request = status.pull_request.unwrap();
        assert_eq!((status.phase, request.number), (Some(Phase::Open), i64::try_from(number).unwrap()), "{body}");
        assert_ne!(request.state, PullRequestState::Merged, "{body}");
    }
    stage.made(1, 1, 1).await;
    assert_eq!(stage.repository.pull(number).await["state"], "open");
    stage.finish("web/prod 2").await;
    stage.fence("web").await;
    let lines = ["prod 2: Requested/Opening, Open, Merged/Merged, Finished"];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}
