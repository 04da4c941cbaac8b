//! Transitions of environments and of the pipeline, in addition to those of targets.

use relaybook_api::Outcome;
use relaybook_api::delivery::SubjectKind;
use serde_json::json;

use crate::support::{Receiver, Relaybook, World};

#[tokio::test]
async fn environments_and_the_pipeline_are_reported_with_their_own_layers() {
    let world = World::new("subjects").await;
    let receiver = Receiver::start();
    for app in ["web", "api"] {
        world.deploy(app, "1").await;
    }
    world.pipeline("shop", &["dev/web", "dev/api"]).await;
    let triggers = json!([
        {"type": "EnvironmentReady", "for": "1s"}, {"type": "PipelineReady"}, {"type": "Deployed", "environments": ["fence"]},
    ]);
    let over = json!({"triggers": triggers, "endpoint": {"url": receiver.url("/{{type}}/{{status}}")}});
    world.notification("hook", &receiver, over).await;
    let pipeline = world.get_pipeline("shop").await;
    let mut environments = serde_json::to_value(pipeline.spec.environments).unwrap();
    let layer = json!([{"name": "hook", "endpoint": {"url": receiver.url("/dev/{{type}}")}}]);
    environments[0]["notifications"] = layer;
    world.patch::<relaybook_api::Pipeline>("shop", json!({"spec": {"environments": environments}})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "f1").await;
    world.observed_at("shop", "f1", &["web"]).await;
    assert!(receiver.log().is_empty(), "only one of two targets runs the revision, so the environment is not ready");
    world.ship("api", "f1").await;
    let told = receiver.wait("/dev/EnvironmentReady", 1).await[0].json();
    assert_eq!((told["target"].as_str(), told["revision"].as_str()), (Some("dev/"), Some("f1")));
    // The fence is the last environment. Its first revision is f1, too, so now the whole pipeline runs f1.
    world.fence("shop", &["hook"]).await;
    receiver.wait("/PipelineReady/Current", 1).await;
    receiver.wait("/EnvironmentReady/Current", 1).await;
    let delivered = |d: &relaybook_api::Delivery| d.status.as_ref().is_some_and(|s| s.outcome == Some(Outcome::Delivered));
    let whole = world.delivery("PipelineReady f1", delivered).await.spec;
    assert_eq!((whole.subject.kind, whole.subject.name.as_str()), (SubjectKind::Pipeline, "shop"));
    assert_eq!(whole.lane, "pipeline/shop");
    let part = world.delivery("EnvironmentReady f1", |d| d.spec.subject.name == "dev" && delivered(d)).await.spec;
    assert_eq!((part.subject.kind, part.lane.as_str()), (SubjectKind::Environment, "environment/dev"));
    assert_eq!((receiver.log().len(), world.deliveries().await.len()), (4, 4));
}
