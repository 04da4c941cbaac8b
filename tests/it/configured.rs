//! What runs beside the revision: the values of a Helm release. If only they change, that is a change.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use crate::support::world::apps::condition;
use crate::support::{Oracle, Receiver, Relaybook, World, control_plane};

/// A `HelmRelease` with the status that Flux's helm-controller writes.
struct Helm {
    api: Api<DynamicObject>,
}

/// A release in the history: its status, chart and values.
type Entry = (&'static str, &'static str, &'static str);

impl Helm {
    /// Creates a HelmRelease that has installed chart 1.0.0 with the values `a`.
    async fn new(world: &World) -> Self {
        let (group, version, kind) = ("helm.toolkit.fluxcd.io", "v2", "HelmRelease");
        control_plane::install(&world.client, &control_plane::foreign(group, version, kind, "helmreleases")).await;
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, "helmreleases");
        let api = Api::namespaced_with(world.client.clone(), &world.ns, &resource);
        let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "podinfo"},
            "spec": {"interval": "10m", "chart": {"spec": {"chart": "podinfo", "version": "1.0.0"}}, "values": {"tag": "a"}}});
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let helm = Self { api };
        helm.ready("1.0.0", "a", &[("deployed", "1.0.0", "a")]).await;
        helm
    }

    /// Sets other values, as users do.
    async fn set_values(&self, tag: &str) {
        let patch = Patch::Merge(json!({"spec": {"values": {"tag": tag}}}));
        self.api.patch("podinfo", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Writes that an upgrade to this chart and these values runs.
    async fn attempt(&self, chart: &str, values: &str, history: &[Entry]) {
        let running = "Running 'upgrade' action with timeout of 5m0s";
        let reconciling = condition("Reconciling", "True", "Progressing", running);
        let ready = condition("Ready", "Unknown", "Progressing", running);
        self.write(false, (chart, values), vec![reconciling, ready], history).await;
    }

    /// Writes that an attempt has failed, and what `Ready` says.
    async fn fail(&self, chart: &str, values: &str, ready: (&str, &str), history: &[Entry]) {
        let released = condition("Released", "False", "UpgradeFailed", "Helm upgrade failed: no such image");
        let ready = condition("Ready", "False", ready.0, ready.1);
        self.write(false, (chart, values), vec![ready, released], history).await;
    }

    /// Writes that the newest release is ready.
    async fn ready(&self, chart: &str, values: &str, history: &[Entry]) {
        let ready = condition("Ready", "True", "UpgradeSucceeded", "Helm upgrade succeeded");
        self.write(true, (chart, values), vec![ready], history).await;
    }

    async fn write(&self, observed: bool, (chart, values): (&str, &str), conditions: Vec<Value>, history: &[Entry]) {
        let generation = self.api.get("podinfo").await.unwrap().metadata.generation.unwrap();
        let digest = |values: &str| format!("sha256:{}", values.repeat(64));
        let conditions = conditions.into_iter().map(|mut condition| {
            condition["observedGeneration"] = json!(generation);
            condition
        });
        let entry = |(status, chart, values): &Entry| json!({"status": status, "chartName": "podinfo", "chartVersion": chart, "configDigest": digest(values)});
        let status = json!({"status": {
            "observedGeneration": if observed { generation } else { generation - 1 },
            "conditions": conditions.collect::<Vec<_>>(),
            "lastAttemptedRevision": chart,
            "lastAttemptedConfigDigest": digest(values),
            "history": history.iter().map(entry).collect::<Vec<_>>(),
        }});
        self.api.patch_status("podinfo", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

/// Creates a pipeline whose environment `dev` follows the HelmRelease, and a notification.
async fn follow(world: &World, receiver: &Receiver) {
    let release = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "podinfo"});
    let spec = json!({
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "environments": [
            {"name": "dev", "targets": [{"namespace": world.ns, "appRef": release}]},
            {"name": "fence", "targets": [{"namespace": world.ns, "appRef": {"name": "fence"}}]},
        ],
    });
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    let triggers = ["Progressing", "Deployed", "Failed", "Recovered"].map(|type_| json!({"type": type_}));
    let ready = json!({"type": "EnvironmentReady", "environments": ["dev"]});
    let triggers: Vec<_> = triggers.into_iter().chain([ready]).collect();
    // The environment has no application.
    let url = receiver.url(r#"/hook/{{default target.app.name "whole"}}"#);
    world.notification("hook", receiver, json!({"triggers": triggers, "endpoint": {"url": url}})).await;
}

/// Returns the messages about an application, with their types.
fn messages(receiver: &Receiver, app: &str) -> Vec<String> {
    let text = |request: &Value, field: &str| request[field].as_str().unwrap_or_default().to_owned();
    let all = receiver.to(&format!("/hook/{app}")).into_iter().map(|request| request.json());
    all.map(|body| format!("{}: {}", text(&body, "type"), text(&body, "message"))).collect()
}

#[tokio::test]
async fn new_values_of_a_helm_release_are_deployed_once() {
    let world = World::new("values-only").await;
    let receiver = Receiver::start();
    let helm = Helm::new(&world).await;
    follow(&world, &receiver).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    // Only the values change. Then Flux compares again, and corrects drift.
    let (first, second) = (("deployed", "1.0.0", "a"), ("deployed", "1.0.0", "b"));
    helm.set_values("b").await;
    helm.attempt("1.0.0", "b", &[first]).await;
    helm.ready("1.0.0", "b", &[first]).await;
    helm.ready("1.0.0", "b", &[second, ("superseded", "1.0.0", "a")]).await;
    receiver.wait("/hook/podinfo", 2).await;
    helm.attempt("1.0.0", "b", &[second]).await;
    helm.ready("1.0.0", "b", &[second]).await;

    // Other values fail. Flux rolls back and tries again. Then the values go back.
    let failed = ("failed", "1.0.0", "c");
    helm.set_values("c").await;
    helm.attempt("1.0.0", "c", &[second]).await;
    helm.fail("1.0.0", "c", ("UpgradeFailed", "Helm upgrade failed: no such image"), &[failed, second]).await;
    receiver.wait("/hook/podinfo", 4).await;
    helm.fail("1.0.0", "c", ("RollbackSucceeded", "Helm rollback succeeded"), &[second, failed]).await;
    helm.attempt("1.0.0", "c", &[second, failed]).await;
    helm.set_values("b").await;
    helm.ready("1.0.0", "b", &[second, failed]).await;
    receiver.wait("/hook/podinfo", 5).await;

    // A new chart with the same values.
    helm.ready("1.1.0", "b", &[("deployed", "1.1.0", "b"), ("superseded", "1.0.0", "b")]).await;
    receiver.wait("/hook/podinfo", 6).await;
    world.fence("shop", &["hook"]).await;
    assert_eq!(
        messages(&receiver, "podinfo"),
        [
            "Progressing: values sha256:bbbbbbbbbbbb: Running 'upgrade' action with timeout of 5m0s",
            "Deployed: 1.0.0, values sha256:bbbbbbbbbbbb",
            "Progressing: values sha256:cccccccccccc: Running 'upgrade' action with timeout of 5m0s",
            "Failed: values sha256:cccccccccccc: Helm upgrade failed: no such image",
            "Recovered: ",
            "Deployed: ",
        ]
    );
    let steps =
        ["Progressing 1.0.0", "Deployed 1.0.0", "Progressing 1.0.0", "Failed 1.0.0", "Recovered 1.0.0", "Deployed 1.1.0"];
    // An environment is about the revision, and so are promotions from it.
    let oracle = Oracle::new(&world, &receiver).lane("shop/hook/dev/podinfo", &steps);
    oracle.lane("shop/hook/dev/", &["EnvironmentReady 1.1.0"]).check().await;
}
