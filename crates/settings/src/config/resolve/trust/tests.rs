//! Tests the credential rule with a table of attacks and of harmless cases.

use serde_json::{Value, json};

use super::*;
use crate::config::layers::{Layer, Source, fold};
use relaybook_api::delivery::Reason;

mod parameters;

fn checked(layers: &[Value]) -> Result<(), String> {
    let source = |at: usize| if at == 0 { Source::Notification } else { Source::Target(at.to_string()) };
    by(&layers.iter().cloned().enumerate().map(|(at, value)| (source(at), value)).collect::<Vec<_>>())
}

/// Checks layers from these sources.
fn by(layers: &[(Source, Value)]) -> Result<(), String> {
    folded(layers).map(drop)
}

/// Checks layers from these sources, and returns the merged `auth`. The layers of the global configuration are in a namespace of their own.
fn folded(layers: &[(Source, Value)]) -> Result<Value, String> {
    let layers = layers.iter().map(|(source, value)| {
        let remove = value.get("remove").and_then(Value::as_array).into_iter().flatten();
        let mut fields = value.as_object().cloned().unwrap_or_default();
        fields.remove("remove");
        let remove = remove.filter_map(|p| p.as_str().map(str::to_owned)).collect();
        let namespace = if *source < Source::Notification { "relaybook-system" } else { "team-a" };
        Layer { source: source.clone(), namespace: namespace.to_owned(), remove, value: fields }
    });
    let layers: Vec<_> = layers.collect();
    let mut history = ReceiverHistory::default();
    let folded = fold(&layers, |folded| history.see(folded)).unwrap();
    history.check(&folded).map_err(|problem| {
        assert_eq!(problem.reason(), Reason::CredentialOriginMismatch);
        problem.to_string()
    })?;
    Ok(folded.value.get("endpoint").and_then(|endpoint| endpoint.get("auth")).cloned().unwrap_or_default())
}

fn token() -> Value {
    json!({"token": {"secretKeyRef": {"name": "github", "key": "token"}}})
}

fn with_token(url: &str) -> Value {
    json!({"endpoint": {"url": url, "auth": token()}})
}

