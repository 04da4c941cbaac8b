//! Histories of a pipeline, and the answers to a wait for `prod`.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, Asked, Requested, Wait};
use relaybook_api::{ObjectName, Pipeline, Time};

const SHA1: &str = "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";

/// One state: when it is seen, the targets of `prod` (see [`target`]), and a merge patch of the Pipeline.
type State<'a> = (i64, &'a [&'a str], Value);

/// The exit code for a history. Without an answer it is 4, because the time would be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Runs = 0,
    Failed = 1,
    Usage = 2,
    Replaced = 3,
    TimeOver = 4,
    Unanswered = 5,
}

/// Returns a state.
fn s<'a>(second: i64, targets: &'a [&'a str]) -> State<'a> {
    with(second, targets, Value::Null)
}

/// Returns a state with a merge patch.
fn with<'a>(second: i64, targets: &'a [&'a str], over: Value) -> State<'a> {
    (second, targets, over)
}

fn at(second: i64) -> Time {
    Time::from_second(1_000_000 + second).unwrap()
}

fn asked(revision: &str) -> Asked {
    Asked {
        pipeline: ObjectName::new("team-a", "web"),
        environment: None,
        revision: Requested::new(revision).unwrap(),
        since: None,
        failed_for: Duration::from_secs(30),
        notified: false,
    }
}

fn since(seconds: u64) -> Asked {
    Asked { since: Some(Duration::from_secs(seconds)), ..asked("6.7.1") }
}

fn notified() -> Asked {
    Asked { notified: true, ..asked("6.7.1") }
}

fn of(environment: &str) -> Asked {
    Asked { environment: Some(environment.to_owned()), ..asked("6.7.1") }
}

/// Returns a target from words: `STATUS REVISION`, then the revision that ran last after `ran`, and `drifted`, `failed`, `remote`,
/// `generated` or `reread`. Before `!` is the shown status if it differs from the settled one. `-`: nothing is settled.
fn target(namespace: &str, text: &str) -> Value {
    let (shown, text) = text.split_once('!').map_or((None, text), |(shown, rest)| (Some(shown), rest));
    let words: Vec<&str> = text.split(' ').collect();
    let has = |word: &str| words.contains(&word);
    let (status, revision) = (words[0], words.get(1).copied().unwrap_or_default());
    let ran = words.iter().position(|word| *word == "ran").map(|at| words[at + 1]);
    let current = if status == "Current" { Some(revision) } else { ran };
    let shown = shown.unwrap_or(if status == "-" { "InProgress" } else { status });
    let mut target = json!({
        "clusterAppRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": namespace},
        "status": shown, "ready": shown == "Current", "revision": current.unwrap_or_default(), "attemptedRevision": revision,
        "reason": "Because", "message": if shown == "Current" { "" } else { "no such\nimage" }, "drifted": has("drifted"),
        "lastTransitionTime": at(-3600),
    });
    if has("remote") {
        target["clusterAppRef"]["clusterRef"] = json!({"kind": "Secret", "name": "eu-1"});
    }
    if has("generated") {
        target["generated"] = json!({"from": 0, "name": format!("prod/eu-1/{namespace}/web"), "cluster": "eu-1"});
    }
    if status != "-" {
        target["settled"] = json!({
            "status": status, "revision": if status == "NotFound" { "" } else { revision }, "drifted": has("drifted"),
            "failed": has("failed") || status == "Failed", "reader": if has("reread") { "s" } else { "r" },
        });
        if let Some(current) = current {
            target["settled"]["current"] = json!(current);
        }
    }
    target
}

fn pipeline((_, targets, over): &State<'_>) -> Pipeline {
    let namespaces: Vec<_> = (1..=targets.len()).map(|number| format!("ns-{number}")).collect();
    let all = namespaces.iter().zip(*targets);
    let listed: Vec<_> = all
        .clone()
        .filter(|(_, text)| !text.contains("generated"))
        .map(|(namespace, _)| json!({"namespace": namespace}))
        .collect();
    let seen: Vec<_> = all.map(|(namespace, text)| target(namespace, text)).collect();
    let mut pipeline = json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
        "metadata": {"name": "web", "namespace": "team-a", "uid": "u", "generation": 1},
        "spec": {
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "environments": [{"name": "dev", "targets": [{"namespace": "dev"}]}, {"name": "prod", "targets": listed}],
        },
        "status": {
            "observedGeneration": 1,
            "environments": [
                {"name": "dev", "targets": [target("dev", "Current 6.7.1")]},
                {"name": "prod", "targets": seen},
            ],
            "log": {"first": 100, "serial": 100, "changes": []},
        },
    });
    if !over.is_null() {
        json_patch::merge(&mut pipeline, over);
    }
    serde_json::from_value(pipeline).unwrap()
}

