//! Replays recordings of real controllers to the API server, and checks that each transition is sent.
//!
//! [`crate::replay`] describes the recordings and the expected transitions.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use crate::replay;
use crate::support::lanes::{Lane, what};
use crate::support::world::all_triggers;
use crate::support::world::apps::Kind;
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// Delays the deletion of an object, as the finalizer of Flux does.
const FINALIZER: &str = "finalizers.fluxcd.io";

#[tokio::test]
async fn kustomization_events_written_one_by_one_are_all_reported() {
    one_by_one("replay-flux", Kind::Kustomization, include_str!("../data/kustomization.jsonl"), replay::KUSTOMIZATION).await;
}

#[tokio::test]
async fn deployment_events_written_one_by_one_are_all_reported() {
    one_by_one("replay-deploy", Kind::Deployment, include_str!("../data/deployment.jsonl"), replay::DEPLOYMENT).await;
}

#[tokio::test]
async fn kustomization_events_written_at_once_are_reported_or_coalesced() {
    at_once("burst-flux", Kind::Kustomization, include_str!("../data/kustomization.jsonl"), replay::KUSTOMIZATION).await;
}

/// Writes the next event only after the previous one was observed. Every transition must be sent, and none coalesced.
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

/// Writes the events as fast as the API server accepts them. Transitions must be sent in order, up to the last one. If some are
/// missing, a delivery must be marked as coalesced.
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

/// A recording that is written to the API server, with all that the test needs for it.
struct Stage {
    world: World,
    receiver: Receiver,
    _relaybook: Relaybook,
    kind: Kind,
    api: Api<DynamicObject>,
    events: Vec<Value>,
    /// Number of events that have been written.
    next: usize,
    /// Number of changes of the marker.
    marks: i64,
}

impl Stage {
    /// Writes the first event, and starts Relaybook with a notification that has all triggers. The first event is the baseline, so it is
    /// not sent.
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
        // The recording can take so long that retention would delete deliveries.
        let mut over = all_triggers();
        json_patch::merge(&mut over, &json!({"delivery": {"retain": {"perLane": 100}}}));
        world.notification("hook", &receiver, over).await;
        let relaybook = Relaybook::start(&world).await;
        world.settled().await;
        Self { world, receiver, _relaybook: relaybook, kind, api, events, next: 1, marks: 0 }
    }

    /// Writes the next event and returns `true`. After the last event, deletes the object and returns `false`.
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
            // The generation must be the recorded one. Otherwise `observedGeneration` would have another meaning.
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

    /// Waits until everything that was written is observed. For this, it changes the marker and waits until the pipeline's status
    /// contains this later event of the same watch. Only the message of the marker changes, so no transition is sent.
    async fn observed(&mut self) {
        self.marks += 1;
        let message = format!("mark {}", self.marks);
        let failed = json!({"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": message});
        let (status, shown) = match self.kind {
            // The message contains the number of replicas, of 1000.
            Kind::Deployment => (
                json!({"observedGeneration": 2, "replicas": self.marks, "conditions": [failed]}),
                format!("{} of", self.marks),
            ),
            Kind::Kustomization => {
                let reconciling =
                    json!({"type": "Reconciling", "status": "True", "reason": "Progressing", "message": message});
                (json!({"observedGeneration": 1, "conditions": [reconciling]}), message)
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

    /// Returns a step with its number replaced by the revision of the recording.
    fn full(&self, step: &str) -> String {
        let Some((type_, number)) = step.split_once(' ') else { return step.to_owned() };
        let pointers = ["/status/lastAppliedRevision", "/status/lastAttemptedRevision"];
        let mut revisions = self.events.iter().flat_map(|e| pointers.map(|p| e.pointer(p).and_then(Value::as_str)));
        let of_number = |r: &str| replay::number(r) == number;
        let revision = revisions.find_map(|r| r.filter(|r| of_number(r))).unwrap_or(number);
        format!("{type_} {revision}")
    }
}

/// Creates the recorded object with this name.
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

/// Replaces the spec or the status of an object by the recorded one.
async fn put(api: &Api<DynamicObject>, name: &str, part: &str, value: &Value) -> DynamicObject {
    let patch = json!([{"op": "add", "path": format!("/{part}"), "value": value}]);
    let patch = Patch::Json::<()>(serde_json::from_value(patch).expect("a patch"));
    let params = PatchParams::default();
    match part {
        "status" => api.patch_status(name, &params, &patch).await.expect("status patched"),
        _ => api.patch(name, &params, &patch).await.expect("patched"),
    }
}
