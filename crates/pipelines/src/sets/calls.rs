//! The calls of a reconcile: applies and deletions of pipelines, and the status of the set.
//!
//! In: actions. Out: what the API server answered. A pipeline that is not of the set is never changed, whatever the watches have delivered.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{self, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy, ValidationDirective};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use relaybook_text::cut;

use super::decide::{Action, identity};
use super::expand::{Desired, INVALID, shown};
use super::made::Made;
use super::{Context, Error, may_write};
use relaybook_api::pipeline::Baseline;
use relaybook_api::pipeline_set::{Deletion, SET_MANAGER, WrongPipeline};
use relaybook_api::{Pipeline, PipelineSet, PipelineSetStatus};
use relaybook_core::changelog::MAX_MESSAGE;
use relaybook_runtime::call::{CallError, call};
use relaybook_runtime::guarded::{Guarded, Outcome as Written};
use relaybook_runtime::tenure::{Tenure, write};
use relaybook_telemetry::metrics::{ApiWrite, WriteResult};

/// Maximum number of concurrent calls for one set.
const CALLS: usize = 8;

/// The result of an action.
pub(super) enum Done {
    /// A pipeline of the set was found that the watch did not have.
    Found(String, Box<Made>),
    /// A pipeline was made or changed.
    Applied {
        name: String,
        is_new: bool,
        baseline: Option<Baseline>,
        made: Box<Made>,
    },
    Deleted(String),
    /// The API server refused a pipeline.
    Refused {
        name: String,
        /// Identifies what it refused.
        what: String,
        wrong: WrongPipeline,
    },
}

/// Carries out actions, several at a time. After a timeout no more begin: the reconcile keeps a permit, and each of them could take as long.
/// `spec`: the spec of a desired pipeline.
pub(super) async fn act(
    context: &Context,
    tenure: &Tenure,
    set: &PipelineSet,
    actions: Vec<Action>,
    spec: impl Fn(&Desired) -> Option<Value> + Sync,
) -> Vec<Result<Done, Error>> {
    let api: Api<Pipeline> = Api::namespaced(context.client.clone(), &set.namespace().unwrap_or_default());
    let is_hung = AtomicBool::new(false);
    let act = |action| {
        let (api, spec, is_hung) = (api.clone(), &spec, &is_hung);
        async move {
            may_write(tenure).await?;
            let result = match action {
                Action::Apply { name, uid, desired, baseline } => {
                    let spec = spec(&desired).unwrap_or_default();
                    apply((tenure, &api), set, &name, uid, &desired, spec, baseline).await
                }
                Action::Delete { name, uid, version } => delete(tenure, &api, name, uid, version).await,
            };
            count(context, ApiWrite::PipelineOfSet, &result);
            if result.as_ref().is_err_and(Error::is_timeout) {
                is_hung.store(true, Ordering::Relaxed);
            }
            result
        }
    };
    // The stream takes an action only when one of the calls is free.
    let actions = actions.into_iter().take_while(|_| !is_hung.load(Ordering::Relaxed));
    stream::iter(actions).map(act).buffer_unordered(CALLS).collect().await
}

/// Counts a write, if it was made.
fn count<T>(context: &Context, write: ApiWrite, result: &Result<T, Error>) {
    if !result.as_ref().is_err_and(Error::is_not_held) {
        context.metrics.api_write(write, if result.is_ok() { WriteResult::Ok } else { WriteResult::Error });
    }
}