/// Returns a log of changes of the first target, from serial 101 on. Each has its time, and the states as words.
fn log(changes: &[(i64, &str, &str)]) -> Value {
    let state = |text: &str| {
        let target = target("ns-1", text);
        let settled = &target["settled"];
        json!({"status": settled["status"], "revision": settled["revision"], "current": settled["current"],
            "failed": settled["failed"], "drifted": settled["drifted"]})
    };
    let change = |(serial, (second, from, to)): (i64, &(i64, &str, &str))| {
        let (subject, from, to) = ("target/prod/in-cluster/ns-1", state(from), state(to));
        json!({"serial": serial, "subject": subject, "time": at(*second), "from": from, "to": to})
    };
    let all: Vec<_> = (101..).zip(changes).map(change).collect();
    json!({"status": {"log": {"first": 100, "serial": 100 + all.len(), "changes": all}}})
}

/// Returns the status of the environment `prod` with these fields.
fn prod(text: &str, fields: &Value) -> Value {
    let mut environment = json!({"name": "prod", "targets": [target("ns-1", text)]});
    json_patch::merge(&mut environment, fields);
    json!({"status": {"environments": [{"name": "dev", "targets": [target("dev", "Current 6.7.1")]}, environment]}})
}

/// Returns how a wait ends, and its last line.
fn ends(asked: Asked, states: &[State<'_>]) -> (Ends, String) {
    let mut wait = Wait::new(asked);
    let mut last = String::new();
    for state in states {
        match wait.step(&pipeline(state), at(state.0)) {
            Ok(Answer::NotYet { why, .. }) => last = wait.over(&why, Duration::from_mins(15)),
            Ok(answer) => {
                let ends = match answer {
                    Answer::Runs { .. } => Ends::Runs,
                    Answer::Failed { .. } => Ends::Failed,
                    Answer::Replaced { .. } => Ends::Replaced,
                    Answer::NotYet { .. } => Ends::TimeOver,
                };
                return (ends, wait.line(&answer));
            }
            Err(error) => return (if error.is_usage() { Ends::Usage } else { Ends::Unanswered }, error.to_string()),
        }
    }
    (Ends::TimeOver, last)
}

type History<'a> = (&'a str, Asked, Vec<State<'a>>, Ends, &'a str);

fn check(histories: Vec<History<'_>>) {
    for (name, asked, states, expected, words) in histories {
        let (ends, line) = ends(asked, &states);
        assert!(ends == expected && line.contains(words), "{name}: {ends:?}: {line}");
        assert!(!line.contains('\n'), "{name}: {line}");
    }
}