#[test]
fn credentials_are_not_sent_to_an_origin_of_a_more_specific_layer() {
    let api = "https://api.example.com/a";
    let from = json!({"secretKeyRef": {"name": "chat", "key": "url"}});
    let ca = json!({"configMapKeyRef": {"name": "ca", "key": "ca.crt"}});
    let attacks = [
        ("another host", with_token(api), json!({"endpoint": {"url": "https://evil.example.net/a"}})),
        ("a subdomain", with_token(api), json!({"endpoint": {"url": "https://api.example.com.evil.net/a"}})),
        ("another port", with_token(api), json!({"endpoint": {"url": "https://api.example.com:8443/a"}})),
        ("another scheme", with_token(api), json!({"endpoint": {"url": "http://api.example.com/a"}})),
        ("a trailing dot", with_token(api), json!({"endpoint": {"url": "https://api.example.com./a"}})),
        ("user info", with_token(api), json!({"endpoint": {"url": "https://api.example.com@evil.net/a"}})),
        ("a backslash", with_token(api), json!({"endpoint": {"url": "https://evil.net\\@api.example.com/a"}})),
        ("not a URL", with_token(api), json!({"endpoint": {"url": "nonsense"}})),
        ("another IPv6 address", with_token("https://[::1]/a"), json!({"endpoint": {"url": "https://[::2]/a"}})),
        ("url by urlFrom", with_token(api), json!({"endpoint": {"urlFrom": from}})),
        ("urlFrom by url", json!({"endpoint": {"urlFrom": from, "auth": token()}}), json!({"endpoint": {"url": api}})),
        (
            "another key",
            json!({"endpoint": {"urlFrom": from, "auth": token()}}),
            json!({"endpoint": {"urlFrom": {"secretKeyRef": {"name": "chat", "key": "mine"}}}}),
        ),
        ("no URL beneath", json!({"endpoint": {"auth": token()}}), json!({"endpoint": {"url": api}})),
        ("taken away first", with_token(api), json!({"remove": ["/endpoint/url"], "endpoint": {"url": "https://evil.net"}})),
        ("anybody answers", with_token(api), json!({"endpoint": {"tls": {"insecureSkipVerify": true}}})),
        ("its own authorities", with_token(api), json!({"endpoint": {"tls": {"caFrom": ca}}})),
        (
            "basic",
            json!({"endpoint": {"url": api, "auth": {"basic": {"secretRef": {"name": "a"}}}}}),
            json!({"endpoint": {"url": "https://evil.net"}}),
        ),
        (
            "signing",
            json!({"endpoint": {"url": api, "signing": {"secretRef": {"name": "a"}}}}),
            json!({"endpoint": {"url": "https://evil.net"}}),
        ),
        (
            "headers from a Secret",
            json!({"endpoint": {"url": api, "headersFrom": {"secretRef": {"name": "a"}}}}),
            json!({"endpoint": {"url": "https://evil.net"}}),
        ),
        (
            "a client certificate",
            json!({"endpoint": {"url": api, "tls": {"clientCertificate": {"secretRef": {"name": "a"}}}}}),
            json!({"endpoint": {"url": "https://evil.net"}}),
        ),
    ];
    for (what, beneath, above) in attacks {
        assert!(checked(&[beneath, above]).is_err(), "{what}");
    }
    // The layer that set the Secret reference counts, not the layer that set the header.
    let beneath = with_token(api);
    let above = json!({"endpoint": {"url": "https://evil.net", "auth": {"token": {"header": "X-Mine", "secretKeyRef": {"key": "b"}}}}});
    assert!(checked(&[beneath, above]).is_err());
    for header in
        ["Authorization", "authorization", "Cookie", "X-Api-Key", "X-Gitlab-Token", "PRIVATE-TOKEN", "X-Auth", "X-Secret"]
    {
        let beneath = json!({"endpoint": {"url": api, "headers": {header: "literal"}}});
        let error = checked(&[beneath, json!({"endpoint": {"url": "https://evil.net"}})]).unwrap_err();
        assert!(error.contains(header) && error.contains("target 1 of the Pipeline"), "{error}");
    }
    let beneath = json!({"endpoint": {"url": api}, "template": {"parameters": {"routingKey": "literal"}}});
    assert!(checked(&[beneath, json!({"endpoint": {"url": "https://evil.net"}})]).is_err());
}

#[test]
fn a_layer_of_another_namespace_does_not_judge_the_answers_to_credentials() {
    let rule = json!({"endpoint": {"success": "body.ok"}});
    let (global, pipeline) = (Source::Global, Source::Pipeline);
    let both = json!({"endpoint": {"success": "body.ok", "url": "https://a.example", "auth": token()}});
    for (what, layers, is_refused) in [
        (
            "of the platform's token",
            vec![(global.clone(), with_token("https://a.example")), (pipeline.clone(), rule.clone())],
            true,
        ),
        ("over the platform's rule", vec![(global.clone(), both.clone()), (pipeline.clone(), rule.clone())], true),
        ("with its own token", vec![(global.clone(), with_token("https://a.example")), (pipeline.clone(), both)], false),
        (
            "of its own namespace",
            vec![(Source::Notification, with_token("https://a.example")), (pipeline.clone(), rule.clone())],
            false,
        ),
        (
            "from beneath",
            vec![(global.clone(), rule.clone()), (Source::Notification, with_token("https://a.example"))],
            false,
        ),
        ("without credentials", vec![(global, json!({"endpoint": {"url": "https://a.example"}})), (pipeline, rule)], false),
    ] {
        let checked = by(&layers);
        assert_eq!(checked.is_err(), is_refused, "{what}: {checked:?}");
        assert!(checked.err().is_none_or(|error| error.contains("spec.endpoint.success is from the Pipeline")), "{what}");
    }
}

