//! Two replicas: the second one takes over while a cluster joins and another one leaves.

use serde_json::json;

use super::hub::{Hub, env, environment};
use crate::support::relaybook::Options;
use crate::support::world::{OF_SECOND, all_triggers};
use crate::support::{Oracle, Relaybook};

#[tokio::test]
async fn a_replica_that_takes_over_reports_objects_created_and_deleted_meanwhile() {
    let mut hub = Hub::new("gen-takeover", &["eu-1", "eu-2", "eu-3"]).await;
    hub.world.only_for_first();
    hub.bundle("web", "c1").await;
    for cluster in ["eu-1", "eu-2"] {
        hub.join(cluster, json!({"env": "dev"})).await;
        hub.run("web", cluster, "c1").await;
    }
    hub.pipeline(json!([environment("dev", env("dev"), json!({}))])).await;
    hub.world.notification("hook", &hub.receiver, all_triggers()).await;
    hub.relaybook = Some(Relaybook::with(&hub.world, Options { pod: Some("first"), ..hub.options() }).await);
    hub.world.ready("hook").await;
    hub.world.cursor("shop", "hook").await;
    hub.targets(&["dev/eu-1/web", "dev/eu-2/web"]).await;
    let second = Relaybook::with(&hub.world, Options { pod: Some("second"), ..hub.options() }).await;
    for lease in ["relaybook-pipeline", "relaybook-dispatch"] {
        second.holds(lease, OF_SECOND).await;
    }
    // The first replica ends before it can see what happens. The second one has not watched them until now.
    hub.relaybook().stop().await;
    hub.join("eu-3", json!({"env": "dev"})).await;
    hub.deploy("web", "eu-3", "c1").await;
    hub.undeploy("web", "eu-1").await;
    hub.targets(&["dev/eu-2/web", "dev/eu-3/web"]).await;
    hub.applied("web", "eu-3", "c1").await;
    hub.runs("web", "eu-3", "c1").await;
    hub.world.fence("shop", &["hook"]).await;
    drop(second);
    Oracle::new(&hub.world, &hub.receiver)
        .lane("shop/hook/dev/web-eu-1", &["Removed"])
        .lane("shop/hook/dev/web-eu-3", &["Added c1", "Progressing c1", "Deployed c1"])
        .check()
        .await;
}
