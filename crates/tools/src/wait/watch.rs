//! The successive states of one Pipeline: one read, and then a watch from its version on.
//!
//! In: the name of a Pipeline. Out: its states ([`Watching::read`]), until it is deleted. A list is not necessary, so `get` and `watch` for this
//! one name are enough. If the API server no longer has the version, the Pipeline is read again.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{sleep, timeout};

use relaybook_api::{ObjectName, Pipeline};

/// Time in seconds after which the API server ends a watch. Then the next one begins.
const LENGTH: u32 = 120;
/// Time after which a watch without an end is dead.
const SILENT: Duration = Duration::from_secs(125);
/// Pause before the next watch.
const PAUSE: Duration = Duration::from_millis(500);

/// Why the Pipeline is not known. Another call of [`Watching::read`] tries again.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The read failed.
    #[error("Pipeline {name} cannot be read")]
    Read {
        /// The Pipeline.
        name: ObjectName,
        /// The error.
        source: Box<kube::Error>,
    },
    /// The watch failed.
    #[error("Pipeline {name} cannot be watched")]
    Watch {
        /// The Pipeline.
        name: ObjectName,
        /// The error.
        source: Box<kube::Error>,
    },
}

/// What happened to the Pipeline.
#[derive(Debug)]
pub enum Event {
    /// It has this state.
    Pipeline(Box<Pipeline>),
    /// It was deleted.
    Deleted,
}

/// A watch of one Pipeline.
pub struct Watching {
    api: Api<Pipeline>,
    name: ObjectName,
    only: WatchParams,
    /// The version from which to watch. `None`: the Pipeline must be read.
    version: Option<String>,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<Pipeline>>>>,
}

impl Watching {
    /// Begins to watch. The first call of [`Watching::read`] sends the first request.
    #[must_use]
    pub fn new(client: &Client, name: &ObjectName) -> Self {
        let only = WatchParams::default().fields(&format!("metadata.name={}", name.name)).timeout(LENGTH);
        let api = Api::namespaced(client.clone(), &name.namespace);
        Self { api, name: name.clone(), only, version: None, events: None }
    }

    /// Returns the next state. The caller can drop the future and call again. No state is lost then.
    pub async fn read(&mut self) -> Result<Event, ReadError> {
        loop {
            let Some(version) = self.version.clone() else {
                let pipeline = self.api.get(&self.name.name).await.map_err(|error| self.unread(error))?;
                self.version = pipeline.resource_version();
                return Ok(Event::Pipeline(Box::new(pipeline)));
            };
            if self.events.is_none() {
                self.begin(&version).await?;
            }
            let Some(event) = self.event().await else {
                self.events = None;
                sleep(PAUSE).await;
                continue;
            };
            if let Some(event) = self.taken(event)? {
                return Ok(event);
            }
        }
    }

    /// Begins a watch from this version.
    async fn begin(&mut self, version: &str) -> Result<(), ReadError> {
        match self.api.watch(&self.only, version).await {
            Ok(events) => self.events = Some(events.boxed()),
            Err(error) if has_expired(&error) => self.version = None,
            Err(error) => return Err(self.unwatched(error)),
        }
        Ok(())
    }

    /// Returns the next event of the watch. `None`: it has ended, or is dead.
    async fn event(&mut self) -> Option<kube::Result<WatchEvent<Pipeline>>> {
        let events = self.events.as_mut()?;
        timeout(SILENT, events.next()).await.ok().flatten()
    }

    /// Returns what an event says about the Pipeline, if anything.
    fn taken(&mut self, event: kube::Result<WatchEvent<Pipeline>>) -> Result<Option<Event>, ReadError> {
        let error = match event {
            Ok(WatchEvent::Added(pipeline) | WatchEvent::Modified(pipeline)) => {
                self.version = pipeline.resource_version();
                return Ok(Some(Event::Pipeline(Box::new(pipeline))));
            }
            Ok(WatchEvent::Deleted(_)) => return Ok(Some(Event::Deleted)),
            Ok(WatchEvent::Bookmark(bookmark)) => {
                self.version = Some(bookmark.metadata.resource_version);
                return Ok(None);
            }
            Ok(WatchEvent::Error(status)) => kube::Error::Api(status),
            Err(error) => error,
        };
        self.events = None;
        if has_expired(&error) {
            self.version = None;
            return Ok(None);
        }
        Err(self.unwatched(error))
    }

