//! Shards by label: two processes with an ID and one without, and pipelines whose label is changed under load. Nothing is lost, and nothing is
//! sent by two of them.

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::ListParams;
use relaybook_api::{Pipeline, PipelineSet};
use serde_json::{Value, json};

use crate::support::proxy::Call;
use crate::support::receiver::Gate;
use crate::support::relaybook::Options;
use crate::support::{Fault, Oracle, Proxy, Receiver, Relaybook, Reply, World, eventually};

const LABEL: &str = "fleet.cattle.io/shard-ref";
const APPS: [&str; 3] = ["a", "b", "c"];

/// Starts the process of a shard. An empty ID: the one for what belongs to no other shard.
async fn shard(world: &World, id: &'static str) -> Relaybook {
    let mut args = vec!["--shards".to_owned(), "eu,us".to_owned()];
    if !id.is_empty() {
        args.extend(["--shard-id".to_owned(), id.to_owned()]);
    }
    let pod = Some(if id.is_empty() { "common" } else { id });
    Relaybook::with(world, Options { pod, args, ..Options::of(world) }).await
}

async fn label(world: &World, pipeline: &str, shard: Option<&str>) {
    world.patch::<Pipeline>(pipeline, json!({"metadata": {"labels": {LABEL: shard}}})).await;
}

/// Waits until the status of a pipeline names this shard.
async fn handed_over(world: &World, pipeline: &str, shard: Option<&str>) {
    eventually(&format!("{pipeline} is handed over to {shard:?}"), async || {
        let dispatched = world.get_pipeline(pipeline).await.status.and_then(|status| status.dispatched);
        let holder = dispatched.ok_or("nothing is dispatched")?.shard;
        if holder.as_deref() == shard { Ok(()) } else { Err(format!("{holder:?}")) }
    })
    .await;
}

async fn ship(world: &World, tag: u32) {
    let tag = tag.to_string();
    join_all(APPS.map(|app| world.ship(app, &tag))).await;
    world.observed_at("shop", &tag, &APPS).await;
}

#[tokio::test]
async fn a_pipeline_whose_label_changes_under_load_loses_and_repeats_nothing() {
    let receiver = Receiver::start();
    let world = World::new("shards-moved").await;
    join_all(APPS.map(|app| world.deploy(app, "0"))).await;
    world.pipeline("shop", &APPS.map(|app| format!("dev/{app}")).each_ref().map(String::as_str)).await;
    // The test can take so long that retention would delete deliveries.
    world.notification("hook", &receiver, json!({"delivery": {"retain": {"perLane": 100}}})).await;
    let (common, eu, us) = tokio::join!(shard(&world, ""), shard(&world, "eu"), shard(&world, "us"));
    world.settled().await;
    let names: Vec<String> = {
        let leases = world.api::<Lease>().list(&ListParams::default()).await.unwrap().items;
        leases.iter().map(kube::ResourceExt::name_any).filter(|name| name.starts_with("relaybook-dispatch")).collect()
    };
    assert_eq!(names, ["relaybook-dispatch", "relaybook-dispatch-eu", "relaybook-dispatch-us"]);
    let mut tag = 0;
    for moved in [Some("eu"), Some("us"), None, Some("us"), Some("nobody"), Some("eu")] {
        // The label changes while changes are made.
        label(&world, "shop", moved).await;
        for _ in 0..2 {
            tag += 1;
            ship(&world, tag).await;
        }
        let holder = moved.filter(|id| *id != "nobody");
        handed_over(&world, "shop", holder).await;
        let before = join_all([&common, &eu, &us].map(Relaybook::attempts)).await;
        tag += 1;
        ship(&world, tag).await;
        join_all(APPS.map(|app| format!("/hook/{app}")).iter().map(|p| receiver.wait(p, tag as usize))).await;
        let after = join_all([&common, &eu, &us].map(Relaybook::attempts)).await;
        let index = [None, Some("eu"), Some("us")].iter().position(|id| *id == holder).unwrap();
        for (number, (before, after)) in before.into_iter().zip(after).enumerate() {
            assert!(number == index || after - before <= 6.0, "{number} has sent {} after {moved:?}", after - before);
        }
    }
    world.fence("shop", &["hook"]).await;
    let steps: Vec<_> = (1..=tag).map(|tag| format!("Deployed {tag}")).collect();
    let steps: Vec<_> = steps.iter().map(String::as_str).collect();
    let oracle = Oracle::new(&world, &receiver);
    APPS.iter().fold(oracle, |o, app| o.lane(&format!("shop/hook/dev/{app}"), &steps)).check().await;
}

