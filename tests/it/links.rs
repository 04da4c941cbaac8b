//! Links to commits of Applications of Argo CD: only to forges that are known, and a comparison only within one repository.

mod look_ups;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use crate::support::{Oracle, Receiver, Relaybook, World, control_plane, eventually};

const REFRESHED: &str = "2026-11-26T05:00:00Z";
const BODY: &str = r#"{"sha": "{{git.sha}}", "url": "{{git.url}}", "compare": "{{links.compare}}", "previous": "{{links.previous}}",
    "repository": "{{target.source.repository}}", "owner": "{{target.source.owner}}", "argo": "{{links.argo}}", "none": "{{links.none}}"}"#;

fn applications(world: &World) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Application");
    Api::namespaced_with(world.client.clone(), &world.ns, &ApiResource::from_gvk(&gvk))
}

/// Writes the status of an Application that has synced this revision from this repository.
async fn synced(world: &World, revision: &str, repository: &str) {
    let source = json!({"repoURL": repository});
    let result = json!({"revision": revision, "source": source});
    let operation = json!({"phase": "Succeeded", "finishedAt": REFRESHED, "syncResult": result, "message": "synced"});
    let status = json!({
        "sync": {"status": "Synced", "revision": revision}, "health": {"status": "Healthy"}, "reconciledAt": REFRESHED,
        "history": [{"id": 1, "revision": revision, "source": source}], "operationState": operation,
    });
    let patch = Patch::Merge(json!({"status": status}));
    applications(world).patch_status("web", &PatchParams::default(), &patch).await.expect("patched");
}

/// Writes the spec of the Application.
async fn declare(world: &World, repository: &str) {
    let patch = Patch::Merge(json!({"spec": {"source": {"repoURL": repository}}}));
    applications(world).patch("web", &PatchParams::default(), &patch).await.expect("patched");
}

fn text<'a>(message: &'a Value, field: &str) -> &'a str {
    message[field].as_str().expect("a text")
}

/// Creates pipeline `shop` for Application `web`, and a notification about each deployment.
async fn reported(world: &World, receiver: &Receiver, body: &str) {
    let app = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "name": "web"});
    let environments = json!([{"name": "dev", "targets": [{"namespace": world.ns}]}]);
    let spec = json!({"appRef": app, "environments": environments});
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    let over = json!({"triggers": [{"type": "Deployed"}], "endpoint": {"url": receiver.url("/hook")}});
    world.builtin("hook", receiver, json!({"inline": {"body": body}}), over).await;
}

#[tokio::test]
async fn a_message_links_to_the_commits_of_its_revisions() {
    let world = World::new("links").await;
    let receiver = Receiver::start();
    let commits = ["a", "b", "c", "d", "e"].map(|digit| digit.repeat(40));
    let first = "https://robot:t0ken@git.example.com/acme/first.git";
    let second = "git@git.example.com:acme/second.git";
    let crd = control_plane::foreign("argoproj.io", "v1alpha1", "Application", "applications");
    control_plane::install(&world.client, &crd).await;
    let object = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "web"},
        "spec": {"source": {"repoURL": first}}});
    let object = serde_json::from_value(object).expect("an object");
    applications(&world).create(&PostParams::default(), &object).await.expect("created");
    synced(&world, &commits[0], first).await;
    let config = json!({
        "forges": [{"host": "git.example.com", "type": "gitlab"}],
        "links": {"argo": "https://argocd.example.com/applications/{{target.namespace}}/{{target.app.name}}"},
    });
    let config = json!({"metadata": {"name": "relaybook-config"}, "data": {"config.yaml": config.to_string()}});
    world.create::<ConfigMap>(config).await;
    reported(&world, &receiver, BODY).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    synced(&world, &commits[1], first).await;
    let sent = receiver.wait("/hook", 1).await[0].json();
    let base = "https://git.example.com/acme/first";
    assert_eq!((text(&sent, "sha"), text(&sent, "owner")), (commits[1].as_str(), "acme"));
    assert_eq!(text(&sent, "repository"), format!("{base}.git"), "without credentials");
    assert_eq!(text(&sent, "url"), format!("{base}/-/commit/{}", commits[1]));
    assert_eq!(text(&sent, "previous"), format!("{base}/-/commit/{}", commits[0]));
    assert_eq!(text(&sent, "compare"), format!("{base}/-/compare/{}...{}", commits[0], commits[1]));
    assert_eq!(text(&sent, "argo"), format!("https://argocd.example.com/applications/{}/web", world.ns));
    assert_eq!(text(&sent, "none"), "", "no link has this name");

    // A user changes the repository. The revision that runs is still from the other one.
    declare(&world, second).await;
    synced(&world, &commits[2], second).await;
    let sent = receiver.wait("/hook", 2).await[1].json();
    assert_eq!(text(&sent, "url"), format!("https://git.example.com/acme/second/-/commit/{}", commits[2]));
    assert_eq!((text(&sent, "previous"), text(&sent, "compare")), (&*format!("{base}/-/commit/{}", commits[1]), ""));

    // What the user writes into the pipeline takes precedence.
    let with = |repository: &str| Patch::Merge(json!({"spec": {"source": {"repository": repository}}}));
    let pipelines = world.api::<Pipeline>();
    for bad in [first, "https://github.com/acme/../web", "javascript:alert(1)", "oci://ghcr.io/acme/web"] {
        assert!(pipelines.patch("shop", &PatchParams::default(), &with(bad)).await.is_err(), "{bad}");
    }
    pipelines.patch("shop", &PatchParams::default(), &with("https://github.com/acme/web")).await.expect("patched");
    eventually("the new spec is observed", async || {
        let pipeline = world.get_pipeline("shop").await;
        let observed = pipeline.status.and_then(|status| status.observed_generation);
        if observed == pipeline.metadata.generation { Ok(()) } else { Err(format!("{observed:?}")) }
    })
    .await;
    synced(&world, &commits[3], second).await;
    let sent = receiver.wait("/hook", 3).await[2].json();
    assert_eq!(text(&sent, "url"), format!("https://github.com/acme/web/commit/{}", commits[3]));
    assert_eq!(text(&sent, "compare"), "", "the revision before was recorded with another repository");
    synced(&world, &commits[4], second).await;
    let sent = receiver.wait("/hook", 4).await[3].json();
    let compare = format!("https://github.com/acme/web/compare/{}...{}", commits[3], commits[4]);
    assert_eq!(text(&sent, "compare"), compare);

    let stored = serde_json::to_string(&world.get_pipeline("shop").await).expect("JSON");
    assert!(!stored.contains("t0ken"), "{stored}");
    let lane = [1, 2, 3, 4].map(|at: usize| format!("Deployed {}", commits[at]));
    let lane: Vec<&str> = lane.iter().map(String::as_str).collect();
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &lane).check().await;
}
