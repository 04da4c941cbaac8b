//! Which layers the API server accepts and rejects, and how it merges the layers of several field managers.

use kube::api::{Patch, PatchParams, PostParams};
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use super::lay;
use crate::support::World;
use crate::support::world::{apps::Kind, pipeline};

/// Returns this number of layers, each with fields of every kind.
fn layers(count: usize) -> Value {
    let one = |n: usize| {
        json!({
            "name": format!("n{n}"), "remove": ["/endpoint/headers/X-Team"], "suspend": false,
            "triggers": [{"type": "Failed", "environments": ["prod", "dev-*"]}],
            "endpoint": {"url": "https://example.com/in", "timeout": "5s", "headers": {"X-Team": "{{pipeline.name}}"},
                "auth": {"token": {"secretKeyRef": {"name": "a", "key": "b"}}}},
            "template": {"inline": {"body": "{}"}, "parameters": {"channel": "#a"}},
            "delivery": {"retry": {"initial": "1s"}, "rate": {"perSecond": 5}},
        })
    };
    (0..count).map(one).collect()
}

async fn dry(world: &World, pipeline: Value) -> Result<Pipeline, String> {
    let pipeline: Pipeline = serde_json::from_value(pipeline).expect("a pipeline");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    world.api().create(&dry, &pipeline).await.map_err(|e| e.to_string())
}

#[tokio::test]
async fn the_number_of_layers_is_limited() {
    let world = World::new("layers-many").await;
    let targets: Vec<_> = (1..32).map(|n| format!("e{n}/web")).collect();
    let plain = pipeline(&world.ns, "shop", Kind::Deployment, &targets.iter().map(String::as_str).collect::<Vec<_>>());
    let mut full = plain.clone();
    lay(&mut full, "", layers(16));
    for target in targets.iter().map(String::as_str).chain(["fence/fence"]) {
        lay(&mut full, target, layers(16));
        lay(&mut full, target.split_once('/').unwrap().0, layers(16));
    }
    assert_eq!(full["spec"]["environments"].as_array().unwrap().len(), 32);
    dry(&world, full).await.expect("accepted");

    let twice = json!([{"name": "a"}, {"name": "a", "suspend": true}]);
    for (what, bad, words) in [
        ("too many", layers(17), "must have at most 16 items"),
        ("one twice", twice, "Duplicate value"),
        ("an invalid name", json!([{"name": "A b"}]), "should match"),
    ] {
        for at in ["", "e1", "e1/web"] {
            let mut object = plain.clone();
            lay(&mut object, at, bad.clone());
            let refused = dry(&world, object).await.expect_err(what);
            assert!(refused.contains(words), "{what} at {at:?}: {refused}");
        }
    }
}

#[tokio::test]
async fn a_layer_requires_a_name() {
    let world = World::new("layers-nameless").await;
    let plain = pipeline(&world.ns, "shop", Kind::Deployment, &["e1/web"]);
    world.create::<Pipeline>(plain.clone()).await;
    for at in ["", "e1", "e1/web"] {
        let mut object = plain.clone();
        lay(&mut object, at, json!([{"suspend": true}]));
        let patch = Patch::Merge(json!({"spec": object["spec"]}));
        let refused = world.api::<Pipeline>().patch("shop", &PatchParams::default(), &patch).await.expect_err("refused");
        let refused = refused.to_string();
        assert!(refused.contains("notifications") && refused.contains("name: Required value"), "at {at:?}: {refused}");
    }
}

#[tokio::test]
async fn each_field_manager_has_its_own_layers() {
    let world = World::new("layers-apply").await;
    let mut object = pipeline(&world.ns, "shop", Kind::Deployment, &["dev/web"]);
    lay(&mut object, "", json!([{"name": "hook", "suspend": true}]));
    let apply = async |who: &str, mut object: Value| {
        object["apiVersion"] = json!("relaybook.dev/v1alpha1");
        object["kind"] = json!("Pipeline");
        let (how, patch) = (PatchParams::apply(who), Patch::Apply(&object));
        world.api::<Pipeline>().patch("shop", &how, &patch).await.expect("applied")
    };
    apply("team", object.clone()).await;
    let theirs = |layers: Value, dev: Value| {
        json!({"metadata": {"name": "shop"}, "spec": {
            "notifications": layers, "environments": [{"name": "dev", "notifications": dev}],
        }})
    };
    let both = apply("platform", theirs(json!([{"name": "audit", "triggers": []}]), json!([{"name": "page"}]))).await;
    let names = |p: &Pipeline| p.spec.notifications.iter().map(|l| l.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&both), ["hook", "audit"]);
    assert_eq!(both.spec.environments[0].notifications[0].name, "page");
    assert_eq!(both.spec.environments[0].targets.len(), 1);

    let after = apply("platform", theirs(json!([]), json!([]))).await;
    assert_eq!(names(&after), ["hook"]);
    assert!(after.spec.environments[0].notifications.is_empty());
}