#[test]
fn a_layer_of_another_namespace_does_not_remember_answers_to_credentials() {
    let thread = |field: &str, value: Value| json!({"endpoint": {"thread": {(field): value}}});
    let mut beneath = with_token("https://a.example");
    beneath["endpoint"]["thread"] = json!({"remember": {"id": "body.id"}});
    for (field, value, is_refused) in [
        ("remember", json!({"more": "body.secret"}), true),
        ("update", json!({"lost": "body.secret == 'a'"}), true),
        ("update", json!({"append": "/{{remembered.id}}"}), false),
        ("key", json!("{{revision}}"), false),
        ("maxAge", json!("1h"), false),
    ] {
        let checked = by(&[(Source::Global, beneath.clone()), (Source::Pipeline, thread(field, value.clone()))]);
        assert_eq!(checked.is_err(), is_refused, "{field}: {checked:?}");
        let own = by(&[(Source::Notification, beneath.clone()), (Source::Pipeline, thread(field, value))]);
        assert_eq!(own, Ok(()), "{field}, of the same namespace");
    }
}

#[test]
fn a_layer_does_not_decide_which_tokens_another_one_requests() {
    let app = json!({"secretRef": {"name": "app"}, "repositories": ["acme/web"], "permissions": {"statuses": "write"}});
    let client = json!({"tokenUrl": "https://login.example", "secretRef": {"name": "client"}, "parameters": {"a": "b"}});
    let workload = json!({"tokenUrl": "https://login.example", "serviceAccount": {"name": "a", "audience": "b"}});
    let elsewhere = json!({"tokenUrl": "https://evil.example"});
    let with = |auth: Value| json!({"endpoint": {"url": "https://a.example", "auth": auth}});
    for (what, beneath, above, of_both) in [
        ("another origin", json!({"githubApp": app}), endpoint(json!({"url": "https://evil.example"})), None),
        ("another origin", json!({"oauth2": client}), endpoint(json!({"url": "https://evil.example"})), None),
        ("another origin", json!({"oauth2": workload}), endpoint(json!({"url": "https://evil.example"})), None),
        (
            "another endpoint",
            json!({"oauth2": workload}),
            with(json!({"oauth2": elsewhere})),
            Some(json!({"oauth2": elsewhere})),
        ),
        (
            "repositories without a Secret",
            json!({"githubApp": app}),
            with(json!({"githubApp": {"repositories": ["acme/*"]}})),
            Some(json!({"githubApp": {"repositories": ["acme/*"]}})),
        ),
        (
            "a client of its own",
            json!({"oauth2": client}),
            with(json!({"oauth2": {"tokenUrl": "https://evil.example", "secretRef": {"name": "own"}}})),
            Some(json!({"oauth2": {"tokenUrl": "https://evil.example", "secretRef": {"name": "own"}}})),
        ),
        ("another path", json!({"githubApp": app}), with(json!({})), Some(json!({"githubApp": app}))),
    ] {
        for from in [Source::Global, Source::Notification] {
            let found = folded(&[(from.clone(), with(beneath.clone())), (Source::Pipeline, above.clone())]);
            assert_eq!(found.ok(), of_both.clone(), "{what}, over {from}");
        }
    }
}

