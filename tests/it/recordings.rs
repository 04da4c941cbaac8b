//! What real controllers wrote is written again, object by object, to the API server: exactly what happened is told.
//!
//! See [`crate::replay`] for what is in the recordings and for what may come out of them.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use pennant::api::Pipeline;
use serde_json::{Value, json};

use crate::replay;
use crate::support::lanes::{Lane, what};
use crate::support::world::all_triggers;
use crate::support::world::apps::Kind;
use crate::support::{Oracle, Pennant, Receiver, World, eventually};

/// Holds an object back when it is deleted, as Flux does.
const FINALIZER: &str = "finalizers.fluxcd.io";

#[tokio::test]
async fn a_kustomization_event_by_event() {
    one_by_one("replay-flux", Kind::Kustomization, include_str!("../data/kustomization.jsonl"), replay::KUSTOMIZATION).await;
}

#[tokio::test]
async fn a_deployment_event_by_event() {
    one_by_one("replay-deploy", Kind::Deployment, include_str!("../data/deployment.jsonl"), replay::DEPLOYMENT).await;
}

#[tokio::test]
async fn rollbacks_event_by_event() {
    one_by_one("replay-back", Kind::Deployment, include_str!("../data/rollback.jsonl"), replay::ROLLBACK).await;
}

#[tokio::test]
async fn a_kustomization_in_one_batch() {
    at_once("burst-flux", Kind::Kustomization, include_str!("../data/kustomization.jsonl"), replay::KUSTOMIZATION).await;
}

#[tokio::test]
async fn a_deployment_in_one_batch() {
    at_once("burst-deploy", Kind::Deployment, include_str!("../data/deployment.jsonl"), replay::DEPLOYMENT).await;
}

#[tokio::test]
async fn rollbacks_in_one_batch() {
    at_once("burst-back", Kind::Deployment, include_str!("../data/rollback.jsonl"), replay::ROLLBACK).await;
}

/// Each event is observed before the next one is written.
async fn one_by_one(ns: &str, kind: Kind, recording: &str, expected: &str) {
    let mut stage = Stage::new(ns, kind, recording).await;
    while stage.play().await {
        stage.observed().await;
    }
    stage.world.fence("shop", &["hook"]).await;
    let steps: Vec<_> = expected.split(", ").map(|step| stage.full(step)).collect();
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    Oracle::new(&stage.world, &stage.receiver).lane("shop/hook/dev/web", &steps).check().await;
    assert!(stage.world.deliveries().await.iter().all(|d| !d.spec.coalesced));
}

/// As fast as the API server takes it: what happened is told in order up to the end, and if something is left out, a delivery
/// says so.
async fn at_once(ns: &str, kind: Kind, recording: &str, expected: &str) {
    let mut stage = Stage::new(ns, kind, recording).await;
    while stage.play().await {}
    stage.world.fence("shop", &["hook"]).await;

    let mut told = stage.world.deliveries().await;
    told.retain(|d| !Lane::of(d).is_fence());
    told.sort_by_key(|d| d.spec.order);
    let steps: Vec<_> = told.iter().map(|d| what(d.spec.type_.as_str(), &d.spec.to.revision)).collect();
    let expected: Vec<_> = expected.split(", ").map(|step| stage.full(step)).collect();
    let mut rest = expected.iter();
    for (delivery, step) in told.iter().zip(&steps) {
        assert!(delivery.spec.coalesced || rest.any(|e| e == step), "{step} in {steps:#?}");
    }
    assert_eq!(steps.last(), expected.last(), "{steps:#?}");
    assert!(steps == expected || told.iter().any(|d| d.spec.coalesced), "{steps:#?}");
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    Oracle::new(&stage.world, &stage.receiver).lane("shop/hook/dev/web", &steps).check().await;
}

/// A recorded object on its way through the API server.
struct Stage {
    world: World,
    receiver: Receiver,
    _pennant: Pennant,
    kind: Kind,
    api: Api<DynamicObject>,
    events: Vec<Value>,
    /// How many of the events have been written.
    next: usize,
    /// How often the marker has been moved.
    marks: i64,
}

