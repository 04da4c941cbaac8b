//! Builds the references to pipelines in Events and deliveries. Pure.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource as _, ResourceExt as _};

use crate::api::Pipeline;
use crate::api::delivery::PipelineRef;

/// Returns the reference to a pipeline for Events.
#[must_use]
pub(super) fn regarding(of: &PipelineRef) -> ObjectReference {
    ObjectReference {
        api_version: Some(Pipeline::api_version(&()).into_owned()),
        kind: Some(Pipeline::kind(&()).into_owned()),
        namespace: Some(of.namespace.clone()),
        name: Some(of.name.clone()),
        uid: Some(of.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Returns the reference to a pipeline for deliveries.
#[must_use]
pub(super) fn reference(pipeline: &Pipeline) -> PipelineRef {
    PipelineRef {
        namespace: pipeline.namespace().unwrap_or_default(),
        name: pipeline.name_any(),
        uid: pipeline.uid().unwrap_or_default(),
    }
}
