//! The only writes of hooks: an approval, and the annotation of a look. Each reads the promotion first, and tests what it replaces.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client, Resource as _};
use serde_json::Value;

use super::Answer;
use super::approval::{Approval, Verdict};
use super::directory::Entry;
use super::look::due;
use relaybook_api::promotion::{APPROVED_BY, LOOK, Phase};
use relaybook_api::{ObjectName, Pipeline, Promotion, Time, now};
use relaybook_runtime::call::{CallError, call};
use relaybook_runtime::guarded::{Guarded, Outcome};
use relaybook_runtime::report::events::Events;
use relaybook_runtime::tenure::Unowned;
use relaybook_telemetry::metrics::{ApiWrite, WriteResult};
use relaybook_telemetry::{Metrics, chain};
use relaybook_text::escaped;

/// The value of [`APPROVED_BY`].
const HOOK: &str = "hook";
/// Reason of the Event about an approval that the API server did not accept.
const FAILED: &str = "ApprovalFailed";
/// Maximum number of attempts if the promotion changes at the same time.
const TRIES: u32 = 4;

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ActError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The object changed at each attempt. An admission webhook that refuses with 422 has the same effect.
    #[error("the promotion changed at the same time, or the API server rejects the approval as invalid")]
    Stale,
}

/// Writes on behalf of hooks.
pub(super) struct Actor {
    pub client: Client,
    pub events: Events,
    pub metrics: Metrics,
}

impl Actor {
    /// Approves the promotion that a signed request names.
    pub async fn approve(&self, pipeline: &ObjectName, entry: &Entry, approval: &Approval) -> Answer {
        match self.try_approve(pipeline, entry, approval).await {
            Ok(answer) => answer,
            Err(error) => self.failed(pipeline, entry, approval, &error),
        }
    }

    async fn try_approve(&self, pipeline: &ObjectName, entry: &Entry, approval: &Approval) -> Result<Answer, ActError> {
        let api = self.promotions(pipeline);
        for _ in 0..TRIES {
            let found = call(api.get_opt(&approval.promotion)).await?;
            let waiting = entry.waiting.get(&approval.environment);
            let promotion = match approval.decide(&entry.uid, waiting, found.as_ref()) {
                Verdict::Approve(promotion) => promotion,
                Verdict::AlreadyApproved => return Ok(Answer::Approved),
                Verdict::NotWaiting(why) => return Ok(Answer::Conflict(escaped(&why))),
            };
            let patch = approving(promotion).map_err(CallError::from)?;
            if self.write(&api, &approval.promotion, patch).await? {
                tracing::info!(%pipeline, promotion = %approval.promotion, "approved by the hook");
                return Ok(Answer::Approved);
            }
        }
        Err(ActError::Stale)
    }

    /// Requests a check of the open promotions of a pipeline. Returns the answer, and when to request it again: one of them was checked a moment
    /// ago, so that its check did not see what the hook reports.
    pub async fn look(&self, pipeline: &ObjectName, entry: &Entry) -> (Answer, Option<Time>) {
        let api = self.promotions(pipeline);
        let mut later = None;
        for name in &entry.open {
            match self.look_at(&api, name, entry).await {
                Ok(again) => later = later.max(again),
                Err(error) => {
                    tracing::warn!(%pipeline, error = %chain(&error), "a request to check a promotion could not be written");
                    return (unavailable(), None);
                }
            }
        }
        (Answer::Looked, later)
    }

    /// Writes the annotation, or returns when it can be written. If the promotion changes at the same time, the controller checks it anyway.
    async fn look_at(&self, api: &Api<Promotion>, name: &str, entry: &Entry) -> Result<Option<Time>, ActError> {
        let Some(promotion) = call(api.get_opt(name)).await? else { return Ok(None) };
        let at = now();
        match due(&promotion, &entry.uid, at) {
            Some(due) if due <= at => {
                let patch = annotated(unchanged(&promotion), &promotion, LOOK, &at.to_string()).map_err(CallError::from)?;
                self.write(api, name, patch).await?;
                Ok(None)
            }
            later => Ok(later),
        }
    }

    /// Applies a patch. Returns whether it was applied.
    async fn write(&self, api: &Api<Promotion>, name: &str, patch: Guarded) -> Result<bool, CallError> {
        let written = patch.write(Unowned::Hook.into(), api, name).await;
        let result = match &written {
            Ok(Outcome::Written(_)) => WriteResult::Ok,
            Ok(Outcome::Stale | Outcome::Gone) => WriteResult::Conflict,
            Err(_) => WriteResult::Error,
        };
        self.metrics.api_write(ApiWrite::PromotionHook, result);
        written.map(|outcome| matches!(outcome, Outcome::Written(_)))
    }

