//! Tests of the condition `Ready` and of the Events about a pipeline as a whole.

use super::*;
use crate::observe::Observation;
use crate::reading::Reading;
use relaybook_api::PipelineSpec;
use relaybook_api::pipeline::Dropped;
use relaybook_api::values::refs::AppRef;

fn at(second: i64) -> Time {
    Time::from_second(second).unwrap()
}

fn target(namespace: &str) -> TargetInfo {
    let app = AppRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into(), revision_path: None };
    let (environment, cluster) = ("prod".to_owned(), "c".to_owned());
    let name = format!("prod/c/{namespace}");
    TargetInfo { environment, namespace: namespace.into(), cluster, cluster_ref: None, app, name, ..TargetInfo::default() }
}

/// Returns a pipeline whose targets have these statuses. Targets that are `Unknown` have the reason `Forbidden`.
fn seen(statuses: &[Status], similar: &[(usize, &str)]) -> (PipelineStatus, Vec<Observed>) {
    let names: Vec<String> = (0..statuses.len()).map(|i| format!("n{i}")).collect();
    let observed: Vec<Observed> = names
        .iter()
        .zip(statuses)
        .map(|(name, status)| {
            let known = Now::Known(Observation { status: *status, ..Observation::default() });
            let unknown = Now::Unknown { reason: Reason::Forbidden, message: "refused".into() };
            let now = if *status == Status::Unknown { unknown } else { known };
            let reading = Reading {
                observations: vec![],
                now,
                seq: 0,
                changed_at: None,
                overflowed: false,
                cluster: String::new(),
                confirmed: String::new(),
            };
            (target(name), reading)
        })
        .collect();
    let shown = |(target, status): (&TargetInfo, &Status)| TargetStatus {
        cluster_app_ref: application(target),
        status: *status,
        ready: *status == Status::Current,
        reason: if *status == Status::Unknown { "Forbidden".into() } else { String::new() },
        message: if *status == Status::Unknown { "refused".into() } else { String::new() },
        ..TargetStatus::default()
    };
    let targets = observed.iter().map(|(t, _)| t).zip(statuses).map(shown).collect();
    let environments = vec![EnvironmentStatus { name: "prod".into(), targets, ..EnvironmentStatus::default() }];
    let mut status = PipelineStatus { environments, ..PipelineStatus::default() };
    let similar = similar.iter().map(|(i, words)| (format!("prod/c/n{i}"), (*words).to_owned())).collect();
    name_missing(&mut status.environments, &[], &observed, &similar);
    set_ready_from_targets(&mut status, &Gathered::of(observed.clone()), Some(1), at(1));
    (status, observed)
}

fn said(status: &PipelineStatus) -> (String, String) {
    let ready = conditions::get(&status.conditions, READY).unwrap();
    (format!("{:?} {}", ready.status, ready.reason), ready.message.clone())
}

#[test]
fn the_ready_condition_names_missing_and_unobserved_targets() {
    use Status::{Current, Failed, NotFound, Unknown};
    let absent = |i| format!("target prod/c/n{i}: Deployment web does not exist in namespace n{i}");
    for (statuses, similar, reason, message) in [
        (&[Current, Failed][..], &[][..], "True Observed", "2 of 2 targets found, 1 ready".to_owned()),
        (
            &[Current, NotFound],
            &[(1, "there is one in podinfo-prod")],
            "False TargetNotFound",
            format!("{}; there is one in podinfo-prod", absent(1)),
        ),
        (&[NotFound, NotFound], &[], "False TargetNotFound", format!("{}; {}", absent(0), absent(1))),
        (&[NotFound; 5], &[], "False TargetNotFound", format!("{}; {}; {} and 2 more", absent(0), absent(1), absent(2))),
        (&[NotFound, Unknown], &[], "False Forbidden", format!("cannot observe prod/c/n1: refused; {}", absent(0))),
    ] {
        let (status, _) = seen(statuses, similar);
        assert_eq!(said(&status), (reason.to_owned(), message), "{statuses:?}");
    }
}

#[test]
fn a_message_that_was_cut_for_lack_of_room_stays_cut() {
    let (mut before, observed) = seen(&[Status::NotFound], &[(0, &"there is one in a place, ".repeat(9))]);
    let similar = [("prod/c/n0".to_owned(), "there is one in a place, ".repeat(9))].into();
    let message = before.environments[0].targets[0].message.clone();
    before.environments[0].targets[0].message = cut(&message, 64).into_owned();
    let mut status = before.clone();
    name_missing(&mut status.environments, &before.environments, &observed, &similar);
    assert_eq!(status.environments, before.environments);
}

#[test]
fn the_message_of_a_condition_is_bounded() {
    let long = "there is one in ".repeat(200);
    let (status, _) = seen(&[Status::NotFound; 9], &[(0, &long), (1, &long), (2, &long)]);
    assert!(said(&status).1.len() <= MAX_MESSAGE);
}

