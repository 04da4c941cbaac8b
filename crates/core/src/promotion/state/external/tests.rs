//! Tests of the decisions about promotions that Relaybook itself carries out.

use kube_core::ResourceExt as _;

use super::*;
use crate::promotion::commits::Commits;
use crate::promotion::progress::Progress;
use crate::promotion::state::{next, next_without_pipeline, recorded, requests};
use crate::promotion::testing::{
    PROD, STAGING, at, by_commit, by_pull_request, environment, mirror as shown_as, new, promotion, spec, with_policy,
};
use Phase::{Closed, Failed, Finished, Merged, Open, Requested, Withdrawn};
use PullRequestState::{Abandoned, Mergeable};
use relaybook_api::promotion::{LOOK, PromotionPolicy, PromotionRetry, RETRY, Withdrawing};
use relaybook_api::{Pipeline, Promotion, Status};

/// Returns the pipeline with a policy.
fn declares(edit: impl FnOnce(&mut PromotionPolicy)) -> Pipeline {
    with_policy(|policy| {
        policy.strategy = Some(by_pull_request());
        edit(policy);
    })
}

fn plain() -> Pipeline {
    declares(|_| {})
}

/// Returns the pipeline with other environments.
fn observes(edit: impl FnOnce(&mut [relaybook_api::pipeline::EnvironmentStatus])) -> Pipeline {
    let mut pipeline = plain();
    edit(&mut pipeline.status.as_mut().unwrap().environments);
    pipeline
}

/// Returns a promotion whose first attempt was recorded at second 101.
fn by(strategy: PromotionStrategy, phases: &[Phase], reason: &str) -> Promotion {
    edited(&promotion((20, 0), phases, reason), |status| {
        status.strategy = Some(strategy);
        status.attempts = 1;
        status.last_attempted_time = Some(at(101));
    })
}

fn requested() -> Promotion {
    by(by_pull_request(), &[Requested], reason::OPENING)
}

/// Returns a promotion whose pull request is open.
fn opened() -> Promotion {
    edited(&by(by_pull_request(), &[Requested, Open], reason::OPENED), |status| {
        status.pull_request = Some(request(PullRequestState::Open));
        status.location = Some("https://git.example.com/7".into());
        status.message = "waiting until pull request 7 is merged".into();
        status.succeeded = true;
    })
}

/// Returns a promotion that is being withdrawn.
fn withdrawing(attempts: i64) -> Promotion {
    edited(&opened(), |status| {
        let (reason, message) = ("SourceMoved".to_owned(), "staging has come to run 3".to_owned());
        status.withdrawing = Some(Withdrawing { reason, message, attempts });
        status.last_attempted_time = Some(at(150));
    })
}

fn edited(promotion: &Promotion, edit: impl FnOnce(&mut PromotionStatus)) -> Promotion {
    let mut promotion = promotion.clone();
    edit(promotion.status.as_mut().unwrap());
    promotion
}

fn annotated(promotion: &Promotion, name: &str) -> Promotion {
    let mut promotion = promotion.clone();
    promotion.annotations_mut().insert(name.to_owned(), "1".to_owned());
    promotion
}

fn request(state: PullRequestState) -> PromotionPullRequest {
    let url = Some("https://git.example.com/7".to_owned());
    PromotionPullRequest { number: 7, url, state, merge_commit: None }
}

fn commit() -> PromotionCommit {
    PromotionCommit { id: "1f2e".repeat(10), base: "9a8b".repeat(10), branch: "main".into() }
}

#[expect(clippy::unnecessary_wraps, reason = "it is the result of an attempt")]
fn pull(state: PullRequestState) -> Result<Found, Problem> {
    Ok(Found::PullRequest { request: request(state), commit: None, conflict: false })
}

#[expect(clippy::unnecessary_wraps, reason = "it is the result of an attempt")]
fn conflict() -> Result<Found, Problem> {
    Ok(Found::PullRequest { request: request(PullRequestState::Open), commit: None, conflict: true })
}

fn problem(lasts: Lasts) -> Result<Found, Problem> {
    Err(Problem { reason: "ForgeError", message: "it answers 502".into(), lasts })
}

/// Returns what is known after an attempt that started at this second.
fn after(task: Task, number: i64, started: i64, result: Result<Found, Problem>) -> Progress {
    let failures = u32::from(result.is_err());
    Progress { ended: Some(Ended { task, number, started: at(started), result, failures }), ..Progress::default() }
}

fn record(task: Task, number: i64) -> Progress {
    Progress { recorded: Some((task, number)), ..Progress::default() }
}

