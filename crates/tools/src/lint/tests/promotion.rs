//! Tests the rules about promotions: the policy of a Pipeline, and what can be created and edited of a Promotion.

use serde_json::{Value, json};

use super::*;
use relaybook_api::PromotionSpec;
use relaybook_core::promotion::names;

/// Returns the spec of a Promotion with these changes. `null` removes a field.
fn spec(changes: &Value) -> Value {
    let mut spec = json!({
        "pipelineRef": {"name": "web", "uid": "u"}, "environment": "prod", "from": "staging", "revision": "2", "previous": "1",
        "occasion": 7,
    });
    json_patch::merge(&mut spec, changes);
    spec
}

/// Returns a Promotion with the name that its spec determines.
fn object(spec: &Value) -> Value {
    let typed: PromotionSpec = serde_json::from_value(spec.clone()).unwrap();
    json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Promotion", "metadata": {"name": names::name(&typed)}, "spec": spec,
    })
}

#[test]
fn only_the_approval_can_be_edited_and_not_taken_back() {
    const EDITED: &str = "only spec.approved of a promotion can be edited; ";
    const TAKEN_BACK: &str = "an approval cannot be taken back; ";
    let (new, approved) = (spec(&json!({})), spec(&json!({"approved": true})));
    let asked = spec(&json!({"request": 1}));
    for (what, old, edited, expected) in [
        ("nothing", &new, new.clone(), &[][..]),
        ("approve", &new, approved.clone(), &[]),
        ("refuse explicitly", &new, spec(&json!({"approved": false})), &[]),
        ("nothing, when it is approved", &approved, approved.clone(), &[]),
        ("approve a request of a person", &asked, spec(&json!({"request": 1, "approved": true})), &[]),
        ("take the approval back", &approved, spec(&json!({"approved": false})), &[TAKEN_BACK]),
        ("remove the approval", &approved, new.clone(), &[TAKEN_BACK]),
        ("another revision", &new, spec(&json!({"revision": "3"})), &[EDITED]),
        ("approve another revision", &new, spec(&json!({"revision": "3", "approved": true})), &[EDITED]),
        ("another environment", &new, spec(&json!({"environment": "test"})), &[EDITED]),
        ("another environment before it", &new, spec(&json!({"from": "dev"})), &[EDITED]),
        ("another pipeline", &new, spec(&json!({"pipelineRef": {"uid": "v"}})), &[EDITED]),
        ("another occasion", &new, spec(&json!({"occasion": 8})), &[EDITED]),
        ("a request", &new, asked.clone(), &[EDITED]),
        ("no request", &asked, new.clone(), &[EDITED]),
        ("another previous revision", &new, spec(&json!({"previous": "0"})), &[EDITED]),
        ("no previous revision", &new, spec(&json!({"previous": null})), &[EDITED]),
        ("an empty previous revision", &spec(&json!({"previous": null})), spec(&json!({"previous": ""})), &[EDITED]),
        ("another revision of an approved one", &approved, spec(&json!({"revision": "3"})), &[EDITED, TAKEN_BACK]),
    ] {
        let mut messages = Vec::new();
        visit(&schema("Promotion").unwrap(), &json!({"spec": edited}), "", &mut |field, rule, value| {
            assert_eq!(field, "spec", "{rule}");
            match verdict(rule, value, Some(old)) {
                Verdict::Holds => {}
                Verdict::Broken(message) => messages.push(message),
                Verdict::Unclear(why) => panic!("{what}: {rule}: {why}"),
            }
        });
        let is_expected = messages.iter().zip(expected).all(|(said, expected)| said.starts_with(expected));
        assert!(messages.len() == expected.len() && is_expected, "{what}: {messages:?}");
    }
}

