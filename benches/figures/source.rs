//! The source objects: Deployments whose status says in turn that a rollout has failed and that it has not.
//!
//! One write is one change, and each change is reported: `Failed`, then `Recovered`.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::world::World;
use crate::support::world::apps::condition;

/// One Deployment.
pub struct Source {
    api: Api<Deployment>,
    pub app: String,
    /// Whether it said last that it has failed.
    pub failed: bool,
}

impl Source {
    /// Creates one that is fine.
    pub async fn create(world: &World, app: &str) -> Self {
        world.deploy(app, "1").await;
        Self { api: world.api(), app: app.to_owned(), failed: false }
    }

    /// Changes what it says, by one write.
    pub async fn flip(&mut self) {
        self.failed = !self.failed;
        let patch = Patch::Merge(status(self.failed));
        self.api.patch_status(&self.app, &PatchParams::default(), &patch).await.expect("a status is written");
    }
}

fn status(failed: bool) -> Value {
    let (status, reason, unavailable) = if failed {
        ("False", "ProgressDeadlineExceeded", json!(1))
    } else {
        ("True", "NewReplicaSetAvailable", Value::Null)
    };
    let replicas = if failed { 2 } else { 1 };
    let available = condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.");
    json!({"status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": 1, "readyReplicas": 1,
        "availableReplicas": 1, "unavailableReplicas": unavailable,
        "conditions": [condition("Progressing", status, reason, "ReplicaSet \"app-6f7c9d8b5c\" says so."), available]}})
}