fn decided(pipeline: &Pipeline, promotion: &Promotion, progress: &Progress, now: i64) -> Next {
    next(pipeline, promotion, (&[promotion], &Commits::default()), progress, at(now))
}

/// Returns phase, reason and step of the next status, the next attempt, or until when it waits.
fn step(pipeline: &Pipeline, promotion: &Promotion, progress: &Progress, now: i64) -> String {
    match decided(pipeline, promotion, progress, now) {
        Next::Act(task) => format!("{task:?}"),
        Next::Wait(None) => "wait".to_owned(),
        Next::Wait(Some(until)) => format!("wait until {}", until.as_second()),
        Next::Write(status) => {
            assert_ne!(Some(&*status), promotion.status.as_ref(), "a write changes nothing");
            format!("{} {} {}", status.phase.map_or("none", Phase::as_str), status.reason, status.step)
        }
    }
}

fn written(pipeline: &Pipeline, promotion: &Promotion, progress: &Progress, now: i64) -> PromotionStatus {
    match decided(pipeline, promotion, progress, now) {
        Next::Write(status) => *status,
        other => panic!("nothing is written: {other:?}"),
    }
}

#[test]
fn a_request_records_the_first_attempt() {
    let cases = [(by_commit(), "Pushing", "pushing a commit"), (by_pull_request(), "Opening", "opening a pull request")];
    for (strategy, reason, words) in cases {
        let pipeline = declares(|policy| policy.strategy = Some(strategy.clone()));
        let status = written(&pipeline, &new(spec(20, 0)), &Progress::default(), 100);
        assert_eq!((status.phase, status.reason.as_str(), status.step), (Some(Requested), reason, 1));
        assert_eq!((status.attempts, status.succeeded), (1, false), "{reason}: nothing was carried out yet");
        let expected = format!("{words} that sets 2 in branch main of https://git.example.com/acme/deploy.git");
        assert_eq!(status.message, expected);
        assert_eq!(recorded(None, &status), Some((Task::Carry, 1)));
    }
}

#[test]
fn a_status_records_an_attempt_only_with_a_new_number() {
    let before = requested().status.unwrap();
    let with = |edit: &dyn Fn(&mut PromotionStatus)| edited(&requested(), edit).status.unwrap();
    let closing = withdrawing(1).status.unwrap();
    let again = withdrawing(2).status.unwrap();
    let notified = promotion((20, 0), &[Requested], "").status.unwrap();
    let later = with(&|status| status.attempts = 2);
    let noted = with(&|status| status.message = "x".into());
    let repeated = edited(&withdrawing(3), |status| status.last_attempted_time = Some(at(300))).status.unwrap();
    let waits = edited(&withdrawing(1), |status| status.next_attempt_time = Some(at(300))).status.unwrap();
    for (what, before, status, expected) in [
        ("the first one", None, &before, Some((Task::Carry, 1))),
        ("the next one", Some(&before), &later, Some((Task::Carry, 2))),
        ("another message", Some(&before), &noted, None),
        ("the first one that closes", Some(&before), &closing, Some((Task::Close, 1))),
        ("the same number at another time", Some(&withdrawing(3).status.unwrap()), &repeated, Some((Task::Close, 3))),
        ("it waits", Some(&closing), &waits, None),
        ("a receiver carries it out", None, &notified, None),
    ] {
        assert_eq!(recorded(before, status), expected, "{what}");
    }
    assert_eq!(again.withdrawing.map(|of| of.attempts), Some(2));
}

#[test]
fn an_attempt_starts_after_its_record_and_one_of_another_process_is_recorded_again() {
    let (pipeline, requested) = (plain(), requested());
    let running = Progress { is_running: true, ..record(Task::Carry, 1) };
    let barred = Progress { not_before: Some(at(300)), ..record(Task::Carry, 1) };
    for (what, progress, expected) in [
        ("recorded", record(Task::Carry, 1), "Carry"),
        ("in progress", running, "wait"),
        ("the forge allows no requests", barred, "wait until 300"),
        ("an earlier one is recorded", record(Task::Carry, 0), "Requested Opening 1"),
        ("the process was restarted", Progress::default(), "Requested Opening 1"),
        ("an earlier one has ended", after(Task::Carry, 0, 90, pull(PullRequestState::Open)), "Requested Opening 1"),
    ] {
        assert_eq!(step(&pipeline, &requested, &progress, 200), expected, "{what}");
    }
    let status = written(&pipeline, &requested, &Progress::default(), 200);
    assert_eq!((status.attempts, status.last_attempted_time), (2, Some(at(200))));
    assert!(requests(requested.status.as_ref(), &status), "it is confirmed by a live read");
    assert_eq!(recorded(requested.status.as_ref(), &status), Some((Task::Carry, 2)));
}

