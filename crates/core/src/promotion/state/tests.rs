//! Tests of the state machine.

use super::*;
use crate::promotion::testing::{
    PROD, STAGING, at, environment, mirror as shown_as, new, pipeline, promotion, rejected, spec, with, with_policy,
};
use Phase::{Failed, Finished, Merged, Pending, Requested, Withdrawn};
use relaybook_api::promotion::{PromotionCommit, PromotionPolicy, PromotionStrategy};
use relaybook_api::{Settled, Status};

/// Returns phase, reason and step of the next status, or until when it waits.
fn step(pipeline: &Pipeline, promotion: &Promotion, others: &[&Promotion], now: Time) -> String {
    let all: Vec<&Promotion> = others.iter().copied().chain([promotion]).collect();
    match next(pipeline, promotion, (&all, &Commits::default()), &Progress::default(), now) {
        Next::Act(task) => format!("{task:?}"),
        Next::Wait(None) => "wait".to_owned(),
        Next::Wait(Some(until)) => format!("wait until {}", until.as_second()),
        Next::Write(status) => {
            let phase = status.phase.map_or("none", Phase::as_str);
            assert_eq!(status.steps.last().map_or(0, |last| last.step), status.step);
            format!("{phase} {} {}", status.reason, status.step)
        }
    }
}

fn written(pipeline: &Pipeline, promotion: &Promotion, now: Time) -> PromotionStatus {
    match next(pipeline, promotion, (&[promotion], &Commits::default()), &Progress::default(), now) {
        Next::Write(status) => *status,
        Next::Wait(_) | Next::Act(_) => panic!("nothing is written"),
    }
}

/// Returns the promotion with what the controller writes.
fn moved(pipeline: &Pipeline, promotion: &Promotion, now: Time) -> Promotion {
    Promotion { status: Some(written(pipeline, promotion, now)), ..promotion.clone() }
}

fn staging(edit: impl FnOnce(&mut Settled)) -> Pipeline {
    with(STAGING, |staging| edit(staging.settled.as_mut().unwrap()))
}

fn moved_to(revision: &str, reached: i64) -> Pipeline {
    with(STAGING, |staging| *staging = environment("staging", revision, reached))
}

fn approved(promotion: &Promotion) -> Promotion {
    let mut promotion = promotion.clone();
    promotion.spec.approved = true;
    promotion
}

fn manual() -> Pipeline {
    with_policy(|policy| policy.manual = true)
}

fn retried(promotion: &Promotion, value: &str) -> Promotion {
    let mut promotion = promotion.clone();
    promotion.annotations_mut().insert(RETRY.to_owned(), value.to_owned());
    promotion
}

#[test]
fn the_first_step_depends_on_the_policy_and_on_older_promotions() {
    let after = with_policy(|policy| policy.after = Some("1m".into()));
    let both = with_policy(|policy| (policy.manual, policy.after) = (true, Some("1m".into())));
    let suspended = with_policy(|policy| policy.suspend = true);
    let unseen = with(PROD, |prod| prod.targets[0].status = Status::Unknown);
    let away = staging(|settled| settled.status = Status::InProgress);
    let tries = with(PROD, |prod| prod.targets[0].attempted_revision = "2".into());
    let runs = with(PROD, |prod| *prod = environment("prod", "2", 0));
    let open = promotion((10, 0), &[Requested], "");
    let ended = promotion((10, 0), &[Requested, Withdrawn], "");
    let rejected = rejected(10, 0);
    let (valid, invalid) = (new(spec(20, 1)), new(spec(30, 1)));
    for (what, pipeline, others, expected) in [
        ("automatic", &pipeline(), vec![], "Requested WaitingForEnvironment 1"),
        ("manual", &manual(), vec![], "Pending WaitingApproval 1"),
        ("it soaks", &after, vec![], "Pending Soaking 1"),
        ("a person first", &both, vec![], "Pending WaitingApproval 1"),
        ("suspended", &suspended, vec![], "Pending Suspended 1"),
        ("not observed", &unseen, vec![], "Pending NotObserved 1"),
        ("not ready", &away, vec![], "Pending EnvironmentNotReady 1"),
        ("tried", &tries, vec![], "Merged AlreadyDeclared 1"),
        ("it runs", &runs, vec![], "Finished Running 1"),
        ("an older one is open", &pipeline(), vec![&open], "wait"),
        ("an older one is ended", &pipeline(), vec![&ended, &rejected], "Requested WaitingForEnvironment 1"),
        ("a newer one is valid", &pipeline(), vec![&valid], "Withdrawn Superseded 0"),
        ("a newer one is not valid", &pipeline(), vec![&invalid], "Requested WaitingForEnvironment 1"),
    ] {
        assert_eq!(step(pipeline, &new(spec(20, 0)), &others, at(100)), expected, "{what}");
    }
    assert_eq!(step(&pipeline(), &invalid, &[], at(100)), "Withdrawn NotIndicated 0");
}

