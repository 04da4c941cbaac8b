//! What changes contain of the application object (`spec.record`): who gets a message, and whether somebody gets one.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use relaybook_api::pipeline::Record;
use relaybook_api::{Delivery, Outcome, Pipeline, PipelineSet};
use serde_json::{Value, json};

use crate::support::receiver::Request;
use crate::support::world::apps::Kind;
use crate::support::world::pipeline;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World, eventually};

const CHANNEL: &str = "notify.relaybook.dev/slack";
/// A value that no pipeline lists.
const PRIVATE: &str = "s3cr3t";

/// Creates the Deployment `web`, and the pipeline `shop` without a fence, which records some of its data. The notification `hook` sends all
/// changes, and `subscribed` those of applications with the annotation.
async fn stage(ns: &str, channel: &str) -> (World, Receiver, Relaybook) {
    let (world, receiver) = (World::new(ns).await, Receiver::start());
    world.deploy("web", "1").await;
    name_channel(&world, json!(channel)).await;
    let mut shop = pipeline(&world.ns, "shop", Kind::Deployment, &["dev/web"]);
    shop["spec"]["environments"].as_array_mut().unwrap().retain(|environment| environment["name"] != "fence");
    shop["spec"]["record"] = json!({"labels": ["team"], "annotations": [CHANNEL, "none"], "fields": [".spec.replicas"]});
    world.create::<Pipeline>(shop).await;
    let channel = format!("{{{{default target.app.annotations.[{CHANNEL}] \"#deploys\"}}}}");
    let headers =
        json!({"endpoint": {"headers": {"x-channel": channel, "x-team": "{{default target.app.labels.team \"-\"}}"}}});
    world.notification("hook", &receiver, headers).await;
    let when = format!("\"{CHANNEL}\" in target.app.annotations");
    let triggers: Vec<_> = ["Deployed", "Removed"].map(|type_| json!({"type": type_, "when": when})).into();
    world.notification("subscribed", &receiver, json!({"triggers": triggers})).await;
    let relaybook = Relaybook::start(&world).await;
    world.settled().await;
    (world, receiver, relaybook)
}

/// Sets or removes the annotation. The controller of the Deployment notices the new generation.
async fn name_channel(world: &World, channel: Value) {
    let metadata =
        json!({"annotations": {(CHANNEL): channel, "other": PRIVATE}, "labels": {"team": "red", "other": PRIVATE}});
    world.patch::<Deployment>("web", json!({"metadata": metadata})).await;
    world.finish("web").await;
}

fn channels(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(|request| request.header("x-channel")).collect()
}

#[tokio::test]
async fn a_message_goes_where_the_application_says_and_a_new_annotation_alone_is_no_change() {
    let (world, receiver, _relaybook) = stage("app-data", "#red").await;
    world.ship("web", "2").await;
    receiver.wait("/hook/web", 1).await;
    name_channel(&world, json!("#blue")).await;
    world.ship("web", "3").await;
    receiver.wait("/hook/web", 2).await;
    name_channel(&world, Value::Null).await;
    world.ship("web", "4").await;
    receiver.wait("/hook/web", 3).await;
    name_channel(&world, json!("#green")).await;
    world.delete::<Deployment>("web").await;
    let all = receiver.wait("/hook/web", 4).await;
    assert_eq!(channels(&all), ["#red", "#blue", "#deploys", "#green"]);
    assert!(all.iter().all(|request| request.header("x-team") == "red"));

    let oracle = Oracle::new(&world, &receiver);
    let oracle = oracle.lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3", "Deployed 4", "Removed"]);
    oracle.lane("shop/subscribed/dev/web", &["Deployed 2", "Deployed 3", "Removed"]).check().await;
    let deliveries = world.deliveries().await;
    let first = deliveries.iter().find(|d| d.spec.to.revision == "2" && d.spec.notification == "hook").unwrap();
    let recorded = json!({
        "labels": {"team": "red"}, "annotations": {(CHANNEL): "#red"}, "fields": {".spec.replicas": "1"},
    });
    assert_eq!(serde_json::to_value(&first.spec.to.recorded).unwrap(), recorded);
    let stored = serde_json::to_string(&(deliveries, world.get_pipeline("shop").await)).unwrap();
    assert!(!stored.contains(PRIVATE), "only listed names leave the object");
}

#[tokio::test]
async fn after_a_crash_and_again_a_delivery_has_the_values_of_its_change() {
    let (world, receiver, mut relaybook) = stage("app-data-again", "#red").await;
    receiver.always("/hook/web", Reply::status(503));
    world.ship("web", "2").await;
    receiver.wait("/hook/web", 1).await;
    relaybook.kill9();
    name_channel(&world, json!("#blue")).await;
    receiver.always("/hook/web", Reply::status(200));
    relaybook.start_again().await;
    let is_sent = |d: &Delivery| {
        let outcome = d.status.as_ref().and_then(|status| status.outcome);
        d.spec.notification == "hook" && outcome == Some(Outcome::Delivered)
    };
    let sent = world.delivery("Deployed 2", is_sent).await;
    let requests = receiver.to("/hook/web").len();
    let again = json!({"metadata": {"annotations": {"relaybook.dev/redeliver": "1"}}});
    world.patch::<Delivery>(&sent.name_any(), again).await;
    let all = receiver.wait("/hook/web", requests + 1).await;
    assert!(channels(&all).iter().all(|channel| *channel == "#red"), "{:?}", channels(&all));
    assert!(all.iter().all(|request| request.id() == all[0].id() && request.body == all[0].body));
}

#[tokio::test]
async fn the_pipelines_of_a_set_record_what_its_template_lists() {
    let world = World::new("app-data-set").await;
    world.deploy_with("web", "1", json!({"env": "dev"})).await;
    let selector = json!({"matchLabels": {"env": "dev"}});
    let record =
        json!({"annotations": ["{{default labels.env \"none\"}}.acme.example/slack"], "fields": [".spec.replicas"]});
    let spec = json!({
        "generators": [{"objects": {"apiVersion": "apps/v1", "kind": "Deployment", "selector": selector}}],
        "template": {
            "metadata": {"name": "{{name}}"},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "{{name}}"},
                "environments": [{"name": "all", "targets": [{"namespace": "{{namespace}}"}]}],
                "record": record,
            },
        },
    });
    world.create::<PipelineSet>(json!({"metadata": {"name": "apps"}, "spec": spec})).await;
    let _relaybook = Relaybook::start(&world).await;
    let made = eventually("the pipeline is made", async || {
        let found = world.api::<Pipeline>().get_opt("web").await.map_err(|error| error.to_string())?;
        found.ok_or_else(|| "none".to_owned())
    })
    .await;
    let want = Record {
        annotations: vec!["dev.acme.example/slack".to_owned()],
        fields: vec![".spec.replicas".to_owned()],
        ..Record::default()
    };
    assert_eq!(made.spec.record, Some(want));
    world.observed("web").await;
}
