//! Writing `Pipeline.status.dispatched`: a JSON Patch that tests what it replaces, so that it never undoes another's word and
//! never conflicts with the pipeline controller's part of the same status.

use std::collections::BTreeSet;

use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::api::delivery::PipelineRef;
use crate::api::pipeline::Dispatched;
use crate::api::{Pipeline, version};
use crate::k8s::call::{CallError, call};
use crate::k8s::guarded::{Guarded, Outcome};

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
) -> Result<Persisted, CallError> {
    let raw = serde_json::to_value(new)?;
    let mut patch = Guarded::of(Some(&pipeline.uid)).test(["status", "dispatched"], old.clone());
    if let Some(serial) = serial {
        patch = patch.test(["status", "log", "serial"], json!(serial));
    }
    let api: Api<Pipeline> = Api::namespaced(client.clone(), &pipeline.namespace);
    Ok(match patch.put(["status", "dispatched"], &raw)?.write_status(&api, &pipeline.name).await? {
        Outcome::Written(stored) => Persisted::Done(Stored { raw, version: version(stored.resource_version().as_deref()) }),
        Outcome::Stale => Persisted::Stale,
        Outcome::Gone => Persisted::Gone,
    })
}

/// The subjects of the changes that the API server holds above this serial. `None`: there is no such log any more.
pub async fn changed_since(
    client: &Client,
    pipeline: &PipelineRef,
    serial: i64,
) -> Result<Option<BTreeSet<String>>, CallError> {
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
pub async fn read(client: &Client, pipeline: &PipelineRef) -> Result<Option<(Stored, Option<i64>)>, CallError> {
    Ok(get(client, pipeline).await?.map(|o| {
        let raw = o.data.pointer("/status/dispatched").cloned().unwrap_or(Value::Null);
        let serial = o.data.pointer("/status/log/serial").and_then(Value::as_i64);
        (Stored { raw, version: version(o.resource_version().as_deref()) }, serial)
    }))
}

/// The object as it is now; `None` if it is gone, or another made under its name.
async fn get(client: &Client, pipeline: &PipelineRef) -> Result<Option<DynamicObject>, CallError> {
    let resource = ApiResource::erase::<Pipeline>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &pipeline.namespace, &resource);
    let object = call(api.get_opt(&pipeline.name)).await?;
    Ok(object.filter(|o| o.metadata.uid.as_ref() == Some(&pipeline.uid)))
}