#[test]
fn a_request_copies_the_policy() {
    let status = written(&manual(), &approved(&promotion((20, 0), &[Pending], "WaitingApproval")), at(200));
    assert_eq!((status.phase, status.step), (Some(Requested), 2));
    assert_eq!((status.attempts, status.succeeded, status.manual), (1, false, true), "no receiver has accepted it yet");
    assert_eq!((status.last_attempted_time, status.approval.clone()), (Some(at(200)), Some(Approval { time: at(200) })));
    assert!(status.strategy.as_ref().is_some_and(|strategy: &PromotionStrategy| strategy.notification.is_some()));
    assert_eq!(status.steps.last().map(|step| (step.phase, step.time)), Some((Requested, at(200))));
    assert!(requests(None, &status));
    assert!(!requests(Some(&status), &status), "a later message is no request");
}

#[test]
fn a_promotion_waits_for_resumption_approval_and_soak_time_in_this_order() {
    let all = PromotionPolicy { manual: true, suspend: true, after: Some("1m".into()), ..PromotionPolicy::default() };
    let policy = |suspend: bool| {
        let all = all.clone();
        with_policy(move |policy| *policy = PromotionPolicy { suspend, strategy: policy.strategy.clone(), ..all })
    };
    let mut now = moved(&policy(true), &new(spec(20, 0)), at(100));
    assert_eq!(now.status.as_ref().unwrap().reason, "Suspended");
    assert_eq!(step(&policy(true), &now, &[], at(500)), "wait", "nothing has changed");
    now = moved(&policy(false), &now, at(101));
    assert_eq!(now.status.as_ref().map(|s| (s.reason.as_str(), s.step)), Some(("WaitingApproval", 2)));
    now = moved(&policy(true), &now, at(102));
    assert_eq!(now.status.as_ref().map(|s| (s.reason.as_str(), s.step)), Some(("Suspended", 2)), "the phase is the same");
    now = moved(&policy(false), &now, at(103));
    assert_eq!(now.status.as_ref().map(|s| (s.reason.as_str(), s.step)), Some(("WaitingApproval", 2)), "only the first one");
    now = moved(&policy(false), &approved(&now), at(104));
    assert_eq!(now.status.as_ref().map(|s| (s.reason.as_str(), s.step)), Some(("Soaking", 2)));
    assert_eq!(now.status.as_ref().unwrap().approval, Some(Approval { time: at(104) }));
    assert_eq!(step(&policy(false), &now, &[], at(105)), "wait until 160");
    let ready = with(STAGING, |staging| staging.targets[0].last_transition_time = Some(at(150)));
    let again = Pipeline { status: ready.status, ..policy(false) };
    assert_eq!(step(&again, &now, &[], at(170)), "wait until 210", "staging was not ready without interruption");
    assert_eq!(step(&again, &now, &[], at(210)), "Requested WaitingForEnvironment 3");
}

#[test]
fn transient_states_withdraw_no_promotion_and_keep_its_approval() {
    let waits = approved(&promotion((20, 0), &[Pending], "WaitingApproval"));
    let requested = promotion((20, 0), &[Requested], "");
    let mut edited = pipeline();
    edited.metadata.generation = Some(2);
    let unseen = with(PROD, |prod| prod.targets[0].status = Status::Unknown);
    let away = staging(|settled| settled.status = Status::InProgress);
    let baseline = staging(|settled| settled.reached = 0);
    let wiped = with(PROD, |prod| prod.settled = None);
    for (what, pipeline, pending) in [
        ("not processed", &edited, "Pending NotObserved 1"),
        ("not observed", &unseen, "Pending NotObserved 1"),
        ("not ready", &away, "Pending EnvironmentNotReady 1"),
        ("a baseline at the same revision", &baseline, "Requested WaitingForEnvironment 2"),
        ("no settled state of the environment", &wiped, "Requested WaitingForEnvironment 2"),
    ] {
        assert_eq!(step(pipeline, &waits, &[], at(200)), pending, "{what}");
        assert_eq!(step(pipeline, &requested, &[], at(200)), "wait until 604901", "{what}");
        let status = written(pipeline, &waits, at(200));
        assert!(status.approval.is_some(), "{what}: the approval is kept");
    }
}

