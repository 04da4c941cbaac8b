//! Tests the global configuration, and the layers over it and over Notifications.

use super::*;

const GLOBAL: &str = "# what holds everywhere
apiVersion: v1
kind: ConfigMap
metadata: {name: relaybook-config, namespace: relaybook-system}
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
fn problems_of_the_global_configuration_are_reported_at_their_lines() {
    let found = lines(GLOBAL);
    for (found, expected) in found.iter().zip([
        "a.yaml:11: ConfigMap relaybook-config: defaults.endpoint.headers[X-A]: line 1, column 1: there is no field `nothing`",
        "a.yaml:16: ConfigMap relaybook-config: notifications[0].endpoint.url: line 1, column 21: there is no field `revison`",
        "a.yaml:17: ConfigMap relaybook-config: notifications[1].triggers: is missing: set it",
    ]) {
        assert!(found.starts_with(expected), "{found}");
    }
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(report(GLOBAL).findings.iter().all(|f| f.source == Source::Controller) && report(GLOBAL).objects == 1);

    let folded =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: relaybook-config}\ndata:\n  config.yaml: >\n    {\n\n    a: 1}\n";
    assert_eq!(lines(folded).len(), 1, "{:?}", lines(folded));
    assert!(lines(folded)[0].starts_with("a.yaml:5: ConfigMap relaybook-config: a: unknown field"), "{:?}", lines(folded));
    let broken = GLOBAL.replace("X-A: '{{nothing}}'", "X-A: [");
    assert!(lines(&broken)[0].starts_with("a.yaml:1") && lines(&broken)[0].contains("not YAML"), "{:?}", lines(&broken));
}

