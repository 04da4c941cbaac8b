//! The model of a forge with one Git repository: it applies one request after the other, and refuses what a real one refuses.
//!
//! A push that creates a branch is refused if the branch exists. A push to `main` names the commit on which it was made. A pull request needs
//! its branch, and only one of a branch can be open. The deletion of a branch closes its pull request.

use std::collections::{BTreeMap, VecDeque};

use relaybook_api::promotion::PullRequestState;
use relaybook_api::values::names::hash;

/// A commit that sets the revision of one environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) id: String,
    pub(super) environment: String,
    pub(super) revision: String,
    /// The value of the trailer. Empty for the commit of a person.
    pub(super) trailer: String,
}

/// A pull request.
#[derive(Clone, Debug)]
pub(crate) struct Pull {
    pub(crate) number: i64,
    pub(crate) branch: String,
    /// Uid of the promotion that opened it.
    pub(crate) promotion: String,
    pub(crate) state: PullRequestState,
    /// The request that opened it was applied after its attempt had ended.
    pub(crate) is_late: bool,
    /// A person deleted it.
    pub(crate) is_deleted: bool,
    pub(super) merge_commit: Option<String>,
}

/// A request to the forge.
#[derive(Clone, Debug)]
pub(super) enum Call {
    /// All pull requests of a branch.
    Find(String),
    /// The pull request with this number.
    Look(i64),
    /// The newest commit of `main`, and that of a branch.
    Refs(String),
    /// The commits of `main`.
    History,
    /// Creates a branch.
    Push(String, Commit),
    /// Adds a commit to `main`, if its newest commit is still this one.
    PushMain(String, Commit),
    /// Opens the pull request of a branch, for a promotion.
    Create(String, String),
    /// Closes a pull request.
    Close(i64),
    /// Writes a comment.
    Comment,
    /// Deletes a branch, if its newest commit is still this one.
    Delete(String, String),
}

impl Call {
    /// Whether it is a request to the Git server, and not to the API.
    pub(super) fn is_of_git(&self) -> bool {
        matches!(self, Self::Refs(_) | Self::History | Self::Push(..) | Self::PushMain(..) | Self::Delete(..))
    }
}

/// The answer of the forge.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Pulls(Vec<Pull>),
    Refs(Commit, Option<Commit>),
    Commits(Vec<Commit>),
    Done,
    /// The branch has this value.
    Moved(Option<Commit>),
    /// The forge has a pull request of the branch that is open.
    Exists,
    /// The request is not valid.
    Refused,
}

/// The forge.
#[derive(Debug, Default)]
pub(crate) struct Forge {
    /// The commits of `main`, oldest first.
    pub(super) main: Vec<Commit>,
    pub(super) branches: BTreeMap<String, Commit>,
    pub(crate) pulls: Vec<Pull>,
    /// Requests that no attempt waits for any more.
    pub(super) late: VecDeque<Call>,
    /// Number of requests that were applied late.
    pub(crate) landed: u32,
    /// By branch: how often an attempt pushed it, and how often it was deleted.
    pub(super) pushed: BTreeMap<String, (u32, u32)>,
    /// By branch: how often an attempt opened a pull request, and how often a person deleted one.
    pub(super) opened: BTreeMap<String, (u32, u32)>,
    /// The branches to which a person pushed.
    pub(super) touched: Vec<String>,
    /// It finds no pull request, and accepts a second one of a branch. No real forge does.
    pub(crate) is_blind: bool,
    /// The deletion of a branch leaves its pull request open, as at GitLab. It cannot be merged any more.
    pub(crate) keeps_pulls: bool,
    number: i64,
}

impl Forge {
    /// Returns a commit. The same content on the same base is the same commit.
    pub(super) fn commit(base: &str, environment: &str, revision: &str, trailer: &str) -> Commit {
        let id = hash(&[base, environment, revision, trailer])[..40].to_owned();
        Commit { id, environment: environment.into(), revision: revision.into(), trailer: trailer.into() }
    }

    pub(super) fn tip(&self) -> Commit {
        self.main.last().cloned().unwrap_or_default()
    }

    /// Returns the revision that `main` declares for an environment.
    pub(super) fn declared(&self, environment: &str) -> Option<String> {
        self.main.iter().rev().find(|commit| commit.environment == environment).map(|commit| commit.revision.clone())
    }

