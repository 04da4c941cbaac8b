//! Selections of many objects, of none, of too many, and of other kinds.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::{Pipeline, PipelineStatus};
use serde_json::{Value, json};

use super::hub::{Hub, environment};
use super::{deploy, selecting, targets};
use crate::support::world::all_triggers;
use crate::support::{Oracle, Receiver, Relaybook, World, control_plane, eventually};

/// Number of clusters, and of bundles on each.
const EXISTING: (usize, usize) = (8, 2);

#[tokio::test]
async fn objects_that_exist_when_relaybook_starts_are_never_reported() {
    let clusters: Vec<String> = (0..EXISTING.0).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = clusters.iter().map(String::as_str).collect();
    let mut hub = Hub::new("gen-fleet-first", &names).await;
    for bundle in 0..EXISTING.1 {
        hub.bundle(&format!("b{bundle}"), "c1").await;
    }
    let join = async |cluster: &str| {
        hub.join(cluster, json!({})).await;
        for bundle in 0..EXISTING.1 {
            hub.run(&format!("b{bundle}"), cluster, "c1").await;
        }
    };
    futures::future::join_all(names.iter().map(|cluster| join(cluster))).await;
    hub.pipeline(json!([environment("all", json!({}), json!({}))])).await;
    hub.start(all_triggers()).await;
    let all = EXISTING.0 * EXISTING.1;
    let ready = format!("{} of {} targets found, {} ready", all + 1, all + 1, all + 1);
    hub.world.pipeline_condition("shop", "Ready", |c| c.message == ready).await;
    hub.world.fence("shop", &["hook"]).await;
    hub.relaybook().restart().await;
    hub.world.fence("shop", &["hook"]).await;
    // What the fence causes may still be written.
    eventually("nothing is written while nothing happens", async || {
        let before = hub.relaybook().writes().await;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let more = hub.relaybook().writes().await - before;
        if more < 0.5 { Ok(()) } else { Err(format!("{more} writes")) }
    })
    .await;
    // The status is lost.
    eventually("the status is lost", async || {
        let mut pipeline = hub.world.get_pipeline("shop").await;
        pipeline.status = Some(PipelineStatus::default());
        let replaced = hub.world.api::<Pipeline>().replace_status("shop", &PostParams::default(), &pipeline).await;
        replaced.map(drop).map_err(|e| e.to_string())
    })
    .await;
    hub.world.pipeline_condition("shop", "Ready", |c| c.message == ready).await;
    hub.world.cursor("shop", "hook").await;
    hub.world.fence("shop", &["hook"]).await;
    Oracle::new(&hub.world, &hub.receiver).check().await;
}

