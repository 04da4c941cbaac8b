//! Table tests that resolve notifications.

use http::HeaderName;
use serde_json::{Value, json};

use super::*;
use crate::render::Data;
use relaybook_api::notification::credentials::{AuthRef, SignatureForm};
use relaybook_api::{Notification, TransitionType};

fn notification(endpoint: &Value, template: &Value) -> Notification {
    serde_json::from_value(json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "n", "namespace": "team-a"},
        "spec": {"triggers": [{"type": "Deployed"}], "endpoint": endpoint, "template": template},
    }))
    .unwrap()
}

fn understood(endpoint: &Value, template: &Value) -> Result<Sending, String> {
    resolve(&notification(endpoint, template), &Given::nothing()).sending.map_err(|problem| problem.to_string())
}

fn rendered(endpoint: &Value, template: &Value) -> Result<Rendered, String> {
    let sending = understood(endpoint, template)?;
    sending.render(&Data::sample(TransitionType::Deployed)).map_err(|problem| problem.to_string())
}

fn dispatch() -> Value {
    json!({"builtin": "github-repository-dispatch", "parameters": {"owner": "acme", "repository": "podinfo"}})
}

#[test]
fn a_built_in_template_completes_the_path_of_the_url() {
    let path = "/repos/acme/podinfo/dispatches";
    for (url, expected) in [
        ("https://api.github.com", Ok(format!("https://api.github.com{path}"))),
        ("https://api.github.com/", Ok(format!("https://api.github.com{path}"))),
        ("https://[::1]:8443", Ok(format!("https://[::1]:8443{path}"))),
        ("https://ghe.example.com/api/v3", Ok(format!("https://ghe.example.com/api/v3{path}"))),
        ("https://ghe.example.com/api/v3/repos/acme", Ok(format!("https://ghe.example.com/api/v3{path}"))),
        ("https://ghe.example.com/api/v3/x?", Ok("https://ghe.example.com/api/v3/x?".to_owned())),
        ("https://ghe.example.com/{{environment}}", Ok("https://ghe.example.com/prod".to_owned())),
        ("https://ghe.example.com//", Ok("https://ghe.example.com//".to_owned())),
        ("https://api.github.com?a=b", Err("has a query but no path")),
        ("https://api.github.com/?a=b", Err("has a query but no path")),
        ("https://api.github.com/#a", Err("has a query but no path")),
        ("https:///x", Err("host")),
        ("https://", Err("host")),
    ] {
        let found = rendered(&json!({"url": url}), &dispatch());
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert!(found.address == Address::Url(expected.parse().unwrap()), "{url}"),
            (Err(found), Err(word)) => assert!(found.contains(word), "{url}: {found}"),
            (found, _) => panic!("{url}: {found:?}"),
        }
    }
    // A URL without a path stays as it is if the template has no path either.
    let inline = json!({"inline": {"body": "{}"}});
    assert!(rendered(&json!({"url": "https://example.com?a=b"}), &inline).is_ok());
}

#[test]
fn headers_and_method_of_the_user_override_those_of_the_built_in_template() {
    let headers = json!({"ACCEPT": "text/plain", "X-Own": "{{environment}}"});
    let found = rendered(&json!({"url": "https://api.github.com", "headers": headers}), &dispatch()).unwrap();
    let headers: Vec<_> = found.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    assert_eq!(headers, ["accept: text/plain", "x-github-api-version: 2022-11-28", "x-own: prod"]);
    let twice = json!({"url": "https://api.github.com", "headers": {"X-A": "1", "x-a": "2"}});
    assert!(rendered(&twice, &dispatch()).unwrap_err().contains("occurs twice"));
    let sending = understood(&json!({"url": "https://api.github.com", "method": "PUT"}), &dispatch()).unwrap();
    assert_eq!(sending.method.as_str(), "PUT");
}