#[test]
fn nothing_is_decided_while_an_attempt_runs() {
    let running = Progress { is_running: true, ..Progress::default() };
    let moved = observes(|all| all[STAGING] = environment("staging", "3", 30));
    let runs = observes(|all| all[PROD] = environment("prod", "2", 0));
    for pipeline in [plain(), moved, runs] {
        for promotion in [requested(), opened(), withdrawing(1), annotated(&opened(), LOOK)] {
            assert_eq!(step(&pipeline, &promotion, &running, 200), "wait");
        }
    }
}

#[test]
fn each_result_of_an_attempt_leads_to_its_phase() {
    let moved = observes(|all| all[STAGING] = environment("staging", "3", 30));
    for (what, result, expected) in [
        ("pushed", Ok(Found::Pushed(commit())), "Merged Pushed 2"),
        ("declared before", Ok(Found::AlreadyDeclared(commit())), "Merged AlreadyDeclared 2"),
        ("open", pull(PullRequestState::Open), "Open Opened 2"),
        ("mergeable", pull(Mergeable), "Open Opened 2"),
        ("conflict", conflict(), "Open Conflict 2"),
        ("merged", pull(PullRequestState::Merged), "Merged Merged 2"),
        ("abandoned", pull(Abandoned), "Closed Closed 2"),
    ] {
        let progress = after(Task::Carry, 1, 101, result);
        assert_eq!(step(&plain(), &requested(), &progress, 200), expected, "{what}");
        assert_eq!(step(&moved, &requested(), &progress, 200), expected, "{what}: a result is never lost");
        assert!(written(&plain(), &requested(), &progress, 200).succeeded, "{what}");
    }
}

#[test]
fn a_result_is_shown_with_its_commit_and_its_url() {
    let status = |result| written(&plain(), &requested(), &after(Task::Carry, 1, 101, Ok(result)), 200);
    let of_commit = format!("https://git.example.com/acme/deploy/commit/{}", commit().id);
    let pushed = status(Found::Pushed(commit()));
    assert_eq!((pushed.commit, pushed.location.as_ref()), (Some(commit()), Some(&of_commit)));
    let declared = status(Found::AlreadyDeclared(commit()));
    assert_eq!((declared.commit, declared.location), (None, Some(of_commit)), "Relaybook did not make this commit");
    let head = Some(commit());
    let open = status(Found::PullRequest { request: request(Mergeable), commit: head.clone(), conflict: false });
    assert_eq!((open.commit, open.location.as_deref()), (head, Some("https://git.example.com/7")));
    assert_eq!(open.pull_request, Some(request(Mergeable)));
}

#[test]
fn a_failed_attempt_waits_until_its_time() {
    let attempt = |number: i64| edited(&requested(), |status| status.attempts = number);
    // The spread of the first three attempts of this promotion is 0 %, -10 % and -20 %.
    for (what, number, lasts, expected) in [
        ("the first one", 1, Lasts::Until(None), 210),
        ("the second one", 2, Lasts::Until(None), 218),
        ("the third one", 3, Lasts::Until(None), 232),
        ("the server names a later time", 1, Lasts::Until(Some(at(500))), 500),
        ("the server names an earlier time", 1, Lasts::Until(Some(at(205))), 210),
        ("the first of three", 1, Lasts::ThreeAttempts, 210),
        ("the second of three", 2, Lasts::ThreeAttempts, 218),
    ] {
        let promotion = attempt(number);
        let progress = after(Task::Carry, number, 200, problem(lasts));
        let status = written(&plain(), &promotion, &progress, 201);
        assert_eq!(status.next_attempt_time, Some(at(expected)), "{what}");
        assert_eq!((status.reason.as_str(), status.message.as_str()), ("ForgeError", "it answers 502"), "{what}");
        assert_eq!((status.phase, status.step), (Some(Requested), 1), "{what}: no step");
        let waits = Promotion { status: Some(status), ..promotion };
        assert_eq!(step(&plain(), &waits, &progress, 202), format!("wait until {expected}"), "{what}");
        assert_eq!(step(&plain(), &waits, &progress, expected), "Requested ForgeError 1", "{what}: it is recorded");
        let renewed = Progress { is_renewed: true, ..progress };
        assert_eq!(step(&plain(), &waits, &renewed, 202), "Requested ForgeError 1", "{what}: the Secret has changed");
    }
}

