//! A Fleet workspace with clusters: objects as Fleet's controllers write them.
//!
//! The order of writes is that of the sources: the cluster controller creates the namespace of a cluster
//! (`internal/cmd/controller/agentmanagement/controllers/cluster/controller.go`), the bundle controller creates and updates the
//! `BundleDeployments` of a Bundle with its labels (`internal/cmd/controller/reconciler/bundle_controller.go`, `createBundleDeployment`), and
//! the agent writes their status (`internal/cmd/agent/controller/bundledeployment_controller.go`).

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::{Pipeline, Status};
use serde_json::{Value, json};

use crate::support::relaybook::Options;
use crate::support::world::apps::condition;
use crate::support::{Receiver, Relaybook, World, control_plane, eventually};

const GROUP: &str = "fleet.cattle.io";
const VERSION: &str = "v1alpha1";

pub struct Hub {
    pub world: World,
    pub receiver: Receiver,
    pub relaybook: Option<Relaybook>,
    /// The clusters that exist at some time.
    clusters: Vec<String>,
}

impl Hub {
    /// Creates a workspace with `GitRepo` `shop`, for these clusters.
    pub async fn new(ns: &str, clusters: &[&str]) -> Self {
        let world = World::new(ns).await;
        control_plane::install_fleet(&world.client).await;
        let clusters = clusters.iter().map(|&cluster| cluster.to_owned()).collect();
        let hub = Self { world, receiver: Receiver::start(), relaybook: None, clusters };
        for cluster in &hub.clusters {
            hub.create_namespace(cluster).await;
        }
        let repo = json!({"repo": "https://github.com/acme/shop.git"});
        hub.create("GitRepo", ns, "shop", json!({}), repo).await;
        hub
    }