#[test]
fn rollouts() {
    let plain = || asked("6.7.1");
    check(vec![
        ("at once", plain(), vec![s(0, &["Current 6.7.1"])], Ends::Runs, "web/prod  runs 6.7.1; its status has not"),
        (
            "a rollout",
            plain(),
            vec![s(0, &["Current 6.7.0"]), s(5, &["InProgress 6.7.1 ran 6.7.0"]), s(9, &["Current 6.7.1"])],
            Ends::Runs,
            "web/prod  runs 6.7.1 since 1970-01-12T13:46:49Z",
        ),
        (
            "never tried",
            plain(),
            vec![s(0, &["Current 6.7.0"])],
            Ends::TimeOver,
            "web/prod  not 6.7.1 after 15m: prod did not try 6.7.1; it runs 6.7.0; dev runs it",
        ),
        (
            "nowhere",
            asked("6.7.9"),
            vec![s(0, &["Current 6.7.0"])],
            Ends::TimeOver,
            "it runs 6.7.0; no environment before it runs that",
        ),
        (
            "in progress",
            plain(),
            vec![s(0, &["InProgress 6.7.1 ran 6.7.0"])],
            Ends::TimeOver,
            "0 of 1 targets of prod run 6.7.1; ns-1 is in progress: no such\\nimage",
        ),
        (
            "one of two",
            plain(),
            vec![s(0, &["Current 6.7.1", "Current 6.7.0"])],
            Ends::TimeOver,
            "1 of 2 targets of prod run 6.7.1; ns-2 runs 6.7.0",
        ),
        (
            "one after the other",
            plain(),
            vec![s(0, &["Current 6.7.1", "Current 6.7.0"]), s(5, &["Current 6.7.1", "Current 6.7.1"])],
            Ends::Runs,
            "",
        ),
        ("the first environment", of("dev"), vec![s(0, &["Current 6.7.0"])], Ends::Runs, "web/dev  runs 6.7.1"),
        ("drift", plain(), vec![s(0, &["Current 6.7.1 drifted"])], Ends::Runs, ""),
        ("a controller checks again", plain(), vec![s(0, &["InProgress!Current 6.7.1"])], Ends::Runs, ""),
        (
            "running timers of `for`",
            plain(),
            vec![with(
                0,
                &["Current 6.7.1"],
                json!({"status": {"dispatched": {"cursors": [], "armed": [{"notification": "chat", "serial": 101,
                    "subject": "target/prod/in-cluster/ns-1", "type": "Deployed", "due": at(600)}]}}}),
            )],
            Ends::Runs,
            "",
        ),
        (
            "a restart of Relaybook: the same again",
            plain(),
            vec![s(0, &["InProgress 6.7.1 ran 6.7.0"]); 3],
            Ends::TimeOver,
            "0 of 1 targets",
        ),
        (
            "a generated target whose object is gone",
            plain(),
            vec![s(0, &["Current 6.7.1", "NotFound generated"])],
            Ends::Runs,
            "",
        ),
    ]);
}