#[test]
fn the_waits_double_up_to_the_longest_one_and_are_spread() {
    let (initial, max) = (Some("1s".to_owned()), Some("100s".to_owned()));
    let pipeline = declares(|policy| policy.retry = Some(PromotionRetry { initial, max, max_age: None }));
    let mut waits = std::collections::BTreeSet::new();
    for (number, plain) in [(1, 1.0), (2, 2.0), (5, 16.0), (7, 64.0), (8, 100.0), (60, 100.0), (61, 100.0), (500, 100.0)] {
        let promotion = edited(&requested(), |status| status.attempts = number);
        let status = written(&pipeline, &promotion, &after(Task::Carry, number, 200, problem(Lasts::Until(None))), 201);
        let wait = status.next_attempt_time.unwrap().duration_since(at(200)).as_secs_f64();
        assert!((plain * 0.8..=plain * 1.2).contains(&wait), "attempt {number} waits {wait} s");
        waits.insert(format!("{:.0}", 100.0 * wait / plain));
    }
    assert!(waits.len() > 3, "{waits:?}");
}

#[test]
fn a_promotion_with_a_lasting_problem_fails() {
    let aged = declares(|policy| policy.retry = Some(PromotionRetry { max_age: Some("1h".into()), ..Default::default() }));
    let can_be_open = format!("it answers 502; a pull request of branch {} can be open", branches(&requested())[0]);
    let aged_words = format!("given up after 1h: {can_be_open}");
    for (what, number, lasts, now, expected) in [
        ("for good", 1, Lasts::Always, 200, Some("it answers 502")),
        ("at the third attempt", 3, Lasts::ThreeAttempts, 200, Some(can_be_open.as_str())),
        ("at the second attempt", 2, Lasts::ThreeAttempts, 200, None),
        ("for an hour", 9, Lasts::Until(None), 101 + 3600, Some(aged_words.as_str())),
        ("for almost an hour", 9, Lasts::Until(None), 100 + 3600, None),
    ] {
        let promotion = edited(&requested(), |status| (status.attempts, status.reason) = (number, "ForgeError".to_owned()));
        let status = written(&aged, &promotion, &after(Task::Carry, number, now - 1, problem(lasts)), now);
        assert_eq!(status.phase == Some(Failed), expected.is_some(), "{what}");
        assert_eq!(status.message, expected.unwrap_or("it answers 502"), "{what}");
        assert_eq!(status.reason, "ForgeError", "{what}");
    }
    let other = edited(&requested(), |status| status.attempts = 3);
    let progress = after(Task::Carry, 3, 199, problem(Lasts::ThreeAttempts));
    assert_eq!(step(&aged, &other, &progress, 200), "Requested ForgeError 1", "the attempts before had another problem");
    let retried = edited(&requested(), |status| (status.attempts, status.attempts_before) = (3, 2));
    let progress = after(Task::Carry, 3, 199, problem(Lasts::ThreeAttempts));
    assert_eq!(step(&aged, &retried, &progress, 200), "Requested ForgeError 1", "a retry starts to count again");
    let pushed = by(by_commit(), &[Requested], reason::PUSHING);
    let status = written(&aged, &pushed, &after(Task::Carry, 1, 3700, problem(Lasts::Until(None))), 3701);
    assert_eq!(status.message, "given up after 1h: it answers 502", "there is no pull request");
}

#[test]
fn a_person_can_correct_the_strategy_of_a_request() {
    let waits = edited(&requested(), |status| {
        (status.attempts, status.next_attempt_time, status.reason) = (4, Some(at(900)), "SecretMissing".to_owned());
    });
    let other =
        declares(|policy| policy.strategy.as_mut().unwrap().pull_request.as_mut().unwrap().labels = vec!["a".into()]);
    assert_eq!(step(&other, &waits, &Progress::default(), 200), "wait until 900");
    let status = written(&other, &annotated(&waits, RETRY), &Progress::default(), 200);
    assert_eq!((status.attempts, status.attempts_before, status.next_attempt_time), (5, 4, None));
    assert_eq!((status.retries, status.retried.as_deref()), (0, Some("1")), "it has the same branch");
    assert_eq!(status.strategy.unwrap().pull_request.unwrap().labels, ["a"]);
    let failed = edited(&requested(), |status| status.attempts = 4);
    let progress = after(Task::Carry, 4, 150, problem(Lasts::Always));
    let status = written(&other, &annotated(&failed, RETRY), &progress, 200);
    assert_eq!((status.phase, status.attempts), (Some(Requested), 5), "it was set during the attempt that has failed");
    let commits = with_policy(|policy| policy.strategy = Some(by_commit()));
    let status = written(&commits, &annotated(&waits, RETRY), &Progress::default(), 200);
    assert!(status.strategy.unwrap().commit.is_none(), "another kind of strategy counts for the next promotion");
}

