//! Tests targets on other clusters. These are real control planes next to the one in which Relaybook runs. Some are reached through a proxy
//! that injects faults.

mod kinds;
mod parts;
mod reachability;
mod references;
mod rights;

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use relaybook_api::pipeline::TargetStatus;
use relaybook_api::{Pipeline, Status};
use serde_json::{Value, json};

use crate::support::relaybook::Options;
use crate::support::wait::within;
use crate::support::{Oracle, Receiver, Relaybook, World, control_plane};

/// Deadline for what is slow by design: three probes without an answer, or a watch that is restarted.
const TAKES: Duration = Duration::from_mins(3);

/// A namespace on the local cluster, and one of the same name on another.
struct Stage {
    local: World,
    remote: World,
}

impl Stage {
    /// Creates both namespaces, with `web` at revision 1 on the other cluster.
    async fn new(ns: &str) -> Self {
        // The start of a control plane blocks the thread.
        tokio::task::spawn_blocking(|| (control_plane::shared(), control_plane::remote())).await.expect("started");
        Self::with(ns, World::on(control_plane::remote(), ns).await).await
    }

    async fn with(ns: &str, remote: World) -> Self {
        remote.deploy("web", "1").await;
        Self { local: World::new(ns).await, remote }
    }

    /// Starts a Relaybook that accepts kubeconfigs with `http`, because the fault proxy uses `http`.
    async fn relaybook(&self) -> Relaybook {
        self.relaybook_with(&["--allow-insecure-clusters"]).await
    }

    async fn relaybook_with(&self, args: &[&str]) -> Relaybook {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Relaybook::with(&self.local, Options { args, ..Options::of(&self.local) }).await
    }

    /// Writes a kubeconfig to a Secret, whether the Secret exists or not.
    async fn kubeconfig(&self, secret: &str, file: &Path) {
        let text = std::fs::read_to_string(file).expect("a kubeconfig");
        self.kubeconfig_text(secret, &text).await;
    }

    async fn kubeconfig_text(&self, secret: &str, text: &str) {
        let data = json!({"kubeconfig": text});
        match self.local.api::<Secret>().get_opt(secret).await.expect("answered") {
            None => drop(self.local.secret(secret, data).await),
            Some(_) => drop(self.local.patch::<Secret>(secret, json!({"stringData": data})).await),
        }
    }

    /// Creates notification `hook` for all settled states, and waits until it has its cursor in this pipeline.
    async fn witness(&self, pipeline: &str, receiver: &Receiver) {
        let types =
            ["Deployed", "Failed", "Recovered", "Removed", "Drifted", "DriftCorrected", "ClusterOffline", "ClusterOnline"];
        let triggers: Vec<Value> = types.iter().map(|type_| json!({"type": type_})).collect();
        let endpoint = json!({"url": receiver.url("/hook")});
        self.local.notification("hook", receiver, json!({"triggers": triggers, "endpoint": endpoint})).await;
        self.local.ready("hook").await;
        self.local.cursor(pipeline, "hook").await;
    }

    /// Checks that `hook` has sent exactly these steps for each environment, from the beginning.
    async fn told(&self, pipeline: &str, receiver: &Receiver, lanes: &[&[&str]]) {
        self.local.fence(pipeline, &["hook"]).await;
        let oracle = Oracle::new(&self.local, receiver);
        let lanes = lanes.iter().enumerate();
        let lanes = lanes.fold(oracle, |oracle, (i, steps)| oracle.lane(&format!("{pipeline}/hook/e{i}/web"), steps));
        lanes.check().await;
    }

    /// Creates a pipeline with one environment for each of these clusters, each with `web` as its target, and one for the fence.
    async fn pipeline(&self, name: &str, clusters: &[Value]) {
        self.local.create::<Pipeline>(self.spec(name, clusters)).await;
    }

    fn spec(&self, name: &str, clusters: &[Value]) -> Value {
        let target = |cluster: &Value| json!({"namespace": self.remote.ns, "clusterRef": cluster});
        let environment = |(i, cluster)| json!({"name": format!("e{i}"), "targets": [target(cluster)]});
        let mut environments: Vec<Value> = clusters.iter().enumerate().map(environment).collect();
        let fence = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "fence"});
        environments.push(json!({"name": "fence", "targets": [{"namespace": self.local.ns, "appRef": fence}]}));
        let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        json!({"metadata": {"name": name}, "spec": {"appRef": app, "environments": environments}})
    }

    /// Waits until this is true for the target of environment `e0`, `e1`, …
    async fn seen(
        &self,
        pipeline: &str,
        environment: usize,
        what: &str,
        holds: impl Fn(&TargetStatus) -> bool,
    ) -> TargetStatus {
        within(TAKES, &format!("e{environment} of {pipeline}: {what}"), async || {
            let status = self.local.get_pipeline(pipeline).await.status.unwrap_or_default();
            let target = status.environments.get(environment).and_then(|e| e.targets.first()).cloned();
            target.clone().filter(&holds).ok_or_else(|| format!("{target:?}"))
        })
        .await
    }

    async fn runs(&self, pipeline: &str, environment: usize, revision: &str) {
        self.seen(pipeline, environment, &format!("runs {revision}"), |t| t.ready && t.revision == revision).await;
    }

    /// Waits until the target is `Unknown` for this reason. Returns the message.
    async fn unknown(&self, pipeline: &str, environment: usize, reason: &str) -> String {
        let is = |t: &TargetStatus| t.status == Status::Unknown && t.reason == reason;
        self.seen(pipeline, environment, reason, is).await.message
    }
}

/// A reference to a Secret with a kubeconfig.
fn secret(name: &str) -> Value {
    json!({"kind": "Secret", "name": name})
}

/// A reference to a cluster object.
fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name})
}
