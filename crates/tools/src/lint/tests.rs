//! Tests the findings for files, and that every rule of every CRD can be evaluated.

mod delivery;
mod documents;
mod durations;
mod hooks;
mod kinds;
mod layered;
mod parameters;
mod promotion;
mod setters;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::rules::{Verdict, verdict, visit};
use super::*;
use relaybook_settings::manifests::schema;

pub(super) fn options() -> Options {
    Options {
        namespace: "default".to_owned(),
        config_map: ObjectName::new("relaybook-system", "relaybook-config"),
        cluster_name: "in-cluster".to_owned(),
        allow_http: false,
        cross_namespace_refs: true,
    }
}

fn report(text: &str) -> Report {
    lint(&[File::named("a.yaml", text)], &options()).unwrap()
}

fn lines(text: &str) -> Vec<String> {
    report(text).findings.iter().map(ToString::to_string).collect()
}

/// Returns one object of each kind. Together they use every field that has a rule.
fn full() -> Vec<Value> {
    let secret = json!({"name": "s", "key": "k"});
    let notification = json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "n"},
        "spec": {
            "triggers": [{"type": "Deployed"}],
            "endpoint": {
                "url": "https://example.com/in", "headers": {"X-Team": "a"}, "timeout": "15s", "connectTimeout": "5s",
                "thread": {"remember": {"id": "body.id"}, "update": {"append": "/{{remembered.id}}"}, "maxAge": "1h"},
                "auth": {"token": {"secretKeyRef": secret, "header": "X-Token"}},
                "tls": {"caFrom": {"secretKeyRef": secret}},
            },
            "template": {"inline": {"body": "{}"}, "parameters": {"a": "b"}},
            "delivery": {"retry": {"initial": "1s", "max": "1m", "maxAge": "1h"}, "retain": {"maxAge": "1h"}},
        },
    });
    let pipeline = json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "p"},
        "spec": {
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "source": {"repository": "https://git.example.com/acme/web.git"},
            "record": {"labels": ["team"], "annotations": ["notify.relaybook.dev/slack"], "fields": [".status.replicas"]},
            "environments": [
                {"name": "dev", "targets": [
                    {"namespace": "a", "clusterRef": {"kind": "GitopsCluster", "name": "eu", "namespace": "a"}},
                ]},
                {"name": "prod", "targets": [{"namespace": "a"}], "promotion": {
                    "strategy": {
                        "pullRequest": {"type": "gitea", "url": "https://git.example.com/acme/deploy.git", "interval": "1m"},
                    },
                    "retry": {"initial": "10s"},
                }},
                {"name": "all", "targetsFrom": [
                    {"fleet": {"gitRepo": "shop", "of": "BundleDeployments", "clusters": ["eu-*"]}, "chunk": {"index": 0, "of": 2}},
                    {"objects": {"apiVersion": "v1", "kind": "K", "selector": {}, "ownedBy": {"kind": "O", "name": "o"},
                                 "clusterRef": {"kind": "GitopsCluster", "name": "eu", "namespace": "a"}}},
                ]},
            ],
            "promotion": {
                "after": "5m", "timeout": "24h", "strategy": {"notification": {}},
                "retain": {"perEnvironment": 5, "maxAge": "720h"},
            },
        },
    });
    let delivery = json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Delivery", "metadata": {"name": "d"},
        "spec": {"notification": "n", "subject": {"clusterRef": {"kind": "Secret", "name": "eu"}}},
        "status": {"outcome": "Parked", "attempts": 1},
    });
    let promotion = json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Promotion", "metadata": {"name": "web-prod-1"},
        "spec": {
            "pipelineRef": {"name": "p", "uid": "u"}, "environment": "prod", "from": "dev", "revision": "2", "occasion": 1,
        },
        "status": {
            "phase": "Requested",
            "strategy": {"pullRequest": {"type": "gitea", "url": "https://git.example.com/acme/deploy.git", "interval": "1m"}},
        },
    });
    let set = json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "PipelineSet", "metadata": {"name": "all"},
        "spec": {
            "generators": [
                {"fleet": {"gitRepos": {}}},
                {"objects": {"apiVersion": "v1", "kind": "K", "clusterRef": {"kind": "GitopsCluster", "name": "eu", "namespace": "a"}}},
            ],
            "template": {"metadata": {"name": "{{name}}"}, "spec": {}},
        },
    });
    vec![pipeline, notification, delivery, promotion, set]
}

