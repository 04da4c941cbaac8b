//! Changes on two other clusters: reversals, a failure and its recovery.

use serde_json::json;

use crate::support::remote::{Remote, pipeline, second, third};
use crate::support::{Oracle, Receiver, Relaybook, World};

#[tokio::test]
async fn two_clusters_are_reported_in_order_and_separately() {
    let world = World::new("remote-two").await;
    let (west, east) = (Remote::of(&world, second(), "west").await, Remote::of(&world, third(), "east").await);
    let receiver = Receiver::start();
    west.world.deploy("web", "1").await;
    east.world.deploy("api", "1").await;
    pipeline(&world, "shop", &[("dev/web", Some(&west)), ("prod/api", Some(&east))]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    west.world.ship("web", "2").await;
    west.world.break_("web", "3", "no pods").await;
    west.world.ship("web", "2").await;
    // As fast as the API server accepts the writes.
    for tag in ["2", "1", "2"] {
        east.world.ship("api", tag).await;
    }
    world.observed_at("shop", "2", &["web", "api"]).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/web", &["Deployed 2", "Failed 3", "Recovered 2"])
        .lane("shop/hook/prod/api", &["Deployed 2", "Deployed 1", "Deployed 2"])
        .check()
        .await;
    let shown = &world.get_pipeline("shop").await.status.unwrap().environments[0].targets[0];
    assert_eq!(shown.cluster_app_ref.cluster_ref.as_ref().map(|c| c.name.as_str()), Some("west"));
    let name = format!("dev/west/{}/web", world.ns);
    world.delivery("Deployed 2", |d| d.spec.subject.name == name).await;
}
