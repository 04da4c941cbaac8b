use serde_json::json;

use super::*;
use crate::observe::Observation;
use crate::pipeline::plan::plan;
use crate::reading::{Application, Reading};
use relaybook_api::Time;
use relaybook_api::pipeline::{Cursor, Dispatched, GeneratedTarget, TargetStatus};
use relaybook_api::{Change, ChangeLog, PipelineSpec, Settled, Status};

fn at(second: i64) -> Time {
    Time::from_second(second).unwrap()
}

/// A pipeline whose environments `dev` and `prod` select Deployments by a label. `dev` has recorded `old`, created at second 10.
fn pipeline() -> Pipeline {
    let from = |env: &str| json!([{"objects": {"apiVersion": "apps/v1", "kind": "Deployment", "selector": {"matchLabels": {"env": env}}}}]);
    let environments = ["dev", "prod"].map(|env| json!({"name": env, "targetsFrom": from(env)}));
    let spec: PipelineSpec = serde_json::from_value(json!({"environments": environments})).unwrap();
    let mut pipeline = Pipeline::new("shop", spec);
    pipeline.metadata.namespace = Some("n".to_owned());
    let known = |index: usize, newest: Option<i64>, targets: Vec<TargetStatus>| EnvironmentStatus {
        name: pipeline.spec.environments[index].name.clone(),
        targets,
        generated: vec![GeneratedFrom {
            from: 0,
            selection: pipeline.spec.environments[index].targets_from[0].selection(),
            newest: newest.map(at),
            source: None,
        }],
        ..EnvironmentStatus::default()
    };
    let environments = vec![known(0, Some(10), vec![status("dev", "old", Status::Current)]), known(1, None, vec![])];
    pipeline.status = Some(PipelineStatus { environments, ..PipelineStatus::default() });
    pipeline
}

fn object(name: &str) -> relaybook_api::values::refs::ClusterAppRef {
    let text = |text: &str| text.to_owned();
    relaybook_api::values::refs::ClusterAppRef {
        api_version: text("apps/v1"),
        kind: text("Deployment"),
        name: text(name),
        namespace: text("n"),
        cluster_ref: None,
    }
}

fn status(environment: &str, name: &str, settled: Status) -> TargetStatus {
    let generated =
        GeneratedTarget { from: 0, name: format!("{environment}/c/n/{name}"), cluster: "c".to_owned(), fleet_cluster: None };
    let settled = Settled { status: settled, ..Settled::default() };
    TargetStatus {
        cluster_app_ref: object(name),
        generated: Some(generated),
        settled: Some(settled),
        ..TargetStatus::default()
    }
}

fn one(name: &str, joined: Joined, created: i64) -> Selected {
    let object = Application { object: object(name), ..Application::default() };
    let (fleet_cluster, cluster, bundle) = (None, None, None);
    Selected { object, joined, seq: 7, created: Some(at(created)), fleet_cluster, cluster, bundle }
}

fn selecting(objects: Vec<Selected>) -> Selecting {
    let newest = objects.iter().filter_map(|one| one.created).max();
    Selecting { total: objects.len(), newest, objects, ..Selecting::default() }
}

/// Computes the targets. `now`: what is read of each recorded object.
fn run(pipeline: &Pipeline, contents: Vec<Selecting>, now: &Now) -> AllGenerated {
    let planned = plan(&pipeline.spec, "n", "c", true).unwrap().selections;
    let found: Vec<_> = planned.iter().zip(contents).map(|(planned, selecting)| Found { planned, selecting }).collect();
    let recorded = relaybook_api::pipeline::target::targets_of(pipeline, "c").into_iter();
    let reading = |info| {
        let now = now.clone();
        let reading = Reading {
            observations: vec![],
            now,
            seq: 1,
            changed_at: None,
            overflowed: false,
            cluster: String::new(),
            confirmed: String::new(),
        };
        (info, reading)
    };
    let recorded: Vec<_> = recorded.map(reading).collect();
    generate(pipeline, "c", &[], &found, &recorded)
}

fn known(status: Status) -> Now {
    Now::Known(Observation { status, ..Observation::default() })
}

/// Returns name and whether it is news, for each target of an environment.
fn told(all: &AllGenerated, environment: usize) -> Vec<(&str, bool)> {
    all.environments[environment].targets.iter().map(|t| (t.info.name.as_str(), t.news_since.is_some())).collect()
}

