//! The strategy `commit` at `git http-backend`: nothing of others is lost, and nothing is pushed twice.

use relaybook_api::promotion::Phase;
use serde_json::{Value, json};

use super::{FILE, Stage, release};
use crate::support::forge_proxy::{Asked, ForgeProxy, Trouble};
use crate::support::git::{Bare, GitServer};
use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::{Fault, Proxy};

/// A repository on a Git server that is no forge, behind a proxy.
pub(super) struct Git {
    server: GitServer,
    pub(super) repository: Bare,
    pub(super) proxy: ForgeProxy,
}

impl Git {
    pub(super) fn start(stage: &Stage) -> Self {
        let server = GitServer::start();
        let repository =
            server.repository("deploy", &[(FILE, &release(&stage.world.ns, "web")), ("README.md", "# deploy\n")]);
        let proxy = ForgeProxy::start(&server.url(), reqwest::Client::builder().no_proxy().build().expect("a client"));
        Self { server, repository, proxy }
    }

    /// Returns a policy that pushes to the repository without credentials.
    pub(super) fn policy(&self) -> Value {
        let of = json!({"url": self.proxy.url("/deploy.git"), "paths": ["apps"]});
        json!({"strategy": {"commit": of}, "retry": {"initial": "1s", "max": "2s"}})
    }

    /// Checks that `main` has exactly these commits, and that only the value of `prod` was set in `revision`. Git runs beside the receiver,
    /// which would otherwise answer too late.
    async fn check(&self, stage: &Stage, subjects: &[&str], revision: &str) {
        let bare = self.repository.clone();
        let (found, file, refs) = tokio::task::spawn_blocking(move || {
            bare.check();
            (bare.subjects(), bare.file(FILE), bare.git(&["for-each-ref", "--format=%(refname)"]))
        })
        .await
        .expect("Git runs");
        assert_eq!(found, subjects);
        assert_eq!(file, release(&stage.world.ns, "web").replace("\"1\"", &format!("\"{revision}\"")));
        assert_eq!(refs, "refs/heads/main");
    }
}

/// Returns the subject of the commit of a revision.
fn subject(revision: usize) -> String {
    format!("Promote web to prod: `{revision}`").replace('`', "")
}

#[tokio::test]
async fn a_branch_that_moves_during_the_push_loses_nothing() {
    let stage = Stage::new("commits-moved").await;
    let (world, git) = (&stage.world, Git::start(&stage));
    stage.pipeline("web", git.policy()).await;
    let _relaybook = stage.relaybook().await;
    // Another person pushes before Relaybook asks for the branch, and after it has decided to push.
    let (asks, pushes) = (Gate::new(), Gate::new());
    let before = git.proxy.rule(Asked::is_before_push, Trouble::HoldRequest(asks.clone()).once());
    let during = git.proxy.rule(Asked::is_push, Trouble::HoldRequest(pushes.clone()).once());
    world.runs("web/dev", "2").await;
    git.proxy.hit(before, 1).await;
    git.repository.commit("other one", &[("one.txt", "1\n")]);
    asks.open();
    git.proxy.hit(during, 1).await;
    let base = git.repository.commit("other two", &[("README.md", "# changed\n")]);
    pushes.open();
    let (_, status) = stage.phase("web/prod 2", Phase::Merged).await;
    let commit = status.commit.clone().unwrap();
    assert_eq!((status.attempts, status.reason.as_str(), commit.base.as_str()), (1, "Pushed", base.as_str()));
    assert_eq!(commit.id, git.repository.git(&["rev-parse", "main"]));
    git.check(&stage, &["initial", "other one", "other two", &subject(2)], "2").await;
    assert_eq!(git.repository.file("README.md"), "# changed\n");
    stage.roll_out("web/prod 2").await;
    stage.fence("web").await;
    stage.oracle().promotions("web", &["hook"], &["prod 2: Requested/Pushing, Merged/Pushed, Finished"]).check().await;
}

#[tokio::test]
async fn a_branch_that_moves_at_each_push_is_tried_again_later() {
    let stage = Stage::new("commits-busy").await;
    let (world, git) = (&stage.world, Git::start(&stage));
    stage.pipeline("web", git.policy()).await;
    let _relaybook = stage.relaybook().await;
    let mut gates = Vec::new();
    for _ in 0..3 {
        let gate = Gate::new();
        let matched = gates.len();
        let seen = std::sync::atomic::AtomicUsize::new(0);
        let this = move |asked: &Asked| asked.is_push() && seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let rule = git.proxy.rule(this, Trouble::HoldRequest(gate.clone()));
        gates.push((rule, gate, format!("other {matched}")));
    }
    world.runs("web/dev", "2").await;
    for (rule, gate, other) in &gates {
        git.proxy.hit(*rule, 1).await;
        git.repository.commit(other, &[(&other.replace(' ', "-"), "x\n")]);
        gate.open();
    }
    let (_, status) = stage.phase("web/prod 2", Phase::Merged).await;
    assert_eq!(status.attempts, 2);
    git.check(&stage, &["initial", "other 0", "other 1", "other 2", &subject(2)], "2").await;
    stage.roll_out("web/prod 2").await;
    stage.fence("web").await;
    stage.oracle().promotions("web", &["hook"], &["prod 2: Requested/Pushing, Merged/Pushed, Finished"]).check().await;
}

