//! The store of deliveries. With `object`, it is the only file that knows that they are Kubernetes objects.
//!
//! In: transitions to record, with or without an outcome; statuses to write. Out: records, and events when another component changed one;
//! whether the API server accepts writes at present.

mod conflict;
mod error;
mod health;
mod object;

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, future, stream};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;

use crate::outbox::record::{Record, name};
pub(crate) use conflict::{is_reopened, keep_history, met};
pub use error::JournalError;
pub(crate) use health::Health;
use object::{Found, found, merge, object, record};
use relaybook_api::{Delivery, DeliverySpec, DeliveryStatus, ObjectName, version};
use relaybook_runtime::tenure::Authority;
use relaybook_runtime::watch::{api_in, watch_by_term};
use relaybook_telemetry::metrics::{ApiWrite, Metrics, Watch, WriteResult};

/// Maximum number of concurrent creates, which the API server handles well.
const PARALLEL: usize = 32;
/// Pause after a failed read.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of immediate tries of a create or of a status write after conflicts. Later tries follow after a pause.
const TRIES: u32 = 3;
/// Maximum duration of a call.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// The result of a status write.
#[derive(Debug)]
pub enum Written {
    /// The status is written.
    Stored {
        /// The new version of the object.
        version: String,
        /// The status that it has now.
        status: Box<DeliveryStatus>,
    },
    /// Another replica has settled the delivery or made a later attempt.
    Overtaken(Box<Record>),
    /// The delivery was settled, by this write or by another replica, and a user has requested a redelivery since.
    Reopened(Box<Record>),
    /// A user has changed the annotation that requests a redelivery. The outcome must be decided again, with this record.
    Annotated(Box<Record>),
    /// The object is gone. Another object may have been created under its name.
    Gone(Option<Box<Record>>),
}

/// An event from the watch of the records.
#[derive(Debug)]
pub enum Event {
    /// A record exists. It is new or changed.
    Seen(Box<Record>),
    /// A record was deleted. The uid identifies the object.
    Deleted(ObjectName, String),
    /// The same, but a finalizer keeps the object.
    Terminating(ObjectName, String),
    /// A list starts. Objects that it does not contain may be gone.
    ListBegins,
    /// The list that was started in this leadership term is complete.
    ListEnds(u64),
}

#[cfg(feature = "broken")]
impl Event {
    /// Whether it shows a delivery that waits for its next attempt.
    pub(crate) fn is_retried(&self) -> bool {
        matches!(self, Self::Seen(record) if record.status.attempts > 0 && record.status.outcome.is_none())
    }
}

/// The store of deliveries.
#[derive(Clone)]
pub struct Journal {
    client: Client,
    metrics: Metrics,
    health: Arc<Health>,
}

/// A delivery that has to be recorded.
#[derive(Clone, Debug)]
pub struct New {
    /// The namespace in which it has to be stored.
    pub namespace: String,
    /// The namespace in which it may have been recorded before, under another configuration. That is checked first.
    pub elsewhere: Option<String>,
    /// What the delivery reports.
    pub spec: Arc<DeliverySpec>,
}