#[test]
fn a_built_in_template_sets_header_and_scheme_of_a_token() {
    let token = |builtin: &str, more: Value| {
        let mut token = json!({"secretKeyRef": {"name": "s", "key": "k"}});
        json_patch::merge(&mut token, &more);
        let endpoint = json!({"url": "https://example.com/x", "auth": {"token": token}});
        match understood(&endpoint, &json!({"builtin": builtin})).unwrap().auth {
            Some(AuthRef::Token { header, scheme, .. }) => format!("{header}: {scheme}"),
            other => panic!("{other:?}"),
        }
    };
    for (builtin, more, expected) in [
        ("opsgenie", json!({}), "authorization: GenieKey"),
        ("opsgenie", json!({"header": "Authorization"}), "authorization: GenieKey"),
        ("opsgenie", json!({"scheme": "Basic"}), "authorization: Basic"),
        ("opsgenie", json!({"header": "X-Key"}), "x-key: "),
        ("datadog-event", json!({}), "dd-api-key: "),
        ("datadog-event", json!({"header": "Authorization"}), "authorization: Bearer"),
        ("generic", json!({}), "authorization: Bearer"),
        ("generic", json!({"header": "X-Key"}), "x-key: "),
    ] {
        assert_eq!(token(builtin, more.clone()), expected, "{builtin} {more}");
    }
}