/// Makes or changes a pipeline by server-side apply
/// (<https://kubernetes.io/docs/reference/using-api/server-side-apply/>).
async fn apply(
    (tenure, api): (&Tenure, &Api<Pipeline>),
    set: &PipelineSet,
    name: &str,
    uid: Option<String>,
    desired: &Desired,
    spec: Value,
    baseline: Option<Baseline>,
) -> Result<Done, Error> {
    let params = PatchParams {
        field_manager: Some(SET_MANAGER.to_owned()),
        // What a person has changed in a pipeline of the set is changed back. A pipeline that is not of the set has no such fields.
        force: uid.is_some(),
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let object = object(set, name, uid.as_deref(), desired, spec, baseline);
    let error = match write(tenure.into(), api.patch(name, &params, &Patch::Apply(&object))).await {
        Ok(live) => {
            let Some((_, made)) = Made::of(&live) else { return Ok(Done::Deleted(name.to_owned())) };
            return Ok(Done::Applied { name: name.to_owned(), is_new: uid.is_none(), baseline, made: Box::new(made) });
        }
        Err(error) => error,
    };
    let deletion = set.spec.deletion.unwrap_or_default();
    let what = if uid.is_some() { "changed" } else { "made" };
    let failed = |source| Error::Pipeline { name: name.to_owned(), what, source };
    let Some(message) = refusal(&error) else { return Err(failed(error)) };
    let refused = |reason: &str, message: &str| {
        let (name, reason, source) = (name.to_owned(), reason.to_owned(), shown(&desired.source));
        let message = cut(message, MAX_MESSAGE).into_owned();
        let wrong = WrongPipeline { name: name.clone(), source, reason, message };
        Ok(Done::Refused { name, what: identity(desired, baseline, deletion), wrong })
    };
    let live = call(api.get_opt(name)).await.map_err(failed)?;
    match live.as_ref().map(Made::of) {
        Some(Some((of, made))) if of == set.name_any() && uid.is_none() => {
            // The watch did not deliver it, for example because somebody removed its label. The next reconcile has its uid.
            Ok(Done::Found(name.to_owned(), Box::new(made)))
        }
        Some(Some((of, _))) if of != set.name_any() => refused(
            "NameTaken",
            &format!("the PipelineSet {of} has a pipeline of this name; correct template.metadata.name"),
        ),
        Some(None) => refused(
            "NameTaken",
            "a pipeline of this name exists that no set made; delete it, or correct template.metadata.name",
        ),
        Some(Some(_)) | None if is_conflict(&error) => Err(failed(error)),
        Some(Some(_)) | None => refused(INVALID, &message),
    }
}

/// Returns the message of an error that stays until something is changed. `None`: another error.
fn refusal(error: &CallError) -> Option<String> {
    let CallError::Api(error) = error else { return None };
    let kube::Error::Api(status) = &**error else { return None };
    // An object that does not match the schema at all is refused with 500.
    let is_untyped = status.code == 500 && status.message.starts_with("failed to create typed patch object");
    let is_client_error = (400..500).contains(&status.code) && !matches!(status.code, 401 | 404 | 408 | 429);
    (is_untyped || is_client_error).then(|| status.message.clone())
}

/// Whether another writer was faster.
fn is_conflict(error: &CallError) -> bool {
    matches!(error, CallError::Api(error) if matches!(&**error, kube::Error::Api(status) if status.is_conflict()))
}

/// Returns the object to apply.
fn object(
    set: &PipelineSet,
    name: &str,
    uid: Option<&str>,
    desired: &Desired,
    mut spec: Value,
    baseline: Option<Baseline>,
) -> Value {
    if let (Some(fields), Some(baseline)) = (spec.as_object_mut(), baseline) {
        fields.insert("baseline".to_owned(), json!(baseline));
    }
    let mut metadata = json!({
        "name": name,
        "namespace": set.namespace(),
        "labels": desired.labels,
        "annotations": desired.annotations,
    });
    if let Some(fields) = metadata.as_object_mut() {
        // Another pipeline of the name has another uid, so the API server refuses.
        uid.map(|uid| fields.insert("uid".to_owned(), uid.into()));
        if set.spec.deletion.unwrap_or_default() == Deletion::Delete {
            fields.insert("ownerReferences".to_owned(), json!([owner(set)]));
        }
    }
    json!({"apiVersion": Pipeline::api_version(&()), "kind": "Pipeline", "metadata": metadata, "spec": spec})
}

fn owner(set: &PipelineSet) -> Option<OwnerReference> {
    set.controller_owner_ref(&())
}

/// Deletes a pipeline, unless it has changed since.
async fn delete(tenure: &Tenure, api: &Api<Pipeline>, name: String, uid: String, version: String) -> Result<Done, Error> {
    let preconditions = Some(Preconditions { uid: Some(uid), resource_version: Some(version) });
    let params =
        DeleteParams { preconditions, propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    match write(tenure.into(), api.delete(&name, &params)).await {
        Ok(_) => Ok(Done::Deleted(name)),
        Err(CallError::Api(error)) if matches!(&*error, kube::Error::Api(status) if status.is_not_found()) => {
            Ok(Done::Deleted(name))
        }
        Err(source) => Err(Error::Pipeline { name, what: "deleted", source }),
    }
}

/// Writes a status. Returns the set with it. A set that is gone or is another one now is seen by the watch.
pub(super) async fn write_status(
    context: &Context,
    tenure: &Tenure,
    set: &PipelineSet,
    status: Option<PipelineSetStatus>,
) -> Result<Option<PipelineSet>, Error> {
    let Some(status) = status else { return Ok(None) };
    may_write(tenure).await?;
    let api: Api<PipelineSet> = Api::namespaced(context.client.clone(), &set.namespace().unwrap_or_default());
    let encoded = |error: serde_json::Error| Error::Status(error.into());
    let patch = Guarded::of(set.metadata.uid.as_deref()).put(["status"], &status).map_err(encoded)?;
    let result = patch.write_status(tenure.into(), &api, &set.name_any()).await.map_err(Error::Status);
    count(context, ApiWrite::PipelineSetStatus, &result);
    match result? {
        Written::Written(set) => Ok(Some(set)),
        Written::Stale | Written::Gone => Ok(None),
    }
}
