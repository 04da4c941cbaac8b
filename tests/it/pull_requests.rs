//! Tests promotions by commit and by pull request, at a real Gitea: what is pushed and opened, what people do with it, and what becomes of the
//! promotion. Each test ends with the oracle, and with the pull requests, branches and commits that must exist, and no others.

mod behind_proxy;
mod commits;
mod contents;
mod edited;
mod exact;
mod fair;
mod found;
mod frozen;
mod hang;
mod hooks;
mod hostile;
mod kept_open;
mod killed;
mod large;
mod lost;
mod once;
mod own_commits;
mod people;
mod refused;
mod replaced;
mod shared_file;
mod trouble;

use relaybook_api::promotion::Phase;
use relaybook_api::{Promotion, PromotionStatus};
use serde_json::{Value, json};

use crate::support::gitea::{Gitea, Person, Repository, shared};
use crate::support::world::promotions::is;
use crate::support::{Oracle, Receiver, Relaybook, World};

/// The file with the value of `prod`.
const FILE: &str = "apps/prod/release.yaml";

/// A namespace with the notification `hook`, and a repository whose bot has a token in the Secret `deploy-bot`.
struct Stage {
    world: World,
    receiver: Receiver,
    gitea: &'static Gitea,
    bot: Person,
    repository: Repository,
}

/// Returns a file in which the value of `prod` is 1.
fn release(ns: &str, pipeline: &str) -> String {
    format!("spec:\r\n  # kept\r\n  version: \"1\" # {{\"$promotion\": \"{ns}:{pipeline}:prod\"}}\r\n  other: 1\r\n")
}

impl Stage {
    /// Pipeline `web` has the environments `dev` and `prod`. Nothing is promoted yet.
    async fn new(ns: &str) -> Self {
        Self::reporting_to(World::new(ns).await, Receiver::start(), json!({})).await
    }

    /// The same, with another receiver. `over` is merged into the spec of the notification.
    async fn reporting_to(world: World, receiver: Receiver, over: Value) -> Self {
        let gitea = shared().await;
        let ns = &world.ns.clone();
        world.promotion_notification("hook", &receiver, over).await;
        let bot = gitea.person(ns).await;
        let token = bot.token(&["write:repository", "write:issue"]).await;
        let repository = bot.repository("deploy", &[(FILE, &release(ns, "web")), ("README.md", "# deploy\n")]).await;
        world.secret("deploy-bot", json!({"token": token})).await;
        world.secret("forge-ca", json!({"ca.crt": gitea.ca()})).await;
        Self { world, receiver, gitea, bot, repository }
    }

    /// Returns the fields of the repository in a strategy.
    fn source(&self) -> Value {
        json!({
            "url": self.repository.url(), "secretRef": {"name": "deploy-bot"},
            "tls": {"caFrom": {"secretKeyRef": {"name": "forge-ca", "key": "ca.crt"}}},
        })
    }

    /// Returns a policy with a pull request. `over` is merged into the strategy.
    fn by_pull_request(&self, over: Value) -> Value {
        let mut of = self.source();
        json_patch::merge(&mut of, &json!({"type": "gitea", "interval": "10s"}));
        json_patch::merge(&mut of, &over);
        json!({"strategy": {"pullRequest": of}})
    }

    /// Returns a policy with a commit. `over` is merged into the strategy.
    fn by_commit(&self, over: Value) -> Value {
        let mut of = self.source();
        json_patch::merge(&mut of, &over);
        json!({"strategy": {"commit": of}})
    }

    /// Creates a pipeline with `dev` and `prod`. `policy` is that of `prod`.
    async fn pipeline(&self, name: &str, policy: Value) {
        self.world.promoting(name, &[("dev", Value::Null), ("prod", policy)]).await;
    }

    /// Starts Relaybook, and waits until it observes everything.
    async fn relaybook(&self) -> Relaybook {
        let relaybook = Relaybook::start(&self.world).await;
        self.world.settled().await;
        relaybook
    }

    async fn phase(&self, what: &str, phase: Phase) -> (Promotion, PromotionStatus) {
        let promotion = self.world.promotion(what, is(phase)).await;
        let status = promotion.status.clone().unwrap_or_default();
        (promotion, status)
    }

    fn oracle(&self) -> Oracle<'_> {
        Oracle::new(&self.world, &self.receiver)
    }
}
