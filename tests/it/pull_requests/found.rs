//! What an earlier attempt made is found again after a kill, among the pull requests and branches of others.

use relaybook_api::promotion::Phase;
use serde_json::json;

use super::exact::{Opened, says_open};
use super::{FILE, Stage};
use crate::support::gitea::Repository;
use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::world::promotions::is_for;
use crate::support::{Fault, Proxy, Relaybook};

/// Number of pull requests of others: more than Relaybook reads with one request.
const OTHERS: usize = 35;
/// Number of pull requests that Relaybook reads with one request.
const PAGE: usize = 30;

impl Stage {
    /// Starts Relaybook, and kills it after it has opened the pull request of revision 2, before this is written. Returns it with its proxy
    /// and the branch.
    async fn killed_after_opening(&self) -> (Relaybook, Proxy, String) {
        let (relaybook, proxy) = self.killed_before(says_open).await;
        let pulls = self.repository.pulls("all").await;
        assert_eq!(pulls.len(), 1, "{pulls:#?}");
        let (_, status) = self.phase("web/prod 2", Phase::Requested).await;
        assert_eq!((status.pull_request, status.commit, status.attempts), (None, None, 1));
        (relaybook, proxy, pulls[0]["head"]["ref"].as_str().unwrap().to_owned())
    }

    /// Starts Relaybook, rolls out revision 2 in dev, and kills Relaybook when it makes such a call, which never arrives.
    async fn killed_before(&self, calls: impl Fn(&Call) -> bool + Send + Sync + 'static) -> (Relaybook, Proxy) {
        let world = &self.world;
        let proxy = Proxy::start(&world.kubeconfig, &world.ns).await;
        let through = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..Options::of(world) };
        let mut relaybook = Relaybook::with(world, through).await;
        world.settled().await;
        let rule = proxy.rule(calls, Fault::HoldRequest(Gate::new()));
        world.runs("web/dev", "2").await;
        proxy.hit(rule, 1).await;
        relaybook.kill9();
        proxy.remove(rule);
        (relaybook, proxy)
    }
}

