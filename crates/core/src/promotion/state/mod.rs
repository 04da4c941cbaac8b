//! Pure: the state machine of one promotion.
//!
//! In: a promotion, its pipeline, the other promotions of the pipeline, its attempts, and the time. Out: its next status, or its next attempt,
//! or when to decide again. `external` has the decisions about the strategies that Relaybook itself carries out, `sending` those about requests
//! to receivers, and `ended` those about promotions that have ended.
//!
//! ```text
//! Pending ──► Requested ──► Failed        all of them but Withdrawn ──► Finished: the environment runs the revision
//!    │  ▲         ▲            │          Pending, Requested, Merged ──► Withdrawn: it is not needed any more
//!    │  └ other   └────────────┘          Merged ──► Failed: the environment does not run the revision in time
//!    │    reason    relaybook.dev/retry, or the request was accepted after all
//!    └──► Merged: the environment tries the revision already
//! ```
//!
//! Each change of the phase is a step. The pipeline controller takes the steps into the log. A promotion gets its first step after all older
//! ones of its environment have ended, and an ended one gets a step only while it is the newest. So the steps of an environment are in order.

use std::time::Duration;

use kube_core::ResourceExt;
use sha2::{Digest as _, Sha256};

use super::admission::{Admission, admission};
use super::commits::{Commits, Known};
use super::names::{order, order_of_mirror};
use super::pair::{Pair, index_of, mirror};
use super::plan::{counted, is_ended, is_new, is_repeated, is_terminating, not_ready};
use super::policy::{Policy, policy, repository};
use super::progress::{Progress, Task};
use super::reason;
use super::text::{bounded, not_whole, shown};
use relaybook_api::promotion::{Approval, EnvironmentPromotion, MAX_STEPS, Phase, RETRY, Step};
use relaybook_api::{Pipeline, Promotion, PromotionSpec, PromotionStatus, Time, duration_text};

mod ended;
mod external;
mod sending;

pub use sending::gives_up;

/// Maximum length of a stored value of the annotation, in characters. A longer value is cut, and a hash of the whole value is appended.
const VALUE: usize = 128;

/// What has to be done with a promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until its objects change, or until this time.
    Wait(Option<Time>),
    /// Its status has to be written.
    Write(Box<PromotionStatus>),
    /// An attempt has to start.
    Act(Task),
}

/// Returns what has to be done with a promotion. `progress`: its attempts.
#[must_use]
pub fn next(pipeline: &Pipeline, promotion: &Promotion, known: Known<'_>, progress: &Progress, now: Time) -> Next {
    if progress.is_running {
        return Next::Wait(None);
    }
    let status = promotion.status.clone().unwrap_or_default();
    let (promotions, commits) = known;
    let case = Case { pipeline, promotion, promotions, commits, progress, status, now };
    match case.status.phase {
        None => case.first(),
        Some(Phase::Pending | Phase::Requested | Phase::Open | Phase::Merged) => case.open(),
        Some(Phase::Failed | Phase::Closed) => case.failed(),
        Some(Phase::Finished | Phase::Withdrawn) => case.ended(),
    }
}

/// Returns what has to be done with a promotion whose pipeline does not exist any more.
#[must_use]
pub fn next_without_pipeline(promotion: &Promotion, now: Time) -> Next {
    let message = "the pipeline does not exist any more";
    let mut status = promotion.status.clone().unwrap_or_default();
    if status.phase.is_some_and(Phase::is_ended) {
        return Next::Wait(None);
    }
    // Without the pipeline there are no credentials, so a pull request stays as it is.
    status.withdrawing = None;
    if status.phase.is_none() {
        reject(&mut status, reason::PIPELINE_GONE, message);
    } else {
        push(&mut status, Phase::Withdrawn, reason::PIPELINE_GONE, message, now);
    }
    Next::Write(Box::new(status))
}

/// Whether a status requests the promotion. The request must be confirmed by a live read just before it is written.
#[must_use]
pub fn requests(before: Option<&PromotionStatus>, status: &PromotionStatus) -> bool {
    status.phase == Some(Phase::Requested) && before.is_none_or(|before| before.attempts != status.attempts)
}

