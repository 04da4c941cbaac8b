//! Tests conversions of the Alerts and Providers of Flux. The inputs follow the examples of Flux's documentation.

use relaybook_settings::manifests::field::is_within;
use relaybook_settings::manifests::read;
use serde_json::{Value, json};

use super::ledger::leaves;
use super::testing::{Case, all_are_right, cases, inputs, linted, objects, shown};
use super::*;

/// A part of each credential in the inputs, as text and in base64.
const CREDENTIALS: [&str; 2] = ["MARKER", "TUFSS0VS"];

fn all() -> Vec<Case> {
    cases("testdata", 20)
}

fn options() -> Options {
    Options { namespace: "default".to_owned(), no_triggers: false }
}

fn converted(text: &str) -> Conversion {
    flux(&inputs(text), &options())
}

#[test]
fn inputs_become_what_a_person_wrote_and_each_line_is_in_its_list() {
    all_are_right(&all(), |case| converted(&case.input));
}

#[test]
fn what_is_written_is_accepted_by_the_lint() {
    for Case { name, input, .. } in all() {
        let report = linted(&converted(&input), "default");
        assert!(report.findings.is_empty(), "{name}: {:#?}", report.findings);
        assert!(report.objects > 1, "{name}");
    }
}

#[test]
fn each_field_is_in_exactly_one_list() {
    for Case { name, input, .. } in all() {
        let report = converted(&input).report;
        for document in read(&input).into_iter().map(Result::unwrap) {
            if !["Alert", "Provider"].contains(&document.kind()) {
                continue;
            }
            let namespace = document.value["metadata"]["namespace"].as_str().unwrap_or("default");
            let of = format!("{namespace}/{}", document.name());
            let items: Vec<_> = report.items.iter().filter(|item| item.kind == document.kind() && item.name == of).collect();
            leaves(&document.value, String::new(), &mut |field: String, _: &Value| {
                let about: Vec<_> = items.iter().filter(|item| is_within(&field, &item.field)).collect();
                // Some fields of an object are mentioned, and then the rest of it.
                let nearest = about.iter().map(|item| item.field.len()).max().unwrap_or_default();
                let number = about.iter().filter(|item| item.field.len() == nearest).count();
                assert_eq!(number, 1, "{name}: {of}: {field}: {about:#?}");
            });
        }
    }
}

#[test]
fn no_output_contains_a_credential() {
    for Case { name, input, .. } in all() {
        let shown = shown(&converted(&input));
        assert!(CREDENTIALS.iter().all(|part| !shown.contains(part)), "{name}: {shown}");
    }
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  token: MARKER-NINE\n";
    for broken in [
        format!("{secret}  token: MARKER-TEN\n"),
        format!("{secret}  x: [MARKER-TEN\n"),
        format!("{secret}  x: *MARKER\n"),
        format!("{secret}\tx: MARKER-TEN\n"),
    ] {
        let shown = shown(&converted(&broken));
        assert!(CREDENTIALS.iter().all(|part| !shown.contains(part)), "{shown}");
    }
}

#[test]
fn without_triggers_nothing_is_sent_until_a_person_activates_them() {
    for Case { name, input, .. } in all() {
        let conversion = flux(&inputs(&input), &Options { no_triggers: true, ..options() });
        for manifest in conversion.manifests.iter().filter(|one| one.file.contains(".notification-")) {
            assert_eq!(objects(&manifest.text)[0]["spec"]["triggers"], json!([]), "{name}");
            // A person does what the comment says.
            let is_list = |line: &&str| {
                *line != "  triggers: []" && !line.contains("Flux has suspended") && !line.contains("To switch")
            };
            let active: Vec<_> = manifest.text.lines().filter(is_list).map(|line| line.replacen("  # ", "  ", 1)).collect();
            let active = objects(&active.join("\n")).remove(0);
            let plain = converted(&input);
            let plain = plain.manifests.iter().find(|one| one.file == manifest.file).unwrap();
            let expected = &objects(&plain.text)[0]["spec"]["triggers"];
            let is_suspended = expected.as_array().unwrap().is_empty();
            assert!(is_suspended || active["spec"]["triggers"] == *expected, "{name}: {}", manifest.text);
            assert!(!active["spec"]["triggers"].as_array().unwrap().is_empty(), "{name}: {}", manifest.text);
        }
        assert!(linted(&conversion, "default").findings.is_empty(), "{name}");
    }
}

const PROVIDER: &str = "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {name: chat, namespace: a}\n\
    spec:\n  type: googlechat\n  secretRef: {name: url}\n";
const ALERT: &str = "---\napiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {name: chat, namespace: a}\n\
    spec:\n  providerRef: {name: chat}\n  eventSources:\n    - {kind: Kustomization, name: '*'}\n";