#[test]
fn the_global_configuration_may_be_a_file_of_its_own() {
    let at = |file: &str, text: &str| {
        let report = lint(&[File::named(file, text)], &options()).unwrap();
        (report.objects, report.findings.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let bare = "\nnotifications:\n- name: audit\n  trigers: []\n";
    let (objects, found) = at("global.yaml", bare);
    assert_eq!(objects, 1);
    let expected = "global.yaml:4: notifications[0].trigers: unknown field; did you mean triggers?";
    assert_eq!(found, [expected]);
    for (file, text, objects, wrong) in [
        ("deploy/config.yaml", "defualts: {}", 1, true),
        ("deploy/config.yaml", "{apiVersion: v1, kind: Secret}", 0, false),
        ("other.yaml", "defualts: {}", 0, false),
        ("other.yaml", "{}", 0, false),
        ("other.yaml", "forges: [{host: git.example.com, type: gitlab}]", 1, false),
        ("other.yaml", "links: {compare: 'https://example.com/'}", 1, true),
        ("other.yaml", "defaults: {suspend: false}", 1, false),
        ("other.yaml", "{apiVersion: example.com/v1, defaults: {}, notification: []}", 0, false),
        ("a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {config.yaml: 'a: 1'}}", 0, false),
        ("a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: relaybook-config}, data: {}}", 0, false),
        (
            "a.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: relaybook-config, namespace: relaybook-system}, data: {config.yml: ''}}",
            0,
            true,
        ),
        (
            "a.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: relaybook-config}, data: {config.yaml: {a: 1}}}",
            0,
            true,
        ),
        (
            "a.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: relaybook-config}, data: {config.yaml: ''}}",
            1,
            false,
        ),
    ] {
        let (checked, found) = at(file, text);
        assert_eq!((checked, !found.is_empty()), (objects, wrong), "{file} {text}: {found:?}");
    }
    let (objects, found) = at("other.yaml", "defaults: {}\nnotification: []\n");
    assert_eq!(objects, 1);
    assert_eq!(found, ["other.yaml:2: notification: unknown field; did you mean notifications?"]);
    let twice = report("defaults: {}\n---\nnotifications: []\n");
    assert_eq!((twice.objects, twice.notes.len()), (2, 1), "{twice:?}");
}

#[test]
fn notifications_are_checked_together_with_the_global_configuration() {
    let global = "defaults: {endpoint: {url: 'https://example.com/'}}\nnotifications:\n- {name: other, namespaces: [x]}\n";
    let notification = "{apiVersion: relaybook.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {triggers: [{type: \
                        Deployed}], template: {inline: {body: '{}'}}}}";
    assert_eq!(lines(notification), ["a.yaml:1: Notification deploys: spec.endpoint: is missing: set it"]);
    let found = lines(&format!("{global}---\n{notification}\n"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|line| line.contains(": notifications[0].")), "the other is not complete: {found:?}");

    // Each problem is reported once, at the place to fix it.
    let bad = global
        .replace("https:", "http:")
        .replace("{name: other, namespaces: [x]}", "{name: deploys, delivery: {supersede: true}}");
    let found = lines(&format!("{bad}---\n{notification}\n"));
    let of_url: Vec<_> = found.iter().filter(|line| line.contains("http is not encrypted")).collect();
    assert_eq!(of_url.len(), 1, "{found:?}");
    assert!(of_url[0].starts_with("a.yaml:1: defaults.endpoint.url: "), "{found:?}");

    // An invalid global configuration can contain the missing field.
    let broken = global.replace("url", "ulr");
    let found = lines(&format!("{broken}---\n{notification}\n"));
    assert!(found.len() == 1 && found[0].contains("defaults.endpoint.ulr"), "{found:?}");
}

/// Returns a pipeline with layers for `deploys`: its own layer, and a layer of its second target.
fn layered(own: &str, of_target: &str) -> String {
    format!(
        "---
apiVersion: relaybook.dev/v1alpha1
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
fn layers_of_a_pipeline_are_checked_with_their_notification() {
    let notification = "{apiVersion: relaybook.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {triggers: [{type: \
                        Deployed}], endpoint: {url: 'https://example.com/', signing: {secretRef: {name: s}}}, template: {inline: {body: '{}'}}}}\n";
    let with = |own: &str, of_target: &str| report(&format!("{notification}{}", layered(own, of_target)));
    let well = with("endpoint: {timeout: 7s}", "triggers: []");
    assert!(well.findings.is_empty() && well.notes.is_empty(), "{well:?}");
    let said = |report: &Report| report.findings.iter().map(ToString::to_string).collect::<Vec<_>>();

    let wrong = said(&with("endpoint: {timeout: 7h}", "template: {inline: {body: '{{revison}}'}}"));
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    let timeout = "a.yaml:9: Pipeline shop: spec.notifications[0].endpoint.timeout: must be from 100ms to 1m";
    assert!(wrong[0].starts_with(timeout) && wrong[0].ends_with("(for dev/in-cluster/a)"), "{wrong:?}");
    let body = "a.yaml:16: Pipeline shop: spec.environments[0].targets[1].notifications[0].template.inline.body: ";
    assert!(wrong[1].starts_with(body) && wrong[1].ends_with("(for dev/in-cluster/b)"), "{wrong:?}");

    let led_away = said(&with("endpoint: {timeout: 7s}", "endpoint: {url: 'https://elsewhere.example.com/'}"));
    let at = "a.yaml:16: Pipeline shop: spec.environments[0].targets[1].notifications[0].endpoint.signing: ";
    assert!(led_away.len() == 1 && led_away[0].starts_with(at), "{led_away:?}");
    assert!(led_away[0].contains("a more specific layer; set the credentials in that layer too"), "{led_away:?}");

    // A layer can replace the template of the Notification, and a more specific layer can remove its signing.
    let slack = said(&with("template: {builtin: slack}", "remove: [/endpoint/signing]"));
    assert!(slack.is_empty(), "{slack:?}");
    let misspelt = said(&with("trigers: []", "endpoint: {timeout: 7h}"));
    assert!(misspelt.len() == 1 && misspelt[0].contains("trigers"), "the rest goes by it: {misspelt:?}");
}

#[test]
fn a_missing_notification_below_a_layer_is_noted() {
    let part = report(&layered("endpoint: {timeout: 7h}", "triggers: []"));
    let note = "Pipeline default/shop: its layers for notification deploys were not checked: Notification default/deploys is not among the files";
    assert!(part.findings.is_empty() && part.notes == [note], "{part:?}");
    let whole = "triggers: [], endpoint: {url: 'https://example.com/', timeout: 7h}, template: {inline: {body: '{}'}}";
    let whole = report(&layered(whole, "suspend: true"));
    assert!(whole.findings.len() == 1 && whole.notes.is_empty(), "complete by itself: {whole:?}");

    let everywhere = "notifications:\n- name: deploys\n  triggers: []\n  endpoint: {url: 'https://example.com/'}\n  template: {inline: \
                      {body: '{}'}}\n";
    let over = report(&format!("{everywhere}{}", layered("endpoint: {timeout: 7h}", "triggers: []")));
    assert!(over.findings.len() == 1 && over.notes.is_empty(), "the global configuration has it: {over:?}");

    let notification = "{apiVersion: relaybook.dev/v1alpha1, kind: Notification, metadata: {name: deploys}, spec: {pipelineSelector: \
                        {matchLabels: {team: b}}, triggers: [], endpoint: {url: 'https://example.com/'}, template: {inline: {body: '{}'}}}}\n";
    let untold = report(&format!("{notification}{}", layered("endpoint: {timeout: 7h}", "triggers: []")));
    assert!(untold.findings.is_empty() && untold.notes[0].contains("does not select the Pipeline"), "{untold:?}");
    let misfit = report(&format!(
        "{}{}",
        notification.replace("triggers: []", "triggers: x"),
        layered("suspend: true", "triggers: []")
    ));
    assert!(misfit.notes.len() == 1 && misfit.notes[0].contains("cannot be read"), "{misfit:?}");
}

#[test]
fn a_notification_that_needs_a_commit_is_checked_against_the_kind_of_the_object() {
    let files = |kind: &str, more: &str| {
        format!(
            "apiVersion: relaybook.dev/v1alpha1
kind: Notification
metadata: {{name: status, namespace: team-a}}
spec:
  pipelineSelector: {{matchLabels: {{commits: 'yes'}}}}
  triggers: [{{type: Deployed}}]
  endpoint: {{url: 'https://api.github.com'}}
  template: {{builtin: github-commit-status, parameters: {{owner: acme, repository: podinfo}}}}
---
apiVersion: relaybook.dev/v1alpha1
kind: Pipeline
metadata: {{name: web, namespace: team-a, labels: {{commits: 'yes'}}}}
spec:
  appRef: {{{kind}, name: web{more}}}
  environments: [{{name: prod, targets: [{{namespace: web}}]}}]
"
        )
    };
    let release = "apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease";
    let said = lines(&files(release, ""));
    assert!(
        said.len() == 1
            && said[0].starts_with("a.yaml:14: Pipeline web: spec.appRef: notification status needs a commit")
            && said[0].contains("appRef.revisionPath"),
        "{said:?}"
    );
    for text in [
        files(release, ", revisionPath: '{.metadata.labels.commit}'"),
        files(release, "").replacen("labels: {commits: 'yes'}", "labels: {}", 1),
        files(release, "").replace("github-commit-status, parameters: {owner: acme, repository: podinfo}", "generic"),
        files("apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization", ""),
    ] {
        let report = report(&text);
        assert!(report.findings.is_empty() && report.notes.is_empty(), "{:?} {:?}", report.findings, report.notes);
    }
    // The tag of an image can be a commit. The manifest does not show whether it is.
    let report = report(&files("apiVersion: apps/v1, kind: Deployment", ""));
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert!(report.notes.len() == 1 && report.notes[0].contains("the tag of its image"), "{:?}", report.notes);
}

#[test]
fn layers_of_another_namespace_are_checked_with_the_pipeline() {
    let notification = |namespace: &str, spec: &str| {
        format!(
            "{{apiVersion: relaybook.dev/v1alpha1, kind: Notification, metadata: {{name: chat, namespace: {namespace}}}, spec: {{{spec}}}}}\n---\n"
        )
    };
    let own = notification(
        "platform",
        "triggers: [{type: Deployed}], endpoint: {url: 'https://example.com/', signing: {secretRef: {name: s}}}, template: {inline: {body: '{}'}}",
    );
    let pipeline = "{apiVersion: relaybook.dev/v1alpha1, kind: Pipeline, metadata: {name: shop, namespace: platform}, spec: {layerNamespace: \
                    team-a, appRef: {apiVersion: apps/v1, kind: Deployment, name: web}, environments: [{name: dev, targets: [{namespace: a}]}]}}\n";
    let with = |spec: &str| {
        let laid = notification("team-a", &format!("pipelineNamespaces: [platform], {spec}"));
        report(&format!("{own}{laid}{pipeline}"))
    };
    let well = with("template: {inline: {body: '{\"a\": 1}'}}");
    assert!(well.findings.is_empty() && well.notes.is_empty(), "an incomplete layer: {well:?}");
    let led_away = with("endpoint: {url: 'https://elsewhere.example.com/'}");
    let found: Vec<_> = led_away.findings.iter().map(ToString::to_string).collect();
    assert!(found.len() == 1 && found[0].starts_with("a.yaml:3: Notification chat: spec.endpoint.signing: "), "{found:?}");
    assert!(found[0].contains("for dev/in-cluster/a of Pipeline platform/shop"), "{found:?}");
    let forbidden = Options { cross_namespace_refs: false, ..options() };
    let text = format!("{own}{pipeline}").replace("namespace: a}", "namespace: platform}");
    let refused = lint(&[File::named("a.yaml", text)], &forbidden).unwrap().findings;
    assert!(refused.len() == 1 && refused[0].message.contains("--no-cross-namespace-refs"), "{refused:?}");
}
