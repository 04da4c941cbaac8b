//! Tests Fleet's objects, written one by one as Fleet's controllers write them: Relaybook reports what the agents have reported, with the
//! commit that runs.

mod failing;
mod repository;
mod staged;

use std::collections::BTreeMap;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::pipeline::TargetStatus;
use relaybook_api::{Pipeline, Status};
use serde_json::{Value, json};

use crate::support::world::apps::condition;
use crate::support::{Oracle, Receiver, Relaybook, World, control_plane, eventually};

const GROUP: &str = "fleet.cattle.io";
const VERSION: &str = "v1alpha1";

/// A namespace with Fleet's kinds, and a pipeline whose targets are some of their objects.
struct Fleet {
    world: World,
    receiver: Receiver,
    relaybook: Option<Relaybook>,
}

impl Fleet {
    async fn new(ns: &str) -> Self {
        let world = World::new(ns).await;
        control_plane::install_fleet(&world.client).await;
        Self { world, receiver: Receiver::start(), relaybook: None }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        api(&self.world, kind)
    }

    /// Creates an object with these labels and this spec.
    async fn create(&self, kind: &str, name: &str, labels: Value, spec: Value) {
        create(&self.world, kind, name, labels, spec).await;
    }

    /// Changes labels and spec in one write.
    async fn edit(&self, kind: &str, name: &str, labels: Value, spec: Value) {
        patch(&self.world, kind, name, json!({"metadata": {"labels": labels}, "spec": spec})).await;
    }

    /// Writes fields of a status, as a controller that has observed the current generation.
    async fn status(&self, kind: &str, name: &str, status: Value) {
        status_of(&self.world, kind, name, status).await;
    }

    /// Starts Relaybook with a pipeline that has these objects (`KIND/NAME`) as targets, and notification `hook` with these fields.
    async fn follow(&mut self, objects: &[&str], over: Value) {
        let target = |object: &&str| {
            let (kind, name) = object.split_once('/').expect("KIND/NAME");
            let app = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "name": name});
            json!({"namespace": self.world.ns, "appRef": app})
        };
        let targets: Vec<Value> = objects.iter().map(target).collect();
        let fence = json!({"namespace": self.world.ns, "appRef": {"name": "fence"}});
        let spec = json!({
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "environments": [{"name": "dev", "targets": targets}, {"name": "fence", "targets": [fence]}],
        });
        self.world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
        self.world.notification("hook", &self.receiver, over).await;
        self.relaybook = Some(Relaybook::start(&self.world).await);
        self.world.settled().await;
        self.world.cursor("shop", "hook").await;
    }

    async fn restart(&mut self) {
        self.relaybook.as_mut().expect("it runs").restart().await;
    }

    /// Waits until the target of this name has this state.
    async fn is(&self, name: &str, status: Status, reason: &str, attempted: &str) -> TargetStatus {
        eventually(&format!("{name} is {status:?} {reason} {attempted}"), async || {
            let pipeline = self.world.get_pipeline("shop").await.status.unwrap_or_default();
            let mut targets = pipeline.environments.into_iter().flat_map(|e| e.targets);
            let target = targets.find(|t| t.cluster_app_ref.name == name).ok_or("no target")?;
            let fits = (target.status, target.reason.as_str(), target.attempted_revision.as_str());
            if fits == (status, reason, attempted) { Ok(target) } else { Err(format!("{target:?}")) }
        })
        .await
    }

    async fn runs(&self, name: &str, revision: &str) {
        let target = self.is(name, Status::Current, "", revision).await;
        assert_eq!((target.ready, target.revision.as_str()), (true, revision));
    }

    /// Checks that exactly these steps were sent for each target, from the beginning.
    async fn told(&self, lanes: &BTreeMap<&str, &[&str]>) {
        self.world.fence("shop", &["hook"]).await;
        let oracle = Oracle::new(&self.world, &self.receiver);
        let lanes = lanes.iter().fold(oracle, |o, (name, steps)| o.lane(&format!("shop/hook/dev/{name}"), steps));
        lanes.check().await;
    }
}