#[test]
fn no_attempt_starts_while_the_source_is_not_ready() {
    let unseen = observes(|all| all[PROD].targets[0].status = Status::Unknown);
    let away = observes(|all| all[STAGING].settled.as_mut().unwrap().status = Status::InProgress);
    for (pipeline, reason) in [(&unseen, "NotObserved"), (&away, "EnvironmentNotReady")] {
        for progress in [Progress::default(), record(Task::Carry, 1)] {
            assert_eq!(step(pipeline, &requested(), &progress, 200), format!("Requested {reason} 1"));
            let held = Promotion { status: Some(written(pipeline, &requested(), &progress, 200)), ..requested() };
            assert_eq!(held.status.as_ref().map(|status| status.attempts), Some(1));
            assert_eq!(step(pipeline, &held, &progress, 201), "wait", "{reason}");
        }
        let held = Promotion { status: Some(written(pipeline, &requested(), &Progress::default(), 200)), ..requested() };
        let status = written(&plain(), &held, &Progress::default(), 300);
        assert_eq!((status.attempts, status.reason.as_str()), (2, "Opening"), "it continues");
        assert_eq!(step(&plain(), &held, &record(Task::Carry, 1), 300), "Carry", "it was recorded before");
        let result = after(Task::Carry, 1, 101, pull(PullRequestState::Open));
        assert_eq!(step(pipeline, &requested(), &result, 200), "Open Opened 2", "{reason}: a result counts all the same");
    }
}

#[test]
fn a_promotion_that_is_not_needed_closes_its_pull_request_first() {
    let moved = observes(|all| all[STAGING] = environment("staging", "3", 30));
    let by_commit = by(by_commit(), &[Requested], reason::PUSHING);
    assert_eq!(step(&moved, &by_commit, &Progress::default(), 200), "Withdrawn Superseded 2", "a commit stays");
    let never = edited(&requested(), |status| status.attempts = 0);
    assert_eq!(step(&moved, &never, &Progress::default(), 200), "Withdrawn Superseded 2", "nothing was attempted");
    let merged = by(by_pull_request(), &[Requested, Merged], reason::MERGED);
    assert_eq!(step(&moved, &merged, &Progress::default(), 200), "Withdrawn Superseded 3", "nothing is open");
    for (promotion, phase) in [(requested(), "Requested"), (opened(), "Open")] {
        let steps = promotion.status.as_ref().unwrap().step;
        let status = written(&moved, &promotion, &Progress::default(), 200);
        assert_eq!(step(&moved, &promotion, &Progress::default(), 200), format!("{phase} Withdrawing {steps}"));
        assert_eq!(status.message, "closing the pull request: staging has come to run 3");
        assert_eq!(status.withdrawing.as_ref().map(|of| (of.reason.as_str(), of.attempts)), Some(("Superseded", 1)));
        assert_eq!(recorded(promotion.status.as_ref(), &status), Some((Task::Close, 1)));
        let closing = Promotion { status: Some(status), ..promotion };
        assert_eq!(step(&moved, &closing, &record(Task::Close, 1), 201), "Close");
    }
}

#[test]
fn the_answer_of_the_forge_decides_how_a_withdrawal_ends() {
    let gone = Ok(Found::Nothing);
    let left = "staging has come to run 3; its pull request could not be closed: it answers 502; close it";
    for (what, number, result, phase, message) in [
        ("closed", 1, pull(Abandoned), Some(Withdrawn), "staging has come to run 3"),
        ("nothing was open", 1, gone, Some(Withdrawn), "staging has come to run 3"),
        (
            "merged in the meantime",
            1,
            pull(PullRequestState::Merged),
            Some(Merged),
            "pull request 7 was merged; waiting for all targets of prod to run 2",
        ),
        (
            "the first attempt fails",
            1,
            problem(Lasts::Until(None)),
            Some(Open),
            "closing the pull request: staging has come to run 3; attempt 1 failed: it answers 502",
        ),
        ("the third attempt fails", 3, problem(Lasts::Until(None)), Some(Withdrawn), left),
        ("it is refused", 1, problem(Lasts::Always), Some(Withdrawn), left),
    ] {
        let progress = after(Task::Close, number, 200, result);
        let status = written(&plain(), &withdrawing(number), &progress, 201);
        assert_eq!((status.phase, status.message.as_str()), (phase, message), "{what}");
        assert_eq!(status.withdrawing.is_some(), status.phase == Some(Open), "{what}");
        assert_eq!(status.reason == "SourceMoved", status.phase == Some(Withdrawn), "{what}");
    }
}