/// Notifications with the credentials and the signature that [`full`] has no room for.
fn with_credentials() -> [Value; 3] {
    let signing = json!({"secretRef": {"name": "s"}, "scheme": "BodyHex", "header": "X-Signature"});
    let with_auth = |auth: Value| {
        json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "n"},
            "spec": {"endpoint": {"url": "https://example.com/in", "auth": auth, "signing": signing}},
        })
    };
    let app = json!({"secretRef": {"name": "s"}, "repositories": ["acme/*"], "permissions": {"statuses": "write"}});
    let client =
        json!({"tokenUrl": "https://login.example.com/token", "secretRef": {"name": "s"}, "parameters": {"a": "b"}});
    let account = json!({"name": "a", "audience": "api://x"});
    let workload = json!({"tokenUrl": "https://login.example.com/token", "serviceAccount": account, "clientId": "7"});
    [json!({"githubApp": app}), json!({"oauth2": client}), json!({"oauth2": workload})].map(with_auth)
}

/// Collects the rules of a schema at any depth.
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
fn every_rule_of_the_schemas_is_evaluated() {
    let mut tried: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for object in full().into_iter().chain(with_credentials()) {
        let kind = object["kind"].as_str().unwrap();
        visit(&schema(kind).unwrap(), &object, "", &mut |field, rule, value| {
            assert_eq!(verdict(rule, value, Some(value)), Verdict::Holds, "{field}: {rule}");
            tried.entry(kind.to_owned()).or_default().insert(rule["rule"].as_str().unwrap().to_owned());
        });
    }
    for (kind, tried) in tried {
        let (schema, mut all) = (schema(&kind).unwrap(), BTreeSet::new());
        all_rules(&schema, &mut all);
        let missing: Vec<_> = all.iter().filter(|rule| !tried.contains(**rule)).collect();
        assert!(missing.is_empty(), "give {kind} a field that has these: {missing:#?}");
        assert!(!tried.is_empty());
    }
}

