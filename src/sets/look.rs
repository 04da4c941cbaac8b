//! One look at a set: gathers, decides, and makes the calls.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy, ValidationDirective};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::decide::{Action, Decided, Known, Refusal, decide, identity, is_spec};
use super::expand::{Desired, Expanded, Found, Settings, expand, shown};
use super::made::Made;
use super::plan::{Planned, as_object, plan};
use super::status::{self, Outcome, record_of};
use super::{Context, Error};
use crate::api::pipeline::Baseline;
use crate::api::pipeline_set::{Deletion, MAX_PIPELINES, SET_MANAGER, WrongPipeline};
use crate::api::{Pipeline, PipelineSet, PipelineSetStatus, Status, now};
use crate::changelog::{MAX_MESSAGE, cut};
use crate::cluster::{Follower, Now, Reason};
use crate::k8s::call::{CallError, call};
use crate::k8s::guarded::{Guarded, Outcome as Written};
use crate::pipeline::plan::Refused;
use crate::telemetry::metrics::{ApiWrite, WriteResult};

/// Time for one call, including retries of the client.
const CALL: Duration = Duration::from_secs(10);
/// Maximum number of concurrent calls for one set.
const CALLS: usize = 8;
/// First and longest pause before a refused pipeline is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(16));

/// What a process remembers of a set between looks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Names of pipelines that existed.
    pub existed: HashSet<String>,
    /// By name: what the API server refused.
    pub refused: HashMap<String, Refusal>,
    /// By name: the hash of the spec that was applied, and the generation after that.
    pub applied: HashMap<String, (String, Option<i64>)>,
}

impl Memory {
    /// Forgets all other pipelines.
    fn retain(&mut self, is_needed: impl Fn(&str) -> bool) {
        self.existed.retain(|name| is_needed(name));
        self.refused.retain(|name, _| is_needed(name));
        self.applied.retain(|name, _| is_needed(name));
    }
}

/// What a look has changed.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// Pipelines as the API server answered, by name.
    pub written: BTreeMap<String, Made>,
    /// The set with its new status.
    pub set: Option<PipelineSet>,
    /// When to look again without an event.
    pub again: Option<Instant>,
}

/// Requests the sources of a set from the caches. Standby replicas do only this. Returns what the set requests, or why it is refused.
pub(super) fn warm(context: &Context, set: &PipelineSet) -> Result<Planned, Refused> {
    let namespace = set.namespace().unwrap_or_default();
    let planned = plan(&set.spec, &namespace, context.options.cross_namespace_refs);
    let generators = planned.iter().flat_map(|planned| &planned.generators);
    let selections = generators.map(|generator| generator.selection.clone()).collect();
    context.caches.select(&Follower::set(namespace, set.name_any()), selections);
    planned
}

