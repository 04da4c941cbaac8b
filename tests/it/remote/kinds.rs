//! One target of each kind on another cluster, written as its controller does, from one revision to the next.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::{Pipeline, Status};
use serde_json::{Value, json};

use crate::support::control_plane::{self, foreign};
use crate::support::remote::{Remote, second};
use crate::support::world::apps::condition;
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

/// A kind, and the labels, spec and status that its controller writes for a revision.
struct Case {
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    path: Option<&'static str>,
    object: fn(&str) -> Value,
}

fn ready(reason: &str) -> Value {
    condition("Ready", "True", reason, "done")
}

fn cases() -> Vec<Case> {
    let flux = |revision: &str| {
        json!({"status": {"conditions": [ready("ReconciliationSucceeded")], "observedGeneration": 1,
        "lastAppliedRevision": revision, "lastAttemptedRevision": revision}})
    };
    vec![
        Case {
            api_version: "kustomize.toolkit.fluxcd.io/v1",
            kind: "Kustomization",
            plural: "kustomizations",
            path: None,
            object: flux,
        },
        Case {
            api_version: "helm.toolkit.fluxcd.io/v2",
            kind: "HelmRelease",
            plural: "helmreleases",
            path: None,
            object: |revision| {
                json!({"status": {"conditions": [ready("UpgradeSucceeded")], "observedGeneration": 1,
                    "lastAttemptedRevision": revision, "history": [{"status": "deployed", "chartVersion": revision}]}})
            },
        },
        Case {
            api_version: "argoproj.io/v1alpha1",
            kind: "Application",
            plural: "applications",
            path: None,
            object: |revision| {
                json!({"status": {"health": {"status": "Healthy"}, "sync": {"status": "Synced", "revision": revision},
                    "operationState": {"phase": "Succeeded", "syncResult": {"revision": revision}},
                    "history": [{"id": 0, "revision": "old"}, {"id": 1, "revision": revision}]}})
            },
        },
        Case {
            api_version: "fleet.cattle.io/v1alpha1",
            kind: "BundleDeployment",
            plural: "bundledeployments",
            path: None,
            object: |revision| {
                json!({"spec": {"deploymentID": revision}, "status": {"appliedDeploymentID": revision, "ready": true,
                    "nonModified": true, "display": {"state": "Ready"},
                    "conditions": [condition("Deployed", "True", "", ""), condition("Ready", "True", "", "")]}})
            },
        },
        Case {
            api_version: "acme.example/v1",
            kind: "Widget",
            plural: "widgets",
            path: None,
            object: |revision| {
                json!({"metadata": {"labels": {"app.kubernetes.io/version": revision}},
                    "status": {"conditions": [ready("Up")]}})
            },
        },
        Case {
            api_version: "acme.example/v1",
            kind: "Gadget",
            plural: "gadgets",
            path: Some("{.status.release.version}"),
            object: |revision| json!({"status": {"release": {"version": revision}, "conditions": [ready("Up")]}}),
        },
    ]
}

#[tokio::test]
async fn every_kind_is_observed_from_one_revision_to_the_next() {
    let world = World::new("remote-kinds").await;
    let west = Remote::of(&world, second(), "west").await;
    let receiver = Receiver::start();
    let (mut targets, mut apis) = (Vec::new(), Vec::new());
    for case in cases() {
        let (group, version) = case.api_version.split_once('/').unwrap();
        control_plane::install(&west.world.client, &foreign(group, version, case.kind, case.plural)).await;
        let kind = GroupVersionKind::gvk(group, version, case.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, case.plural);
        let api: Api<DynamicObject> = Api::namespaced_with(west.world.client.clone(), &world.ns, &resource);
        let name = case.kind.to_lowercase();
        let object = json!({"apiVersion": case.api_version, "kind": case.kind, "metadata": {"name": name}, "spec": {}});
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        move_to(&api, &name, &(case.object)("1")).await;
        let mut app = json!({"apiVersion": case.api_version, "kind": case.kind, "name": name});
        if let Some(path) = case.path {
            app["revisionPath"] = json!(path);
        }
        targets.push(json!({"namespace": world.ns, "appRef": app, "clusterRef": west.reference()}));
        apis.push((api, name, case));
    }
    let fence = json!({"namespace": world.ns, "appRef": {"name": "fence"}});
    let spec = json!({
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "environments": [{"name": "prod", "targets": targets}, {"name": "fence", "targets": [fence]}],
    });
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let all_at = async |revision: &str| {
        eventually(&format!("all run {revision}"), async || {
            let status = world.get_pipeline("shop").await.status.unwrap_or_default();
            let targets = status.environments.into_iter().next().map(|e| e.targets).unwrap_or_default();
            let not: Vec<_> = targets.iter().filter(|t| t.status != Status::Current || t.revision != revision).collect();
            if targets.len() == apis.len() && not.is_empty() { Ok(()) } else { Err(format!("{not:?}")) }
        })
        .await;
    };
    all_at("1").await;
    for (api, name, case) in &apis {
        move_to(api, name, &(case.object)("2")).await;
    }
    all_at("2").await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver);
    let told = apis.iter().fold(oracle, |o, (_, name, _)| o.lane(&format!("shop/hook/prod/{name}"), &["Deployed 2"]));
    told.check().await;
}

/// Writes labels and spec first, as users do, and then the status.
async fn move_to(api: &Api<DynamicObject>, name: &str, object: &Value) {
    let mut people = object.clone();
    people.as_object_mut().unwrap().remove("status");
    if people != json!({}) {
        api.patch(name, &PatchParams::default(), &Patch::Merge(people)).await.unwrap();
    }
    let mut status = object["status"].clone();
    if !status["observedGeneration"].is_null() {
        status["observedGeneration"] = json!(api.get(name).await.unwrap().metadata.generation);
    }
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await.unwrap();
}
