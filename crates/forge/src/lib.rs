//! Pure: pull requests at Gitea and Forgejo, GitHub, GitLab, Bitbucket Cloud and Bitbucket Server (Data Center).
//!
//! In: a [`Repository`], and an [`Intent`]: find, create, label, read, comment on or close a pull request. Then the [`Answer`] of the forge.
//! Out: an HTTP [`Request`] ([`request()`]), and the [`Meaning`] of the answer ([`meaning()`]) or an [`Error`]. In addition, the texts of pull
//! requests ([`text`]), what a forge says about a commit ([`look_up`]), and when a request may be made ([`budget`]).
//!
//! A request contains no credentials: [`Kind::credential`] describes the header that the caller adds. The answer decides nothing about where
//! the next request goes: of links in answers, only numbers are read. Each forge has a file in `servers`, with a table of tests. Requests and example
//! answers are checked against the schema of the forge, as far as one is published.
//!
//! # Steps of an attempt
//!
//! 1. [`Intent::Find`] from [`Cursor::FIRST`], until there is no next page. Take the pull request for which [`PullRequest::is_of`] is true.
//! 2. If there is none, [`Intent::Create`]. After [`Meaning::Exists`], and after an answer that was lost, continue with step 1.
//! 3. [`Intent::Label`], if [`request()`] returns a request for it.
//! 4. [`Intent::Look`] until the pull request is merged or closed. After [`Meaning::Gone`], continue with step 1.
//! 5. To withdraw it: [`Intent::Look`], and if it is open, [`Intent::Close`] and [`Intent::Comment`]. After [`Meaning::Changed`], look again.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

mod answer;
pub mod budget;
#[cfg(test)]
mod contract;
mod error;
mod intent;
mod kind;
pub mod limits;
mod link;
pub mod look_up;
mod pull_request;
mod repository;
mod servers;
pub mod text;

pub use answer::{Answer, MAX_ANSWER, etag};
pub use error::Error;
pub use intent::{Cursor, Intent, MAX_PAGES, Meaning, NewPullRequest, PAGE, Request};
pub use kind::{Credential, Kind, UnknownKind};
pub use pull_request::{PullRequest, State};
pub use repository::{Repository, RepositoryError};

use servers::{bitbucket_cloud, bitbucket_server, gitea, github, gitlab};

/// Returns the request of an intent. `etag` is the entity tag of the last answer to the same intent; if the answer would be the same, the
/// forge answers with [`Meaning::Unchanged`].
///
/// Returns `None` if this forge has no such request, and the caller continues without it: only Bitbucket Server has
/// [`Intent::Mergeability`], and only Gitea and GitHub have [`Intent::Label`].
#[must_use]
pub fn request(repository: &Repository, intent: &Intent<'_>, etag: Option<&str>) -> Option<Request> {
    let request = match repository.kind() {
        Kind::Gitea => gitea::request(repository, intent),
        Kind::Github => github::request(repository, intent),
        Kind::Gitlab => gitlab::request(repository, intent),
        Kind::BitbucketCloud => bitbucket_cloud::request(repository, intent),
        Kind::BitbucketServer => bitbucket_server::request(repository, intent),
    }?;
    Some(request.conditional(etag))
}

/// Returns what the answer to the request of an intent means.
pub fn meaning(repository: &Repository, intent: &Intent<'_>, answer: &Answer<'_>) -> Result<Meaning, Error> {
    if let Some(meaning) = answer::common(repository, intent, answer)? {
        return Ok(meaning);
    }
    match repository.kind() {
        Kind::Gitea => gitea::meaning(repository, intent, answer),
        Kind::Github => github::meaning(repository, intent, answer),
        Kind::Gitlab => gitlab::meaning(repository, intent, answer),
        Kind::BitbucketCloud => bitbucket_cloud::meaning(repository, intent, answer),
        Kind::BitbucketServer => bitbucket_server::meaning(repository, intent, answer),
    }
}
