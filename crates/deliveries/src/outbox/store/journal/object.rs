//! The Delivery object of a record, and the record of an object. It does no I/O, but reads the clocks for the age of a record.
//!
//! In: transitions and statuses. Out: the object to create, the patch to write, and whether a stored object is the same delivery.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::outbox::record::Record;
use crate::outbox::send_gate::genuine;
use relaybook_api::delivery::{PIPELINE_NAMESPACE, REDELIVER, TEST_LABEL, is_same_notification};
use relaybook_api::group;
use relaybook_api::{Age, Delivery, DeliverySpec, DeliveryStatus, ObjectName, now, since_boot};

/// What is stored under the name of a delivery.
pub(super) enum Found {
    /// The delivery.
    Same(Box<Record>),
    /// A delivery of the same transition with other content. It was attempted before its pipeline was edited, or another
    /// client has created it. Only the content that Relaybook derives is sent, so it is replaced and keeps its status.
    Attempted(Box<Delivery>),
    /// Another client has created it.
    Foreign(Box<Delivery>),
}

/// Compares the object that is stored under the name of a delivery with the delivery. The key and the content must
/// match, because every client that can create Deliveries can also set a status. The place in the lane and the error can differ,
/// because the notification can be edited in between. If changes were merged in between, the state before them can differ.
pub(super) fn found(stored: Delivery, spec: &DeliverySpec) -> Found {
    let is_key = stored.spec.pipeline_ref == spec.pipeline_ref
        && stored.spec.notification == spec.notification
        && is_same_notification(&stored.spec.notification_uid, &spec.notification_uid)
        && stored.spec.subject.kind == spec.subject.kind
        && stored.spec.subject.name == spec.subject.name
        && stored.spec.serial == spec.serial
        && stored.spec.type_ == spec.type_;
    let is_content = || {
        let place = (spec.lane.clone(), spec.order, spec.due, spec.error.clone(), spec.notification_uid.clone());
        let mut like = stored.spec.clone();
        (like.lane, like.order, like.due, like.error, like.notification_uid) = place;
        like.from = genuine::completed(&like.from, &spec.from);
        like.to = genuine::completed(&like.to, &spec.to);
        if spec.coalesced {
            (like.from, like.coalesced) = (spec.from.clone(), true);
        }
        like == *spec && genuine::is_in_its_lane(&stored.spec)
    };
    let is_attempted = stored.status.as_ref().is_some_and(|status| status.attempts > 0 || status.outcome.is_some());
    match () {
        () if !is_key => Found::Foreign(Box::new(stored)),
        () if is_content() => Found::Same(Box::new(record(stored))),
        () if is_attempted => Found::Attempted(Box::new(stored)),
        () => Found::Foreign(Box::new(stored)),
    }
}

/// Returns the object that records a delivery. `status`: the result of its first attempt, if there was one.
pub(super) fn object(name: &str, spec: &DeliverySpec, status: Option<&DeliveryStatus>) -> Delivery {
    let labels = [
        (concat!(group!(), "/notification"), spec.notification.as_str()),
        (concat!(group!(), "/pipeline"), spec.pipeline_ref.name.as_str()),
        (PIPELINE_NAMESPACE, spec.pipeline_ref.namespace.as_str()),
        (concat!(group!(), "/environment"), spec.subject.environment.as_str()),
        // The promotion controller watches the Deliveries of requests by it.
        (concat!(group!(), "/type"), spec.type_.as_str()),
        // A restored Delivery would have lost its status, and would be sent again.
        ("velero.io/exclude-from-backup", "true"),
    ];
    let test = spec.test.then_some((TEST_LABEL, "true"));
    let labels = labels.into_iter().chain(test).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    Delivery { metadata, spec: spec.clone(), status: status.cloned() }
}

/// Returns what the engine knows about a Delivery.
pub(super) fn record(object: Delivery) -> Record {
    let id = ObjectName::of(&object);
    let status = object.status.unwrap_or_default();
    let recorded = object.metadata.creation_timestamp.map_or(object.spec.time, |t| t.0);
    let mut record = Record {
        id,
        uid: object.metadata.uid.unwrap_or_default(),
        version: object.metadata.resource_version.unwrap_or_default(),
        recorded,
        age: Age::new(recorded, now(), since_boot()),
        asked: object.metadata.annotations.and_then(|mut a| a.remove(REDELIVER)),
        again: status.outcome.is_none() && status.redelivered.is_some(),
        spec: Arc::new(object.spec),
        status,
        not_found: 0,
        unwritten: false,
    };
    record.age = Age::new(record.since(), now(), since_boot());
    record
}

/// Status fields that can be absent.
const OPTIONAL: [&str; 11] = [
    "outcome",
    "reason",
    "statusCode",
    "lastAttemptTime",
    "nextAttemptTime",
    "settledTime",
    "lastDurationMillis",
    "error",
    "response",
    "redelivered",
    "thread",
];

/// A merge patch (RFC 7386) from one status to the next. If it is `unwritten`, the stored status can differ from `before`.
pub(super) fn merge(version: &str, before: &DeliveryStatus, after: &DeliveryStatus, unwritten: bool) -> Value {
    let fields = |status: &DeliveryStatus| match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let mut patch = fields(after);
    for key in fields(before).keys() {
        patch.entry(key.clone()).or_insert(Value::Null);
    }
    for key in OPTIONAL.iter().filter(|_| unwritten) {
        patch.entry(*key).or_insert(Value::Null);
    }
    json!({"metadata": {"resourceVersion": version}, "status": patch})
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;

    use super::*;

    #[test]
    fn the_admission_policy_of_the_chart_keeps_each_label() {
        let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/relaybook/templates/admissionpolicy.yaml");
        let policy = std::fs::read_to_string(chart).unwrap();
        for label in object("a", &relaybook_api::testing::spec(1), None).labels().keys() {
            assert!(policy.contains(&format!("\"{label}\"")), "{label}");
        }
    }

    #[test]
    fn the_patch_removes_fields_that_are_no_longer_set() {
        let before = DeliveryStatus { reason: Some("SecretMissing".into()), attempts: 1, ..DeliveryStatus::default() };
        let after = DeliveryStatus { attempts: 2, status_code: Some(200), ..DeliveryStatus::default() };
        let expected =
            json!({"metadata": {"resourceVersion": "7"}, "status": {"reason": null, "attempts": 2, "statusCode": 200}});
        assert_eq!(merge("7", &before, &after, false), expected);
        let all = merge("7", &before, &after, true);
        assert_eq!(
            (&all["status"]["response"], all["status"].as_object().unwrap().len()),
            (&Value::Null, OPTIONAL.len() + 1)
        );
    }
}