#[test]
fn rules_hold_for_absent_fields() {
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
fn a_rule_that_cannot_be_evaluated_is_unclear() {
    let unclear = |rule: &str| matches!(verdict(&json!({"rule": rule}), &json!({"a": 1}), None), Verdict::Unclear(_));
    assert!(["self.b == 1", "self.a ==", "self.a", "other(self)", "oldSelf == self"].into_iter().all(unclear));
    let broken = Verdict::Broken("no".to_owned());
    assert_eq!(verdict(&json!({"rule": "self.a == 2", "message": "no"}), &json!({"a": 1}), None), broken);
}

#[test]
fn a_valid_manifest_has_no_findings() {
    for object in &full()[..2] {
        assert_eq!(lines(&object.to_string()), Vec::<String>::new());
    }
    assert_eq!(report("").objects, 0);
    let others = report("{apiVersion: v1, kind: Secret, metadata: {nam: x}}\n---\njust: text\n---\n- 1\n");
    assert!(others.findings.is_empty() && others.objects == 0);
}

#[test]
fn only_manifests_of_relaybook_in_a_folder_are_checked() {
    let helm = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n";
    for (name, text, findings, objects, notes) in [
        ("values.yaml", "replicas: 1\nimage: [", 0, 0, 0),
        ("values.yaml", "replicas: 1\ndefaults: {}\n", 0, 0, 0),
        ("kustomization.yaml", "resources: [a.yaml]", 0, 0, 0),
        (
            "kustomization.yaml",
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nconfigMapGenerator: 1",
            0,
            0,
            0,
        ),
        ("templates/config.yaml", helm, 0, 0, 1),
        ("broken.yaml", "apiVersion: relaybook.dev/v1alpha1\nkind: [", 1, 0, 0),
        ("config.yaml", "defaults: {}\n", 0, 1, 0),
        ("config.yaml", "defualts: {}\n", 1, 1, 0),
        ("config.yaml", "log: debug\nnotifications: true\n", 0, 0, 0),
        ("config.yaml", "log: debug\n", 0, 0, 0),
        ("text.yaml", "notifications are described elsewhere", 0, 0, 0),
    ] {
        let found: Vec<_> = File::found(name, text.to_owned()).into_iter().collect();
        let report = lint(&found, &options()).unwrap();
        let counts = (report.findings.len(), report.objects, report.notes.len());
        assert_eq!(counts, (findings, objects, notes), "{name}: {text}: {report:?}");
    }
    let named = |name: &str, text: &str| lint(&[File::named(name, text)], &options()).unwrap().findings.len();
    assert_eq!((named("values.yaml", "image: ["), named("config.yaml", "log: debug\n")), (1, 1));
}

#[test]
fn all_problems_are_reported_at_once_with_their_lines() {
    let text = "apiVersion: relaybook.dev/v1alpha1
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
  - apiVersion: relaybook.dev/v1alpha1
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
apiVersion: relaybook.dev/v1alpha1
kind: Delivery
---
apiVersion: relaybook.dev/v1
kind: Pipeline
---
apiVersion: relaybook.dev/v1alpha1
kind: Notificaton
---
a: [
";
    let found = lines(text);
    for expected in [
        "a.yaml:6: Notification deploys: spec.trigers: unknown field; did you mean triggers?",
        "a.yaml:8: Notification deploys: spec.triggers[0].type: \"Deploy\" is not a valid value; did you mean Deployed?",
        "a.yaml:10: Notification deploys: spec.triggers[1].environments[0]: \"prod,dev\" does not match",
        "a.yaml:12: Notification deploys: spec.endpoint.url: line 1, column 21: there is no field `nothing`",
        "a.yaml:15: Notification deploys: spec.endpoint.headers[X-A]: line 1, column 1: there is no field `also`",
        "a.yaml:16: Notification deploys: spec.template.inline.body: ",
        "a.yaml:13: Notification deploys: spec.endpoint.timeout: must be a duration from 100ms to 60s",
        "a.yaml:23: Pipeline Shop: metadata.name: must be lower-case letters",
        "a.yaml:30: Pipeline Shop: spec.environments[0].targets[1]: two targets have the name dev/in-cluster/a",
        "a.yaml:33: Delivery (no name): kind: only Relaybook creates Deliveries",
        "a.yaml:35: Pipeline (no name): apiVersion: unknown version; write relaybook.dev/v1alpha1",
        "a.yaml:39: Notificaton (no name): kind: unknown kind; did you mean Notification?",
        "not YAML: ",
    ] {
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}\n{found:#?}");
    }
    assert_eq!(found.len(), 13, "{found:#?}");
}

#[test]
fn problems_that_the_controller_would_report_are_reported_at_once() {
    let text = "apiVersion: relaybook.dev/v1alpha1
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
        {\"a\": \"{{pipline.name}} {{revison}}\"}
";
    let found = lines(text);
    let body = "a.yaml:13: Notification deploys: spec.template.inline.body: line 1, column";
    for expected in [
        "a.yaml:7: Notification deploys: spec.endpoint.url: ",
        "a.yaml:9: ",
        &format!("{body} 8: there is no field `pipline.name`; did you mean `pipeline.name`?"),
        &format!("{body} 25: there is no field `revison`; did you mean `revision`?"),
    ] {
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}\n{found:#?}");
    }
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(report(text).findings.iter().all(|finding| finding.source == Source::Controller));
}

#[test]
fn problems_of_triggers_are_reported_with_their_lines() {
    let text = |trigger: &str| {
        format!(
            "apiVersion: relaybook.dev/v1alpha1\nkind: Notification\nmetadata: {{name: deploys}}\nspec:\n  triggers:\n    - type: \
             Deployed\n    - type: ClusterOffline\n      {trigger}\n  endpoint: {{url: 'https://example.com/'}}\n  template: {{inline: \
             {{body: '{{}}'}}}}\n"
        )
    };
    for (trigger, told) in [
        ("when: environment == 'prod'", None),
        ("for: 2m", None),
        ("clusters: ['eu-*', 'fleet.*']", None),
        ("when: revison == '2'", Some("when: there is no revison; did you mean revision?")),
        ("when: 'revision =='", Some("when: is not CEL: ")),
        ("for: 200h", Some("for: \"200h\" must be a time from 1s to 168h, such as 90s or 5m")),
        ("for: 500ms", Some("for: \"500ms\" must be a time from 1s to 168h")),
    ] {
        let found = lines(&text(trigger));
        let expected = told.map(|told| format!("a.yaml:8: Notification deploys: spec.triggers[1].{told}"));
        assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
        assert!(expected.is_none_or(|expected| found[0].starts_with(&expected)), "{found:?}");
    }
}

#[test]
fn problems_of_parameters_are_reported_at_once() {
    let text = "{apiVersion: relaybook.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {triggers: [{type: Failed}], \
                endpoint: {url: 'https://example.com/'}, template: {builtin: telegram, parameters: {chatid: x}}}}";
    let found = lines(text);
    assert!(
        found.len() == 2 && found[0].contains("spec.template.parameters.chatid: telegram has no parameter"),
        "{found:#?}"
    );
    assert!(found[1].contains("spec.template.parameters: missing: spec.template.parameters.chatId"), "{found:#?}");
}

#[test]
fn config_maps_in_the_same_files_are_read() {
    let notification = "{apiVersion: relaybook.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {triggers: [{type: \
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
    assert_eq!(alone.notes, ["ConfigMap default/t is not among the files; its content was not checked"]);
}

#[test]
fn the_options_of_run_change_the_findings() {
    let [pipeline, notification, ..] = &full()[..] else { panic!("two") };
    let insecure = notification.to_string().replace("https://", "http://");
    let with = |text: &str, options: &Options| lint(&[File::named("a", text)], options).unwrap().findings.len();
    assert_eq!((with(&insecure, &options()), with(&insecure, &Options { allow_http: true, ..options() })), (1, 0));
    let own = Options { cross_namespace_refs: false, ..options() };
    assert_eq!(
        (with(&pipeline.to_string(), &own), with(&pipeline.to_string(), &Options { namespace: "a".into(), ..own })),
        (1, 0)
    );
}

#[test]
fn a_url_that_does_not_show_where_requests_go_has_a_note() {
    let manifest = |endpoint: &str| {
        format!(
            "apiVersion: relaybook.dev/v1alpha1\nkind: Notification\nmetadata: {{name: alerts}}\nspec:\n  triggers: [{{type: Failed}}]\n  \
             endpoint: {{{endpoint}}}\n  template: {{builtin: alertmanager}}\n"
        )
    };
    for (endpoint, note) in [
        (
            "url: 'https://a.net/am'",
            Some(
                "a.yaml:6: Notification alerts: spec.endpoint.url: requests go to https://a.net/am/api/v2/alerts; to send to https://a.net/am \
                 itself, end it with a question mark",
            ),
        ),
        (
            "urlFrom: {secretKeyRef: {name: a, key: url}}",
            Some(
                "a.yaml:6: Notification alerts: spec.endpoint.urlFrom: the URL in the Secret is used as it is, so it must contain the path, such \
                 as /api/v2/alerts",
            ),
        ),
        ("url: 'https://a.net'", None),
        ("url: 'https://a.net/am?'", None),
    ] {
        let report = lint(&[File::named("a.yaml", manifest(endpoint))], &options()).unwrap();
        assert!(report.findings.is_empty(), "{report:?}");
        assert_eq!(report.notes, Vec::from_iter(note), "{endpoint}");
    }
}
