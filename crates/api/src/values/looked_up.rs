//! What a forge says about the commit of a revision.
//!
//! In: texts of a forge, which a person wrote. Out: short texts on one line, for messages. They are in memory only, and never stored.

use serde::Serialize;

/// What is known. A part that is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookedUp {
    /// The commit.
    pub commit: CommitInfo,
    /// The pull request with which it came.
    pub pull_request: PullRequestInfo,
}

/// A commit, as its forge describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommitInfo {
    /// The name of its author, never an address.
    pub author: String,
    /// The first line of its message.
    pub message: String,
    /// When it was committed, in RFC 3339.
    pub time: String,
}

/// A pull request, or a merge request of GitLab.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PullRequestInfo {
    /// Its number in the repository.
    pub number: String,
    /// Its title.
    pub title: String,
    /// Its page.
    pub url: String,
    /// The user name of its author.
    pub author: String,
}

/// Which parts are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookUps {
    /// The commit.
    pub commit: bool,
    /// The pull request.
    pub pull_request: bool,
}

impl LookUps {
    /// Whether nothing is wanted.
    #[must_use]
    pub const fn is_none(self) -> bool {
        !self.commit && !self.pull_request
    }
}

impl LookedUp {
    /// Returns an example. It is as inconvenient as real ones: the message has quotes.
    #[must_use]
    pub fn sample() -> Self {
        Self {
            commit: CommitInfo {
                author: "Ada Lovelace".to_owned(),
                message: "Fix the \"engine\"".to_owned(),
                time: "2026-11-21T09:07:14Z".to_owned(),
            },
            pull_request: PullRequestInfo {
                number: "7".to_owned(),
                title: "Fix the engine".to_owned(),
                url: "https://github.com/acme/podinfo/pull/7".to_owned(),
                author: "ada".to_owned(),
            },
        }
    }
}
