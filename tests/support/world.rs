//! A namespace with the objects of users and their controllers.
//!
//! No controllers run in the control plane: tests write the status of application objects themselves, as the real
//! controllers would (see [`apps`]), and carry out promotions as a receiver would (see [`promotions`]).

pub mod apps;
pub mod promotions;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use relaybook_api::conditions::{Condition, ConditionStatus, get};
use relaybook_api::delivery::SubjectKind;
use relaybook_api::{Delivery, Notification, Outcome, Pipeline, TransitionType};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::control_plane;
use super::receiver::Receiver;
use super::wait::{DEADLINE, eventually, within};
use apps::Kind;

/// The template of the body that the oracle reads. Revisions and messages are escaped by the template engine.
pub const BODY: &str = r#"{"id": "{{id}}", "serial": "{{serial}}", "namespace": "{{pipeline.namespace}}",
    "pipeline": "{{pipeline.name}}", "notification": "{{notification.name}}", "target": "{{environment}}/{{default target.app.name target.cluster.name}}",
    "type": "{{type}}", "revision": "{{revision}}", "reason": "{{reason}}", "message": "{{message}}"}"#;

/// The header in which the oracle reads the same fields if the body comes from another template.
pub const WITNESS: &str = "x-witness";
/// The template of that header; names and revisions of these tests are ASCII.
const TESTIMONY: &str = r#"{"id": "{{id}}", "serial": "{{serial}}", "namespace": "{{pipeline.namespace}}",
 "pipeline": "{{pipeline.name}}", "notification": "{{notification.name}}", "target": "{{environment}}/{{default target.app.name target.cluster.name}}",
 "type": "{{type}}", "revision": "{{revision}}"}"#;

/// The buckets that the first of two replicas keeps, and those that the second one gets.
#[allow(dead_code, reason = "the integration tests use it")]
pub const OF_FIRST: Range<u8> = 0..8;
#[allow(dead_code, reason = "the integration tests use it")]
pub const OF_SECOND: Range<u8> = 8..16;

/// Returns the bucket of an object, as docs/high-availability.md defines it.
pub fn bucket(uid: &str) -> u8 {
    Sha256::digest(uid)[0] % 16
}

/// One namespace.
pub struct World {
    /// Its name.
    pub ns: String,
    /// A client with all permissions.
    pub client: Client,
    /// Path of the kubeconfig of the client.
    pub kubeconfig: PathBuf,
    fences: AtomicU32,
    /// Pipelines and notifications are created in the buckets below this one.
    below: AtomicU8,
    /// Another namespace that contains deliveries of its pipelines.
    beside: Option<String>,
}

impl World {
    /// Creates a namespace in the shared control plane, with the fence's Deployment in it.
    pub async fn new(ns: &str) -> Self {
        Self::on(control_plane::shared(), ns).await
    }

    /// Creates such a namespace in another control plane.
    pub async fn on(kubeconfig: &Path, ns: &str) -> Self {
        let client = control_plane::client(kubeconfig).await;
        let namespace = Namespace {
            metadata: kube::api::ObjectMeta { name: Some(ns.to_owned()), ..Default::default() },
            ..Default::default()
        };
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.expect("a new namespace");
        let world = Self::of_others(kubeconfig, ns).await;
        world.deploy("fence", "0").await;
        world
    }

    /// Returns a namespace that the test creates itself, without a fence.
    pub async fn of_others(kubeconfig: &Path, ns: &str) -> Self {
        let client = control_plane::client(kubeconfig).await;
        Self {
            ns: ns.to_owned(),
            client,
            kubeconfig: kubeconfig.to_owned(),
            fences: AtomicU32::new(0),
            below: AtomicU8::new(16),
            beside: None,
        }
    }

    /// Creates a namespace of which some deliveries are in the namespace of another world.
    pub async fn beside(ns: &str, other: &Self) -> Self {
        Self { beside: Some(other.ns.clone()), ..Self::on(&other.kubeconfig, ns).await }
    }

