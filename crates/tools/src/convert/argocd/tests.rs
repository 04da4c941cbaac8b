//! Tests conversions of the configuration of Argo CD Notifications.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::convert::testing::{Case, all_are_right, cases, inputs, linted, objects, shown};

fn all() -> Vec<Case> {
    cases("argocd/testdata", 26)
}

/// Returns the input of a case.
fn input_of(name: &str) -> String {
    all().into_iter().find(|case| case.name == name).unwrap().input
}

fn converted(text: &str, no_triggers: bool) -> Conversion {
    convert(&inputs(text), &Options { namespace: "argocd".to_owned(), no_triggers })
}

#[test]
fn inputs_become_what_a_person_wrote_and_each_line_is_in_its_list() {
    all_are_right(&all(), |case| converted(&case.input, false));
}

#[test]
fn what_is_written_is_accepted_by_the_lint() {
    for Case { name, input, .. } in all() {
        for no_triggers in [false, true] {
            let report = linted(&converted(&input, no_triggers), "argocd");
            assert!(report.findings.is_empty(), "{name}: {:#?}", report.findings);
            assert!(report.objects > 1, "{name}");
        }
    }
}

#[test]
fn no_field_is_in_two_items() {
    for case in all() {
        let report = converted(&case.input, false).report;
        let fields: BTreeSet<_> = report.items.iter().map(|item| (&item.kind, &item.name, &item.field)).collect();
        assert_eq!(fields.len(), report.items.len(), "{}: a field is in two items", case.name);
    }
}

#[test]
fn no_output_contains_a_credential() {
    for Case { name, input, .. } in all() {
        let shown = shown(&converted(&input, false));
        assert!(!shown.contains("MARKER"), "{name}: {shown}");
    }
    let broken =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-notifications-cm}\ndata:\n  service.slack: 'a: [MARKER'\n";
    let conversion = converted(broken, false);
    assert!(conversion.report.has(List::Error) && !conversion.report.lines().join("\n").contains("MARKER"));
}

#[test]
fn steps_move_credentials_without_showing_them() {
    for (name, words) in [
        ("googlechat", "kubectl create secret generic argocd-googlechat-dev-url -n argocd --from-literal=dev-url=VALUE"),
        (
            "telegram",
            "/bot%s/sendMessage' \"$(kubectl get secret argocd-notifications-secret -n argocd -o jsonpath='{.data.tg}'",
        ),
        ("alertmanager", "--from-literal=password=PASSWORD"),
        ("webhook-text", "secret generic argocd-audit-headers -n argocd --from-literal=X-Key=VALUE"),
    ] {
        let input = input_of(name);
        let steps = converted(&input, false).steps.join("\n");
        assert!(steps.contains(words), "{name}: {steps}");
    }
}

#[test]
fn what_cannot_be_understood_is_an_error_with_its_line_and_nothing_is_written() {
    let good = input_of("slack-for-all");
    for (from, to, words) in [
        ("service.slack:", "service.slak:", "did you mean slack?"),
        ("token: $slack-token", "token: $slack-token\n    colour: red", "unknown field"),
        ("token: $slack-token", "username: x", "is missing"),
        ("send: [degraded]", "send: [absent]", "has no template absent"),
        ("message: ", "mesage: ", "there is no service mesage"),
        ("template.degraded: |", "template.degraded: 5\n  other: |", "is not a text"),
    ] {
        assert!(good.contains(from), "{from}");
        let conversion = converted(&good.replacen(from, to, 1), false);
        let found = conversion.report.items.iter().find(|item| item.text.contains(words));
        assert!(found.is_some_and(|item| item.line > 6), "{to}: {:#?}", conversion.report);
        assert_eq!(conversion.manifests.is_empty(), conversion.report.has(List::Error), "{to}");
    }
    let twice = converted(&format!("{good}---\n{good}"), false);
    assert!(twice.report.of(List::Error).any(|item| item.text.contains("another configuration")));
    let alone = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata:\n  name: a\n  annotations: \
                 {notifications.argoproj.io/subscribe.x.slack: a}\n";
    assert!(converted(alone, false).report.of(List::Error).any(|item| item.text.contains("add the file")));
    assert!(converted("", false).report.items.is_empty());
}

#[test]
fn without_triggers_the_list_is_a_comment() {
    let input = input_of("slack-for-all");
    let conversion = converted(&input, true);
    for manifest in conversion.manifests.iter().filter(|one| one.file.contains(".notification-")) {
        assert_eq!(objects(&manifest.text)[0]["spec"]["triggers"], json!([]));
        assert!(manifest.text.contains("  # triggers:\n  #   - type: Failed\n"), "{}", manifest.text);
    }
}

#[test]
fn more_names_than_can_be_recorded_have_no_counterpart() {
    let input = input_of("catalog");
    let more = input.replace(
        "    notifications.argoproj.io/subscribe.on-created.slack:",
        "    notifications.argoproj.io/subscribe.slack: x\n    notifications.argoproj.io/subscribe.on-created.slack:",
    );
    let more = more.replacen("data:\n", "data:\n  defaultTriggers: '[on-created]'\n", 1);
    let conversion = converted(&more, false);
    assert!(conversion.report.of(List::NoCounterpart).any(|item| item.text.contains("at most 8 names")));
    assert!(linted(&conversion, "argocd").findings.is_empty());
}

