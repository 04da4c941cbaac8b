//! The store of deliveries: the only file that knows that they are Kubernetes objects.
//!
//! In: transitions to record, statuses to write. Out: records, and events when another component changed one.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, future, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::sync::watch;

use crate::api::delivery::{REDELIVER, is_same_notification};
use crate::api::{Age, Delivery, DeliverySpec, DeliveryStatus, now, since_boot, version};
use crate::k8s::watch::Deleted;
use crate::outbox::record::{Record, RecordId, name};
use crate::outbox::send_gate::genuine;
use crate::telemetry::chain;
use crate::telemetry::metrics::{ApiWrite, Metrics, Watch, WriteResult};

/// Maximum number of concurrent creates, which the API server handles well.
const PARALLEL: usize = 32;
/// The pause after a read that failed.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of immediate tries of a status write after version conflicts. Later tries follow after a pause.
const TRIES: u32 = 3;
/// Maximum duration of a call.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why a record could not be created or written.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The API server understood and refused the call: quota, admission, permissions. An immediate retry does not help.
    #[error("the API server rejects the delivery")]
    Refused(#[source] kube::Error),
    /// The result of the call is not known.
    #[error("the API server did not answer in time")]
    Timeout,
    /// Everything else: unreachable, overloaded, broken.
    #[error("the API server is unreachable")]
    Unavailable(#[source] kube::Error),
    /// The name is taken by another transition.
    #[error("delivery {0} exists with other content")]
    Taken(String),
}

impl JournalError {
    /// The human-readable message of the API server. It never contains any content of a request.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            Self::Refused(kube::Error::Api(status)) | Self::Unavailable(kube::Error::Api(status)) => status.message.clone(),
            _ => chain(self),
        }
    }
}

/// The result of a status write.
#[derive(Debug)]
pub enum Written {
    /// The status is written.
    Stored {
        /// The new version of the object.
        version: String,
    },
    /// Another replica has settled the delivery or made a later attempt.
    Overtaken(Box<Record>),
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
    Deleted(RecordId, String),
    /// A list starts. Objects that it does not contain may be gone.
    ListBegins,
    /// The list that was started in this leadership term is complete.
    ListEnds(u64),
}

/// The store of deliveries.
#[derive(Clone)]
pub struct Journal {
    client: Client,
    metrics: Metrics,
}

/// A delivery that has to be recorded.
#[derive(Clone, Debug)]
pub struct New {
    /// The namespace in which it has to be stored.
    pub namespace: String,
    /// The namespace in which it may have been recorded before, under another configuration. That is checked first.
    pub elsewhere: Option<String>,
    /// What the delivery reports.
    pub spec: DeliverySpec,
}