#[tokio::test]
async fn an_empty_selection_is_ready_and_its_environment_undecided() {
    let world = World::new("gen-nothing").await;
    let receiver = Receiver::start();
    selecting(&world, &["dev"]).await;
    let triggers = json!([{"type": "Added"}, {"type": "Deployed"}, {"type": "EnvironmentReady"}]);
    world.notification("hook", &receiver, json!({"triggers": triggers, "endpoint": {"url": receiver.url("/{{id}}")}})).await;
    let _relaybook = Relaybook::start(&world).await;
    let ready = world.pipeline_condition("shop", "Ready", |c| c.status == ConditionStatus::True).await;
    assert_eq!(ready.message, "1 of 1 targets found, 1 ready; dev/targetsFrom[0] selects nothing");
    world.cursor("shop", "hook").await;
    let dev = async || world.get_pipeline("shop").await.status.unwrap().environments[0].clone();
    assert_eq!(dev().await.settled, None, "an environment without targets is undecided");
    deploy(&world, "web", "dev", "1").await;
    eventually("dev is decided", async || dev().await.settled.map(drop).ok_or_else(String::new)).await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    let all = world.deliveries().await;
    let of_dev = all.iter().filter(|d| d.spec.subject.environment == "dev");
    let told: BTreeSet<String> = of_dev.map(|d| format!("{} {}", d.spec.type_.as_str(), d.spec.to.revision)).collect();
    assert!(told.contains("Added 1") && told.contains("Deployed 2") && told.contains("EnvironmentReady 2"), "{told:?}");
    eventually("one Event says that nothing was selected", async || {
        let all = world.api::<Event>().list(&ListParams::default()).await.expect("listed");
        let empty = all.iter().filter(|event| event.reason.as_deref() == Some("NothingSelected"));
        let notes: Vec<_> = empty.map(|event| event.note.as_deref().unwrap_or_default()).collect();
        if notes == ["dev/targetsFrom[0] selects nothing"] { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await;
}

#[tokio::test]
async fn targets_beyond_the_limit_wait_and_those_that_are_followed_stay() {
    let world = World::new("gen-many").await;
    let receiver = Receiver::start();
    let create = async |n: usize| {
        world.create::<LimitRange>(json!({"metadata": {"name": format!("a{n:03}"), "labels": {"env": "dev"}}})).await;
    };
    futures::future::join_all((0..256).map(create)).await;
    let objects = json!({"apiVersion": "v1", "kind": "LimitRange", "selector": {"matchLabels": {"env": "dev"}}});
    let spec = json!({
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "fence"},
        "environments": [{"name": "dev", "targetsFrom": [{"objects": objects}]}, {"name": "fence", "targets": [{"namespace": world.ns}]}],
    });
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    let triggers =
        json!({"triggers": [{"type": "Added"}, {"type": "Removed"}, {"type": "Deployed", "environments": ["fence"]}]});
    world.notification("hook", &receiver, triggers).await;
    let _relaybook = Relaybook::start(&world).await;
    let cut = world.pipeline_condition("shop", "Ready", |c| c.reason == "TooManyTargets").await;
    assert_eq!(
        cut.message,
        "1 objects are selected beyond the maximum of 256 targets, and 256 targets are followed; select fewer, or divide them \
         among several pipelines"
    );
    world.cursor("shop", "hook").await;
    // Those that are followed stay followed, although the name of the new one is the first.
    world.create::<LimitRange>(json!({"metadata": {"name": "a", "labels": {"env": "dev"}}})).await;
    world.pipeline_condition("shop", "Ready", |c| c.message.starts_with("2 objects")).await;
    world.delete::<LimitRange>("a").await;
    world.delete::<LimitRange>("a000").await;
    world.pipeline_condition("shop", "Ready", |c| c.status == ConditionStatus::True).await;
    world.fence("shop", &["hook"]).await;
    let status = world.get_pipeline("shop").await.status.unwrap();
    assert_eq!(status.environments[0].targets.len(), 255);
    let bytes = serde_json::to_string(&status).unwrap().len();
    assert!(bytes <= 256 * 1024, "{bytes}");
    Oracle::new(&world, &receiver).lane("shop/hook/dev/a000", &["Removed"]).check().await;
}

/// Number of Applications of the set.
const APPLICATIONS: usize = 5;

/// The API of Applications of Argo CD.
fn applications(world: &World) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Application");
    Api::namespaced_with(world.client.clone(), &world.ns, &ApiResource::from_gvk(&gvk))
}

/// Writes an Application that its `ApplicationSet` has generated for a cluster, and its status.
async fn application(world: &World, name: &str, set: &str, cluster: &str, revision: &str) {
    let owner = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": set, "uid": "0b8a", "controller": true});
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {"project": "default", "source": {"repoURL": "https://github.com/acme/shop"}, "destination": {"name": cluster}},
    });
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    eventually(&format!("{name} is created"), async || {
        applications(world).create(&PostParams::default(), &object).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
    synced(world, name, revision).await;
}

async fn synced(world: &World, name: &str, revision: &str) {
    let operation = json!({"phase": "Succeeded", "finishedAt": "2026-11-26T05:00:00Z", "syncResult": {"revision": revision},
        "operation": {"sync": {"revision": revision}}});
    let status = json!({
        "sync": {"status": "Synced", "revision": revision}, "health": {"status": "Healthy"}, "operationState": operation,
        "reconciledAt": "2026-11-26T05:00:00Z",
    });
    let patch = Patch::Merge(json!({"status": status}));
    applications(world).patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test]
async fn applications_of_an_application_set_are_followed_by_their_owner() {
    let world = World::new("gen-appset").await;
    let crd = control_plane::foreign("argoproj.io", "v1alpha1", "Application", "applications");
    control_plane::install(&world.client, &crd).await;
    let receiver = Receiver::start();
    let of_set = async |n: usize| application(&world, &format!("shop-{n}"), "shop", &format!("eu-{n}"), "c1").await;
    futures::future::join_all((0..APPLICATIONS).map(of_set)).await;
    application(&world, "other", "other", "eu-9", "c1").await;
    let objects = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "ownedBy": {"kind": "ApplicationSet", "name": "shop"},
        "cluster": ".spec.destination.name",
    });
    let spec = json!({
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "fence"},
        "environments": [{"name": "all", "targetsFrom": [{"objects": objects}]}, {"name": "fence", "targets": [{"namespace": world.ns}]}],
    });
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    world.notification("hook", &receiver, all_triggers()).await;
    let mut relaybook = Relaybook::start(&world).await;
    let follows = async |all: &mut dyn Iterator<Item = usize>| {
        let mut paths: Vec<String> = all.map(|n| format!("all/eu-{n}/gen-appset/shop-{n}")).collect();
        paths.sort();
        targets(&world, &paths.iter().map(String::as_str).collect::<Vec<_>>()).await;
    };
    follows(&mut (0..APPLICATIONS)).await;
    world.ready("hook").await;
    world.cursor("shop", "hook").await;
    of_set(APPLICATIONS).await;
    receiver.wait(&format!("/hook/shop-{APPLICATIONS}"), 2).await;
    synced(&world, "shop-2", "c2").await;
    receiver.wait("/hook/shop-2", 1).await;
    let delete = async |n: usize| {
        applications(&world).delete(&format!("shop-{n}"), &kube::api::DeleteParams::default()).await.expect("deleted");
    };
    delete(1).await;
    follows(&mut (0..=APPLICATIONS).filter(|n| *n != 1)).await;
    // The set is deleted, and with it all of its Applications.
    relaybook.stop().await;
    delete(0).await;
    delete(2).await;
    relaybook.start_again().await;
    for n in 3..=APPLICATIONS {
        delete(n).await;
    }
    follows(&mut std::iter::empty()).await;
    world.fence("shop", &["hook"]).await;
    let oracle = Oracle::new(&world, &receiver).lane("shop/hook/all/shop-2", &["Deployed c2", "Removed"]);
    let others = (0..APPLICATIONS).filter(|n| *n != 2);
    let oracle = others.fold(oracle, |o, n| o.lane(&format!("shop/hook/all/shop-{n}"), &["Removed"]));
    let added: &[&str] = &["Added", "Progressing", "Deployed c1", "Removed"];
    oracle.lane(&format!("shop/hook/all/shop-{APPLICATIONS}"), added).check().await;
}

