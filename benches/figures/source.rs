//! The source objects: Deployments whose status alternates between a failed and a finished rollout.
//!
//! One write is one change, and each change is reported: `Failed`, then `Recovered`.

use std::time::Instant;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::support::world::World;
use crate::support::world::apps::condition;

/// One Deployment.
pub struct Source {
    api: Api<Deployment>,
    pub app: String,
    object: Deployment,
    /// Whether its last status is a failed rollout.
    pub failed: bool,
    /// When each change was begun.
    pub flips: Vec<Instant>,
}

impl Source {
    /// Creates a healthy Deployment.
    pub async fn create(world: &World, app: &str) -> Self {
        world.deploy(app, "1").await;
        let api = world.api::<Deployment>();
        let mut object = api.get(app).await.expect("the Deployment is there");
        object.metadata.resource_version = None;
        object.metadata.managed_fields = None;
        Self { api, app: app.to_owned(), object, failed: false, flips: Vec::new() }
    }

    /// Changes its status by one write. It replaces the status, which costs the API server less than a patch.
    pub async fn flip(&mut self) {
        self.failed = !self.failed;
        self.flips.push(Instant::now());
        self.object.status = Some(serde_json::from_value(status(self.failed)).expect("a status"));
        let written = self.api.replace_status(&self.app, &PostParams::default(), &self.object).await;
        written.expect("a status is written");
    }
}

/// Returns the status as the deployment controller writes it.
pub fn status(failed: bool) -> Value {
    let (status, reason) = if failed { ("False", "ProgressDeadlineExceeded") } else { ("True", "NewReplicaSetAvailable") };
    let (replicas, unavailable) = if failed { (2, Some(1)) } else { (1, None) };
    let available = condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.");
    json!({"observedGeneration": 1, "replicas": replicas, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "unavailableReplicas": unavailable,
        "conditions": [condition("Progressing", status, reason, "ReplicaSet \"app-6f7c9d8b5c\" says so."), available]})
}
