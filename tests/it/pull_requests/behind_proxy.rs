//! What the tests of faults share: a repository behind a proxy, the way of a promotion to its end, and what must exist after it.

use std::collections::BTreeSet;
use std::time::Duration;

use relaybook_api::Promotion;
use relaybook_api::promotion::Phase;
use serde_json::{Value, json};

use super::{Stage, release};
use crate::support::forge_proxy::ForgeProxy;
use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::{Proxy, Relaybook};

/// Time limit for the checks of Gitea for conflicts. It checks all pull requests of a branch that moves.
const CHECKED: Duration = Duration::from_mins(4);

/// Short waits between attempts.
pub(super) fn soon() -> Value {
    json!({"retry": {"initial": "1s", "max": "2s"}})
}

impl Stage {
    /// Starts a proxy in front of Gitea. Its host is another one than that of Gitea.
    pub(super) fn proxy(&self) -> ForgeProxy {
        ForgeProxy::start(&self.gitea.url(""), self.gitea.client())
    }

    /// Returns a policy with a pull request, with short waits between attempts. `over` is merged into it.
    pub(super) fn direct(&self, over: Value) -> Value {
        let mut policy = self.by_pull_request(json!({}));
        json_patch::merge(&mut policy, &soon());
        json_patch::merge(&mut policy, &over);
        policy
    }

    /// The same, with the repository behind a proxy.
    pub(super) fn behind(&self, proxy: &ForgeProxy, over: Value) -> Value {
        let (owner, name) = (&self.repository.owner, &self.repository.name);
        let url = proxy.url(&format!("/{owner}/{name}.git"));
        let source = json!({"url": url, "apiUrl": proxy.url("/api/v1"), "tls": null});
        let mut policy = self.direct(json!({"strategy": {"pullRequest": source}}));
        json_patch::merge(&mut policy, &over);
        policy
    }

    /// Adds a file with the value of `prod` of another pipeline, and creates the pipeline.
    pub(super) async fn another(&self, name: &str, policy: Value) {
        let (path, text) = (format!("apps/{name}/release.yaml"), release(&self.world.ns, name));
        self.repository.commit("main", &format!("add {name}"), &[(&path, Some(&text))]).await;
        self.pipeline(name, policy).await;
    }

    /// Starts Relaybook with the API server behind a proxy, and waits until it observes everything.
    pub(super) async fn relaybook_through(&self, proxy: &Proxy) -> Relaybook {
        let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(&self.world) };
        let relaybook = Relaybook::with(&self.world, options).await;
        self.world.settled().await;
        relaybook
    }

    /// Waits until the pull request of a promotion is open. Returns the promotion and the number.
    pub(super) async fn opened_number(&self, what: &str) -> (Promotion, u64) {
        let (promotion, status) = self.phase(what, Phase::Open).await;
        let number = status.pull_request.expect("an open promotion has a pull request").number;
        (promotion, u64::try_from(number).expect("a number"))
    }

    /// Merges the pull request of a promotion, written as `PIPELINE/ENVIRONMENT REVISION`, and waits until it has ended.
    pub(super) async fn finish(&self, what: &str) {
        let (promotion, number) = self.opened_number(what).await;
        self.merge(number).await;
        self.check_now(&promotion).await;
        self.phase(what, Phase::Merged).await;
        self.roll_out(what).await;
    }

    /// Merges a pull request, as soon as Gitea has checked it for conflicts.
    pub(super) async fn merge(&self, number: u64) {
        within(CHECKED, &format!("pull request {number} is merged"), async || {
            let answer = self.repository.try_merge(number, json!({"Do": "merge"})).await;
            if (200..300).contains(&answer.status) { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }

    /// Waits until Gitea says whether a pull request is mergeable.
    pub(super) async fn compared(&self, number: u64, mergeable: bool) {
        within(CHECKED, &format!("the branches of pull request {number} are compared"), async || {
            let pull = self.repository.pull(number).await;
            if pull["mergeable"] == mergeable { Ok(()) } else { Err(pull.to_string()) }
        })
        .await;
    }

    /// Rolls out the revision of a promotion, and waits until it has ended.
    pub(super) async fn roll_out(&self, what: &str) {
        let (place, revision) = what.split_once(' ').expect("PIPELINE/ENVIRONMENT REVISION");
        self.world.runs(place, revision).await;
        self.phase(what, Phase::Finished).await;
    }

    /// Waits until a promotion has this reason, and returns its message.
    pub(super) async fn reason(&self, what: &str, reason: &str) -> String {
        let is = |promotion: &Promotion| promotion.status.as_ref().is_some_and(|status| status.reason == reason);
        self.world.promotion(what, is).await.status.unwrap_or_default().message
    }

    /// Checks that this many pull requests and branches of Relaybook exist, and one commit for each of `commits` promotions.
    pub(super) async fn made(&self, pulls: usize, branches: usize, commits: usize) {
        let all = self.repository.pulls("all").await;
        let shown: Vec<_> = all.iter().map(|pull| (&pull["number"], &pull["state"], &pull["title"])).collect();
        assert_eq!(all.len(), pulls, "pull requests: {shown:#?}");
        let heads: BTreeSet<_> = all.iter().map(|pull| pull["head"]["label"].to_string()).collect();
        assert_eq!(heads.len(), pulls, "each has a branch of its own: {shown:#?}");
        let mut names = self.repository.branches().await;
        names.retain(|name| name.starts_with("relaybook/"));
        assert_eq!(names.len(), branches, "{names:?}");
        let (mut ids, mut trailers) = (BTreeSet::new(), BTreeSet::new());
        for branch in names.iter().map(String::as_str).chain(["main"]) {
            for commit in self.repository.commits(branch).await {
                let message = commit["commit"]["message"].as_str().unwrap_or_default().to_owned();
                if let Some(trailer) = message.lines().find(|line| line.starts_with("Relaybook-Promotion: ")) {
                    ids.insert(commit["sha"].to_string());
                    trailers.insert(trailer.to_owned());
                }
            }
        }
        assert_eq!((ids.len(), trailers.len()), (commits, commits), "{ids:?} {trailers:?}");
    }
}