#[test]
fn failures() {
    let plain = || asked("6.7.1");
    let failed = "Failed 6.7.1 ran 6.7.0";
    check(vec![
        (
            "it stays failed",
            plain(),
            vec![s(0, &["Current 6.7.0"]), s(5, &["InProgress 6.7.1 ran 6.7.0"]), s(77, &[failed]), s(107, &[failed])],
            Ends::Failed,
            "web/prod  Failed 6.7.1 after 1m12s: ns-1: no such\\nimage",
        ),
        (
            "not for long enough",
            plain(),
            vec![s(0, &[failed]), s(29, &[failed])],
            Ends::TimeOver,
            "ns-1 has failed: no such",
        ),
        ("from before the wait", plain(), vec![s(0, &[failed]), s(30, &[failed])], Ends::Failed, "Failed 6.7.1: ns-1"),
        (
            "flapping",
            plain(),
            vec![s(0, &[failed]), s(20, &["InProgress 6.7.1 ran 6.7.0"]), s(25, &[failed]), s(54, &[failed])],
            Ends::TimeOver,
            "",
        ),
        ("it recovers", plain(), vec![s(0, &[failed]), s(29, &["Current 6.7.1"])], Ends::Runs, "runs 6.7.1 since"),
        (
            "its controller tries again",
            plain(),
            vec![s(0, &[failed]), s(30, &["InProgress!Failed 6.7.1 ran 6.7.0"])],
            Ends::Failed,
            "",
        ),
        (
            "it was not seen in between",
            plain(),
            vec![s(0, &[failed]), s(20, &["Unknown!Failed 6.7.1 ran 6.7.0"]), s(31, &[failed])],
            Ends::TimeOver,
            "",
        ),
        (
            "one of two",
            plain(),
            vec![s(0, &["Current 6.7.1", failed]), s(30, &["Current 6.7.1", failed])],
            Ends::Failed,
            "ns-2",
        ),
        (
            "another revision has failed",
            plain(),
            vec![s(0, &["Failed 6.7.0 ran 6.6.0"]), s(60, &["Failed 6.7.0 ran 6.6.0"])],
            Ends::TimeOver,
            "prod did not try 6.7.1; it runs 6.6.0",
        ),
        (
            "rolled back",
            plain(),
            vec![s(0, &["InProgress 6.7.1 ran 6.7.0"]), s(5, &[failed]), s(6, &["Current 6.7.0"])],
            Ends::Failed,
            "ns-1: it was rolled back to 6.7.0",
        ),
        (
            "the rollback begins",
            plain(),
            vec![s(5, &[failed]), s(6, &["InProgress 6.7.0 ran 6.7.0 failed"])],
            Ends::Failed,
            "ns-1: it was rolled back to 6.7.0",
        ),
        (
            "rolled back between two states",
            plain(),
            vec![
                s(0, &["InProgress 6.7.1 ran 6.7.0"]),
                with(5, &["Current 6.7.0"], log(&[(3, "InProgress 6.7.1 ran 6.7.0", failed), (4, failed, "Current 6.7.0")])),
            ],
            Ends::Failed,
            "in-cluster/ns-1: it was rolled back to 6.7.0",
        ),
        (
            "tried, failed and rolled back between two states",
            plain(),
            vec![
                s(0, &["Current 6.7.0"]),
                with(5, &["Current 6.7.0"], log(&[(3, "Current 6.7.0", failed), (4, failed, "Current 6.7.0")])),
            ],
            Ends::Failed,
            "in-cluster/ns-1: it was rolled back to 6.7.0",
        ),
    ]);
}

#[test]
fn other_revisions() {
    let plain = || asked("6.7.1");
    check(vec![
        (
            "superseded",
            plain(),
            vec![s(0, &["InProgress 6.7.1 ran 6.7.0"]), s(5, &["InProgress 6.7.2 ran 6.7.0"])],
            Ends::Replaced,
            "web/prod  Replaced 6.7.1 by 6.7.2: ns-1",
        ),
        (
            "superseded after one target ran it",
            plain(),
            vec![s(0, &["Current 6.7.1", "Current 6.7.0"]), s(5, &["InProgress 6.7.2 ran 6.7.1", "Current 6.7.0"])],
            Ends::Replaced,
            "by 6.7.2",
        ),
        (
            "fixed after a failure",
            plain(),
            vec![s(0, &["Failed 6.7.1 ran 6.7.0"]), s(5, &["InProgress 6.7.2 ran 6.7.0 failed"])],
            Ends::Replaced,
            "by 6.7.2",
        ),
        (
            "reverted without a failure",
            plain(),
            vec![s(0, &["InProgress 6.7.1 ran 6.7.0"]), s(5, &["Current 6.7.0"])],
            Ends::Replaced,
            "by 6.7.0",
        ),
        (
            "another one ran before",
            plain(),
            vec![with(0, &["Current 6.7.2"], log(&[(-9, "Current 6.7.1", "Current 6.7.2")])), s(5, &["Current 6.7.2"])],
            Ends::TimeOver,
            "prod did not try 6.7.1; it runs 6.7.2",
        ),
        (
            "another target is late",
            plain(),
            vec![s(0, &["Current 6.7.1", "InProgress 6.6.9 ran 6.6.8"]), s(5, &["Current 6.7.1", "Current 6.6.9"])],
            Ends::TimeOver,
            "ns-2 runs 6.6.9",
        ),
        (
            "between two states",
            plain(),
            vec![
                s(0, &["Current 6.7.0"]),
                with(
                    5,
                    &["InProgress 6.7.2 ran 6.7.1"],
                    log(&[(3, "Current 6.7.0", "Current 6.7.1"), (4, "Current 6.7.1", "InProgress 6.7.2 ran 6.7.1")]),
                ),
            ],
            Ends::Replaced,
            "by 6.7.2: in-cluster/ns-1",
        ),
        (
            "merged in the log",
            plain(),
            vec![s(0, &["Current 6.7.0"]), with(5, &["Current 6.7.2"], log(&[(4, "Current 6.7.0", "Current 6.7.2")]))],
            Ends::TimeOver,
            "prod did not try 6.7.1",
        ),
        (
            "read with other rules",
            plain(),
            vec![s(0, &["InProgress 6.7.1 ran 6.7.0"]), s(5, &["InProgress 6.7.1-abc ran 6.7.0 reread"])],
            Ends::TimeOver,
            "",
        ),
        (
            "the object is removed",
            plain(),
            vec![s(0, &["Current 6.7.1", "Current 6.7.0"]), s(5, &["NotFound", "Current 6.7.0"])],
            Ends::TimeOver,
            "prod does not try 6.7.1 any more; it runs 6.7.0; dev runs it; the object of ns-1 does not exist",
        ),
    ]);
}

