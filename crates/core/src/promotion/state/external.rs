//! Pure: the decisions about a promotion that Relaybook carries out itself, by a commit or by a pull request.
//!
//! In: the promotion, its environments, and what this process knows about its attempts. Out: the next status, or the next attempt.
//!
//! ```text
//! Requested ──► Merged: the commit is pushed, or the values are there already       each wait has its reason in the status
//!     │  ▲        ▲
//!     │  └ again  └──────┐
//!     ├──────► Open ─────┤ merged at the forge
//!     │          └─────► Closed: by a person        Open, not needed any more: its pull request is closed, then Withdrawn
//!     └──────► Failed: refused for good, or tried for too long
//! ```
//!
//! An attempt is recorded first: its number is written to the status. Then the pipeline is read again, and only then the attempt starts.
//! While it is in progress, nothing is decided about the promotion. So an attempt never runs beside the withdrawal of its promotion.
//! [`looking`] decides about the checks of a pull request, [`withdrawing`] about its end.

mod looking;
mod withdrawing;

use std::time::Duration;

use super::{Case, Next, bounded, later, shown};
use crate::promotion::names::branches;
use crate::promotion::pair::Pair;
use crate::promotion::plan::not_ready;
use crate::promotion::policy::{Policy, Retry, repository, strategy_name};
use crate::promotion::progress::{Ended, Found, Lasts, Problem, Task};
use crate::promotion::reason;
use relaybook_api::group;
use relaybook_api::promotion::{Phase, PromotionCommit, PromotionPullRequest, PromotionStrategy, PullRequestState};
use relaybook_api::{Backoff, PromotionStatus, Time, duration_text};

/// Number of attempts with a problem that a person probably has to solve.
const FEW: i64 = 3;

