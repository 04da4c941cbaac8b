//! Values for the tests of this module.

use std::sync::Arc;

use kube::Client;
use tokio::runtime::Handle;

use super::record::{Record, name};
use super::send_gate::index::PipelineIndex;
use super::store::delivery_index::DeliveryIndex;
use super::store::journal::Journal;
use super::{Parts, TestsKept};
use relaybook_api::testing::spec;
use relaybook_api::{Age, DeliveryStatus, Notification, ObjectName};
use relaybook_egress::{Policy, Secrets, Sender};
use relaybook_runtime::leader::Lease;
use relaybook_runtime::limiter::NamespaceLimiter;
use relaybook_settings::config::{EffectiveNotification, Given, resolve};
use relaybook_telemetry::{Metrics, Tracer};

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
            "endpoint": {"url": "https://receiver.example.com/in", "thread": {"remember": {"id": "body.id"}}},
            "template": {"inline": {"body": "{\"text\":\"{{pipeline.name}}\"}"}},
        },
    }))
    .unwrap();
    object.metadata.uid = Some(uid.to_owned());
    resolve(&object, &Given::nothing())
}

/// Returns parts that know nothing yet, and whose Lease allows nothing. Requires a runtime.
pub(crate) fn parts(client: Client) -> Parts {
    _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = Metrics::new();
    Parts {
        lease: Lease::held(std::time::Duration::ZERO),
        journal: Journal::new(client.clone(), metrics.clone()),
        pipeline_index: PipelineIndex::default(),
        delivery_index: DeliveryIndex::default(),
        sender: Arc::new(Sender::new(Policy::default(), Secrets::fixed([]), metrics.clone()).unwrap()),
        sending: Handle::current(),
        client,
        cluster_name: "in-cluster".into(),
        page_url: None,
        metrics,
        tracer: Tracer::default(),
        tests_kept: TestsKept::default(),
        outcomes: NamespaceLimiter::new(1),
        failures: NamespaceLimiter::new(1),
        aside: NamespaceLimiter::new(1),
    }
}