/// Looks at a set as the leader.
pub(super) async fn look(
    context: &Context,
    set: &PipelineSet,
    made: &BTreeMap<String, Made>,
    memory: &mut Memory,
) -> Result<Looked, Error> {
    let planned = match warm(context, set) {
        Ok(planned) => planned,
        Err(refused) => {
            let set = write_status(context, set, status::next(set, Err(&refused), now())).await?;
            return Ok(Looked { set, ..Looked::default() });
        }
    };
    memory.existed.extend(made.keys().cloned());
    let generators = planned.generators.iter();
    let found = generators.map(|generator| Found {
        generator,
        sources: context.caches.sources(&generator.selection, MAX_PIPELINES),
        before: record_of(set, &generator.hash),
    });
    let found: Vec<Found<'_>> = found.collect();
    let (mut expanded, decided) = computed(context, set, (&planned, &found), made, memory);
    let (is_cut, leaving) = (decided.is_cut, decided.leaving);
    let done = act(context, set, decided.actions).await;
    let mut looked = Looked::default();
    let mut pipelines = made.values().filter(|made| !made.is_deleting).count();
    let mut failed = None;
    for done in done {
        match done {
            Ok(Done::Applied { name, is_new, baseline, made }) => {
                pipelines += usize::from(is_new);
                memory.refused.remove(&name);
                note_applied(memory, &expanded, (&name, &made), baseline);
                memory.existed.insert(name.clone());
                looked.written.insert(name, *made);
            }
            Ok(Done::Deleted) => pipelines = pipelines.saturating_sub(1),
            Ok(Done::Refused(name, what, wrong)) => {
                expanded.wrong.push(wrong.clone());
                refuse(memory, name, what, wrong);
            }
            Err(error) => failed = Some(error),
        }
    }
    memory.retain(|name| expanded.desired.contains_key(name) || made.contains_key(name));
    let is_recorded = !is_cut && failed.is_none();
    let (incomplete, wrong) = (expanded.incomplete.as_slice(), expanded.wrong);
    let outcome = Outcome { pipelines, leaving, wrong, incomplete, found: is_recorded.then_some(&found[..]) };
    let is_filling = |found: &Found<'_>| matches!(found.sources.incomplete, Some((Reason::CacheNotSynced, _)));
    if !found.iter().any(is_filling) {
        looked.set = write_status(context, set, status::next(set, Ok(outcome), now())).await?;
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let soon = is_cut.then(Instant::now);
    looked.again = soon.into_iter().chain(memory.refused.values().map(|refusal| refusal.again)).min();
    Ok(looked)
}

/// Computes what to do.
fn computed(
    context: &Context,
    set: &PipelineSet,
    (planned, found): (&Planned, &[Found<'_>]),
    made: &BTreeMap<String, Made>,
    memory: &Memory,
) -> (Expanded, Decided) {
    let namespace = set.namespace().unwrap_or_default();
    let settings =
        Settings { cluster_name: &context.options.cluster_name, cross_namespace_refs: context.options.cross_namespace_refs };
    let mut expanded = expand(set, planned, found, settings, |name| made.get(name).map(|made| made.source.clone()));
    let known = Known {
        made,
        existed: &memory.existed,
        refused: &memory.refused,
        applied: &memory.applied,
        uid: set.metadata.uid.as_deref().unwrap_or_default(),
        deletion: set.spec.deletion.unwrap_or_default(),
        now: Instant::now(),
    };
    let decided = decide(&mut expanded, &known, |source| {
        let reading = context.caches.read(&as_object(source, &namespace), u64::MAX);
        matches!(reading.now, Now::Known(seen) if seen.status == Status::NotFound)
    });
    (expanded, decided)
}

/// Notes a spec that has more than was applied, because other people have added to it.
fn note_applied(memory: &mut Memory, expanded: &Expanded, (name, made): (&str, &Made), baseline: Option<Baseline>) {
    match expanded.desired.get(name).filter(|desired| !is_spec(made, desired, baseline)) {
        Some(desired) => drop(memory.applied.insert(name.to_owned(), (identity(desired, baseline), made.generation))),
        None => drop(memory.applied.remove(name)),
    }
}

fn refuse(memory: &mut Memory, name: String, what: String, wrong: WrongPipeline) {
    let count = memory.refused.get(&name).filter(|refusal| refusal.what == what).map_or(0, |refusal| refusal.count + 1);
    let pause = (PAUSES.0 * 2_u32.saturating_pow(count.min(8))).min(PAUSES.1);
    memory.refused.insert(name, Refusal { what, wrong, again: Instant::now() + pause, count });
}

/// The result of an action.
enum Done {
    /// A pipeline was made or changed.
    Applied {
        name: String,
        is_new: bool,
        baseline: Option<Baseline>,
        made: Box<Made>,
    },
    Deleted,
    /// The API server refused a pipeline, by its name and its identity.
    Refused(String, String, WrongPipeline),
}

/// Carries out actions, several at a time.
async fn act(context: &Context, set: &PipelineSet, actions: Vec<Action>) -> Vec<Result<Done, Error>> {
    let api: Api<Pipeline> = Api::namespaced(context.client.clone(), &set.namespace().unwrap_or_default());
    let act = |action| {
        let api = api.clone();
        async move {
            if !context.lease.wait(CALL).await {
                return Err(Error::NotLeading);
            }
            match action {
                Action::Apply { name, uid, desired, baseline } => {
                    let result = apply(&api, set, (&name, uid), &desired, baseline).await;
                    count(context, result.is_ok());
                    result
                }
                Action::Delete { name, uid, version } => {
                    let result = delete(&api, &name, uid, version).await;
                    count(context, result.is_ok());
                    result
                }
            }
        }
    };
    stream::iter(actions).map(act).buffer_unordered(CALLS).collect().await
}

fn count(context: &Context, is_ok: bool) {
    context.metrics.api_write(ApiWrite::PipelineOfSet, if is_ok { WriteResult::Ok } else { WriteResult::Error });
}

/// Makes or changes a pipeline by server-side apply
/// (<https://kubernetes.io/docs/reference/using-api/server-side-apply/>).
async fn apply(
    api: &Api<Pipeline>,
    set: &PipelineSet,
    (name, uid): (&str, Option<String>),
    desired: &Desired,
    baseline: Option<Baseline>,
) -> Result<Done, Error> {
    let params = PatchParams {
        field_manager: Some(SET_MANAGER.to_owned()),
        // What a person has changed in a pipeline of the set is changed back. A pipeline that is not of the set has no such fields.
        force: uid.is_some(),
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let object = object(set, name, uid.as_deref(), desired, baseline);
    let error = match call(api.patch(name, &params, &Patch::Apply(&object))).await {
        Ok(live) => {
            let Some((_, made)) = Made::of(&live) else { return Ok(Done::Deleted) };
            return Ok(Done::Applied { name: name.to_owned(), is_new: uid.is_none(), baseline, made: Box::new(made) });
        }
        Err(error) => error,
    };
    let what = if uid.is_some() { "changed" } else { "made" };
    let failed = |source| Error::Pipeline { name: name.to_owned(), what, source };
    let Some(message) = refusal(&error) else { return Err(failed(error)) };
    let refused = |reason: &str, message: &str| {
        let (name, reason, source) = (name.to_owned(), reason.to_owned(), shown(&desired.source));
        let message = cut(message, MAX_MESSAGE).into_owned();
        let wrong = WrongPipeline { name: name.clone(), source, reason, message };
        Ok(Done::Refused(name, identity(desired, baseline), wrong))
    };
    let live = call(api.get_opt(name)).await.map_err(failed)?;
    match live.as_ref().map(|live| live.spec.pipeline_set.as_ref()) {
        // The watch is late, or the pipeline was deleted, or it was made by somebody else at the same time.
        Some(Some(made_by)) if made_by.name == set.name_any() && uid.is_none() => Err(failed(error)),
        Some(Some(made_by)) if made_by.name != set.name_any() => {
            let message =
                format!("the PipelineSet {} has a pipeline of this name; correct template.metadata.name", made_by.name);
            refused("NameTaken", &message)
        }
        Some(None) => refused(
            "NameTaken",
            "a pipeline of this name exists that no set made; delete it, or correct template.metadata.name",
        ),
        Some(Some(_)) | None if is_conflict(&error) => Err(failed(error)),
        Some(Some(_)) | None => refused("Invalid", &message),
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
fn object(set: &PipelineSet, name: &str, uid: Option<&str>, desired: &Desired, baseline: Option<Baseline>) -> Value {
    let mut spec = desired.spec.clone();
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
    json!({"apiVersion": "pennant.dev/v1alpha1", "kind": "Pipeline", "metadata": metadata, "spec": spec})
}

fn owner(set: &PipelineSet) -> Option<OwnerReference> {
    set.controller_owner_ref(&())
}

/// Deletes a pipeline, unless it has changed since.
async fn delete(api: &Api<Pipeline>, name: &str, uid: String, version: String) -> Result<Done, Error> {
    let preconditions = Some(Preconditions { uid: Some(uid), resource_version: Some(version) });
    let params =
        DeleteParams { preconditions, propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    match call(api.delete(name, &params)).await {
        Ok(_) => Ok(Done::Deleted),
        Err(CallError::Api(error)) if matches!(&*error, kube::Error::Api(status) if status.is_not_found()) => {
            Ok(Done::Deleted)
        }
        Err(source) => Err(Error::Pipeline { name: name.to_owned(), what: "deleted", source }),
    }
}

/// Writes a status. Returns the set with it. A set that is gone or is another one now is seen by the watch.
async fn write_status(
    context: &Context,
    set: &PipelineSet,
    status: Option<PipelineSetStatus>,
) -> Result<Option<PipelineSet>, Error> {
    let Some(status) = status else { return Ok(None) };
    if !context.lease.wait(CALL).await {
        return Err(Error::NotLeading);
    }
    let api: Api<PipelineSet> = Api::namespaced(context.client.clone(), &set.namespace().unwrap_or_default());
    let encoded = |error: serde_json::Error| Error::Status(error.into());
    let patch = Guarded::of(set.metadata.uid.as_deref()).put(["status"], &status).map_err(encoded)?;
    let result = patch.write_status(&api, &set.name_any()).await;
    let word = if result.is_ok() { WriteResult::Ok } else { WriteResult::Error };
    context.metrics.api_write(ApiWrite::PipelineSetStatus, word);
    match result.map_err(Error::Status)? {
        Written::Written(set) => Ok(Some(set)),
        Written::Stale | Written::Gone => Ok(None),
    }
}