    pub fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(GROUP, VERSION, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()));
        Api::namespaced_with(self.world.client.clone(), namespace, &resource)
    }

    /// The namespace of the deployments of a cluster.
    pub fn namespace(&self, cluster: &str) -> String {
        format!("cluster-{}-{cluster}", self.world.ns)
    }

    pub async fn create(&self, kind: &str, namespace: &str, name: &str, labels: Value, spec: Value) {
        let metadata = json!({"name": name, "labels": labels});
        let object = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": metadata, "spec": spec});
        let object = serde_json::from_value(object).expect("an object");
        eventually(&format!("{kind} {name} is created"), async || {
            self.api(kind, namespace).create(&PostParams::default(), &object).await.map(drop).map_err(|e| e.to_string())
        })
        .await;
    }

    pub async fn patch(&self, kind: &str, namespace: &str, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.api(kind, namespace).patch(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    pub async fn status(&self, kind: &str, namespace: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.api(kind, namespace).patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    async fn create_namespace(&self, cluster: &str) {
        let metadata = kube::api::ObjectMeta { name: Some(self.namespace(cluster)), ..Default::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::all(self.world.client.clone()).create(&PostParams::default(), &namespace).await.expect("a namespace");
    }

    /// Registers a cluster with these labels, and creates its namespace.
    pub async fn join(&self, cluster: &str, labels: Value) {
        // Those that Relaybook watches exist already, because the permissions of the chart are in them.
        if !self.clusters.iter().any(|known| known == cluster) {
            self.create_namespace(cluster).await;
        }
        self.create("Cluster", &self.world.ns, cluster, labels, json!({})).await;
    }

    /// Changes labels of a cluster.
    pub async fn label(&self, cluster: &str, labels: Value) {
        self.patch("Cluster", &self.world.ns, cluster, json!({"metadata": {"labels": labels}})).await;
    }

    fn labels(&self, bundle: &str, cluster: &str, commit: &str) -> Value {
        json!({
            "fleet.cattle.io/bundle-name": bundle, "fleet.cattle.io/bundle-namespace": self.world.ns,
            "fleet.cattle.io/cluster": cluster, "fleet.cattle.io/cluster-namespace": self.world.ns,
            "fleet.cattle.io/repo-name": "shop", "fleet.cattle.io/commit": commit,
        })
    }

    /// Creates a Bundle of the `GitRepo` at a commit.
    pub async fn bundle(&self, bundle: &str, commit: &str) {
        let labels = json!({"fleet.cattle.io/repo-name": "shop", "fleet.cattle.io/commit": commit});
        self.create("Bundle", &self.world.ns, bundle, labels, json!({})).await;
        self.whole(bundle).await;
    }

    /// Sets the commit of a Bundle.
    pub async fn commit(&self, bundle: &str, commit: &str) {
        let labels = json!({"fleet.cattle.io/commit": commit});
        let spec = json!({"resources": [{"name": "a", "content": commit}]});
        self.patch("Bundle", &self.world.ns, bundle, json!({"metadata": {"labels": labels}, "spec": spec})).await;
        self.whole(bundle).await;
    }

    /// Writes the status of a Bundle that nothing blocks.
    async fn whole(&self, bundle: &str) {
        let generation = self.api("Bundle", &self.world.ns).get(bundle).await.expect("there").metadata.generation;
        let status = json!({
            "observedGeneration": generation, "unavailablePartitions": 0, "maxUnavailablePartitions": 0,
            "summary": {"desiredReady": 1, "ready": 1}, "conditions": [condition("Ready", "True", "", "")],
        });
        self.status("Bundle", &self.world.ns, bundle, status).await;
    }

    /// Creates the deployment of a Bundle on a cluster. Its name is `BUNDLE-CLUSTER`, so that each has a lane of its own.
    pub async fn deploy(&self, bundle: &str, cluster: &str, commit: &str) {
        let id = id(cluster, commit);
        let spec = json!({"deploymentID": id, "stagedDeploymentID": id});
        let name = format!("{bundle}-{cluster}");
        self.create("BundleDeployment", &self.namespace(cluster), &name, self.labels(bundle, cluster, commit), spec).await;
    }

    /// Stages a commit on a cluster.
    pub async fn stage(&self, bundle: &str, cluster: &str, commit: &str) {
        let id = id(cluster, commit);
        let patch = json!({
            "metadata": {"labels": self.labels(bundle, cluster, commit)},
            "spec": {"deploymentID": id, "stagedDeploymentID": id},
        });
        self.patch("BundleDeployment", &self.namespace(cluster), &format!("{bundle}-{cluster}"), patch).await;
    }

    /// Writes a commit into the labels of a deployment that it does not change.
    pub async fn relabel(&self, bundle: &str, cluster: &str, commit: &str) {
        let patch = json!({"metadata": {"labels": self.labels(bundle, cluster, commit)}});
        self.patch("BundleDeployment", &self.namespace(cluster), &format!("{bundle}-{cluster}"), patch).await;
    }

    /// Writes what the agent writes when all of a deployment is ready.
    pub async fn applied(&self, bundle: &str, cluster: &str, commit: &str) {
        let status = json!({
            "appliedDeploymentID": id(cluster, commit), "ready": true, "nonModified": true, "display": {"state": "Ready"},
            "conditions": [condition("Deployed", "True", "", ""), condition("Ready", "True", "", "")],
        });
        self.status("BundleDeployment", &self.namespace(cluster), &format!("{bundle}-{cluster}"), status).await;
    }

    /// Creates a deployment that is ready.
    pub async fn run(&self, bundle: &str, cluster: &str, commit: &str) {
        self.deploy(bundle, cluster, commit).await;
        self.applied(bundle, cluster, commit).await;
    }

    /// Deploys a commit of a Bundle on these clusters, and waits until each of them runs it.
    pub async fn roll_out(&self, bundle: &str, clusters: &[&str], commit: &str) {
        self.commit(bundle, commit).await;
        for cluster in clusters {
            self.stage(bundle, cluster, commit).await;
            self.applied(bundle, cluster, commit).await;
            self.runs(bundle, cluster, commit).await;
        }
    }

    pub async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.api(kind, namespace).delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    /// Deletes the deployment of a Bundle on a cluster.
    pub async fn undeploy(&self, bundle: &str, cluster: &str) {
        self.delete("BundleDeployment", &self.namespace(cluster), &format!("{bundle}-{cluster}")).await;
    }

    /// Creates pipeline `shop` with these environments, and a fence.
    pub async fn pipeline(&self, environments: Value) {
        let fence = json!({"name": "fence", "targets": [{"namespace": self.world.ns}]});
        let mut environments = environments;
        environments.as_array_mut().expect("a list").push(fence);
        let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "fence"});
        let spec = json!({"appRef": app, "environments": environments});
        self.world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    }

    pub fn options(&self) -> Options {
        let mut watch: Vec<String> = self.clusters.iter().map(|cluster| self.namespace(cluster)).collect();
        watch.push(self.world.ns.clone());
        Options { watch, ..Options::of(&self.world) }
    }

    /// Starts Relaybook with notification `hook`.
    pub async fn start(&mut self, over: Value) {
        self.begin(over).await;
        self.world.cursor("shop", "hook").await;
    }

    /// Starts Relaybook with notification `hook`, whatever pipelines there are.
    pub async fn begin(&mut self, over: Value) {
        self.world.notification("hook", &self.receiver, over).await;
        self.relaybook = Some(Relaybook::with(&self.world, self.options()).await);
        self.world.ready("hook").await;
    }

    pub fn relaybook(&mut self) -> &mut Relaybook {
        self.relaybook.as_mut().expect("it runs")
    }

    /// Waits until the generated targets are these, each `ENVIRONMENT/CLUSTER/BUNDLE` without the namespace of the cluster.
    pub async fn targets(&self, wanted: &[&str]) {
        eventually(&format!("targets {wanted:?}"), async || {
            let names = self.names().await;
            if names == wanted { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    }

    pub async fn names(&self) -> Vec<String> {
        let status = self.world.get_pipeline("shop").await.status.unwrap_or_default();
        let all = status.environments.iter().flat_map(|e| &e.targets).filter_map(|target| target.generated.as_ref());
        all.map(|generated| generated.name.replace(&format!("{}.", self.world.ns), "")).collect()
    }

    /// Waits until a deployment is a target.
    pub async fn runs_or_begins(&self, bundle: &str, cluster: &str) {
        let name = format!("/{cluster}/{bundle}");
        eventually(&format!("{name} is a target"), async || {
            let names = self.names().await;
            if names.iter().any(|known| known.ends_with(&name)) { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    }

    /// Waits until a target runs a revision.
    pub async fn runs(&self, bundle: &str, cluster: &str, revision: &str) {
        let name = format!("{bundle}-{cluster}");
        eventually(&format!("{name} runs {revision}"), async || {
            let status = self.world.get_pipeline("shop").await.status.unwrap_or_default();
            let mut all = status.environments.into_iter().flat_map(|e| e.targets);
            let target = all.find(|target| target.cluster_app_ref.name == name).ok_or("no target")?;
            let is = target.status == Status::Current && target.revision == revision;
            if is { Ok(()) } else { Err(format!("{target:?}")) }
        })
        .await;
    }
}

/// The ID of a deployment. It ends with a hash of the options of its cluster.
fn id(cluster: &str, commit: &str) -> String {
    format!("s-{commit}:options-of-{cluster}")
}

/// Returns an environment that selects what Fleet deploys from `GitRepo` `shop`. `over` is merged into the entry.
pub fn environment(name: &str, fleet: Value, over: Value) -> Value {
    let mut entry = json!({"fleet": {"gitRepo": "shop"}});
    json_patch::merge(&mut entry["fleet"], &fleet);
    json_patch::merge(&mut entry, &over);
    json!({"name": name, "targetsFrom": [entry]})
}

/// Selects clusters by label `env`.
pub fn env(value: &str) -> Value {
    json!({"clusterSelector": {"matchLabels": {"env": value}}})
}
