//! Tests of the rules that apply to every kind.

use super::testing::*;
use super::*;
use Status::{NotFound, Terminating};

#[test]
fn a_missing_object_is_not_found_and_has_a_message() {
    let seen = observe(None, None);
    assert_eq!(summary(&seen), (NotFound, "", ""));
    assert!(!seen.message.is_empty());
}

#[test]
fn an_object_in_deletion_is_terminating_whatever_its_kind() {
    for kind in ALL {
        let mut object = object(kind, &json!({}), &json!({"conditions": [condition("Ready", "True", "Done", 2)]}));
        object.metadata.finalizers = Some(vec!["acme.example/wait".to_owned()]);
        object.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(seen(&object).status, Terminating, "{kind:?}");
    }
}

#[test]
fn without_status_everything_is_in_progress() {
    for kind in ALL {
        for status in [Value::Null, json!({})] {
            let seen = read(kind, json!({"replicas": 0}), status);
            assert_eq!(seen.status, InProgress, "{kind:?}");
            assert!(seen.is_unobserved() || kind == JOB, "{kind:?}: {}", seen.reason);
        }
    }
}

#[test]
fn no_message_mentions_a_generation() {
    for kind in ALL {
        let status = json!({"observedGeneration": 1, "conditions": [condition("Ready", "True", "Done", 1)]});
        let seen = read(kind, json!({}), status);
        assert!(!seen.message.contains("generation") && !seen.message.contains(['1', '2']), "{kind:?}: {}", seen.message);
    }
}

#[test]
fn conditions_of_an_earlier_generation_give_no_message() {
    let old = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "OldReason", "message": "an old text", "observedGeneration": 1});
    let types = ["Ready", "Stalled", "Reconciling", "Progressing", "Available", "ReplicaFailure", "Released", "Remediated"];
    for kind in ALL.into_iter().filter(|kind| !WITHOUT_GENERATION.contains(kind)) {
        for status in ["True", "False", "Unknown"] {
            let conditions: Vec<_> = types.iter().map(|type_| old(type_, status)).collect();
            for observed in [json!(1), json!("1"), Value::Null] {
                let status = json!({"observedGeneration": observed, "conditions": conditions, "phase": "Degraded"});
                let seen = read(kind, json!({}), status);
                assert_eq!(seen.status, InProgress, "{kind:?} {conditions:?} {observed}");
                assert!(seen.is_unobserved(), "{kind:?} {observed}: {seen:?}");
            }
        }
    }
}

/// Kinds whose status contains no generation. Other fields relate it to the spec, or the spec cannot change.
const WITHOUT_GENERATION: [(&str, &str); 4] = [JOB, APPLICATION, CANARY, BUNDLE_DEPLOYMENT];

#[test]
fn drift_is_a_condition_of_any_kind() {
    for kind in ALL {
        for (type_, status, want) in
            [("Drifted", "True", true), ("Modified", "True", true), ("Drifted", "False", false), ("Ready", "True", false)]
        {
            let seen = read(kind, json!({}), json!({"conditions": [condition(type_, status, "Diff", 2)]}));
            assert_eq!(seen.drifted, want, "{kind:?} {type_}={status}");
        }
    }
}

#[test]
fn kinds_have_one_reader_for_each_set_of_rules_whatever_their_version() {
    let reader = |api_version, kind| super::reader(api_version, kind, None);
    let readers: std::collections::BTreeSet<String> = ALL.iter().map(|(v, k)| reader(v, k)).collect();
    assert_eq!(readers.len(), ALL.len());
    assert_eq!(reader("helm.toolkit.fluxcd.io/v2", "HelmRelease"), reader("helm.toolkit.fluxcd.io/v2beta2", "HelmRelease"));
    assert_eq!(reader("v1", "ConfigMap"), reader("acme.example/v1", "Deployment"));
    assert_eq!(reader("toolkit.fluxcd.io", "Kustomization"), reader("", ""));
}

#[test]
fn messages_are_cut_between_characters() {
    let long = "é".repeat(MAX_MESSAGE);
    let status =
        json!({"conditions": [{"type": "Stalled", "status": "True", "reason": long, "message": format!("x{long}")}]});
    let seen = read(OTHER, json!({}), status);
    assert_eq!((seen.message.len(), seen.reason.len()), (MAX_MESSAGE - 1, MAX_REASON));
}
