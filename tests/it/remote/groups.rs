//! Readiness of an environment and of a pipeline over several clusters.

use serde_json::json;

use crate::support::remote::{Remote, pipeline, second, third};
use crate::support::{Oracle, Receiver, Relaybook, World, eventually};

#[tokio::test]
async fn an_environment_is_ready_when_all_its_clusters_are_and_then_the_pipeline() {
    let world = World::new("remote-ready").await;
    let (west, east) = (Remote::of(&world, second(), "west").await, Remote::of(&world, third(), "east").await);
    let receiver = Receiver::start();
    west.world.deploy("web", "1").await;
    east.world.deploy("web", "1").await;
    west.world.deploy("dev-web", "1").await;
    let target =
        |app: &str, of: &Remote| json!({"namespace": world.ns, "appRef": {"name": app}, "clusterRef": of.reference()});
    let spec = json!({
        "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "environments": [
            {"name": "dev", "targets": [target("dev-web", &west)]},
            {"name": "prod", "targets": [target("web", &west), target("web", &east)]},
        ],
    });
    world.create::<relaybook_api::Pipeline>(json!({"metadata": {"name": "shop"}, "spec": spec})).await;
    // The fence is in another pipeline, because its environment would be one of this pipeline.
    pipeline(&world, "fenced", &[]).await;
    let triggers =
        json!([{"type": "EnvironmentReady"}, {"type": "PipelineReady"}, {"type": "Deployed", "environments": ["fence"]}]);
    world.notification("hook", &receiver, json!({"triggers": triggers, "endpoint": {"url": receiver.url("/hook")}})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let shown = async |targets: &str, revision: &str| {
        eventually(&format!("{targets} of {revision}"), async || {
            let status = world.get_pipeline("shop").await.status.unwrap_or_default();
            let shown = (status.ready_targets.as_str(), status.revision.as_str());
            if shown == (targets, revision) { Ok(()) } else { Err(format!("{shown:?}")) }
        })
        .await;
    };
    shown("3/3", "1").await;

    west.world.ship("dev-web", "2").await;
    west.world.ship("web", "2").await;
    shown("3/3", "1,2").await;
    east.world.roll_out("web", "2").await;
    shown("2/3", "2").await;
    east.world.finish("web").await;
    shown("3/3", "2").await;
    // A failure and the return to the same revision do not report readiness again.
    east.world.break_("web", "3", "no pods").await;
    shown("2/3", "2").await;
    east.world.ship("web", "2").await;
    shown("3/3", "2").await;
    world.fence("fenced", &["hook"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/", &["EnvironmentReady 2"])
        .lane("shop/hook/prod/", &["EnvironmentReady 2"])
        .lane("shop/hook//", &["PipelineReady 2"])
        .lane("fenced/hook/fence/", &["EnvironmentReady f1"])
        .lane("fenced/hook//", &["PipelineReady f1"])
        .check()
        .await;
}