#[test]
fn what_cannot_be_understood_is_an_error_with_its_line_and_nothing_is_written() {
    assert!(converted(&format!("{PROVIDER}{ALERT}")).manifests.len() == 2);
    for (from, to, line, words) in [
        ("  type: googlechat\n", "  type: googlechat\n  color: red\n", 6, "unknown field"),
        ("  type: googlechat\n", "  type: googlechta\n", 5, "did you mean googlechat?"),
        ("  type: googlechat\n", "  type: 5\n", 5, "not a text"),
        ("type: googlechat", "type: github", 4, "https://github.com/OWNER/REPOSITORY"),
        ("type: googlechat", "type: telegram", 4, "the receiver requires it"),
        ("  secretRef: {name: url}\n", "", 4, "there is no secretRef"),
        ("  secretRef: {name: url}", "  secretRef: {name: url, key: x}", 6, "unknown field"),
        ("  secretRef: {name: url}", "  secretRef: {name: URL}", 6, "not the name of a Secret"),
        ("v1beta3\nkind: Alert", "v1beta4\nkind: Alert", 8, "unknown version"),
        ("v1beta3\nkind: Alert", "v1\nkind: Alert", 8, "unknown version"),
        ("kind: Kustomization,", "kind: Kustomisation,", 14, "did you mean Kustomization?"),
        ("kind: Kustomization, ", "kind: Kustomization, color: red, ", 14, "unknown field"),
        ("name: '*'", "name: '*', namespace: 5", 14, "not a text"),
        ("name: '*'", "name: x, namespace: '*'", 14, "must be '*'"),
        ("name: '*'", "name: x, matchLabels: {a: b}", 14, "requires the name '*'"),
        ("name: '*'", "name: '*', matchLabels: {a: 5}", 14, "mapping of texts"),
        ("name: '*'", "namespace: b", 14, "is missing"),
        ("    - {kind: Kustomization, name: '*'}\n", "    []\n", 13, "needs 1 to 256 objects"),
        ("providerRef: {name: chat}", "providerRef: {name: other}", 12, "Provider a/other is not in the input"),
        ("  eventSources", "  eventSeverity: debug\n  eventSources", 13, "write info or error"),
        ("  eventSources", "  suspend: maybe\n  eventSources", 13, "unknown field, or a value of another type"),
        ("  eventSources", "  eventMetadata: {a: 5}\n  eventSources", 13, "unknown field, or a value of another type"),
        (
            "metadata: {name: chat, namespace: a}\nspec:\n  providerRef",
            "metadata: {namespace: a}\nspec:\n  providerRef",
            10,
            "must be the name",
        ),
        ("name: '*'", "name: '{{ .Values.name }}'", 14, "helm template"),
        ("name: '*'", "name: '${app}'", 14, "flux build kustomization"),
        ("---\n", "---\nresources: [in.yaml]\nnamespace: b\n---\n", 9, "kustomize build"),
    ] {
        let all = format!("{PROVIDER}{ALERT}");
        assert!(all.contains(from), "{from}");
        let conversion = converted(&all.replacen(from, to, 1));
        let errors: Vec<_> = conversion.report.of(List::Error).collect();
        assert!(errors.iter().any(|item| item.line == line && item.text.contains(words)), "{to}: {errors:#?}");
        assert!(conversion.manifests.is_empty() && conversion.steps.is_empty(), "{to}");
    }
    let template = converted(&format!("{PROVIDER}{ALERT}").replace("name: '*'}", "name: {{ .Values.name }}}"));
    assert!(template.report.of(List::Error).any(|item| item.text.contains("helm template")), "{:#?}", template.report);
    let twice = converted(&format!("{PROVIDER}{ALERT}{ALERT}"));
    assert!(twice.report.of(List::Error).any(|item| item.text.contains("twice in the input")), "{:#?}", twice.report);
}

/// Returns the endpoint for a Provider whose Secret has these keys, and what the report says about the Secret.
fn with_keys(spec: &str, keys: &str) -> (Value, String) {
    let secret =
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: keys, namespace: a}}\nstringData: {{{keys}}}\n---\n");
    let provider =
        PROVIDER.replace("type: googlechat\n  secretRef: {name: url}", &format!("{spec}\n  secretRef: {{name: keys}}"));
    let conversion = converted(&format!("{secret}{provider}{ALERT}"));
    let about = conversion.report.items.iter().find(|item| item.field == "spec.secretRef.name").unwrap();
    let said = format!("{:?}: {}", about.list, about.text);
    let notification = conversion.manifests.last().map(|one| objects(&one.text).remove(0));
    (notification.unwrap_or_else(|| panic!("{:#?}", conversion.report))["spec"]["endpoint"].clone(), said)
}

