//! Events for what has happened, and for what a person must do something about
//! (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/>).
//!
//! In: texts from any component, without waiting. Out: Events, written one after the other. kube's recorder merges repeated warnings and
//! counts them. A change is reported once, by an Event whose name contains its serial, because the recorder would treat two changes of
//! one type as a repetition.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1 as wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Error};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::telemetry::chain;
use crate::telemetry::metrics::{ApiWrite, Metrics, WriteResult};

/// Events that may wait to be written; more are dropped, for the statuses say the same.
const QUEUE: usize = 256;
/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;
/// Who says it.
const CONTROLLER: &str = "pennant.dev/pennant";

/// What is to be said.
#[derive(Debug)]
enum Said {
    Word { type_: EventType, regarding: ObjectReference, reason: String, action: &'static str, note: String },
    Change { regarding: ObjectReference, change: Told },
}

/// What is said of a change, or of anything else that has happened once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Serial of the change, or another number that tells it from others with the same reason.
    pub serial: i64,
    /// Whether somebody should look.
    pub warning: bool,
    /// The type of transition, or another word for machines.
    pub reason: Cow<'static, str>,
    /// A sentence.
    pub note: String,
}

/// The way to say something; cheap to clone.
#[derive(Clone, Debug)]
pub struct Events(mpsc::Sender<Said>);

impl Events {
    /// Warns of something, without waiting.
    pub fn warn(&self, regarding: ObjectReference, reason: &str, action: &'static str, note: &str) {
        self.word(EventType::Warning, regarding, reason, action, note);
    }

    /// Says something that is as it should be, without waiting.
    pub fn inform(&self, regarding: ObjectReference, reason: &str, action: &'static str, note: &str) {
        self.word(EventType::Normal, regarding, reason, action, note);
    }

    fn word(&self, type_: EventType, regarding: ObjectReference, reason: &str, action: &'static str, note: &str) {
        self.say(Said::Word { type_, regarding, reason: reason.to_owned(), action, note: cut(note) });
    }

    /// Says what has happened, without waiting; saying it again is saying it once.
    pub fn tell(&self, regarding: ObjectReference, mut change: Told) {
        change.note.truncate(change.note.floor_char_boundary(LONGEST_NOTE));
        self.say(Said::Change { regarding, change });
    }

    fn say(&self, said: Said) {
        if let Err(error) = self.0.try_send(said) {
            tracing::debug!(%error, "an event was dropped");
        }
    }
}

fn cut(note: &str) -> String {
    note[..note.floor_char_boundary(LONGEST_NOTE)].to_owned()
}

/// The way to say something, and the task that writes it.
pub fn events(
    client: Client,
    metrics: Metrics,
    stop: CancellationToken,
) -> (Events, impl Future<Output = ()> + Send + 'static) {
    let (sender, mut queue) = mpsc::channel::<Said>(QUEUE);
    let instance = std::env::var("POD_NAME").ok();
    let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: instance.clone() };
    let recorder = Recorder::new(client.clone(), reporter);
    let instance = instance.unwrap_or_else(|| CONTROLLER.to_owned());
    let write = async move {
        while let Some(Some(said)) = stop.run_until_cancelled(queue.recv()).await {
            let written = match said {
                Said::Word { type_, regarding, reason, action, note } => {
                    let (action, note) = (action.to_owned(), Some(note));
                    recorder.publish(&Event { type_, reason, note, action, secondary: None }, &regarding).await
                }
                Said::Change { regarding, change } => record(&client, regarding, change, &instance).await,
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

/// Writes the Event of a change, unless it is there.
async fn record(client: &Client, regarding: ObjectReference, change: Told, instance: &str) -> Result<(), Error> {
    let Told { serial, warning, reason, note } = change;
    let namespace = regarding.namespace.clone().unwrap_or_default();
    let about = regarding.name.as_deref().unwrap_or_default();
    let name = format!("{about}.{serial:x}.{}", reason.to_ascii_lowercase());
    let event = wire::Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace.clone()), ..ObjectMeta::default() },
        event_time: Some(MicroTime(crate::api::now())),
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
