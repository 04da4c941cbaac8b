//! Opens, reads and closes the pull request of a promotion.
//!
//! In: the attempt. Out: the pull request as the forge shows it. It is looked for before it is opened: by its branch, and by the last line of
//! its description. A forge refuses a second open pull request of the same branches, so an attempt never makes two.

use super::commit::{Made, TRAILER, full, make, pushed, refused};
use super::remote::{ForgeRemote, GitRemote};
use super::values::always;
use super::{Attempt, Outside};
use relaybook_api::promotion::RETRY;
use relaybook_api::promotion::{ForgeType, PromotionCommit, PromotionPullRequest, PullRequestState, PullRequestStrategy};
use relaybook_core::promotion::names::{branches, trailer, trailers};
use relaybook_core::promotion::progress::{Found, Lasts, Problem, Task};
use relaybook_core::promotion::text::shown;
use relaybook_forge::text;
use relaybook_forge::text::Promoted;
use relaybook_forge::{Cursor, Intent, Meaning, NewPullRequest, PullRequest, State};
use relaybook_git::{Id, Push, Pushed, Remote};

/// Makes an attempt of a promotion by pull request.
pub(super) async fn attempt(
    outside: &Outside,
    attempt: &Attempt,
    of: &PullRequestStrategy,
    task: Task,
) -> Result<Found, Problem> {
    let forge = ForgeRemote::new(outside, attempt, of)?;
    let request = Request { outside, attempt, of, forge };
    match task {
        Task::Carry => request.open().await,
        Task::Look | Task::Last => request.look().await,
        Task::Close => request.close().await,
    }
}

/// The pull request of an attempt.
struct Request<'a> {
    outside: &'a Outside,
    attempt: &'a Attempt,
    of: &'a PullRequestStrategy,
    forge: ForgeRemote<'a>,
}