#[test]
fn a_promotion_that_is_not_needed_is_withdrawn() {
    let mut gone = pipeline();
    gone.spec.environments.pop();
    let mut other = pipeline();
    other.spec.environments.remove(STAGING);
    let off = with_policy(|policy| policy.strategy = None);
    let back = moved_to("1", 30);
    let later = promotion((30, 0), &[Pending], "");
    let valid = new(spec(20, 1));
    let invalid = new(spec(40, 1));
    for (what, pipeline, others, expected) in [
        ("the environment is gone", &gone, vec![], "Withdrawn EnvironmentGone 2"),
        ("another environment is before it", &other, vec![], "Withdrawn SourceMoved 2"),
        ("no strategy", &off, vec![], "Withdrawn NoStrategy 2"),
        ("a later promotion", &pipeline(), vec![&later], "Withdrawn Superseded 2"),
        ("a later one that is valid", &pipeline(), vec![&valid], "Withdrawn Superseded 2"),
        ("a later one that is not valid", &pipeline(), vec![&invalid], "wait until 604901"),
        ("a later revision", &moved_to("3", 30), vec![], "Withdrawn Superseded 2"),
        ("the same revision again", &moved_to("2", 30), vec![], "Withdrawn Superseded 2"),
        ("back to what prod runs", &back, vec![], "Withdrawn SourceMoved 2"),
        ("another revision at first sight", &moved_to("3", 0), vec![], "Withdrawn SourceMoved 2"),
    ] {
        assert_eq!(step(pipeline, &promotion((20, 0), &[Requested], ""), &others, at(200)), expected, "{what}");
        assert_eq!(
            step(pipeline, &promotion((20, 0), &[Merged], ""), &others, at(200)),
            expected,
            "{what}, when it is merged"
        );
    }
    let mut again = moved_to("2", 30);
    again.status.as_mut().unwrap().environments[PROD].targets[0].attempted_revision = "2".into();
    assert_eq!(step(&again, &promotion((20, 0), &[Requested], ""), &[], at(200)), "wait until 604901", "prod tries it");
    for ended in [Finished, Withdrawn] {
        assert_eq!(step(&gone, &promotion((20, 0), &[Requested, ended], ""), &[&later], at(200)), "wait");
    }
}

#[test]
fn a_commit_of_a_promotion_supersedes_no_other_promotion() {
    let id = "1f2e".repeat(10);
    let mut made = promotion((20, 0), &[Requested, Merged], "");
    made.spec.environment = "staging".into();
    made.status.as_mut().unwrap().commit = Some(PromotionCommit { id: id.clone(), ..PromotionCommit::default() });
    let runs = moved_to(&id, 30);
    for (phase, expected) in
        [(Requested, "wait until 604901"), (Merged, "wait until 604901"), (Pending, "Requested WaitingForEnvironment 2")]
    {
        let waits = promotion((20, 0), &[phase], "");
        assert_eq!(step(&runs, &waits, &[&made], at(200)), expected, "{phase:?}");
        assert_eq!(step(&runs, &waits, &[], at(200)), "Withdrawn Superseded 2", "{phase:?}: it is the commit of a person");
    }
}

#[test]
fn a_promotion_finishes_when_the_environment_runs_the_revision() {
    let mut runs = moved_to("3", 30);
    runs.status.as_mut().unwrap().environments[PROD] = environment("prod", "2", 25);
    for phase in [Pending, Requested, Merged, Failed] {
        assert_eq!(step(&runs, &promotion((20, 0), &[phase], ""), &[], at(200)), "Finished Running 2", "{phase:?}");
    }
    let later = promotion((30, 0), &[Pending], "");
    assert_eq!(step(&runs, &promotion((20, 0), &[Requested], ""), &[&later], at(200)), "Finished Running 2");
    assert_eq!(step(&runs, &promotion((20, 0), &[Failed], ""), &[&later], at(200)), "wait", "a later one is in the log");
    runs.metadata.generation = Some(2);
    assert_eq!(step(&runs, &promotion((20, 0), &[Pending], ""), &[], at(200)), "Pending NotObserved 1");
}