#[test]
fn unknown_states() {
    let plain = || asked("6.7.1");
    let offline = json!({"status": {"clusters": [{"clusterRef": {"kind": "Secret", "name": "eu-1"}, "reachable": false}]}});
    let ready = |reason: &str| {
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at(0), "reason": reason,
            "message": "twice"}]}})
    };
    let entry = |message: &str| {
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at(0), "reason": "Forbidden",
            "message": message}]}})
    };
    let runs: &[&str] = &["Current 6.7.1"];
    check(vec![
        ("not seen", plain(), vec![s(0, &["Unknown!Current 6.7.1"])], Ends::TimeOver, "ns-1 cannot be observed: no such"),
        ("never seen", plain(), vec![s(0, &["-"])], Ends::TimeOver, "ns-1 is not observed yet"),
        (
            "offline",
            plain(),
            vec![with(0, &["Current 6.7.1 remote"], offline)],
            Ends::TimeOver,
            "cluster eu-1 of eu-1/ns-1 is offline",
        ),
        ("being deleted", plain(), vec![s(0, &["Terminating!Current 6.7.1"])], Ends::TimeOver, "is being deleted"),
        (
            "no status",
            plain(),
            vec![with(0, runs, json!({"status": null}))],
            Ends::TimeOver,
            "has not processed the spec yet",
        ),
        (
            "another spec",
            plain(),
            vec![with(0, runs, json!({"metadata": {"generation": 2}}))],
            Ends::TimeOver,
            "has not processed",
        ),
        (
            "a refused spec",
            plain(),
            vec![with(0, runs, ready("DuplicateTarget"))],
            Ends::TimeOver,
            "not ready: DuplicateTarget: twice",
        ),
        (
            "an entry of the environment selects what may not be read",
            plain(),
            vec![with(0, runs, entry("dev/targetsFrom[0]: no; prod/targetsFrom[0]: no permission"))],
            Ends::TimeOver,
            "not ready: Forbidden: dev/targetsFrom[0]: no; prod/targetsFrom[0]: no permission",
        ),
        (
            "an entry of another environment does",
            plain(),
            vec![with(0, runs, entry("dev/targetsFrom[0]: no permission"))],
            Ends::Runs,
            "",
        ),
        ("a target elsewhere is missing", plain(), vec![with(0, runs, ready("TargetNotFound"))], Ends::Runs, ""),
        (
            "a target more",
            plain(),
            vec![with(0, &["Current 6.7.1", "-"], prod("Current 6.7.1", &json!({})))],
            Ends::TimeOver,
            "not every target of prod is observed yet",
        ),
        ("no such environment", of("qa"), vec![s(0, runs)], Ends::Unanswered, "has no environment qa; it has dev, prod"),
        (
            "an environment without targets",
            plain(),
            vec![with(0, runs, json!({"spec": {"environments": [{"name": "prod"}]}}))],
            Ends::Unanswered,
            "environment prod of Pipeline team-a/web has no target",
        ),
        (
            "the environment is removed",
            plain(),
            vec![
                s(0, &["Current 6.7.0"]),
                with(5, runs, json!({"spec": {"environments": [{"name": "dev", "targets": [{"namespace": "dev"}]}]}})),
            ],
            Ends::Unanswered,
            "has no environment prod; it has dev",
        ),
        (
            "deleted and created again",
            plain(),
            vec![s(0, &["Current 6.7.0"]), with(5, runs, json!({"metadata": {"uid": "v"}}))],
            Ends::Unanswered,
            "Pipeline team-a/web was deleted",
        ),
        (
            "deleted, with a finalizer",
            plain(),
            vec![with(0, runs, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))],
            Ends::Unanswered,
            "was deleted",
        ),
    ]);
}