/// Returns the attempt that a status records. It starts after the answer to the write.
#[must_use]
pub fn recorded(before: Option<&PromotionStatus>, status: &PromotionStatus) -> Option<(Task, i64)> {
    status.strategy.as_ref().and_then(repository)?;
    let closing = |status: &PromotionStatus| status.withdrawing.as_ref().map(|withdrawing| withdrawing.attempts);
    let is_changed = before.is_none_or(|before| before.last_attempted_time != status.last_attempted_time);
    match closing(status).filter(|_| is_changed) {
        Some(number) => Some((Task::Close, number)),
        None => requests(before, status).then_some((Task::Carry, status.attempts)),
    }
}

struct Case<'a> {
    pipeline: &'a Pipeline,
    promotion: &'a Promotion,
    promotions: &'a [&'a Promotion],
    commits: &'a Commits,
    progress: &'a Progress,
    status: PromotionStatus,
    now: Time,
}

/// Why a promotion waits, and until when.
type Waiting = (&'static str, String, Option<Time>);

impl<'a> Case<'a> {
    fn spec(&self) -> &'a PromotionSpec {
        &self.promotion.spec
    }

    fn environment(&self) -> String {
        shown(&self.spec().environment)
    }

    fn revision(&self) -> String {
        shown(&self.spec().revision)
    }

    /// Judges a promotion without a status.
    fn first(&self) -> Next {
        let is_known = match admission(self.pipeline, self.promotion, (self.promotions, self.commits)) {
            Admission::Invalid { reason, message } => return self.rejected(reason, &message),
            Admission::Unknown => false,
            Admission::Valid => true,
        };
        if let Some(later) = self.later() {
            return self.rejected(reason::SUPERSEDED, &later);
        }
        if is_known && !self.has_older() { self.open() } else { Next::Wait(None) }
    }

    /// Decides about a promotion that is not ended.
    fn open(&self) -> Next {
        let (spec, to) = (self.spec(), self.environment());
        let index = index_of(self.pipeline, &spec.environment);
        let pair = index.and_then(|index| Pair::new(self.pipeline, index));
        let runs = pair.as_ref().is_some_and(|pair| pair.runs(&spec.revision));
        if let Some(withdrawing) = &self.status.withdrawing {
            return self.withdrawing(withdrawing, runs);
        }
        if runs {
            return self.ran(pair.as_ref());
        }
        let Some(index) = index else {
            return self.withdraw(reason::ENVIRONMENT_GONE, &format!("the pipeline has no environment {to} any more"));
        };
        let Some((pair, policy)) = pair.zip(policy(&self.pipeline.spec, index)) else {
            return self.withdraw(reason::NO_STRATEGY, &format!("the pipeline has no promotion strategy for {to} any more"));
        };
        let is_carried = self.is_external() && self.progress.ended(Task::Carry, self.status.attempts).is_some();
        let is_new_result =
            is_carried && self.status.phase == Some(Phase::Requested) && self.status.next_attempt_time.is_none();
        if let Some((reason, message)) = self.replaced(&pair).filter(|_| !is_new_result) {
            return self.withdraw(reason, &message);
        }
        match self.status.phase {
            None | Some(Phase::Pending) => self.pending(&pair, &policy),
            Some(Phase::Requested) if self.is_external() => self.carry(&pair, &policy),
            Some(Phase::Open) if self.is_external() => self.look(&pair),
            Some(Phase::Merged) if self.is_external() => self.declared(&pair, &policy),
            Some(Phase::Requested) => self.sent(&pair, &policy),
            Some(_) => self.requested(&pair, &policy),
        }
    }

    /// Returns why the promotion is not needed any more. A state that is not known, or that does not last, is no reason.
    fn replaced(&self, pair: &Pair<'_>) -> Option<(&'static str, String)> {
        let (spec, from) = (self.spec(), shown(&pair.from.name));
        if let Some(later) = self.later() {
            return Some((reason::SUPERSEDED, later));
        }
        if pair.from.name != spec.from {
            return Some((reason::SOURCE_MOVED, format!("the environment before {} is now {from}", self.environment())));
        }
        // The commit of a promotion, also of another pipeline, can be a new revision of the environment before it, if both read one repository.
        let known = (self.promotions, self.commits);
        let source = pair.ready().filter(|s| !is_repeated(pair, &s.revision, || Some(&spec.revision), known))?;
        let now_at = format!("{from} has come to run {}", shown(&source.revision));
        if source.reached > spec.occasion && !pair.tries(&source.revision) {
            return Some((reason::SUPERSEDED, now_at));
        }
        (source.revision != spec.revision).then_some((reason::SOURCE_MOVED, now_at))
    }

    /// Decides about a promotion that was not requested yet.
    fn pending(&self, pair: &Pair<'_>, policy: &Policy) -> Next {
        if pair.tries(&self.spec().revision) {
            let message = format!("{} tries {} already", self.environment(), self.revision());
            return self.step(Phase::Merged, reason::ALREADY_DECLARED, &message);
        }
        if let Some(why) = not_whole(&self.spec().revision) {
            return self.withdrawn(reason::REVISION_NOT_SETTABLE, &why);
        }
        let Some((reason, message, until)) = self.waits_for(pair, policy) else { return self.request(policy) };
        let is_first_wait = reason == reason::WAITING_APPROVAL && self.status.steps.iter().all(|s| s.reason != reason);
        if self.status.phase.is_none() || is_first_wait {
            return self.step(Phase::Pending, reason, &message);
        }
        let mut status = self.noted();
        (status.reason, status.message) = (reason.to_owned(), bounded(&message));
        self.unless_same(status, until)
    }

    /// Returns what the promotion waits for. What a person must do is named only if everything else is known.
    fn waits_for(&self, pair: &Pair<'_>, policy: &Policy) -> Option<Waiting> {
        let (spec, to, from) = (self.spec(), self.environment(), shown(&pair.from.name));
        if let Some(why) = pair.not_observed() {
            return Some((reason::NOT_OBSERVED, why, None));
        }
        if pair.ready().is_none() {
            return Some((reason::ENVIRONMENT_NOT_READY, not_ready(pair), None));
        }
        if policy.suspend {
            let message = format!("promotions to {to} are suspended; set promotion.suspend to false to continue");
            return Some((reason::SUSPENDED, message, None));
        }
        if policy.manual && !spec.approved {
            let message = format!("waits for an approval: `relaybook approve {} {to}`", shown(&spec.pipeline_ref.name));
            return Some((reason::WAITING_APPROVAL, message, None));
        }
        let until = later(self.created().max(pair.changed().unwrap_or(Time::MIN)), policy.after);
        let message = || format!("{from} must be ready for {} without interruption", duration_text(policy.after));
        (until > self.now).then(|| (reason::SOAKING, message(), Some(until)))
    }

    /// Requests the promotion. Manual and strategy are copied, so that a later edit of the pipeline does not change what was requested.
    fn request(&self, policy: &Policy) -> Next {
        let mut status = self.noted();
        if status.phase.is_some_and(Phase::is_ended) {
            // A retry: what the attempts before it made belongs to them.
            (status.retries, status.attempts_before) = (status.retries.saturating_add(1), status.attempts);
            (status.commit, status.pull_request, status.location) = (None, None, None);
        }
        status.attempts = status.attempts.saturating_add(1);
        (status.last_attempted_time, status.next_attempt_time) = (Some(self.now), None);
        status.succeeded = false;
        status.manual = policy.manual;
        status.strategy = Some(policy.strategy.clone());
        let (reason, message) = self.requesting_by(Some(&policy.strategy));
        self.step_from(status, Phase::Requested, reason, &message)
    }

    fn running(&self) -> String {
        format!("{} runs {}", self.environment(), self.revision())
    }

    fn withdrawn(&self, reason: &str, message: &str) -> Next {
        self.step(Phase::Withdrawn, reason, message)
    }

    /// Ends a promotion that was never valid, without a step.
    fn rejected(&self, reason: &str, message: &str) -> Next {
        let mut status = self.status.clone();
        reject(&mut status, reason, message);
        Next::Write(Box::new(status))
    }

    fn step(&self, phase: Phase, reason: &str, message: &str) -> Next {
        self.step_from(self.noted(), phase, reason, message)
    }

    /// Adds a step. If the oldest kept step is not in the log yet, the step has to wait: no step is lost.
    fn step_from(&self, mut status: PromotionStatus, phase: Phase, reason: &str, message: &str) -> Next {
        let oldest = status.steps.first().filter(|_| status.steps.len() >= MAX_STEPS);
        if oldest.is_some_and(|oldest| !self.is_taken(oldest.step)) {
            return Next::Wait(None);
        }
        let message = if phase.is_ended() { message.to_owned() } else { self.with_missing(message) };
        push(&mut status, phase, reason, &message, self.now);
        Next::Write(Box::new(status))
    }

    /// Returns the status with the approval and the annotation noted.
    fn noted(&self) -> PromotionStatus {
        let mut status = self.status.clone();
        if self.spec().approved && status.approval.is_none() {
            status.approval = Some(Approval { time: self.now });
        }
        if let Some(asked) = self.asked() {
            status.retried = Some(asked);
        }
        status
    }

    fn unless_same(&self, mut status: PromotionStatus, until: Option<Time>) -> Next {
        if status.phase.is_some_and(|phase| !phase.is_ended()) {
            status.message = self.with_missing(&status.message);
        }
        if status == self.status { Next::Wait(until) } else { Next::Write(Box::new(status)) }
    }

    /// Returns the value of the annotation that requests a retry, if it was not noted yet.
    fn asked(&self) -> Option<String> {
        let asked = kept(self.promotion.annotations().get(RETRY)?);
        (self.status.retried.as_ref() != Some(&asked)).then_some(asked)
    }

    fn created(&self) -> Time {
        self.promotion.metadata.creation_timestamp.as_ref().map_or(self.now, |time| time.0)
    }

    /// Returns the other promotions of the environment that count.
    fn others(&self) -> impl Iterator<Item = &'a Promotion> {
        let (promotion, promotions) = (self.promotion, self.promotions);
        let name = promotion.metadata.name.as_deref();
        counted(promotions, &promotion.spec.environment).filter(move |other| other.metadata.name.as_deref() != name)
    }

    /// Describes a later promotion that replaces this one. One that has no status yet replaces it only if it is valid. One that is in the
    /// log and was deleted replaces it, too.
    fn later(&self) -> Option<String> {
        let own = order(self.spec());
        let is_valid =
            |other: &Promotion| admission(self.pipeline, other, (self.promotions, self.commits)) == Admission::Valid;
        let replaces = |other: &Promotion| !is_new(other) || (!is_terminating(other) && is_valid(other));
        let mut later = self.others().filter(|other| order(&other.spec) > own);
        let found = later.find(|other| replaces(other)).map(ResourceExt::name_any);
        let logged = || self.logged().filter(|mirror| order_of_mirror(mirror) > own).map(|mirror| mirror.name.clone());
        found.or_else(logged).map(|name| format!("a later promotion exists or existed: {}", shown(&name)))
    }

    /// Whether an older promotion of the environment is not ended yet.
    fn has_older(&self) -> bool {
        let own = order(self.spec());
        self.others().any(|other| order(&other.spec) < own && !is_ended(other) && !is_terminating(other))
    }

    /// Whether the environment has no later promotion, not even one that was deleted.
    fn is_newest(&self) -> bool {
        let own = order(self.spec());
        let is_logged = self.logged().is_some_and(|mirror| order_of_mirror(mirror) > own);
        !is_logged && self.others().all(|other| order(&other.spec) <= own)
    }

    /// Whether the log contains a step.
    fn is_taken(&self, step: i64) -> bool {
        let is_own = |name: &str| self.promotion.metadata.name.as_deref() == Some(name);
        self.logged().is_some_and(|mirror| {
            order_of_mirror(mirror) > order(self.spec()) || (is_own(&mirror.name) && mirror.taken >= step)
        })
    }

    fn logged(&self) -> Option<&'a EnvironmentPromotion> {
        mirror(self.pipeline, &self.spec().environment)
    }
}

/// Adds a step. Only the last steps are kept.
fn push(status: &mut PromotionStatus, phase: Phase, reason: &str, message: &str, now: Time) {
    let message = bounded(message);
    status.step = status.step.saturating_add(1);
    (status.phase, status.reason) = (Some(phase), reason.to_owned());
    status.message.clone_from(&message);
    status.steps.push(Step { step: status.step, phase, reason: reason.to_owned(), message, time: now });
    let surplus = status.steps.len().saturating_sub(MAX_STEPS);
    status.steps.drain(..surplus);
}

fn reject(status: &mut PromotionStatus, reason: &str, message: &str) {
    (status.phase, status.reason) = (Some(Phase::Withdrawn), reason.to_owned());
    status.message = bounded(message);
}

fn later(time: Time, span: Duration) -> Time {
    time.checked_add(span).unwrap_or(Time::MAX)
}

/// Shortens a value for the status.
pub fn kept(value: &str) -> String {
    match value.char_indices().nth(VALUE) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}…{}", &value[..end], &hex::encode(Sha256::digest(value))[..16]),
    }
}

#[cfg(test)]
mod tests;
