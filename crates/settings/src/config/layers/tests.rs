//! Tests merging, with tables and properties.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn layer(value: &Value) -> Layer {
    let value = value.as_object().cloned().unwrap_or_default();
    Layer { source: Source::Pipeline, namespace: String::new(), remove: Vec::new(), value }
}

fn folded(layers: &[Layer]) -> Folded {
    fold(layers, |_| {}).unwrap()
}

/// The algorithm of RFC 7386, section 2, without changes.
fn merge_patch(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let Value::Object(mut target) = target else { return merge_patch(json!({}), &Value::Object(patch.clone())) };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            let old = target.remove(name).unwrap_or(Value::Null);
            target.insert(name.clone(), merge_patch(old, value));
        }
    }
    Value::Object(target)
}

/// The examples of RFC 7386, appendix A, in which both sides are objects.
#[test]
fn merging_follows_the_examples_of_the_specification_of_merge_patch() {
    for (target, patch, result) in [
        (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
        (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
        (json!({"a":"b"}), json!({"a":null}), json!({})),
        (json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"})),
        (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
        (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
        (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
        (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
        (json!({"e":null}), json!({"a":1}), json!({"a":1})),
        (json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
    ] {
        let both = folded(&[layer(&target), layer(&patch)]);
        assert_eq!(Value::Object(both.value), result, "{target} {patch}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3).prop_map(Value::from), Just(json!(["x"]))];
    leaf.prop_recursive(3, 16, 3, object)
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let names = prop_oneof![Just("a"), Just("b"), Just("a/b"), Just("~"), Just("endpoint")];
    prop::collection::btree_map(names.prop_map(str::to_owned), inner, 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

#[test]
fn an_environment_has_the_layers_of_pipeline_and_environment_but_of_no_target() {
    let layer = |suspend: bool| json!([{"name": "deploys", "suspend": suspend}]);
    let spec: relaybook_api::PipelineSpec = serde_json::from_value(json!({
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "notifications": layer(true),
        "environments": [
            {"name": "dev", "targets": [{"namespace": "a", "notifications": layer(true)}]},
            {"name": "prod", "notifications": layer(false), "targets": [{"namespace": "a", "notifications": layer(true)}]},
        ],
    }))
    .unwrap();
    let sources = |environment| {
        let layers = of_environment(&spec, "ns", "deploys", environment);
        layers.into_iter().map(|layer| layer.source).collect::<Vec<_>>()
    };
    assert_eq!(sources(0), [Source::Pipeline]);
    assert_eq!(sources(1), [Source::Pipeline, Source::Environment("prod".to_owned())]);
}

proptest! {
    #[test]
    fn folding_layers_applies_one_merge_patch_after_the_other(layers in prop::collection::vec(object(any_value()), 0..5)) {
        let expected = layers.iter().fold(json!({}), merge_patch);
        let folded = folded(&layers.iter().map(layer).collect::<Vec<_>>());
        prop_assert_eq!(Value::Object(folded.value), expected);
    }

    #[test]
    fn the_author_of_a_field_is_the_layer_that_wrote_its_value(layers in prop::collection::vec(object(any_value()), 1..5)) {
        let sources: Vec<_> = (0..layers.len()).map(|i| Source::Environment(i.to_string())).collect();
        let all = layers.iter().zip(&sources).map(|(value, source)| Layer { source: source.clone(), ..layer(value) });
        let folded = folded(&all.collect::<Vec<_>>());
        let whole = Value::Object(folded.value.clone());
        for (pointer, author) in folded.authors() {
            let index = sources.iter().position(|s| s == author).unwrap();
            let stands = whole.pointer(pointer).unwrap();
            prop_assert!(stands.as_object().is_none_or(serde_json::Map::is_empty), "{pointer} is a field");
            prop_assert_eq!(layers[index].pointer(pointer), Some(stands));
            for later in &layers[index + 1..] {
                prop_assert!(later.pointer(pointer).is_none_or(|v| v.as_object().is_some_and(serde_json::Map::is_empty) || v.is_object() && stands.is_object()));
            }
        }
        // Every field has an author.
        let mut fields = Vec::new();
        leaves(&whole, String::new(), &mut fields);
        prop_assert_eq!(folded.authors().count(), fields.len());
    }
}

fn leaves(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                leaves(value, format!("{at}/{}", escape(name)), all);
            }
        }
        _ if at.is_empty() => {}
        _ => all.push(at),
    }
}

#[test]
fn setting_an_alternative_or_a_whole_removes_what_lower_layers_have_there() {
    let key = json!({"secretKeyRef": {"name": "a", "key": "b"}});
    for (beneath, above, result) in [
        (
            json!({"endpoint": {"url": "x", "method": "PUT"}}),
            json!({"endpoint": {"urlFrom": key}}),
            json!({"endpoint": {"urlFrom": key, "method": "PUT"}}),
        ),
        (json!({"endpoint": {"urlFrom": key}}), json!({"endpoint": {"url": "x"}}), json!({"endpoint": {"url": "x"}})),
        (
            json!({"endpoint": {"auth": {"token": key}}}),
            json!({"endpoint": {"auth": {"basic": {"secretRef": {"name": "a"}}}}}),
            json!({"endpoint": {"auth": {"basic": {"secretRef": {"name": "a"}}}}}),
        ),
        (
            json!({"template": {"builtin": "slack", "parameters": {"channel": "a"}}}),
            json!({"template": {"inline": {"body": "x"}}}),
            json!({"template": {"inline": {"body": "x"}, "parameters": {"channel": "a"}}}),
        ),
        (
            json!({"endpoint": {"headers": {"x-team": "a", "b": "c"}}}),
            json!({"endpoint": {"headers": {"X-Team": "d"}}}),
            json!({"endpoint": {"headers": {"X-Team": "d", "b": "c"}}}),
        ),
        (
            json!({"endpoint": {"auth": {"oauth2": {"scope": "a", "parameters": {"b": "c"}}}}}),
            json!({"endpoint": {"auth": {"oauth2": {"tokenUrl": "d"}}}}),
            json!({"endpoint": {"auth": {"oauth2": {"tokenUrl": "d"}}}}),
        ),
    ] {
        let both = folded(&[layer(&beneath), layer(&above)]);
        assert_eq!(Value::Object(both.value.clone()), result);
        let mut fields = Vec::new();
        leaves(&Value::Object(both.value.clone()), String::new(), &mut fields);
        assert_eq!(both.authors().map(|(p, _)| p.to_owned()).collect::<Vec<_>>(), fields);
    }
}

#[test]
fn a_layer_that_sets_two_alternatives_is_refused() {
    let key = json!({"secretKeyRef": {"name": "a", "key": "b"}});
    let whole = json!({"triggers": [], "endpoint": {"url": "https://a.net"}, "template": {"builtin": "generic"}});
    for (above, message) in [
        (json!({"endpoint": {"url": "https://a.net", "urlFrom": key}}), "set url or urlFrom, not both"),
        (
            json!({"endpoint": {"auth": {"token": key, "basic": {"secretRef": {"name": "a"}}}}}),
            "set exactly one of basic, token, githubApp and oauth2",
        ),
        (json!({"endpoint": {"headers": {"X-Team": "a", "x-team": "b"}}}), "occurs twice"),
        (json!({"template": {"builtin": "generic", "inline": {"body": "x"}}}), "set exactly one of builtin"),
    ] {
        let layers = [layer(&whole), Layer { source: Source::Target("t".to_owned()), ..layer(&above) }];
        let effective = crate::config::resolve_layers(&layers, "n", "u", &crate::config::Given::nothing());
        let error = effective.sending.unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(effective.intake.is_ok(), "what happens is recorded all the same");
    }
}

#[test]
fn removed_fields_are_gone_and_can_be_set_again() {
    let beneath = layer(
        &json!({"suspend": true, "endpoint": {"headers": {"X-Team": "a", "a/b": "c"}, "auth": {"basic": {"secretRef": {"name": "a"}}}}}),
    );
    let remove = |pointers: &[&str], value: Value| Layer {
        remove: pointers.iter().map(ToString::to_string).collect(),
        ..layer(&value)
    };
    for (above, result) in [
        (remove(&["/suspend", "/endpoint/auth"], json!({})), json!({"endpoint": {"headers": {"X-Team": "a", "a/b": "c"}}})),
        (
            remove(&["/endpoint/headers/a~1b"], json!({})),
            json!({"suspend": true, "endpoint": {"headers": {"X-Team": "a"}, "auth": {"basic": {"secretRef": {"name": "a"}}}}}),
        ),
        (
            remove(&["/endpoint"], json!({"endpoint": {"method": "PUT"}})),
            json!({"suspend": true, "endpoint": {"method": "PUT"}}),
        ),
        (
            remove(&["/nothing/there", "/suspend/deeper"], json!({"suspend": false})),
            json!({"suspend": false, "endpoint": beneath.value["endpoint"]}),
        ),
    ] {
        let both = folded(&[beneath.clone(), above]);
        assert_eq!(Value::Object(both.value.clone()), result);
        assert_eq!(both.author("/endpoint/auth").is_some(), both.value["endpoint"].get("auth").is_some());
    }
    let part = "/endpoint/auth/githubApp/repositories";
    for bad in ["endpoint", "a/b", "", "/pipelineSelector", "/pipelineSelector/matchLabels", part] {
        assert!(fold(&[beneath.clone(), remove(&[bad], json!({}))], |_| {}).is_err(), "{bad:?}");
    }
}

#[test]
fn layers_of_a_pipeline_are_ordered_from_the_least_specific() {
    let spec: relaybook_api::PipelineSpec = serde_json::from_value(json!({
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "notifications": [{"name": "a", "suspend": true}],
        "environments": [
            {"name": "dev", "targets": [{"namespace": "x", "notifications": [{"name": "a", "triggers": []}]}]},
            {"name": "prod", "notifications": [{"name": "a", "suspend": false}, {"name": "b"}], "targets": [{"namespace": "y"}]},
        ],
    }))
    .unwrap();
    let sources = |name: &str, environment, target: &str| {
        let info = TargetInfo { environment_index: environment, name: target.to_owned(), ..TargetInfo::default() };
        of_target(&spec, "team-a", name, &info).into_iter().map(|l| l.source).collect::<Vec<_>>()
    };
    assert_eq!(sources("a", 0, "dev/c/x"), [Source::Pipeline, Source::Target("dev/c/x".into())]);
    assert_eq!(sources("a", 1, "prod/c/y"), [Source::Pipeline, Source::Environment("prod".into())]);
    assert_eq!(sources("b", 1, "prod/c/y"), [Source::Environment("prod".into())]);
    assert!(sources("b", 0, "dev/c/x").is_empty());
}