#[test]
fn a_promotion_fails_when_the_environment_does_not_run_the_revision_in_time() {
    let short = with_policy(|policy| policy.timeout = Some("1m".into()));
    for phase in [Requested, Merged] {
        let promotion = promotion((20, 0), &[phase], "");
        assert_eq!(step(&short, &promotion, &[], at(160)), "wait until 161");
        assert_eq!(step(&short, &promotion, &[], at(161)), "Failed NotRunning 2");
        let message = written(&short, &promotion, at(161)).message;
        assert_eq!(message, "prod does not run 2 after 1m: web in namespace prod runs 1");
    }
    assert_eq!(step(&short, &promotion((20, 0), &[Pending], ""), &[], at(9999)), "Requested WaitingForEnvironment 2");
}

#[test]
fn a_failed_promotion_is_retried_once_for_each_value() {
    let failed = promotion((20, 0), &[Requested, Failed], "NotRunning");
    let asked = retried(&failed, "1");
    let mut other_source = pipeline();
    other_source.spec.environments.remove(STAGING);
    let unseen = with(PROD, |prod| prod.targets[0].status = Status::Unknown);
    let away = staging(|settled| settled.status = Status::InProgress);
    let off = with_policy(|policy| policy.strategy = None);
    let suspended = with_policy(|policy| policy.suspend = true);
    let later = promotion((30, 0), &[Requested, Finished], "");
    let refused = rejected(30, 0);
    let deleted = with(PROD, |prod| prod.promotion = Some(shown_as(&later, 2)));
    for (what, pipeline, others, expected) in [
        ("it is the newest", &pipeline(), vec![], "Requested WaitingForEnvironment 3"),
        ("one was rejected", &pipeline(), vec![&refused], "Requested WaitingForEnvironment 3"),
        ("suspended", &suspended, vec![], "Requested WaitingForEnvironment 3"),
        ("a later one ended", &pipeline(), vec![&later], "Failed NotRunning 2"),
        ("a later one was deleted", &deleted, vec![], "Failed NotRunning 2"),
        ("another revision", &moved_to("3", 30), vec![], "Failed NotRunning 2"),
        ("another source", &other_source, vec![], "Failed NotRunning 2"),
        ("no strategy", &off, vec![], "Failed NotRunning 2"),
        ("never approved", &manual(), vec![], "Failed NotRunning 2"),
        ("not observed", &unseen, vec![], "wait"),
        ("not ready", &away, vec![], "wait"),
    ] {
        assert_eq!(step(pipeline, &asked, &others, at(200)), expected, "{what}");
        assert_eq!(step(pipeline, &failed, &others, at(200)), "wait", "{what}, not asked");
    }
    assert_eq!(step(&manual(), &approved(&asked), &[], at(200)), "Requested WaitingForEnvironment 3");
    let again = moved(&pipeline(), &asked, at(200));
    assert_eq!(again.status.as_ref().and_then(|status| status.retried.as_deref()), Some("1"));
    let noted = moved(&moved_to("3", 30), &asked, at(200));
    let status = noted.status.as_ref().unwrap();
    assert_eq!(status.message, "not retried: staging runs 3, and 2 is promoted from staging");
    assert_eq!(step(&pipeline(), &noted, &[], at(201)), "wait", "this value was noted");
    assert_eq!(step(&pipeline(), &retried(&noted, "2"), &[], at(201)), "Requested WaitingForEnvironment 3");
}

#[test]
fn a_retry_annotation_of_a_promotion_that_has_not_failed_is_only_noted() {
    let requested = retried(&promotion((20, 0), &[Requested], ""), "1");
    let noted = moved(&pipeline(), &requested, at(200));
    assert_eq!(noted.status.as_ref().map(|status| status.step), Some(1));
    assert_eq!(step(&pipeline(), &noted, &[], at(201)), "wait until 604901");
    for ended in [Finished, Withdrawn] {
        let ended = retried(&promotion((20, 0), &[ended], ""), &"é".repeat(1000));
        let noted = moved(&pipeline(), &ended, at(200));
        let status = noted.status.as_ref().unwrap();
        assert!(status.message.contains("`relaybook promote web prod`"), "{}", status.message);
        assert!(status.retried.as_ref().is_some_and(|value| value.chars().count() < 160));
        assert_eq!(step(&pipeline(), &noted, &[], at(201)), "wait");
    }
}

