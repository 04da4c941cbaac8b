//! What is said of files, and that every rule of every definition can be tried.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rules::{Verdict, verdict, visit};
use super::*;
use crate::manifests::schema;

fn options() -> Options {
    Options {
        namespace: "default".to_owned(),
        config_map: ObjectName { namespace: "pennant-system".to_owned(), name: "pennant-config".to_owned() },
        cluster_name: "in-cluster".to_owned(),
        allow_http: false,
        cross_namespace_refs: true,
    }
}

fn report(text: &str) -> Report {
    lint(&[("a.yaml".to_owned(), text.to_owned())], &options()).unwrap()
}

fn lines(text: &str) -> Vec<String> {
    report(text).findings.iter().map(ToString::to_string).collect()
}

/// Uses every field that has a rule.
fn full() -> Vec<Value> {
    let secret = json!({"name": "s", "key": "k"});
    let notification = json!({
        "apiVersion": "pennant.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "n"},
        "spec": {
            "triggers": [{"type": "Deployed"}],
            "endpoint": {
                "url": "https://example.com/in", "headers": {"X-Team": "a"}, "timeout": "15s", "connectTimeout": "5s",
                "auth": {"token": {"secretKeyRef": secret, "header": "X-Token"}},
                "tls": {"caFrom": {"secretKeyRef": secret}},
            },
            "template": {"inline": {"body": "{}"}, "parameters": {"a": "b"}},
            "delivery": {"retry": {"initial": "1s", "max": "1m", "maxAge": "1h"}, "retain": {"maxAge": "1h"}},
        },
    });
    let pipeline = json!({
        "apiVersion": "pennant.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "p"},
        "spec": {
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "environments": [{"name": "dev", "targets": [{"namespace": "a"}]}],
        },
    });
    let delivery = json!({
        "apiVersion": "pennant.dev/v1alpha1", "kind": "Delivery", "metadata": {"name": "d"}, "spec": {"notification": "n"},
    });
    vec![pipeline, notification, delivery]
}

/// The rules of a schema, wherever they stand.
fn all_rules<'a>(schema: &'a Value, found: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(fields) => {
            let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array);
            found.extend(rules.into_iter().flatten().map(|rule| rule["rule"].as_str().unwrap()));
            fields.values().for_each(|value| all_rules(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| all_rules(item, found)),
        _ => {}
    }
}

#[test]
fn every_rule_can_be_tried() {
    for object in full() {
        let schema = schema(object["kind"].as_str().unwrap()).unwrap();
        let (mut all, mut tried) = (BTreeSet::new(), BTreeSet::new());
        all_rules(&schema, &mut all);
        visit(&schema, &object, "", &mut |field, rule, value| {
            assert_eq!(verdict(rule, value, Some(value)), Verdict::Holds, "{field}: {rule}");
            tried.insert(rule["rule"].as_str().unwrap().to_owned());
        });
        let missing: Vec<_> = all.iter().filter(|rule| !tried.contains(**rule)).collect();
        assert!(missing.is_empty(), "give {} a field that has these: {missing:#?}", object["kind"]);
        assert!(!tried.is_empty());
    }
}

#[test]
fn rules_hold_of_what_is_not_said() {
    for spec in [
        json!({}),
        json!({"endpoint": {"tls": {"caFrom": {"secretKeyRef": {}}}}, "delivery": {"retry": {}, "retain": {}}}),
        json!({"delivery": {"retry": {"max": "1h"}}, "template": {"builtin": "slack", "parameters": {}}}),
        json!({"delivery": {"retry": {"initial": "1m"}}, "endpoint": {"headers": {}}}),
    ] {
        let object = json!({"metadata": {"name": "n"}, "spec": spec});
        let said = super::rules::check(&schema("Notification").unwrap(), &object);
        assert!(said.iter().all(|(_, verdict)| *verdict == Verdict::Holds), "{object}: {said:?}");
    }
}