impl Journal {
    /// A journal in the Kubernetes API.
    #[must_use]
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, metrics, health: Arc::default() }
    }

    fn api(&self, namespace: &str) -> Api<Delivery> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Returns whether the API server accepts deliveries, as far as is known.
    #[must_use]
    pub(in crate::outbox) fn health(&self) -> &Health {
        &self.health
    }

    /// Records a transition with a status: none before its first attempt, and otherwise the result of the attempt. Returns the object that
    /// is stored under its name. If it was recorded before, that object can have another status.
    pub async fn create(
        &self,
        authority: Authority<'_>,
        new: &New,
        status: Option<&DeliveryStatus>,
    ) -> Result<Record, JournalError> {
        may_write(authority)?;
        let result = self.find_or_create(new, status).await;
        self.health.note_create(new, &result);
        result
    }

    /// Records a test. Returns `None` if an object with its name exists. It does not count for the health.
    pub async fn create_test(&self, authority: Authority<'_>, new: &New) -> Result<Option<Record>, JournalError> {
        may_write(authority)?;
        let object = object(&name(&new.spec), &new.spec, None);
        match deadline(self.api(&new.namespace).create(&PostParams::default(), &object)).await {
            // With older CRDs it would be sent as a real one. The engine deletes it.
            Ok(stored) if !stored.spec.test => Err(JournalError::StatusDropped),
            Ok(stored) => {
                self.metrics.api_write(ApiWrite::DeliveryCreate, WriteResult::Ok);
                Ok(Some(record(stored)))
            }
            Err(JournalError::Refused(kube::Error::Api(status))) if status.is_already_exists() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn find_or_create(&self, new: &New, status: Option<&DeliveryStatus>) -> Result<Record, JournalError> {
        let New { namespace, elsewhere, spec } = new;
        let name = name(spec);
        let mut object = object(&name, spec, status);
        if let Some(elsewhere) = elsewhere
            && let Some(stored) = deadline(self.api(elsewhere).get_opt(&name)).await?
        {
            match found(stored, spec) {
                Found::Same(record) => return Ok(*record),
                other => self.replace(other, &mut object).await?,
            }
        }
        let mut is_replaced = false;
        let mut tries = 0;
        loop {
            tries += 1;
            let api = self.api(namespace);
            match deadline(api.create(&PostParams::default(), &object)).await {
                Ok(stored) if object.status.is_some() && stored.status != object.status => {
                    self.metrics.api_write(ApiWrite::DeliveryCreate, WriteResult::Error);
                    return Err(JournalError::StatusDropped);
                }
                Ok(stored) => {
                    self.metrics.api_write(ApiWrite::DeliveryCreate, WriteResult::Ok);
                    return Ok(record(stored));
                }
                Err(JournalError::Refused(kube::Error::Api(status))) if status.is_already_exists() => {
                    self.metrics.api_write(ApiWrite::DeliveryCreate, WriteResult::Conflict);
                    // It was recorded before, by this process (the response was lost) or by another replica. The live object takes
                    // precedence.
                    let Some(stored) = deadline(api.get_opt(&name)).await? else {
                        if tries < TRIES {
                            continue;
                        }
                        // An admission webhook can fake a conflict with an object that does not exist.
                        return Err(JournalError::Refused(kube::Error::Api(status)));
                    };
                    match found(stored, spec) {
                        Found::Same(record) => return Ok(*record),
                        _ if is_replaced => return Err(JournalError::Taken(name)),
                        other => self.replace(other, &mut object).await?,
                    }
                    is_replaced = true;
                }
                Err(e) => {
                    self.metrics.api_write(ApiWrite::DeliveryCreate, WriteResult::Error);
                    return Err(e);
                }
            }
        }
    }

    /// Deletes an object with other content, so that `object` can be created in its place.
    async fn replace(&self, other: Found, object: &mut Delivery) -> Result<(), JournalError> {
        match other {
            Found::Same(_) => Ok(()),
            Found::Attempted(mut other) => {
                object.status = object.status.take().or_else(|| other.status.take());
                self.remove(&ObjectName::of(&*other), version(other.metadata.resource_version.as_deref())).await.map(drop)
            }
            Found::Foreign(other) => self.delete_foreign(&other).await,
        }
    }

    async fn delete_foreign(&self, other: &Delivery) -> Result<(), JournalError> {
        self.metrics.foreign();
        let id = ObjectName::of(other);
        tracing::warn!(namespace = %id.namespace, delivery = %id.name, "deleting a Delivery that Relaybook did not record");
        self.remove(&id, version(other.metadata.resource_version.as_deref())).await.map(drop)
    }

    /// Reads one record. Returns `None` if it does not exist.
    pub async fn read(&self, id: &ObjectName) -> Result<Option<Record>, JournalError> {
        Ok(deadline(self.api(&id.namespace).get_opt(&id.name)).await?.map(record))
    }

    /// Returns those of these records that no longer exist. Retries each read until it is answered.
    pub async fn gone(&self, ids: Vec<ObjectName>) -> Vec<ObjectName> {
        let is_gone = |id: ObjectName| async move {
            loop {
                // Reads only the metadata. A Delivery that a user has made unreadable still exists.
                match deadline(self.api(&id.namespace).get_metadata_opt(&id.name)).await {
                    Ok(found) => return found.is_none().then_some(id),
                    Err(error) => {
                        tracing::warn!(error = %error.detail(), delivery = %id.name, "could not check whether the Delivery still exists; retrying");
                        tokio::time::sleep(ASK_AGAIN).await;
                    }
                }
            }
        };
        stream::iter(ids).map(is_gone).buffer_unordered(PARALLEL).filter_map(future::ready).collect().await
    }

    /// Writes a status. The write carries the version on which it was decided, so it never overwrites another write. After a conflict or a
    /// lost response, the live object is read first. If the object is gone, or another component has settled it, nothing more is written.
    /// An admission webhook can fake a conflict for which the live object gives no reason. Such a conflict is an error after some tries.
    pub async fn write(
        &self,
        authority: Authority<'_>,
        record: &Record,
        status: &DeliveryStatus,
    ) -> Result<Written, JournalError> {
        may_write(authority)?;
        let result = self.patch(record, status).await;
        self.health.note(&result);
        result
    }

    async fn patch(&self, record: &Record, status: &DeliveryStatus) -> Result<Written, JournalError> {
        let api = self.api(&record.id.namespace);
        let mut version = record.version.clone();
        let mut before = record.status.clone();
        let mut status = status.clone();
        let mut tries = 0;
        loop {
            tries += 1;
            let patch = merge(&version, &before, &status, record.unwritten);
            match deadline(api.patch(&record.id.name, &PatchParams::default(), &Patch::Merge(&patch))).await {
                Ok(stored) if stored.status.as_ref() != Some(&status) => {
                    self.metrics.api_write(ApiWrite::DeliveryStatus, WriteResult::Error);
                    return Err(JournalError::StatusDropped);
                }
                Ok(stored) => {
                    self.metrics.api_write(ApiWrite::DeliveryStatus, WriteResult::Ok);
                    let version = stored.resource_version().unwrap_or_default();
                    return Ok(Written::Stored { version, status: Box::new(status) });
                }
                Err(JournalError::Refused(kube::Error::Api(s)))
                    if tries < TRIES && (s.is_conflict() || s.is_not_found()) =>
                {
                    self.metrics.api_write(ApiWrite::DeliveryStatus, WriteResult::Conflict);
                }
                Err(e) => {
                    self.metrics.api_write(ApiWrite::DeliveryStatus, WriteResult::Error);
                    return Err(e);
                }
            }
            match met(record, &mut status, self.read(&record.id).await?) {
                Ok(written) => return Ok(written),
                Err(live) => (version, before) = (live.version, live.status),
            }
        }
    }

    /// Deletes a Delivery if it still has this version (`u64::MAX`: any version). Returns `false` if it has changed or is gone.
    pub async fn delete(&self, authority: Authority<'_>, id: &ObjectName, version: u64) -> Result<bool, JournalError> {
        may_write(authority)?;
        self.remove(id, version).await
    }

    async fn remove(&self, id: &ObjectName, version: u64) -> Result<bool, JournalError> {
        let resource_version = (version != u64::MAX).then(|| version.to_string());
        let preconditions = Some(Preconditions { resource_version, uid: None });
        let params = DeleteParams { preconditions, ..DeleteParams::background() };
        match deadline(self.api(&id.namespace).delete(&id.name, &params)).await {
            Ok(_) => {
                self.metrics.api_write(ApiWrite::DeliveryDelete, WriteResult::Ok);
                Ok(true)
            }
            Err(JournalError::Refused(kube::Error::Api(s))) if s.is_conflict() || s.is_not_found() => {
                self.metrics.api_write(ApiWrite::DeliveryDelete, WriteResult::Conflict);
                Ok(false)
            }
            Err(error) => {
                self.metrics.api_write(ApiWrite::DeliveryDelete, WriteResult::Error);
                Err(error)
            }
        }
    }

    /// Watches all records of a namespace, or of all namespaces, with a new list in each leadership term.
    pub fn watch(
        &self,
        namespace: Option<&str>,
        terms: watch::Receiver<Option<u64>>,
    ) -> impl Stream<Item = Event> + Send + 'static {
        let metrics = self.metrics.clone();
        let (term, events) = watch_by_term::<Delivery>(api_in(&self.client, namespace), terms);
        events.filter_map(move |event| {
            let event = match event {
                Ok(Apply(d) | InitApply(d)) if d.metadata.deletion_timestamp.is_none() => {
                    Some(Event::Seen(Box::new(record(d))))
                }
                // A finalizer can keep a deleted Delivery for any length of time. A deleted Delivery is never sent, whichever client
                // created it.
                Ok(Apply(d) | InitApply(d)) => Some(Event::Terminating(ObjectName::of(&d), d.uid().unwrap_or_default())),
                Ok(Delete(d)) => Some(Event::Deleted(ObjectName::of(&d), d.uid().unwrap_or_default())),
                Ok(Init) => Some(Event::ListBegins),
                Ok(InitDone) => Some(Event::ListEnds(term.number())),
                Err(_) => {
                    metrics.watch_error(Watch::Deliveries);
                    None
                }
            };
            future::ready(event)
        })
    }
}