#[test]
fn the_keys_of_a_secret_decide_how_it_is_used() {
    let key = |key: &str| json!({"secretKeyRef": {"name": "keys", "key": key}});
    let token = |name: &str| json!({"token": key(name)});
    let whole = json!({"basic": {"secretRef": {"name": "keys"}}});
    let github = "type: github\n  address: https://github.com/acme/podinfo";
    for (spec, keys, endpoint, said) in [
        (
            github,
            "username: x, password: x",
            json!({"url": "https://api.github.com", "auth": token("password")}),
            "Converted: auth.token reads its key password",
        ),
        (
            github,
            "token: x, address: x",
            json!({"url": "https://api.github.com", "auth": token("token")}),
            "Differs: its key address, which Flux prefers, is not read",
        ),
        (
            "type: gitea\n  address: https://gitea.example.com/acme/podinfo",
            "token: x, ca.crt: x",
            json!({
                "url": "https://gitea.example.com", "auth": token("token"), "tls": {"caFrom": key("ca.crt")},
            }),
            "Converted: auth.token reads its key token; endpoint.tls.caFrom reads its key ca.crt",
        ),
        (
            "type: alertmanager\n  address: https://alerts.example.com",
            "username: x, password: x",
            json!({"url": "https://alerts.example.com", "auth": whole}),
            "Converted: auth.basic reads its keys username and password",
        ),
        (
            "type: zulip\n  address: https://acme.zulipchat.com\n  channel: deployments/flux\n  username: other",
            "username: x, password: x",
            json!({"url": "https://acme.zulipchat.com", "auth": whole}),
            "Converted: auth.basic reads its keys username and password",
        ),
        (
            "type: slack",
            "address: x, token: x",
            json!({"urlFrom": key("address"), "auth": token("token")}),
            "Converted: auth.token reads its key token; endpoint.urlFrom reads its key address",
        ),
        (
            "type: slack",
            "address: x, proxy: x",
            json!({"urlFrom": key("address")}),
            "Differs: endpoint.urlFrom reads its key address; its key proxy has no counterpart",
        ),
        (
            "type: generic-hmac\n  address: https://events.example.com",
            "token: x, headers: x",
            json!({
                "url": "https://events.example.com",
                "signing": {"scheme": "BodyHex", "secretRef": {"name": "chat-signing"}},
                "headersFrom": {"secretRef": {"name": "chat-headers"}},
            }),
            "Differs: endpoint.signing reads the token from a new Secret chat-signing",
        ),
    ] {
        let (found, text) = with_keys(spec, keys);
        assert_eq!(found, endpoint, "{spec}: {keys}");
        assert!(text.starts_with(said), "{spec}: {keys}: {text}");
    }
}

#[test]
fn a_provider_that_signs_in_to_a_cloud_does_not_stop_the_others() {
    let azure = "type: azuredevops\n  address: https://dev.azure.com/acme/platform/_git/podinfo\n  serviceAccountName: flux";
    let provider = PROVIDER.replace("type: googlechat\n  secretRef: {name: url}", azure);
    let conversion = converted(&format!("{provider}{ALERT}"));
    assert!(!conversion.report.has(List::Error) && conversion.manifests.is_empty(), "{:#?}", conversion.report);
    let text = conversion.report.of(List::NoCounterpart).find(|item| item.field == "spec.serviceAccountName");
    assert!(text.is_some_and(|item| item.text.contains("sign in")), "{:#?}", conversion.report);
}

#[test]
fn texts_of_an_alert_are_fields_or_are_mentioned() {
    for (type_, texts, field, list, fields) in [
        (
            "generic\n  address: https://events.example.com",
            "eventMetadata: {cluster: eu-1, team: red}",
            "spec.eventMetadata.cluster",
            List::NoCounterpart,
            Some("team: red"),
        ),
        (
            "googlechat",
            "summary: new\n  eventMetadata: {summary: old}",
            "spec.eventMetadata.summary",
            List::Ignored,
            Some("summary: new"),
        ),
        ("googlechat", "summary: ''\n  eventMetadata: {summary: old}", "spec.summary", List::Ignored, Some("summary: old")),
        ("googlechat", "inclusionList: []\n  exclusionList: []", "spec.exclusionList", List::Ignored, None),
        ("googlechat", "eventMetadata: {}", "spec.eventMetadata", List::Ignored, None),
    ] {
        let all = format!("{PROVIDER}{ALERT}").replace("googlechat", type_);
        let conversion = converted(&all.replace("  eventSources", &format!("  {texts}\n  eventSources")));
        assert!(!conversion.report.has(List::Error), "{texts}: {:#?}", conversion.report);
        let about: Vec<_> = conversion.report.items.iter().filter(|item| item.field == field).collect();
        assert!(about.len() == 1 && about[0].list == list, "{texts}: {about:#?}");
        let notification = objects(&conversion.manifests[1].text).remove(0);
        assert_eq!(notification["spec"]["template"]["parameters"]["fields"].as_str(), fields, "{texts}");
    }
}

