//! Values for the tests of this module.

use std::sync::Arc;

use super::record::{Record, name};
use relaybook_api::testing::spec;
use relaybook_api::{Age, DeliveryStatus, Notification, ObjectName};
use relaybook_settings::config::{EffectiveNotification, Given, resolve};

/// Returns a record of the same transition.
pub(crate) fn record(serial: i64) -> Record {
    let spec = spec(serial);
    Record {
        id: ObjectName::new("team-a", name(&spec)),
        uid: format!("d{serial}"),
        version: "1".into(),
        recorded: spec.time,
        age: Age::new(spec.time, spec.time, std::time::Duration::ZERO),
        spec: Arc::new(spec),
        status: DeliveryStatus::default(),
        not_found: 0,
        again: false,
        asked: None,
        unwritten: false,
    }
}

/// Returns a notification with this uid, whose deliveries can be sent.
pub(crate) fn notification(uid: &str) -> EffectiveNotification {
    let mut object: Notification = serde_json::from_value(serde_json::json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification",
        "metadata": {"name": "deploys", "namespace": "team-a", "uid": uid, "generation": 1},
        "spec": {
            "triggers": [{"type": "Deployed"}],
            "endpoint": {"url": "https://receiver.example.com/in"},
            "template": {"inline": {"body": "{\"text\":\"{{pipeline.name}}\"}"}},
        },
    }))
    .unwrap();
    object.metadata.uid = Some(uid.to_owned());
    resolve(&object, &Given::nothing())
}