#[test]
fn only_objects_newer_than_the_recorded_ones_are_reported_as_added() {
    let there = known(Status::Current);
    for (what, joined, created, is_news) in [
        ("created while it was watched", Joined::Created, 3, true),
        ("listed, and newer", Joined::Listed, 11, true),
        ("listed, and created in the same second", Joined::Listed, 10, true),
        ("listed, and older", Joined::Listed, 9, false),
        ("it came to be selected", Joined::Moved, 99, false),
    ] {
        let dev = selecting(vec![one("new", joined, created), one("old", Joined::Listed, 10)]);
        let all = run(&pipeline(), vec![dev, selecting(vec![])], &there);
        assert_eq!(told(&all, 0), [("dev/c/n/new", is_news), ("dev/c/n/old", false)], "{what}");
        assert_eq!(all.environments[0].entries[0].newest, Some(at(created.max(10))), "{what}");
    }
    // An entry that selects something else knows nothing of what was there.
    let mut edited = pipeline();
    edited.status.as_mut().unwrap().environments[0].generated[0].selection = "other".to_owned();
    let all = run(&edited, vec![selecting(vec![one("new", Joined::Created, 99)]), selecting(vec![])], &there);
    assert_eq!(told(&all, 0), [("dev/c/n/new", false)]);
}

#[test]
fn an_object_that_moves_is_not_reported_as_added_in_its_new_environment() {
    let all =
        run(&pipeline(), vec![selecting(vec![]), selecting(vec![one("old", Joined::Listed, 10)])], &known(Status::Current));
    assert_eq!((told(&all, 0), told(&all, 1)), (vec![], vec![("prod/c/n/old", false)]));
}

#[test]
fn an_object_is_followed_once_in_an_environment() {
    // A listed target has another name for the same object.
    let mut both = pipeline();
    both.spec.app_ref =
        AppRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "old".into(), ..AppRef::default() };
    both.spec.environments[0].targets =
        vec![relaybook_api::pipeline::Target { namespace: "n".into(), ..Default::default() }];
    let planned = plan(&both.spec, "n", "c", true).unwrap().selections;
    let objects = || selecting(vec![one("old", Joined::Created, 10), one("new", Joined::Created, 10)]);
    let found: Vec<_> = planned.iter().map(|planned| Found { planned, selecting: objects() }).collect();
    let listed = relaybook_api::pipeline::target::targets(&both.spec, "c");
    let all = generate(&both, "c", &listed, &found, &[]);
    assert_eq!(told(&all, 0), [("dev/c/n/new", true)]);
    assert_eq!(all.problems, []);
}

#[test]
fn an_object_that_is_recorded_under_another_name_is_not_reported_as_added() {
    let mut renamed = pipeline();
    let generated = renamed.status.as_mut().unwrap().environments[0].targets[0].generated.as_mut().unwrap();
    generated.name = "dev/other/n/old".to_owned();
    let there = || vec![selecting(vec![one("old", Joined::Created, 10)]), selecting(vec![])];
    assert_eq!(told(&run(&renamed, there(), &known(Status::Current)), 0), [("dev/c/n/old", false)]);
    // An object that was gone is another one.
    let target = &mut renamed.status.as_mut().unwrap().environments[0].targets[0];
    target.settled.as_mut().unwrap().status = Status::NotFound;
    assert_eq!(told(&run(&renamed, there(), &known(Status::Current)), 0), [("dev/c/n/old", true)]);
}

#[test]
fn a_target_stays_until_the_removal_of_its_object_is_read_and_delivered() {
    let gone = known(Status::NotFound);
    let none = || vec![selecting(vec![]), selecting(vec![])];
    assert_eq!(told(&run(&pipeline(), none(), &gone), 0), [("dev/c/n/old", false)], "its removal is not recorded yet");
    let mut removed = pipeline();
    let status = removed.status.as_mut().unwrap();
    status.environments[0].targets[0].settled.as_mut().unwrap().status = Status::NotFound;
    let change = Change { serial: 8, subject: "target/dev/c/n/old".to_owned(), ..Change::default() };
    status.log = Some(ChangeLog { first: 1, serial: 8, changes: vec![change], ..ChangeLog::default() });
    assert_eq!(told(&run(&removed, none(), &gone), 0).len(), 1, "no dispatcher has read it");
    let cursors = |serials: &[i64]| {
        let mut read = removed.clone();
        let cursors = serials.iter().map(|serial| Cursor { serial: *serial, ..Cursor::default() }).collect();
        read.status.as_mut().unwrap().dispatched = Some(Dispatched { cursors, ..Dispatched::default() });
        told(&run(&read, none(), &gone), 0).len()
    };
    assert_eq!([cursors(&[8, 7]), cursors(&[8, 9]), cursors(&[])], [1, 0, 0]);
    // Its removal is read, and not delivered yet.
    let mut pending = removed.clone();
    let cursors = vec![Cursor { serial: 8, ..Cursor::default() }];
    let pending_targets = vec!["target/dev/c/n/old".to_owned()];
    pending.status.as_mut().unwrap().dispatched = Some(Dispatched { cursors, pending_targets, ..Dispatched::default() });
    assert_eq!(told(&run(&pending, none(), &gone), 0), [("dev/c/n/old", false)]);
    // Another object with its name, or a lack of room, ends that.
    let mut again = one("other", Joined::Created, 99);
    again.object.object.name = "old".to_owned();
    again.object.object.api_version = "apps/v2".to_owned();
    let all = run(&pending, vec![selecting(vec![again]), selecting(vec![])], &gone);
    assert_eq!(told(&all, 0), [("dev/c/n/old", true)]);
    let many = || (0..MAX_TARGETS).map(|n| one(&format!("a{n:03}"), Joined::Listed, 1));
    for (count, stays) in [(MAX_TARGETS - 1, true), (MAX_TARGETS, false)] {
        let all = run(&pending, vec![selecting(vec![]), selecting(many().take(count).collect())], &gone);
        assert_eq!((told(&all, 0).len(), all.problems), (usize::from(stays), vec![]), "{count}");
    }
    // It is there, and not selected: it goes at once.
    assert_eq!(told(&run(&pipeline(), none(), &known(Status::Current)), 0), []);
}

