//! Warning Events for what a person must do something about, repeated ones made one by kube's recorder
//! (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/>).

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::telemetry::metrics::{ApiWrite, Metrics, WriteResult};

/// Events that may wait to be written; more are dropped, for the statuses say the same.
const QUEUE: usize = 256;
/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;

struct Warning {
    regarding: ObjectReference,
    reason: String,
    action: &'static str,
    note: String,
}

/// The way to say something; cheap to clone.
#[derive(Clone, Debug)]
pub struct Events(mpsc::Sender<Warning>);

impl std::fmt::Debug for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.reason, self.note)
    }
}

impl Events {
    /// Says it, without waiting.
    pub fn warn(&self, regarding: ObjectReference, reason: &str, action: &'static str, note: &str) {
        let end =
            note.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|end| *end <= LONGEST_NOTE).last().unwrap_or(0);
        let warning = Warning { regarding, reason: reason.to_owned(), action, note: note[..end].to_owned() };
        if self.0.try_send(warning).is_err() {
            tracing::debug!(reason, "an event was dropped");
        }
    }
}

/// The way to say something, and the task that writes it.
pub fn events(
    client: Client,
    metrics: Metrics,
    stop: CancellationToken,
) -> (Events, impl Future<Output = ()> + Send + 'static) {
    let (sender, mut queue) = mpsc::channel::<Warning>(QUEUE);
    let reporter = Reporter { controller: "pennant.dev/pennant".to_owned(), instance: std::env::var("POD_NAME").ok() };
    let recorder = Recorder::new(client, reporter);
    let write = async move {
        while let Some(Some(Warning { regarding, reason, action, note })) = stop.run_until_cancelled(queue.recv()).await {
            let event =
                Event { type_: EventType::Warning, reason, note: Some(note), action: action.to_owned(), secondary: None };
            let result = match recorder.publish(&event, &regarding).await {
                Ok(()) => WriteResult::Ok,
                Err(error) => {
                    tracing::debug!(%error, "an event could not be written");
                    WriteResult::Error
                }
            };
            metrics.api_write(ApiWrite::Event, result);
        }
    };
    (Events(sender), write)
}
