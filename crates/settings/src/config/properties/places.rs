//! A reference resolves in the namespace of the layer that set it. No team can make one resolve in the namespace of the platform, or send
//! the platform's credentials to another receiver.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::*;
use crate::config::layers::{Folded, fold};
use crate::config::{Destination, Sending, resolve_layers};
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::{AuthRef, Authorities, SecretKey};

/// The name of the author. Generated values contain it, so that the result shows which layer each value is from.
pub(super) fn tag(source: &Source) -> &'static str {
    match source {
        Source::BuiltIn => unreachable!("nobody writes it"),
        Source::Defaults => "defaults",
        Source::Global => "global",
        Source::Notification => "notification",
        Source::LayerNamespace(_) => "workspace",
        Source::Pipeline => "pipeline",
        Source::Environment(_) => "environment",
        Source::Target(_) => "target",
    }
}

/// References of every kind, to objects of these names and keys.
fn references(names: &[&str], keys: &[&str], url: &BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let pairs = |also: &'static str| {
        let pairs = names.iter().flat_map(|name| keys.iter().map(move |key| (*name, *key)));
        one_of(pairs.map(|(name, key)| json!({"name": name, "key": if also.is_empty() { key } else { also }})))
    };
    let key = |also| only("secretKeyRef", pairs(also));
    let secret = || only("secretRef", one_of(names.iter().map(|name| json!({"name": name}))));
    let authorities = prop_oneof![key(""), only("configMapKeyRef", pairs("ca"))];
    let tls = some(vec![("caFrom", authorities.boxed()), ("clientCertificate", secret())]);
    let endpoint = some(vec![
        ("url", url.clone()),
        ("auth", prop_oneof![only("basic", secret()), only("token", key(""))].boxed()),
        ("headersFrom", secret()),
        ("signing", secret()),
        ("tls", prop_oneof![3 => tls, 1 => Just(json!({"insecureSkipVerify": true}))].boxed()),
    ]);
    let from = (endpoint.clone(), key("")).prop_map(|(mut endpoint, from)| {
        if let Value::Object(fields) = &mut endpoint {
            fields.remove("url");
            fields.insert("urlFrom".to_owned(), from);
        }
        endpoint
    });
    let template = prop_oneof![only("configMapKeyRef", pairs("")), Just(json!({"builtin": "generic"}))];
    some(vec![("endpoint", prop_oneof![endpoint, from].boxed()), ("template", template.boxed())])
}

fn with_remove(source: &Source, layer: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    if *source < Source::Pipeline {
        return layer;
    }
    let pointers = [
        "/endpoint/url",
        "/endpoint/auth",
        "/endpoint/auth/token/header",
        "/endpoint/tls",
        "/endpoint/tls/caFrom",
        "/template/configMapKeyRef/contentType",
        "/endpoint/signing",
    ];
    (layer, subsequence(pointers.to_vec(), 0..=2))
        .prop_map(|(mut layer, remove)| {
            layer["remove"] = json!(remove);
            layer
        })
        .boxed()
}

fn url(host: &str) -> Value {
    json!(format!("https://{host}.example.com/in"))
}

/// Names and keys contain the name of the author.
fn tagged(source: &Source) -> BoxedStrategy<Value> {
    let tag = tag(source);
    with_remove(source, references(&[tag], &[tag], &one_of([url("one")])))
}

/// All layers use the same names and keys, and few hosts.
fn alike(source: &Source) -> BoxedStrategy<Value> {
    with_remove(source, references(&["a", "b"], &["a", "b"], &one_of([url("one"), url("two")])))
}