impl Stage {
    /// Writes the first event, which is the baseline, and lets it be observed with every trigger on.
    async fn new(ns: &str, kind: Kind, recording: &str) -> Self {
        let world = World::new(ns).await;
        let receiver = Receiver::start();
        let (api_version, name) = kind.names();
        let (group, version) = api_version.split_once('/').expect("a group");
        let gvk = GroupVersionKind::gvk(group, version, name);
        let plural = format!("{}s", name.to_lowercase());
        let api = Api::namespaced_with(world.client.clone(), &world.ns, &ApiResource::from_gvk_with_plural(&gvk, &plural));
        match kind {
            Kind::Deployment => {}
            Kind::Kustomization => world.kustomize("fence", "0").await,
        }
        let events = recording.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["object"].take());
        let events: Vec<_> = events.collect();
        create(&api, "web", &events[0]).await;
        create(&api, "marker", &events[0]).await;
        let targets = ["dev/web", "mark/marker"];
        match kind {
            Kind::Deployment => world.pipeline("shop", &targets).await,
            Kind::Kustomization => world.flux_pipeline("shop", &targets).await,
        };
        world.notification("hook", &receiver, all_triggers()).await;
        let pennant = Pennant::start(&world).await;
        world.settled().await;
        Self { world, receiver, _pennant: pennant, kind, api, events, next: 1, marks: 0 }
    }

    /// Writes the next event, or deletes the object after the last one and says `false`.
    async fn play(&mut self) -> bool {
        let Some(event) = self.events.get(self.next) else {
            self.remove().await;
            return false;
        };
        let before = &self.events[self.next - 1];
        self.next += 1;
        let deleted = |event: &Value| event["metadata"]["deletionTimestamp"].is_string();
        if deleted(event) && !deleted(before) {
            self.api.delete("web", &DeleteParams::default()).await.expect("deleted");
        }
        let mut live = None;
        if event["spec"] != before["spec"] {
            live = Some(put(&self.api, "web", "spec", &event["spec"]).await);
        }
        if event["status"] != before["status"] {
            live = Some(put(&self.api, "web", "status", &event["status"]).await);
        }
        if let Some(live) = live {
            // The API server counts as it did then, so that every `observedGeneration` means the same.
            assert_eq!(json!(live.metadata.generation), event["metadata"]["generation"], "event {}", self.next);
        }
        true
    }

    async fn remove(&self) {
        match self.kind {
            Kind::Deployment => self.world.take_away("web").await,
            Kind::Kustomization => {
                let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                self.api.patch("web", &PatchParams::default(), &none).await.expect("patched");
            }
        }
    }

    /// Waits until all that was written is observed: a later event of the same watch stands in the pipeline's status. It is one
    /// of the marker, of whose status nothing changes but the message.
    async fn observed(&mut self) {
        self.marks += 1;
        let message = format!("mark {}", self.marks);
        let failed = json!({"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": message});
        let (status, shown) = match self.kind {
            // Shown is how many of a thousand there are.
            Kind::Deployment => (
                json!({"observedGeneration": 2, "replicas": self.marks, "conditions": [failed]}),
                format!("{} of", self.marks),
            ),
            Kind::Kustomization => {
                let reconciling =
                    json!({"type": "Reconciling", "status": "True", "reason": "Progressing", "message": message});
                (json!({"observedGeneration": -1, "conditions": [reconciling]}), message)
            }
        };
        if self.kind == Kind::Deployment && self.marks == 1 {
            let mut spec = self.events[0]["spec"].clone();
            spec["replicas"] = json!(1000);
            put(&self.api, "marker", "spec", &spec).await;
        }
        put(&self.api, "marker", "status", &status).await;
        eventually(&format!("{shown} is observed"), async || {
            let pipeline: Pipeline = self.world.get_pipeline("shop").await;
            let environments = pipeline.status.unwrap_or_default().environments;
            let marker = environments.iter().find(|e| e.name == "mark").and_then(|e| e.targets.first().cloned());
            let seen = marker.map(|m| m.message).unwrap_or_default();
            if seen.starts_with(&shown) { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    /// A step with the revision as it stands in the recording.
    fn full(&self, step: &str) -> String {
        let Some((type_, number)) = step.split_once(' ') else { return step.to_owned() };
        let pointers = ["/status/lastAppliedRevision", "/status/lastAttemptedRevision"];
        let mut revisions = self.events.iter().flat_map(|e| pointers.map(|p| e.pointer(p).and_then(Value::as_str)));
        let of_number = |r: &str| replay::number(r) == number;
        let revision = revisions.find_map(|r| r.filter(|r| of_number(r))).unwrap_or(number);
        format!("{type_} {revision}")
    }
}

/// Makes an object as it is recorded, under this name.
async fn create(api: &Api<DynamicObject>, name: &str, event: &Value) {
    let mut metadata = json!({"name": name});
    if event["kind"] == "Kustomization" && name == "web" {
        metadata["finalizers"] = json!([FINALIZER]);
    }
    let object =
        json!({"apiVersion": event["apiVersion"], "kind": event["kind"], "metadata": metadata, "spec": event["spec"]});
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("created");
    put(api, name, "status", &event["status"]).await;
}

/// Replaces one part of an object as it is recorded.
async fn put(api: &Api<DynamicObject>, name: &str, part: &str, value: &Value) -> DynamicObject {
    let patch = json!([{"op": "add", "path": format!("/{part}"), "value": value}]);
    let patch = Patch::Json::<()>(serde_json::from_value(patch).expect("a patch"));
    let params = PatchParams::default();
    match part {
        "status" => api.patch_status(name, &params, &patch).await.expect("status patched"),
        _ => api.patch(name, &params, &patch).await.expect("patched"),
    }
}