    fn unread(&self, error: kube::Error) -> ReadError {
        ReadError::Read { name: self.name.clone(), source: Box::new(error) }
    }

    fn unwatched(&self, error: kube::Error) -> ReadError {
        ReadError::Watch { name: self.name.clone(), source: Box::new(error) }
    }
}

/// Whether the API server no longer has the version.
fn has_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;

    fn pipeline(version: &str) -> Value {
        let metadata = json!({"namespace": "team-a", "name": "web", "uid": "u", "resourceVersion": version});
        let spec = json!({"environments": []});
        json!({"apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": metadata, "spec": spec})
    }

    /// Returns a watch at an API server that gives these answers, and the paths and queries of the requests.
    fn answering(answers: Vec<(u16, Vec<Value>)>) -> (Watching, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let noted = asked.clone();
        let mut answers = answers.into_iter();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            noted.lock().push(request.uri().to_string());
            let (code, lines) = answers.next().expect("an expected request");
            let text: String = lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect();
            let body = Body::from(text.into_bytes());
            std::future::ready(Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(body).unwrap()))
        });
        (Watching::new(&Client::new(service, "default"), &ObjectName::new("team-a", "web")), asked)
    }

    fn event(type_: &str, object: &Value) -> Value {
        json!({"type": type_, "object": object})
    }

    #[tokio::test]
    async fn one_read_is_followed_by_watches_from_the_last_version_on() {
        let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410});
        let bookmark =
            json!({"kind": "Pipeline", "apiVersion": "relaybook.dev/v1alpha1", "metadata": {"resourceVersion": "7"}});
        let (mut watching, asked) = answering(vec![
            (200, vec![pipeline("5")]),
            (200, vec![event("MODIFIED", &pipeline("6")), event("BOOKMARK", &bookmark)]),
            (200, vec![event("ERROR", &gone)]),
            (200, vec![pipeline("9")]),
            (410, vec![gone.clone()]),
            (200, vec![pipeline("11")]),
            (200, vec![event("DELETED", &pipeline("12"))]),
        ]);
        let mut versions = Vec::new();
        while let Event::Pipeline(pipeline) = watching.read().await.unwrap() {
            versions.extend(pipeline.resource_version());
        }
        assert_eq!(versions, ["5", "6", "9", "11"]);
        let from = |uri: &String| {
            let version = uri.split("resourceVersion=").nth(1).map(|rest| rest.split('&').next().unwrap().to_owned());
            assert!(version.is_none() || uri.contains("fieldSelector=metadata.name%3Dweb"), "{uri}");
            version.unwrap_or_else(|| "read".to_owned())
        };
        let asked: Vec<_> = asked.lock().iter().map(from).collect();
        assert_eq!(asked, ["read", "5", "7", "read", "9", "read", "11"]);
    }

    #[tokio::test]
    async fn an_error_is_returned_and_the_next_call_tries_again() {
        let status =
            |code: u16| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": code});
        let (mut watching, _) = answering(vec![
            (503, vec![status(503)]),
            (200, vec![pipeline("5")]),
            (403, vec![status(403)]),
            (200, vec![event("MODIFIED", &pipeline("6"))]),
        ]);
        assert!(matches!(watching.read().await, Err(ReadError::Read { .. })));
        assert!(matches!(watching.read().await, Ok(Event::Pipeline(_))));
        assert!(matches!(watching.read().await, Err(ReadError::Watch { .. })));
        assert!(matches!(watching.read().await, Ok(Event::Pipeline(_))));
    }
}
