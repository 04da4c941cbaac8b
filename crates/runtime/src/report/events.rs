//! Writes Kubernetes Events about changes, and about problems that require action by a user
//! (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/>).
//!
//! In: texts from any component, without waiting. Out: Events, written one after the other. The recorder of kube merges repeated Events
//! and counts them. It would treat two changes of one type as a repetition. So the name of the Event of a change contains its serial, and
//! each change is reported once.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1 as wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Error};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use relaybook_text::prefix;

use relaybook_api::group;
use relaybook_telemetry::chain;
use relaybook_telemetry::metrics::{ApiWrite, Metrics, WriteResult};

/// Maximum number of Events in the queue. Further Events are dropped, because the statuses contain the same information.
const QUEUE: usize = 256;
/// Maximum length of a note in bytes. The API server rejects longer notes.
const LONGEST_NOTE: usize = 1024;
/// The reporting controller.
const CONTROLLER: &str = concat!(group!(), "/relaybook");

/// An entry of the queue.
#[derive(Debug)]
enum QueuedEvent {
    Recurring { type_: EventType, regarding: ObjectReference, reason: String, action: &'static str, note: String },
    Change { regarding: ObjectReference, change: ChangeEvent },
}

/// The content of an Event about a change, or about another fact that is reported once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeEvent {
    /// Serial of the change, or another number that is unique among the Events with the same reason.
    pub serial: i64,
    /// Whether the type of the Event is `Warning`.
    pub warning: bool,
    /// The type of transition, or another machine-readable reason.
    pub reason: Cow<'static, str>,
    /// Human-readable message: one sentence.
    pub note: String,
}

/// The sender of the queue of Events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Events(mpsc::Sender<QueuedEvent>);

impl Events {
    /// Queues an Event of type `Warning`. Does not wait.
    pub fn warn(&self, regarding: ObjectReference, reason: &str, action: &'static str, note: &str) {
        self.queue_recurring(EventType::Warning, regarding, reason, action, note);
    }

    /// Queues an Event of type `Normal`. Does not wait.
    pub fn inform(&self, regarding: ObjectReference, reason: &str, action: &'static str, note: &str) {
        self.queue_recurring(EventType::Normal, regarding, reason, action, note);
    }

    fn queue_recurring(&self, type_: EventType, regarding: ObjectReference, reason: &str, action: &'static str, note: &str) {
        self.queue(QueuedEvent::Recurring {
            type_,
            regarding,
            reason: reason.to_owned(),
            action,
            note: prefix(note, LONGEST_NOTE).to_owned(),
        });
    }

    /// Queues the Event of a change. Does not wait. While that Event exists, a second call for the same object, serial and reason has no
    /// effect.
    pub fn report_change(&self, regarding: ObjectReference, mut change: ChangeEvent) {
        change.note.truncate(change.note.floor_char_boundary(LONGEST_NOTE));
        self.queue(QueuedEvent::Change { regarding, change });
    }

    fn queue(&self, event: QueuedEvent) {
        if let Err(error) = self.0.try_send(event) {
            tracing::debug!(%error, "could not queue an event; event dropped");
        }
    }
}

/// Returns the sender of Events, and the task that writes them until `stop` is canceled. Events in the queue are then dropped.
pub fn events(
    client: Client,
    metrics: Metrics,
    stop: CancellationToken,
) -> (Events, impl Future<Output = ()> + Send + 'static) {
    let (sender, mut queue) = mpsc::channel::<QueuedEvent>(QUEUE);
    let instance = std::env::var("POD_NAME").ok();
    let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: instance.clone() };
    let recorder = Recorder::new(client.clone(), reporter);
    let instance = instance.unwrap_or_else(|| CONTROLLER.to_owned());
    let write = async move {
        while let Some(Some(event)) = stop.run_until_cancelled(queue.recv()).await {
            let written = match event {
                QueuedEvent::Recurring { type_, regarding, reason, action, note } => {
                    let (action, note) = (action.to_owned(), Some(note));
                    recorder.publish(&Event { type_, reason, note, action, secondary: None }, &regarding).await
                }
                QueuedEvent::Change { regarding, change } => record(&client, regarding, change, &instance).await,
            };
            let result = written.map_or_else(
                |error| {
                    tracing::debug!(error = %chain(&error), "could not write an Event");
                    WriteResult::Error
                },
                |()| WriteResult::Ok,
            );
            metrics.api_write(ApiWrite::Event, result);
        }
    };
    (Events(sender), write)
}

/// Writes the Event of a change, unless it already exists.
async fn record(client: &Client, regarding: ObjectReference, change: ChangeEvent, instance: &str) -> Result<(), Error> {
    let ChangeEvent { serial, warning, reason, note } = change;
    let namespace = regarding.namespace.clone().unwrap_or_default();
    let about = regarding.name.as_deref().unwrap_or_default();
    let name = format!("{about}.{serial:x}.{}", reason.to_ascii_lowercase());
    let event = wire::Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace.clone()), ..ObjectMeta::default() },
        event_time: Some(MicroTime(relaybook_api::now())),
        type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.into_owned()),
        action: Some("Observe".to_owned()),
        note: Some(note),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        regarding: Some(regarding),
        ..wire::Event::default()
    };
    match Api::<wire::Event>::namespaced(client.clone(), &namespace).create(&PostParams::default(), &event).await {
        Err(Error::Api(status)) if !status.is_already_exists() => Err(Error::Api(status)),
        Ok(_) | Err(Error::Api(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
