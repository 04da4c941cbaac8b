//! Tests the CRDs: with older ones the controllers do not run, with those of this version they start, and after the CRDs are deleted
//! nothing is left. With CRDs without selectable fields, the command line filters by itself.

use std::path::Path;
use std::sync::OnceLock;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use relaybook_api::{Delivery, GROUP, Pipeline};
use serde_json::{Value, json};

use crate::page::person::OwnPage;
use crate::support::control_plane::{self, ControlPlane};
use crate::support::relaybook::{Options, command, items};
use crate::support::{Receiver, Relaybook, Reply, World, eventually, turn};

fn definition(kind: &str) -> CustomResourceDefinition {
    relaybook_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind).expect("one of ours")
}

/// Returns the CRD of an older version, whose status does not have this field.
fn older(kind: &str, field: &str) -> CustomResourceDefinition {
    let mut crd = definition(kind);
    let schema = crd.spec.versions[0].schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()).expect("a schema");
    let status = schema.properties.as_mut().and_then(|p| p.get_mut("status")).expect("a status");
    status.properties.as_mut().and_then(|p| p.remove(field)).expect("the field is there");
    crd
}

async fn put(world: &World, crd: &CustomResourceDefinition) {
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let patch = Patch::Apply(crd);
    api.patch(&crd.name_any(), &PatchParams::apply("test").force(), &patch).await.expect("applied");
}

/// Waits until no CRD has a name with this end. After a failed deletion the API server waits up to five minutes, unless the CRD
/// changes.
async fn no_definitions(api: &Api<CustomResourceDefinition>, end: &str) {
    let mut tries = 0;
    eventually("the CRDs are gone with all their objects", async || {
        tries += 1;
        let all = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let names: Vec<_> = all.iter().map(ResourceExt::name_any).filter(|name| name.ends_with(end)).collect();
        // A second or so after the one before, because a deletion fails if the CRD changes meanwhile.
        for name in names.iter().filter(|_| tries % 10 == 0) {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"tries": tries.to_string()}}}));
            // It may be gone by now.
            let _ = api.patch_metadata(name, &PatchParams::default(), &patch).await;
        }
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

/// All of this happens on one control plane, because each part changes its CRDs.
#[tokio::test]
async fn controllers_run_only_with_crds_that_fit_and_an_uninstall_leaves_nothing_behind() {
    let plane = ControlPlane::start().expect("a control plane");
    let world = World::on(&plane.kubeconfig, "installed-older").await;
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    // A field manager can only remove fields that it owns. So the manager that changes the CRD also creates it.
    api.delete("pipelines.relaybook.dev", &DeleteParams::default()).await.expect("deleted");
    no_definitions(&api, "pipelines.relaybook.dev").await;
    a_missing_crd_is_reported_with_the_remedy(&world).await;
    put(&world, &older("Pipeline", "settled")).await;
    let mut relaybook = Relaybook::begin(&world, Options::of(&world)).await;
    relaybook.wait_listening().await;
    controllers_wait_for_newer_crds(&world, &relaybook).await;

    put(&world, &definition("Pipeline")).await;
    relaybook.wait_ready().await;
    a_change_is_sent(&world).await;
    an_unchanged_schema_is_not_sent_again(&world).await;

    // A rollback installs older CRDs while Relaybook runs.
    put(&world, &older("Pipeline", "settled")).await;
    let status = relaybook.ended().await;
    assert!(!status.success(), "{status}");
    let log = relaybook.log();
    assert!(log.contains("waits at its next start") && log.contains("Pipeline.status.settled"), "{log}");
    put(&world, &definition("Pipeline")).await;
    a_status_subresource_of_deliveries_does_not_fit(&world).await;

    relaybook.start_again().await;
    an_uninstall_leaves_nothing_behind(&world).await;
    relaybook.stop().await;
}

