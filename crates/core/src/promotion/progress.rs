//! Pure: what this process knows about the attempts of one promotion by commit or pull request, and about its requests to receivers.
//!
//! In: the ends of attempts. Out: values for the decisions of [`super::state`]. An attempt is written to the status before it starts, so a
//! process that starts again knows its number, but not its result. It then makes another attempt, which finds what the first one did.

use std::time::Duration;

use crate::promotion::sent::Sent;
use relaybook_api::Time;
use relaybook_api::promotion::{PromotionCommit, PromotionPullRequest};

/// What an attempt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// Pushes the commit. With the strategy `pullRequest` it also opens the pull request. It finds what an earlier attempt did.
    Carry,
    /// Reads the state of the pull request.
    Look,
    /// Reads it once more, before the promotion ends. The end is that of a check.
    Last,
    /// Closes the pull request and deletes its branch. A pull request that was merged in the meantime stays.
    Close,
}

/// What an attempt found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The commit is on the branch of the environment.
    Pushed(PromotionCommit),
    /// The branch of the environment has all values already. Contains its newest commit.
    AlreadyDeclared(PromotionCommit),
    /// The pull request exists.
    PullRequest {
        /// The pull request.
        request: PromotionPullRequest,
        /// The commit at the head of its branch, if it is known.
        commit: Option<PromotionCommit>,
        /// Whether the forge reports conflicts with the base branch.
        conflict: bool,
    },
    /// The forge does not have the pull request any more.
    Gone,
    /// Nothing is left to close.
    Nothing,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Machine-readable reason: one word.
    pub reason: &'static str,
    /// Human-readable message with a remedy. It contains no Secret.
    pub message: String,
    /// Whether another attempt can succeed.
    pub lasts: Lasts,
}

/// How long a problem lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// Another attempt can succeed, not before this time if there is one.
    Until(Option<Time>),
    /// The problem is given up if it is still there at the third attempt.
    ThreeAttempts,
    /// Only a person can change the result.
    Always,
    /// Nothing is wrong: the attempt did nothing yet, and starts at this time.
    NotYet(Time),
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What the attempt did.
    pub task: Task,
    /// Number of the attempt, as the status had it at the start. A check of a pull request has none: 0.
    pub number: i64,
    /// When it started.
    pub started: Time,
    /// Its result.
    pub result: Result<Found, Problem>,
    /// Number of checks in a row that have failed.
    pub failures: u32,
}

/// What this process knows about the attempts of one promotion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Task and number of the attempt whose record this process has written, and which has not started.
    pub recorded: Option<(Task, i64)>,
    /// Whether an attempt is in progress.
    pub is_running: bool,
    /// The end of the last attempt.
    pub ended: Option<Ended>,
    /// Whether a Secret of the promotion has changed since the last attempt. Then the next attempt does not wait.
    pub is_renewed: bool,
    /// The value of the annotation `relaybook.dev/look` at the start of the last check.
    pub asked: Option<String>,
    /// No attempt starts before this time, because the forge allows no more requests.
    pub not_before: Option<Time>,
    /// No planned check starts before this time, because the budget of planned checks is used up.
    pub not_planned_before: Option<Time>,
    /// How often the pull request can be checked. `None`: as the strategy says.
    pub interval: Option<Duration>,
    /// The Deliveries of its requests to receivers.
    pub sent: Vec<Sent>,
}

impl Problem {
    /// A problem of Relaybook itself. Another attempt can succeed.
    #[must_use]
    pub fn of_this_program(message: &str) -> Self {
        Self { reason: "InternalError", message: message.to_owned(), lasts: Lasts::Until(None) }
    }

    /// An attempt was not done in time. Another attempt can succeed.
    #[must_use]
    pub fn late() -> Self {
        let message = "the attempt took longer than a minute";
        Self { reason: "Timeout", message: message.to_owned(), lasts: Lasts::Until(None) }
    }

    /// The forge allows the next request at a time.
    #[must_use]
    pub fn rate_limited(until: Time) -> Self {
        let message = "the forge allows no more requests now";
        Self { reason: "RateLimited", message: message.to_owned(), lasts: Lasts::NotYet(until) }
    }
}