/// Returns an error if a call may not start.
fn may_write(authority: Authority<'_>) -> Result<(), JournalError> {
    if authority.allows(DEADLINE) { Ok(()) } else { Err(JournalError::NotHeld) }
}

/// Applies the deadline to a call and classifies its errors.
async fn deadline<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, JournalError> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(s))) if (400..500).contains(&s.code) && s.code != 429 && s.code != 408 => {
            Err(JournalError::Refused(kube::Error::Api(s)))
        }
        Ok(Err(error)) => Err(JournalError::Unavailable(error)),
        Err(_) => Err(JournalError::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::*;
    use relaybook_runtime::tenure::Unowned;

    #[tokio::test]
    async fn a_create_that_conflicts_with_no_object_is_refused_after_repeated_tries() {
        let creates = Arc::new(AtomicU32::new(0));
        let counted = creates.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let is_create = request.method() == http::Method::POST;
            counted.fetch_add(u32::from(is_create), Ordering::Relaxed);
            let (code, reason) = if is_create { (409_u16, "AlreadyExists") } else { (404, "NotFound") };
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code});
            let body = kube::client::Body::from(status.to_string().into_bytes());
            future::ready(Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(body).unwrap()))
        });
        let journal = Journal::new(Client::new(service, "default"), Metrics::new());
        let new = New { namespace: "team-a".into(), elsewhere: None, spec: Arc::new(relaybook_api::testing::spec(1)) };
        let error = journal.create(Unowned::Outcome.into(), &new, None).await.unwrap_err();
        assert!(matches!(error, JournalError::Refused(_)), "{error:?}");
        assert_eq!(creates.load(Ordering::Relaxed), TRIES);
    }
}