#[test]
fn what_would_not_be_json_is_left_out() {
    let input = input_of("slack-options");
    let from = "[{\"type\": \"section\"";
    assert!(input.contains(from));
    for to in ["[,{\"type\": \"section\"", "[{{.app.metadata.name}}, {\"type\": \"section\""] {
        let conversion = converted(&input.replacen(from, to, 1), false);
        let is_told =
            |item: &Item| item.field.ends_with("slack.blocks") && item.text.starts_with("as a template of Relaybook");
        assert!(conversion.report.of(List::NoCounterpart).any(is_told), "{:#?}", conversion.report);
        assert!(conversion.manifests.len() == 2 && linted(&conversion, "argocd").findings.is_empty());
    }
}

/// Returns a configuration with these texts, and an Application that subscribes by annotations.
fn configured(texts: &Value, annotations: &Value) -> Conversion {
    let metadata = json!({"name": "argocd-notifications-cm", "namespace": "argocd"});
    let app = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "web", "namespace": "argocd", "annotations": annotations}});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts});
    converted(&json!({"apiVersion": "v1", "kind": "List", "items": [config, app]}).to_string(), false)
}

const FAILED: &str = "[{when: \"app.status.operationState.phase == 'Failed'\", send: [a]}]";

#[test]
fn each_recipient_gets_one_message() {
    let service = "token: $slack-token\n";
    let subscriptions = json!([
        {"recipients": ["slack:red:x"], "triggers": ["failed"], "selector": "team=red"},
        {"recipients": ["slack:red"], "triggers": ["failed"], "selector": "team=blue"},
    ]);
    let texts = |more: &str| {
        json!({"service.slack": service, "trigger.failed": FAILED, "template.a": "message: x\n",
            "subscriptions": subscriptions.to_string(), "defaultTriggers": more})
    };
    let none = json!({"example.com/x": "y"});
    // Both subscriptions name one recipient, so there is one Notification with both conditions.
    let conversion = configured(&texts("[]"), &none);
    let triggers =
        |conversion: &Conversion, at: usize| objects(&conversion.manifests[at].text)[0]["spec"]["triggers"].clone();
    assert_eq!(conversion.manifests.len(), 2, "{:#?}", conversion.report);
    assert_eq!(triggers(&conversion, 1).as_array().unwrap().len(), 2);
    // An annotation that names it, too, is another Notification, which the report mentions.
    let annotation = json!({"notifications.argoproj.io/subscribe.slack": "red"});
    let conversion = configured(&texts("[failed]"), &annotation);
    let told = |item: &Item| item.field == "data[trigger.failed][0].send" && item.text.contains("the recipient \"red\"");
    assert!(conversion.report.of(List::Differs).any(told), "{:#?}", conversion.report);
    let other = json!({"notifications.argoproj.io/subscribe.slack": "green"});
    assert!(!configured(&texts("[failed]"), &other).report.of(List::Differs).any(told));
    assert!(linted(&conversion, "argocd").findings.is_empty());
}

#[test]
fn texts_and_parts_are_those_that_argo_cd_uses() {
    let subscribed = json!({"notifications.argoproj.io/subscribe.failed.work": "red"});
    let hook =
        "url: https://a.example.com/in\nheaders: [{name: X-Api-Key, value: MARKER}, {name: Accept, value: text/plain}]\n";
    let slack = "token: $slack-token\n";
    let both = "[{when: \"app.status.operationState.phase == 'Failed'\", send: [a, b]}]";
    for (service, trigger, a, b, words, told) in [
        // The name of the service, and not its type.
        ("slack", FAILED, "message: '{{if eq .serviceType \"work\"}}yes{{else}}no{{end}}'", "", "}}yes\"", ""),
        (
            "webhook",
            FAILED,
            "webhook: {work: {method: POST, body: '{{.recipient}}'}}",
            "",
            "subscribe.failed.work] \"\"}}",
            "",
        ),
        // A webhook without a body.
        ("webhook", FAILED, "webhook: {work: {method: POST}}", "", "{} {", "it has no body"),
        ("webhook", FAILED, "webhook: {work: {method: POST, body: x}}", "", "argocd-work-headers", "it can be a credential"),
        // Of several templates, the last one that has the part.
        (
            "webhook",
            both,
            "webhook: {work: {method: PUT, path: /a, body: x}}",
            "webhook: {work: {method: POST, body: new}}",
            "new {",
            "",
        ),
        ("slack", both, "message: x\nslack: {username: ann, icon: ':a:'}", "message: y\nslack: {icon: ':b:'}", ":b:", ""),
        (
            "slack",
            both,
            "message: x",
            "message: '{{if .app.metadata.name}}y{{end}}'",
            "y{{/if}}",
            "Argo CD uses it where the later one is empty",
        ),
    ] {
        let texts = json!({format!("service.{service}.work"): if service == "slack" { slack } else { hook },
            "trigger.failed": trigger, "template.a": a, "template.b": b});
        let conversion = configured(&texts, &subscribed);
        let shown = shown(&conversion);
        let spec = &objects(&conversion.manifests.last().unwrap().text)[0]["spec"];
        let last = format!("{} {}", spec["template"]["inline"]["body"].as_str().unwrap(), spec["endpoint"]);
        assert!(last.contains(words) && shown.contains(told), "{a} {b}: {shown}");
        assert!(!shown.contains("MARKER") && !last.contains("/in/a") && !last.contains("ann\""), "{a} {b}: {shown}");
        assert!(linted(&conversion, "argocd").findings.is_empty());
    }
}