#[tokio::test]
async fn an_own_pull_request_is_found_behind_those_of_others() {
    let stage = Stage::new("pulls-pages").await;
    let Stage { world, gitea, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let (mut relaybook, _proxy, ours) = stage.killed_after_opening().await;

    let other = gitea.person("pulls-pages-other").await;
    repository.share(&other, "write").await;
    let theirs = other.at(repository);
    theirs.branch("other-0", "main").await;
    theirs.commit("other-0", "by another", &[("README.md", Some("# other\n"))]).await;
    let names: Vec<_> = (0..OTHERS).map(|n| format!("other-{n}")).collect();
    for name in &names {
        if name != "other-0" {
            theirs.branch(name, "other-0").await;
        }
        // The description says what ours says, but for another pipeline.
        theirs.open(name, "main", "Promote web to prod: 2", "<!-- relaybook pulls-pages/web-prod 0-0 -->").await;
    }
    let page = repository.person.get(&repository.path(&format!("/pulls?state=all&page=1&limit={PAGE}"))).await;
    let heads: Vec<_> = page.as_array().unwrap().iter().map(|pull| &pull["head"]["ref"]).collect();
    assert!(heads.len() == PAGE && !heads.contains(&&json!(ours)), "ours is on the second page: {heads:?}");

    relaybook.start_again().await;
    world.settled().await;
    let Opened { promotion, number, branch } = stage.opened("web/prod 2").await;
    assert_eq!((number, &branch, promotion.status.unwrap().attempts), (1, &ours, 2));
    stage.fence("web").await;
    let mut pulls = vec![(ours.as_str(), "open")];
    pulls.extend(names.iter().map(|name| (name.as_str(), "open")));
    let mut branches = vec![("main", 1), (ours.as_str(), 2)];
    branches.extend(names.iter().map(|name| (name.as_str(), 2)));
    stage.exactly(&pulls, &branches).await;
    stage.oracle().after_a_crash().promotions("web", &["hook"], &["prod 2: Requested/Opening, Open"]).check().await;
}

#[tokio::test]
async fn a_branch_with_the_commit_of_the_promotion_gets_the_pull_request_that_it_lacks() {
    let stage = Stage::new("pulls-half").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let (mut relaybook, _proxy, branch) = stage.killed_after_opening().await;
    let head = repository.head(&branch).await.unwrap();
    let base = repository.head("main").await.unwrap();
    // As after a kill between the push and the pull request.
    repository.delete_pull(1).await;
    // The base branch has moved since the push. The commit stays.
    repository.commit("main", "by a person", &[("README.md", Some("# moved\n"))]).await;
    relaybook.start_again().await;
    world.settled().await;
    let opened = stage.opened("web/prod 2").await;
    let status = opened.promotion.status.unwrap();
    let commit = status.commit.unwrap();
    assert_eq!((commit.id, commit.base, &commit.branch), (head.clone(), base, &branch));
    assert_eq!((repository.head(&branch).await, status.attempts), (Some(head), 2));
    stage.fence("web").await;
    stage.exactly(&[(&branch, "open")], &[("main", 2), (&branch, 2)]).await;
    stage.oracle().after_a_crash().promotions("web", &["hook"], &["prod 2: Requested/Opening, Open"]).check().await;
}

#[tokio::test]
async fn a_branch_of_others_is_left_alone_and_a_retry_takes_another_name() {
    let stage = Stage::new("pulls-taken").await;
    let Stage { world, receiver, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let (mut relaybook, _proxy, branch) = stage.killed_after_opening().await;
    repository.delete_pull(1).await;
    let theirs = repository.commit(&branch, "by another", &[("README.md", Some("# other\n"))]).await;
    relaybook.start_again().await;
    world.settled().await;
    let failed = world.promotion("web/prod 2", is_for(Phase::Failed, "BranchTaken")).await;
    let message = failed.status.unwrap().message;
    assert!(message.contains(&branch) && message.contains("relaybook.dev/retry"), "{message}");
    let told = receiver.wait("/hook/prod/PromotionFailed", 1).await[0].json();
    assert_eq!(told["why"].as_str(), Some("BranchTaken"), "{told}");
    stage.fence("web").await;
    stage.exactly(&[], &[("main", 1), (&branch, 3)]).await;

    let again = Opened::of(stage.retry("web/prod 2", "1", Phase::Open).await);
    assert_eq!(again.branch, format!("{branch}-2"));
    assert_eq!(repository.head(&branch).await, Some(theirs));
    stage.fence("web").await;
    stage.exactly(&[(&again.branch, "open")], &[("main", 1), (&branch, 3), (&again.branch, 2)]).await;
    let line = "prod 2: Requested/Opening, Failed/BranchTaken, Requested/Opening, Open";
    stage.oracle().after_a_crash().promotions("web", &["hook"], &[line]).check().await;
}

#[tokio::test]
async fn a_commit_that_was_pushed_before_a_kill_is_found_in_the_history() {
    let stage = Stage::new("commits-found").await;
    let Stage { world, repository, .. } = &stage;
    stage.pipeline("web", stage.by_commit(json!({}))).await;
    let says_pushed = |call: &Call| call.is_promotion_status() && call.says(r#""phase":"Merged""#);
    let (mut relaybook, _proxy) = stage.killed_before(says_pushed).await;
    let pushed = repository.head("main").await.unwrap();
    // Others push more commits, and one of them takes the change back.
    repository.commit("main", "more", &[("README.md", Some("# more\n"))]).await;
    repository.commit("main", "back", &[(FILE, Some(&super::release(&world.ns, "web")))]).await;
    relaybook.start_again().await;
    world.settled().await;
    let (_, status) = stage.phase("web/prod 2", Phase::Merged).await;
    assert_eq!((status.commit.unwrap().id, status.reason.as_str(), status.attempts), (pushed, "Pushed", 2));
    stage.fence("web").await;
    stage.exactly(&[], &[("main", 4)]).await;
    stage.oracle().after_a_crash().promotions("web", &["hook"], &["prod 2: Requested/Pushing, Merged/Pushed"]).check().await;
}

#[tokio::test]
async fn a_pull_request_from_a_fork_is_never_taken_for_our_own() {
    let stage = Stage::new("pulls-fork").await;
    let Stage { world, gitea, repository, .. } = &stage;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let (mut relaybook, _proxy, branch) = stage.killed_after_opening().await;
    let body = repository.pull(1).await["body"].as_str().unwrap().to_owned();
    repository.delete_pull(1).await;
    // Anybody who can read the repository can copy the name of the branch and the description.
    let attacker = gitea.person("pulls-fork-attacker").await;
    attacker.post(&repository.path("/forks"), json!({})).await;
    let forked = Repository { owner: attacker.name.clone(), ..attacker.at(repository) };
    forked.commit(&branch, "by an attacker", &[(FILE, Some("version: evil\n"))]).await;
    let theirs =
        attacker.at(repository).open(&format!("{}:{branch}", attacker.name), "main", "Promote web to prod: 2", &body).await;
    assert_eq!(theirs["body"].as_str(), Some(body.as_str()));
    relaybook.start_again().await;
    world.settled().await;
    let ours = stage.opened("web/prod 2").await;
    assert_ne!(json!(ours.number), theirs["number"]);
    repository.close(theirs["number"].as_u64().unwrap()).await;
    stage.check_now(&ours.promotion).await;
    stage.fence("web").await;
    stage.phase("web/prod 2", Phase::Open).await;
    stage.exactly(&[(&branch, "closed"), (&branch, "open")], &[("main", 1), (&branch, 2)]).await;
    stage.oracle().after_a_crash().promotions("web", &["hook"], &["prod 2: Requested/Opening, Open"]).check().await;
}