#[test]
fn a_promotion_in_a_file_is_checked_as_a_create() {
    let mut misnamed = object(&spec(&json!({})));
    misnamed["metadata"]["name"] = json!("web-prod");
    for (what, object, expected) in [
        ("a promotion", object(&spec(&json!({}))), None),
        ("a promotion that a person requests", object(&spec(&json!({"request": 2}))), None),
        ("not approved", object(&spec(&json!({"approved": false}))), None),
        (
            "approved",
            object(&spec(&json!({"approved": true}))),
            Some("spec: a promotion cannot be approved when it is created; "),
        ),
        ("a request of 0", object(&spec(&json!({"request": 0}))), Some("spec.request: ")),
        ("another name", misnamed, Some("metadata.name: must be web-prod-")),
    ] {
        let found = lines(&object.to_string());
        assert_eq!(found.len(), usize::from(expected.is_some()), "{what}: {found:?}");
        assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{what}: {found:?}");
    }
    let unknown = lines("{apiVersion: relaybook.dev/v1alpha1, kind: Promotoin, metadata: {name: a}}");
    assert!(unknown.len() == 1 && unknown[0].ends_with("unknown kind; did you mean Promotion?"), "{unknown:?}");
}

#[test]
fn a_promotion_policy_is_checked_in_pipeline_and_environment() {
    let notification = || json!({"strategy": {"notification": {}}});
    let with = |changes: Value| {
        let mut policy = notification();
        json_patch::merge(&mut policy, &changes);
        policy
    };
    for (what, policy, expected) in [
        ("the least policy", notification(), None),
        ("nothing is promoted", json!({}), None),
        (
            "everything",
            with(json!({
                "manual": true, "after": "30m", "suspend": true, "timeout": "1m", "retain": {"perEnvironment": 1, "maxAge": "1m"},
            })),
            None,
        ),
        ("the longest times", with(json!({"after": "168h", "timeout": "168h", "retain": {"maxAge": "87600h"}})), None),
        ("no strategy of a known name", json!({"strategy": {}}), Some("set exactly one strategy: notification")),
        ("an unknown strategy", json!({"strategy": {"notification": {}, "merge": {}}}), Some("unknown field")),
        (
            "two strategies",
            json!({"strategy": {"notification": {}, "commit": {"url": "https://git.example.com/deploy"}}}),
            Some("set exactly one strategy"),
        ),
        ("after in words", with(json!({"after": "soon"})), Some("after and timeout are durations such as 30m or 24h")),
        ("after that is too long", with(json!({"after": "169h"})), Some("after must be at most 168h")),
        ("timeout that is too short", with(json!({"timeout": "59s"})), Some("timeout must be at least 1m and at most 168h")),
        ("timeout that is too long", with(json!({"timeout": "200h"})), Some("timeout must be at least 1m and at most 168h")),
        ("maxAge in words", with(json!({"retain": {"maxAge": "a year"}})), Some("maxAge is a duration such as 720h")),
        ("maxAge that is too short", with(json!({"retain": {"maxAge": "1s"}})), Some("maxAge must be at least 1m")),
        ("nothing is kept", with(json!({"retain": {"perEnvironment": 0}})), Some("perEnvironment")),
    ] {
        for place in ["", "/environments/1"] {
            let mut pipeline = full().remove(0);
            pipeline["spec"].as_object_mut().unwrap().remove("promotion");
            pipeline.pointer_mut(&format!("/spec{place}")).unwrap()["promotion"] = policy.clone();
            let found = lines(&pipeline.to_string());
            assert_eq!(found.len(), usize::from(expected.is_some()), "{what} at {place:?}: {found:?}");
            assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{what} at {place:?}: {found:?}");
        }
    }
    let mut first = full().remove(0);
    first["spec"]["environments"][0]["promotion"] = json!({});
    let found = lines(&first.to_string());
    assert!(found.len() == 1 && found[0].contains("the first environment cannot have promotion"), "{found:?}");
}

/// Returns the findings about a pipeline with this strategy, at each of the two places.
fn of_strategy(strategy: &Value) -> Vec<Vec<String>> {
    let found = ["", "/environments/1"].map(|place| {
        let mut pipeline = full().remove(0);
        pipeline["spec"].as_object_mut().unwrap().remove("promotion");
        pipeline.pointer_mut(&format!("/spec{place}")).unwrap()["promotion"] = json!({"strategy": strategy});
        lines(&pipeline.to_string())
    });
    found.into()
}