/// All references: the purpose, the namespace, and the names (object and key).
fn all(sending: &Sending, config_maps: &[ConfigMapKey]) -> Vec<(&'static str, String, Vec<String>)> {
    let key = |what, key: &SecretKey| (what, key.namespace.clone(), vec![key.name.clone(), key.key.clone()]);
    let secret = |what, name: &ObjectName| (what, name.namespace.clone(), vec![name.name.clone()]);
    let mut all = Vec::new();
    if let Destination::Secret(from) = &sending.destination {
        all.push(key("urlFrom", from));
    }
    match &sending.auth {
        Some(AuthRef::Basic { namespace, name }) => all.push(("basic", namespace.clone(), vec![name.clone()])),
        Some(AuthRef::Token { secret, .. }) => all.push(key("token", secret)),
        Some(AuthRef::GithubApp(app)) => all.push(secret("githubApp", &app.secret)),
        Some(AuthRef::OAuth2(client)) => all.push(secret("oauth2", &client.secret)),
        Some(AuthRef::Workload(workload)) => all.push(secret("oauth2", &workload.account)),
        None => {}
    }
    all.extend(sending.headers_from.iter().map(|name| secret("headersFrom", name)));
    all.extend(sending.signing.iter().map(|signing| secret("signing", &signing.secret)));
    all.extend(sending.tls.client_certificate.iter().map(|name| secret("clientCertificate", name)));
    match &sending.tls.authorities {
        Authorities::Secret(from) => all.push(key("caFrom secret", from)),
        // The text names the key that it is from.
        Authorities::Pem(pem) => {
            let (namespace, rest) = pem.strip_prefix(PEM).unwrap().split_once('/').unwrap();
            all.push(("caFrom config map", namespace.to_owned(), vec![rest.split_once(',').unwrap().0.to_owned()]));
        }
        Authorities::System => {}
    }
    let templates = config_maps.iter().filter(|key| key.key != "ca");
    all.extend(templates.map(|key| ("template", key.namespace.clone(), vec![key.name.clone(), key.key.clone()])));
    all
}

/// These layers over a complete layer, which is from the source `bottom`.
fn layered(bottom: &Source, layers: &[(Source, Value)]) -> Vec<Layer> {
    let whole = json!({"endpoint": {"url": url("one")}, "template": {"builtin": "generic"}, "triggers": []});
    let bottom = written(bottom, namespace(bottom), &whole);
    [bottom].into_iter().chain(layers.iter().map(|(source, value)| written(source, namespace(source), value))).collect()
}

#[test]
fn a_reference_resolves_in_the_namespace_of_its_author() {
    let seen = RefCell::new(BTreeMap::new());
    try_all(4000, &any_layers(tagged), |layers| {
        let layers = layered(&Source::Defaults, &layers);
        let effective = resolve_layers(&layers, TEAM, "uid", &given());
        let Ok(sending) = &effective.sending else { return Ok(()) };
        for (what, found, names) in all(sending, &effective.config_maps) {
            let author = sources().into_iter().find(|source| tag(source) == names[0]).unwrap();
            prop_assert_eq!(&found, namespace(&author), "{} of {}", what, author);
            prop_assert!(names.iter().all(|name| *name == names[0]), "{} is in pieces: {:?}", what, names);
            *seen.borrow_mut().entry((what, found)).or_insert(0) += 1;
        }
        Ok(())
    });
    let seen = seen.into_inner();
    assert_eq!(seen.len(), 27, "each of nine kinds in the three namespaces: {seen:?}");
}

/// Layers that no schema has checked, with incomplete references.
fn in_pieces(source: &Source) -> BoxedStrategy<Value> {
    let tag = tag(source);
    let half = move || one_of([json!({"name": tag}), json!({"key": tag}), json!({"name": tag, "key": tag})]);
    let paths = ["urlFrom", "auth/token", "tls/caFrom"];
    let endpoint = subsequence(paths.to_vec(), 0..=3)
        .prop_flat_map(move |paths| paths.into_iter().map(|path| (Just(path), half())).collect::<Vec<_>>());
    (endpoint, half())
        .prop_map(|(endpoint, template)| {
            let mut layer = json!({"template": {"configMapKeyRef": template}});
            for (path, half) in endpoint {
                let at = path.split('/').rev().fold(json!({"secretKeyRef": half}), |inner, name| json!({ name: inner }));
                json_patch::merge(&mut layer, &json!({"endpoint": at}));
            }
            layer
        })
        .boxed()
}

