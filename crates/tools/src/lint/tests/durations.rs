//! Tests that durations have the same spelling in all fields.

use serde_json::{Value, json};

use super::*;

/// The fields of a notification that contain a duration, each with an accepted value.
const FIELDS: [(&str, &str); 7] = [
    ("/endpoint/timeout", "10s"),
    ("/endpoint/connectTimeout", "10s"),
    ("/delivery/retry/initial", "10s"),
    ("/delivery/retry/max", "10s"),
    ("/delivery/retry/maxAge", "2h"),
    ("/delivery/retain/maxAge", "2h"),
    ("/triggers/0/for", "10s"),
];

/// Returns the settings of a notification, with this value in this field.
fn saying(field: &str, given: &str) -> Value {
    let mut whole = json!({
        "triggers": [{"type": "Deployed", "for": "1s"}],
        "endpoint": {"url": "https://example.com/in", "timeout": "1s", "connectTimeout": "1s"},
        "template": {"inline": {"body": "{}"}},
        "delivery": {"retry": {"initial": "1s", "max": "30m", "maxAge": "1h"}, "retain": {"maxAge": "1h"}},
    });
    *whole.pointer_mut(field).unwrap() = json!(given);
    whole
}

/// Returns the same settings in every place that can contain a layer.
fn places(says: &Value) -> Vec<(&'static str, Value)> {
    let named = |mut says: Value| {
        says["name"] = json!("deploys");
        says
    };
    let pipeline = |at: &str| {
        let mut pipeline = json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "web", "namespace": "team-a"},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "environments": [{"name": "prod", "targets": [{"namespace": "web"}]}],
            },
        });
        pipeline.pointer_mut(at).unwrap()["notifications"] = json!([named(says.clone())]);
        pipeline
    };
    let global = |config: Value| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "relaybook-config", "namespace": "relaybook-system"},
            "data": {"config.yaml": config.to_string()},
        })
    };
    let notification = json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "deploys", "namespace": "team-a"},
        "spec": says,
    });
    vec![
        ("a Notification", notification),
        ("the defaults", global(json!({ "defaults": says }))),
        ("a cluster-wide notification", global(json!({"notifications": [named(says.clone())]}))),
        ("a pipeline", pipeline("/spec")),
        ("an environment", pipeline("/spec/environments/0")),
        ("a target", pipeline("/spec/environments/0/targets/0")),
    ]
}

#[test]
fn every_field_with_a_duration_accepts_the_same_notations() {
    for (field, good) in FIELDS {
        let sums = if good == "2h" { ["1h60m", "7200s", "7200000ms"] } else { ["9s1000ms", "10000ms", "0h10s"] };
        let bad = [
            "PT24H", "PT10S", "10", "10 s", " 10s", "10s ", "10S", "+10s", "-10s", "1.5s", "1d", "10sec", "10s ago", "", "s",
        ];
        let all = sums.into_iter().chain([good]).map(|given| (given, true)).chain(bad.map(|given| (given, false)));
        // All fields have the same parser and pattern. So the test tries all spellings only in the first field. In each other field it
        // tries one accepted and one rejected spelling.
        let is_tried = |given: &str| field == FIELDS[0].0 || given == sums[2] || given == bad[0];
        for (given, accepted) in all.filter(|(given, _)| is_tried(given)) {
            for (place, object) in places(&saying(field, given)) {
                let found = lines(&object.to_string());
                assert_eq!(found.is_empty(), accepted, "{given:?} as {field} of {place}: {found:?}");
            }
        }
    }
}
