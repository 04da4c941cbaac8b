//! Pure: the checks of a pull request.
//!
//! In: the promotion, and the last check. Out: what the check has found, or the next check. A planned check waits for its interval, and for its
//! share of the budget of the forge. A check that somebody asks for does not wait for them.

use std::time::Duration;

use kube_core::ResourceExt as _;

use crate::promotion::pair::Pair;
use crate::promotion::policy::interval;
use crate::promotion::progress::{Ended, Found, Lasts, Task};
use crate::promotion::reason;
use crate::promotion::state::{Case, Next, bounded, kept, later};
use relaybook_api::promotion::{LOOK, Phase, PullRequestState};
use relaybook_api::{Backoff, Time};

use super::AGAIN;

/// Longest wait between two checks after failures.
const LONGEST_LOOK: Duration = Duration::from_mins(10);

impl Case<'_> {
    /// Ends a promotion whose environment runs the revision. A pull request that can be open is checked once more, because it was probably
    /// merged. If the forge does not answer, the promotion ends all the same.
    pub(crate) fn ran(&self, pair: Option<&Pair<'_>>) -> Next {
        if !self.is_external() || !self.can_be_open() {
            return self.finished();
        }
        let since = pair.and_then(|pair| self.changed(pair)).unwrap_or(Time::MIN);
        let looked = self.progress.ended.as_ref().filter(|ended| ended.task == Task::Look && ended.started >= since);
        let Some(looked) = looked else { return Next::Act(Task::Last) };
        let mut status = self.noted();
        let mut message = self.running();
        match &looked.result {
            Ok(Found::PullRequest { request, .. }) => {
                (status.succeeded, status.pull_request) = (true, Some(request.clone()));
                status.location.clone_from(&request.url);
                if matches!(request.state, PullRequestState::Open | PullRequestState::Mergeable) {
                    message = format!("{message}, and pull request {} is still open; merge it, or close it", request.number);
                }
            }
            Ok(_) => {}
            Err(problem) => {
                message = format!("{message}; its pull request can be open, and could not be checked: {}", problem.message);
            }
        }
        self.step_from(status, Phase::Finished, reason::RUNNING, &message)
    }

    /// Returns when a target of the environment changed last. The clock of the replica that noted it can be ahead.
    fn changed(&self, pair: &Pair<'_>) -> Option<Time> {
        pair.target_changed().filter(|changed| *changed <= self.now)
    }

    /// Decides about an open pull request.
    pub(crate) fn look(&self, pair: &Pair<'_>) -> Next {
        let asked = self.promotion.annotations().get(LOOK).map(|value| kept(value));
        let is_asked = asked.is_some() && asked != self.progress.asked;
        let Some(ended) = self.last_seen() else { return self.plan(Task::Look) };
        if is_asked {
            return self.act(Task::Look);
        }
        let seen = match &ended.result {
            Ok(Found::PullRequest { request, conflict, .. }) => self.opened(self.noted(), request, *conflict),
            Ok(Found::Gone) => {
                let message = format!("the forge does not have the pull request any more; {AGAIN}");
                let mut status = self.noted();
                if let Some(request) = &mut status.pull_request {
                    request.state = PullRequestState::Abandoned;
                }
                return self.step_from(status, Phase::Closed, reason::PULL_REQUEST_GONE, &message);
            }
            Ok(_) => Next::Wait(self.next_look()),
            Err(problem) => {
                let mut status = self.noted();
                (status.reason, status.message) = (problem.reason.to_owned(), bounded(&problem.message));
                self.unless_same(status, self.next_look())
            }
        };
        let is_renewed = self.progress.is_renewed && ended.result.is_err();
        let is_due = self.next_look().is_none_or(|next| next <= self.now) || is_renewed || self.is_tried_since(pair, ended);
        if matches!(seen, Next::Wait(_)) && is_due { self.plan(Task::Look) } else { seen }
    }

    /// Starts a planned check, unless the budget of the forge has no room for planned checks.
    fn plan(&self, task: Task) -> Next {
        match self.progress.not_planned_before.filter(|until| *until > self.now) {
            Some(until) => Next::Wait(Some(until)),
            None => self.act(task),
        }
    }

    /// Returns the last check, or the attempt that opened the pull request.
    fn last_seen(&self) -> Option<&Ended> {
        self.progress.ended.as_ref().filter(|ended| ended.task != Task::Close)
    }

    /// Whether the environment has come to try the revision since the last check. Then the pull request was probably merged.
    fn is_tried_since(&self, pair: &Pair<'_>, ended: &Ended) -> bool {
        pair.tries(&self.spec().revision) && self.changed(pair).is_some_and(|changed| changed > ended.started)
    }

    /// Returns when the pull request is checked again.
    pub(super) fn next_look(&self) -> Option<Time> {
        let ended = self.last_seen()?;
        let strategy = self.status.strategy.as_ref()?.pull_request.as_ref()?;
        let interval = self.progress.interval.unwrap_or_else(|| interval(strategy));
        if let Err(problem) = &ended.result {
            let wait = Backoff { first: interval, longest: LONGEST_LOOK.max(interval) }.after(ended.failures);
            let next = later(ended.started, self.spread(wait));
            let until = if let Lasts::Until(Some(until)) = problem.lasts { until } else { Time::MIN };
            return Some(next.max(until));
        }
        Some(later(ended.started, self.spread(interval)))
    }
}