#[tokio::test]
async fn a_spec_that_selects_nothing_valid_names_the_field_and_the_remedy() {
    let world = World::new("gen-invalid").await;
    let refused = async |entry: Value| {
        let spec = json!({"environments": [{"name": "dev", "targetsFrom": [entry]}]});
        let object =
            json!({"apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "shop"}, "spec": spec});
        let object: Pipeline = serde_json::from_value(object).expect("a pipeline");
        let created = world.api::<Pipeline>().create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await;
        created.err().map(|error| error.to_string()).unwrap_or_default()
    };
    for (entry, words) in [
        (json!({}), "set exactly one of fleet and objects"),
        (json!({"fleet": {}}), "set exactly one of gitRepo, helmOp and bundle"),
        (json!({"fleet": {"gitRepo": "a", "bundle": "b"}}), "set exactly one of gitRepo, helmOp and bundle"),
        (json!({"fleet": {"gitRepo": "a", "of": "Bundles", "clusters": ["*"]}}), "a Bundle is on all of its clusters"),
        (json!({"objects": {"apiVersion": "v1", "kind": "Pod"}}), "set selector, ownedBy or namespaces"),
        (json!({"fleet": {"gitRepo": "a", "offlineAfter": "soon"}}), "offlineAfter"),
    ] {
        let told = refused(entry.clone()).await;
        assert!(told.contains(words), "{entry}: {told}");
    }
    let receiver = Receiver::start();
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    let objects = |over: Value| {
        let mut objects = json!({"apiVersion": "v1", "kind": "Pod", "selector": {}});
        json_patch::merge(&mut objects, &over);
        json!({"environments": [{"name": "dev", "targetsFrom": [{"objects": objects}]}]})
    };
    let spec = objects(json!({}));
    world.create::<Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    let field = "targetsFrom[0] of environment dev.objects";
    for (over, reason, words) in [
        (
            json!({"kind": "Secret"}),
            "ForbiddenKind",
            format!(
                "{field}: a Secret of v1 cannot be an application object, because such objects contain credentials, permissions or \
                 internal state; set another kind"
            ),
        ),
        (
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            "InvalidSelector",
            format!(
                "{field}.selector: the requirement for \"a\" is invalid; only In and NotIn have values, and each of them needs at least one"
            ),
        ),
        (json!({"cluster": ".spec..x"}), "InvalidPath", format!("{field}.cluster must name each step: '..' is not allowed")),
        (
            json!({"kind": "Pods"}),
            "KindNotFound",
            "dev/targetsFrom[0]: cluster in-cluster has no kind Pods in v1; did you mean kind Pod?".to_owned(),
        ),
    ] {
        world.patch::<Pipeline>("shop", json!({"spec": objects(over)})).await;
        let told = world.pipeline_condition("shop", "Ready", |c| c.reason == reason).await;
        assert_eq!(told.message, words);
        world.patch::<Pipeline>("shop", json!({"spec": {"environments": spec["environments"]}})).await;
        world.pipeline_condition("shop", "Ready", |c| c.status == ConditionStatus::True).await;
    }
}