#[tokio::test]
async fn a_hand_over_whose_write_fails_is_tried_again() {
    let receiver = Receiver::start();
    let world = World::new("shards-refused").await;
    let proxy = Proxy::start(&world.kubeconfig, "shards-refused").await;
    world.deploy("web", "0").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let args = vec!["--shards".to_owned(), "eu,us".to_owned()];
    let kubeconfig = Some(proxy.kubeconfig.clone());
    let options = Options { pod: Some("common"), args, kubeconfig, ..Options::of(&world) };
    let (_common, _eu) = tokio::join!(Relaybook::with(&world, options), shard(&world, "eu"));
    world.settled().await;
    let refused = proxy.rule(Call::is_cursors, Fault::Refuse(500));
    label(&world, "shop", Some("eu")).await;
    proxy.hit(refused, 2).await;
    proxy.remove(refused);
    handed_over(&world, "shop", Some("eu")).await;
    world.ship("web", "1").await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 1"]).check().await;
}

#[tokio::test]
async fn a_pipeline_is_handed_over_when_its_request_has_ended() {
    let receiver = Receiver::start();
    let world = World::new("shards-busy").await;
    world.deploy("web", "0").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({"endpoint": {"timeout": "60s"}})).await;
    let (_common, eu) = tokio::join!(shard(&world, ""), shard(&world, "eu"));
    world.settled().await;
    let gate = Gate::new();
    receiver.script("/hook/web", [Reply::status(200).behind(&gate)]);
    world.ship("web", "1").await;
    receiver.wait("/hook/web", 1).await;
    label(&world, "shop", Some("eu")).await;
    world.ship("web", "2").await;
    world.observed_at("shop", "2", &["web"]).await;
    // The other shard waits for as long as the request lasts.
    let dispatched = world.get_pipeline("shop").await.status.unwrap().dispatched.unwrap();
    assert_eq!((dispatched.shard, eu.attempts().await), (None, 0.0));
    gate.open();
    handed_over(&world, "shop", Some("eu")).await;
    receiver.wait("/hook/web", 2).await;
    world.fence("shop", &["hook"]).await;
    assert!(eu.attempts().await >= 1.0);
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 1", "Deployed 2"]).check().await;
}

#[tokio::test]
async fn a_set_gives_its_pipelines_the_shard_of_their_source() {
    let receiver = Receiver::start();
    let world = World::new("shards-set").await;
    for (app, labels) in [("web", json!({LABEL: "eu"})), ("api", json!({}))] {
        world.deploy(app, "0").await;
        world.patch::<k8s_openapi::api::apps::v1::Deployment>(app, json!({"metadata": {"labels": labels}})).await;
    }
    let spec = json!({
        "generators": [{"objects": {"apiVersion": "apps/v1", "kind": "Deployment", "namespaces": [world.ns]}}],
        "template": {"metadata": {"name": "p-{{name}}"}, "spec": template()},
    });
    world.create::<PipelineSet>(json!({"metadata": {"name": "apps"}, "spec": spec})).await;
    world.notification("hook", &receiver, json!({})).await;
    let (common, eu) = tokio::join!(shard(&world, ""), shard(&world, "eu"));
    for (name, expected) in [("p-web", Some("eu")), ("p-api", None)] {
        let pipeline = eventually(&format!("{name} is made"), async || {
            world.api::<Pipeline>().get_opt(name).await.unwrap().ok_or_else(|| "not yet".to_owned())
        })
        .await;
        assert_eq!(pipeline.labels().get(LABEL).map(String::as_str), expected);
        world.cursor(name, "hook").await;
        handed_over(&world, name, expected).await;
    }
    let before = join_all([&common, &eu].map(Relaybook::attempts)).await;
    for app in ["web", "api"] {
        world.ship(app, "1").await;
        receiver.wait(&format!("/hook/{app}"), 1).await;
    }
    eventually("each shard has counted its attempt", async || {
        let after = join_all([&common, &eu].map(Relaybook::attempts)).await;
        let is_counted = after.iter().zip(&before).all(|(after, before)| after - before >= 1.0);
        if is_counted { Ok(()) } else { Err(format!("{before:?}, {after:?}")) }
    })
    .await;
}

fn template() -> Value {
    json!({
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "{{name}}"},
        "environments": [{"name": "dev", "targets": [{"namespace": "{{namespace}}"}]}],
    })
}
