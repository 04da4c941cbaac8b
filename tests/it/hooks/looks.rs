//! Looks: signed as forges sign, they write an annotation of the open promotions at most once in five seconds, and decide nothing.

use std::time::Instant;

use futures::{StreamExt as _, stream};
use relaybook_api::promotion::Phase;
use serde_json::json;

use super::{KEY, LOOK, Stage, post, sign};
use crate::support::eventually;

/// Fewer than the server accepts from one address.
const CONCURRENT: usize = 16;

#[tokio::test]
async fn a_thousand_hooks_cause_one_write_in_five_seconds() {
    let stage = Stage::new("hooks-looks").await;
    let (relaybook, hooks) = stage.relaybook().await;
    let path = stage.path("hooks");
    // The body says things that nobody reads.
    let body =
        json!({"action": "closed", "pull_request": {"merged": true}, "repository": {"full_name": "other/one"}}).to_string();
    let body = body.as_bytes();
    let hex = sign(LOOK, body);
    let (hex, with_word) = (hex.as_str(), format!("sha256={hex}"));
    let with_word = with_word.as_str();
    let writes = async || relaybook.metrics().await["relaybook_api_writes_total{kind=\"promotion_hook\",result=\"ok\"}"];

    // Nothing is open, so nothing is written.
    let answer = post(hooks, &path, &[("X-Signature", with_word)], body).await;
    assert_eq!((answer.status, writes().await), (202, 0.0), "{answer:?}");
    let waiting = stage.ship("2").await;
    let forges: [&[(&str, &str)]; 5] = [
        &[("X-Hub-Signature-256", with_word)],
        &[("X-Gitea-Signature", hex), ("X-Hub-Signature-256", with_word)],
        &[("X-Forgejo-Signature", hex), ("X-Gitea-Signature", hex), ("X-Hub-Signature-256", with_word)],
        &[("X-Gitlab-Token", LOOK)],
        &[("X-Signature", with_word)],
    ];
    // Writes are at least five seconds apart.
    let begun = Instant::now();
    let most = || 1.0 + begun.elapsed().as_secs_f64() / 5.0;
    for headers in forges {
        assert_eq!(post(hooks, &path, headers, body).await.status, 202, "{headers:?}");
    }
    // The watch of this server can deliver the promotion later than the test has read it.
    let headers = [("X-Signature", with_word)];
    let promotion = eventually("a look is written", async || {
        let promotion = stage.promotion(&waiting.promotion).await;
        if promotion.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("relaybook.dev/look")) {
            return Ok(promotion);
        }
        Err(format!("{:?}", post(hooks, &path, &headers, body).await))
    })
    .await;
    let first = promotion.metadata.annotations.clone().unwrap()["relaybook.dev/look"].clone();
    let count = writes().await;
    assert!((1.0..=most()).contains(&count), "{count}");
    assert_eq!((promotion.status.unwrap().phase, promotion.spec.approved), (Some(Phase::Pending), false));

    let requests = stream::iter(0..1000).map(|_| post(hooks, &path, &headers, body));
    let answers: Vec<_> = requests.buffer_unordered(CONCURRENT).collect().await;
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert!(count(202) >= 1 && count(202) + count(429) == 1000, "{} and {}", count(202), count(429));
    let after = writes().await;
    assert!(after <= most(), "{after}");
    eventually("a later look is written", async || {
        let answer = post(hooks, &path, &headers, body).await;
        let now = stage.promotion(&waiting.promotion).await.metadata.annotations.unwrap()["relaybook.dev/look"].clone();
        if now > first { Ok(()) } else { Err(format!("{now} {answer:?}")) }
    })
    .await;
    // The key of approvals cannot ask for a look.
    let wrong = format!("sha256={}", sign(KEY, body));
    assert_eq!(post(hooks, &path, &[("X-Signature", &wrong)], body).await.status, 401);
    assert!(!stage.promotion(&waiting.promotion).await.spec.approved);
    stage.told(&["PromotionPending 2"]).await;
}
