//! Tests what an answer means for a delivery, and how many requests are made.

use relaybook_api::Outcome;
use serde_json::json;

use crate::support::receiver::gaps;
use crate::support::{Oracle, Receiver, Relaybook, Reply, World};

#[tokio::test]
async fn any_2xx_delivers_with_one_request() {
    let world = World::new("any-2xx").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [200, 201, 202, 204].map(Reply::status));
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    for tag in ["2", "3", "4", "5"] {
        world.ship("web", tag).await;
    }
    receiver.wait("/hook/web", 4).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver)
        .lane("shop/hook/dev/web", &["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5"])
        .check()
        .await;

    let delivery = world.delivery("Deployed 4", |_| true).await.status.unwrap();
    assert_eq!((delivery.outcome, delivery.status_code, delivery.attempts), (Some(Outcome::Delivered), Some(202), 1));
    assert!(delivery.last_duration_millis.is_some() && delivery.settled_time.is_some());
}

#[tokio::test]
async fn a_server_error_is_retried_with_growing_delays_and_one_id() {
    let world = World::new("retried").await;
    let receiver = Receiver::start();
    receiver.script("/hook/web", [500, 500, 500, 500].map(Reply::status));
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    let retry = json!({"delivery": {"retry": {"initial": "100ms", "max": "10s"}}});
    world.notification("hook", &receiver, retry).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    world.ship("web", "2").await;
    receiver.wait("/hook/web", 5).await;
    world.fence("shop", &["hook"]).await;
    Oracle::new(&world, &receiver).lane("shop/hook/dev/web", &["Deployed 2"]).check().await;

    let requests = receiver.to("/hook/web");
    assert_eq!(requests.len(), 5);
    assert!(requests.iter().all(|r| r.id() == requests[0].id() && r.body == requests[0].body));
    let gaps = gaps(&requests);
    for (gap, least) in gaps.iter().zip([100, 200, 400, 800]) {
        assert!(gap.as_millis() >= least, "{gaps:?}");
    }
}
