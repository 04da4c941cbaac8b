//! Application objects, with the status that the deployment controller and Flux's kustomize-controller would write.

use std::collections::BTreeSet;
use std::path::PathBuf;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::World;
use crate::support::control_plane;

/// Kind of the application objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// apps/v1
    Deployment,
    /// kustomize.toolkit.fluxcd.io/v1
    Kustomization,
}

impl Kind {
    /// Returns API version and kind.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Deployment => ("apps/v1", "Deployment"),
            Self::Kustomization => ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        }
    }
}

impl World {
    /// Creates a Deployment that runs this tag.
    pub async fn deploy(&self, app: &str, tag: &str) {
        self.create::<Deployment>(deployment(app, tag)).await;
        self.finish(app).await;
    }

    /// The same, with labels.
    pub async fn deploy_with(&self, app: &str, tag: &str, labels: Value) {
        let mut object = deployment(app, tag);
        object["metadata"]["labels"] = labels;
        self.create::<Deployment>(object).await;
        self.finish(app).await;
    }

    /// Sets another tag, which begins a rollout.
    pub async fn roll_out(&self, app: &str, tag: &str) {
        self.try_roll_out(app, tag).await.expect("patched");
    }

    /// The same, but returns the error if the API server is unavailable.
    pub async fn try_roll_out(&self, app: &str, tag: &str) -> kube::Result<()> {
        let containers = json!([{"name": "app", "image": image(tag)}]);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let strategic = Patch::Strategic(patch);
        self.api::<Deployment>().patch(app, &PatchParams::default(), &strategic).await.map(drop)
    }

    /// Writes the status of a finished rollout.
    pub async fn finish(&self, app: &str) {
        self.try_finish(app).await.expect("status patched");
    }

    /// The same, but returns the error if the API server is unavailable.
    pub async fn try_finish(&self, app: &str) -> kube::Result<()> {
        let progressing = condition("Progressing", "True", "NewReplicaSetAvailable", "ReplicaSet has progressed.");
        let counts = json!({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            "unavailableReplicas": null});
        self.report(app, progressing, counts).await
    }

    /// Writes the status of a failed rollout: the new Pod exists but is not available, and the old one still serves.
    pub async fn fail(&self, app: &str, message: &str) {
        self.try_fail(app, message).await.expect("status patched");
    }

    /// The same, but returns the error if the API server is unavailable.
    pub async fn try_fail(&self, app: &str, message: &str) -> kube::Result<()> {
        let exceeded = condition("Progressing", "False", "ProgressDeadlineExceeded", message);
        let counts = json!({"replicas": 2, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            "unavailableReplicas": 1});
        self.report(app, exceeded, counts).await
    }

    /// Rolls out a revision and finishes the rollout.
    pub async fn release(&self, kind: Kind, app: &str, revision: &str) {
        match kind {
            Kind::Deployment => {
                self.roll_out(app, revision).await;
                self.finish(app).await;
            }
            Kind::Kustomization => self.applied(app, revision).await,
        }
    }

    /// Rolls out a tag of a Deployment and finishes the rollout.
    pub async fn ship(&self, app: &str, tag: &str) {
        self.release(Kind::Deployment, app, tag).await;
    }

    /// Rolls out a tag of a Deployment and lets the rollout fail.
    pub async fn break_(&self, app: &str, tag: &str, message: &str) {
        self.roll_out(app, tag).await;
        self.fail(app, message).await;
    }

    /// Writes the status of a Deployment for its current generation.
    pub async fn report(&self, app: &str, progressing: Value, counts: Value) -> kube::Result<()> {
        let api = self.api::<Deployment>();
        let generation = api.get(app).await?.metadata.generation;
        let available = condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.");
        let mut status = json!({"observedGeneration": generation, "conditions": [progressing, available]});
        // `merge` is not used, because a `null` must reach the API server.
        for (count, n) in counts.as_object().expect("an object") {
            status[count] = n.clone();
        }
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(app, &PatchParams::default(), &patch).await.map(drop)
    }

    /// Returns the API of Kustomizations in this namespace. The first call installs their CRD.
    pub async fn kustomizations(&self) -> Api<DynamicObject> {
        static INSTALLED: Mutex<BTreeSet<PathBuf>> = Mutex::const_new(BTreeSet::new());
        let mut installed = INSTALLED.lock().await;
        if !installed.contains(&self.kubeconfig) {
            let definition = control_plane::foreign("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations");
            control_plane::install(&self.client, &definition).await;
            installed.insert(self.kubeconfig.clone());
        }
        drop(installed);
        let kind = GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
        Api::namespaced_with(self.client.clone(), &self.ns, &ApiResource::from_gvk_with_plural(&kind, "kustomizations"))
    }

    /// Creates a Kustomization that has applied this revision.
    pub async fn kustomize(&self, app: &str, revision: &str) {
        let api = self.kustomizations().await;
        let (api_version, kind) = Kind::Kustomization.names();
        let object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": app},
            "spec": {"interval": "10m", "path": "./", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "src"}},
        });
        let object = serde_json::from_value(object).expect("an object");
        api.create(&PostParams::default(), &object).await.expect("created");
        self.applied(app, revision).await;
    }

    /// Writes the status of a Kustomization that has applied this revision.
    pub async fn applied(&self, app: &str, revision: &str) {
        let ready = condition("Ready", "True", "ReconciliationSucceeded", &format!("Applied revision: {revision}"));
        self.flux(app, vec![ready], json!({"lastAppliedRevision": revision, "lastAttemptedRevision": revision})).await;
    }

    /// Writes these conditions and revisions to the status of a Kustomization.
    pub async fn flux(&self, app: &str, conditions: Vec<Value>, revisions: Value) {
        let api = self.kustomizations().await;
        let generation = api.get(app).await.expect("the Kustomization is there").metadata.generation;
        let conditions = conditions.into_iter().map(|mut c| {
            c["observedGeneration"] = json!(generation);
            c
        });
        let mut status = json!({"conditions": conditions.collect::<Vec<_>>(), "observedGeneration": generation});
        json_patch::merge(&mut status, &revisions);
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(app, &PatchParams::default(), &patch).await.expect("status patched");
    }

    /// Deletes a Deployment and waits until it is gone.
    pub async fn take_away(&self, app: &str) {
        self.delete::<Deployment>(app).await;
    }
}

/// Returns a condition.
pub fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    let time = "2025-01-01T00:00:00Z";
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": time})
}

fn image(tag: &str) -> String {
    format!("registry.example/app:{tag}")
}

fn deployment(app: &str, tag: &str) -> Value {
    json!({
        "metadata": {"name": app},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app}},
                "spec": {"containers": [{"name": "app", "image": image(tag)}]},
            },
        },
    })
}