#[test]
fn a_signature_has_its_own_header() {
    let signed = |builtin: &str, auth: Value, more: Value| {
        let mut signing = json!({"secretRef": {"name": "hmac"}});
        json_patch::merge(&mut signing, &more);
        let endpoint = json!({"url": "https://example.com/x", "auth": auth, "signing": signing});
        understood(&endpoint, &json!({"builtin": builtin})).map(|sending| sending.signing.unwrap().form)
    };
    let basic = json!({"basic": {"secretRef": {"name": "s"}}});
    let token = json!({"token": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let body = |name: &'static str| Ok(SignatureForm::BodyHex(HeaderName::from_static(name)));
    let refused: Result<_, &str> = Err("spec.endpoint.signing.header");
    for (builtin, auth, more, expected) in [
        ("generic", &basic, json!({}), Ok(SignatureForm::StandardWebhooks)),
        ("generic", &basic, json!({"scheme": "StandardWebhooks"}), Ok(SignatureForm::StandardWebhooks)),
        ("generic", &basic, json!({"scheme": "BodyHex"}), body("x-signature")),
        ("generic", &basic, json!({"scheme": "BodyHex", "header": "X-Hub-Signature-256"}), body("x-hub-signature-256")),
        ("generic", &basic, json!({"scheme": "BodyHex", "header": "Authorization"}), refused.clone()),
        ("datadog-event", &token, json!({"scheme": "BodyHex", "header": "DD-API-KEY"}), refused.clone()),
        ("generic", &token, json!({"scheme": "BodyHex", "header": "X A"}), refused),
    ] {
        match (signed(builtin, auth.clone(), more.clone()), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{more}"),
            (Err(problem), Err(field)) => assert!(problem.starts_with(field), "{problem}"),
            (found, _) => panic!("{builtin}, {more}: {found:?}"),
        }
    }
}

/// A line that is wrong is found whatever the sample is, also in a copy of a built-in template. There, too, a field that cannot be rendered is
/// left out of the text.
#[test]
fn fields_of_a_template_are_named_lines() {
    let endpoint = json!({"url": "https://a.example/in"});
    let wrong = "spec.template.parameters.fields: field 1 has no literal name";
    let copy = "{{parameters.fields}}{{#if (eq type \"\")}}{{#each parameters.fields}}{{this}}{{/each}}{{/if}}";
    let copy = json!({"inline": {"contentType": "text/plain", "body": copy}});
    for template in [json!({"builtin": "slack"}), json!({"builtin": "discord"}), copy] {
        for (fields, problem) in [
            ("Team: a\nSaid: {{message}}", None),
            ("Team: a\nCommit: {{commit environment}}", None),
            ("payments", Some(wrong)),
            ("{{#if drifted}}Team: a{{/if}}", Some(wrong)),
            ("{{environment}}: a", Some(wrong)),
        ] {
            let mut template = template.clone();
            template["parameters"] = json!({"fields": fields});
            let found = understood(&endpoint, &template).err();
            assert_eq!(found.is_some(), problem.is_some(), "{fields}: {found:?}");
            assert!(
                problem.is_none_or(|problem| found.as_ref().is_some_and(|found| found.contains(problem))),
                "{fields}: {found:?}"
            );
        }
    }
}

#[test]
fn unknown_and_missing_parameters_of_a_built_in_template_are_reported() {
    let github = json!({"url": "https://api.github.com"});
    let whole = json!({"url": "https://api.github.com/repos/acme/podinfo/dispatches"});
    let with = |parameters: Value| json!({"builtin": "github-repository-dispatch", "parameters": parameters});
    for (endpoint, parameters, words) in [
        (&github, json!({}), &["missing: spec.template.parameters.owner (", "spec.template.parameters.repository ("][..]),
        (&github, json!({"owner": "a"}), &["parameters.repository"]),
        (&github, json!({"owner": "a", "repositry": "b"}), &["parameters.repositry", "did you mean repository?"]),
        (
            &github,
            json!({"owner": "a", "repository": "b", "zzz": ""}),
            &["parameters.zzz", "its parameters are owner, repository"],
        ),
        (
            &github,
            json!({"owner": "a", "repository": "{{nope}}"}),
            &["spec.template.parameters.repository: line 1, column 1"],
        ),
        (
            &github,
            json!({"owner": "", "repository": "b"}),
            &["spec.template.builtin github-repository-dispatch, path", "empty"],
        ),
        (&github, json!({"owner": "{{parameters.repository}}", "repository": "b"}), &["parameters.owner", "no field"]),
        (&whole, json!({"owner": "{{commit environment}}"}), &[]),
        // A parameter that only the template's path uses is optional if the URL has its own path.
        (&whole, json!({}), &[]),
    ] {
        let problem = understood(endpoint, &with(parameters.clone())).err().unwrap_or_default();
        assert!(
            words.iter().all(|word| problem.contains(word)) && words.is_empty() == problem.is_empty(),
            "{parameters}: {problem}"
        );
    }
    for (parameters, reason) in [
        (json!({"owner": "a"}), "Incomplete"),
        (json!({"owner": "a", "repositry": "b"}), "InvalidSpec"),
        (json!({"owner": "a", "repository": "{{nope}}"}), "TemplateInvalid"),
    ] {
        let problem = resolve(&notification(&github, &with(parameters)), &Given::nothing()).sending.unwrap_err();
        assert_eq!(problem.reason().as_str(), reason, "{problem}");
    }
    let of_pipeline = rendered(&github, &with(json!({"owner": "acme", "repository": "{{pipeline.name}}"}))).unwrap();
    assert!(of_pipeline.address == Address::Url("https://api.github.com/repos/acme/podinfo/dispatches".parse().unwrap()));
    let inline = |body: &str| json!({"inline": {"body": body}, "parameters": {"room": "{{environment}}"}});
    let found =
        rendered(&json!({"url": "https://example.com/{{parameters.room}}"}), &inline(r#"{"a":"{{parameters.room}}"}"#));
    assert_eq!(found.unwrap().body, r#"{"a":"prod"}"#);
    let problem = understood(&json!({"url": "https://example.com/"}), &inline(r#"{"a":"{{parameters.rom}}"}"#)).unwrap_err();
    assert!(problem.contains("`parameters.rom`; did you mean `parameters.room`?"), "{problem}");
}

#[test]
fn a_missing_or_invalid_config_map_of_a_template_has_its_reason() {
    let template = json!({"configMapKeyRef": {"name": "texts", "key": "body", "contentType": "text/plain"}});
    let notification = notification(&json!({"url": "https://example.com/"}), &template);
    for (text, reason, word) in [
        (Text::Unknown, "ConfigMapUnknown", "not been read"),
        (Text::Unreadable, "ConfigMapUnreadable", "list and watch"),
        (Text::NoConfigMap, "ConfigMapMissing", "ConfigMap team-a/texts does not exist"),
        (Text::NoKey, "ConfigMapMissing", "has no key body"),
        (Text::Found("{{nope}}".into()), "TemplateInvalid", "ConfigMap team-a/texts, key body: line 1, column 1"),
        (Text::Found("a".repeat(70_000).into()), "TemplateInvalid", "70000 bytes"),
    ] {
        let given = Given { allow_http: false, text: &|_| text.clone() };
        let problem = resolve(&notification, &given).sending.unwrap_err();
        assert!(problem.reason().as_str() == reason && problem.to_string().contains(word), "{problem}");
        assert_eq!(problem.is_unknown(), reason == "ConfigMapUnknown");
    }
    assert_eq!(config_maps(&notification).len(), 1);
}

#[test]
fn a_problem_of_a_layer_names_the_layer() {
    use super::layers::{Layer, Source};
    let base =
        Layer::of_notification(&notification(&json!({"url": "https://example.com/in"}), &json!({"inline": {"body": "{}"}})));
    let layer = |value: Value| Layer {
        namespace: "team-a".to_owned(),
        source: Source::Target("prod/c/x".into()),
        remove: Vec::new(),
        value: value.as_object().cloned().unwrap(),
    };
    let resolved = |value: Value| resolve_layers(&[base.clone(), layer(value)], "team-a", "u", &Given::nothing());
    for (value, reason, words) in [
        (json!({"template": {"inline": {"body": "{{nothing}}"}}}), "TemplateInvalid", "spec.template.inline.body"),
        (json!({"endpoint": {"url": "http://example.com"}}), "InsecureScheme", "spec.endpoint.url"),
        (json!({"endpoint": {"timeout": "2m"}}), "InvalidSpec", "spec.endpoint.timeout"),
        (json!({"endpoint": {"headers": {"Host": "a"}}}), "InvalidSpec", "spec.endpoint.headers[Host]"),
        (json!({"endpoint": {"method": "GET"}}), "InvalidSpec", "spec.endpoint.method"),
    ] {
        let problem = resolved(value).sending.unwrap_err();
        let text = problem.to_string();
        assert_eq!(problem.reason().as_str(), reason, "{text}");
        assert!(text.starts_with(words), "{text}");
        assert!(
            reason == "InvalidSpec" && words.ends_with("method") || text.ends_with("(from target prod/c/x of the Pipeline)"),
            "{text}"
        );
    }
    let fine = resolved(json!({"triggers": [], "delivery": {"supersede": true}}));
    assert!(fine.sending.is_ok() && fine.delivery.supersede && fine.uid == "u");
    assert!(!fine.intake.unwrap().triggers.wants(TransitionType::Deployed, "prod"));
}

#[test]
fn literal_credentials_belong_to_the_namespace_of_their_layer() {
    use super::layers::{Layer, Source};
    let layer = |source, namespace: &str, value: Value| Layer {
        namespace: namespace.to_owned(),
        source,
        remove: Vec::new(),
        value: value.as_object().cloned().unwrap(),
    };
    let platform = json!({
        "triggers": [{"type": "Deployed"}],
        "endpoint": {"url": "https://example.com/in", "headers": {"X-Api-Key": "s3cr3t", "X-Org": "acme"}},
        "template": {"inline": {"body": "{\"a\": \"{{parameters.routingKey}}\"}"}, "parameters": {"routingKey": "r0uting", "room": "x"}},
    });
    for (team, expected) in [
        (
            json!({"endpoint": {"headers": {"X-Org": "team"}}, "template": {"parameters": {"room": "y"}}}),
            &["relaybook-system"][..],
        ),
        (json!({"template": {"parameters": {"routingKey": "ours"}}}), &["relaybook-system", "team-a"]),
        (
            json!({"endpoint": {"headers": {"X-Api-Key": "ours"}}, "template": {"parameters": {"routingKey": "ours"}}}),
            &["team-a"],
        ),
    ] {
        let layers =
            [layer(Source::Global, "relaybook-system", platform.clone()), layer(Source::Notification, "team-a", team)];
        let sending = resolve_layers(&layers, "team-a", "u", &Given::nothing()).sending.unwrap();
        assert_eq!(sending.credentials_from().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_trigger_that_a_built_in_template_cannot_report_is_refused() {
    let with = |builtin: &str, types: &[&str]| {
        let parameters = if builtin == "slack" { json!({}) } else { json!({"owner": "acme", "repository": "podinfo"}) };
        let mut all =
            notification(&json!({"url": "https://api.github.com"}), &json!({"builtin": builtin, "parameters": parameters}));
        all.spec.triggers =
            serde_json::from_value(json!(types.iter().map(|t| json!({"type": t})).collect::<Vec<_>>())).unwrap();
        resolve(&all, &Given::nothing()).sending
    };
    let offline = ["Deployed", "ClusterOffline", "ClusterOnline"];
    let problem = with("github-commit-status", &offline).unwrap_err();
    assert_eq!((problem.reason().as_str(), problem.pointer().as_deref()), ("InvalidSpec", Some("/triggers")));
    assert_eq!(
        problem.to_string(),
        "spec.triggers: github-commit-status cannot report ClusterOffline or ClusterOnline: a cluster has no commit, and \
         the next transition of an added object has its status; remove this trigger, or use another notification for it",
    );
    assert!(with("github-commit-status", &["Deployed", "Drifted", "EnvironmentReady", "PipelineReady"]).is_ok());
    assert!(with("slack", &offline).is_ok());
}

#[test]
fn only_the_body_can_use_what_a_forge_is_asked_for() {
    let text =
        |body: &str| json!({"inline": {"contentType": "text/plain", "body": body}, "parameters": {"by": "{{git.author}}"}});
    let plain = json!({"url": "https://example.com/in"});
    for (body, commit, pull_request) in [
        ("{{revision}} {{json @root}} {{git.sha}}", false, false),
        ("{{#if git.author}}by {{git.author}}{{/if}}", true, false),
        ("{{parameters.by}} {{pullRequest.url}}", true, true),
    ] {
        let sending = understood(&plain, &text(body)).unwrap();
        assert_eq!((sending.look_ups.commit, sending.look_ups.pull_request), (commit, pull_request), "{body}");
        assert_eq!(sending.longest() > sending.timeout, commit || pull_request);
    }
    for (endpoint, field) in [
        (json!({"url": "https://example.com/in?by={{git.author}}"}), "spec.endpoint.url"),
        (json!({"url": "https://example.com/in?by={{parameters.by}}"}), "spec.endpoint.url"),
        (
            json!({"url": "https://example.com/in", "headers": {"X-By": "{{pullRequest.author}}"}}),
            "spec.endpoint.headers[X-By]",
        ),
        (
            json!({"url": "https://example.com/in", "thread": {"key": "{{git.message}}", "remember": {"id": "body.id"}}}),
            "spec.endpoint.thread.key",
        ),
        (
            json!({"url": "https://example.com/in", "thread": {
                "key": "{{revision}}", "remember": {"id": "body.id"}, "update": {"append": "/{{parameters.by}}"},
            }}),
            "spec.endpoint.thread.update.append",
        ),
    ] {
        let problem = understood(&endpoint, &text("{{environment}}")).unwrap_err();
        assert!(problem.starts_with(field) && problem.contains("only the body can use"), "{problem}");
    }
    // If the body asks, all data contain the answer.
    let key = json!({"url": "https://example.com/in", "thread": {"key": "{{json git}}", "remember": {"id": "body.id"}}});
    assert!(understood(&key, &text("{{json git}}")).is_ok());
    let problem = understood(&key, &text("{{git.author}}")).unwrap_err();
    assert!(problem.starts_with("spec.endpoint.thread.key") && problem.contains("only the body can use"), "{problem}");
    // It is tried with an answer, and without one.
    for (body, words) in [
        ("{{date git.time}}", "tried with a sample of Deployed"),
        ("{{#if git.message}}{{date git.message}}{{/if}}", "tried with a sample of Deployed and an answer of the forge"),
    ] {
        let problem = understood(&plain, &text(body)).unwrap_err();
        assert!(problem.contains(words), "{body}: {problem}");
    }
    assert!(understood(&plain, &text("{{#if git.time}}{{date git.time}}{{/if}}")).is_ok());
}
