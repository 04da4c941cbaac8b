//! Recorded states, and what is wrong in each of them. `relaybook status` and the audit page show the same findings, in the same words.

mod notifications;
mod pipelines;

use serde_json::{Value, json};

use super::screen::{Screen, write_table};
use relaybook_api::pipeline_set::PipelineSet;
use relaybook_api::{Delivery, Notification, Pipeline, Time};
use relaybook_tools::audit::Row;
use relaybook_tools::diagnosis::{Finding, Installation, Known, Level, diagnose};

/// When the state is read: 12 minutes after the conditions changed, and 28 minutes after the objects were created.
const NOW: i64 = 1_720;

/// A state of a namespace.
#[derive(Default)]
struct State {
    installation: Installation,
    pipelines: Vec<Pipeline>,
    sets: Vec<PipelineSet>,
    notifications: Vec<Notification>,
    pending: Vec<Row>,
}

/// A name, a state, and its findings: `LEVEL NAME REASON: MESSAGE | REMEDY`. Message and remedy are only the first words.
type Case = (&'static str, State, &'static [&'static str]);

fn at(second: i64) -> Time {
    Time::from_second(second).unwrap()
}

fn object(kind: &str, name: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": at(0)}, "spec": spec, "status": status,
    })
}

/// Returns a condition from words: `TYPE STATUS REASON: MESSAGE`.
fn condition(text: &str) -> Value {
    let (head, message) = text.split_once(": ").unwrap();
    let [type_, status, reason] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(1_000)})
}

fn conditions(all: &[&str]) -> Value {
    json!({"conditions": all.iter().map(|text| condition(text)).collect::<Vec<_>>()})
}

/// Returns a state in which the installation is not well.
fn installed(edit: impl FnOnce(&mut Installation)) -> State {
    let mut state = State::default();
    state.installation.namespace = "relaybook-system".to_owned();
    edit(&mut state.installation);
    state
}

/// Returns a state with a Notification that has these conditions.
fn notified(all: &[&str]) -> State {
    State::default().notification("chat", &conditions(all))
}

/// Returns a state with a Notification with this number of waiting messages.
fn waiting(pending: i64, text: &str) -> State {
    State::default().notification("chat", &json!({"pending": pending, "conditions": [condition(text)]}))
}

/// Returns a state with a Pipeline that has this status.
fn piped(status: &Value) -> State {
    State::default().pipeline("web", status)
}

/// Returns a state with a Pipeline in which nothing can be sent about a part.
fn unsent(part: &Value, reason: &str) -> State {
    let mut one = json!({"name": "chat", "ready": false, "reason": reason, "message": "because"});
    json_patch::merge(&mut one, part);
    piped(&json!({"dispatched": {"notifications": [one]}}))
}

/// Returns a state with a Pipeline with this status of the environment `prod`.
fn prod(status: &Value) -> State {
    let mut prod = json!({"name": "prod"});
    json_patch::merge(&mut prod, status);
    piped(&json!({"environments": [prod]}))
}

/// Returns a state in which a promotion is in this phase.
fn promotion(phase: &str) -> State {
    prod(&json!({"promotion": {"name": "web-prod-2", "revision": "2", "phase": phase, "reason": "Because"}}))
}

fn offline() -> Value {
    json!({"clusters": [{"clusterRef": {"kind": "Secret", "name": "eu"}, "reachable": false}]})
}

impl State {
    fn notification(mut self, name: &str, status: &Value) -> Self {
        self.notifications.push(serde_json::from_value(object("Notification", name, &json!({}), status)).unwrap());
        self
    }

    fn pipeline(mut self, name: &str, status: &Value) -> Self {
        let environment = |name: &str| json!({"name": name, "targets": [{"namespace": name}]});
        let environments = [environment("dev"), environment("prod")];
        let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let spec = json!({"appRef": app, "environments": environments});
        self.pipelines.push(serde_json::from_value(object("Pipeline", name, &spec, status)).unwrap());
        self
    }

    fn set(mut self, status: &Value) -> Self {
        let spec = json!({"generators": [], "template": {"metadata": {"name": "web"}, "spec": {}}});
        self.sets.push(serde_json::from_value(object("PipelineSet", "apps", &spec, status)).unwrap());
        self
    }

    /// Adds a pending delivery of a notification. An empty reason: it has not been tried yet.
    fn delivery(mut self, notification: &str, recorded: i64, reason: &str) -> Self {
        let row = Row::from(Delivery::new("d", relaybook_api::testing::spec(1)));
        self.pending.push(Row {
            namespace: "team-a".to_owned(),
            notification: notification.to_owned(),
            recorded: Some(at(recorded)),
            reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
            ..row
        });
        self
    }

    /// Changes the creation time of all objects.
    fn created(mut self, second: i64) -> Self {
        let metadata = self.notifications.iter_mut().map(|one| &mut one.metadata);
        let metadata = metadata.chain(self.pipelines.iter_mut().map(|one| &mut one.metadata));
        for metadata in metadata.chain(self.sets.iter_mut().map(|one| &mut one.metadata)) {
            metadata.creation_timestamp.as_mut().unwrap().0 = at(second);
        }
        self
    }

    fn findings(&self) -> Vec<Finding> {
        let State { installation, pipelines, sets, notifications, pending } = self;
        let installations = std::slice::from_ref(installation);
        diagnose(&Known { installations, pipelines, sets, notifications, pending }, at(NOW))
    }
}