#[test]
fn layers_that_keep_the_origin_of_credentials_are_accepted() {
    let api = "https://api.example.com/a";
    for (what, layers) in [
        ("one layer", vec![with_token(api)]),
        ("another path", vec![with_token(api), json!({"endpoint": {"url": "https://api.example.com/b?c={{d}}"}})]),
        (
            "capitals and the default port",
            vec![with_token(api), json!({"endpoint": {"url": "https://API.example.COM:443/b"}})],
        ),
        (
            "spellings of IPv6",
            vec![with_token("https://[::1]/"), json!({"endpoint": {"url": "https://[0:0:0:0:0:0:0:1]/"}})],
        ),
        (
            "no credentials beneath",
            vec![
                json!({"endpoint": {"url": api, "headers": {"Accept": "a"}}}),
                json!({"endpoint": {"url": "https://b.net"}}),
            ],
        ),
        ("its own credentials", vec![with_token(api), with_token("https://b.net")]),
        ("credentials above a URL", vec![json!({"endpoint": {"url": api}}), json!({"endpoint": {"auth": token()}})]),
        (
            "away and back",
            vec![with_token(api), json!({"endpoint": {"url": "https://b.net"}}), json!({"endpoint": {"url": api}})],
        ),
        ("taken away", vec![with_token(api), json!({"remove": ["/endpoint/auth"], "endpoint": {"url": "https://b.net"}})]),
        ("nothing to send to", vec![with_token(api), json!({"remove": ["/endpoint/url"]})]),
        (
            "stricter",
            vec![
                json!({"endpoint": {"url": api, "auth": token(), "tls": {"insecureSkipVerify": true}}}),
                json!({"endpoint": {"tls": {"insecureSkipVerify": false}}}),
            ],
        ),
    ] {
        assert_eq!(checked(&layers), Ok(()), "{what}");
    }
}

/// A field of the endpoint.
fn endpoint(endpoint: Value) -> Value {
    Value::Object(Map::from_iter([("endpoint".to_owned(), endpoint)]))
}

fn of_secret(name: &str, key: &str) -> Value {
    json!({"secretKeyRef": {"name": name, "key": key}})
}

#[test]
fn no_team_redirects_credentials_of_the_global_configuration() {
    let (api, evil) = ("https://api.example.com/a", "https://evil.net/a");
    let from = of_secret("chat", "url");
    let ca = json!({"configMapKeyRef": {"name": "ca", "key": "ca.crt"}});
    let with_ca = endpoint(json!({"url": api, "auth": token(), "tls": {"caFrom": ca}}));
    let from_secret = endpoint(json!({"urlFrom": from, "auth": token()}));
    let api_key = endpoint(json!({"headers": {"X-Api-Key": "literal"}}));
    let signing = endpoint(json!({"signing": {"secretRef": {"name": "hmac"}}}));
    let headers_from = endpoint(json!({"url": api, "headersFrom": {"secretRef": {"name": "headers"}}}));
    let url = |url: &str| endpoint(json!({ "url": url }));
    let global = |layer: &Value| (Source::Global, layer.clone());
    let defaults = |layer: &Value| (Source::Defaults, layer.clone());
    let team = |layer: Value| (Source::Notification, layer);
    let pipeline = |layer: Value| (Source::Pipeline, layer);
    let target = |layer: Value| (Source::Target("prod/c/x".to_owned()), layer);
    for (what, layers) in [
        ("a team's URL under global auth", vec![global(&with_token(api)), team(url(evil))]),
        ("a target's", vec![global(&with_token(api)), team(json!({"suspend": false})), target(url(evil))]),
        ("a team's URL over a header of the defaults", vec![defaults(&api_key), team(url(api))]),
        ("a URL of the global notification over one", vec![defaults(&api_key), global(&url(api))]),
        ("a team's URL over signing of the defaults", vec![defaults(&signing), team(url(api))]),
        ("a team's URL under global headersFrom", vec![global(&headers_from), team(url(evil))]),
        ("urlFrom of a team", vec![global(&with_token(api)), team(endpoint(json!({"urlFrom": from})))]),
        ("url of a team under urlFrom", vec![global(&from_secret), pipeline(url(api))]),
        (
            "urlFrom, spelt the same, is a Secret of the team",
            vec![global(&from_secret), team(endpoint(json!({"urlFrom": from})))],
        ),
        (
            "away and back to urlFrom, spelt the same",
            vec![global(&from_secret), team(url(api)), pipeline(endpoint(json!({"urlFrom": from})))],
        ),
        (
            "caFrom, spelt the same, is a ConfigMap of the team",
            vec![global(&with_ca), team(endpoint(json!({"tls": {"caFrom": ca}})))],
        ),
        (
            "anybody answers to a URL that is secret",
            vec![global(&endpoint(json!({"urlFrom": from}))), team(endpoint(json!({"tls": {"insecureSkipVerify": true}})))],
        ),
        (
            "a team's authorities, and a URL that is secret",
            vec![global(&endpoint(json!({"urlFrom": from}))), team(endpoint(json!({"tls": {"caFrom": ca}})))],
        ),
        ("authorities taken away", vec![global(&with_ca), pipeline(json!({"remove": ["/endpoint/tls/caFrom"]}))]),
        (
            "taken away and anybody answers",
            vec![
                global(&with_ca),
                pipeline(json!({"remove": ["/endpoint/tls"], "endpoint": {"tls": {"insecureSkipVerify": true}}})),
            ],
        ),
        ("user info", vec![global(&with_token(api)), team(url("https://a:b@api.example.com/a"))]),
        (
            "an IPv4 address in IPv6",
            vec![global(&with_token("https://192.0.2.1/")), team(url("https://[::ffff:192.0.2.1]/"))],
        ),
        ("an IPv6 zone", vec![global(&with_token("https://[fe80::1]/")), team(url("https://[fe80::1%25eth0]/"))]),
        ("a tab in the scheme", vec![global(&with_token(api)), team(url("ht\ttps://api.example.com/a"))]),
        ("a host of templates", vec![global(&with_token(api)), team(url("https://{{environment}}.example.com/a"))]),
        (
            "only the header of the token is the team's",
            vec![
                global(&with_token(api)),
                team(endpoint(json!({"url": evil, "auth": {"token": {"header": "X-Mine", "scheme": ""}}}))),
            ],
        ),
    ] {
        assert!(by(&layers).is_err(), "{what}");
    }
}