#[test]
fn a_rule_that_cannot_be_tried_is_told() {
    let unclear = |rule: &str| matches!(verdict(&json!({"rule": rule}), &json!({"a": 1}), None), Verdict::Unclear(_));
    assert!(["self.b == 1", "self.a ==", "self.a", "other(self)", "oldSelf == self"].into_iter().all(unclear));
    let broken = Verdict::Broken("no".to_owned());
    assert_eq!(verdict(&json!({"rule": "self.a == 2", "message": "no"}), &json!({"a": 1}), None), broken);
}

#[test]
fn what_is_well_is_passed() {
    for object in &full()[..2] {
        assert_eq!(lines(&object.to_string()), Vec::<String>::new());
    }
    assert_eq!(report("").objects, 0);
    let others = report("{apiVersion: v1, kind: Secret, metadata: {nam: x}}\n---\njust: text\n---\n- 1\n");
    assert!(others.findings.is_empty() && others.objects == 0);
}

#[test]
fn all_is_told_at_once_with_its_line() {
    let text = "apiVersion: pennant.dev/v1alpha1
kind: Notification
metadata:
  name: deploys
spec:
  trigers: []
  triggers:
    - type: Deploy
    - type: Failed
      environments: ['prod,dev']
  endpoint:
    url: https://example.com/{{nothing}}
    timeout: soon
    headers:
      X-A: '{{also}}'
  template: {inline: {body: '{'}}
---
apiVersion: v1
kind: List
items:
  - apiVersion: pennant.dev/v1alpha1
    kind: Pipeline
    metadata: {name: Shop}
    spec:
      appRef: {apiVersion: apps/v1, kind: Deployment, name: web}
      environments:
        - name: dev
          targets:
            - namespace: a
            - namespace: a
---
apiVersion: pennant.dev/v1alpha1
kind: Delivery
---
apiVersion: pennant.dev/v1
kind: Pipeline
---
apiVersion: pennant.dev/v1alpha1
kind: Notificaton
---
a: [
";
    let found = lines(text);
    for expected in [
        "a.yaml:6: Notification deploys: spec.trigers: there is no such field; did you mean triggers?",
        "a.yaml:8: Notification deploys: spec.triggers[0].type: \"Deploy\" is not known; did you mean Deployed?",
        "a.yaml:10: Notification deploys: spec.triggers[1].environments[0]: \"prod,dev\" does not match",
        "a.yaml:12: Notification deploys: spec.endpoint.url: line 1, column 21: there is no field `nothing`",
        "a.yaml:15: Notification deploys: spec.endpoint.headers[X-A]: line 1, column 1: there is no field `also`",
        "a.yaml:16: Notification deploys: spec.template.inline.body: ",
        "a.yaml:13: Notification deploys: spec.endpoint.timeout: must be a duration from 100ms to 60s",
        "a.yaml:23: Pipeline Shop: metadata.name: must be lower-case letters",
        "a.yaml:30: Pipeline Shop: spec.environments[0].targets[1]: two targets are called dev/in-cluster/a",
        "a.yaml:33: Delivery without a name: kind: Pennant alone writes it",
        "a.yaml:35: Pipeline without a name: apiVersion: there is no such version; write pennant.dev/v1alpha1",
        "a.yaml:39: Notificaton without a name: kind: there is no such kind; did you mean Notification?",
        "not YAML: ",
    ] {
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}\n{found:#?}");
    }
    assert_eq!(found.len(), 13, "{found:#?}");
}

#[test]
fn what_the_controller_would_say_is_told_at_once() {
    let text = "apiVersion: pennant.dev/v1alpha1
kind: Notification
metadata: {name: deploys}
spec:
  triggers: [{type: Deployed}]
  endpoint:
    url: https://example.com/{{nothing}}
    headers:
      X-A: '{{also}}'
      X-B: 'fine'
  template:
    inline:
      body: |
        {\"a\": \"{{revison}}\"}
";
    let found = lines(text);
    for expected in ["a.yaml:7: Notification deploys: spec.endpoint.url: ", "a.yaml:9: ", "a.yaml:13: "] {
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}\n{found:#?}");
    }
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(report(text).findings.iter().all(|finding| finding.source == Source::Controller));
}

#[test]
fn parameters_are_told_at_once() {
    let text = "{apiVersion: pennant.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {triggers: [{type: Failed}], \
                endpoint: {url: 'https://example.com/'}, template: {builtin: telegram, parameters: {chatid: x}}}}";
    let found = lines(text);
    assert!(
        found.len() == 2 && found[0].contains("spec.template.parameters.chatid: telegram has no parameter"),
        "{found:#?}"
    );
    assert!(found[1].contains("spec.template.parameters: missing: spec.template.parameters.chatId"), "{found:#?}");
}

#[test]
fn config_maps_beside_them_are_read() {
    let notification = "{apiVersion: pennant.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {triggers: [{type: \
                        Deployed}], endpoint: {url: 'https://example.com/'}, template: {configMapKeyRef: {name: t, key: k}}}}";
    let map = |data: &str| {
        format!("{notification}\n---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: t}}, data: {data}}}")
    };
    for (text, words) in [
        (map("{k: '{\"a\": \"{{revision}}\"}'}"), None),
        (map("{k: '{{revison}}'}"), Some("revison")),
        (map("{other: ''}"), Some("has no key k")),
    ] {
        let found = lines(&text);
        assert_eq!(found.len(), usize::from(words.is_some()), "{found:?}");
        assert!(words.is_none_or(|words| found[0].contains(words) && found[0].contains("configMapKeyRef")), "{found:?}");
    }
    let authorities = notification
        .replace(
            "url:",
            "tls: {caFrom: {configMapKeyRef: {name: ca, key: k}}}, headers: {X-A: '{{nothing}}'}, timeout: 1s, url:",
        )
        .replace("configMapKeyRef: {name: t, key: k}}", "inline: {body: '{{also}}'}}");
    let found = report(&authorities);
    assert_eq!((found.findings.len(), found.notes.len()), (2, 1), "{found:?}");
    let alone = report(notification);
    assert!(alone.findings.is_empty(), "{alone:?}");
    assert_eq!(alone.notes, ["ConfigMap default/t is not among the files; what it holds was not checked"]);
}

#[test]
fn options_are_those_of_run() {
    let [pipeline, notification, _] = &full()[..] else { panic!("three") };
    let insecure = notification.to_string().replace("https://", "http://");
    let with = |text: &str, options: &Options| lint(&[("a".to_owned(), text.to_owned())], options).unwrap().findings.len();
    assert_eq!((with(&insecure, &options()), with(&insecure, &Options { allow_http: true, ..options() })), (1, 0));
    let own = Options { cross_namespace_refs: false, ..options() };
    assert_eq!(
        (with(&pipeline.to_string(), &own), with(&pipeline.to_string(), &Options { namespace: "a".into(), ..own })),
        (1, 0)
    );
}

const GLOBAL: &str = "# what holds everywhere
apiVersion: v1
kind: ConfigMap
metadata: {name: pennant-config, namespace: pennant-system}
data:
  config.yaml: |
    defaults:
      endpoint:
        url: https://example.com/in
        headers:
          X-A: '{{nothing}}'
      template: {inline: {body: '{}'}}
    notifications:
      - name: audit
        triggers: [{type: Deployed}]
        endpoint: {url: 'https://example.com/{{revison}}'}
      - name: bare
        namespaces: [team-*]
";

#[test]
fn the_global_configuration_is_told_where_it_stands() {
    let found = lines(GLOBAL);
    for (found, expected) in found.iter().zip([
        "a.yaml:11: ConfigMap pennant-config: defaults.endpoint.headers[X-A]: line 1, column 1: there is no field `nothing`",
        "a.yaml:16: ConfigMap pennant-config: notifications[0].endpoint.url: line 1, column 21: there is no field `revison`",
        "a.yaml:17: ConfigMap pennant-config: notifications[1].triggers: is missing: set it",
    ]) {
        assert!(found.starts_with(expected), "{found}");
    }
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(report(GLOBAL).findings.iter().all(|f| f.source == Source::Controller) && report(GLOBAL).objects == 1);

    let folded =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: pennant-config}\ndata:\n  config.yaml: >\n    {\n\n    a: 1}\n";
    assert_eq!(lines(folded).len(), 1, "{:?}", lines(folded));
    assert!(
        lines(folded)[0].starts_with("a.yaml:5: ConfigMap pennant-config: a: there is no such field"),
        "{:?}",
        lines(folded)
    );
    let broken = GLOBAL.replace("X-A: '{{nothing}}'", "X-A: [");
    assert!(lines(&broken)[0].starts_with("a.yaml:1") && lines(&broken)[0].contains("not YAML"), "{:?}", lines(&broken));
}

#[test]
fn the_global_configuration_may_be_a_file_of_its_own() {
    let at = |file: &str, text: &str| {
        let report = lint(&[(file.to_owned(), text.to_owned())], &options()).unwrap();
        (report.objects, report.findings.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let bare = "\nnotifications:\n- name: audit\n  trigers: []\n";
    let (objects, found) = at("global.yaml", bare);
    assert_eq!(objects, 1);
    let expected = "global.yaml:4: notifications[0].trigers: there is no such field; did you mean triggers?";
    assert_eq!(found, [expected]);
    for (file, text, objects, wrong) in [
        ("deploy/config.yaml", "defualts: {}", 1, true),
        ("deploy/config.yaml", "{apiVersion: v1, kind: Secret}", 0, false),
        ("other.yaml", "defualts: {}", 0, false),
        ("other.yaml", "{}", 0, false),
        ("other.yaml", "defaults: {suspend: false}", 1, false),
        ("a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {config.yaml: 'a: 1'}}", 0, false),
        ("a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: pennant-config}, data: {}}", 0, false),
        (
            "a.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: pennant-config, namespace: pennant-system}, data: {config.yml: ''}}",
            0,
            true,
        ),
        (
            "a.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: pennant-config}, data: {config.yaml: {a: 1}}}",
            0,
            true,
        ),
        ("a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: pennant-config}, data: {config.yaml: ''}}", 1, false),
    ] {
        let (checked, found) = at(file, text);
        assert_eq!((checked, !found.is_empty()), (objects, wrong), "{file} {text}: {found:?}");
    }
    let twice = report("defaults: {}\n---\nnotifications: []\n");
    assert_eq!((twice.objects, twice.notes.len()), (2, 1), "{twice:?}");
}

#[test]
fn what_lies_over_the_global_configuration_is_checked_with_it() {
    let global = "defaults: {endpoint: {url: 'https://example.com/'}}\nnotifications:\n- {name: other, namespaces: [x]}\n";
    let notification = "{apiVersion: pennant.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {triggers: [{type: \
                        Deployed}], template: {inline: {body: '{}'}}}}";
    assert_eq!(lines(notification), ["a.yaml:1: Notification deploys: spec.endpoint: is missing: set it"]);
    let found = lines(&format!("{global}---\n{notification}\n"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|line| line.contains(": notifications[0].")), "the other is not complete: {found:?}");

    // Each problem stands where it is to be mended, and once.
    let bad = global
        .replace("https:", "http:")
        .replace("{name: other, namespaces: [x]}", "{name: deploys, delivery: {supersede: true}}");
    let found = lines(&format!("{bad}---\n{notification}\n"));
    let of_url: Vec<_> = found.iter().filter(|line| line.contains("http sends in clear text")).collect();
    assert_eq!(of_url.len(), 1, "{found:?}");
    assert!(of_url[0].starts_with("a.yaml:1: defaults.endpoint.url: "), "{found:?}");

    // What cannot be understood may have what is missing.
    let broken = global.replace("url", "ulr");
    let found = lines(&format!("{broken}---\n{notification}\n"));
    assert!(found.len() == 1 && found[0].contains("defaults.endpoint.ulr"), "{found:?}");
}

/// A pipeline with layers of `deploys`: its own, and those of its second target.
fn layered(own: &str, of_target: &str) -> String {
    format!(
        "---
apiVersion: pennant.dev/v1alpha1
kind: Pipeline
metadata: {{name: shop, labels: {{team: a}}}}
spec:
  appRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
  notifications:
    - {{name: deploys, {own}}}
  environments:
    - name: dev
      targets:
        - {{namespace: a}}
        - namespace: b
          notifications:
            - {{name: deploys, {of_target}}}
"
    )
}

#[test]
fn what_a_pipeline_lays_over_others_is_checked() {
    let notification = "{apiVersion: pennant.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {triggers: [{type: \
                        Deployed}], endpoint: {url: 'https://example.com/', signing: {secretRef: {name: s}}}, template: {inline: {body: '{}'}}}}\n";
    let with = |own: &str, of_target: &str| report(&format!("{notification}{}", layered(own, of_target)));
    let well = with("endpoint: {timeout: 7s}", "triggers: []");
    assert!(well.findings.is_empty() && well.notes.is_empty(), "{well:?}");
    let said = |report: &Report| report.findings.iter().map(ToString::to_string).collect::<Vec<_>>();

    let wrong = said(&with("endpoint: {timeout: 7h}", "template: {inline: {body: '{{revison}}'}}"));
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    let timeout = "a.yaml:9: Pipeline shop: spec.notifications[0].endpoint.timeout: must be from 100ms to 60s";
    assert!(wrong[0].starts_with(timeout) && wrong[0].ends_with("(for dev/in-cluster/a)"), "{wrong:?}");
    let body = "a.yaml:16: Pipeline shop: spec.environments[0].targets[1].notifications[0].template.inline.body: ";
    assert!(wrong[1].starts_with(body) && wrong[1].ends_with("(for dev/in-cluster/b)"), "{wrong:?}");

    let led_away = said(&with("endpoint: {timeout: 7s}", "endpoint: {url: 'https://elsewhere.example.com/'}"));
    let at = "a.yaml:16: Pipeline shop: spec.environments[0].targets[1].notifications[0].endpoint.signing: ";
    assert!(led_away.len() == 1 && led_away[0].starts_with(at), "{led_away:?}");
    assert!(led_away[0].contains("credentials are not sent where a more specific layer leads"), "{led_away:?}");

    // A field of the Notification that is wrong only with a layer over it.
    let slack = said(&with("template: {builtin: slack}", "remove: [/endpoint/signing]"));
    assert!(slack.is_empty(), "{slack:?}");
    let misspelt = said(&with("trigers: []", "endpoint: {timeout: 7h}"));
    assert!(misspelt.len() == 1 && misspelt[0].contains("trigers"), "the rest goes by it: {misspelt:?}");
}

#[test]
fn what_lies_beneath_and_is_not_there_is_noted() {
    let part = report(&layered("endpoint: {timeout: 7h}", "triggers: []"));
    let note = "Pipeline default/shop: what it says of deploys was not checked: Notification default/deploys is not among the files";
    assert!(part.findings.is_empty() && part.notes == [note], "{part:?}");
    let whole = "triggers: [], endpoint: {url: 'https://example.com/', timeout: 7h}, template: {inline: {body: '{}'}}";
    let whole = report(&layered(whole, "suspend: true"));
    assert!(whole.findings.len() == 1 && whole.notes.is_empty(), "complete by itself: {whole:?}");

    let everywhere = "notifications:\n- name: deploys\n  triggers: []\n  endpoint: {url: 'https://example.com/'}\n  template: {inline: \
                      {body: '{}'}}\n";
    let over = report(&format!("{everywhere}{}", layered("endpoint: {timeout: 7h}", "triggers: []")));
    assert!(over.findings.len() == 1 && over.notes.is_empty(), "the global configuration has it: {over:?}");

    let notification = "{apiVersion: pennant.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {pipelineSelector: \
                        {matchLabels: {team: b}}, triggers: [], endpoint: {url: 'https://example.com/'}, template: {inline: {body: '{}'}}}}\n";
    let untold = report(&format!("{notification}{}", layered("endpoint: {timeout: 7h}", "triggers: []")));
    assert!(untold.findings.is_empty() && untold.notes[0].contains("does not select it"), "{untold:?}");
    let misfit = report(&format!(
        "{}{}",
        notification.replace("triggers: []", "triggers: x"),
        layered("suspend: true", "triggers: []")
    ));
    assert!(misfit.notes.len() == 1 && misfit.notes[0].contains("cannot be read"), "{misfit:?}");
}