impl Journal {
    /// A journal in the Kubernetes API.
    #[must_use]
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, metrics }
    }

    fn api(&self, namespace: &str) -> Api<Delivery> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Records lanes of transitions. Within a lane each create starts after the previous one was answered. Lanes are recorded concurrently.
    /// A lane ends at its first error. The results come as lanes end, each with the number of its lane.
    pub fn record(&self, lanes: Vec<Vec<New>>) -> impl Stream<Item = (usize, Vec<Record>, Option<JournalError>)> + Send {
        let lane = move |(number, lane): (usize, Vec<New>)| async move {
            let mut made = Vec::with_capacity(lane.len());
            for new in lane {
                match self.create(new).await {
                    Ok(record) => made.push(record),
                    Err(e) => return (number, made, Some(e)),
                }
            }
            (number, made, None)
        };
        stream::iter(lanes.into_iter().enumerate().map(lane)).buffer_unordered(PARALLEL)
    }

    async fn create(&self, New { namespace, elsewhere, spec }: New) -> Result<Record, JournalError> {
        let name = name(&spec);
        if let Some(elsewhere) = elsewhere
            && let Some(stored) = deadline(self.api(&elsewhere).get_opt(&name)).await?
        {
            match same(stored, &spec) {
                Ok(record) => return Ok(record),
                Err(other) => self.delete_foreign(&other).await?,
            }
        }
        let object = object(&name, spec);
        let mut is_replaced = false;
        loop {
            let api = self.api(&namespace);
            match deadline(api.create(&PostParams::default(), &object)).await {
                Ok(stored) => {
                    self.metrics.api_write(ApiWrite::DeliveryCreate, WriteResult::Ok);
                    return Ok(record(stored));
                }
                Err(JournalError::Refused(kube::Error::Api(status))) if status.is_already_exists() => {
                    self.metrics.api_write(ApiWrite::DeliveryCreate, WriteResult::Conflict);
                    // It was recorded before, by us (the response was lost) or by another replica. The live object counts.
                    let Some(stored) = deadline(api.get_opt(&name)).await? else { continue };
                    match same(stored, &object.spec) {
                        Ok(record) => return Ok(record),
                        Err(_) if is_replaced => return Err(JournalError::Taken(name)),
                        Err(other) => {
                            // Somebody else has created it, with other content, to be sent in its place.
                            self.delete_foreign(&other).await?;
                            is_replaced = true;
                        }
                    }
                }
                Err(e) => {
                    self.metrics.api_write(ApiWrite::DeliveryCreate, WriteResult::Error);
                    return Err(e);
                }
            }
        }
    }

    async fn delete_foreign(&self, other: &Delivery) -> Result<(), JournalError> {
        self.metrics.foreign();
        let id = id(other);
        tracing::warn!(namespace = %id.namespace, delivery = %id.name, "deleting a Delivery that Pennant did not record");
        self.delete(&id, version(other.metadata.resource_version.as_deref())).await.map(drop)
    }

    /// Reads one record. Returns `None` if it does not exist.
    pub async fn read(&self, id: &RecordId) -> Result<Option<Record>, JournalError> {
        Ok(deadline(self.api(&id.namespace).get_opt(&id.name)).await?.map(record))
    }

    /// Returns those of these records that no longer exist. Retries until each read is answered.
    pub async fn gone(&self, ids: Vec<RecordId>) -> Vec<RecordId> {
        let is_gone = |id: RecordId| async move {
            loop {
                // Reads only the metadata. A Delivery that a user has made unreadable still exists.
                match deadline(self.api(&id.namespace).get_metadata_opt(&id.name)).await {
                    Ok(found) => return found.is_none().then_some(id),
                    Err(error) => {
                        tracing::warn!(error = %error.detail(), delivery = %id.name, "could not read it; retrying");
                        tokio::time::sleep(ASK_AGAIN).await;
                    }
                }
            }
        };
        stream::iter(ids).map(is_gone).buffer_unordered(PARALLEL).filter_map(future::ready).collect().await
    }

    /// Writes a status. The write carries the version on which it was decided, so it never overwrites another write. After a conflict or a
    /// lost response, the live object is read first. If the object is gone, or another component has settled it, the write is over. An
    /// admission webhook can fake a conflict for which the live object gives no reason. Such a conflict is an error after some tries.
    pub async fn write(&self, record: &Record, status: &DeliveryStatus) -> Result<Written, JournalError> {
        let api = self.api(&record.id.namespace);
        let mut version = record.version.clone();
        let mut before = record.status.clone();
        let mut tries = 0;
        loop {
            tries += 1;
            let patch = merge(&version, &before, status, record.unwritten);
            match deadline(api.patch_status(&record.id.name, &PatchParams::default(), &Patch::Merge(&patch))).await {
                Ok(stored) => {
                    self.metrics.api_write(ApiWrite::DeliveryStatus, WriteResult::Ok);
                    return Ok(Written::Stored { version: stored.resource_version().unwrap_or_default() });
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
            match self.read(&record.id).await? {
                None => return Ok(Written::Gone(None)),
                Some(live) if live.uid != record.uid => return Ok(Written::Gone(Some(Box::new(live)))),
                // This is our write, but its response was lost.
                Some(live) if live.status == *status => return Ok(Written::Stored { version: live.version }),
                Some(live) if live.status.outcome.is_some() => return Ok(Written::Overtaken(Box::new(live))),
                Some(live) if status.outcome.is_none() && live.status.attempts >= status.attempts.max(1) => {
                    return Ok(Written::Overtaken(Box::new(live)));
                }
                Some(live) if status.outcome.is_some() && live.asked != record.asked => {
                    return Ok(Written::Annotated(Box::new(live)));
                }
                Some(live) => (version, before) = (live.version, live.status),
            }
        }
    }

    /// Deletes a Delivery if it still has this version (`u64::MAX`: any version). Returns `false` if it has changed or is gone.
    pub async fn delete(&self, id: &RecordId, version: u64) -> Result<bool, JournalError> {
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
        turns: watch::Receiver<Option<u64>>,
    ) -> impl Stream<Item = Event> + Send + 'static {
        let api = namespace.map_or_else(|| Api::all(self.client.clone()), |ns| Api::namespaced(self.client.clone(), ns));
        let metrics = self.metrics.clone();
        let (turn, events) = crate::k8s::watch::in_turns::<Delivery>(api, turns);
        events.filter_map(move |event| {
            let event = match event {
                Ok(Apply(d) | InitApply(d)) if d.metadata.deletion_timestamp.is_none() => {
                    Some(Event::Seen(Box::new(record(d))))
                }
                // A finalizer can keep a deleted Delivery for any length of time. It is never sent, no matter who created it.
                Ok(Apply(d) | InitApply(d) | Delete(d)) => Some(Event::Deleted(id(&d), d.uid().unwrap_or_default())),
                Ok(Init) => Some(Event::ListBegins),
                Ok(InitDone) => Some(Event::ListEnds(turn.number())),
                Err(_) => {
                    metrics.watch_error(Watch::Deliveries);
                    None
                }
            };
            future::ready(event)
        })
    }
}