#[test]
fn since_when_it_runs() {
    let came = |second: i64| log(&[(second, "InProgress 6.7.1 ran 6.7.0", "Current 6.7.1")]);
    let runs: &[&str] = &["Current 6.7.1"];
    check(vec![
        ("the change is not known", since(600), vec![s(0, runs)], Ends::TimeOver, "is not in the log any more"),
        ("in time", since(600), vec![with(0, runs, came(-600))], Ends::Runs, "runs 6.7.1 since 1970-01-12T13:36:40Z"),
        (
            "too early",
            since(600),
            vec![with(0, runs, came(-601))],
            Ends::TimeOver,
            "since 1970-01-12T13:36:39Z, which is too early for --since 10m",
        ),
        (
            "during the wait",
            since(1),
            vec![s(0, &["Current 6.7.0"]), s(900, runs)],
            Ends::Runs,
            "since 1970-01-12T14:01:40Z",
        ),
        (
            "seen for the first time, so nobody knows",
            since(600),
            vec![s(0, &["-"]), s(5, runs)],
            Ends::TimeOver,
            "is not in the log any more",
        ),
        (
            "seen again",
            since(600),
            vec![s(0, &["Unknown!Current 6.7.1"]), s(5, runs)],
            Ends::TimeOver,
            "is not in the log any more",
        ),
        (
            "only drift has changed",
            since(600),
            vec![with(0, runs, log(&[(-5, "Current 6.7.1 drifted", "Current 6.7.1")]))],
            Ends::TimeOver,
            "is not in the log any more",
        ),
    ]);
}

#[test]
fn notifications_that_have_read_the_change() {
    let read = |serial: i64, cursor: i64| {
        let cursors = json!([{"notification": "chat", "serial": cursor}, {"notification": "audit", "serial": serial}]);
        let log = json!({"first": 100, "serial": serial, "changes": []});
        json!({"status": {"log": log, "dispatched": {"cursors": cursors}}})
    };
    let runs: &[&str] = &["Current 6.7.1"];
    check(vec![
        ("none applies", notified(), vec![s(0, runs)], Ends::Runs, ""),
        (
            "one is behind",
            notified(),
            vec![with(0, runs, read(105, 104))],
            Ends::TimeOver,
            "these notifications have not read the change: chat",
        ),
        ("it is not asked", asked("6.7.1"), vec![with(0, runs, read(105, 104))], Ends::Runs, ""),
        ("all have read it", notified(), vec![with(0, runs, read(105, 104)), with(5, runs, read(105, 105))], Ends::Runs, ""),
        (
            "later changes do not matter",
            notified(),
            vec![with(0, runs, read(105, 104)), with(5, runs, read(107, 105))],
            Ends::Runs,
            "",
        ),
        (
            "replaced meanwhile",
            notified(),
            vec![with(0, runs, read(105, 104)), with(5, &["InProgress 6.7.2 ran 6.7.1"], read(106, 106))],
            Ends::Replaced,
            "",
        ),
    ]);
}

