//! Tests that each request of a test says that it is a test, and does not change the truth.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::*;
use crate::config::{Address, Given, Sending, resolve};
use crate::render::{CredentialsKind, Data, Declared, SampleContext, builtin};
use relaybook_api::delivery::Family;
use relaybook_api::notification::Builtin;
use relaybook_api::{Notification, TransitionType};

/// What a text in a body of a test is.
#[derive(Clone, Copy, Debug)]
enum Sign {
    /// Its first line contains this text, and that of the truth does not.
    Line(&'static str),
    /// It begins with this text, and that of the truth does not.
    Begins(&'static str),
    /// It ends with this text, and that of the truth does not.
    Ends(&'static str),
    /// It is this text, which the truth can have, too.
    Is(&'static str),
    /// It is true, and the truth does not have it.
    True,
}

use Sign::{Begins, Ends, Is, Line, True};

const TEST: Sign = Begins("TEST: ");

const MARKS: [(Builtin, &[(&str, Sign)]); 42] = [
    (Builtin::Slack, &[("/text", Line(" TEST: ")), ("/blocks/0/text/text", Line(" TEST: "))]),
    (
        Builtin::Teams,
        &[
            ("/attachments/0/content/fallbackText", Line(" TEST: ")),
            ("/attachments/0/content/body/0/items/0/inlines/0/text", Line(" TEST: ")),
        ],
    ),
    (Builtin::Mattermost, &[("/attachments/0/fallback", Line(" TEST: ")), ("/attachments/0/title", Line(" TEST: "))]),
    (
        Builtin::MattermostBot,
        &[("/props/attachments/0/fallback", Line(" TEST: ")), ("/props/attachments/0/title", Line(" TEST: "))],
    ),
    (Builtin::Discord, &[("/embeds/0/title", Line(" TEST: "))]),
    (Builtin::GoogleChat, &[("/fallbackText", Line(" TEST: ")), ("/cardsV2/0/card/header/title", Line(" TEST: "))]),
    (Builtin::Webex, &[("/text", Line(" TEST: "))]),
    (Builtin::Lark, &[("/content/post/en_us/title", Line(" TEST: "))]),
    (Builtin::Zoom, &[("/content/head/text", Line(" TEST: "))]),
    (Builtin::Rocketchat, &[("/text", Line(" TEST: "))]),
    (Builtin::Telegram, &[("/text", Line(" <b>TEST: "))]),
    (Builtin::Matrix, &[("/body", Line(" TEST: "))]),
    (Builtin::Ntfy, &[("/title", TEST)]),
    (Builtin::GithubIssueComment, &[("/body", Line(" TEST: "))]),
    (Builtin::GithubPullRequestComment, &[("/body", Line(" TEST: "))]),
    (Builtin::GiteaPullRequestComment, &[("/body", Line(" TEST: "))]),
    (Builtin::GitlabMergeRequestComment, &[("/body", Line(" TEST: "))]),
    (Builtin::GithubCommitStatus, &[("/context", Ends("/_test")), ("/state", Is("success")), ("/description", TEST)]),
    (Builtin::GiteaCommitStatus, &[("/context", Ends("/_test")), ("/state", Is("success")), ("/description", TEST)]),
    (Builtin::GitlabCommitStatus, &[("/name", Ends("/_test")), ("/state", Is("success")), ("/description", TEST)]),
    (
        Builtin::BitbucketBuildStatus,
        &[("/key", Ends("/_test")), ("/name", Ends("/_test")), ("/state", Is("SUCCESSFUL")), ("/description", TEST)],
    ),
    (
        Builtin::BitbucketServerBuildStatus,
        &[("/key", Ends("/_test")), ("/name", Ends("/_test")), ("/state", Is("SUCCESSFUL")), ("/description", TEST)],
    ),
    (
        Builtin::AzureDevopsGitStatus,
        &[("/context/name", Ends("/_test")), ("/state", Is("succeeded")), ("/description", TEST)],
    ),
    (Builtin::Pagerduty, &[("/dedup_key", Ends("/test")), ("/payload/severity", Is("info")), ("/payload/summary", TEST)]),
    (Builtin::Opsgenie, &[("/alias", Ends("-test")), ("/priority", Is("P5")), ("/message", TEST), ("/note", TEST)]),
    (
        Builtin::Alertmanager,
        &[("/0/labels/test", Is("true")), ("/0/labels/severity", Is("info")), ("/0/annotations/summary", TEST)],
    ),
    (Builtin::IncidentIo, &[("/deduplication_key", Ends("/test")), ("/title", TEST)]),
    (Builtin::NewRelicEvent, &[("/0/test", Is("true")), ("/0/severity", Is("info")), ("/0/title", TEST)]),
    (Builtin::FluxEvent, &[("/metadata/test", Is("true")), ("/severity", Is("info")), ("/message", TEST)]),
    (Builtin::GithubDeployment, &[("/environment", Is("relaybook-test")), ("/task", Ends(":test")), ("/description", TEST)]),
    (
        Builtin::GithubCheckRun,
        &[("/name", Ends("/_test")), ("/conclusion", Is("success")), ("/external_id", Is("test")), ("/output/title", TEST)],
    ),
    (Builtin::GitlabDeployment, &[("/environment", Is("relaybook-test")), ("/status", Is("success"))]),
    (Builtin::Zulip, &[("/content", Line(" TEST: "))]),
    (Builtin::Pushover, &[("/title", TEST)]),
    (Builtin::GrafanaAnnotation, &[("/tags/0", Is("test")), ("/text", TEST)]),
    (
        Builtin::DatadogEvent,
        &[
            ("/tags/0", Is("test")),
            ("/title", TEST),
            ("/text", TEST),
            ("/alert_type", Is("info")),
            ("/aggregation_key", Ends("/test")),
        ],
    ),
    (Builtin::Cloudevents, &[("/type", Ends(".test")), ("/data/test", True)]),
    (
        Builtin::Cdevents,
        &[("/type", Ends(".test")), ("/data/context/type", Ends(".test")), ("/data/customData/relaybook/test", True)],
    ),
    (Builtin::Generic, &[("/test", True)]),
    (Builtin::GithubRepositoryDispatch, &[("/event_type", Is("relaybook-test"))]),
    (Builtin::GitlabPipelineTrigger, &[("/variables/RELAYBOOK_TEST", Is("true"))]),
    (Builtin::SentryReleaseDeploy, &[("/environment", Is("relaybook-test")), ("/name", TEST)]),
];

/// The bodies of these have other fields for transitions that begin no alert.
const ALERTS: [Builtin; 4] = [Builtin::Pagerduty, Builtin::Opsgenie, Builtin::Alertmanager, Builtin::IncidentIo];

impl Sign {
    fn is_in(self, value: &Value) -> bool {
        let text = value.as_str().unwrap_or_default();
        match self {
            Line(part) => text.lines().next().is_some_and(|line| line.contains(part)),
            Begins(start) => text.starts_with(start),
            Ends(end) => text.ends_with(end),
            Is(whole) => text == whole,
            True => *value == Value::Bool(true),
        }
    }
}

fn sending(spec: &Value) -> Sending {
    let notification: Notification = serde_json::from_value(json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification",
        "metadata": {"name": "deploys", "namespace": "team-a"}, "spec": spec,
    }))
    .unwrap();
    let given = Given { allow_http: true, ..Given::nothing() };
    resolve(&notification, &given).sending.unwrap_or_else(|problem| panic!("{spec}: {problem}"))
}

/// Returns the spec of the example of a template. `value` returns the value of a parameter that users need not set.
fn spec(name: Builtin, value: impl Fn(&Declared) -> Option<String>) -> Value {
    let metadata = &builtin(name).metadata;
    let endpoint = match metadata.credentials.kind {
        CredentialsKind::Url => json!({"urlFrom": {"secretKeyRef": {"name": "receiver", "key": "url"}}}),
        _ => json!({"url": metadata.example.url}),
    };
    let is_free = |p: &Declared| !p.is_required() && p.values.is_empty();
    let value = |p: &Declared| if is_free(p) { value(p) } else { p.example.clone() };
    let parameters = metadata.parameters.iter().filter_map(|p| Some((p.name.clone(), Value::from(value(p)?))));
    let parameters: Map<String, Value> = parameters.collect();
    json!({"triggers": [], "endpoint": endpoint, "template": {"builtin": name.as_str(), "parameters": parameters}})
}

fn example(name: Builtin) -> Sending {
    sending(&spec(name, |_| None))
}

/// Renders the path and the body of a request.
fn rendered(sending: &Sending, type_: TransitionType, test: bool) -> (String, Value) {
    let rendered = sending.render(&Data { test, ..Data::sample(type_) }).unwrap();
    let path = match rendered.address {
        Address::Url(url) => url.path().to_owned(),
        Address::Secret(_) => String::new(),
    };
    (path, serde_json::from_str(&rendered.body).unwrap_or_else(|_| form(&rendered.body)))
}

/// Reads a body that is a form.
fn form(body: &str) -> Value {
    url::form_urlencoded::parse(body.as_bytes()).map(|(name, value)| (name.into_owned(), Value::from(value))).collect()
}

fn body(sending: &Sending, type_: TransitionType, test: bool) -> Value {
    rendered(sending, type_, test).1
}

/// The types that a template reports, and that a test can be about.
fn types(name: Builtin) -> impl Iterator<Item = TransitionType> {
    let is_tested =
        move |type_: &TransitionType| builtin(name).metadata.reports(*type_) && type_.family() != Family::Promotion;
    TransitionType::ALL.into_iter().filter(is_tested)
}

#[test]
fn each_request_of_a_test_has_the_mark_of_its_template() {
    assert_eq!(MARKS.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>().len(), Builtin::ALL.len());
    let long = "x".repeat(600);
    for (name, signs) in MARKS {
        let plain = example(name);
        // A mark does not depend on what users can set.
        let empty = sending(&spec(name, |_| Some(String::new())));
        let name_of_field = |p: &Declared| if p.name == "fields" { "x: " } else { "" };
        let filled = sending(&spec(name, |p| Some(format!("{}{long}", name_of_field(p)))));
        for type_ in types(name) {
            for (sending, set) in [(&plain, "nothing"), (&empty, "nothing but empty texts"), (&filled, "long texts")] {
                let shown = format!("{name:?} {type_:?}, {set} set");
                let (test, truth) = (body(sending, type_, true), body(sending, type_, false));
                assert!(test != truth || test == json!([]), "{shown}: {test}");
                for (pointer, sign) in signs {
                    let Some(found) = test.pointer(pointer) else {
                        assert!(ALERTS.contains(&name), "{shown}: there is no {pointer} in {test}");
                        continue;
                    };
                    assert!(sign.is_in(found), "{shown}: {pointer} is {found}, not {sign:?}");
                    let is_true = truth.pointer(pointer).is_some_and(|found| sign.is_in(found));
                    assert!(!is_true || matches!(sign, Is(_)), "{shown}: the truth has {sign:?} in {pointer}");
                }
                for limit in &builtin(name).metadata.limits {
                    let length = test.pointer(&limit.field).and_then(Value::as_str).map_or(0, |sent| sent.chars().count());
                    let is_within = limit.characters.is_none_or(|most| length <= most);
                    assert!(is_within, "{shown}: {} has {length} characters", limit.field);
                }
            }
        }
    }
}

/// The commit statuses: the parameter with the name, where the body has it, and its maximum length. In Bitbucket the key must be unique.
const STATUSES: [(Builtin, &str, &str, usize); 9] = [
    (Builtin::GithubCommitStatus, "context", "/context", 255),
    (Builtin::GiteaCommitStatus, "context", "/context", 255),
    (Builtin::GitlabCommitStatus, "name", "/name", 255),
    (Builtin::BitbucketBuildStatus, "name", "/key", 40),
    (Builtin::BitbucketBuildStatus, "name", "/name", 255),
    (Builtin::BitbucketServerBuildStatus, "name", "/key", 40),
    (Builtin::BitbucketServerBuildStatus, "name", "/name", 255),
    (Builtin::AzureDevopsGitStatus, "name", "/context/name", 255),
    (Builtin::GithubCheckRun, "name", "/name", 255),
];

/// Returns the name of the status of a request.
fn status(sending: &Sending, pointer: &str, data: Data, test: bool) -> String {
    let rendered = sending.render(&Data { test, ..data }).unwrap();
    let body: Value = serde_json::from_str(&rendered.body).unwrap();
    body.pointer(pointer).and_then(Value::as_str).unwrap().to_owned()
}

#[test]
fn a_status_of_a_test_never_has_the_name_of_a_real_one() {
    for (name, parameter, pointer, most) in STATUSES {
        let (mut tests, mut real) = (BTreeSet::new(), BTreeSet::new());
        for length in [1, 5, 200, 243, 244, 248, 249, 250, 254, 255, 256, 260, 600] {
            let context = "n".repeat(length);
            let sending = sending(&spec(name, |p| (p.name == parameter).then(|| context.clone())));
            let of = |is_test| status(&sending, pointer, Data::sample(TransitionType::Failed), is_test);
            tests.insert(of(true));
            real.insert(of(false));
        }
        assert!(tests.is_disjoint(&real), "{name:?}: {tests:?}");
        assert_eq!((tests.len(), real.len()), (13, 13), "{name:?}: different names stay different");
        assert!(tests.iter().all(|sent| sent.chars().count() <= most && sent.ends_with("/_test")), "{name:?}: {tests:?}");
    }
}

/// Returns a sample whose environment, namespace and application have this name.
fn named(name: &str) -> SampleContext {
    let mut sample = SampleContext::sample(("deploys".to_owned(), "team-a".to_owned()));
    name.clone_into(&mut sample.subject.environment);
    if let Some(target) = &mut sample.subject.target {
        name.clone_into(&mut target.namespace);
        name.clone_into(&mut target.app.name);
    }
    sample
}

/// An environment can have the name `test`, and another notification can append the name of the environment.
#[test]
fn a_status_of_a_test_never_has_the_name_of_a_subject_named_test() {
    let samples = ["test", "prod"].map(named);
    for (name, parameter, pointer, _) in STATUSES {
        let metadata = &builtin(name).metadata;
        let types: Vec<_> = TransitionType::ALL.into_iter().filter(|type_| metadata.reports(*type_)).collect();
        let all: Vec<Data> =
            samples.iter().flat_map(|sample| types.iter().map(move |type_| sample.transition(*type_))).collect();
        let (mut tests, mut real) = (BTreeSet::new(), BTreeSet::new());
        for context in [None, Some("deploy"), Some("deploy/{{environment}}"), Some("{{environment}}")] {
            let sending = sending(&spec(name, |p| context.filter(|_| p.name == parameter).map(str::to_owned)));
            tests.extend(all.iter().map(|data| status(&sending, pointer, data.clone(), true)));
            real.extend(all.iter().map(|data| status(&sending, pointer, data.clone(), false)));
        }
        // By default 2 targets, 2 environments, their promotions and the pipeline. Then 1, 3 and 3: a pipeline has no environment.
        assert_eq!((tests.len(), real.len()), (14, 14), "{name:?}: {tests:?} {real:?}");
        assert!(tests.is_disjoint(&real), "{name:?}: {tests:?} {real:?}");
    }
}

/// Returns what identifies the alert of a request. The key of Opsgenie is in the path of the request that closes an alert.
fn key(name: Builtin, (path, body): &(String, Value)) -> String {
    let found = match name {
        Builtin::Pagerduty => body.get("dedup_key").cloned(),
        Builtin::IncidentIo => body.get("deduplication_key").cloned(),
        Builtin::Opsgenie => {
            let in_path = || path.strip_prefix("/v2/alerts/")?.split('/').next().map(Value::from);
            body.get("alias").cloned().or_else(in_path)
        }
        _ => body.pointer("/0/labels").cloned(),
    };
    found.unwrap_or_else(|| panic!("{name:?} has no key: {path} {body}")).to_string()
}

#[test]
fn a_test_opens_an_alert_of_its_own_and_closes_it() {
    use TransitionType::{ClusterOffline, ClusterOnline, Deployed, DriftCorrected, Drifted, Failed, Recovered, Removed};
    for name in ALERTS {
        assert!(matches!(builtin(name).metadata.test, TestMark::Mark { resolves: true, .. }), "{name:?}");
        let sending = example(name);
        let of = |type_, test| key(name, &rendered(&sending, type_, test));
        let real = [Failed, Deployed, Recovered, Removed, Drifted, DriftCorrected, ClusterOffline, ClusterOnline];
        let real: BTreeSet<_> = real.into_iter().map(|type_| of(type_, false)).collect();
        let mut tests = BTreeSet::new();
        for (begins, ends) in [(Failed, Recovered), (Drifted, DriftCorrected), (ClusterOffline, ClusterOnline)] {
            assert_eq!(of(begins, true), of(ends, true), "{name:?} {begins:?}");
            tests.insert(of(begins, true));
        }
        assert_eq!(tests.len(), 3, "{name:?}: {tests:?}");
        assert!(tests.is_disjoint(&real), "{name:?}: {tests:?} {real:?}");
    }
    let (alertmanager, pagerduty, opsgenie) =
        (example(Builtin::Alertmanager), example(Builtin::Pagerduty), example(Builtin::Opsgenie));
    let ends = |type_, test| body(&alertmanager, type_, test)[0]["endsAt"].clone();
    // Without an end time Alertmanager resolves the alert after 5 minutes, even if the second request is lost.
    assert_eq!((ends(Failed, false), ends(Failed, true)), (json!("2099-12-31T23:59:59Z"), Value::Null));
    assert_eq!(ends(Recovered, true), ends(Recovered, false));
    let actions = [Failed, Recovered].map(|type_| body(&pagerduty, type_, true)["event_action"].clone());
    assert_eq!(actions, [json!("trigger"), json!("resolve")]);
    let (path, _) = rendered(&opsgenie, Recovered, true);
    assert!(path.ends_with("-test/close"), "{path}");
}

#[test]
fn a_built_in_template_is_marked_as_its_metadata_say() {
    for name in Builtin::ALL {
        let expected = match builtin(name).metadata.test.clone() {
            TestMark::Mark { how, resolves } => Marking::Marked { how, resolves },
            TestMark::Acts(what) => Marking::Acts { what },
        };
        assert_eq!(example(name).marking, expected, "{name:?}");
        assert_eq!(matches!(&expected, Marking::Marked { resolves: true, .. }), ALERTS.contains(&name), "{name:?}");
    }
    // A URL of the user replaces the path that has the mark.
    let mut own = spec(Builtin::Opsgenie, |_| None);
    let whole = "https://api.opsgenie.com/v2/alerts/{{sha256 parameters.key}}/close?identifierType=alias";
    own["endpoint"] = json!({"url": whole});
    assert_eq!(sending(&own).marking, Marking::Unmarked);
    own["endpoint"] = json!({"urlFrom": {"secretKeyRef": {"name": "receiver", "key": "url"}}});
    assert_eq!(sending(&own).marking, Marking::Unmarked);
    own["endpoint"] = json!({"url": "https://api.opsgenie.com/v2/alerts"});
    assert!(matches!(sending(&own).marking, Marking::Marked { .. }));
}

#[test]
fn a_template_of_a_user_is_marked_if_url_or_body_uses_the_field() {
    let url = "https://in.example.com/a";
    let own = |url: &str, header: &str, body: &str, parameter: &str| {
        let sending = sending(&json!({
            "endpoint": {"url": url, "headers": {"X-A": header}},
            "template": {"inline": {"body": body, "contentType": "text/plain"}, "parameters": {"mark": parameter}},
        }));
        match sending.marking {
            Marking::Marked { how, resolves: false } => {
                assert_eq!(how, "its template uses the field test");
                true
            }
            Marking::Unmarked => false,
            other => panic!("{other:?}"),
        }
    };
    let in_url = format!("{url}?t={{{{test}}}}");
    assert!(own(url, "a", "{{#if test}}TEST {{/if}}a", "a"));
    assert!(own(&in_url, "a", "a", "a"));
    assert!(own(url, "a", "{{parameters.mark}}", "{{#if test}}TEST {{/if}}a"));
    assert!(!own(url, "a", "a", "{{#if test}}TEST {{/if}}a"), "nothing uses the parameter");
    assert!(!own(url, "a", "TEST {{parameters.mark}}", "test"));
    assert!(!own(url, "{{test}}", "a", "a"), "a header alone is not visible");
    assert!(!own(url, "a", "{{json @root}}", "a"), "the receiver need not read the field");
}
