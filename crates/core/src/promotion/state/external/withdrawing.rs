//! Pure: the withdrawal of a promotion that Relaybook carries out itself.
//!
//! In: the promotion, why it is not needed any more, and the attempts to close its pull request. Out: the next attempt, or the end of the
//! promotion. The next promotion waits for that end, so after a few attempts a person has to close the pull request.

use std::time::Duration;

use crate::promotion::policy::Retry;
use crate::promotion::progress::{Ended, Found, Lasts, Task};
use crate::promotion::reason;
use crate::promotion::state::{Case, Next, bounded};
use relaybook_api::promotion::{Phase, PromotionPullRequest, PullRequestState, Withdrawing};

/// Number of attempts to close the pull request of a promotion that is not needed any more. Then the next promotion must not wait longer.
const CLOSING: i64 = 3;
/// The waits between attempts to close a pull request.
const CLOSING_RETRY: Retry =
    Retry { initial: Duration::from_secs(10), max: Duration::from_mins(1), max_age: Duration::from_hours(1) };

impl Case<'_> {
    /// Whether a pull request of this promotion can be open.
    pub(super) fn can_be_open(&self) -> bool {
        let has_strategy = self.status.strategy.as_ref().is_some_and(|strategy| strategy.pull_request.is_some());
        let is_ended =
            |request: &PromotionPullRequest| matches!(request.state, PullRequestState::Merged | PullRequestState::Abandoned);
        let phase = matches!(self.status.phase, Some(Phase::Requested | Phase::Open));
        has_strategy && phase && self.status.attempts > 0 && !self.status.pull_request.as_ref().is_some_and(is_ended)
    }

    /// Withdraws the promotion. A pull request that can be open is closed first.
    pub(crate) fn withdraw(&self, reason: &str, message: &str) -> Next {
        if !self.is_external() || !self.can_be_open() {
            return self.withdrawn(reason, message);
        }
        let mut status = self.noted();
        let message = bounded(message);
        status.withdrawing = Some(Withdrawing { reason: reason.to_owned(), message: message.clone(), attempts: 1 });
        (status.reason, status.message) =
            (reason::WITHDRAWING.to_owned(), bounded(&format!("closing the pull request: {message}")));
        (status.last_attempted_time, status.next_attempt_time) = (Some(self.now), None);
        Next::Write(Box::new(status))
    }

    /// Continues the withdrawal of a promotion. `runs`: whether its environment has come to run the revision.
    pub(crate) fn withdrawing(&self, withdrawing: &Withdrawing, runs: bool) -> Next {
        let number = withdrawing.attempts;
        if let Some(ended) = self.progress.ended(Task::Close, number).filter(|_| self.status.next_attempt_time.is_none()) {
            return self.closed(withdrawing, ended, runs);
        }
        if let Some(next) = self.status.next_attempt_time.filter(|next| *next > self.now) {
            return Next::Wait(Some(next));
        }
        if self.progress.recorded == Some((Task::Close, number)) {
            return self.act(Task::Close);
        }
        let mut status = self.noted();
        let attempts = if number >= CLOSING { number } else { number.saturating_add(1) };
        status.withdrawing = Some(Withdrawing { attempts, ..withdrawing.clone() });
        (status.last_attempted_time, status.next_attempt_time) = (Some(self.now), None);
        Next::Write(Box::new(status))
    }

    /// Takes the result of an attempt to close the pull request.
    fn closed(&self, withdrawing: &Withdrawing, ended: &Ended, runs: bool) -> Next {
        let Withdrawing { reason, message, attempts } = withdrawing;
        let mut status = self.noted();
        let running = self.running();
        let (phase, reason, message) =
            if runs { (Phase::Finished, reason::RUNNING, &running) } else { (Phase::Withdrawn, reason.as_str(), message) };
        match &ended.result {
            Ok(Found::PullRequest { request, .. }) if request.state == PullRequestState::Merged => {
                status.withdrawing = None;
                self.merged(status, request)
            }
            Ok(found) => {
                if let Found::PullRequest { request, .. } = found {
                    status.pull_request = Some(request.clone());
                }
                status.withdrawing = None;
                self.step_from(status, phase, reason, message)
            }
            Err(problem) if *attempts >= CLOSING || problem.lasts == Lasts::Always => {
                status.withdrawing = None;
                let message = format!("{message}; its pull request could not be closed: {}; close it", problem.message);
                self.step_from(status, phase, reason, &message)
            }
            Err(problem) => {
                let message = format!("closing the pull request: {message}; attempt {attempts} failed: {}", problem.message);
                status.message = bounded(&message);
                status.next_attempt_time = Some(self.after(ended, CLOSING_RETRY, *attempts));
                Next::Write(Box::new(status))
            }
        }
    }
}
