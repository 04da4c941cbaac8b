//! What the tests of this folder do again and again: open a pull request, let Relaybook check it, and compare the whole repository.

use std::time::{Duration, Instant};

use relaybook_api::Promotion;
use relaybook_api::promotion::{LOOK, Phase, RETRY};
use serde_json::Value;

use super::Stage;
use crate::support::eventually;
use crate::support::proxy::Call;
use crate::support::world::promotions::is;

/// After this time, a check is repeated.
const AGAIN: Duration = Duration::from_secs(2);

/// An open pull request of a promotion.
pub(super) struct Opened {
    pub(super) promotion: Promotion,
    pub(super) number: u64,
    pub(super) branch: String,
}

impl Opened {
    pub(super) fn of(promotion: Promotion) -> Self {
        let status = promotion.status.clone().expect("it has a status");
        let number = u64::try_from(status.pull_request.expect("it has a pull request").number).expect("a number");
        Self { promotion, number, branch: status.commit.expect("it has a commit").branch }
    }
}

/// Whether the call writes that a pull request is open.
pub(super) fn says_open(call: &Call) -> bool {
    call.is_promotion_status() && call.says(r#""phase":"Open""#)
}

/// Whether a pull request is open, closed or merged.
fn state(pull: &Value) -> &str {
    if pull["merged"] == true { "merged" } else { pull["state"].as_str().expect("a state") }
}

impl Stage {
    /// Waits until the promotion, written as `PIPELINE/ENVIRONMENT REVISION`, has an open pull request.
    pub(super) async fn opened(&self, what: &str) -> Opened {
        Opened::of(self.phase(what, Phase::Open).await.0)
    }

    /// Makes Relaybook check a pull request now.
    pub(super) async fn check_now(&self, promotion: &Promotion) {
        self.world.annotate_promotion(promotion, LOOK, &format!("{:x}", fastrand::u64(..))).await;
    }

    /// Makes Relaybook check a pull request until its promotion, written as `PIPELINE/ENVIRONMENT REVISION`, is as expected. Gitea compares the
    /// branches in the background, so one check can be too early.
    pub(super) async fn check_until(
        &self,
        promotion: &Promotion,
        what: &str,
        holds: impl Fn(&Promotion) -> bool,
    ) -> Promotion {
        let mut checked: Option<Instant> = None;
        eventually(&format!("promotion {what}"), async || {
            if checked.is_none_or(|checked| checked.elapsed() > AGAIN) {
                checked = Some(Instant::now());
                self.check_now(promotion).await;
            }
            let found = self.world.promotion(what, |_| true).await;
            if holds(&found) { Ok(found) } else { Err(format!("{:#?}", found.status)) }
        })
        .await
    }

    /// Requests that a promotion is retried, and waits until it is in this phase again.
    pub(super) async fn retry(&self, what: &str, value: &str, phase: Phase) -> Promotion {
        let promotion = self.world.promotion(what, |_| true).await;
        self.world.annotate_promotion(&promotion, RETRY, value).await;
        let is_retried = |p: &Promotion| p.status.as_ref().is_some_and(|s| s.retried.as_deref() == Some(value));
        self.world.promotion(what, |p| is(phase)(p) && is_retried(p)).await
    }

    /// Waits until everything so far has been processed and sent.
    pub(super) async fn fence(&self, pipeline: &str) {
        self.world.promotion_fence(pipeline, &["hook"]).await;
    }

    /// Waits until the repository has exactly these pull requests, the oldest first, each as branch and state, and exactly these branches,
    /// each with its number of commits.
    pub(super) async fn exactly(&self, pulls: &[(&str, &str)], branches: &[(&str, usize)]) {
        let shown = |all: &[(&str, &str)]| all.iter().map(|(branch, state)| format!("{branch} {state}")).collect::<Vec<_>>();
        let mut expected: Vec<_> = branches.iter().map(|(branch, count)| format!("{branch} {count}")).collect();
        expected.sort();
        eventually("the repository has exactly these pull requests and branches", async || {
            let mut all = self.repository.pulls("all").await;
            all.sort_by_key(|pull| pull["number"].as_u64());
            let found: Vec<_> = all.iter().map(|p| (p["head"]["label"].as_str().expect("a branch"), state(p))).collect();
            let mut there = Vec::new();
            for branch in self.repository.branches().await {
                there.push(format!("{branch} {}", self.repository.commits(&branch).await.len()));
            }
            there.sort();
            if found == pulls && there == expected { Ok(()) } else { Err(format!("{:?} and {there:?}", shown(&found))) }
        })
        .await;
    }
}
