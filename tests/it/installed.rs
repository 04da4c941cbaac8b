//! Tests the CRDs: with older ones the controllers do not run, with those of this version they start, and after the CRDs are deleted
//! nothing is left. With CRDs without selectable fields, the command line filters by itself.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use pennant::api::{Delivery, Pipeline};
use serde_json::{Value, json};

use crate::page::person::OwnPage;
use crate::support::control_plane::ControlPlane;
use crate::support::pennant::{Options, command};
use crate::support::{Pennant, Receiver, Reply, World, eventually};

fn definition(kind: &str) -> CustomResourceDefinition {
    pennant::api::crds().into_iter().find(|crd| crd.spec.names.kind == kind).expect("one of ours")
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
    let mut looks = 0;
    eventually("the CRDs are gone with all their objects", async || {
        looks += 1;
        let all = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let names: Vec<_> = all.iter().map(ResourceExt::name_any).filter(|name| name.ends_with(end)).collect();
        // A second or so after the one before, because a deletion fails if the CRD changes meanwhile.
        for name in names.iter().filter(|_| looks % 10 == 0) {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"looks": looks.to_string()}}}));
            // It may be gone by now.
            let _ = api.patch_metadata(name, &PatchParams::default(), &patch).await;
        }
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

#[tokio::test]
async fn older_crds_stop_the_controllers_until_they_are_updated() {
    let plane = ControlPlane::start().expect("a control plane");
    let world = World::on(&plane.kubeconfig, "installed-older").await;
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    // A field manager can only remove fields that it owns. So the manager that changes the CRD also creates it.
    api.delete("pipelines.pennant.dev", &DeleteParams::default()).await.expect("deleted");
    no_definitions(&api, "pipelines.pennant.dev").await;
    let output = command(&world, &["explain", "shop", "-n", "installed-older"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    let remedy = "; Pennant is not installed in this cluster: install its chart, or apply the output of `pennant crds`\n";
    assert!(said.ends_with(remedy) && output.status.code() == Some(1), "{said}");
    let page = OwnPage::start(&world.kubeconfig, &["--controller-namespace", &world.ns]).await;
    let seen = page.get("/pipelines/installed-older/shop").await.body;
    assert!(seen.contains("Pennant is not installed in this cluster: install its chart"), "{seen}");
    put(&world, &older("Pipeline", "settled")).await;
    let mut pennant = Pennant::begin(&world, Options::of(&world)).await;
    pennant.wait_listening().await;
    eventually("the log names the missing field", async || {
        let log = pennant.log();
        if log.contains("missing: Pipeline.status.settled. Install them") { Ok(()) } else { Err(log) }
    })
    .await;
    let waits = pennant.ready().await.expect_err("it is not ready");
    assert!(waits.contains("definitions"), "{waits}");
    // Banners are kept for half a minute.
    let page = OwnPage::start(&world.kubeconfig, &["--controller-namespace", &world.ns]).await;
    let seen = page.get("/").await.body;
    let outdated = "missing: Pipeline.status.settled. Install them";
    assert!(
        seen.contains("Controllers of this version do not run: the installed CRDs") && seen.contains(outdated),
        "{seen}"
    );
    let command = "<code>pennant crds | kubectl apply --server-side --force-conflicts -f -</code>";
    assert!(seen.contains(command), "{seen}");
    // The metrics show that there is no leader, so that an alert can fire.
    for lease in ["pennant-pipeline", "pennant-dispatch", "pennant-promote"] {
        let series = format!("pennant_lease_held{{lease=\"{lease}\"}}");
        assert_eq!(pennant.metrics().await.get(&series), Some(&0.0), "{series}");
    }
    let leases = world.api::<Lease>().list(&ListParams::default()).await.expect("listed").items;
    assert!(leases.is_empty(), "{leases:?}");

    put(&world, &definition("Pipeline")).await;
    pennant.wait_ready().await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.notification("hook", &receiver, json!({})).await;
    world.pipeline("shop", &["dev/web"]).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    assert_eq!(receiver.to("/hook/web").len(), 1);

    // While the CRDs are unchanged, a repeated check costs almost nothing: the API server answers 304.
    let ask = || http::Request::get("/openapi/v3/apis/pennant.dev/v1alpha1");
    let body = kube::client::Body::empty;
    let first = world.client.send(ask().body(body()).unwrap()).await.expect("answered");
    let mark = first.headers()[http::header::ETAG].clone();
    let again = ask().header(http::header::IF_NONE_MATCH, mark).body(body()).unwrap();
    assert_eq!(world.client.send(again).await.expect("answered").status(), http::StatusCode::NOT_MODIFIED);

    // A rollback installs older CRDs while Pennant runs.
    put(&world, &older("Pipeline", "settled")).await;
    let status = pennant.ended().await;
    assert!(!status.success(), "{status}");
    let log = pennant.log();
    assert!(log.contains("waits at its next start") && log.contains("Pipeline.status.settled"), "{log}");
}

#[tokio::test]
async fn a_status_subresource_of_deliveries_does_not_fit() {
    let mut all = pennant::api::crds();
    let delivery = all.iter_mut().find(|crd| crd.spec.names.kind == "Delivery").expect("one of ours");
    delivery.spec.versions[0].subresources = serde_json::from_value(json!({"status": {}})).expect("subresources");
    let plane = ControlPlane::with(all).expect("a control plane");
    let world = World::on(&plane.kubeconfig, "installed-subresource").await;
    let checked = async |words: &str| {
        eventually("the check of the CRDs", async || {
            let output = command(&world, &["check", "--namespace", &world.ns]).await;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if said.contains(words) { Ok(()) } else { Err(said) }
        })
        .await;
    };
    checked("missing: Delivery.status in the object itself (it is still a subresource). Install them").await;
    // A merge patch replaces the list of versions, and so removes the subresource.
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let now = Patch::Merge(definition("Delivery"));
    api.patch("deliveries.pennant.dev", &PatchParams::default(), &now).await.expect("patched");
    checked("ok      CRDs of version").await;
}

/// No object of Pennant has a finalizer, so an uninstall in any order never has to wait.
#[tokio::test]
async fn an_uninstall_leaves_nothing_behind() {
    let plane = ControlPlane::start().expect("a control plane");
    let world = World::on(&plane.kubeconfig, "installed-removed").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.notification("hook", &receiver, json!({})).await;
    world.pipeline("shop", &["dev/web"]).await;
    let mut pennant = Pennant::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    assert!(world.deliveries().await.len() >= 2);

    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    for crd in pennant::api::crds() {
        api.delete(&crd.name_any(), &DeleteParams::default()).await.expect("deleted");
    }
    no_definitions(&api, ".pennant.dev").await;
    // The CRDs are installed again while Pennant runs. None of the old objects exists.
    for crd in pennant::api::crds() {
        crate::support::control_plane::install(&world.client, &crd).await;
    }
    assert_eq!(world.api::<Pipeline>().list(&ListParams::default()).await.expect("listed").items.len(), 0);
    assert_eq!(world.api::<Delivery>().list(&ListParams::default()).await.expect("listed").items.len(), 0);
    pennant.stop().await;
}

/// Returns CRDs without selectable fields. With them, an API server answers as one before Kubernetes 1.31, which cannot select custom
/// resources by fields: it refuses such a selector with the same message.
fn without_selectable_fields() -> Vec<CustomResourceDefinition> {
    let mut all = pennant::api::crds();
    let mut taken = all.iter_mut().flat_map(|crd| &mut crd.spec.versions).map(|version| version.selectable_fields.take());
    assert!(taken.by_ref().flatten().count() > 0, "there are fields to select by");
    all
}

#[tokio::test]
async fn without_field_selectors_the_command_line_filters_by_itself() {
    let plane = ControlPlane::with(without_selectable_fields()).expect("a control plane");
    let world = World::on(&plane.kubeconfig, "installed-unselectable").await;
    let selected = world.api::<Delivery>().list(&ListParams::default().fields("status.outcome=Parked")).await;
    assert!(selected.is_err_and(|e| e.to_string().contains("field label not supported")), "it cannot select");

    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(400)]);
    world.deploy("web", "1").await;
    world.notification("hook", &receiver, json!({})).await;
    world.pipeline("shop", &["dev/web"]).await;
    let _pennant = Pennant::start(&world).await;
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
        let rows: Vec<Value> = serde_json::from_slice(&told.stdout).expect("an array");
        let revisions: Vec<_> = rows.iter().map(|row| row["revision"].clone()).collect();
        assert_eq!(revisions, revision.map(Value::from).into_iter().collect::<Vec<_>>(), "{outcome}");
    }
    let marked = command(&world, &["redeliver", "-n", &world.ns, "--parked"]).await;
    assert!(marked.status.success(), "{}", String::from_utf8_lossy(&marked.stderr));
    receiver.wait("/hook/web", 3).await;
}