async fn a_missing_crd_is_reported_with_the_remedy(world: &World) {
    let output = command(world, &["explain", "shop", "-n", &world.ns]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    let remedy =
        "; Relaybook is not installed in this cluster: install its chart, or apply the output of `relaybook crds`\n";
    assert!(said.ends_with(remedy) && output.status.code() == Some(5), "{said}");
    let page = OwnPage::start(&world.kubeconfig, &["--controller-namespace", &world.ns]).await;
    let seen = page.get(&format!("/pipelines/{}/shop", world.ns)).await.body;
    assert!(seen.contains("Relaybook is not installed in this cluster: install its chart"), "{seen}");
}

async fn controllers_wait_for_newer_crds(world: &World, relaybook: &Relaybook) {
    eventually("the log names the missing field", async || {
        let log = relaybook.log();
        if log.contains("missing: Pipeline.status.settled. Install them") { Ok(()) } else { Err(log) }
    })
    .await;
    let waits = relaybook.ready().await.expect_err("it is not ready");
    assert!(waits.contains("definitions"), "{waits}");
    // Another page than before, because banners are kept for half a minute.
    let page = OwnPage::start(&world.kubeconfig, &["--controller-namespace", &world.ns]).await;
    let seen = page.get("/").await.body;
    let outdated = "missing: Pipeline.status.settled. Install them";
    assert!(
        seen.contains("Controllers of this version do not run: the installed CRDs") && seen.contains(outdated),
        "{seen}"
    );
    let command = "<code>relaybook crds | kubectl apply --server-side --force-conflicts -f -</code>";
    assert!(seen.contains(command), "{seen}");
    // The metrics show that there is no leader, so that an alert can fire.
    for lease in ["relaybook-pipeline", "relaybook-dispatch", "relaybook-promote"] {
        let series = format!("relaybook_lease_held{{lease=\"{lease}\"}}");
        assert_eq!(relaybook.metrics().await.get(&series), Some(&0.0), "{series}");
    }
    let leases = world.api::<Lease>().list(&ListParams::default()).await.expect("listed").items;
    assert!(leases.is_empty(), "{leases:?}");
}

async fn a_change_is_sent(world: &World) {
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.notification("hook", &receiver, json!({})).await;
    world.pipeline("shop", &["dev/web"]).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    assert_eq!(receiver.to("/hook/web").len(), 1);
}

/// While the CRDs are unchanged, a repeated check costs almost nothing: the API server answers 304.
async fn an_unchanged_schema_is_not_sent_again(world: &World) {
    let ask = || http::Request::get("/openapi/v3/apis/relaybook.dev/v1alpha1");
    let body = kube::client::Body::empty;
    let first = world.client.send(ask().body(body()).unwrap()).await.expect("answered");
    let mark = first.headers()[http::header::ETAG].clone();
    let again = ask().header(http::header::IF_NONE_MATCH, mark).body(body()).unwrap();
    assert_eq!(world.client.send(again).await.expect("answered").status(), http::StatusCode::NOT_MODIFIED);
}

async fn a_status_subresource_of_deliveries_does_not_fit(world: &World) {
    let checked = async |words: &str| {
        eventually("the check of the CRDs", async || {
            let output = command(world, &["check", "--controller-namespace", &world.ns]).await;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if said.contains(words) { Ok(()) } else { Err(said) }
        })
        .await;
    };
    let mut with_status = definition("Delivery");
    with_status.spec.versions[0].subresources = serde_json::from_value(json!({"status": {}})).expect("subresources");
    put(world, &with_status).await;
    checked("missing: Delivery.status in the object itself (it is still a subresource). Install them").await;
    // A merge patch replaces the list of versions, and so removes the subresource.
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let now = Patch::Merge(definition("Delivery"));
    api.patch("deliveries.relaybook.dev", &PatchParams::default(), &now).await.expect("patched");
    checked("ok      CRDs of version").await;
}

/// No object of Relaybook has a finalizer, so an uninstall in any order never has to wait.
async fn an_uninstall_leaves_nothing_behind(world: &World) {
    assert!(world.deliveries().await.len() >= 2);
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    for crd in relaybook_api::crds() {
        api.delete(&crd.name_any(), &DeleteParams::default()).await.expect("deleted");
    }
    no_definitions(&api, ".relaybook.dev").await;
    // The CRDs are installed again while Relaybook runs. None of the old objects exists.
    for crd in relaybook_api::crds() {
        control_plane::install(&world.client, &crd).await;
    }
    assert_eq!(world.api::<Pipeline>().list(&ListParams::default()).await.expect("listed").items.len(), 0);
    assert_eq!(world.api::<Delivery>().list(&ListParams::default()).await.expect("listed").items.len(), 0);
}

/// A control plane with CRDs of an earlier version: without selectable fields, and without patterns of kinds and API versions. Each test has its
/// own namespaces there.
pub fn with_earlier_crds() -> &'static Path {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    turn::wait();
    &PLANE.get_or_init(|| ControlPlane::with(earlier()).expect("a control plane")).kubeconfig
}