#[test]
fn a_team_may_change_settings_that_keep_the_destination_of_credentials() {
    let api = "https://api.example.com/a";
    let url = |url: &str| endpoint(json!({ "url": url }));
    let global = |layer: Value| (Source::Global, layer);
    let team = |layer: Value| (Source::Notification, layer);
    let ca = json!({"configMapKeyRef": {"name": "ca", "key": "ca.crt"}});
    for (what, layers) in [
        ("capitals", vec![global(with_token(api)), team(url("https://API.Example.com/b"))]),
        ("the default port", vec![global(with_token("https://api.example.com:443")), team(url(api))]),
        (
            "spellings of IPv6",
            vec![global(with_token("https://[2001:db8::1]/")), team(url("https://[2001:DB8:0:0:0:0:0:1]:443/b"))],
        ),
        ("spellings of IPv4", vec![global(with_token("https://192.0.2.1/")), team(url("https://0xc0.0.0x2.1/b"))]),
        (
            "a name in Unicode",
            vec![global(with_token("https://b\u{fc}cher.example/")), team(url("https://xn--bcher-kva.example/b"))],
        ),
        (
            "its own credentials and authorities",
            vec![
                global(with_token(api)),
                team(endpoint(json!({"urlFrom": of_secret("room", "url"), "auth": token(), "tls": {"caFrom": ca}}))),
            ],
        ),
        (
            "its own URL that is secret, and its authorities",
            vec![
                global(endpoint(json!({"urlFrom": of_secret("chat", "url")}))),
                team(endpoint(json!({"urlFrom": of_secret("room", "url"), "tls": {"caFrom": ca}}))),
            ],
        ),
        (
            "defaults with all that belongs together",
            vec![(Source::Defaults, with_token(api)), global(json!({"triggers": []})), team(json!({"suspend": true}))],
        ),
    ] {
        assert_eq!(by(&layers), Ok(()), "{what}");
    }
}