/// Returns a pipeline whose condition `Ready` has this generation, status, reason and message.
fn says(generation: i64, is: ConditionStatus, reason: &str, message: &str) -> Pipeline {
    let mut status = PipelineStatus::default();
    set_ready(&mut status, Some(generation), is, reason, message, at(1));
    let mut pipeline = Pipeline::new("shop", PipelineSpec::default());
    pipeline.status = Some(status);
    pipeline
}

#[test]
fn each_reason_is_announced_once_when_it_begins_and_when_it_ends() {
    use ConditionStatus::{False, True};
    let new = Pipeline::new("shop", PipelineSpec::default());
    let steps = vec![
        (new.clone(), ""),
        (says(1, False, "CacheNotSynced", "being listed"), ""),
        (says(1, False, "TargetNotFound", "a"), "Warning TargetNotFound a"),
        (says(1, False, "TargetNotFound", "a"), ""),
        (says(1, False, "TargetNotFound", "a and b"), ""),
        (says(2, False, "TargetNotFound", "a and b"), ""),
        (says(3, False, "TargetNotFound", "c"), "Warning TargetNotFound c"),
        (says(3, False, "CacheNotSynced", "being listed"), ""),
        (says(3, False, "TargetNotFound", "c"), ""),
        (says(3, False, "Forbidden", "no"), "Warning Forbidden no"),
        (says(3, True, "Observed", "all"), "Normal Observed all"),
        (says(3, True, "Observed", "all, and 1 ready"), ""),
        (says(3, False, "TargetNotFound", "c"), "Warning TargetNotFound c"),
        (
            says(4, True, "Observed", "1 of 1; a/targetsFrom[0] selects nothing"),
            "Normal Observed 1 of 1; a/targetsFrom[0] selects nothing\nNormal NothingSelected a/targetsFrom[0] selects nothing",
        ),
        (says(4, True, "Observed", "2 of 2; a/targetsFrom[0] selects nothing"), ""),
        (
            says(4, True, "Observed", "2 of 2; a/targetsFrom[0] selects nothing; b/targetsFrom[1] selects nothing"),
            "Normal NothingSelected b/targetsFrom[1] selects nothing",
        ),
        (says(4, True, "Observed", "3 of 3; b/targetsFrom[1] selects nothing"), ""),
        (says(4, False, "TargetNotFound", "c"), "Warning TargetNotFound c"),
        (
            says(4, True, "Observed", "3 of 3; b/targetsFrom[1] selects nothing"),
            "Normal Observed 3 of 3; b/targetsFrom[1] selects nothing",
        ),
    ];
    let tell = |announced: &mut Announced, pipeline: &Pipeline| {
        let news = announced.new_notices(pipeline).into_iter();
        let words = news.map(|n| format!("{} {} {}", if n.warning { "Warning" } else { "Normal" }, n.reason, n.note));
        words.collect::<Vec<_>>().join("\n")
    };
    let mut announced = Announced::default();
    for (at, (pipeline, told)) in steps.iter().enumerate() {
        assert_eq!(tell(&mut announced, pipeline), *told, "{at}");
    }
    // Another process, or another leadership term of this process.
    let (last, _) = steps.last().unwrap();
    let mut announced = Announced::default();
    assert_eq!((tell(&mut announced, last).as_str(), tell(&mut announced, last).as_str()), ("", ""));

    let mut healthy = Announced::default();
    for pipeline in [&new, &says(1, True, "Observed", "all")] {
        assert_eq!(tell(&mut healthy, pipeline), "", "nothing was wrong");
    }
}

#[test]
fn dropped_changes_are_announced_when_they_are_dropped() {
    let drops = |count| {
        let mut pipeline = says(1, ConditionStatus::True, "Observed", "all");
        pipeline.status.as_mut().unwrap().dropped = Some(Dropped { serial: 1, count });
        pipeline
    };
    let mut announced = Announced::default();
    let told: Vec<_> = [3, 3, 5].iter().map(|count| announced.new_notices(&drops(*count)).len()).collect();
    assert_eq!(told, [0, 0, 1], "changes that were dropped before the start were announced then");
}

#[test]
fn a_problem_with_the_keys_of_hooks_is_announced_once() {
    let with = |message: Option<&str>| {
        let mut pipeline = says(1, ConditionStatus::True, "Observed", "all");
        if let Some(message) = message {
            let conditions = &mut pipeline.status.as_mut().unwrap().conditions;
            let now = Time::UNIX_EPOCH;
            conditions::set(conditions, HOOKS_READY, ConditionStatus::False, "SecretMissing", message, Some(1), now);
        }
        pipeline
    };
    let mut announced = Announced::default();
    let steps = [None, Some("a is missing"), Some("a is missing"), Some("a has no key"), None, Some("a is missing")];
    let told = steps.map(|message| {
        let news = announced.new_notices(&with(message)).into_iter();
        news.map(|n| format!("{} {} {}", n.warning, n.reason, n.note)).collect::<Vec<_>>().join("\n")
    });
    let warning = |note: &str| format!("true HooksNotReady {note}");
    assert_eq!(told, ["", &warning("a is missing"), "", &warning("a has no key"), "", &warning("a is missing")]);
    let mut restarted = Announced::default();
    assert!(restarted.new_notices(&with(Some("a is missing"))).is_empty(), "the process before has announced it");
}
