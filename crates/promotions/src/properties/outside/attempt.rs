//! The model of an attempt. It sends the same requests in the same order as [`crate::attempt`], and each of them has a fate.

use parking_lot::Mutex;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::forge::{Answer, Call, Commit, Forge, Pull, is_open};
use super::{Happens, lock};
use kube::ResourceExt as _;
use relaybook_api::promotion::{PromotionCommit, PromotionPullRequest, PullRequestState};
use relaybook_api::{Promotion, Time};
use relaybook_core::promotion::names::{branches, trailer};
use relaybook_core::promotion::progress::{Found, Lasts, Problem, Task};

/// What an attempt needs.
pub(super) struct Attempt {
    pub(super) forge: Arc<Mutex<Forge>>,
    /// The fate of the next request.
    pub(super) fate: Arc<Mutex<Happens>>,
    pub(super) started: Time,
    pub(super) promotion: Promotion,
}

fn problem(reason: &'static str, lasts: Lasts) -> Problem {
    Problem { reason, message: format!("{reason} in the model"), lasts }
}

fn found(pull: &Pull, commit: Option<PromotionCommit>) -> Found {
    let (number, state, merge_commit) = (pull.number, pull.state, pull.merge_commit.clone());
    let request = PromotionPullRequest { number, url: None, state, merge_commit };
    Found::PullRequest { request, commit, conflict: false }
}

fn pushed(commit: &Commit, branch: &str) -> PromotionCommit {
    PromotionCommit { id: commit.id.clone(), base: String::new(), branch: branch.to_owned() }
}

enum Branch {
    Declared(Commit),
    Ready(Commit),
}

impl Attempt {
    pub(super) async fn make(self, task: Task) -> Result<Found, Problem> {
        let strategy = self.promotion.status.as_ref().and_then(|status| status.strategy.clone()).unwrap_or_default();
        match task {
            Task::Carry if strategy.commit.is_some() => self.commit().await,
            Task::Carry => self.open().await,
            Task::Look | Task::Last => self.look().await,
            Task::Close => self.close().await,
        }
    }

    /// Sends one request. Everything else can happen before it is applied.
    async fn ask(&self, call: Call) -> Result<Answer, Problem> {
        let mut is_sent = false;
        std::future::poll_fn(|_| if std::mem::replace(&mut is_sent, true) { Poll::Ready(()) } else { Poll::Pending }).await;
        let fate = std::mem::take(&mut *lock(&self.fate));
        let mut forge = lock(&self.forge);
        let lost = || problem("Timeout", Lasts::Until(None));
        match fate {
            Happens::AnswerLost => {
                forge.apply(&call, false);
                Err(lost())
            }
            Happens::NotDone => Err(lost()),
            Happens::Late => {
                forge.late.push_back(call);
                Err(lost())
            }
            Happens::Quota if !call.is_of_git() => {
                let until = self.started.checked_add(Duration::from_secs(90)).unwrap();
                Err(problem("RateLimited", Lasts::NotYet(until)))
            }
            Happens::Done | Happens::Quota => Ok(forge.apply(&call, false)),
            Happens::NotFound => Err(problem("RepositoryNotFound", Lasts::ThreeAttempts)),
            Happens::PushRefused => match call {
                Call::Push(..) | Call::PushMain(..) => Err(problem("PushRefused", Lasts::Always)),
                _ => Ok(forge.apply(&call, false)),
            },
        }
    }

    async fn find(&self, branch: &str) -> Result<Option<Pull>, Problem> {
        let Answer::Pulls(all) = self.ask(Call::Find(branch.to_owned())).await? else { return Ok(None) };
        Ok(all.into_iter().max_by_key(|pull| (is_open(pull), pull.number)))
    }

    async fn refs(&self, branch: &str) -> Result<(Commit, Option<Commit>), Problem> {
        match self.ask(Call::Refs(branch.to_owned())).await? {
            Answer::Refs(main, tip) => Ok((main, tip)),
            _ => Err(problem("InvalidAnswer", Lasts::Until(None))),
        }
    }

    fn new_commit(&self, base: &Commit) -> Commit {
        let spec = &self.promotion.spec;
        Forge::commit(&base.id, &spec.environment, &spec.revision, &trailer(&self.promotion))
    }

    fn is_declared(&self) -> bool {
        let spec = &self.promotion.spec;
        lock(&self.forge).declared(&spec.environment).as_ref() == Some(&spec.revision)
    }

