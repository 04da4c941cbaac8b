//! One commit in a remote Git repository, over smart HTTP. There is no working copy, no `git` program, and nothing is written to a disk.
//!
//! In: a [`Transport`] that sends requests below the URL of a repository, with its credentials. Out: a [`Remote`] with the ids of branches
//! ([`Remote::refs`]), the YAML files of a commit ([`Remote::snapshot`]), and the newest commits ([`Remote::history`]). [`commit()`] is pure:
//! it turns a [`Snapshot`] and edited files into a [`Commit`] with its pack. [`push()`] sends the pack, and changes one branch if the
//! branch still has the expected value. An error is a [`GitError`], whose variant says what the caller can do.
//!
//! `wire` speaks with the server, and `objects` reads and writes what is sent. The files beside them use both.
//!
//! The server is not trusted. `limits` has all bounds. `objects::pack` computes the id of each object from its content, and finds objects only
//! by these ids. `objects::tree` checks the names of files. All texts of the server are cut, and have no control characters.
//!
//! The `gix` crates read and write objects, entries of packs, deltas, trees and packet lines. Only the requests and reports are written here.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

mod commit;
mod history;
mod id;
mod limits;
mod message;
mod objects;
mod paths;
mod snapshot;
#[cfg(test)]
mod tests;
mod wire;
mod words;

pub use commit::{Commit, CommitError, commit};
pub use id::{Id, NotAnId};
pub use limits::{Bound, MAX_ANSWER, MAX_FILE, MAX_FILES, MAX_PATHS};
pub use message::{Author, Message, NotAMessage};
pub use objects::found::Found;
pub use paths::{NotAPath, Paths};
pub use snapshot::{File, LeftOut, Snapshot, WhyLeftOut};
pub use wire::push::{Push, Pushed, push};
pub use wire::remote::{Refs, Remote, is_branch};
pub use wire::transport::{Method, Request, Response, Transport, TransportError};
pub use words::MAX_WORDS;

/// Why something failed in a repository. Texts that come from the server are cut to [`MAX_WORDS`] bytes and have no control characters.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The transport has no answer.
    #[error("the request failed")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The status is 401 or 403.
    #[error("the server rejects the credentials (status {status}){}", words::after(.words))]
    CredentialsRejected {
        /// The status of the answer.
        status: u16,
        /// What the server says. It can be empty.
        words: String,
    },
    /// The status is 404. Many servers answer this for repositories that the credentials do not permit to see.
    #[error("the repository is not found")]
    RepositoryNotFound,
    /// The branch does not exist.
    #[error("the branch {0} is not found")]
    BranchNotFound(String),
    /// The repository exceeds a bound.
    #[error("the repository is too large: {0}")]
    TooLarge(Bound),
    /// The server, or a proxy before it, sends what a Git server must not send. Contains what is wrong.
    #[error("the answer of the server is invalid: {0}")]
    InvalidAnswer(&'static str),
    /// The server has no answer that can be used here. Contains what is not supported.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Another status than 200. Redirects are never followed.
    #[error("the server answers with status {status}{}", words::after(.words))]
    Status {
        /// The status of the answer.
        status: u16,
        /// What the server says. It can be empty.
        words: String,
    },
    /// The server sends an error instead of an answer, for example that it has no such commit.
    #[error("the server reports an error: {0}")]
    Server(String),
    /// The name of the branch is not valid in Git.
    #[error("{0:?} is not the full name of a branch")]
    NotARef(String),
}