impl Request<'_> {
    fn base(&self) -> Result<&str, Problem> {
        Ok(self.attempt.repository()?.1)
    }

    /// Finds the pull request, or opens it.
    async fn open(&self) -> Result<Found, Problem> {
        let branches = branches(&self.attempt.promotion);
        let own = branches.first().ok_or_else(|| Problem::of_this_program("the promotion has no branch"))?;
        for branch in &branches {
            let found = self.find(branch).await?;
            let is_usable = |found: &PullRequest| branch == own || found.state.is_open();
            if let Some(found) = found.filter(is_usable) {
                if found.state.is_open() {
                    // The attempt that opened it may have ended before it could add them.
                    self.label(found.number).await;
                }
                let commit =
                    found.head.clone().map(|id| PromotionCommit { id, base: String::new(), branch: branch.clone() });
                return Ok(seen(&found, commit));
            }
        }
        match self.push(own).await? {
            Branch::Declared(commit) => Ok(Found::AlreadyDeclared(commit)),
            Branch::Ready(commit) => self.create(own, commit).await,
        }
    }

    /// Finds the newest pull request of a branch that has our marker. An open one comes first.
    async fn find(&self, branch: &str) -> Result<Option<PullRequest>, Problem> {
        let base = self.base()?;
        let (mut cursor, mut newest) = (Some(Cursor::FIRST), None::<PullRequest>);
        while let Some(at) = cursor {
            let Some(Meaning::Page { found, next }) = self.forge.ask(&Intent::Find { branch, base, cursor: at }).await?
            else {
                break;
            };
            for found in found.into_iter().filter(|found| self.is_ours(found)) {
                let rank = |of: &PullRequest| (of.state.is_open(), of.number);
                if newest.as_ref().is_none_or(|newest| rank(newest) < rank(&found)) {
                    newest = Some(found);
                }
            }
            cursor = next;
        }
        Ok(newest)
    }

    /// Whether a pull request is that of this promotion, or of an earlier one for the same occasion. The name of the branch has the occasion.
    fn is_ours(&self, found: &PullRequest) -> bool {
        found.is_of(&self.attempt.promotion.spec.pipeline_ref.uid)
    }

    /// Pushes the commit to the branch of the pull request, unless an earlier attempt did.
    async fn push(&self, branch: &str) -> Result<Branch, Problem> {
        let (repository, base_branch) = self.attempt.repository()?;
        let server = GitRemote::new(self.outside, self.attempt, repository)?;
        let (base_name, name) = (full(base_branch), full(branch));
        let remote = Remote::connect(&server).await.map_err(|error| server.problem(&error))?;
        let _permit = server.permit().await?;
        let refs = remote.refs(&[&base_name, &name]).await.map_err(|error| server.problem(&error))?;
        let base = refs.id(&base_name).map_err(|error| server.problem(&error))?;
        if let Some(tip) = refs.ids.get(&name) {
            return self.adopt(&server, &remote, branch, *tip).await;
        }
        let (base, commit) = match make(&server, &remote, self.attempt, repository, base).await? {
            Made::There(id) | Made::Declared(id) => return Ok(Branch::Declared(pushed(id, None, base_branch))),
            Made::New(base, commit) => (base, commit),
        };
        let push = Push::Create { new: commit.id, pack: commit.pack };
        match relaybook_git::push(&server, &name, push).await.map_err(|error| server.problem(&error))? {
            Pushed::Done => Ok(Branch::Ready(pushed(commit.id, Some(base), branch))),
            Pushed::Moved { now: Some(tip) } => self.adopt(&server, &remote, branch, tip).await,
            Pushed::Moved { now: None } => {
                let message = format!("branch {} has changed during the push", shown(branch));
                Err(Problem { reason: "BranchMoved", message, lasts: Lasts::Until(None) })
            }
            Pushed::Refused { words } => Err(refused(&server, branch, &words)),
        }
    }

    /// Takes a branch that exists, if its newest commit is that of this promotion.
    async fn adopt<'r>(
        &self,
        server: &GitRemote<'r>,
        remote: &Remote<'_, GitRemote<'r>>,
        branch: &str,
        tip: Id,
    ) -> Result<Branch, Problem> {
        let history = server.history(remote, tip, 1).await?;
        let ours = trailer(&self.attempt.promotion);
        if let Some(commit) = history.first().filter(|commit| commit.has_trailer(TRAILER, &ours)) {
            return Ok(Branch::Ready(pushed(tip, commit.parents.first().copied(), branch)));
        }
        let message = format!(
            "branch {} exists, and its newest commit is not that of this promotion; delete the branch, or set the \
                     annotation {RETRY} to a new value to use another one",
            shown(branch)
        );
        Err(always("BranchTaken", &message))
    }

    /// Opens the pull request.
    async fn create(&self, branch: &str, commit: PromotionCommit) -> Result<Found, Problem> {
        let (base, promoted) = (self.base()?, self.promoted());
        let (title, body) = self.texts(&promoted)?;
        let new = NewPullRequest { branch, base, title: &title, body: &body, labels: &self.of.labels };
        let created = match self.forge.ask(&Intent::Create(new)).await? {
            Some(Meaning::Created(created)) if self.is_ours(&created) => created,
            Some(Meaning::Created(_) | Meaning::Exists) => {
                let message = format!("the forge has another pull request of branch {}; close it", shown(branch));
                let other = Problem { reason: "BranchTaken", message, lasts: Lasts::ThreeAttempts };
                return self.find(branch).await?.map(|found| seen(&found, Some(commit))).ok_or(other);
            }
            _ => return Err(unexpected()),
        };
        self.label(created.number).await;
        Ok(seen(&created, Some(commit)))
    }

    /// Adds the labels to a pull request. The pull request counts also without them: many tokens may not set labels.
    async fn label(&self, number: u64) {
        if !self.of.labels.is_empty() {
            drop(self.forge.ask(&Intent::Label { number, labels: &self.of.labels }).await);
        }
    }

    /// Returns title and description: of the templates, or the default ones.
    fn texts(&self, promoted: &Promoted<'_>) -> Result<(String, String), Problem> {
        let rendered = |field: &str, template: Option<&String>| {
            template.map(|template| super::template::render(field, template, &self.attempt.promotion)).transpose()
        };
        let (title, body) = (rendered("title", self.of.title.as_ref())?, rendered("body", self.of.body.as_ref())?);
        let title = title.map_or_else(|| text::title(promoted), |title| text::titled(&title));
        let body = body.map_or_else(|| text::body(promoted), |body| text::described(&body, promoted));
        if title.is_empty() {
            return Err(always("TemplateInvalid", "the template of the title renders an empty text"));
        }
        Ok((title, body))
    }

    fn promoted(&self) -> Promoted<'_> {
        let promotion = &self.attempt.promotion;
        let spec = &promotion.spec;
        Promoted {
            namespace: promotion.metadata.namespace.as_deref().unwrap_or_default(),
            name: promotion.metadata.name.as_deref().unwrap_or_default(),
            pipeline: &spec.pipeline_ref.name,
            pipeline_uid: &spec.pipeline_ref.uid,
            environment: &spec.environment,
            from: &spec.from,
            revision: &spec.revision,
            previous: spec.previous.as_deref(),
        }
    }

    /// Reads the pull request. If the forge does not know its number, it is looked for: a forge that was restored can have given it another one.
    async fn look(&self) -> Result<Found, Problem> {
        let Some(number) = self.number() else {
            return Ok(self.find_own().await?.map_or(Found::Gone, |found| seen(&found, None)));
        };
        let uid = self.attempt.promotion.metadata.uid.clone().unwrap_or_default();
        let known = self.outside.seen(&uid);
        let etag = known.as_ref().map(|(etag, _)| etag.as_str());
        match self.forge.ask_since(&Intent::Look { number }, etag).await? {
            Some((Meaning::Unchanged, _)) if known.is_some() => Ok(known.map_or(Found::Gone, |(_, found)| found)),
            Some((Meaning::Seen(found), etag)) if self.is_followed(&found) => {
                let found = self.with_mergeability(found).await?;
                let found = seen(&self.with_conflict(found), None);
                self.outside.note_seen(uid, etag, &found);
                Ok(found)
            }
            Some((Meaning::Seen(_) | Meaning::Gone, _)) => {
                Ok(self.find_own().await?.map_or(Found::Gone, |found| seen(&found, None)))
            }
            _ => Err(unexpected()),
        }
    }

    fn number(&self) -> Option<u64> {
        self.attempt.status().pull_request.as_ref().and_then(|request| u64::try_from(request.number).ok())
    }

    /// Whether a pull request with the recorded number is that of this promotion. People can replace its description, so the branch counts, too.
    fn is_followed(&self, found: &PullRequest) -> bool {
        self.is_ours(found) || (!found.from_fork && self.recorded_branches().contains(&found.branch))
    }

    /// Returns the recorded branch. If none is recorded, returns all branches that the pull request can have.
    fn recorded_branches(&self) -> Vec<String> {
        let recorded = self.attempt.status().commit.as_ref().map(|commit| commit.branch.clone());
        recorded.map_or_else(|| branches(&self.attempt.promotion), |branch| vec![branch])
    }

    async fn find_own(&self) -> Result<Option<PullRequest>, Problem> {
        for branch in self.recorded_branches() {
            if let Some(found) = self.find(&branch).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Asks the forge whether an open pull request can be merged, if the pull request itself does not show it.
    async fn with_mergeability(&self, mut found: PullRequest) -> Result<PullRequest, Problem> {
        if found.state.is_open()
            && let Some(Meaning::Mergeability { conflict, mergeable }) =
                self.forge.ask(&Intent::Mergeability { number: found.number }).await?
        {
            found.conflict = conflict;
            found.state = if mergeable { State::Mergeable } else { State::Open };
        }
        Ok(found)
    }

    /// Takes a pull request of Gitea as one with a conflict if it was not mergeable at the last check either. Gitea says the same of a conflict,
    /// and while it compares the branches, which takes seconds.
    fn with_conflict(&self, mut found: PullRequest) -> PullRequest {
        let recorded = self.attempt.status().pull_request.as_ref().map(|request| request.state);
        let is_repeated = found.state == State::Open && recorded == Some(PullRequestState::Open);
        if self.of.type_ == ForgeType::Gitea && found.conflict.is_none() && is_repeated {
            found.conflict = Some(true);
        }
        found
    }

    /// Closes the pull request with a comment, and deletes its branch. One that was merged stays.
    async fn close(&self) -> Result<Found, Problem> {
        let Found::PullRequest { request: found, .. } = self.look().await? else {
            return self.delete_branch().await.map(|()| Found::Nothing);
        };
        let number = u64::try_from(found.number).unwrap_or_default();
        let found = match found.state {
            PullRequestState::Merged => return Ok(Found::PullRequest { request: found, commit: None, conflict: false }),
            PullRequestState::Abandoned => found,
            PullRequestState::Open | PullRequestState::Mergeable => match self.close_open(number).await? {
                Some(merged) => return Ok(merged),
                None => PromotionPullRequest { state: PullRequestState::Abandoned, ..found },
            },
        };
        self.delete_branch().await?;
        Ok(Found::PullRequest { request: found, commit: None, conflict: false })
    }

    /// Closes an open pull request. Returns it if it was merged in the meantime.
    async fn close_open(&self, number: u64) -> Result<Option<Found>, Problem> {
        let why = self.attempt.status().withdrawing.as_ref().map_or("", |withdrawing| withdrawing.message.as_str());
        let version = match self.forge.ask(&Intent::Look { number }).await? {
            Some(Meaning::Seen(found)) => found.version,
            _ => None,
        };
        let closed = self.forge.ask(&Intent::Close { number, version }).await?;
        let closed = match closed {
            Some(Meaning::Seen(found)) => found,
            Some(Meaning::Gone) => return Ok(None),
            _ => match self.forge.ask(&Intent::Look { number }).await? {
                Some(Meaning::Seen(found)) => found,
                Some(Meaning::Gone) => return Ok(None),
                _ => return Err(unexpected()),
            },
        };
        match closed.state {
            State::Merged => Ok(Some(seen(&closed, None))),
            State::Open | State::Mergeable => {
                let message = format!("pull request {number} is still open after it was closed");
                Err(Problem { reason: "ForgeError", message, lasts: Lasts::Until(None) })
            }
            State::Abandoned => {
                // Many tokens may close a pull request and not comment on it. The comment is not worth another attempt.
                let text = text::withdrawn(&self.promoted(), why);
                drop(self.forge.ask(&Intent::Comment { number, text: &text }).await);
                Ok(None)
            }
        }
    }

    /// Deletes the branch, if its newest commit is that of this promotion, or of an earlier one from which it was taken over. Otherwise
    /// somebody works on it.
    async fn delete_branch(&self) -> Result<(), Problem> {
        let Some(branch) = self.recorded_branches().into_iter().next() else { return Ok(()) };
        let (repository, _) = self.attempt.repository()?;
        let server = GitRemote::new(self.outside, self.attempt, repository)?;
        let name = full(&branch);
        let remote = Remote::connect(&server).await.map_err(|error| server.problem(&error))?;
        let _permit = server.permit().await?;
        let refs = remote.refs(&[&name]).await.map_err(|error| server.problem(&error))?;
        let Some(tip) = refs.ids.get(&name) else { return Ok(()) };
        let history = match server.history(&remote, *tip, 1).await {
            // Another attempt can succeed.
            Err(problem) if problem.lasts != Lasts::Always => return Err(problem),
            history => history.unwrap_or_default(),
        };
        let ours = trailers(&self.attempt.promotion);
        let has_ours = |commit: &relaybook_git::Found| ours.iter().any(|value| commit.has_trailer(TRAILER, value));
        if history.first().is_some_and(has_ours) {
            // A server that refuses this leaves the branch. Nothing depends on it.
            relaybook_git::push(&server, &name, Push::Delete { old: *tip }).await.map_err(|error| server.problem(&error))?;
        }
        Ok(())
    }
}

/// The branch of a pull request.
enum Branch {
    /// It has the commit of the promotion.
    Ready(PromotionCommit),
    /// It is not needed, because the base branch has all values.
    Declared(PromotionCommit),
}

fn unexpected() -> Problem {
    let message = "the forge does not answer what it was asked for";
    Problem { reason: "InvalidAnswer", message: message.to_owned(), lasts: Lasts::Until(None) }
}

/// Returns what the status shows of a pull request.
fn seen(found: &PullRequest, commit: Option<PromotionCommit>) -> Found {
    let request = PromotionPullRequest {
        number: i64::try_from(found.number).unwrap_or(i64::MAX),
        url: found.url.clone(),
        state: match found.state {
            State::Open => PullRequestState::Open,
            State::Mergeable => PullRequestState::Mergeable,
            State::Merged => PullRequestState::Merged,
            State::Abandoned => PullRequestState::Abandoned,
        },
        merge_commit: found.merge_commit.clone(),
    };
    Found::PullRequest { request, commit, conflict: found.conflict == Some(true) }
}