/// Without selectable fields, an API server answers as one before Kubernetes 1.31, which cannot select custom resources by fields: it refuses
/// such a selector with the same message.
fn earlier() -> Vec<CustomResourceDefinition> {
    let mut all = relaybook_api::crds();
    let mut taken = all.iter_mut().flat_map(|crd| &mut crd.spec.versions).map(|version| version.selectable_fields.take());
    assert!(taken.by_ref().flatten().count() > 0, "there are fields to select by");
    let mut all = serde_json::to_value(all).expect("JSON");
    without_patterns(&mut all);
    serde_json::from_value(all).expect("definitions")
}

/// Removes the patterns of kinds and API versions from schemas.
fn without_patterns(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for name in ["apiVersion", "kind"] {
                fields.get_mut(name).and_then(Value::as_object_mut).map(|field| field.remove("pattern"));
            }
            fields.values_mut().for_each(without_patterns);
        }
        Value::Array(entries) => entries.iter_mut().for_each(without_patterns),
        _ => {}
    }
}

#[tokio::test]
async fn without_field_selectors_the_command_line_filters_by_itself() {
    let world = World::on(with_earlier_crds(), "installed-unselectable").await;
    let selected = world.api::<Delivery>().list(&ListParams::default().fields("status.outcome=Parked")).await;
    assert!(selected.is_err_and(|e| e.to_string().contains("field label not supported")), "it cannot select");

    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(400)]);
    world.deploy("web", "1").await;
    world.notification("hook", &receiver, json!({})).await;
    world.pipeline("shop", &["dev/web"]).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    for revision in ["2", "3"] {
        world.ship("web", revision).await;
        world.fence("shop", &["hook"]).await;
    }
    world
        .delivery("Deployed 3", |d| d.spec.notification == "hook" && d.status.as_ref().is_some_and(|s| s.outcome.is_some()))
        .await;
    for (outcome, revision) in [("parked", Some("2")), ("canceled", None), ("pending", None)] {
        let told = command(&world, &["audit", "-n", &world.ns, "-o", "json", "--outcome", outcome]).await;
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let rows = items(&told.stdout);
        let revisions: Vec<_> = rows.iter().map(|row| row["revision"].clone()).collect();
        assert_eq!(revisions, revision.map(Value::from).into_iter().collect::<Vec<_>>(), "{outcome}");
    }
    let marked = command(&world, &["redeliver", "-n", &world.ns, "--parked"]).await;
    assert!(marked.status.success(), "{}", String::from_utf8_lossy(&marked.stderr));
    receiver.wait("/hook/web", 3).await;
}

/// The group of a product with resources of the same kinds, such as this one under another name.
const ANOTHER: &str = "another.example";

#[tokio::test]
async fn resources_of_another_group_are_neither_seen_nor_changed() {
    let world = World::new("installed-beside").await;
    let receiver = Receiver::start();
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    for crd in relaybook_api::crds() {
        let text = serde_json::to_string(&crd).unwrap().replace(GROUP, ANOTHER);
        let mut other: CustomResourceDefinition = serde_json::from_str(&text).unwrap();
        (other.spec.names.short_names, other.spec.names.categories) = (None, None);
        put(&world, &other).await;
    }
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let mut theirs = Vec::new();
    for (kind, name) in [("Pipeline", "shop"), ("Notification", "hook")] {
        let gvk = GroupVersionKind::gvk(ANOTHER, "v1alpha1", kind);
        let other: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.ns, &ApiResource::from_gvk(&gvk));
        let spec = match kind {
            "Pipeline" => json!(world.get_pipeline(name).await.spec),
            _ => json!(world.get_notification(name).await.spec),
        };
        let object = json!({
            "apiVersion": gvk.api_version(), "kind": kind, "metadata": {"name": name},
            "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let created = eventually(&format!("{kind} {ANOTHER}"), async || {
            other.create(&PostParams::default(), &object).await.map_err(|e| e.to_string())
        })
        .await;
        theirs.push((other, created));
    }
    let _relaybook = Relaybook::start(&world).await;
    world.observed("shop").await;
    world.cursor("shop", "hook").await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    assert_eq!(receiver.to("/hook/web").len(), 1);
    for (other, created) in &theirs {
        assert_eq!(other.get(&created.name_any()).await.unwrap().resource_version(), created.resource_version());
    }
    for crd in relaybook_api::crds() {
        api.delete(&format!("{}.{ANOTHER}", crd.spec.names.plural), &DeleteParams::default()).await.expect("deleted");
    }
    no_definitions(&api, ANOTHER).await;
    world.ship("web", "3").await;
    world.fence("shop", &["hook"]).await;
    assert_eq!(receiver.to("/hook/web").len(), 2);
}