#[test]
fn a_failed_withdrawal_is_repeated_three_times() {
    let failed = after(Task::Close, 1, 200, problem(Lasts::Until(None)));
    let waits = Promotion { status: Some(written(&plain(), &withdrawing(1), &failed, 201)), ..withdrawing(1) };
    assert_eq!(step(&plain(), &waits, &failed, 202), "wait until 210");
    let attempts = |status: &PromotionStatus| status.withdrawing.as_ref().map(|of| of.attempts);
    let status = written(&plain(), &waits, &failed, 210);
    assert_eq!((attempts(&status), status.next_attempt_time), (Some(2), None));
    assert_eq!(recorded(waits.status.as_ref(), &status), Some((Task::Close, 2)));
    let restarted = written(&plain(), &withdrawing(3), &Progress::default(), 300);
    assert_eq!(attempts(&restarted), Some(3), "a restart does not take the last attempt");
    assert_eq!(recorded(withdrawing(3).status.as_ref(), &restarted), Some((Task::Close, 3)));
}

#[test]
fn a_withdrawal_finishes_if_the_environment_has_come_to_run_the_revision() {
    let runs = observes(|all| all[PROD] = environment("prod", "2", 0));
    assert_eq!(step(&runs, &withdrawing(1), &record(Task::Close, 1), 200), "Close", "the pull request is closed first");
    let left = "prod runs 2; its pull request could not be closed: it answers 502; close it";
    for (result, expected) in
        [(pull(Abandoned), "prod runs 2"), (Ok(Found::Nothing), "prod runs 2"), (problem(Lasts::Always), left)]
    {
        let status = written(&runs, &withdrawing(1), &after(Task::Close, 1, 200, result), 201);
        assert_eq!((status.phase, status.message.as_str()), (Some(Finished), expected));
        assert_eq!((status.reason.as_str(), status.withdrawing), ("Running", None));
    }
}

#[test]
fn a_promotion_whose_environment_runs_the_revision_is_checked_once_more() {
    let since = |second| {
        observes(|all| {
            all[PROD] = environment("prod", "2", 0);
            all[PROD].targets[0].last_transition_time = Some(at(second));
        })
    };
    let runs = since(150);
    for promotion in [requested(), opened()] {
        assert_eq!(step(&runs, &promotion, &Progress::default(), 200), "Last");
        let before = after(Task::Look, 0, 149, pull(PullRequestState::Open));
        assert_eq!(step(&runs, &promotion, &before, 200), "Last", "the check was before");
        let barred = Progress { not_before: Some(at(900)), ..before };
        assert_eq!(step(&runs, &promotion, &barred, 200), "Last", "it does not wait for the budget");
        for (what, result, words, state) in [
            ("merged", pull(PullRequestState::Merged), "prod runs 2", Some(PullRequestState::Merged)),
            (
                "still open",
                pull(Mergeable),
                "prod runs 2, and pull request 7 is still open; merge it, or close it",
                Some(Mergeable),
            ),
            ("gone", Ok(Found::Gone), "prod runs 2", None),
            (
                "no answer",
                problem(Lasts::Until(None)),
                "prod runs 2; its pull request can be open, and could not be checked: it answers 502",
                None,
            ),
        ] {
            let status = written(&runs, &promotion, &after(Task::Look, 0, 160, result), 200);
            assert_eq!((status.phase, status.reason.as_str(), status.message.as_str()), (Some(Finished), "Running", words));
            let before = promotion.status.as_ref().and_then(|status| status.pull_request.as_ref()).map(|of| of.state);
            assert_eq!(status.pull_request.map(|of| of.state), state.or(before), "{what}");
        }
    }
    let seen = after(Task::Look, 0, 160, pull(PullRequestState::Merged));
    assert_eq!(step(&since(9000), &opened(), &seen, 200), "Finished Running 3", "the clock of the other replica is ahead");
    for promotion in [by(by_commit(), &[Requested], ""), by(by_pull_request(), &[Requested, Merged], "")] {
        let steps = promotion.status.as_ref().unwrap().step + 1;
        let expected = format!("Finished Running {steps}");
        assert_eq!(step(&runs, &promotion, &Progress::default(), 200), expected, "nothing can be open");
    }
}