#[test]
fn variables_of_flux_may_be_in_texts_that_are_copied() {
    let all =
        format!("{PROVIDER}{ALERT}").replace("  eventSources", "  eventMetadata: {cluster: '${cluster}'}\n  eventSources");
    let conversion = converted(&all);
    let fields = objects(&conversion.manifests[1].text).remove(0);
    assert_eq!(fields["spec"]["template"]["parameters"]["fields"], "cluster: ${cluster}");
    assert!(conversion.steps.iter().any(|step| step.contains("variables")), "{:?}", conversion.steps);
}

#[test]
fn other_files_of_a_folder_are_ignored_and_files_that_are_named_are_not() {
    let file = |name: &str, text: &str, is_found| Input { name: name.to_owned(), text: text.to_owned(), is_found };
    let all = format!("{PROVIDER}{ALERT}");
    let broken = "a: [\n";
    let conversion = flux(&[file("x/a.yaml", &all, true), file("x/b.yaml", broken, true)], &options());
    assert!(!conversion.report.has(List::Error) && conversion.manifests.len() == 2);
    let conversion = flux(&[file("x/a.yaml", &all, true), file("x/b.yaml", broken, false)], &options());
    assert!(conversion.report.of(List::Error).any(|item| item.file == "x/b.yaml" && item.text.starts_with("not YAML")));
    let patch = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\npatches: [{path: p.yaml}]\n";
    for (name, is_wrong) in [("x/kustomization.yaml", true), ("y/kustomization.yaml", false)] {
        let conversion = flux(&[file("x/a.yaml", &all, true), file(name, patch, true)], &options());
        assert_eq!(conversion.report.has(List::Error), is_wrong, "{name}");
    }
    // The values of a chart have such fields, too.
    let values = "resources: {}\nnamespace: x\n";
    let conversion = flux(&[file("x/a.yaml", &all, true), file("x/values.yaml", values, true)], &options());
    assert!(!conversion.report.has(List::Error));
    let list = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n";
    let conversion = flux(&[file("x/a.yaml", &all, true), file("x/kustomization.yaml", list, true)], &options());
    assert!(!conversion.report.has(List::Error));
    assert!(flux(&[], &options()).report.items.is_empty());
}

#[test]
fn steps_move_credentials_without_showing_them() {
    for (name, words) in [
        (
            "slack-plain-webhook",
            &["jsonpath='{.spec.address}' | kubectl create secret generic slack-address -n team-a --from-file=address="][..],
        ),
        (
            "pagerduty",
            &["jsonpath='{.spec.channel}' | kubectl create secret generic pagerduty-routing-key -n shop --from-file=token="],
        ),
        (
            "telegram",
            &[
                "printf 'https://api.telegram.org/bot%s/sendMessage'",
                "secret telegram-token -n default -o jsonpath='{.data.token}'",
            ],
        ),
        (
            "forges",
            &["{ IFS=: read -r user password; kubectl", "--from-literal=username=relaybook --from-file=password=/dev/stdin"],
        ),
        ("generic-headers", &["secret generic events-headers -n flux-system --from-literal=NAME=VALUE"]),
        (
            "services",
            &["kubectl patch secret zulip-login -n more -p '{\"stringData\":{\"username\":\"bot@acme.zulipchat.com\"}}'"],
        ),
        ("image-automation", &["{apiGroups: [image.toolkit.fluxcd.io], resources: [imagepolicies]}"]),
    ] {
        let Case { input, .. } = all().into_iter().find(|case| case.name == name).unwrap();
        let steps = converted(&input).steps.join("\n");
        assert!(words.iter().all(|word| steps.contains(word)), "{name}: {steps}");
    }
}

#[test]
fn hostile_files_are_refused() {
    let alias = |n: u32| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", "));
    let aliases = format!("a0: &a0 [x]\n{}", (1..12).map(alias).collect::<String>());
    let deep = format!("a: {}{}\n", "[".repeat(1_000), "]".repeat(1_000));
    for text in [aliases, deep] {
        let data = json!({"service.slack": "token: $a\n", "trigger.t": text});
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-notifications-cm"}, "data": data});
        let within = argocd(&inputs(&config.to_string()), &options());
        assert!(within.report.has(List::Error) && within.manifests.is_empty(), "{:#?}", within.report);
        for convert in [flux, argocd, weave, kargo] {
            let conversion = convert(&inputs(&text), &options());
            assert!(conversion.report.has(List::Error) && conversion.manifests.is_empty(), "{:#?}", conversion.report);
        }
    }
}