impl Deleted for Delivery {
    fn deleted(metadata: ObjectMeta) -> Self {
        Self { metadata, spec: DeliverySpec::default(), status: None }
    }
}

/// Returns the object that is stored under the name of a delivery, if it is that delivery. The key must match. Before Pennant has written
/// an attempt or an outcome, the content must match, too. The place in the lane and the error can differ, because the notification can be
/// edited in between.
fn same(stored: Delivery, spec: &DeliverySpec) -> Result<Record, Box<Delivery>> {
    let is_key = stored.spec.pipeline_ref == spec.pipeline_ref
        && stored.spec.notification == spec.notification
        && is_same_notification(&stored.spec.notification_uid, &spec.notification_uid)
        && stored.spec.subject.kind == spec.subject.kind
        && stored.spec.subject.name == spec.subject.name
        && stored.spec.serial == spec.serial
        && stored.spec.type_ == spec.type_;
    let is_begun = stored.status.as_ref().is_some_and(|status| status.attempts > 0 || status.outcome.is_some());
    let is_content = || {
        let place = (spec.lane.clone(), spec.order, spec.due, spec.error.clone(), spec.notification_uid.clone());
        let mut like = stored.spec.clone();
        (like.lane, like.order, like.due, like.error, like.notification_uid) = place;
        like == *spec && genuine::is_in_its_lane(&stored.spec)
    };
    if is_key && (is_begun || is_content()) { Ok(record(stored)) } else { Err(Box::new(stored)) }
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

fn object(name: &str, spec: DeliverySpec) -> Delivery {
    let labels = [
        ("pennant.dev/notification", spec.notification.as_str()),
        ("pennant.dev/pipeline", spec.pipeline_ref.name.as_str()),
        ("pennant.dev/pipeline-namespace", spec.pipeline_ref.namespace.as_str()),
        ("pennant.dev/environment", spec.subject.environment.as_str()),
        // A restored Delivery would have lost its status, and would be sent again.
        ("velero.io/exclude-from-backup", "true"),
    ];
    let labels = labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    Delivery { metadata, spec, status: None }
}

fn id(object: &Delivery) -> RecordId {
    RecordId { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

fn record(object: Delivery) -> Record {
    let id = id(&object);
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
const OPTIONAL: [&str; 10] = [
    "outcome",
    "reason",
    "statusCode",
    "lastAttemptTime",
    "nextAttemptTime",
    "settledTime",
    "durationMillis",
    "error",
    "response",
    "redelivered",
];

/// A merge patch (RFC 7386) from one status to the next. If it is `unwritten`, the stored status can differ from `before`.
fn merge(version: &str, before: &DeliveryStatus, after: &DeliveryStatus, unwritten: bool) -> Value {
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
    use super::*;

    #[test]
    fn the_patch_takes_away_what_is_no_longer_so() {
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