#[test]
fn a_merged_revision_waits_for_the_environment_until_the_timeout() {
    let merged = edited(&by(by_pull_request(), &[Requested, Merged], reason::MERGED), |status| {
        status.message = "waits".into();
        status.steps[1].message = "waits".into();
    });
    let failed = observes(|all| {
        let target = &mut all[PROD].targets[0];
        (target.status, target.attempted_revision, target.message) = (Status::Failed, "2".into(), "no image".into());
    });
    assert_eq!(step(&plain(), &merged, &Progress::default(), 200), "wait until 3702", "an hour from the merge");
    let shown = Promotion { status: Some(written(&failed, &merged, &Progress::default(), 200)), ..merged.clone() };
    let status = shown.status.as_ref().unwrap();
    assert_eq!((status.phase, status.reason.as_str(), status.step), (Some(Merged), "TargetFailed", 2));
    assert_eq!(status.message, "web in namespace prod runs 1 and tries 2, and has failed: no image");
    assert_eq!(step(&failed, &shown, &Progress::default(), 201), "wait until 3702");
    let again = written(&plain(), &shown, &Progress::default(), 202);
    assert_eq!((again.reason.as_str(), again.message.as_str(), again.step), ("Merged", "waits", 2), "it tries again");
    assert_eq!(step(&failed, &shown, &Progress::default(), 3702), "Failed NotRunning 3");
    let short = declares(|policy| policy.timeout = Some("5m".into()));
    assert_eq!(step(&short, &merged, &Progress::default(), 402), "Failed NotRunning 3");
    assert_eq!(step(&short, &opened(), &after(Task::Look, 0, 9000, pull(PullRequestState::Open)), 9001), "wait until 9060");
}

#[test]
fn a_retry_starts_with_another_branch_and_counts_again() {
    let (failed, closed) = (&[Requested, Failed][..], &[Requested, Open, Closed][..]);
    for phases in [failed, closed] {
        let ended = edited(&by(by_pull_request(), phases, "x"), |status| {
            status.attempts = 4;
            status.pull_request = Some(request(Abandoned));
            (status.commit, status.location) = (Some(commit()), Some("https://git.example.com/7".into()));
        });
        assert_eq!(step(&plain(), &ended, &Progress::default(), 200), "wait");
        let asked = annotated(&ended, RETRY);
        let stale = after(Task::Carry, 4, 150, problem(Lasts::Always));
        let status = written(&plain(), &asked, &stale, 200);
        assert_eq!((status.phase, status.reason.as_str()), (Some(Requested), "Opening"));
        assert_eq!((status.attempts, status.attempts_before, status.retries), (5, 4, 1));
        assert_eq!((&status.pull_request, &status.commit, &status.location), (&None, &None, &None));
        assert!(!status.succeeded);
        let again = Promotion { status: Some(status), ..asked };
        assert_ne!(branches(&again)[0], branches(&ended)[0]);
        assert_eq!(step(&plain(), &again, &stale, 201), format!("Requested Opening {}", phases.len() + 1));
    }
    let runs = observes(|all| all[PROD] = environment("prod", "2", 0));
    assert_eq!(
        step(&runs, &by(by_pull_request(), closed, "Closed"), &Progress::default(), 200),
        "wait",
        "a person closed it"
    );
    assert_eq!(step(&runs, &by(by_pull_request(), failed, ""), &Progress::default(), 200), "Finished Running 3");
}

#[test]
fn an_open_pull_request_is_shown_without_a_step() {
    let look = |promotion: &Promotion, result| step(&plain(), promotion, &after(Task::Look, 0, 200, result), 201);
    assert_eq!(look(&opened(), pull(PullRequestState::Open)), "wait until 260", "nothing has changed");
    for (what, result, expected) in [
        ("mergeable", pull(Mergeable), "Open Opened 2"),
        ("conflict", conflict(), "Open Conflict 2"),
        ("merged", pull(PullRequestState::Merged), "Merged Merged 3"),
        ("abandoned", pull(Abandoned), "Closed Closed 3"),
        ("gone", Ok(Found::Gone), "Closed PullRequestGone 3"),
        ("nothing", Ok(Found::Nothing), "wait until 260"),
        ("no answer", problem(Lasts::Until(None)), "Open ForgeError 2"),
        ("refused", problem(Lasts::Always), "Open ForgeError 2"),
    ] {
        assert_eq!(look(&opened(), result), expected, "{what}");
    }
    let shown =
        Promotion { status: Some(written(&plain(), &opened(), &after(Task::Look, 0, 200, conflict()), 201)), ..opened() };
    assert_eq!(look(&shown, conflict()), "wait until 260");
    assert_eq!(look(&shown, pull(PullRequestState::Open)), "Open Opened 2", "somebody resolved it");
    let gone = written(&plain(), &opened(), &after(Task::Look, 0, 200, Ok(Found::Gone)), 201);
    assert_eq!(gone.pull_request.map(|of| of.state), Some(Abandoned));
}

