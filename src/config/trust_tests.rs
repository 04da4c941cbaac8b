//! The credential rule, by a table of attacks and of what is harmless.

use serde_json::{Value, json};

use super::super::layers::{Layer, Source, fold};
use super::*;

fn checked(layers: &[Value]) -> Result<(), String> {
    let source = |at: usize| if at == 0 { Source::Notification } else { Source::Target(at.to_string()) };
    let layers = layers.iter().zip(0..).map(|(value, at)| {
        let remove = value.get("remove").and_then(Value::as_array).into_iter().flatten();
        let mut fields = value.as_object().cloned().unwrap_or_default();
        fields.remove("remove");
        let remove = remove.filter_map(|p| p.as_str().map(str::to_owned)).collect();
        Layer { source: source(at), namespace: "team-a".to_owned(), remove, value: fields }
    });
    let layers: Vec<_> = layers.collect();
    let mut ways = Ways::default();
    let folded = fold(&layers, |folded| ways.see(folded)).unwrap();
    ways.check(&folded).map_err(|problem| {
        assert_eq!(problem.reason(), "CredentialOriginMismatch");
        problem.to_string()
    })
}

fn token() -> Value {
    json!({"token": {"secretKeyRef": {"name": "github", "key": "token"}}})
}

fn with_token(url: &str) -> Value {
    json!({"endpoint": {"url": url, "auth": token()}})
}

#[test]
fn credentials_do_not_go_where_a_more_specific_layer_leads() {
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
            "a client certificate",
            json!({"endpoint": {"url": api, "tls": {"clientCertificate": {"secretRef": {"name": "a"}}}}}),
            json!({"endpoint": {"url": "https://evil.net"}}),
        ),
    ];
    for (what, beneath, above) in attacks {
        assert!(checked(&[beneath, above]).is_err(), "{what}");
    }
    // Whose the Secret is counts, not who says in which header it goes.
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
fn what_is_harmless_is_let_through() {
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
