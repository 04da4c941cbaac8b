//! Tests the rules about the status of a Delivery, and that lint refuses a Delivery with and without a status.

use std::borrow::Borrow;

use serde_json::{Value, json};

use super::*;

/// Returns the messages of the rules of the whole object that a change of the status breaks. `null` is an absent status.
fn broken(old: &Value, new: &Value) -> Vec<String> {
    let object = |status: &Value| match status {
        Value::Null => json!({"spec": {}}),
        status => json!({"spec": {}, "status": status}),
    };
    let (old, new) = (object(old), object(new));
    let mut messages = Vec::new();
    visit(
        &schema("Delivery").unwrap(),
        &new,
        "",
        &mut |field, rule, value| match (field, verdict(rule, value, Some(&old))) {
            ("", Verdict::Broken(message)) => messages.push(message),
            ("", Verdict::Unclear(why)) => panic!("{rule}: {why}"),
            _ => {}
        },
    );
    messages
}

/// Returns the status with these changes. `null` removes a field.
fn with(status: &Value, changes: impl Borrow<Value>) -> Value {
    let mut status = status.clone();
    json_patch::merge(&mut status, changes.borrow());
    status
}

#[test]
fn an_outcome_is_final_except_for_a_redelivery() {
    const CHANGED: &str = "the status of a settled delivery cannot be changed; ";
    const REMOVED: &str = "the status of a settled delivery cannot be removed; ";
    let settled = json!({
        "outcome": "Parked", "reason": "ReceiverRejected", "settledTime": "2026-01-01T00:00:02Z", "attempts": 3, "statusCode": 400,
        "lastAttemptTime": "2026-01-01T00:00:01Z", "lastDurationMillis": 4, "error": "400 Bad Request", "response": "no",
    });
    let mark = |value: &str| json!({"value": value, "time": "2026-01-01T00:00:03Z"});
    let reopened = with(&settled, json!({"outcome": null, "reason": null, "settledTime": null, "redelivered": mark("1")}));
    let again = with(&settled, json!({"redelivered": mark("1")}));
    for (what, old, new, message) in [
        ("nothing", &settled, settled.clone(), None),
        ("the first status", &Value::Null, settled.clone(), None),
        ("another outcome", &settled, with(&settled, json!({"outcome": "Delivered"})), Some(CHANGED)),
        ("no outcome", &settled, with(&settled, json!({"outcome": null})), Some(CHANGED)),
        ("no status", &settled, Value::Null, Some(REMOVED)),
        ("an empty status", &settled, json!({}), Some(CHANGED)),
        ("another error", &settled, with(&settled, json!({"error": "none"})), Some(CHANGED)),
        ("no error", &settled, with(&settled, json!({"error": null})), Some(CHANGED)),
        ("a new field", &settled, with(&settled, json!({"superseded": 2})), Some(CHANGED)),
        ("reopened", &settled, reopened.clone(), None),
        ("reopened once more", &again, with(&reopened, json!({"redelivered": mark("2")})), None),
        ("reopened with the old mark", &again, reopened.clone(), Some(CHANGED)),
        ("reopened without a mark", &settled, with(&reopened, json!({"redelivered": null})), Some(CHANGED)),
        ("reopened with a reason", &settled, with(&reopened, json!({"reason": "ReceiverRejected"})), Some(CHANGED)),
        (
            "reopened with a time",
            &settled,
            with(&reopened, json!({"nextAttemptTime": "2027-01-01T00:00:00Z"})),
            Some(CHANGED),
        ),
        ("reopened with fewer attempts", &settled, with(&reopened, json!({"attempts": 0})), Some(CHANGED)),
        ("reopened without the last answer", &settled, with(&reopened, json!({"response": null})), Some(CHANGED)),
        ("without its mark", &again, settled.clone(), Some(CHANGED)),
        ("settled again", &reopened, with(&again, json!({"attempts": 4})), None),
    ] {
        let messages = broken(old, &new);
        assert_eq!(messages.len(), usize::from(message.is_some()), "{what}: {messages:?}");
        assert!(messages.iter().all(|said| said.starts_with(message.unwrap_or_default())), "{what}: {messages:?}");
    }
}

#[test]
fn a_pending_delivery_keeps_its_attempts_and_its_mark() {
    const ATTEMPTS: &str = "status.attempts cannot decrease; ";
    const MARK: &str = "status.redelivered cannot be removed, ";
    let pending = json!({"attempts": 3, "reason": "ReceiverError"});
    let again = with(&pending, json!({"redelivered": {"value": "1", "time": "2026-01-01T00:00:03Z"}}));
    for (what, old, new, expected) in [
        ("more attempts", &pending, with(&pending, json!({"attempts": 4, "reason": null})), &[][..]),
        ("settled", &pending, with(&pending, json!({"attempts": 4, "outcome": "Delivered"})), &[]),
        ("fewer attempts", &pending, with(&pending, json!({"attempts": 2})), &[ATTEMPTS]),
        ("no attempts", &pending, with(&pending, json!({"attempts": null})), &[ATTEMPTS]),
        ("no status", &pending, Value::Null, &[ATTEMPTS]),
        ("no status before the first attempt", &json!({"attempts": 0, "reason": "Suspended"}), Value::Null, &[]),
        ("no mark", &again, pending.clone(), &[MARK]),
        ("no status in a redelivery", &again, Value::Null, &[ATTEMPTS, MARK]),
    ] {
        let messages = broken(old, &new);
        let is_expected = messages.iter().zip(expected).all(|(said, expected)| said.starts_with(expected));
        assert!(messages.len() == expected.len() && is_expected, "{what}: {messages:?}");
    }
}

#[test]
fn a_delivery_in_a_file_is_refused() {
    let mut exported = full().remove(2);
    let refused =
        ["a.yaml:1: Delivery d: kind: only Relaybook creates Deliveries; to send one again, use relaybook redeliver"];
    assert_eq!(lines(&exported.to_string()), refused);
    exported.as_object_mut().unwrap().remove("status");
    assert_eq!(lines(&exported.to_string()), refused);
}