impl Case<'_> {
    /// Whether Relaybook itself carries the promotion out.
    pub(super) fn is_external(&self) -> bool {
        self.status.strategy.as_ref().and_then(repository).is_some()
    }

    /// Decides about a promotion that was requested, and is not carried out yet.
    pub(super) fn carry(&self, pair: &Pair<'_>, policy: &Policy) -> Next {
        let number = self.status.attempts;
        let ended = self.progress.ended(Task::Carry, number).filter(|_| self.status.next_attempt_time.is_none());
        // A person who asks for another attempt does not want to wait after a failure.
        if let Some(ended) = ended.filter(|ended| ended.result.is_ok() || self.asked().is_none()) {
            return match &ended.result {
                Ok(found) => self.carried(found),
                Err(problem) => self.not_carried(ended, problem, policy),
            };
        }
        let is_waiting = |next: &Time| *next > self.now && !self.progress.is_renewed && self.asked().is_none();
        if let Some(next) = self.status.next_attempt_time.filter(is_waiting) {
            return self.unless_same(self.noted(), Some(next));
        }
        if let Some(waits) = held(pair) {
            // The annotation stays, and is heeded when the next attempt starts.
            let mut status = PromotionStatus { retried: self.status.retried.clone(), ..self.noted() };
            (status.reason, status.message) = (waits.0.to_owned(), bounded(&waits.1));
            return self.unless_same(status, None);
        }
        if self.progress.recorded == Some((Task::Carry, number)) && self.asked().is_none() {
            return self.act(Task::Carry);
        }
        let mut status = self.noted();
        status.attempts = number.saturating_add(1);
        if self.asked().is_some() {
            self.begin_again(&mut status, policy);
        }
        if [reason::NOT_OBSERVED, reason::ENVIRONMENT_NOT_READY].contains(&status.reason.as_str()) {
            let (reason, message) = self.requesting();
            (status.reason, status.message) = (reason.to_owned(), bounded(&message));
        }
        (status.last_attempted_time, status.next_attempt_time) = (Some(self.now), None);
        Next::Write(Box::new(status))
    }

    /// Starts to count attempts again, because a person asks for it, and takes the strategy as the pipeline has it now. A wrong Secret or URL can
    /// be corrected in this way.
    fn begin_again(&self, status: &mut PromotionStatus, policy: &Policy) {
        status.attempts_before = self.status.attempts;
        let is_same = |strategy: &PromotionStrategy| strategy_name(strategy) == strategy_name(&policy.strategy);
        if self.status.strategy.as_ref().is_some_and(is_same) {
            status.strategy = Some(policy.strategy.clone());
        }
    }

    /// Returns reason and message of a promotion that was requested.
    pub(super) fn requesting(&self) -> (&'static str, String) {
        self.requesting_by(self.status.strategy.as_ref())
    }

    /// The same for this strategy.
    pub(super) fn requesting_by(&self, strategy: Option<&PromotionStrategy>) -> (&'static str, String) {
        let (to, revision) = (self.environment(), self.revision());
        let Some((repository, branch)) = strategy.and_then(repository) else {
            return (reason::WAITING_FOR_ENVIRONMENT, format!("waiting for all targets of {to} to run {revision}"));
        };
        let (branch, url) = (shown(branch), shown(&repository.url));
        if strategy.is_some_and(|strategy| strategy.pull_request.is_some()) {
            (reason::OPENING, format!("opening a pull request that sets {revision} in branch {branch} of {url}"))
        } else {
            (reason::PUSHING, format!("pushing a commit that sets {revision} in branch {branch} of {url}"))
        }
    }

    /// Decides about a promotion whose revision is declared for its environment. A failed target is shown; it can still come to run.
    pub(super) fn declared(&self, pair: &Pair<'_>, policy: &Policy) -> Next {
        let next = self.requested(pair, policy);
        let Next::Wait(until) = next else { return next };
        let mut status = self.noted();
        let step = self.status.steps.last().filter(|step| step.phase == Phase::Merged);
        let of_step =
            step.map_or((status.reason.clone(), status.message.clone()), |step| (step.reason.clone(), step.message.clone()));
        let failed = pair.failed_at(&self.spec().revision).map(|why| (reason::TARGET_FAILED.to_owned(), bounded(&why)));
        (status.reason, status.message) = failed.unwrap_or(of_step);
        self.unless_same(status, until)
    }

    /// Takes what an attempt has found or made.
    fn carried(&self, found: &Found) -> Next {
        let mut status = self.noted();
        status.succeeded = true;
        let (to, revision) = (self.environment(), self.revision());
        match found {
            Found::Pushed(commit) => {
                let message = format!(
                    "{} is on branch {}; waiting for all targets of {to} to run {revision}",
                    short(&commit.id),
                    shown(&commit.branch)
                );
                status.location = self.commit_url(commit);
                status.commit = Some(commit.clone());
                self.step_from(status, Phase::Merged, reason::PUSHED, &message)
            }
            Found::AlreadyDeclared(commit) => {
                let message = format!(
                    "branch {} sets {revision} already; waiting for all targets of {to} to run it",
                    shown(&commit.branch)
                );
                status.location = self.commit_url(commit);
                self.step_from(status, Phase::Merged, reason::ALREADY_DECLARED, &message)
            }
            Found::PullRequest { request, commit, conflict } => {
                if commit.is_some() {
                    status.commit.clone_from(commit);
                }
                self.opened(status, request, *conflict)
            }
            Found::Gone | Found::Nothing => Next::Wait(None),
        }
    }

    fn commit_url(&self, commit: &PromotionCommit) -> Option<String> {
        let (repository, _) = self.status.strategy.as_ref().and_then(repository)?;
        commit_url(&repository.url, &commit.id)
    }

    /// Takes the state of a pull request.
    fn opened(&self, mut status: PromotionStatus, request: &PromotionPullRequest, conflict: bool) -> Next {
        status.location.clone_from(&request.url);
        let number = request.number;
        match request.state {
            PullRequestState::Merged => return self.merged(status, request),
            PullRequestState::Abandoned => {
                status.pull_request = Some(request.clone());
                let message = format!("pull request {number} was closed without being merged; {AGAIN}");
                return self.step_from(status, Phase::Closed, reason::CLOSED, &message);
            }
            PullRequestState::Open | PullRequestState::Mergeable => {}
        }
        status.pull_request = Some(request.clone());
        let (reason, message) = if conflict {
            let message = format!(
                "pull request {number} cannot be merged: it has conflicts with its base branch; resolve them, or close it"
            );
            (reason::CONFLICT, message)
        } else {
            (reason::OPENED, format!("waiting until pull request {number} is merged"))
        };
        if self.status.phase == Some(Phase::Open) {
            (status.reason, status.message) = (reason.to_owned(), bounded(&message));
            return self.unless_same(status, self.next_look());
        }
        self.step_from(status, Phase::Open, reason, &message)
    }

    fn merged(&self, mut status: PromotionStatus, request: &PromotionPullRequest) -> Next {
        status.pull_request = Some(request.clone());
        status.location.clone_from(&request.url);
        let (to, revision) = (self.environment(), self.revision());
        let message =
            format!("pull request {} was merged; waiting for all targets of {to} to run {revision}", request.number);
        self.step_from(status, Phase::Merged, reason::MERGED, &message)
    }

    /// Takes the failure of an attempt.
    fn not_carried(&self, ended: &Ended, problem: &Problem, policy: &Policy) -> Next {
        let is_last = match problem.lasts {
            Lasts::Always => true,
            // The attempts before can have failed for another reason.
            Lasts::ThreeAttempts => self.attempts_of_request() >= FEW && self.status.reason == problem.reason,
            Lasts::Until(_) | Lasts::NotYet(_) => false,
        };
        let age = self
            .requested_at()
            .map_or(Duration::ZERO, |since| Duration::try_from(self.now.duration_since(since)).unwrap_or_default());
        let message = match problem.lasts {
            Lasts::Always => problem.message.clone(),
            _ => format!("{}{}", problem.message, self.perhaps_open()),
        };
        if is_last {
            return self.step(Phase::Failed, problem.reason, &message);
        }
        if age >= policy.retry.max_age {
            let message = format!("given up after {}: {message}", duration_text(policy.retry.max_age));
            return self.step(Phase::Failed, problem.reason, &message);
        }
        let mut status = self.noted();
        let next = self.after(ended, policy.retry, self.attempts_of_request());
        (status.reason, status.message) = (problem.reason.to_owned(), bounded(&problem.message));
        status.next_attempt_time = Some(next);
        Next::Write(Box::new(status))
    }

    /// Returns what to say of a pull request of which nothing is known: the answer to an attempt can be lost.
    fn perhaps_open(&self) -> String {
        let has_strategy = self.status.strategy.as_ref().is_some_and(|strategy| strategy.pull_request.is_some());
        let branch = branches(self.promotion).into_iter().next().filter(|_| has_strategy);
        branch.map_or_else(String::new, |branch| format!("; a pull request of branch {branch} can be open"))
    }

    /// Returns when the next attempt starts.
    fn after(&self, ended: &Ended, retry: Retry, attempts: i64) -> Time {
        let wait = Backoff { first: retry.initial, longest: retry.max }.after(u32::try_from(attempts).unwrap_or(u32::MAX));
        let next = later(ended.started, self.spread(wait));
        match &ended.result {
            Err(Problem { lasts: Lasts::Until(Some(until)), .. }) => next.max(*until),
            _ => next,
        }
    }

    /// Returns up to 20 % more or less than this time, the same for every replica. So promotions that started together do not stay together.
    fn spread(&self, wait: Duration) -> Duration {
        let seed = self
            .promotion
            .metadata
            .uid
            .as_deref()
            .unwrap_or_default()
            .bytes()
            .fold(self.status.attempts, |sum, byte| sum.wrapping_mul(31).wrapping_add(i64::from(byte)));
        let percent = u32::try_from(seed.rem_euclid(41)).unwrap_or_default() + 80;
        wait.saturating_mul(percent) / 100
    }

    /// Returns the number of attempts since the request. A retry starts to count again.
    fn attempts_of_request(&self) -> i64 {
        self.status.attempts.saturating_sub(self.status.attempts_before)
    }

    fn requested_at(&self) -> Option<Time> {
        self.status.steps.iter().rev().find(|step| step.phase == Phase::Requested).map(|step| step.time)
    }

    /// Starts an attempt, unless the forge allows no more requests.
    fn act(&self, task: Task) -> Next {
        match self.progress.not_before.filter(|until| *until > self.now) {
            Some(until) => Next::Wait(Some(until)),
            None => Next::Act(task),
        }
    }
}

/// What a person does to get another pull request.
const AGAIN: &str = concat!("set the annotation ", group!(), "/retry to a new value to open another one");
/// Returns why no attempt starts now: the source does not run the revision well, or the state is not known.
fn held(pair: &Pair<'_>) -> Option<(&'static str, String)> {
    if let Some(why) = pair.not_observed() {
        return Some((reason::NOT_OBSERVED, why));
    }
    pair.ready().is_none().then(|| (reason::ENVIRONMENT_NOT_READY, not_ready(pair)))
}

/// The first digits of the id of a commit.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// Returns the page of a commit. Most forges have it below the page of the repository, and GitLab redirects from there. The URL with which
/// Bitbucket Server is cloned is not that of a page.
fn commit_url(repository: &str, id: &str) -> Option<String> {
    let page = repository.trim_end_matches('/').trim_end_matches(".git");
    let segment = if page.starts_with("https://bitbucket.org/") { "commits" } else { "commit" };
    (!page.contains("/scm/")).then(|| format!("{page}/{segment}/{id}"))
}

#[cfg(test)]
mod tests;