#[test]
fn forms_of_revisions() {
    let (flux, other) = (format!("Current main@sha1:{SHA1}"), "Current main@sha1:5f3d2c1fffffffffffffffffffffffffffffffff");
    let oci = format!("Current 6.7.1@sha256:{}", "ab".repeat(32));
    let (flux, oci) = ([flux.as_str()], [oci.as_str()]);
    let (flux, oci) = (&flux[..], &oci[..]);
    check(vec![
        ("a commit", asked("5f3d2c1"), vec![s(0, flux)], Ends::Runs, "runs 5f3d2c1"),
        ("a branch", asked("main"), vec![s(0, flux)], Ends::Usage, "main is a branch or a tag, not a revision"),
        ("too short", asked("5f3d2c"), vec![s(0, flux)], Ends::Usage, "too short"),
        ("a digest", asked("abababa"), vec![s(0, oci)], Ends::Runs, ""),
        ("a tag before a digest", asked("6.7.1"), vec![s(0, oci)], Ends::Usage, "6.7.1 is a branch or a tag"),
        ("an item of a list", asked("1.3"), vec![s(0, &["Current 1.2,1.3"])], Ends::Runs, ""),
        (
            "a branch that appears later",
            asked("main"),
            vec![s(0, &["Current 6.7.0"]), s(5, flux)],
            Ends::Usage,
            "main is a branch",
        ),
        ("two hashes", asked("5f3d2c1"), vec![s(0, flux), s(5, &[other])], Ends::Runs, ""),
        (
            "two hashes, one after the other",
            Asked { since: Some(Duration::from_secs(1)), ..asked("5f3d2c1") },
            vec![s(0, flux), s(5, &[other])],
            Ends::Usage,
            "5f3d2c1 is ambiguous",
        ),
    ]);
}

#[test]
fn the_reason_names_the_promotion_and_what_to_do() {
    let waits =
        json!({"waitingApproval": {"revision": "6.7.1", "promotion": "web-prod-1", "promotionUid": "u", "since": at(0)}});
    let open = json!({"promotion": {"name": "web-prod-1", "revision": "6.7.1", "phase": "Open", "reason": "Opened",
        "location": "https://git.example/pulls/7"}});
    let older = json!({"promotion": {"name": "web-prod-0", "revision": "6.7.0", "phase": "Finished"}});
    let begin = "web/prod  not 6.7.1 after 15m: prod did not try 6.7.1; it runs 6.7.0; dev runs it";
    for (fields, rest) in [
        (waits, "; the promotion waits for an approval: relaybook approve web prod -n team-a"),
        (open, "; promotion web-prod-1 is Open (Opened): https://git.example/pulls/7"),
        (older, ""),
    ] {
        let state = with(0, &["Current 6.7.0"], prod("Current 6.7.0", &fields));
        assert_eq!(ends(asked("6.7.1"), &[state]), (Ends::TimeOver, format!("{begin}{rest}")));
    }
}

#[test]
fn progress_is_shown_in_a_few_words() {
    let mut wait = Wait::new(asked("6.7.1"));
    let mut shown = |second: i64, targets: &[&str]| {
        let answer = wait.step(&pipeline(&s(second, targets)), at(second)).unwrap();
        (wait.line(&answer), wait.again(at(second)).map(|left| left.as_secs()))
    };
    let line = |text: &str| format!("web/prod  {text}");
    assert_eq!(shown(0, &["Current 6.7.0", "Current 6.7.0"]), (line("runs 6.7.0; 6.7.1 is not tried yet"), None));
    let states = ["InProgress 6.7.1 ran 6.7.0", "Current 6.7.0"];
    assert_eq!(shown(1, &states), (line("InProgress 6.7.1 (0/2 targets)"), None));
    let states = ["Failed 6.7.1 ran 6.7.0", "Current 6.7.1"];
    assert_eq!(shown(2, &states), (line("Failed 6.7.1: ns-1: no such\\nimage"), Some(30)));
    assert_eq!(shown(12, &states), (line("Failed 6.7.1: ns-1: no such\\nimage"), Some(20)));
    assert_eq!(shown(32, &states), (line("Failed 6.7.1 after 1s: ns-1: no such\\nimage"), None));
}
