//! Writing `Pipeline.status.dispatched`: a JSON Patch that tests what it replaces, so that it never undoes another's word and
//! never conflicts with the pipeline controller's part of the same status.

use std::collections::BTreeSet;
use std::time::Duration;

use json_patch::{AddOperation, Patch, PatchOperation, TestOperation, jsonptr::PointerBuf};
use kube::api::PatchParams;
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use thiserror::Error;

use crate::api::delivery::PipelineRef;
use crate::api::pipeline::Dispatched;
use crate::api::{Pipeline, version};

const DEADLINE: Duration = Duration::from_secs(10);

/// Why the position could not be persisted.
#[derive(Debug, Error)]
pub enum PersistError {
    /// The API server refused or could not be asked.
    #[error("the position in the change log could not be written")]
    Api(#[source] Box<kube::Error>),
    /// It did not answer in time: it is not known whether the write was done.
    #[error("the API server did not answer in time")]
    Timeout,
    /// What the API server holds is not a pipeline's status.
    #[error("the position in the change log cannot be read")]
    Json(#[source] serde_json::Error),
}

/// What the API server holds of the dispatcher's part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// As it stands there, word for word, for the next test; `null` if it is not there.
    pub raw: Value,
    /// Version of the object, for telling a stale copy.
    pub version: u64,
}

/// What a write found.
#[derive(Debug)]
pub enum Persisted {
    /// It is written.
    Done(Stored),
    /// Something else stands there than was thought; nothing was written.
    Stale,
    /// The pipeline is gone, or another made under its name.
    Gone,
}

/// Replaces `old` by `new`. `serial`: what the log must still end with, for cursors that begin there.
pub async fn write(
    client: &Client,
    pipeline: &PipelineRef,
    old: &Value,
    new: &Dispatched,
    serial: Option<i64>,
) -> Result<Persisted, PersistError> {
    let test = |tokens: &[&str], value: Value| {
        PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(tokens.iter().copied()), value })
    };
    let raw = serde_json::to_value(new).map_err(PersistError::Json)?;
    let mut patch = vec![test(&["metadata", "uid"], json!(pipeline.uid)), test(&["status", "dispatched"], old.clone())];
    patch.extend(serial.map(|serial| test(&["status", "log", "serial"], json!(serial))));
    patch.push(PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(["status", "dispatched"]),
        value: raw.clone(),
    }));
    let patch = kube::api::Patch::Json::<()>(Patch(patch));
    let api: Api<Pipeline> = Api::namespaced(client.clone(), &pipeline.namespace);
    let params = PatchParams::default();
    match tokio::time::timeout(DEADLINE, api.patch_status(&pipeline.name, &params, &patch)).await {
        Ok(Ok(stored)) => Ok(Persisted::Done(Stored { raw, version: version(stored.resource_version().as_deref()) })),
        Ok(Err(kube::Error::Api(s))) if s.is_not_found() => Ok(Persisted::Gone),
        // A failed test is 422 Invalid; a path that is not there is 422 too; 409 after several others were first.
        Ok(Err(kube::Error::Api(s))) if s.code == 422 || s.is_conflict() => Ok(Persisted::Stale),
        Ok(Err(error)) => Err(PersistError::Api(Box::new(error))),
        Err(_) => Err(PersistError::Timeout),
    }
}

/// The subjects of the changes that the API server holds above this serial. `None`: there is no such log any more.
pub async fn changed_since(
    client: &Client,
    pipeline: &PipelineRef,
    serial: i64,
) -> Result<Option<BTreeSet<String>>, PersistError> {
    let Some(object) = get(client, pipeline).await? else { return Ok(None) };
    if object.data.pointer("/status/log/serial").and_then(Value::as_i64) < Some(serial) {
        return Ok(None);
    }
    let changes = object.data.pointer("/status/log/changes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let later = changes.iter().filter(|change| change.get("serial").and_then(Value::as_i64) > Some(serial));
    Ok(Some(later.filter_map(|change| change.get("subject")?.as_str().map(str::to_owned)).collect()))
}

/// Reads what the API server holds now, and the serial of the log beside it. `None`: the pipeline is gone, or another made under
/// its name.
pub async fn read(client: &Client, pipeline: &PipelineRef) -> Result<Option<(Stored, Option<i64>)>, PersistError> {
    Ok(get(client, pipeline).await?.map(|o| {
        let raw = o.data.pointer("/status/dispatched").cloned().unwrap_or(Value::Null);
        let serial = o.data.pointer("/status/log/serial").and_then(Value::as_i64);
        (Stored { raw, version: version(o.resource_version().as_deref()) }, serial)
    }))
}

/// The object as it is now; `None` if it is gone, or another made under its name.
async fn get(client: &Client, pipeline: &PipelineRef) -> Result<Option<DynamicObject>, PersistError> {
    let resource = ApiResource::erase::<Pipeline>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &pipeline.namespace, &resource);
    let call = tokio::time::timeout(DEADLINE, api.get_opt(&pipeline.name));
    let object = call.await.map_err(|_| PersistError::Timeout)?.map_err(|e| PersistError::Api(Box::new(e)))?;
    Ok(object.filter(|o| o.metadata.uid.as_ref() == Some(&pipeline.uid)))
}
