//! Layers behave like one Notification with the merged spec. Both record and send the same.

use std::cell::Cell;

use super::*;
use crate::config::layers::fold;
use crate::config::{Address, EffectiveNotification, Problem, Sending, resolve, resolve_layers};
use crate::render::Data;
use relaybook_api::delivery::Reason;
use relaybook_api::{Notification, TransitionType};

const URL: &str = "https://a.example.com/{{environment}}";

/// A complete layer, so that most results of the layers over it can be sent.
fn beneath() -> Value {
    let token = json!({"secretKeyRef": {"name": "beneath", "key": "token"}});
    json!({
        "triggers": [{"type": "Deployed"}],
        "endpoint": {"url": URL, "auth": {"token": token}},
        "template": {"inline": {"body": "{}"}},
    })
}

fn any_layer(source: &Source) -> BoxedStrategy<Value> {
    let key = |of: &'static str| one_of(["a", "b"].map(|name| json!({"secretKeyRef": {"name": name, "key": of}})));
    let secret = || one_of(["a", "b"].map(|name| json!({"secretRef": {"name": name}})));
    let headers = [json!({"X-Team": "{{pipeline.name}}"}), json!({"x-team": "b", "Accept": "c"}), json!({"accept": "d"})];
    let token = key("token").prop_flat_map(|token| {
        one_of([json!({}), json!({"header": "X-Token"}), json!({"scheme": "token"})]).prop_map(move |how| {
            let mut token = token.clone();
            json_patch::merge(&mut token, &how);
            json!({ "token": token })
        })
    });
    let authorities =
        prop_oneof![key("ca"), one_of(["a", "b"].map(|name| json!({"configMapKeyRef": {"name": name, "key": "ca"}}))),];
    let tls = some(vec![
        ("caFrom", authorities.boxed()),
        ("clientCertificate", secret()),
        ("insecureSkipVerify", one_of([json!(false), json!(true)])),
    ]);
    let endpoint = some(vec![
        // Few origins, because most of the generated cases should be sendable.
        (
            "url",
            one_of(
                [URL, "https://a.example.com/x?y={{type}}", "https://A.example.com:443", "https://b.net"].map(Value::from),
            ),
        ),
        ("method", one_of(["PUT", "PATCH"].map(Value::from))),
        ("headers", one_of(headers)),
        ("auth", prop_oneof![token, only("basic", secret())].boxed()),
        ("headersFrom", secret()),
        ("signing", secret()),
        ("tls", prop_oneof![3 => Just(json!({})), 1 => tls].boxed()),
        ("timeout", one_of(["1s", "20s", "2m"].map(Value::from))),
        ("connectTimeout", one_of([json!("300ms")])),
    ]);
    let endpoint = prop_oneof![9 => endpoint, 1 => only("urlFrom", key("url"))];
    let bodies = [json!({"body": r#"{"r": "{{revision}}"}"#}), json!({"body": "{{type}}", "contentType": "text/plain"})];
    let maps = ["a", "b"].map(|name| json!({"name": name, "key": "body"}));
    let choice = prop_oneof![
        only("inline", one_of(bodies)),
        only("configMapKeyRef", one_of(maps)),
        Just(json!({"builtin": "generic"})),
        Just(json!({"parameters": {"x": "{{environment}}"}})),
    ];
    let delivery = some(vec![
        ("ordering", one_of(["Target", "Pipeline"].map(Value::from))),
        ("retry", one_of([json!({"initial": "1s"}), json!({"max": "20m", "maxAge": "1h"}), json!({"initial": "15m"})])),
        ("supersede", one_of([json!(true), json!(false)])),
        ("rate", one_of([json!({"perSecond": 3}), json!({"perSecond": 2, "burst": 9})])),
        ("retain", one_of([json!({"perLane": 2}), json!({"maxAge": "5m"})])),
    ]);
    let triggers = [
        json!([]),
        json!([{"type": "Failed", "environments": ["prod", "dev-*"]}]),
        json!([{"type": "Removed"}, {"type": "Progressing"}]),
        json!([{"type": "Drifted", "when": "severity == 'error'", "for": "2m", "clusters": ["*"]}]),
        json!([{"type": "Failed", "when": "revison == ''"}]),
    ];
    let remove = [json!(["/endpoint/auth", "/delivery"]), json!(["/endpoint/headers/X-Team", "/template/parameters/x"])];
    let mut fields = vec![
        ("suspend", one_of([json!(true), json!(false)])),
        ("triggers", one_of(triggers)),
        ("endpoint", endpoint.boxed()),
        ("template", choice.boxed()),
        ("delivery", delivery),
    ];
    if *source > Source::Notification {
        fields.push(("remove", one_of(remove)));
    }
    some(fields)
}

/// Everything about a notification that is visible from outside.
fn behaviour(n: &EffectiveNotification) -> String {
    let intake = n.intake.as_ref().map_err(told).map(|intake| {
        let environments = ["prod", "dev-eu", "staging"];
        let pairs = TransitionType::ALL.into_iter().flat_map(|t| environments.map(|environment| (t, environment)));
        pairs.filter(|(t, environment)| intake.triggers.wants(*t, environment)).collect::<Vec<_>>()
    });
    let sending = n.sending.as_ref().map_err(told).map(sent);
    let EffectiveNotification { home, config_maps, suspend, delivery, .. } = n;
    format!("{home} {suspend} {delivery:?}\n{intake:?}\n{config_maps:?}\n{sending:#?}")
}

fn sent(sending: &Sending) -> Vec<String> {
    let Sending { method, auth, tls, signing, timeout, connect_timeout, .. } = sending;
    let how = format!("{method:?} {auth:?} {tls:?} {signing:?} {timeout:?} {connect_timeout:?}");
    let requests = TransitionType::ALL.map(|type_| match sending.render(&Data::sample(type_)) {
        Ok(request) => {
            let address = match request.address {
                Address::Url(url) => url.to_string(),
                Address::Secret(key) => key.to_string(),
            };
            format!("{address} {:?} {}", request.headers, request.body)
        }
        Err(problem) => told(&problem),
    });
    [how, sending.origin(), format!("{:?}", sending.secrets())].into_iter().chain(requests).collect()
}

/// The message of a problem, without the layer that it is from.
fn told(problem: &Problem) -> String {
    match problem {
        Problem::Layer { problem, .. } => told(problem),
        other => other.to_string(),
    }
}

#[test]
fn layers_behave_like_one_notification_with_the_merged_fields() {
    let (sent, wrong, refused) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let count = |cell: &Cell<i32>| cell.set(cell.get() + 1);
    try_all(400, &any_layers(any_layer), |layers| {
        let bottom = written(&Source::Defaults, TEAM, &beneath());
        let layers = layers.iter().map(|(source, value)| written(source, TEAM, value));
        let layers: Vec<_> = [bottom].into_iter().chain(layers).collect();
        let layered = resolve_layers(&layers, TEAM, "uid", &given());
        let folded = fold(&layers, |_| {}).unwrap().value;
        let alone: Notification = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification",
            "metadata": {"name": "deploys", "namespace": TEAM, "uid": "uid"}, "spec": folded,
        }))
        .unwrap();
        let mut alone = resolve(&alone, &given());
        match &layered.sending {
            Ok(_) => count(&sent),
            // A single Notification has no credentials of other layers.
            Err(problem) if problem.reason() == Reason::CredentialOriginMismatch => {
                count(&refused);
                prop_assert!(alone.sending.is_ok());
                alone.sending = Err(problem.clone());
            }
            Err(_) => count(&wrong),
        }
        prop_assert_eq!(behaviour(&layered), behaviour(&alone));
        Ok(())
    });
    let (sent, wrong, refused) = (sent.get(), wrong.get(), refused.get());
    assert!(sent > 50 && wrong > 10 && refused > 10, "{sent} are sent, {wrong} are wrong, {refused} are refused");
}

#[test]
fn an_empty_layer_changes_nothing() {
    try_all(100, &(any_layers(any_layer), 0..=4_usize), |(layers, at)| {
        let layers: Vec<_> = layers.iter().map(|(source, value)| written(source, TEAM, value)).collect();
        let mut more = layers.clone();
        more.insert(at.min(layers.len()), written(&Source::Pipeline, TEAM, &json!({})));
        let [without, with] = [layers, more].map(|layers| behaviour(&resolve_layers(&layers, TEAM, "uid", &given())));
        prop_assert_eq!(without, with);
        Ok(())
    });
}