fn of_the_installation() -> Vec<Case> {
    vec![
        ("nothing is there", State::default(), &[]),
        (
            "no controller watches the namespace",
            installed(|one| one.unwatched = Some("no known controller watches namespace team-a".to_owned())),
            &["Problem controllers NotWatched: no known controller watches | install Relaybook for this namespace"],
        ),
        (
            "no controller acts",
            installed(|one| one.idle = vec!["No controller acts: Lease relaybook-dispatch has no holder.".to_owned()]),
            &["Problem controllers NotActing: No controller acts | see the replicas, and then their logs"],
        ),
        (
            "two shards do not act",
            installed(|one| one.idle = ["Shard a does not act", "Shard b does not act"].map(str::to_owned).to_vec()),
            &[
                "Problem controllers NotActing: Shard a does | see the replicas",
                "Problem controllers NotActing: Shard b does | see the replicas",
            ],
        ),
        (
            "the CRDs are older",
            installed(|one| one.crds = Some("the installed CRDs are not those of version 2".to_owned())),
            &["Problem CRDs CrdsDiffer: Controllers of this version do not run: the | `relaybook crds | kubectl"],
        ),
        (
            "the global configuration is invalid",
            installed(|one| one.global = Some(("own/c".to_owned(), "line 3".to_owned()))),
            &["Problem global configuration GlobalConfigInvalid: The global | correct it: `kubectl edit configmap -n own"],
        ),
        (
            "the versions differ",
            installed(|one| one.versions = Some(("0.2.0".to_owned(), "0.1.0".to_owned()))),
            &["Warning versions VersionsDiffer: this program has version 0.2.0, and the controller | use the program of"],
        ),
        ("the versions are equal", installed(|one| one.versions = Some(("1.0.0".to_owned(), "1.0.0".to_owned()))), &[]),
        (
            "Notifications repeat what is wrong with the global configuration",
            State {
                installation: installed(|one| one.global = Some(("own/c".to_owned(), "line 3".to_owned()))).installation,
                ..notified(&["GlobalConfigValid False GlobalConfigInvalid: line 3"])
            },
            &["Problem global configuration GlobalConfigInvalid: The global | correct it"],
        ),
    ]
}

fn cases() -> Vec<Case> {
    let all = [
        of_the_installation(),
        notifications::of_notifications(),
        notifications::of_messages(),
        notifications::of_notifications_without_an_object(),
        pipelines::of_pipelines(),
        pipelines::of_parts_of_pipelines(),
        pipelines::of_promotions_and_sets(),
    ];
    all.into_iter().flatten().collect()
}

/// Whether a finding is the expected one.
fn is(finding: &Finding, expected: &str) -> bool {
    let (head, rest) = expected.split_once(": ").unwrap();
    let (message, remedy) = rest.split_once(" | ").unwrap();
    head == format!("{:?} {} {}", finding.level, finding.name, finding.reason)
        && finding.message.starts_with(message)
        && finding.remedy.starts_with(remedy)
}

#[test]
fn each_state_has_its_findings_with_their_remedies() {
    let cases = cases();
    assert!(cases.len() >= 40, "{} states", cases.len());
    for (name, state, expected) in cases {
        let findings = state.findings();
        let is_expected = findings.len() == expected.len() && findings.iter().zip(expected).all(|(one, text)| is(one, text));
        assert!(is_expected, "{name}: {findings:#?}");
    }
}

/// Returns level, message and remedy of each finding, as `relaybook status` shows them.
fn of_status(findings: &[Finding]) -> Vec<(Level, String, String)> {
    let screen = Screen {
        place: "team-a".to_owned(),
        all_namespaces: false,
        pipelines: 0,
        notifications: 0,
        findings: findings.to_vec(),
        environments: Vec::new(),
        targets: Vec::new(),
        not_shown: Vec::new(),
    };
    let mut out = Vec::new();
    write_table(&mut out, &screen, None, at(NOW)).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    let shown = lines.chunks(2).zip(findings).map(|(pair, finding)| {
        let (level, rest) = pair[0].split_once("  ").unwrap();
        let level = if level == "PROBLEM" { Level::Problem } else { Level::Warning };
        let message = rest.strip_prefix(&format!("{}: ", finding.name)).unwrap();
        (level, message.to_owned(), pair[1].strip_prefix("  do     ").unwrap().replace('`', ""))
    });
    shown.collect()
}

/// Returns message and remedy of each finding, as the page shows them.
fn of_page(findings: &[Finding]) -> Vec<(String, String)> {
    let html = relaybook_page::banners(findings).into_string();
    let text = |html: &str| {
        let plain = html.replace("<code>", "").replace("</code>", "");
        plain.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    };
    let banners = html.split("<div class=\"banner\" role=\"alert\"><p>").skip(1);
    let shown = banners.map(|banner| {
        let (message, rest) = banner.split_once("</p><p>").unwrap();
        (text(message), text(rest.strip_suffix("</p></div>").unwrap()))
    });
    shown.collect()
}

#[test]
fn the_screen_and_the_page_show_the_same_findings_in_the_same_words() {
    for (name, state, _) in cases() {
        let findings = state.findings();
        let words = |one: &Finding| (one.level, one.message.clone(), one.remedy.replace('`', ""));
        let expected: Vec<_> = findings.iter().map(words).collect();
        let (screen, page) = (of_status(&findings), of_page(&findings));
        assert_eq!(screen, expected, "{name}");
        assert_eq!(page, screen.into_iter().map(|(_, message, remedy)| (message, remedy)).collect::<Vec<_>>(), "{name}");
    }
}