    fn failed(&self, pipeline: &ObjectName, entry: &Entry, approval: &Approval, error: &ActError) -> Answer {
        let error = chain(error);
        tracing::warn!(%pipeline, promotion = %approval.promotion, %error, "an approval could not be written");
        let note = format!("the approval of promotion {} by the hook could not be written: {error}", approval.promotion);
        self.events.warn(regarding(pipeline, &entry.uid), FAILED, "Approve", &note);
        unavailable()
    }

    fn promotions(&self, pipeline: &ObjectName) -> Api<Promotion> {
        Api::namespaced(self.client.clone(), &pipeline.namespace)
    }
}

fn unavailable() -> Answer {
    Answer::Unavailable("the API server did not accept the write; send the request again")
}

/// Returns the reference to a pipeline for Events.
fn regarding(pipeline: &ObjectName, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(Pipeline::api_version(&()).into_owned()),
        kind: Some(Pipeline::kind(&()).into_owned()),
        namespace: Some(pipeline.namespace.clone()),
        name: Some(pipeline.name.clone()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Returns a patch that applies only to this version of a promotion.
fn unchanged(promotion: &Promotion) -> Guarded {
    let version = promotion.metadata.resource_version.as_deref();
    Guarded::of(promotion.metadata.uid.as_deref()).test(["metadata", "resourceVersion"], version.into())
}

/// Returns the patch that approves a promotion.
fn approving(promotion: &Promotion) -> Result<Guarded, serde_json::Error> {
    let patch = unchanged(promotion)
        .test(["status", "phase"], Value::from(Phase::Pending.as_str()))
        .test(["spec", "revision"], Value::from(promotion.spec.revision.as_str()))
        .put(["spec", "approved"], &true)?;
    annotated(patch, promotion, APPROVED_BY, HOOK)
}

/// Adds an annotation to a patch.
fn annotated(patch: Guarded, promotion: &Promotion, name: &str, value: &str) -> Result<Guarded, serde_json::Error> {
    match promotion.metadata.annotations {
        Some(_) => patch.put(["metadata", "annotations", name], &value),
        // A JSON Patch cannot add a field to an object that does not exist.
        None => patch.put(["metadata", "annotations"], &BTreeMap::from([(name, value)])),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn promotion(over: &Value) -> Promotion {
        let mut object = json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "a", "namespace": "team-a", "uid": "u", "resourceVersion": "7"},
            "spec": {"pipelineRef": {"name": "podinfo", "uid": "p"}, "environment": "prod", "from": "staging",
                "revision": "main@sha1:5f3d/2c", "occasion": 1},
            "status": {"phase": "Pending"},
        });
        json_patch::merge(&mut object, over);
        serde_json::from_value(object).unwrap()
    }

    /// Applies a patch to an object, as the API server does.
    fn applied(patch: Guarded, to: &Promotion) -> Result<Value, json_patch::PatchError> {
        let mut object = serde_json::to_value(to).unwrap();
        json_patch::patch(&mut object, &patch.operations())?;
        Ok(object)
    }

    #[test]
    fn the_patch_of_an_approval_applies_to_the_object_that_was_read() {
        for before in [json!({}), json!({"metadata": {"annotations": {"a/b": "c"}}})] {
            let before = promotion(&before);
            let after = applied(approving(&before).unwrap(), &before).unwrap();
            assert_eq!(after["spec"]["approved"], true);
            assert_eq!(after["metadata"]["annotations"][APPROVED_BY], HOOK);
            let kept = before.metadata.annotations.clone().unwrap_or_default();
            assert_eq!(after["metadata"]["annotations"].as_object().unwrap().len(), kept.len() + 1);
            for other in [
                json!({"metadata": {"uid": "v"}}),
                json!({"metadata": {"resourceVersion": "8"}}),
                json!({"status": {"phase": "Withdrawn"}}),
                json!({"status": null}),
                json!({"spec": {"revision": "2"}}),
            ] {
                assert!(applied(approving(&before).unwrap(), &promotion(&other)).is_err(), "{other}");
            }
        }
    }

    #[test]
    fn the_patch_of_a_requested_check_is_an_annotation() {
        for before in [json!({}), json!({"metadata": {"annotations": {LOOK: "old"}}})] {
            let before = promotion(&before);
            let patch = annotated(unchanged(&before), &before, LOOK, "new").unwrap();
            let after = applied(patch, &before).unwrap();
            assert_eq!(after["metadata"]["annotations"], json!({LOOK: "new"}));
            assert_eq!(after["spec"], serde_json::to_value(&before.spec).unwrap());
        }
    }
}