fn api(world: &World, kind: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(GROUP, VERSION, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()));
    Api::namespaced_with(world.client.clone(), &world.ns, &resource)
}

pub async fn patch(world: &World, kind: &str, name: &str, patch: Value) {
    api(world, kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
}

pub async fn create(world: &World, kind: &str, name: &str, labels: Value, spec: Value) {
    let metadata = json!({"name": name, "labels": labels});
    let object = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": metadata, "spec": spec});
    let object = serde_json::from_value(object).expect("an object");
    eventually(&format!("{kind} {name} is created"), async || {
        api(world, kind).create(&PostParams::default(), &object).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
}

pub async fn status_of(world: &World, kind: &str, name: &str, mut status: Value) {
    let api = api(world, kind);
    if kind != "BundleDeployment" && kind != "HelmOp" && status.get("observedGeneration").is_none() {
        status["observedGeneration"] = json!(api.get(name).await.expect("there").metadata.generation);
    }
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
}

/// Returns the labels of a Bundle of a repository, at a commit.
pub fn of_repo(repo: &str, commit: &str) -> Value {
    json!({"fleet.cattle.io/repo-name": repo, "fleet.cattle.io/commit": commit})
}

/// Returns the status of a Bundle with this number of ready deployments, of this total. The others wait.
pub fn counted(ready: i64, desired: i64) -> Value {
    let all = ready == desired;
    let ready_is =
        condition("Ready", if all { "True" } else { "False" }, "", if all { "" } else { "WaitApplied(1) [Cluster a]" });
    json!({
        "summary": {"desiredReady": desired, "ready": ready, "waitApplied": desired - ready, "errApplied": 0, "modified": 0},
        "unavailable": desired - ready, "unavailablePartitions": 0, "maxUnavailablePartitions": 0,
        "partitions": [{"name": "All", "count": desired, "maxUnavailable": desired, "unavailable": desired - ready}],
        "conditions": [ready_is],
    })
}

/// Returns the status that Fleet writes just before it updates the deployments: the counts are the old ones.
fn begun(desired: i64) -> Value {
    let mut status = counted(desired, desired);
    status["unavailable"] = json!(desired);
    status["partitions"][0]["unavailable"] = json!(desired);
    status
}

/// Returns the status of a Bundle with one deployment that could not be applied. The others are ready.
fn failed(desired: i64) -> Value {
    let mut status = counted(desired - 1, desired);
    status["summary"] = json!({"desiredReady": desired, "ready": desired - 1, "waitApplied": 0, "errApplied": 1,
        "nonReadyResources": [{"name": "fleet-default/a", "bundleState": "ErrApplied", "message": "no such image"}]});
    status["conditions"] = json!([condition("Ready", "False", "", "ErrApplied(1) [Cluster a: no such image]")]);
    status
}

/// Returns the labels of a `BundleDeployment`.
fn of_bundle(ns: &str, bundle: &str, commit: Option<&str>) -> Value {
    json!({"fleet.cattle.io/bundle-name": bundle, "fleet.cattle.io/bundle-namespace": ns, "fleet.cattle.io/commit": commit})
}

/// Returns the status that the agent writes when it has applied a deployment and all of it is ready.
fn applied(id: &str) -> Value {
    json!({"appliedDeploymentID": id, "ready": true, "nonModified": true, "modifiedStatus": null, "nonReadyStatus": null,
        "display": {"state": "Ready"},
        "conditions": [condition("Deployed", "True", "", ""), condition("Ready", "True", "", "")]})
}

/// Returns the status that the agent writes when it could not apply a deployment.
fn refused(message: &str) -> Value {
    json!({"conditions": [condition("Deployed", "False", "Error", message), condition("Ready", "True", "", "")]})
}