#[test]
fn an_open_pull_request_is_checked_when_it_is_due() {
    let open = || after(Task::Look, 0, 200, pull(PullRequestState::Open));
    let tries = |second| {
        observes(|all| {
            let target = &mut all[PROD].targets[0];
            (target.attempted_revision, target.last_transition_time) = ("2".into(), Some(at(second)));
        })
    };
    let hourly = Progress { interval: Some(Duration::from_hours(1)), ..open() };
    let asked = Progress { asked: Some("1".into()), ..open() };
    let barred = Progress { not_before: Some(at(400)), ..open() };
    let used_up = Progress { not_planned_before: Some(at(400)), ..open() };
    let renewed = Progress { is_renewed: true, ..open() };
    let hooked = annotated(&opened(), LOOK);
    for (what, pipeline, promotion, progress, now, expected) in vec![
        ("after a restart", plain(), &opened(), Progress::default(), 201, "Look"),
        (
            "after it was opened",
            plain(),
            &opened(),
            after(Task::Carry, 1, 200, pull(PullRequestState::Open)),
            201,
            "wait until 260",
        ),
        ("too early", plain(), &opened(), open(), 259, "wait until 260"),
        ("after the interval", plain(), &opened(), open(), 260, "Look"),
        ("the budget is small", plain(), &opened(), hourly, 261, "wait until 3800"),
        ("a hook asks", plain(), &hooked, open(), 201, "Look"),
        ("planned checks are used up", plain(), &opened(), used_up.clone(), 300, "wait until 400"),
        ("a hook asks, and planned checks are used up", plain(), &hooked, used_up, 300, "Look"),
        ("a hook asks, and no request is allowed", plain(), &hooked, barred.clone(), 300, "wait until 400"),
        ("a hook has asked before", plain(), &hooked, asked, 201, "wait until 260"),
        ("the forge allows no requests", plain(), &opened(), barred, 300, "wait until 400"),
        ("a Secret has changed, and nothing failed", plain(), &opened(), renewed, 201, "wait until 260"),
        ("the environment tries the revision", tries(210), &opened(), open(), 211, "Look"),
        ("it tried it before", tries(200), &opened(), open(), 211, "wait until 260"),
        ("the clock of the other replica is ahead", tries(900), &opened(), open(), 211, "wait until 260"),
    ] {
        assert_eq!(step(&pipeline, promotion, &progress, now), expected, "{what}");
    }
}

#[test]
fn failing_checks_are_repeated_after_growing_intervals() {
    let shown = edited(&opened(), |status| (status.reason, status.message) = ("ForgeError".into(), "it answers 502".into()));
    for (what, failures, lasts, interval, expected) in [
        ("once", 1, Lasts::Until(None), 60, 260),
        ("twice", 2, Lasts::Until(None), 60, 320),
        ("three times", 3, Lasts::Until(None), 60, 440),
        ("often", 40, Lasts::Until(None), 60, 800),
        ("the interval is longer", 40, Lasts::Until(None), 3600, 3800),
        ("the forge names a time", 1, Lasts::Until(Some(at(500))), 60, 500),
        ("the forge names an earlier time", 1, Lasts::Until(Some(at(210))), 60, 260),
    ] {
        let mut progress = after(Task::Look, 0, 200, problem(lasts));
        progress.ended.as_mut().unwrap().failures = failures;
        progress.interval = Some(Duration::from_secs(interval));
        assert_eq!(step(&plain(), &shown, &progress, 201), format!("wait until {expected}"), "{what}");
        assert_eq!(step(&plain(), &shown, &progress, expected), "Look", "{what}");
        progress.is_renewed = true;
        assert_eq!(step(&plain(), &shown, &progress, 201), "Look", "{what}: the Secret has changed");
    }
}

#[test]
fn no_step_of_an_attempt_is_dropped_before_it_is_in_the_log() {
    let phases = [Requested, Failed, Requested, Failed, Requested, Failed, Requested, Open];
    let full = edited(&by(by_pull_request(), &phases, reason::OPENED), |status| {
        status.pull_request = opened().status.unwrap().pull_request;
    });
    let merged = after(Task::Look, 0, 200, pull(PullRequestState::Merged));
    assert_eq!(step(&plain(), &full, &merged, 201), "wait");
    let taken = observes(|all| all[PROD].promotion = Some(shown_as(&full, 1)));
    assert_eq!(step(&taken, &full, &merged, 201), "Merged Merged 9");
}

#[test]
fn a_deleted_pipeline_withdraws_promotions_and_leaves_pull_requests_unchanged() {
    for promotion in [requested(), opened(), withdrawing(2)] {
        let Next::Write(status) = next_without_pipeline(&promotion, at(200)) else { panic!("nothing is written") };
        assert_eq!((status.phase, status.reason.as_str()), (Some(Withdrawn), "PipelineGone"));
        let before = promotion.status.unwrap();
        assert_eq!((&status.pull_request, status.step), (&before.pull_request, before.step + 1));
        assert_eq!(status.withdrawing, None);
    }
}