#[test]
fn a_reference_written_by_several_layers_resolves_in_the_namespace_of_the_last() {
    let both = Cell::new(0);
    try_all(300, &any_layers(in_pieces), |layers| {
        let raw = |(source, value): &(Source, Value)| {
            let value = value.as_object().cloned().unwrap_or_default();
            Layer { source: source.clone(), namespace: namespace(source).to_owned(), remove: Vec::new(), value }
        };
        let layers: Vec<_> = layers.iter().map(raw).collect();
        let folded = fold(&layers, |_| {}).unwrap();
        let whole = Value::Object(folded.value.clone());
        for at in
            ["/endpoint/urlFrom", "/endpoint/auth/token/secretKeyRef", "/endpoint/tls/caFrom", "/template/configMapKeyRef"]
        {
            let Some(reference) = whole.pointer(at) else { continue };
            let reference = reference.get("secretKeyRef").unwrap_or(reference);
            let parts: Vec<_> = reference.as_object().unwrap().values().filter_map(Value::as_str).collect();
            let authors: Vec<_> = sources().into_iter().filter(|source| parts.contains(&tag(source))).collect();
            let expected = authors.last().map(namespace);
            prop_assert_eq!(folded.namespace(at), expected, "{} {:?}", at, parts);
            both.set(both.get() + i32::from(authors.first().map(namespace) != expected));
        }
        Ok(())
    });
    assert!(both.get() > 20, "{} are of both", both.get());
}

/// A reference as it is written, and where it resolves.
type Written = Option<(Value, Option<String>)>;

/// The receiver that the layers set: the URL or its reference, the reference to CA certificates, and whether any certificate is accepted.
fn led(folded: &Folded) -> (Written, Written, bool) {
    let endpoint = |path: &str| folded.value.get("endpoint").and_then(|e| e.pointer(path)).cloned();
    let resolved = |path: &str| Some((endpoint(path)?, folded.namespace(&format!("/endpoint{path}")).map(str::to_owned)));
    let anybody = endpoint("/tls/insecureSkipVerify") == Some(json!(true));
    (endpoint("/url").map(|url| (url, None)).or_else(|| resolved("/urlFrom")), resolved("/tls/caFrom"), anybody)
}

#[test]
fn no_layer_above_the_one_of_the_credentials_changes_their_destination() {
    let refused = Cell::new(0);
    let sent = RefCell::new(BTreeMap::from([(PLATFORM, 0), (WORKSPACE, 0)]));
    try_all(3000, &any_layers(alike), |layers| {
        let layers =
            layered(&Source::Global, &layers.into_iter().filter(|(s, _)| *s != Source::Defaults).collect::<Vec<_>>());
        let effective = resolve_layers(&layers, TEAM, "uid", &given());
        let Ok(sending) = &effective.sending else {
            refused.set(refused.get() + 1);
            return Ok(());
        };
        let references = all(sending, &effective.config_maps);
        for (owner, sent) in &mut *sent.borrow_mut() {
            let is_owned = |what: &str| references.iter().any(|(kind, at, _)| kind.starts_with(what) && at == owner);
            if !["basic", "token", "headersFrom", "signing", "clientCertificate", "urlFrom"].into_iter().any(is_owned) {
                continue;
            }
            let last = layers.iter().rposition(|layer| layer.namespace == *owner).unwrap();
            let (led, finally) = (led(&fold(&layers[..=last], |_| {}).unwrap()), led(&fold(&layers, |_| {}).unwrap()));
            prop_assert_eq!(&led.0, &finally.0, "the same URL or reference");
            prop_assert_eq!(&led.1, &finally.1, "the same authorities");
            prop_assert!(led.2 || !finally.2, "anybody answers");
            *sent += 1;
        }
        Ok(())
    });
    let (sent, refused) = (sent.into_inner(), refused.get());
    assert!(sent.values().all(|sent| *sent > 50) && refused > 50, "{sent:?} are sent, {refused} are refused");
}