    /// Returns the namespaces that contain deliveries of its pipelines.
    pub fn namespaces(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.ns).chain(&self.beside)
    }

    /// Returns the API of a kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    /// Creates an object. `apiVersion`, `kind` and the namespace may be left out.
    pub async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).expect("an object of this kind");
        let is_divided = ["Pipeline", "Notification"].contains(&&*K::kind(&()));
        loop {
            let created = self.api::<K>().create(&PostParams::default(), &object).await.expect("created");
            let below = self.below.load(Ordering::Relaxed);
            if !is_divided || bucket(created.meta().uid.as_deref().unwrap_or_default()) < below {
                return created;
            }
            self.delete::<K>(created.meta().name.as_deref().unwrap_or_default()).await;
        }
    }

    /// Creates pipelines and notifications only in the buckets that the first of two replicas keeps: each of them again and again, until its
    /// uid is right. That replica starts first, and its name sorts first.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub fn only_for_first(&self) {
        self.below.store(OF_FIRST.end, Ordering::Relaxed);
    }

    /// Applies a merge patch to an object.
    pub async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched")
    }

    /// Deletes an object without waiting, because a controller may create it again at once.
    pub async fn delete_any<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    /// Deletes an object and waits until it is gone.
    pub async fn delete<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await.expect("deleted");
        eventually(&format!("{name} is gone"), async || match self.api::<K>().get_opt(name).await {
            Ok(None) => Ok(()),
            other => Err(format!("{:?}", other.map(|o| o.map(|o| o.name_any())))),
        })
        .await;
    }

    /// Creates a pipeline of Deployments, with targets as `ENVIRONMENT/APP` and the fence as one more environment.
    pub async fn pipeline(&self, name: &str, targets: &[&str]) -> Pipeline {
        self.create(pipeline(&self.ns, name, Kind::Deployment, targets)).await
    }

    /// Creates a pipeline of Kustomizations. Its fence is a Kustomization, too.
    pub async fn flux_pipeline(&self, name: &str, targets: &[&str]) -> Pipeline {
        self.create(pipeline(&self.ns, name, Kind::Kustomization, targets)).await
    }

    /// Creates a notification of `Deployed`, `Failed`, `Recovered` and `Removed` to `/NOTIFICATION/APP` of a receiver, with a short
    /// backoff. `over` is merged into its spec.
    pub async fn notification(&self, name: &str, receiver: &Receiver, over: Value) -> Notification {
        let url = receiver.url(&format!("/{name}/{{{{target.app.name}}}}"));
        self.create(notification(name, &url, over)).await
    }

    /// Creates a notification with a built-in template. Its URL is the receiver's, without a path.
    pub async fn builtin(&self, name: &str, receiver: &Receiver, template: Value, over: Value) -> Notification {
        let mut object = notification(name, &receiver.url(""), json!({"template": {"inline": null}}));
        let witness = json!({(WITNESS): TESTIMONY.replace('\n', "")});
        json_patch::merge(&mut object["spec"], &json!({"template": template, "endpoint": {"headers": witness}}));
        json_patch::merge(&mut object["spec"], &over);
        self.create(object).await
    }

    /// Creates a Secret.
    pub async fn secret(&self, name: &str, data: Value) -> Secret {
        self.create(json!({"metadata": {"name": name}, "stringData": data})).await
    }

    /// Reads a pipeline.
    pub async fn get_pipeline(&self, name: &str) -> Pipeline {
        self.api().get(name).await.expect("the pipeline is there")
    }

    /// Reads a notification.
    pub async fn get_notification(&self, name: &str) -> Notification {
        self.api().get(name).await.expect("the notification is there")
    }

    /// Waits until every target of a pipeline is observed. A target without its application counts as observed.
    pub async fn observed(&self, pipeline: &str) {
        eventually(&format!("pipeline {pipeline} is observed"), async || {
            let p = self.get_pipeline(pipeline).await;
            let status = p.status.unwrap_or_default();
            let ready = get(&status.conditions, "Ready")
                .is_some_and(|c| c.status == ConditionStatus::True || c.reason == "TargetNotFound");
            let settled = status.environments.iter().flat_map(|e| &e.targets).all(|t| t.settled.is_some());
            let now = status.observed_generation == p.metadata.generation;
            if ready && settled && now { Ok(()) } else { Err(format!("{:?}", status.conditions)) }
        })
        .await;
    }

    /// Waits until a notification is `Ready=True` for its current generation. From then on every change is reported.
    pub async fn ready(&self, notification: &str) {
        self.condition(notification, "Ready", |c| c.status == ConditionStatus::True).await;
    }

    /// Waits until all pipelines are observed and all notifications ready, so that every later change is reported.
    pub async fn settled(&self) {
        for pipeline in self.api::<Pipeline>().list(&ListParams::default()).await.expect("listed") {
            self.observed(&pipeline.name_any()).await;
        }
        for notification in self.api::<Notification>().list(&ListParams::default()).await.expect("listed") {
            self.ready(&notification.name_any()).await;
        }
    }

    /// Waits until a notification has its cursor in a pipeline. Every later change is then recorded, even if the notification
    /// cannot be sent.
    pub async fn cursor(&self, pipeline: &str, notification: &str) {
        let uid = self.get_notification(notification).await.metadata.uid;
        eventually(&format!("the cursor of {notification} in {pipeline}"), async || {
            let dispatched = self.get_pipeline(pipeline).await.status.unwrap_or_default().dispatched.unwrap_or_default();
            let ours = dispatched.cursors.iter().any(|c| c.notification == notification && Some(&c.uid) == uid.as_ref());
            ours.then_some(()).ok_or_else(|| format!("{:?}", dispatched.cursors))
        })
        .await;
    }

    /// Returns the columns of `kubectl get -o wide` for the first object of a resource.
    #[allow(dead_code, reason = "the integration tests use it")]
    pub async fn columns(&self, resource: &str) -> BTreeMap<String, Value> {
        let path = format!("/apis/relaybook.dev/v1alpha1/namespaces/{}/{resource}", self.ns);
        let request = http::Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
        let table: Value = self.client.request(request.body(Vec::new()).expect("a request")).await.expect("a table");
        let names = table["columnDefinitions"].as_array().expect("columns").iter();
        let names = names.map(|column| column["name"].as_str().expect("a name").to_owned());
        names.zip(table["rows"][0]["cells"].as_array().expect("cells").iter().cloned()).collect()
    }

    /// Waits for a Warning with this reason about a notification, and returns its note.
    pub async fn warning(&self, notification: &str, reason: &str) -> String {
        eventually(&format!("Event {reason} about {notification}"), async || {
            let all = self.api::<Event>().list(&ListParams::default()).await.expect("listed");
            let about = |e: &Event| {
                let regarding = e
                    .regarding
                    .as_ref()
                    .is_some_and(|r| r.kind.as_deref() == Some("Notification") && r.name.as_deref() == Some(notification));
                regarding && e.type_.as_deref() == Some("Warning") && e.reason.as_deref() == Some(reason)
            };
            let found = all.iter().find(|e| about(e)).map(|e| e.note.clone().unwrap_or_default());
            found.ok_or_else(|| format!("{:?}", all.iter().map(|e| (&e.reason, &e.note)).collect::<Vec<_>>()))
        })
        .await
    }

    /// Returns reason and note of every Warning of this namespace, except those that only report a change of a target.
    pub async fn events(&self) -> Vec<(String, String)> {
        let all = self.api::<Event>().list(&ListParams::default()).await.expect("listed");
        let warnings = all.into_iter().filter(|e| e.type_.as_deref() == Some("Warning"));
        let warnings = warnings.filter(|e| e.action.as_deref() != Some("Observe"));
        warnings.map(|e| (e.reason.unwrap_or_default(), e.note.unwrap_or_default())).collect()
    }

    /// Waits for a condition of a notification, for its current generation.
    pub async fn condition(&self, notification: &str, type_: &str, holds: impl Fn(&Condition) -> bool) -> Condition {
        eventually(&format!("{type_} of notification {notification}"), async || {
            let n = self.get_notification(notification).await;
            let conditions = n.status.unwrap_or_default().conditions;
            let found = get(&conditions, type_).filter(|c| c.observed_generation == n.metadata.generation && holds(c));
            found.cloned().ok_or_else(|| format!("{conditions:?}"))
        })
        .await
    }

    /// Waits until the next object has a later creation time than the last change recorded for a pipeline: creation times have
    /// whole seconds.
    pub async fn younger(&self, pipeline: &str) {
        let dispatched = self.get_pipeline(pipeline).await.status.unwrap_or_default().dispatched.unwrap_or_default();
        let recorded = dispatched.recorded.expect("something was recorded").as_second();
        eventually("another second has begun", async || {
            let now = relaybook_api::Time::now().as_second();
            if now > recorded { Ok(()) } else { Err(format!("{now}")) }
        })
        .await;
    }

    /// Returns all deliveries of this namespace, and those of its pipelines in the other namespace.
    pub async fn deliveries(&self) -> Vec<Delivery> {
        let mut all = Vec::new();
        for namespace in self.namespaces() {
            let those = self.deliveries_in(namespace).await.into_iter();
            all.extend(those.filter(|d| *namespace == self.ns || d.spec.pipeline_ref.namespace == self.ns));
        }
        all
    }

    /// Returns all deliveries of a namespace.
    pub async fn deliveries_in(&self, namespace: &str) -> Vec<Delivery> {
        let api: Api<Delivery> = Api::namespaced(self.client.clone(), namespace);
        api.list(&ListParams::default()).await.expect("listed").items
    }

    /// Waits until a pipeline's status shows this revision for these applications. The change is then in the log.
    pub async fn observed_at(&self, pipeline: &str, revision: &str, apps: &[&str]) {
        eventually(&format!("pipeline {pipeline} says {revision} of {apps:?}"), async || {
            let status = self.get_pipeline(pipeline).await.status.unwrap_or_default();
            let all = status.environments.iter().flat_map(|e| &e.targets);
            let ours: Vec<_> = all.filter(|t| apps.contains(&t.cluster_app_ref.name.as_str())).collect();
            let there = ours.iter().all(|t| t.ready && t.revision == revision);
            if there && ours.len() >= apps.len() { Ok(()) } else { Err(format!("{ours:?}")) }
        })
        .await;
    }

    /// Waits for a condition of a pipeline, for its current generation.
    pub async fn pipeline_condition(&self, pipeline: &str, type_: &str, holds: impl Fn(&Condition) -> bool) -> Condition {
        eventually(&format!("{type_} of pipeline {pipeline}"), async || {
            let p = self.get_pipeline(pipeline).await;
            let conditions = p.status.unwrap_or_default().conditions;
            let found = get(&conditions, type_).filter(|c| c.observed_generation == p.metadata.generation && holds(c));
            found.cloned().ok_or_else(|| format!("{conditions:?}"))
        })
        .await
    }

    /// Waits for a delivery with this type and revision, such as `Deployed 2`, that satisfies `holds`.
    pub async fn delivery(&self, what: &str, holds: impl Fn(&Delivery) -> bool) -> Delivery {
        self.delivery_within(DEADLINE, what, holds).await
    }

    /// The same with another deadline, for behaviour that is slow by design.
    pub async fn delivery_within(&self, limit: Duration, what: &str, holds: impl Fn(&Delivery) -> bool) -> Delivery {
        let is = |d: &Delivery| super::lanes::what(d.spec.type_.as_str(), &d.spec.to.revision) == what;
        within(limit, &format!("delivery {what}"), async || {
            let all = self.deliveries().await;
            let found = all.iter().find(|d| is(d) && holds(d));
            found
                .cloned()
                .ok_or_else(|| format!("{:#?}", all.iter().map(|d| (&d.metadata.name, &d.status)).collect::<Vec<_>>()))
        })
        .await
    }

    /// Proves that all changes so far are processed: a later change of the fence has been delivered by these notifications, and
    /// their cursors have passed it. Every delivery before it has then been recorded.
    pub async fn fence(&self, pipeline: &str, notifications: &[&str]) {
        let revision = format!("f{}", self.fences.fetch_add(1, Ordering::Relaxed) + 1);
        self.release(fence_kind(&self.get_pipeline(pipeline).await), "fence", &revision).await;
        for notification in notifications {
            let serial = eventually(&format!("fence {revision} of {pipeline} by {notification}"), async || {
                let all = self.deliveries().await;
                let found = all.iter().find(|d| {
                    let spec = &d.spec;
                    let here = spec.pipeline_ref.name == pipeline && spec.notification == *notification;
                    here && spec.subject.environment == "fence"
                        && spec.to.revision == revision
                        && d.status.as_ref().and_then(|s| s.outcome) == Some(Outcome::Delivered)
                });
                found.map(|d| d.spec.serial).ok_or_else(|| format!("{} deliveries", all.len()))
            })
            .await;
            eventually(&format!("the cursor of {notification} passes the fence"), async || {
                let dispatched = self.get_pipeline(pipeline).await.status.unwrap_or_default().dispatched.unwrap_or_default();
                let cursor = dispatched.cursors.iter().find(|c| c.notification == *notification).map(|c| c.serial);
                if cursor >= Some(serial) { Ok(()) } else { Err(format!("{cursor:?}, fence {serial}")) }
            })
            .await;
        }
    }
}