#[test]
fn a_repository_is_checked_by_the_rules_of_an_attempt() {
    let request = |changes: Value| {
        let mut of = json!({"type": "gitea", "url": "https://git.example.com/acme/deploy.git"});
        json_patch::merge(&mut of, &changes);
        json!({"pullRequest": of})
    };
    let commit = |changes: Value| {
        let mut of = json!({"url": "https://git.example.com/acme/deploy.git"});
        json_patch::merge(&mut of, &changes);
        json!({"commit": of})
    };
    let secret = json!({"name": "bot"});
    let author = json!({"name": "Relaybook", "email": "relaybook@example.com"});
    let everything = json!({
        "apiUrl": "https://git.example.com/api/v1", "baseBranch": "release/1.x", "paths": ["apps/prod"], "secretRef": secret,
        "tls": {"caFrom": {"secretKeyRef": {"name": "ca", "key": "ca.crt"}}}, "title": "{{promotion.revision}}",
        "body": "from {{promotion.from}}", "labels": ["promotion"], "author": author, "interval": "10s",
    });
    for (what, strategy, expected) in [
        ("the least pull request", request(json!({})), None),
        ("every field", request(everything), None),
        ("the least commit", commit(json!({})), None),
        ("http in the cluster", commit(json!({"url": "http://gitea.git.svc:3000/acme/deploy"})), None),
        ("no URL", request(json!({"url": null})), Some("pullRequest.url: is missing")),
        ("an unknown forge", request(json!({"type": "codeberg"})), Some("pullRequest.type: ")),
        (
            "a URL that is no repository",
            request(json!({"url": "https://git.example.com/deploy"})),
            Some("pullRequest.url: "),
        ),
        ("SSH", commit(json!({"url": "ssh://git@git.example.com/acme/deploy"})), Some("commit.url: ")),
        ("http", commit(json!({"url": "http://git.example.com/acme/deploy"})), Some("commit.url: http is not allowed")),
        ("a path upwards", request(json!({"paths": ["../etc"]})), Some("pullRequest.paths: ")),
        ("no branch", commit(json!({"branch": "a b"})), Some("commit.branch: it is not the name of a branch")),
        (
            "an unknown field of a template",
            request(json!({"title": "{{promotion.tag}}"})),
            Some("pullRequest.title: line 1"),
        ),
        ("a template that is not closed", request(json!({"body": "{{#if revision}}"})), Some("pullRequest.body: ")),
        (
            "an interval that is too short",
            request(json!({"interval": "1s"})),
            Some("pullRequest: interval must be at least 10s"),
        ),
        ("an author with a line", commit(json!({"author": {"name": "a\nb", "email": "a@b"}})), Some("commit.author.name: ")),
        (
            "the Secret of approvals",
            json!({"commit": {"url": "https://git.example.com/a/b", "secretRef": secret}, "secretRef": secret}),
            Some("commit.secretRef: it is also the Secret of the approval hook"),
        ),
    ] {
        for found in of_strategy(&strategy) {
            assert_eq!(found.len(), usize::from(expected.is_some()), "{what}: {found:?}");
            assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{what}: {found:?}");
        }
    }
}

#[test]
fn the_times_of_attempts_are_bounded() {
    let strategy = json!({"commit": {"url": "https://git.example.com/acme/deploy.git"}});
    for (retry, expected) in [
        (json!({}), None),
        (json!({"initial": "1s", "max": "1h", "maxAge": "168h"}), None),
        (json!({"initial": "soon"}), Some("durations such as 10s or 24h")),
        (json!({"maxAge": "169h"}), Some("at least 1s and at most 168h")),
        (json!({"max": "0s"}), Some("at least 1s and at most 168h")),
    ] {
        let mut pipeline = full().remove(0);
        pipeline["spec"]["promotion"] = json!({"strategy": strategy, "retry": retry});
        let found = lines(&pipeline.to_string());
        assert_eq!(found.len(), usize::from(expected.is_some()), "{retry}: {found:?}");
        assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{retry}: {found:?}");
    }
}
