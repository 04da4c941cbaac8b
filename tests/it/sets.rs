//! `PipelineSets`: one pipeline for each source, which comes and goes with it.

mod fleet;
mod followed;
mod kills;
mod people;

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::ListParams;
use relaybook_api::conditions::{ConditionStatus, READY, get};
use relaybook_api::{Pipeline, PipelineSet};
use serde_json::{Value, json};

use crate::support::receiver::Reply;
use crate::support::world::all_triggers;
use crate::support::{Receiver, Relaybook, World, eventually};

/// Returns the set `apps` of pipelines for the Deployments with a label `env`.
fn of_deployments(over: &Value) -> Value {
    let objects = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "selector": {"matchExpressions": [{"key": "env", "operator": "Exists"}]},
    });
    let mut spec = json!({
        "generators": [{"objects": objects}],
        "template": {
            "metadata": {"name": "{{name}}-app", "labels": {"env": "{{default labels.env \"\"}}"}},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "{{name}}"},
                "environments": [{"name": "all", "targets": [{"namespace": "{{namespace}}"}]}],
            },
        },
    });
    json_patch::merge(&mut spec, over);
    json!({"metadata": {"name": "apps"}, "spec": spec})
}

/// Waits until the set `apps` has this status of `Ready`, this reason, these words, and this number of pipelines.
async fn ready(world: &World, status: ConditionStatus, (reason, words): (&str, &str), pipelines: u32) -> String {
    eventually(&format!("{reason}: {words} with {pipelines} pipelines"), async || {
        let set = world.api::<PipelineSet>().get("apps").await.map_err(|error| error.to_string())?;
        let of = set.status.unwrap_or_default();
        let condition = get(&of.conditions, READY).cloned();
        match condition {
            Some(condition)
                if (condition.status, condition.reason.as_str(), of.pipelines) == (status, reason, pipelines)
                    && condition.message.contains(words) =>
            {
                Ok(condition.message)
            }
            _ => Err(format!("{of:?}")),
        }
    })
    .await
}

async fn made(world: &World, pipelines: u32) {
    ready(world, ConditionStatus::True, ("Made", ""), pipelines).await;
}

/// Returns the names of all pipelines.
async fn names(world: &World) -> Vec<String> {
    world.api::<Pipeline>().list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
}

async fn exists(world: &World, name: &str) {
    eventually(&format!("{name} exists"), async || match world.api::<Pipeline>().get_opt(name).await {
        Ok(Some(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    world.observed(name).await;
}

async fn gone(world: &World, name: &str) {
    eventually(&format!("{name} is gone"), async || match world.api::<Pipeline>().get_opt(name).await {
        Ok(None) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test]
async fn each_source_has_a_pipeline_and_a_new_one_is_reported() {
    let world = World::new("sets-each").await;
    let receiver = Receiver::start();
    for app in ["a", "b", "c"] {
        world.deploy_with(app, "1", json!({"env": "dev"})).await;
    }
    world.notification("hook", &receiver, all_triggers()).await;
    world.create::<PipelineSet>(of_deployments(&json!({}))).await;
    let mut relaybook = Relaybook::start(&world).await;
    made(&world, 3).await;
    assert_eq!(names(&world).await, ["a-app", "b-app", "c-app"]);
    let one = world.get_pipeline("a-app").await;
    assert_eq!((one.labels()["env"].as_str(), one.labels()["relaybook.dev/pipeline-set"].as_str()), ("dev", "apps"));
    assert_eq!(one.owner_references()[0].name, "apps");
    world.observed("a-app").await;
    world.cursor("a-app", "hook").await;
    assert_eq!(receiver.log().len(), 0, "what is there already is not news");

    world.deploy_with("new", "1", json!({"env": "dev"})).await;
    receiver.wait("/hook/new", 2).await;
    eventually("the baseline is removed", async || {
        let pipeline = world.get_pipeline("new-app").await;
        if pipeline.spec.baseline.is_none() { Ok(()) } else { Err(format!("{:?}", pipeline.spec)) }
    })
    .await;
    made(&world, 4).await;

    // A restart, a status that is deleted and a pipeline that is deleted are not news.
    relaybook.stop().await;
    world.deploy_with("late", "1", json!({"env": "dev"})).await;
    relaybook.start_again().await;
    receiver.wait("/hook/late", 2).await;
    world.delete_any::<Pipeline>("new-app").await;
    exists(&world, "new-app").await;
    made(&world, 5).await;
    world.cursor("new-app", "hook").await;
    world.ship("new", "2").await;
    let told = |app: &str| -> Vec<String> {
        let about = |request: &crate::support::receiver::Request| {
            let body = request.json();
            format!("{} {}", body["type"].as_str().unwrap(), body["revision"].as_str().unwrap())
        };
        // The state between the two writes of a new Deployment can be seen or not.
        receiver.to(&format!("/hook/{app}")).iter().map(about).filter(|told| told != "Progressing 1").collect()
    };
    eventually("the rollout is reported", async || {
        let of = told("new");
        if of == ["Added 1", "Deployed 1", "Progressing 2", "Deployed 2"] { Ok(()) } else { Err(format!("{of:?}")) }
    })
    .await;
    assert_eq!(told("late"), ["Added 1", "Deployed 1"]);
    assert!(["a", "b", "c"].iter().all(|app| told(app).is_empty()));
}

#[tokio::test]
async fn a_pipeline_is_deleted_after_the_last_delivery_about_its_source() {
    let world = World::new("sets-last").await;
    let receiver = Receiver::start();
    for app in ["a", "b", "c"] {
        world.deploy_with(app, "1", json!({"env": "dev"})).await;
    }
    world.notification("hook", &receiver, all_triggers()).await;
    world.create::<PipelineSet>(of_deployments(&json!({}))).await;
    let mut relaybook = Relaybook::start(&world).await;
    made(&world, 3).await;
    for pipeline in ["a-app", "b-app", "c-app"] {
        world.observed(pipeline).await;
        world.cursor(pipeline, "hook").await;
    }
    receiver.always("/hook/a", Reply::status(503));
    world.delete::<Deployment>("a").await;
    receiver.wait("/hook/a", 1).await;
    ready(&world, ConditionStatus::True, ("Made", "1 are deleted after their last deliveries"), 3).await;
    // Also after a crash.
    relaybook.restart().await;
    receiver.wait("/hook/a", 2).await;
    assert!(names(&world).await.contains(&"a-app".to_owned()));
    receiver.always("/hook/a", Reply::status(200));
    gone(&world, "a-app").await;
    made(&world, 2).await;

    // A source that is not selected any more is not gone, so nothing is reported.
    world.patch::<Deployment>("b", json!({"metadata": {"labels": {"env": null}}})).await;
    gone(&world, "b-app").await;
    made(&world, 1).await;
    world.ship("c", "2").await;
    receiver.wait("/hook/c", 2).await;
    let of_a = receiver.to("/hook/a");
    let last = of_a.last().unwrap().json();
    assert_eq!(last["type"], "Removed");
    assert!(of_a.iter().all(|request| request.id() == of_a[0].id()), "one delivery with several attempts");
    assert_eq!(receiver.to("/hook/b").len(), 0);
}
