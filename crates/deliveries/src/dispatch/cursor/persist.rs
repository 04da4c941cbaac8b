//! Writes `Pipeline.status.dispatched` with a JSON Patch that tests the value that it replaces. So a write never undoes a write of another
//! writer. It also never conflicts with the pipeline controller's part of the same status.

use std::collections::BTreeSet;

use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::state::PassContext;
use relaybook_api::pipeline::Dispatched;
use relaybook_api::{Pipeline, version};
use relaybook_runtime::call::{CallError, call};
use relaybook_runtime::guarded::{Guarded, Outcome};
use relaybook_runtime::pace::SMALL_OBJECT;

/// The sizes of a target and of a change in a status, in bytes.
const TARGET: usize = 500;
const CHANGE: usize = 330;

/// The dispatcher's part of the status, as the API server has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// The exact value in the API server, for the test of the next write. `null` if there is none.
    pub raw: Value,
    /// Version of the object, to detect a stale copy.
    pub version: u64,
}

/// The result of a write.
#[derive(Debug)]
pub enum Persisted {
    /// The value is written.
    Done(Stored),
    /// The API server has another value than expected. Nothing was written.
    Stale,
    /// The pipeline is deleted, or another one has its name now.
    Gone,
}

/// Returns the approximate size of the status, in bytes.
pub fn approximate_bytes(pipeline: &Pipeline) -> usize {
    let Some(status) = &pipeline.status else { return SMALL_OBJECT };
    let targets: usize = status.environments.iter().map(|environment| environment.targets.len()).sum();
    let changes = status.log.as_ref().map_or(0, |log| log.changes.len());
    (TARGET * targets + CHANGE * changes).max(SMALL_OBJECT)
}

/// Replaces `old` with `new`. `serial`: the serial that the log must still end with, for cursors that start there.
pub async fn write(
    with: PassContext<'_>,
    old: &Value,
    new: &Dispatched,
    serial: Option<i64>,
) -> Result<Persisted, CallError> {
    let PassContext { of: pipeline, tenure, ctx } = with;
    let raw = serde_json::to_value(new)?;
    let mut patch = Guarded::of(Some(&pipeline.uid)).test(["status", "dispatched"], old.clone());
    if let Some(serial) = serial {
        patch = patch.test(["status", "log", "serial"], json!(serial));
    }
    let api: Api<Pipeline> = Api::namespaced(ctx.client.clone(), &pipeline.namespace);
    let patch = patch.put(["status", "dispatched"], &raw)?;
    Ok(match patch.write_status(tenure.into(), &api, &pipeline.name).await? {
        Outcome::Written(stored) => Persisted::Done(Stored { raw, version: version(stored.resource_version().as_deref()) }),
        Outcome::Stale => Persisted::Stale,
        Outcome::Gone => Persisted::Gone,
    })
}

/// Returns the subjects of the changes above this serial in the API server. `None`: the pipeline is deleted, or its log does not reach this
/// serial.
pub async fn changed_since(with: PassContext<'_>, serial: i64) -> Result<Option<BTreeSet<String>>, CallError> {
    let Some(object) = get(with).await? else { return Ok(None) };
    if object.data.pointer("/status/log/serial").and_then(Value::as_i64) < Some(serial) {
        return Ok(None);
    }
    let changes = object.data.pointer("/status/log/changes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let later = changes.iter().filter(|change| change.get("serial").and_then(Value::as_i64) > Some(serial));
    Ok(Some(later.filter_map(|change| change.get("subject")?.as_str().map(str::to_owned)).collect()))
}

/// Reads the current value from the API server, and the serial of the log of the same object. `None`: the pipeline is deleted, or another
/// one has its name now.
pub async fn read(with: PassContext<'_>) -> Result<Option<(Stored, Option<i64>)>, CallError> {
    Ok(get(with).await?.map(|o| {
        let raw = o.data.pointer("/status/dispatched").cloned().unwrap_or(Value::Null);
        let serial = o.data.pointer("/status/log/serial").and_then(Value::as_i64);
        (Stored { raw, version: version(o.resource_version().as_deref()) }, serial)
    }))
}

/// Returns the current object. `None` if it is deleted, or if another one has its name now.
async fn get(PassContext { of: pipeline, ctx, .. }: PassContext<'_>) -> Result<Option<DynamicObject>, CallError> {
    let resource = ApiResource::erase::<Pipeline>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.client.clone(), &pipeline.namespace, &resource);
    let object = call(api.get_opt(&pipeline.name)).await?;
    Ok(object.filter(|o| o.metadata.uid.as_ref() == Some(&pipeline.uid)))
}