/// An attempt that has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// What the attempt does.
    pub task: Task,
    /// Whether its requests come before planned checks of other pull requests.
    pub is_prompt: bool,
    number: i64,
    started: Time,
    failures: u32,
    asked: Option<String>,
}

impl Progress {
    /// Notes that an attempt starts. `asked`: the value of the annotation `relaybook.dev/look`.
    pub fn begin(&mut self, (task, number): (Task, i64), asked: Option<String>, now: Time) -> Begun {
        let before = self.asked.clone();
        let is_prompt = task != Task::Look || asked != before;
        let looks = self.ended.as_ref().filter(|ended| ended.task == Task::Look && task == Task::Look);
        let failures = looks.map_or(0, |ended| ended.failures);
        (self.is_running, self.is_renewed, self.recorded) = (true, false, None);
        (self.not_before, self.not_planned_before) = (None, None);
        if task == Task::Look {
            self.asked = asked;
        }
        Begun { task, is_prompt, number, started: now, failures, asked: before }
    }

    /// Notes the end of an attempt. `spread`: how much later than planned a check starts. Many checks must not ask again at once.
    pub fn end(&mut self, begun: Begun, result: Result<Found, Problem>, spread: Duration) {
        let Begun { task, is_prompt, number, started, failures, asked } = begun;
        self.is_running = false;
        match result {
            Err(Problem { lasts: Lasts::NotYet(until), .. }) if task != Task::Last => {
                (self.recorded, self.asked) = (Some((task, number)), asked);
                if is_prompt {
                    self.not_before = Some(until);
                } else {
                    self.not_planned_before = Some(until.max(started.saturating_add(spread).unwrap_or(until)));
                }
            }
            result => {
                let failures = if result.is_err() { failures.saturating_add(1) } else { 0 };
                let task = if task == Task::Last { Task::Look } else { task };
                self.ended = Some(Ended { task, number, started, result, failures });
            }
        }
    }

    /// Returns the end of the attempt with this number.
    #[must_use]
    pub fn ended(&self, task: Task, number: i64) -> Option<&Ended> {
        self.ended.as_ref().filter(|ended| ended.task == task && ended.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promotion::testing::at;

    fn problem(lasts: Lasts) -> Result<Found, Problem> {
        Err(Problem { reason: "RateLimited", message: String::new(), lasts })
    }

    #[test]
    fn an_attempt_that_waits_for_its_turn_starts_again_without_another_record() {
        let asked = || Some("1".to_owned());
        for (what, task, asked_now, not_before, not_planned_before, recorded) in [
            ("a planned check", Task::Look, None, None, Some(at(130)), Some((Task::Look, 3))),
            ("a check that a hook asks for", Task::Look, asked(), Some(at(110)), None, Some((Task::Look, 3))),
            ("an attempt", Task::Carry, None, Some(at(110)), None, Some((Task::Carry, 3))),
            ("the last check is given up", Task::Last, None, None, None, None),
        ] {
            let mut progress = Progress { recorded: Some((task, 3)), is_renewed: true, ..Progress::default() };
            let begun = progress.begin((task, 3), asked_now.clone(), at(100));
            assert!(progress.is_running && !progress.is_renewed && progress.recorded.is_none(), "{what}");
            progress.end(begun, problem(Lasts::NotYet(at(110))), Duration::from_secs(30));
            assert_eq!((progress.not_before, progress.not_planned_before), (not_before, not_planned_before), "{what}");
            assert_eq!((progress.recorded, progress.asked.clone()), (recorded, None), "{what}: the hook still asks");
            assert_eq!(progress.ended.is_some(), task == Task::Last, "{what}");
        }
    }

    #[test]
    fn failed_checks_in_a_row_are_counted() {
        let mut progress = Progress::default();
        for (task, result, failures) in [
            (Task::Look, problem(Lasts::Until(None)), 1),
            (Task::Look, problem(Lasts::Until(None)), 2),
            (Task::Look, Ok(Found::Gone), 0),
            (Task::Last, problem(Lasts::Until(None)), 1),
        ] {
            let begun = progress.begin((task, 0), None, at(100));
            progress.end(begun, result, Duration::ZERO);
            let ended = progress.ended.as_ref().unwrap();
            assert_eq!((ended.task, ended.failures), (Task::Look, failures));
        }
    }
}