#[tokio::test]
async fn a_kill_or_a_lost_answer_during_the_push_makes_no_second_commit() {
    let pushed: fn(&Call) -> bool =
        |call| call.is_promotion_status() && call.says("\"Pushed\"") && !call.says("\"Finished\"");
    let stage = Stage::new("commits-killed").await;
    let (world, git) = (&stage.world, Git::start(&stage));
    stage.pipeline("web", git.policy()).await;
    let proxy = Proxy::start(&world.kubeconfig, "commits-killed").await;
    let mut relaybook = stage.relaybook_through(&proxy).await;
    let (mut lines, mut subjects) = (Vec::new(), vec!["initial".to_owned()]);
    let points = ["push", "pushed", "lost", "write", "written"];
    for (point, revision) in points.into_iter().zip(2..) {
        let tag = revision.to_string();
        let what = format!("web/prod {tag}");
        let gate = Gate::new();
        match point {
            "push" | "pushed" | "lost" => {
                let trouble = match point {
                    "push" => Trouble::HoldRequest(gate),
                    "pushed" => Trouble::HoldAnswer(gate),
                    _ => Trouble::LoseAnswer,
                };
                let rule = git.proxy.rule(Asked::is_push, trouble.once());
                world.ship("web-dev", &tag).await;
                git.proxy.hit(rule, 1).await;
                if point != "push" {
                    git.proxy.forwarded(rule, 1).await;
                }
                if point != "lost" {
                    relaybook.kill9();
                    relaybook.start_again().await;
                }
                git.proxy.remove(rule);
            }
            _ => {
                let fault = if point == "write" { Fault::HoldRequest(gate) } else { Fault::HoldAnswer(gate) };
                let rule = proxy.rule(pushed, fault);
                world.ship("web-dev", &tag).await;
                proxy.hit(rule, 1).await;
                relaybook.kill9();
                proxy.remove(rule);
                relaybook.start_again().await;
            }
        }
        subjects.push(subject(revision));
        if point == "pushed" {
            // Somebody else's commit comes on top before the next attempt can look, or after it.
            git.repository.commit("other", &[("other.txt", "x\n")]);
            subjects.push("other".to_owned());
        }
        let (_, status) = stage.phase(&what, Phase::Merged).await;
        assert_eq!(status.reason, "Pushed", "{point}");
        git.check(&stage, &subjects.iter().map(String::as_str).collect::<Vec<_>>(), &tag).await;
        stage.roll_out(&what).await;
        stage.world.passed("web").await;
        lines.push(format!("prod {tag}: Requested/Pushing, Merged/Pushed, Finished"));
    }
    stage.fence("web").await;
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().after_crashes(4).promotions("web", &["hook"], &lines).check().await;
}

#[tokio::test]
async fn a_server_that_refuses_or_is_too_old_is_quoted() {
    let stage = Stage::new("commits-refused").await;
    let (world, git) = (&stage.world, Git::start(&stage));
    stage.pipeline("web", git.policy()).await;
    let _relaybook = stage.relaybook().await;
    git.repository.hook("pre-receive", "echo 'The freeze ends on Monday.' >&2; exit 1");
    world.runs("web/dev", "2").await;
    let (refused, status) = stage.phase("web/prod 2", Phase::Failed).await;
    assert_eq!((status.reason.as_str(), status.attempts), ("PushRefused", 1));
    assert!(status.message.contains("The freeze ends on Monday."), "{}", status.message);
    git.check(&stage, &["initial"], "1").await;

    git.repository.unhook("pre-receive");
    world.annotate_promotion(&refused, "relaybook.dev/retry", "1").await;
    stage.phase("web/prod 2", Phase::Merged).await;
    git.check(&stage, &["initial", &subject(2)], "2").await;
    stage.roll_out("web/prod 2").await;

    git.server.only_v0();
    world.runs("web/dev", "3").await;
    let (_, status) = stage.phase("web/prod 3", Phase::Failed).await;
    assert_eq!((status.reason.as_str(), status.attempts), ("Unsupported", 1));
    assert!(status.message.contains("version 2"), "{}", status.message);
    git.check(&stage, &["initial", &subject(2)], "2").await;
    stage.fence("web").await;
    let lines = [
        "prod 2: Requested/Pushing, Failed/PushRefused, Requested/Pushing, Merged/Pushed, Finished",
        "prod 3: Requested/Pushing, Failed/Unsupported",
    ];
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
}
