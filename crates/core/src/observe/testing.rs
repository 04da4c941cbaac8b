//! Helpers for the tables of tests: small objects, and their observations.
// The tables write their JSON in place.
#![allow(clippy::needless_pass_by_value)]

use kube_core::DynamicObject;
pub(super) use serde_json::{Map, Value, json};

use super::{Observation, observe};
pub(super) use relaybook_api::Status;
pub(super) use relaybook_api::Status::{Current, Failed, InProgress};

pub(super) const KUSTOMIZATION: (&str, &str) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
pub(super) const HELM_RELEASE: (&str, &str) = ("helm.toolkit.fluxcd.io/v2", "HelmRelease");
pub(super) const GIT_REPOSITORY: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "GitRepository");
pub(super) const IMAGE_POLICY: (&str, &str) = ("image.toolkit.fluxcd.io/v1", "ImagePolicy");
pub(super) const IMAGE_UPDATE: (&str, &str) = ("image.toolkit.fluxcd.io/v1", "ImageUpdateAutomation");
pub(super) const FLUX_RECEIVER: (&str, &str) = ("notification.toolkit.fluxcd.io/v1", "Receiver");
pub(super) const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
pub(super) const STATEFUL_SET: (&str, &str) = ("apps/v1", "StatefulSet");
pub(super) const DAEMON_SET: (&str, &str) = ("apps/v1", "DaemonSet");
pub(super) const JOB: (&str, &str) = ("batch/v1", "Job");
pub(super) const APPLICATION: (&str, &str) = ("argoproj.io/v1alpha1", "Application");
pub(super) const ROLLOUT: (&str, &str) = ("argoproj.io/v1alpha1", "Rollout");
pub(super) const CANARY: (&str, &str) = ("flagger.app/v1beta1", "Canary");
pub(super) const BUNDLE_DEPLOYMENT: (&str, &str) = ("fleet.cattle.io/v1alpha1", "BundleDeployment");
pub(super) const BUNDLE: (&str, &str) = ("fleet.cattle.io/v1alpha1", "Bundle");
pub(super) const GIT_REPO: (&str, &str) = ("fleet.cattle.io/v1alpha1", "GitRepo");
pub(super) const HELM_OP: (&str, &str) = ("fleet.cattle.io/v1alpha1", "HelmOp");
pub(super) const FLEET_CLUSTER: (&str, &str) = ("fleet.cattle.io/v1alpha1", "Cluster");
pub(super) const KNATIVE_SERVICE: (&str, &str) = ("serving.knative.dev/v1", "Service");
pub(super) const OTHER: (&str, &str) = ("acme.example/v1", "Widget");
/// One kind for each set of rules.
pub(super) const ALL: [(&str, &str); 20] = [
    KUSTOMIZATION,
    HELM_RELEASE,
    GIT_REPOSITORY,
    IMAGE_POLICY,
    IMAGE_UPDATE,
    FLUX_RECEIVER,
    DEPLOYMENT,
    STATEFUL_SET,
    DAEMON_SET,
    JOB,
    APPLICATION,
    ROLLOUT,
    CANARY,
    BUNDLE_DEPLOYMENT,
    BUNDLE,
    GIT_REPO,
    HELM_OP,
    FLEET_CLUSTER,
    KNATIVE_SERVICE,
    OTHER,
];

/// An object with generation 2.
pub(super) fn object((api_version, kind): (&str, &str), spec: &Value, status: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "generation": 2, "labels": {"app.kubernetes.io/version": "v7"}},
        "spec": spec,
        "status": status,
    }))
    .unwrap()
}

pub(super) fn read(kind: (&str, &str), spec: Value, status: Value) -> Observation {
    seen(&object(kind, &spec, &status))
}

/// The observation of an object.
pub(super) fn seen(object: &DynamicObject) -> Observation {
    observe(Some(object), None)
}

/// The status, the running revision and the attempted revision.
pub(super) fn summary(o: &Observation) -> (Status, &str, &str) {
    (o.status, o.revision.as_str(), o.attempted_revision.as_str())
}

/// A condition with an observed generation.
pub(super) fn condition(type_: &str, status: &str, reason: &str, generation: i64) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "why", "observedGeneration": generation})
}

/// The spec of a workload with three replicas.
pub(super) fn workload(more: Value) -> Value {
    let mut spec = json!({"replicas": 3, "template": {"spec": {
        "initContainers": [{"image": "init:9"}],
        "containers": [{"image": "reg:5000/web:2"}, {"image": "proxy@sha256:ab"}],
    }}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// `base`, with its fields overwritten by those of `more`.
pub(super) fn with(base: &Value, more: Value) -> Value {
    let mut all: Map<String, Value> = base.as_object().unwrap().clone();
    all.extend(more.as_object().unwrap().clone());
    Value::Object(all)
}
