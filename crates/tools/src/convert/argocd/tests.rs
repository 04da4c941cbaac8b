//! Tests conversions of whole files. `testdata/NAME.yaml` is the input, and `NAME.out.yaml` what it becomes.
//!
//! A comment at the end of a line, also one of Go's templates, is the list that the line must be in; a line without one is CONVERTED. No program
//! of Relaybook made the expected files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use relaybook_api::ObjectName;
use relaybook_settings::manifests::read;
use serde_json::Value;

use super::*;
use crate::convert::check;
use crate::lint;

const LISTS: [List; 5] = [List::Differs, List::NoCounterpart, List::Ignored, List::Error, List::Converted];

/// Returns name, input and expected output of each case.
fn cases() -> Vec<(String, String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/convert/argocd/testdata");
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".out.yaml")?.to_owned())).collect();
    names.sort();
    let read = |name: &str, end: &str| fs::read_to_string(folder.join(format!("{name}{end}"))).unwrap();
    names.into_iter().map(|name| (name.clone(), read(&name, ".yaml"), read(&name, ".out.yaml"))).collect()
}

fn converted(text: &str, no_triggers: bool) -> Conversion {
    let inputs = [Input { name: "in.yaml".to_owned(), text: text.to_owned(), is_found: false }];
    convert(&inputs, &Options { namespace: "argocd".to_owned(), no_triggers })
}

fn objects(text: &str) -> Vec<Value> {
    read(text).into_iter().map(|document| document.unwrap().value).collect()
}

fn linted(conversion: &Conversion) -> lint::Report {
    let options = lint::Options {
        namespace: "argocd".to_owned(),
        config_map: ObjectName::new("relaybook-system", "relaybook-config"),
        cluster_name: "in-cluster".to_owned(),
        allow_http: false,
        cross_namespace_refs: true,
    };
    check(conversion, &options).unwrap()
}

#[test]
fn inputs_become_what_a_person_wrote() {
    let cases = cases();
    assert!(cases.len() >= 26, "{}", cases.len());
    for (name, input, expected) in cases {
        let conversion = converted(&input, false);
        let errors: Vec<_> = conversion.report.of(List::Error).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        let found: Vec<Value> = conversion.manifests.iter().flat_map(|one| objects(&one.text)).collect();
        let expected = objects(&expected);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(found.len(), expected.len(), "{name}");
    }
}

#[test]
fn what_is_written_is_accepted_by_the_lint() {
    for (name, input, _) in cases() {
        for no_triggers in [false, true] {
            let report = linted(&converted(&input, no_triggers));
            assert!(report.findings.is_empty(), "{name}: {:#?}", report.findings);
            assert!(report.objects > 1, "{name}");
        }
    }
}

#[test]
fn each_line_is_in_exactly_the_list_that_a_person_wrote() {
    for (name, input, _) in cases() {
        let report = converted(&input, false).report;
        let mut by_line: BTreeMap<u64, BTreeSet<List>> = BTreeMap::new();
        for item in &report.items {
            by_line.entry(item.line).or_default().insert(item.list);
        }
        for (number, line) in (1..).zip(input.lines()) {
            let ends = |list: &List| {
                line.ends_with(&format!("# {}", list.title())) || line.ends_with(&format!("{{{{/* {} */}}}}", list.title()))
            };
            let written = LISTS.into_iter().find(ends);
            let found = by_line.remove(&number);
            if written.is_some() || found.is_some() {
                let expected = BTreeSet::from([written.unwrap_or(List::Converted)]);
                assert_eq!(found.unwrap_or_default(), expected, "{name}:{number}: {line}");
            }
        }
        assert!(by_line.is_empty(), "{name}: {by_line:?}");
        let fields: BTreeSet<_> = report.items.iter().map(|item| (&item.kind, &item.name, &item.field)).collect();
        assert_eq!(fields.len(), report.items.len(), "{name}: a field is in two items");
    }
}

#[test]
fn no_output_contains_a_credential() {
    for (name, input, _) in cases() {
        let conversion = converted(&input, false);
        let items = conversion.report.items.iter().map(|item| serde_json::to_string(item).unwrap());
        let all: Vec<String> = conversion
            .manifests
            .iter()
            .map(|one| one.text.clone())
            .chain(conversion.steps.clone())
            .chain(conversion.report.lines())
            .chain(items)
            .collect();
        assert!(!all.join("\n").contains("MARKER"), "{name}: {all:#?}");
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
        let (_, input, _) = cases().into_iter().find(|(of, ..)| of == name).unwrap();
        let steps = converted(&input, false).steps.join("\n");
        assert!(steps.contains(words), "{name}: {steps}");
    }
}

#[test]
fn what_cannot_be_understood_is_an_error_with_its_line_and_nothing_is_written() {
    let (_, good, _) = cases().into_iter().find(|(name, ..)| name == "slack-for-all").unwrap();
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
    let (_, input, _) = cases().into_iter().find(|(name, ..)| name == "slack-for-all").unwrap();
    let conversion = converted(&input, true);
    for manifest in conversion.manifests.iter().filter(|one| one.file.contains(".notification-")) {
        assert_eq!(objects(&manifest.text)[0]["spec"]["triggers"], serde_json::json!([]));
        assert!(manifest.text.contains("  # triggers:\n  #   - type: Failed\n"), "{}", manifest.text);
    }
}

#[test]
fn more_names_than_can_be_recorded_have_no_counterpart() {
    let (_, input, _) = cases().into_iter().find(|(name, ..)| name == "catalog").unwrap();
    let more = input.replace(
        "    notifications.argoproj.io/subscribe.on-created.slack:",
        "    notifications.argoproj.io/subscribe.slack: x\n    notifications.argoproj.io/subscribe.on-created.slack:",
    );
    let more = more.replacen("data:\n", "data:\n  defaultTriggers: '[on-created]'\n", 1);
    let conversion = converted(&more, false);
    assert!(conversion.report.of(List::NoCounterpart).any(|item| item.text.contains("at most 8 names")));
    assert!(linted(&conversion).findings.is_empty());
}

#[test]
fn what_would_not_be_json_is_left_out() {
    let (_, input, _) = cases().into_iter().find(|(name, ..)| name == "slack-options").unwrap();
    let from = "[{\"type\": \"section\"";
    assert!(input.contains(from));
    for to in ["[,{\"type\": \"section\"", "[{{.app.metadata.name}}, {\"type\": \"section\""] {
        let conversion = converted(&input.replacen(from, to, 1), false);
        let is_told =
            |item: &Item| item.field.ends_with("slack.blocks") && item.text.starts_with("as a template of Relaybook");
        assert!(conversion.report.of(List::NoCounterpart).any(is_told), "{:#?}", conversion.report);
        assert!(conversion.manifests.len() == 2 && linted(&conversion).findings.is_empty());
    }
}