#[test]
fn an_incomplete_selection_changes_nothing() {
    let mut all = vec![selecting(vec![one("new", Joined::Created, 99)]), selecting(vec![])];
    all[0].incomplete = Some((Reason::Forbidden, "no".to_owned()));
    for now in [known(Status::NotFound), known(Status::Current)] {
        let all = run(&pipeline(), vec![all[0].clone(), all[1].clone()], &now);
        assert_eq!(told(&all, 0), [("dev/c/n/old", false)]);
        assert_eq!((all.environments[0].is_complete, all.environments[0].is_pending), (false, false));
        assert_eq!(all.problems, [("Forbidden".to_owned(), "dev/targetsFrom[0]: no".to_owned())]);
        assert_eq!(all.environments[0].entries, pipeline().status.unwrap().environments[0].generated);
    }
    all[0].incomplete = Some((Reason::CacheNotSynced, "listing".to_owned()));
    let all = run(&pipeline(), all, &known(Status::Current));
    assert!(all.environments[0].is_pending && all.problems.is_empty());
}

#[test]
fn recorded_targets_take_precedence_when_the_limit_is_exceeded() {
    let many: Vec<_> = (0..MAX_TARGETS).map(|n| one(&format!("a{n:03}"), Joined::Listed, 1)).collect();
    let all = [many, vec![one("old", Joined::Listed, 10)]].concat();
    let all = run(&pipeline(), vec![selecting(all), selecting(vec![one("p", Joined::Listed, 1)])], &known(Status::Current));
    assert_eq!((all.environments[0].targets.len(), all.environments[1].targets.len()), (MAX_TARGETS, 0));
    assert!(told(&all, 0).contains(&("dev/c/n/old", false)));
    assert_eq!(all.environments.iter().map(|of| of.is_complete).collect::<Vec<_>>(), [false, false]);
    assert_eq!(all.problems[0].0, "TooManyTargets");
    assert!(all.problems[0].1.starts_with("2 objects are selected beyond"), "{}", all.problems[0].1);
    // What was left out is not reported when there is room for it, although it is as old as the newest one.
    let newest = all.environments[0].entries[0].newest;
    assert_eq!(newest, Some(at(11)));
    let mut later = pipeline();
    later.status.as_mut().unwrap().environments[0].generated[0].newest = newest;
    let dev = selecting(vec![one("left-out", Joined::Listed, 10), one("old", Joined::Listed, 10)]);
    let all = run(&later, vec![dev, selecting(vec![])], &known(Status::Current));
    assert_eq!(told(&all, 0), [("dev/c/n/left-out", false), ("dev/c/n/old", false)]);
    assert_eq!(all.environments[0].entries[0].newest, newest);
}

#[test]
fn a_target_that_two_entries_select_is_followed_once_and_reported() {
    let mut twice = pipeline();
    let entry = twice.spec.environments[0].targets_from[0].clone();
    let mut second = entry.clone();
    second.objects.as_mut().unwrap().selector = None;
    twice.spec.environments[0].targets_from = vec![entry, second];
    let same = || selecting(vec![one("old", Joined::Listed, 10)]);
    let all = run(&twice, vec![same(), same(), selecting(vec![])], &known(Status::Current));
    assert_eq!(told(&all, 0), [("dev/c/n/old", false)]);
    let message = "dev/targetsFrom[1] and dev/targetsFrom[0] both have the target dev/c/n/old; exclude it from one";
    assert_eq!(all.problems, [("DuplicateTarget".to_owned(), message.to_owned())]);
}

#[test]
fn a_cluster_name_with_invalid_characters_is_replaced_by_its_hash() {
    assert_eq!(plain("eu-1.example"), "eu-1.example");
    assert_eq!(plain("https://10.0.0.1"), plain("https://10.0.0.1"));
    assert!(plain("https://10.0.0.1").chars().all(|c| c.is_ascii_hexdigit()), "{}", plain("https://10.0.0.1"));
    assert_ne!(plain("a/b"), plain("a/c"));
}
