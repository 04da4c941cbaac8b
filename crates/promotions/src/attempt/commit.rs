//! Makes the commit of a promotion, and pushes it.
//!
//! In: the attempt. Out: the commit on its branch. The branch is changed only if it still has the value on which the commit was made, so
//! nothing of others is lost. If the branch has moved, the commit is made again on its new value.

use super::problem::of_refusal;
use super::remote::GitRemote;
use super::values::{always, edits};
use super::{Attempt, Outside};
use relaybook_api::promotion::{GitRepository, PromotionCommit};
use relaybook_core::promotion::names::trailer;
use relaybook_core::promotion::progress::{Found, Lasts, Problem};
use relaybook_core::promotion::text::{bounded, shown};
use relaybook_git::{Author, Id, Message, Paths, Push, Pushed, Remote, Snapshot};
use relaybook_settings::setters::EnvironmentRef;

/// How often a commit is made again in one attempt, because the branch has moved.
const TRIES: usize = 3;
/// Number of commits in which the commit of an earlier attempt is searched.
const HISTORY: usize = 200;
/// The trailer by which the commit of a promotion is found again.
pub(super) const TRAILER: &str = "Relaybook-Promotion";
/// The author if none is declared.
const AUTHOR: (&str, &str) = ("Relaybook", "relaybook@example.invalid");

/// The commit of a promotion.
pub(super) enum Made {
    /// It is in the branch.
    There(Id),
    /// Every value is set already, in this commit.
    Declared(Id),
    /// It was made, on this commit.
    New(Id, relaybook_git::Commit),
}

/// Carries out the strategy `commit`.
pub(super) async fn push(outside: &Outside, attempt: &Attempt) -> Result<Found, Problem> {
    let (repository, branch) = attempt.repository()?;
    let server = GitRemote::new(outside, attempt, repository)?;
    let name = full(branch);
    for _ in 0..TRIES {
        let remote = Remote::connect(&server).await.map_err(|error| server.problem(&error))?;
        let _permit = server.permit().await?;
        let refs = remote.refs(&[&name]).await.map_err(|error| server.problem(&error))?;
        let base = refs.id(&name).map_err(|error| server.problem(&error))?;
        let (base, commit) = match make(&server, &remote, attempt, repository, base).await? {
            Made::There(id) => return Ok(Found::Pushed(pushed(id, None, branch))),
            Made::Declared(id) => return Ok(Found::AlreadyDeclared(pushed(id, None, branch))),
            Made::New(base, commit) => (base, commit),
        };
        let push = Push::Update { old: base, new: commit.id, pack: commit.pack };
        match relaybook_git::push(&server, &name, push).await.map_err(|error| server.problem(&error))? {
            Pushed::Done => return Ok(Found::Pushed(pushed(commit.id, Some(base), branch))),
            Pushed::Moved { .. } => {}
            Pushed::Refused { words } => return Err(refused(&server, branch, &words)),
        }
    }
    let message = format!("branch {} has moved during {TRIES} pushes", shown(branch));
    Err(Problem { reason: "BranchMoved", message, lasts: Lasts::Until(None) })
}

/// Makes the commit on a base, or finds that of an earlier attempt in its history.
pub(super) async fn make<'a>(
    server: &GitRemote<'a>,
    remote: &Remote<'_, GitRemote<'a>>,
    attempt: &Attempt,
    repository: &GitRepository,
    base: Id,
) -> Result<Made, Problem> {
    let ours = trailer(&attempt.promotion);
    // Only an earlier attempt can have pushed it.
    let is_repeated = attempt.status().attempts > attempt.status().attempts_before.saturating_add(1);
    if is_repeated && attempt.pull_request().is_none() {
        let history = server.history(remote, base, HISTORY).await?;
        if let Some(found) = history.iter().find(|commit| commit.has_trailer(TRAILER, &ours)) {
            return Ok(Made::There(found.id));
        }
    }
    let paths = Paths::new(&repository.paths).map_err(|error| always("PathInvalid", &error.to_string()))?;
    let snapshot = server.snapshot(remote, base, &paths).await?;
    if snapshot.commit.has_trailer(TRAILER, &ours) {
        return Ok(Made::There(base));
    }
    let spec = &attempt.promotion.spec;
    let environment = EnvironmentRef {
        namespace: attempt.namespace(),
        pipeline: spec.pipeline_ref.name.clone(),
        environment: spec.environment.clone(),
    };
    let edits = edits(&snapshot, &environment, &spec.revision, &repository.paths)?;
    let commit = write(&snapshot, &edits, attempt, repository, &ours)?;
    Ok(commit.map_or(Made::Declared(base), |commit| Made::New(base, commit)))
}

fn write(
    snapshot: &Snapshot,
    edits: &std::collections::BTreeMap<String, bytes::Bytes>,
    attempt: &Attempt,
    repository: &GitRepository,
    ours: &str,
) -> Result<Option<relaybook_git::Commit>, Problem> {
    let spec = &attempt.promotion.spec;
    let subject = format!("Promote {} to {}: {}", spec.pipeline_ref.name, spec.environment, shown(&spec.revision));
    let message = Message::new(&subject).and_then(|message| message.trailer(TRAILER, ours));
    let message = message.map_err(|error| Problem::of_this_program(&error.to_string()))?;
    let declared = repository.author.as_ref();
    let (name, email) = declared.map_or(AUTHOR, |author| (author.name.as_str(), author.email.as_str()));
    let author = Author::new(name, email).map_err(|error| always("AuthorInvalid", &error.to_string()))?;
    // The same for every attempt, so that the same base leads to the same commit.
    let created = attempt.promotion.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    relaybook_git::commit(snapshot, edits, &message, &author, created)
        .map_err(|error| always("SetterInvalid", &error.to_string()))
}

/// The problem of a push that the server refuses.
pub(super) fn refused(server: &GitRemote<'_>, branch: &str, words: &str) -> Problem {
    let message = format!("the server refuses the push to branch {}: {}", shown(branch), server.masked(words));
    let (reason, lasts) = of_refusal(words);
    Problem { reason, message: bounded(&message), lasts }
}

pub(super) fn pushed(id: Id, base: Option<Id>, branch: &str) -> PromotionCommit {
    let base = base.map(|base| base.to_string()).unwrap_or_default();
    PromotionCommit { id: id.to_string(), base, branch: branch.to_owned() }
}

/// Returns the full name of a branch.
pub(super) fn full(branch: &str) -> String {
    format!("refs/heads/{branch}")
}