/// Returns a pipeline as JSON. Every target names its application; the fence is the last environment.
pub fn pipeline(ns: &str, name: &str, kind: Kind, targets: &[&str]) -> Value {
    let mut environments: Vec<Value> = Vec::new();
    for target in targets.iter().chain(&["fence/fence"]) {
        let (environment, app) = target.split_once('/').expect("ENVIRONMENT/APP");
        let target = json!({"namespace": ns, "appRef": {"name": app}});
        match environments.iter_mut().find(|e| e["name"] == environment) {
            Some(e) => e["targets"].as_array_mut().expect("a list").push(target),
            None => environments.push(json!({"name": environment, "targets": [target]})),
        }
    }
    let (api_version, kind) = kind.names();
    let app = json!({"apiVersion": api_version, "kind": kind, "name": "app"});
    json!({"metadata": {"name": name}, "spec": {"appRef": app, "environments": environments}})
}

/// Returns a notification as JSON.
pub fn notification(name: &str, url: &str, over: Value) -> Value {
    let mut spec = json!({
        "triggers": [{"type": "Deployed"}, {"type": "Failed"}, {"type": "Recovered"}, {"type": "Removed"}],
        "endpoint": {"url": url, "timeout": "5s"},
        "template": {"inline": {"body": BODY}},
        "delivery": {"retry": {"initial": "100ms", "max": "500ms"}},
    });
    json_patch::merge(&mut spec, &over);
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Returns the part of a spec that makes a notification report all transitions of targets.
pub fn all_triggers() -> Value {
    let of_targets = TransitionType::ALL.into_iter().filter(|t| t.subject() == SubjectKind::Target);
    let triggers: Vec<_> = of_targets.map(|t| json!({"type": t})).collect();
    json!({"triggers": triggers})
}

fn fence_kind(pipeline: &Pipeline) -> Kind {
    if pipeline.spec.app_ref.kind == "Kustomization" { Kind::Kustomization } else { Kind::Deployment }
}