#[test]
fn an_open_pull_request_is_still_named_after_a_retry_that_comes_too_late() {
    let mut finished = promotion((20, 0), &[Requested, Finished], "");
    let open = "prod runs 2, and pull request 7 is still open; merge it, or close it";
    finished.status.as_mut().unwrap().steps[1].message = open.to_owned();
    for value in ["1", "2"] {
        finished = moved(&pipeline(), &retried(&finished, value), at(200));
        let message = &finished.status.as_ref().unwrap().message;
        assert!(message.starts_with(&format!("{open}; not retried: only a failed")), "{message}");
    }
    let message = &finished.status.as_ref().unwrap().message;
    assert_eq!(message.matches(open).count(), 1, "{message}");
}

#[test]
fn no_step_is_dropped_before_it_is_in_the_log() {
    let phases = [Pending, Requested, Failed, Requested, Failed, Requested, Failed, Requested];
    let full = promotion((20, 0), &phases, "");
    let later = promotion((30, 0), &[Pending], "");
    let shows = |of: &Promotion, taken| {
        let mut pipeline = with_policy(|policy| policy.timeout = Some("1m".into()));
        pipeline.status.as_mut().unwrap().environments[PROD].promotion = Some(shown_as(of, taken));
        pipeline
    };
    let short = with_policy(|policy| policy.timeout = Some("1m".into()));
    assert_eq!(step(&short, &full, &[], at(9999)), "wait", "the log contains no step yet");
    assert_eq!(step(&shows(&full, 0), &full, &[], at(9999)), "wait");
    assert_eq!(step(&shows(&promotion((10, 0), &[Finished], ""), 1), &full, &[], at(9999)), "wait");
    assert_eq!(step(&shows(&full, 1), &full, &[], at(9999)), "Failed NotRunning 9");
    assert_eq!(step(&shows(&later, 1), &full, &[], at(9999)), "Withdrawn Superseded 9", "its steps are not read any more");
    let status = written(&shows(&full, 1), &full, at(9999));
    assert_eq!(status.steps.iter().map(|step| step.step).collect::<Vec<_>>(), (2..=9).collect::<Vec<_>>());
}

#[test]
fn open_promotions_of_a_deleted_pipeline_are_withdrawn() {
    let end = |promotion: &Promotion| match next_without_pipeline(promotion, at(200)) {
        Next::Wait(_) | Next::Act(_) => None,
        Next::Write(status) => Some((status.phase.map_or("", Phase::as_str), status.reason.clone(), status.step)),
    };
    let gone = |step| Some(("Withdrawn", "PipelineGone".to_owned(), step));
    assert_eq!(end(&new(spec(20, 0))), gone(0));
    assert_eq!(end(&promotion((20, 0), &[Pending, Requested], "")), gone(3));
    assert_eq!(end(&promotion((20, 0), &[Requested, Failed], "")), None);
    assert_eq!(end(&rejected(20, 0)), None);
}

#[test]
fn an_open_promotion_says_that_a_target_of_its_environment_is_missing() {
    let absent = |pipeline: Pipeline| {
        let mut pipeline = pipeline;
        let target = &mut pipeline.status.as_mut().unwrap().environments[PROD].targets[0];
        (target.status, target.settled) = (Status::NotFound, None);
        target.message = "Deployment wbe does not exist in namespace prod; did you mean web?".into();
        pipeline
    };
    let end = "; a target is missing: Deployment wbe does not exist in namespace prod; did you mean web?";
    let fresh = new(spec(20, 0));
    let waits = moved(&absent(manual()), &fresh, at(100));
    let status = waits.status.as_ref().unwrap();
    assert_eq!(status.reason, "WaitingApproval", "it is no reason to wait");
    assert!(status.message.ends_with(end) && status.steps[0].message.ends_with(end), "{}", status.message);
    let requested = moved(&absent(pipeline()), &fresh, at(100));
    let status = requested.status.as_ref().unwrap();
    assert_eq!(status.message, format!("waiting for all targets of prod to run 2{end}"));
    assert_eq!(status.steps[0].message, status.message);
    assert_eq!(step(&absent(pipeline()), &requested, &[], at(101)), "wait until 604900", "nothing has changed");
    // The target appears.
    for (promotion, pipeline) in [(&waits, manual()), (&requested, pipeline())] {
        let there = moved(&pipeline, promotion, at(102));
        let status = there.status.as_ref().unwrap();
        assert!(!status.message.contains("missing") && status.steps[0].message.ends_with(end), "{}", status.message);
        assert_eq!(status.step, 1, "that is no step");
    }
    let unseen = with(PROD, |prod| prod.targets[0].status = Status::Unknown);
    assert_eq!(step(&unseen, &requested, &[], at(103)), "wait until 604900", "it is not known");
}