    pub(super) fn apply(&mut self, call: &Call, is_late: bool) -> Answer {
        match call {
            Call::Find(_) if self.is_blind => Answer::Pulls(Vec::new()),
            Call::Find(branch) => self.pulls_where(|pull| pull.branch == *branch),
            Call::Look(number) => self.pulls_where(|pull| pull.number == *number),
            Call::Refs(branch) => Answer::Refs(self.tip(), self.branches.get(branch).cloned()),
            Call::History => Answer::Commits(self.main.clone()),
            Call::Push(branch, commit) => {
                if let Some(tip) = self.branches.get(branch) {
                    return Answer::Moved(Some(tip.clone()));
                }
                self.branches.insert(branch.clone(), commit.clone());
                self.pushed.entry(branch.clone()).or_default().0 += u32::from(!is_late);
                Answer::Done
            }
            Call::PushMain(base, commit) if self.tip().id == *base => {
                self.main.push(commit.clone());
                Answer::Done
            }
            Call::PushMain(..) => Answer::Moved(Some(self.tip())),
            Call::Create(branch, promotion) => self.create(branch, promotion, is_late),
            Call::Close(number) => {
                if let Some(pull) = self.pulls.iter_mut().find(|pull| pull.number == *number && is_open(pull)) {
                    pull.state = PullRequestState::Abandoned;
                }
                Answer::Done
            }
            Call::Comment => Answer::Done,
            Call::Delete(branch, old) if self.branches.get(branch).is_some_and(|tip| tip.id == *old) => {
                self.delete_branch(branch);
                Answer::Done
            }
            Call::Delete(branch, _) => Answer::Moved(self.branches.get(branch).cloned()),
        }
    }

    fn pulls_where(&self, is_wanted: impl Fn(&Pull) -> bool) -> Answer {
        Answer::Pulls(self.pulls.iter().filter(|pull| !pull.is_deleted && is_wanted(pull)).cloned().collect())
    }

    fn create(&mut self, branch: &str, promotion: &str, is_late: bool) -> Answer {
        if !self.branches.contains_key(branch) {
            return Answer::Refused;
        }
        if !self.is_blind && self.pulls.iter().any(|pull| pull.branch == branch && is_open(pull)) {
            return Answer::Exists;
        }
        self.number += 1;
        self.opened.entry(branch.to_owned()).or_default().0 += u32::from(!is_late);
        let pull = Pull {
            number: self.number,
            branch: branch.to_owned(),
            promotion: promotion.to_owned(),
            state: PullRequestState::Open,
            is_late,
            is_deleted: false,
            merge_commit: None,
        };
        self.pulls.push(pull.clone());
        Answer::Pulls(vec![pull])
    }

    pub(super) fn delete_branch(&mut self, branch: &str) {
        self.branches.remove(branch);
        self.pushed.entry(branch.to_owned()).or_default().1 += 1;
        if !self.keeps_pulls {
            let open = self.pulls.iter_mut().filter(|pull| pull.branch == branch && is_open(pull));
            open.for_each(|pull| pull.state = PullRequestState::Abandoned);
        }
    }

    /// Applies the oldest request that nobody waits for.
    pub(super) fn land(&mut self) {
        if let Some(call) = self.late.pop_front() {
            self.apply(&call, true);
            self.landed += 1;
        }
    }

    /// A person merges a pull request.
    pub(super) fn merge(&mut self, which: u8) {
        let base = self.tip().id;
        let Some(at) = self.open(which) else { return };
        let Some(commit) = self.branches.get(&self.pulls[at].branch).cloned() else { return };
        let merged = Self::commit(&base, &commit.environment, &commit.revision, "");
        (self.pulls[at].state, self.pulls[at].merge_commit) = (PullRequestState::Merged, Some(merged.id.clone()));
        self.main.push(merged);
    }

    /// A person closes a pull request.
    pub(super) fn close(&mut self, which: u8) {
        if let Some(at) = self.open(which) {
            self.pulls[at].state = PullRequestState::Abandoned;
        }
    }

    /// A person deletes a pull request. Gitea permits that.
    pub(super) fn delete(&mut self, which: u8) {
        if let Some(at) = self.open(which) {
            self.pulls[at].is_deleted = true;
            self.opened.entry(self.pulls[at].branch.clone()).or_default().1 += 1;
        }
    }

    /// A person pushes to a branch.
    pub(super) fn push_to(&mut self, which: u8) {
        let Some(branch) = self.branch(which) else { return };
        let tip = self.branches[&branch].clone();
        self.touched.push(branch.clone());
        self.branches.insert(branch, Self::commit(&tip.id, &tip.environment, &tip.revision, ""));
    }

    /// Returns the name of a branch that exists.
    pub(super) fn branch(&self, which: u8) -> Option<String> {
        self.branches.keys().nth(usize::from(which).checked_rem(self.branches.len())?).cloned()
    }

    /// Returns the index of a pull request that is open.
    fn open(&self, which: u8) -> Option<usize> {
        let open: Vec<usize> = (0..self.pulls.len()).filter(|at| is_open(&self.pulls[*at])).collect();
        open.get(usize::from(which).checked_rem(open.len())?).copied()
    }

    /// Whether the pull request can be merged.
    pub(crate) fn can_be_merged(&self, pull: &Pull) -> bool {
        is_open(pull) && self.branches.contains_key(&pull.branch)
    }
}

/// Whether a pull request is open.
pub(crate) fn is_open(pull: &Pull) -> bool {
    !pull.is_deleted && matches!(pull.state, PullRequestState::Open | PullRequestState::Mergeable)
}