    async fn commit(&self) -> Result<Found, Problem> {
        let status = self.promotion.status.clone().unwrap_or_default();
        for _ in 0..3 {
            let (base, _) = self.refs("main").await?;
            if status.attempts > status.attempts_before + 1
                && let Answer::Commits(history) = self.ask(Call::History).await?
                && let Some(there) = history.iter().find(|commit| commit.trailer == trailer(&self.promotion))
            {
                return Ok(Found::Pushed(pushed(there, "main")));
            }
            if self.is_declared() {
                return Ok(Found::AlreadyDeclared(pushed(&base, "main")));
            }
            let new = self.new_commit(&base);
            if let Answer::Done = self.ask(Call::PushMain(base.id, new.clone())).await? {
                return Ok(Found::Pushed(pushed(&new, "main")));
            }
        }
        Err(problem("BranchMoved", Lasts::Until(None)))
    }

    async fn open(&self) -> Result<Found, Problem> {
        let branches = branches(&self.promotion);
        let own = &branches[0];
        for branch in &branches {
            if let Some(pull) = self.find(branch).await?.filter(|pull| branch == own || is_open(pull)) {
                let head = lock(&self.forge).branches.get(branch).map(|tip| pushed(tip, branch));
                return Ok(found(&pull, head));
            }
        }
        let commit = match self.push(own).await? {
            Branch::Declared(commit) => return Ok(Found::AlreadyDeclared(pushed(&commit, "main"))),
            Branch::Ready(commit) => pushed(&commit, own),
        };
        match self.ask(Call::Create(own.clone(), self.promotion.uid().unwrap_or_default())).await? {
            Answer::Pulls(created) => Ok(found(&created[0], Some(commit))),
            Answer::Exists => match self.find(own).await? {
                Some(pull) => Ok(found(&pull, Some(commit))),
                None => Err(problem("BranchTaken", Lasts::ThreeAttempts)),
            },
            _ => Err(problem("Refused", Lasts::Always)),
        }
    }

    async fn push(&self, branch: &str) -> Result<Branch, Problem> {
        let (base, tip) = self.refs(branch).await?;
        if let Some(tip) = tip {
            return self.adopt(tip).map(Branch::Ready);
        }
        if self.is_declared() {
            return Ok(Branch::Declared(base));
        }
        let new = self.new_commit(&base);
        match self.ask(Call::Push(branch.to_owned(), new.clone())).await? {
            Answer::Done => Ok(Branch::Ready(new)),
            Answer::Moved(Some(tip)) => self.adopt(tip).map(Branch::Ready),
            _ => Err(problem("BranchMoved", Lasts::Until(None))),
        }
    }

    fn adopt(&self, tip: Commit) -> Result<Commit, Problem> {
        if tip.trailer == trailer(&self.promotion) { Ok(tip) } else { Err(problem("BranchTaken", Lasts::Always)) }
    }

    async fn look(&self) -> Result<Found, Problem> {
        let status = self.promotion.status.clone().unwrap_or_default();
        if let Some(request) = status.pull_request
            && let Answer::Pulls(pulls) = self.ask(Call::Look(request.number)).await?
            && let Some(pull) = pulls.first()
        {
            return Ok(found(pull, None));
        }
        let recorded = status.commit.map(|commit| vec![commit.branch]);
        for branch in recorded.unwrap_or_else(|| branches(&self.promotion)) {
            if let Some(pull) = self.find(&branch).await? {
                return Ok(found(&pull, None));
            }
        }
        Ok(Found::Gone)
    }

    async fn close(&self) -> Result<Found, Problem> {
        let Found::PullRequest { mut request, .. } = self.look().await? else {
            return self.delete_branch().await.map(|()| Found::Nothing);
        };
        if matches!(request.state, PullRequestState::Open | PullRequestState::Mergeable) {
            self.ask(Call::Close(request.number)).await?;
            if let Answer::Pulls(pulls) = self.ask(Call::Look(request.number)).await?
                && let Some(pull) = pulls.first()
                && pull.state == PullRequestState::Merged
            {
                return Ok(found(pull, None));
            }
            self.ask(Call::Comment).await?;
            request.state = PullRequestState::Abandoned;
        }
        if request.state != PullRequestState::Merged {
            self.delete_branch().await?;
        }
        Ok(Found::PullRequest { request, commit: None, conflict: false })
    }

    async fn delete_branch(&self) -> Result<(), Problem> {
        let recorded = self.promotion.status.as_ref().and_then(|status| status.commit.clone()).map(|commit| commit.branch);
        let branch = recorded.unwrap_or_else(|| branches(&self.promotion)[0].clone());
        let (_, tip) = self.refs(&branch).await?;
        if let Some(tip) = tip.and_then(|tip| self.adopt(tip).ok()) {
            self.ask(Call::Delete(branch, tip.id)).await?;
        }
        Ok(())
    }
}
