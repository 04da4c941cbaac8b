//! Changes one branch, if it has the expected value.

use bytes::Bytes;

use super::lines::{AGENT, Written};
use super::remote::check_name;
use super::report::{Before, Reason, Report, before, report};
use super::transport::{Method, Request, Transport, exchange};
use crate::GitError;
use crate::id::{Id, or_null};
use crate::limits::{MAX_ALL_REFS, MAX_REPORT};

/// What a push does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// Creates a branch that must not exist.
    Create {
        /// The commit.
        new: Id,
        /// The pack of the commit. It is empty if the repository has the commit.
        pack: Bytes,
    },
    /// Updates a branch that must have the old value.
    Update {
        /// The value before.
        old: Id,
        /// The commit.
        new: Id,
        /// The pack of the commit.
        pack: Bytes,
    },
    /// Deletes a branch that must have the old value.
    Delete {
        /// The value before.
        old: Id,
    },
}

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The branch has the new value. This includes that it had the new value before.
    Done,
    /// The branch has another value than expected. Nothing was changed.
    Moved {
        /// The value now. `None` if the branch does not exist.
        now: Option<Id>,
    },
    /// The server refuses the push. Nothing was changed.
    Refused {
        /// The reason, and what hooks say.
        words: String,
    },
}

impl Push {
    fn before(&self) -> Option<Id> {
        match self {
            Self::Create { .. } => None,
            Self::Update { old, .. } | Self::Delete { old } => Some(*old),
        }
    }

    fn after(&self) -> Option<Id> {
        match self {
            Self::Create { new, .. } | Self::Update { new, .. } => Some(*new),
            Self::Delete { .. } => None,
        }
    }
}

/// Changes a ref, for example `refs/heads/main`. It never overwrites another value than the expected one.
///
/// After an error it is not known whether the ref has changed. The same push again gives the right result.
pub async fn push(transport: &impl Transport, name: &str, push: Push) -> Result<Pushed, GitError> {
    check_name(name)?;
    let server = advertised(transport, name).await?;
    if server.now == push.after() {
        return Ok(Pushed::Done);
    }
    if server.now != push.before() {
        return Ok(Pushed::Moved { now: server.now });
    }
    if push.after().is_none() && !server.delete {
        return Ok(Pushed::Refused { words: "the server does not permit to delete branches".to_owned() });
    }
    let request = Request {
        method: Method::Post,
        path: "/git-receive-pack",
        headers: vec![
            ("content-type", "application/x-git-receive-pack-request"),
            ("accept", "application/x-git-receive-pack-result"),
        ],
        body: command(name, &push, &server)?,
        limit: MAX_REPORT,
    };
    let answer = exchange(transport, request, "application/x-git-receive-pack-result").await?;
    match report(&answer, name, server.bands)? {
        Report::Done => Ok(Pushed::Done),
        Report::Refused { reason: Reason::Rule, words } => Ok(Pushed::Refused { words }),
        Report::Refused { reason, words } => {
            let now = advertised(transport, name).await?.now;
            let is_moved = now != push.before() || reason == Reason::Moved;
            Ok(if now == push.after() {
                Pushed::Done
            } else if is_moved {
                Pushed::Moved { now }
            } else {
                Pushed::Refused { words }
            })
        }
    }
}

/// Asks for the value of a ref, and what the server supports.
async fn advertised(transport: &impl Transport, name: &str) -> Result<Before, GitError> {
    let request = Request {
        method: Method::Get,
        path: "/info/refs?service=git-receive-pack",
        headers: vec![("accept", "application/x-git-receive-pack-advertisement")],
        body: Bytes::new(),
        limit: MAX_ALL_REFS,
    };
    let answer = exchange(transport, request, "application/x-git-receive-pack-advertisement").await?;
    before(&answer, name)
}

/// Returns the body of a push: one command with the old value as its condition, and the pack.
fn command(name: &str, push: &Push, server: &Before) -> Result<Bytes, GitError> {
    let (old, new) = (or_null(push.before()), or_null(push.after()));
    let mut line = format!("{old} {new} {name}\0 report-status");
    for (is_supported, capability) in [
        (server.bands, "side-band-64k"),
        (server.quiet, "quiet"),
        (server.object_format, "object-format=sha1"),
        (server.agent, AGENT),
    ] {
        if is_supported {
            line = format!("{line} {capability}");
        }
    }
    let pack = match push {
        Push::Create { pack, .. } | Push::Update { pack, .. } => pack.as_ref(),
        Push::Delete { .. } => &[],
    };
    Ok(Written::default().data(line.as_bytes())?.flush().finish(pack))
}
